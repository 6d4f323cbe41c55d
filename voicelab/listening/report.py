"""Report of a listening test: text for a methods section, an HTML page, all numerical results, and the responses."""

from __future__ import annotations

import hashlib
import html
import itertools
import json
import math
import platform
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from scipy import stats

from voicelab.distribution import DISTRIBUTION, __version__
from voicelab.errors import ArgumentError
from voicelab.listening.design import ANCHORS, BY_SYSTEM, MULTIPLE, REFERENCE, SINGLE
from voicelab.listening.listeners import FAILED_CHECKS
from voicelab.listening.results import ListeningResult, least_p
from voicelab.stats import Estimate, intraclass_correlation, krippendorff_alpha
from voicelab.stats.estimate import interval
from voicelab.storage import check_own, write_atomic
from voicelab.tables import csv_bytes

if TYPE_CHECKING:
    import pandas as pd

_STANDARDS: Final = {
    "MOS": "absolute category rating (Recommendation ITU-T P.800 annex B; in listeners' own browsers, P.808)",
    "SMOS": "similarity to an open reference, rated from 1 (definitely different) to 5 (definitely the same)",
    "DMOS": "degradation category rating against an open reference (Recommendation ITU-T P.800 annex D)",
    "CMOS": "comparison category rating (Recommendation ITU-T P.800 annex E)",
    "MUSHRA": "MUSHRA (Recommendation ITU-R BS.1534-3)",
    "MUSHRA-NMR": "MUSHRA-NMR: as MUSHRA, without an open reference, anchors and post-screening (Varadhan et al., 2025)",
    "BWS": "best-worst scaling (score: share of trials in which the system was best, minus that in which it was worst)",
    "transcription": "transcription (words correct, normalized as for WER)",
    "AB": "forced choice between pairs",
    "ABX": "ABX",
}
_Row = tuple[str, str, str, float]
_Ends = tuple[float, float, float]

_CHECK: Final = "headphone check"
# Contents of a complete methods section, each with the question or step of a study that provides it.
_UNREPORTED: Final = {
    "listeners' ages": "age", "listeners' hearing": "hearing", "listeners' native language": "language", "the room": "",
    "headphones and how they were checked": _CHECK, "listening level": "", "training before the test": "training",
    "recruitment, payment and briefing of listeners": "", "breaks and length of a session": "",
}  # fmt: skip
_QUALIFICATION: Final = {
    "a hearing test (digits in noise)": "", "a two-channel headphone check": _CHECK, "a test of the environment": "",
    "the language spoken at home": "language", "recent listening tests of the same listener": "", "a training job": "",
}  # fmt: skip
_MAX_ANSWERS: Final = 12
_README: Final = """report.html, methods.txt: the report; figures.csv: every figure; study.json: design, versions, screening
votes.csv: all responses; counts = True marks the analyzed responses

Recompute the main figures from votes.csv, without voicelab:

    python analysis.py     needs pandas and scipy
    Rscript analysis.R     needs lme4, lmerTest and ordinal
"""
_STYLE: Final = """
body { font: 16px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 50rem; padding: 0 1rem; }
table { border-collapse: collapse; } td, th { border-bottom: 1px solid #8888; padding: 0.2rem 0.8rem; text-align: left; }
td:last-child { font-variant-numeric: tabular-nums; text-align: right; } code { overflow-wrap: anywhere; }
"""


