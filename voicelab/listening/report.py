"""What a paper tells of a listening test: text for its methods, a page, and every figure with the votes it comes from."""

from __future__ import annotations

import hashlib
import html
import itertools
import json
import math
import platform
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from voicelab.distribution import DISTRIBUTION, __version__
from voicelab.errors import ArgumentError
from voicelab.listening import recompute
from voicelab.listening.design import ANCHORS, REFERENCE
from voicelab.listening.results import FAILED_CHECKS, ListeningResult, least_p
from voicelab.stats import Estimate, intraclass_correlation, krippendorff_alpha
from voicelab.stats.estimate import interval
from voicelab.storage import write_atomic
from voicelab.tables import csv_bytes

if TYPE_CHECKING:
    import pandas as pd

_STANDARDS: Final = {
    "MOS": "absolute category rating (Recommendation ITU-T P.800 annex B; in listeners' own browsers, P.808)",
    "CMOS": "comparison category rating (Recommendation ITU-T P.800 annex E)",
    "MUSHRA": "MUSHRA (Recommendation ITU-R BS.1534-3)",
    "AB": "forced choice between pairs",
    "ABX": "ABX",
}
# What a paper should tell, with the question of a study, or the step, that tells it.
_CHECK: Final = "check of headphones"
_UNKNOWN: Final = {
    "listeners' ages": "age", "listeners' hearing": "hearing", "listeners' language": "language", "the room": "",
    "headphones, or how they were checked": _CHECK, "listening level": "", "training before the test": "training",
    "how listeners were found, paid and informed": "", "breaks and length of a sitting": "",
}  # fmt: skip
_QUALIFIED: Final = {
    "a test of hearing (digits in noise)": "", "a check of headphones on both ears": _CHECK,
    "a test of the surroundings": "", "the language spoken at home": "language",
    "recent listening tests of the same person": "", "a training job": "",
}  # fmt: skip
_MOST_ANSWERS: Final = 12
_STYLE: Final = """
body { font: 16px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 50rem; padding: 0 1rem; }
table { border-collapse: collapse; } td, th { border-bottom: 1px solid #8888; padding: 0.2rem 0.8rem; text-align: left; }
td:last-child { font-variant-numeric: tabular-nums; text-align: right; } code { overflow-wrap: anywhere; }
"""


@dataclass(frozen=True)
class ListeningReport:
    """A report: ``text`` for a methods section, ``html`` as one page, ``figures`` with each number by its name.

    ``listeners`` says how many gave each answer to a study's questions, and passed its check of headphones, and how many of
    them count (columns question, answer, listeners, count); it is empty where nothing was asked. ``save`` writes all of it
    with the votes, and the programs that compute the figures anew from these.
    """

    text: str
    html: str = field(repr=False)
    figures: pd.DataFrame = field(repr=False)
    listeners: pd.DataFrame = field(repr=False)
    votes: pd.DataFrame = field(repr=False)
    study: dict[str, Any] = field(repr=False)

    def save(self, folder: str | Path) -> Path:
        """Write report.html, methods.txt, figures.csv, votes.csv, study.json, recompute.py and recompute.R.

        Where a study asked its listeners something, also listeners.csv. The programs need nothing of voicelab. Only their
        owner may read the files: votes name listeners. Returns the folder. Raises StoreError when the disk fails.
        """
        folder = Path(folder)
        study = json.dumps(self.study, indent=1, ensure_ascii=False) + "\n"
        contents = {
            "report.html": self.html.encode(),
            "methods.txt": f"{self.text}\n".encode(),
            "figures.csv": csv_bytes(self.figures),
            "votes.csv": csv_bytes(self.votes),
            "study.json": study.encode(),
        }
        if not self.listeners.empty:
            contents["listeners.csv"] = csv_bytes(self.listeners)
        for name in ("recompute.py", "recompute.R"):
            contents[name] = files("voicelab.listening").joinpath(name).read_bytes()
        for name, data in contents.items():
            write_atomic(folder / name, data, private=True)
        return folder

    def __str__(self) -> str:
        return self.text

    def _repr_html_(self) -> str:
        body = self.html.partition("<body>")[2].partition("</body>")[0]
        return f"<div>{body}</div>"