@dataclass(frozen=True)
class ListeningReport:
    """Report of a listening test.

    ``text`` is the text of a methods section, ``html`` a page, and ``figures`` a table of all numerical results.
    ``listeners`` counts the answers to a study's questions and the results of its headphone check. Its columns are
    question, answer, and the numbers of all listeners and of analyzed listeners; it is empty for a test without a
    study.
    """

    text: str
    html: str = field(repr=False)
    figures: pd.DataFrame = field(repr=False)
    listeners: pd.DataFrame = field(repr=False)
    votes: pd.DataFrame = field(repr=False)
    study: dict[str, Any] = field(repr=False)

    def save(self, folder: str | Path) -> Path:
        """Write report.html, methods.txt, figures.csv, votes.csv, study.json, README.txt, analysis.py and analysis.R.

        The report of a study also has listeners.csv. analysis.py and analysis.R recompute the main results from
        votes.csv without voicelab. Files are readable by their owner only, because responses contain listeners' names.
        Returns the folder. Raises StoreError if writing fails, or if the folder has other files with these names.
        """
        folder = Path(folder)
        study = json.dumps(self.study, indent=1, ensure_ascii=False) + "\n"
        contents = {
            "report.html": self.html.encode(),
            "methods.txt": f"{self.text}\n".encode(),
            "figures.csv": csv_bytes(self.figures),
            "votes.csv": csv_bytes(self.votes),
            "study.json": study.encode(),
            "README.txt": _README.encode(),
        }
        if not self.listeners.empty:
            contents["listeners.csv"] = csv_bytes(self.listeners)
        for name in ("analysis.py", "analysis.R"):
            contents[name] = files("voicelab.listening").joinpath("scripts", name).read_bytes()
        check_own(folder, contents, "report.html")
        for name, data in contents.items():
            write_atomic(folder / name, data, private=True)
        return folder

    def __str__(self) -> str:
        return self.text

    def _repr_html_(self) -> str:
        body = self.html.partition("<body>")[2].partition("</body>")[0]
        return f"<div>{body}</div>"


def report_of(result: ListeningResult) -> ListeningReport:
    """Build the report of a result; called by ``ListeningResult.report``."""
    table = figures(result)
    votes = _with_positions(result.votes)
    versions = {"python": platform.python_version(), DISTRIBUTION: __version__}
    versions |= {name: version(name) for name in ("numpy", "scipy", "pandas")}
    study = {**result.design, "versions": versions, "screening": result.screening.to_dict("records")}
    tests = (*result.tests.values(), *result.crossed.values())
    study["confidence"] = next((test.estimate.confidence for test in tests), 0.95)
    if result.outcome is not None:
        plan = result.outcome.plan
        study["plan"] = {"primary": plan.primary, "claim": plan.claim, "margin": plan.margin, "sha256": plan.digest}
    study["votes_sha256"] = hashlib.sha256(csv_bytes(votes)).hexdigest()
    listeners = _listeners(result.people)
    text = "\n\n".join(_paragraphs(result, table, listeners, study))
    return ListeningReport(text, _page(text, table, listeners, study), table, listeners, votes, study)


def _with_positions(votes: pd.DataFrame) -> pd.DataFrame:
    """Add the column ``place``, a trial's position in the session, if all trial ids contain it."""
    positions = votes["trial"].astype(str).str.extract(r"^\d+-(\d+)$")[0]
    return votes.assign(place=positions.astype(int)) if positions.notna().all() else votes


def _listeners(people: pd.DataFrame) -> pd.DataFrame:
    """Count the listeners of a study, and those who were analyzed, by answer."""
    import pandas as pd

    rows = [
        (question, answer, int(mask.sum()), int((mask & people["counts"]).sum()))
        for question, answer, mask in _answers(people)
    ]
    return pd.DataFrame(rows, columns=["question", "answer", "listeners", "count"])


def _answers(people: pd.DataFrame) -> Iterator[tuple[str, str, pd.Series[bool]]]:
    """Yield (question, answer, mask), in which the mask marks the listeners who gave this answer."""
    for column in map(str, people.filter(regex=r"^(questionnaire|break \d+)\.(?!since$)")):
        step, _, name = column.partition(".")
        answers, name = people[column].dropna(), name + f" ({step})" * (step != "questionnaire")
        if answers.dtype.kind in "iuf" and len(answers):
            yield name, f"{answers.min():g} to {answers.max():g}, median {answers.median():g}", people[column].notna()
        elif answers.nunique() > _MAX_ANSWERS or 1 < answers.nunique() == len(answers):
            # Free text may identify a listener.
            yield name, f"{answers.nunique()} different answers", people[column].notna()
        else:
            yield from ((name, str(answer), people[column] == answer) for answer in answers.value_counts().index)
    steps = people.reindex(columns=["headphones.since", "headphones 1.since", "headphones 2.since"]).notna()
    passed, repeated, failed = (steps[name] for name in steps)
    if steps.any(axis=None):
        yield _CHECK, "passed", passed & ~repeated
        yield _CHECK, "passed at the second attempt", passed & repeated
        yield _CHECK, "failed twice", failed