def report_of(result: ListeningResult) -> ListeningReport:
    """Return the report of a result: what its ``report`` opens."""
    table = figures(result)
    votes = _placed(result.votes)
    versions = {"python": platform.python_version(), DISTRIBUTION: __version__}
    versions |= {name: version(name) for name in ("numpy", "scipy", "pandas")}
    study = {**result.design, "versions": versions, "left_out": result.excluded}
    tests = iter(result.tests.values())
    study["confidence"] = next((test.estimate.confidence for test in tests), 0.95)
    if result.outcome is not None:
        plan = result.outcome.plan
        study["plan"] = {"primary": plan.primary, "claim": plan.claim, "margin": plan.margin, "sha256": plan.digest}
    study["votes_sha256"] = hashlib.sha256(csv_bytes(votes)).hexdigest()
    listeners = _listeners(result.people)
    text = "\n\n".join(_paragraphs(result, table, listeners, study))
    return ListeningReport(text, _page(text, table, listeners, study), table, listeners, votes, study)


def _placed(votes: pd.DataFrame) -> pd.DataFrame:
    """Return votes with the place in the sitting that their trials' names tell, where they tell it."""
    places = votes["trial"].astype(str).str.extract(r"^\d+-(\d+)$")[0]
    return votes.assign(place=places.astype(int)) if places.notna().all() else votes


def _listeners(people: pd.DataFrame) -> pd.DataFrame:
    """Return how many of a study's listeners, and of those who count, gave each answer."""
    import pandas as pd

    rows = [(*said, int(who.sum()), int((who & people["counts"]).sum())) for *said, who in _answers(people)]
    return pd.DataFrame(rows, columns=["question", "answer", "listeners", "count"])


def _answers(people: pd.DataFrame) -> Iterator[tuple[str, str, pd.Series[bool]]]:
    """Yield question, answer, and who gave it."""
    for column in map(str, people.filter(regex=r"^questionnaire\.(?!since$)")):
        given, name = people[column].dropna(), column.partition(".")[2]
        if given.dtype.kind in "iuf" and len(given):
            yield name, f"{given.min():g} to {given.max():g}, median {given.median():g}", people[column].notna()
        elif given.nunique() > _MOST_ANSWERS or 1 < given.nunique() == len(given):
            # Free text may say who somebody is.
            yield name, f"{given.nunique()} different answers", people[column].notna()
        else:
            yield from ((name, str(answer), people[column] == answer) for answer in given.value_counts().index)
    steps = people.reindex(columns=["headphones.since", "headphones 1.since", "headphones 2.since"]).notna()
    passed, again, failed = (steps[name] for name in steps)
    if steps.any(axis=None):
        yield _CHECK, "passed", passed & ~again
        yield _CHECK, "passed at the second try", passed & again
        yield _CHECK, "failed twice", failed