def _paragraphs(
    result: ListeningResult, figures: pd.DataFrame, listeners: pd.DataFrame, study: dict[str, Any]
) -> Iterator[str]:
    of_all = dict(figures.loc[figures["first"] == "", ["figure", "value"]].itertuples(index=False, name=None))
    design = result.design
    training, traps = design["training"], design["traps"]
    checks = f", and {design['checks']} attention checks" * bool(design["checks"])
    checks += f", and {len(traps)} trapping questions" * bool(traps)
    if training:
        checks += f", after {training} training trial{'s' * (training > 1)} without stored responses"
    texts = len({text for _, text in design.get("texts", ())})
    sentences = f"{len(design['items'])} sentences"
    if 1 < texts < len(design["items"]):
        sentences = f"{texts} sentences in {len(design['items'])} items"
    block = f", {design['per_listener']} per listener" * bool(design["per_listener"])
    yield (
        f"Design. {design['name']}: {_STANDARDS[result.kind]}. {len(design['systems'])} systems "
        f"({', '.join(design['systems'])}), {sentences}{block}{checks}. The question was: "
        f"“{design['question']}” " + _order(result.kind, design)
    )
    excluded = "; ".join(f"{name}: {reason}" for name, reason in result.excluded.items())
    participants = of_all["participants"]
    yield (
        f"Listeners. {participants:.0f} took part, {result.listeners} {'was' if result.listeners == 1 else 'were'} analyzed "
        f"({len(result.frame)} responses). "
        + (f"Screened out: {excluded}." if excluded else "No listener was screened out.")
        + _agreement(of_all, result.kind)
    )
    reported = {*listeners["question"], *["training"] * bool(training)}
    if not listeners.empty:
        answers = [
            f"{question}: " + ", ".join(f"{row.listeners} ({row.count}) {row.answer}" for row in rows.itertuples())
            for question, rows in listeners.groupby("question", sort=False)
        ]
        yield f"Answers of listeners (in parentheses: answers of the analyzed listeners). {'; '.join(answers)}."
    yield _qualification(result, of_all, reported)
    if result.outcome is not None:
        yield f"Registered analysis. Registered {result.outcome.plan.registered}. {' '.join(str(result.outcome).split())}."
    questions = dict(design.get("scales", ()))
    for scale, analysis in (result.scales or {"": result}).items():
        table = figures[figures["figure"].str.startswith(f"{scale}: " * bool(scale))]
        if scale:
            table = table.assign(figure=table["figure"].str.removeprefix(f"{scale}: "))
            values = dict(table.loc[table["first"] == "", ["figure", "value"]].itertuples(index=False, name=None))
            yield f"Scale {scale}. The question was: “{questions[scale]}”{_agreement(values, result.kind)}"
        if result.kind in BY_SYSTEM and analysis.scores:
            yield _systems(analysis, table)
        elif analysis.scores:
            yield "Scores. " + "; ".join(f"{name} {score}" for name, score in analysis.scores.items()) + "."
        yield _comparisons(analysis, result.notes if analysis is result else ())
    if result.scales:
        yield f"Scales. {' '.join(result.notes)}"
    yield _bias(of_all)
    versions = ", ".join(f"{name} {number}" for name, number in study["versions"].items())
    plan = f"; SHA-256 of the registered plan {result.outcome.plan.digest}" if result.outcome else ""
    yield f"Software and data. {versions}; seed {design['seed']}; SHA-256 of votes.csv {study['votes_sha256']}{plan}."
    yield f"Not recorded by voicelab, to be added: {_missing(_UNREPORTED, reported, '; ')}."


def _missing(required: Mapping[str, str], reported: set[str], separator: str) -> str:
    return separator.join(name for name, question in required.items() if question not in reported)