def _paragraphs(
    result: ListeningResult, figures: pd.DataFrame, listeners: pd.DataFrame, study: dict[str, Any]
) -> Iterator[str]:
    of_all = dict(figures.loc[figures["first"] == "", ["figure", "value"]].itertuples(index=False, name=None))
    design = result.design
    training, traps = design["training"], design["traps"]
    checks = f", and {design['checks']} attention checks" * bool(design["checks"])
    checks += f", and {len(traps)} trapping questions" * bool(traps)
    part = f", of which each listener heard {design['per_listener']}" * bool(design["per_listener"])
    if training:
        checks += f", after {training} trial{'s' * (training > 1)} of practice whose answers were not kept"
    yield (
        f"Design. {design['name']}: {_STANDARDS[result.kind]}. {len(design['systems'])} systems "
        f"({', '.join(design['systems'])}), {len(design['items'])} sentences{part}{checks}. The question was: "
        f"“{design['question']}” " + _order(result.kind, design)
    )
    left = "; ".join(f"{name}: {reason}" for name, reason in result.excluded.items())
    part = of_all["listeners who took part"]
    yield (
        f"Listeners. {part:.0f} took part, {result.listeners} count ({len(result.frame)} votes). "
        + (f"Left out: {left}." if left else "Nobody was left out.")
        + _agreement(of_all, result.kind)
    )
    asked = {*listeners["question"], *["training"] * bool(training)}
    if not listeners.empty:
        answers = [
            f"{question}: " + ", ".join(f"{row.listeners} ({row.count}) {row.answer}" for row in rows.itertuples())
            for question, rows in listeners.groupby("question", sort=False)
        ]
        yield f"Answers of listeners (in brackets: of those who count). {'; '.join(answers)}."
    yield _qualification(result, of_all, asked)
    if result.outcome is not None:
        yield f"Registered analysis. Registered {result.outcome.plan.registered}. {' '.join(str(result.outcome).split())}."
    if result.kind in {"MOS", "MUSHRA"}:
        yield _systems(result, figures)
    elif result.scores:
        yield "Scores. " + "; ".join(f"{name} {score}" for name, score in result.scores.items()) + "."
    yield _comparisons(result)
    yield _bias(of_all)
    versions = ", ".join(f"{name} {number}" for name, number in study["versions"].items())
    plan = f"; SHA-256 of the registered plan {result.outcome.plan.digest}" if result.outcome else ""
    yield f"Software and data. {versions}; seed {design['seed']}; SHA-256 of votes.csv {study['votes_sha256']}{plan}."
    yield f"Not known to voicelab, to be added: {_besides(_UNKNOWN, asked, '; ')}."


def _besides(wanted: Mapping[str, str], asked: set[str], between: str) -> str:
    return between.join(name for name, question in wanted.items() if question not in asked)


def _qualification(result: ListeningResult, of_all: Mapping[str, float], asked: set[str]) -> str:
    """What P.808 asks of listeners, as far as votes can tell, and what it asks besides."""
    frame = result.frame
    if result.kind == "MUSHRA":
        parts = ["The hidden reference and the anchors stand in place of gold questions"]
    elif not of_all["gold questions"]:
        parts = ["There were no gold or trapping questions"]
    else:
        right = f"{of_all['gold questions, right']:.0f} of {of_all['gold questions']:.0f} answers were right"
        beside = "Gold questions, sounds buried in noise beside others"
        parts = [f"{beside}: {right}; who failed more than {FAILED_CHECKS:.0%} is left out"]
    if not frame.empty:
        least, most, median = (of_all[f"votes of a clip, {name}"] for name in ("least", "most", "median"))
        what = "clip" if "rating" in frame and result.kind != "CMOS" else "pair of clips"
        parts.append(f"each {what} has {least:.0f} to {most:.0f} votes that count (median {median:g})")
    if "rating" in frame and not frame.empty:
        same = frame.groupby("listener")["rating"].agg(["nunique", "size"])
        names = [str(name) for name in same.index[(same["nunique"] == 1) & (same["size"] > 1)]]
        parts.append(f"one rating throughout, and yet not left out: {', '.join(names) or 'nobody'}")
    if "answers without a sound" in of_all:
        parts.append(f"answers given without starting a sound: {of_all['answers without a sound']:.0f}")
    missing = _besides(_QUALIFIED, asked, ", ")
    return f"Qualification of listeners (ITU-T P.808). {'; '.join(parts)}. Not collected: {missing}."


def _order(kind: str, design: Mapping[str, Any]) -> str:
    loud = (
        f"All sounds of a sentence had one loudness, {design['lufs']:g} LUFS at most"
        if design["lufs"]
        else "Levels were left as they were"
    )
    order = {
        "MOS": "systems followed Williams squares, and no sentence came twice in a row",
        "MUSHRA": "trials and the sounds in them came in an order drawn for each listener",
    }.get(kind, "which of a pair came first alternated over listeners and sentences")
    return f"{loud} (ITU-R BS.1770-4); {order}."


def _agreement(of_all: Mapping[str, float], kind: str) -> str:
    alpha = f"Krippendorff's alpha ({'ordinal' if kind == 'MOS' else 'interval'})"
    named = {"icc(2,1)": "ICC(2,1)", "icc(2,k)": "ICC(2,k)", "alpha": alpha}
    parts = [f"{label} {of_all[name]:.2f}" for name, label in named.items() if name in of_all]
    return f" Agreement: {'; '.join(parts)}." if parts else ""


def _systems(result: ListeningResult, figures: pd.DataFrame) -> str:
    lines = []
    table = figures[figures["second"] == ""].pivot(index="first", columns="figure", values="value")
    for system in [*result.design["systems"], REFERENCE, *ANCHORS]:
        if system in table.index:
            score, row = result.scores.get(system), table.loc[system]
            within = f" {interval(score.low, score.high, '.2f')}" if score else ""
            quartiles = f"median {row['median']:g} (IQR {row['q1']:g} to {row['q3']:g})"
            spread = row.get("sd", math.nan)
            lines.append(f"{system} {row['mean']:.2f}{within}, sd {spread:.2f}, {quartiles}, {row['votes']:.0f} votes")
    return f"Scores: mean with interval over listeners and sentences. {'; '.join(lines)}."


def _comparisons(result: ListeningResult) -> str:
    formula = {
        "MOS": "difference ~ 1 + (1 | listener) + (1 | sentence), linear, by REML",
        "MUSHRA": "difference ~ 1 + (1 | listener) + (1 | sentence), linear, by REML",
        "CMOS": "rating ~ 1 + (1 | listener) + (1 | sentence), linear, by REML",
    }.get(result.kind, "choice ~ 1 + (1 | listener) + (1 | sentence), logistic, by restricted pseudo-likelihood")
    lines = [line.strip() for line in result.comparisons()]
    if result.ranking is not None:
        for one, two in itertools.combinations(result.ranking.frame()["system"], 2):
            ratio = result.ranking.odds_ratio(one, two)
            lines.append(
                f"{one} over {two} after Bradley and Terry, all votes taken for independent: odds ratio {ratio}"
            )
    notes = "".join(f" {note}" for note in result.notes)
    return f"Comparisons. {formula}, with Satterthwaite's degrees of freedom. {'; '.join(lines)}.{notes}"


def _bias(of_all: Mapping[str, float]) -> str:
    names = [name for name in of_all if any(word in name for word in ("first", "half", "halves"))]
    parts = [f"{name} {of_all[name]:.3g}" for name in sorted(names, key=lambda name: name.endswith(": p"))]
    return f"Position and fatigue. {'; '.join(parts) or 'Nothing is known of the order of the votes'}."


def _page(text: str, figures: pd.DataFrame, listeners: pd.DataFrame, study: dict[str, Any]) -> str:
    paragraphs = []
    for part in text.split("\n\n"):
        head, _, rest = part.partition(". ")
        paragraphs.append(f"<p><b>{html.escape(head)}.</b> {html.escape(rest)}</p>")
    asked = f"<h2>Listeners</h2>{listeners.to_html(index=False, border=0)}" if len(listeners) else ""
    title, shown = html.escape(str(study["name"])), figures.to_html(index=False, border=0, float_format="{:.6g}".format)
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title><style>{_STYLE}</style></head>'
        f"<body><h1>{title}</h1>{''.join(paragraphs)}{asked}<h2>Figures</h2><p>recompute.py and recompute.R compute each of "
        f"them from votes.csv.</p>{shown}</body></html>\n"
    )


# ---- every figure by its name