def _qualification(result: ListeningResult, of_all: Mapping[str, float], reported: set[str]) -> str:
    """Describe the qualification of listeners as required by P.808, and list the required items that were not collected."""
    frame = result.frame
    if result.kind == "MUSHRA":
        parts = ["The hidden reference and the anchors serve as gold questions"]
    elif not of_all["gold questions"]:
        parts = ["There were no gold or trapping questions"]
    else:
        correct = f"{of_all['gold questions, correct']:.0f} of {of_all['gold questions']:.0f} were answered correctly"
        trapping = bool(result.design["traps"])
        rule = f"over {FAILED_CHECKS:.0%}{' of them, or a trapping question,' * trapping} were screened out"
        parts = [
            f"Gold questions (noise-masked sounds{' or trapping questions' * trapping}): {correct}; listeners failing {rule}"
        ]
    if not frame.empty:
        low, high, median = (of_all[f"responses per clip, {name}"] for name in ("minimum", "maximum", "median"))
        unit = "clip" if "rating" in frame and result.kind != "CMOS" else "pair of clips"
        parts.append(f"each {unit} has {low:.0f} to {high:.0f} analyzed responses (median {median:g})")
    if "rating" in frame and not frame.empty:
        counts = frame.groupby("listener")["rating"].agg(["nunique", "size"])
        names = [str(name) for name in counts.index[(counts["nunique"] == 1) & (counts["size"] > 1)]]
        parts.append(f"analyzed listeners with constant ratings: {', '.join(names) or 'none'}")
    if "responses without playback" in of_all:
        parts.append(f"responses without playback: {of_all['responses without playback']:.0f}")
    missing = _missing(_QUALIFICATION, reported, ", ")
    return f"Qualification of listeners (ITU-T P.808). {'; '.join(parts)}. Not collected: {missing}."


def _order(kind: str, design: Mapping[str, Any]) -> str:
    level = "Levels were not changed"
    if design["lufs"]:
        level = f"The sounds of a sentence were matched in loudness, to at most {design['lufs']:g} LUFS"
    order = "the order within pairs was balanced over listeners and sentences"
    if kind in SINGLE:
        order = "the order of systems followed Williams squares, without consecutive trials of a sentence"
    elif kind == "transcription":
        order = (
            "each listener heard each sentence once, with systems rotated over listeners and sentences, in random order"
        )
    elif kind in MULTIPLE:
        order = "trials and sounds were in random order for each listener"
    return f"{level} (ITU-R BS.1770-4); {order}."


def _agreement(of_all: Mapping[str, float], kind: str) -> str:
    alpha = f"Krippendorff's alpha ({'ordinal' if kind in SINGLE else 'interval'})"
    labels = {"icc(2,1)": "ICC(2,1)", "icc(2,k)": "ICC(2,k)", "alpha": alpha}
    parts = [f"{label} {of_all[name]:.2f}" for name, label in labels.items() if name in of_all]
    return f" Agreement: {'; '.join(parts)}." if parts else ""


def _systems(result: ListeningResult, figures: pd.DataFrame) -> str:
    lines = []
    table = figures[figures["second"] == ""].pivot(index="first", columns="figure", values="value")
    for system in dict.fromkeys([*result.design["systems"], REFERENCE, *ANCHORS]):
        if system in table.index:
            score, row = result.scores.get(system), table.loc[system]
            ends = f" {interval(score.low, score.high, '.2f')}" if score else ""
            quartiles = f"median {row['median']:g} (IQR {row['q1']:g} to {row['q3']:g})"
            sd = row.get("sd", math.nan)
            lines.append(f"{system} {row['mean']:.2f}{ends}, SD {sd:.2f}, {quartiles}, {row['votes']:.0f} ratings")
    return f"Scores: mean with interval over listeners and sentences. {'; '.join(lines)}."


def _comparisons(result: ListeningResult, notes: Sequence[str]) -> str:
    response = {"CMOS": "rating", **dict.fromkeys(BY_SYSTEM, "difference")}.get(result.kind, "choice (0 or 1)")
    formula = f"{response} ~ 1 + (1 | listener) + (1 | sentence), linear, by REML"
    if result.kind == "transcription":
        formula = "words correct (%) ~ system + (system | listener) + (system | sentence), linear, by REML"
    lines = [line.strip() for line in result.comparisons()]
    sides = "one-sided" if result.kind == "ABX" else "two-sided"
    text = f"{formula}, with Satterthwaite's degrees of freedom; {sides} tests. {'; '.join(lines)}."
    return " ".join(["Comparisons.", text if lines else "No systems were compared.", *notes])