def figures(result: ListeningResult) -> pd.DataFrame:
    """Return a row for each: ``figure``, ``first`` and ``second`` system that it is of ("": of all), and ``value``.

    recompute.py and recompute.R compute the same from the votes alone. What is not finite is left out.
    """
    import pandas as pd

    table = pd.DataFrame(list(_rows(result)), columns=["figure", "first", "second", "value"])
    finite: pd.DataFrame = table[np.isfinite(table["value"])].reset_index(drop=True)
    return finite


def _rows(result: ListeningResult) -> Iterator[recompute.Row]:
    votes = result.frame
    yield from recompute.counts(result.votes, votes)
    if votes.empty:
        return
    if result.kind in {"MOS", "MUSHRA"}:
        yield from _ratings(result)
    compared = {f"{two} against {one}": (two, one) for one, two in itertools.combinations(result.design["systems"], 2)}
    for name, score in result.scores.items():
        one, two = compared[name] if result.kind == "CMOS" else (name, "")
        yield from recompute.named({"mean": _ends(score)}, one, two)
    for pair in result.tests:
        yield from _pair(result, pair)
    yield from _all_systems(result)
    if result.outcome is not None and result.outcome.test is not None and result.outcome.p is not None:
        primary, test = result.outcome.plan.primary, result.outcome.test
        yield from recompute.named({"registered": _ends(test.estimate)}, *primary)
        yield from recompute.named({"registered, t": test.statistic, "registered, p": result.outcome.p}, *primary)
    yield from recompute.habits(_placed(votes), result.kind)


def _ends(estimate: Estimate) -> recompute.Ends:
    return estimate.value, estimate.low, estimate.high


def _ratings(result: ListeningResult) -> Iterator[recompute.Row]:
    votes = result.frame
    yield from recompute.spreads(votes)
    for system, mean in votes.groupby("system")["rating"].mean().items():
        if system not in result.scores:  # one rating has no interval
            yield "mean", str(system), "", float(mean)
    table = votes.pivot_table(index=["item", "system"], columns="listener", values="rating").to_numpy()
    try:
        if np.isfinite(table).all():
            yield "icc(2,1)", "", "", intraclass_correlation(table)
            yield "icc(2,k)", "", "", intraclass_correlation(table, of_mean=True)
        yield "alpha", "", "", krippendorff_alpha(table.T, level="ordinal" if result.kind == "MOS" else "interval")
    except ArgumentError:  # one listener, or nothing rated twice
        return


def _pair(result: ListeningResult, pair: tuple[str, str]) -> Iterator[recompute.Row]:
    """Of each pair the test in listeners and sentences, effect sizes, and the test on these sentences alone."""
    figures: dict[str, float | recompute.Ends] = {}
    if pair in result.crossed:
        crossed = result.crossed[pair]
        figures |= {"crossed": _ends(crossed.estimate), "crossed, error": crossed.error, "crossed, df": crossed.df}
        figures |= {"crossed, t": crossed.statistic, "crossed, p": crossed.p}
        figures["crossed, p after Holm"] = result.crossed_p_holm[pair]
        figures |= {name: _ends(size) for name, size in result.sizes[pair].items()}
    test = result.tests[pair]
    figures |= {"these sentences": _ends(test.estimate), "these sentences, statistic": test.statistic}
    figures |= {"these sentences, p": test.p, "these sentences, p after Holm": result.p_holm[pair]}
    yield from recompute.named(figures, *pair)


def _all_systems(result: ListeningResult) -> Iterator[recompute.Row]:
    if least := least_p(result.tests):
        yield from recompute.named({"least p of these sentences": least})
    if (overall := result.overall) is not None:
        figures = {"Friedman, chi squared": overall.statistic, "Friedman, p": overall.p}
        yield from recompute.named({**figures, "Kendall's W": _ends(overall.concordance)})
    if result.ranking is not None:
        confidence = next(iter(result.tests.values())).estimate.confidence
        for one, two in itertools.combinations(result.ranking.frame()["system"], 2):
            odds = _ends(result.ranking.odds_ratio(one, two, confidence))
            yield from recompute.named({"Bradley-Terry, odds": odds}, one, two)