def _bias(of_all: Mapping[str, float]) -> str:
    names = [name for name in of_all if any(word in name for word in ("first", "half", "halves"))]
    parts = [f"{name} {of_all[name]:.3g}" for name in sorted(names, key=lambda name: name.endswith(": p"))]
    return f"Position and fatigue. {'; '.join(parts) or 'The order of the responses is unknown'}."


def _page(text: str, figures: pd.DataFrame, listeners: pd.DataFrame, study: dict[str, Any]) -> str:
    import pandas as pd

    paragraphs = []
    for paragraph in text.split("\n\n"):
        title, _, body = paragraph.partition(". ")
        paragraphs.append(f"<p><b>{html.escape(title)}.</b> {html.escape(body)}</p>")
    tables = {"Listeners": listeners, "Screening": pd.DataFrame(study["screening"])}
    sections = "".join(
        f"<h2>{title}</h2>{table.to_html(index=False, border=0)}" for title, table in tables.items() if len(table)
    )
    title, table = html.escape(str(study["name"])), figures.to_html(index=False, border=0, float_format="{:.6g}".format)
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title><style>{_STYLE}</style></head>'
        f"<body><h1>{title}</h1>{''.join(paragraphs)}{sections}<h2>Figures</h2><p>analysis.py and analysis.R recompute the "
        f"main ones from votes.csv.</p>{table}</body></html>\n"
    )


# ---- figures by name


def figures(result: ListeningResult) -> pd.DataFrame:
    """Return a table of all finite results with the columns ``figure``, ``first``, ``second`` and ``value``.

    ``first`` and ``second`` are systems; they are "" if a result concerns all systems.
    """
    import pandas as pd

    table = pd.DataFrame(list(_rows(result)), columns=["figure", "first", "second", "value"])
    finite: pd.DataFrame = table[np.isfinite(table["value"])].reset_index(drop=True)
    return finite


def _rows(result: ListeningResult) -> Iterator[_Row]:
    yield from _entries(_counts(result.votes, result.frame))
    if result.frame.empty:
        return
    for scale, analysis in (result.scales or {"": result}).items():
        for figure, first, second, value in _analysis_rows(analysis):
            yield f"{scale}: {figure}" if scale else figure, first, second, value
    if (planned := result.outcome) is not None and planned.test and planned.estimate and planned.p is not None:
        registered: dict[str, float | _Ends] = {
            "registered": _ends(planned.estimate),
            "registered, t": planned.test.statistic,
            "registered, p": planned.p,
        }
        yield from _entries(registered, *planned.plan.primary)
    yield from _entries(position_effects(_with_positions(result.frame), result.kind))


def _analysis_rows(result: ListeningResult) -> Iterator[_Row]:
    """Yield the scores and tests of a scale."""
    if result.kind in BY_SYSTEM:
        yield from _ratings(result)
    pairs = {f"{b} against {a}": (b, a) for a, b in itertools.combinations(result.design["systems"], 2)}
    for name, score in result.scores.items():
        yield from _entries({"mean": _ends(score)}, *(pairs[name] if result.kind == "CMOS" else (name,)))
    for pair in dict.fromkeys([*result.crossed, *result.tests]):
        yield from _pair(result, pair)
    if minimum := least_p(result.tests, 1 + len(result.beside)):
        yield "sentences fixed, smallest attainable p", "", "", minimum


def _entries(values: Mapping[str, float | _Ends], first: str = "", second: str = "") -> Iterator[_Row]:
    """Yield a row for each value; an estimate has three rows: value, lower limit and upper limit of the interval."""
    for name, value in values.items():
        if isinstance(value, tuple):
            for suffix, end in zip(("", ", low", ", high"), value, strict=True):
                yield f"{name}{suffix}", first, second, end
        else:
            yield name, first, second, float(value)


def _ends(estimate: Estimate) -> _Ends:
    return estimate.value, estimate.low, estimate.high


def _counts(responses: pd.DataFrame, analyzed: pd.DataFrame) -> dict[str, float | _Ends]:
    trials = responses.drop_duplicates(["listener", "trial"])
    gold = trials[trials["check"].astype(bool)]
    counts: dict[str, float | _Ends] = {"participants": responses["listener"].nunique()}
    counts |= {"gold questions": len(gold), "gold questions, correct": gold["passed"].astype(bool).sum()}
    if "plays" in responses and (responses["plays"] > 0).any():
        counts["responses without playback"] = (trials["plays"] == 0).sum()
    counts |= {
        "listeners": analyzed["listener"].nunique(), "sentences": analyzed["item"].nunique(), "votes": len(analyzed)
    }  # fmt: skip
    if not analyzed.empty:
        names = [name for name in ("system", "against", "chosen", "other") if name in analyzed]
        systems = np.sort(analyzed[names].to_numpy(str).astype(object), axis=1)
        sizes = analyzed.groupby([responses["item"].loc[analyzed.index], *systems.T]).size()
        ends = {"minimum": sizes.min(), "maximum": sizes.max(), "median": sizes.median()}
        counts |= {f"responses per clip, {name}": value for name, value in ends.items()}
    return counts


def position_effects(responses: pd.DataFrame, kind: str) -> dict[str, float | _Ends]:
    """Measure position bias and the change from the first to the second half of a session."""
    effects: dict[str, float | _Ends] = {}
    if kind in {"AB", "ABX"} and "first" in responses:
        first = responses["first"].astype(bool)
        p = stats.binomtest(int(first.sum()), len(first)).pvalue
        effects |= {"share of the first": first.mean(), "share of the first: p": p}
    if kind == "CMOS":
        means = responses.groupby("listener")["rating"].mean()
        effects["mean of the second over the first"] = means.mean()
        if len(means) > 1 and np.ptp(np.round(means, 12)):
            effects["mean of the second over the first: p"] = stats.ttest_1samp(means, 0.0).pvalue
    if "place" not in responses:
        return effects
    half = responses["place"] >= responses.groupby("listener")["place"].transform("median")
    for name in ("seconds", "rating"):
        if name not in responses:
            continue
        table = responses.assign(half=half).pivot_table(index="listener", columns="half", values=name).dropna()
        if table.shape[1] < 2:
            continue
        effects |= {f"{name}, first half": table[False].mean(), f"{name}, second half": table[True].mean()}
        if len(table) > 1 and np.ptp(np.round(table[True] - table[False], 12)):
            effects[f"{name}, halves: p"] = stats.ttest_rel(table[True], table[False]).pvalue
    return effects


def _ratings(result: ListeningResult) -> Iterator[_Row]:
    responses = result.frame
    for system, rows in responses.groupby("system")["rating"]:
        q1, median, q3 = np.percentile(rows, [25, 50, 75])
        values = {"sd": rows.std(), "votes": len(rows), "q1": q1, "median": median, "q3": q3}
        if system not in result.scores:  # a single rating has no interval
            values["mean"] = rows.mean()
        yield from _entries(values, str(system))
    items = result.votes["item"].loc[responses.index]  # repeated takes of a text are different targets
    table = responses.pivot_table(index=[items, "system"], columns="listener", values="rating").to_numpy()
    try:
        if np.isfinite(table).all():
            yield "icc(2,1)", "", "", intraclass_correlation(table)
            yield "icc(2,k)", "", "", intraclass_correlation(table, of_mean=True)
        yield "alpha", "", "", krippendorff_alpha(table.T, level="ordinal" if result.kind in SINGLE else "interval")
    except ArgumentError:  # one listener, or no item with two ratings
        return


def _pair(result: ListeningResult, pair: tuple[str, str]) -> Iterator[_Row]:
    """Yield the rows of a pair: its test with random items, its effect sizes, and its test with fixed items."""
    values: dict[str, float | _Ends] = {}
    if pair in result.crossed:
        crossed = result.crossed[pair]
        values |= {"crossed": _ends(crossed.estimate), "crossed, error": crossed.error, "crossed, df": crossed.df}
        values |= {"crossed, t": crossed.statistic, "crossed, p": crossed.p}
        values["crossed, p after Holm"] = result.crossed_p_holm[pair]
        values |= {name: _ends(size) for name, size in result.sizes[pair].items()}
    if (test := result.tests.get(pair)) is None:
        yield from _entries(values, *pair)
        return
    values |= {"sentences fixed": _ends(test.estimate), "sentences fixed, statistic": test.statistic}
    values |= {"sentences fixed, p": test.p, "sentences fixed, p after Holm": result.p_holm[pair]}
    yield from _entries(values, *pair)
