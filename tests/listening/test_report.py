from __future__ import annotations

import itertools
import json
import math
import re
import runpy
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from importlib.resources import files
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pandas as pd
import pytest

from tests.listening.test_design import listening_test, sound
from tests.listening.test_results import unanimous
from tests.listening.test_study import (
    SECRET,
    a_study,
    clock,  # noqa: F401 - a fixture
    reach,
)
from tests.listening.test_votes import vote_all
from tests.tones import there
from voicelab.errors import StoreError
from voicelab.listening.design import BY_SYSTEM, REFERENCE, SINGLE, Kind, ListeningTest, Trial
from voicelab.listening.plan import Plan
from voicelab.listening.report import ListeningReport, position_effects
from voicelab.listening.results import ListeningResult, analyze, leads
from voicelab.listening.study import BlindStudy
from voicelab.listening.votes import Ballot
from voicelab.stats import binomial, crossed_mean

LEVEL = {"a": 0.8, "b": 0.2, "c": 0.0, REFERENCE: 2.0, "anchor35": -2.0, "anchor70": -1.0}


@cache
def study(kind: Kind, systems: str = "abc") -> ListeningResult:
    """Votes of six people who differ, on five sentences that differ; one of the listeners may be left out."""
    test = listening_test(kind, systems, items=5)
    draw = np.random.default_rng(7)
    own = {item: {name: draw.normal(0, 0.6) for name in LEVEL} for item in test.items}

    def vote(trial: Trial) -> dict[str, Any]:
        heard = {
            letter: LEVEL[sound.system] + own[trial.item][sound.system] + draw.normal(0, 0.8)
            for letter, sound in trial.slots.items()
        }
        if kind.startswith("MUSHRA"):
            hidden = {letter for letter, sound in trial.slots.items() if sound.system == REFERENCE}
            return {
                letter: 100 if letter in hidden else float(np.clip(50 + 15 * x, 0, 100).round())
                for letter, x in heard.items()
            }
        if kind == "BWS":
            return {"best": max(heard, key=heard.__getitem__), "worst": min(heard, key=heard.__getitem__)}
        if kind in SINGLE:
            return {"A": float(np.clip(round(3 + heard["A"]), 1, 5))}
        if kind == "CMOS":
            return {"B": float(np.clip(round(heard["B"] - heard["A"]), -3, 3))}
        if kind == "ABX":
            return {"choice": trial.answer if draw.random() < 0.8 else "A"}
        return {"choice": "A" if heard["A"] > heard["B"] else "B"}

    with TemporaryDirectory() as folder, Ballot(test, Path(folder) / "votes.sqlite3") as ballot:
        for number in range(6):
            vote_all(ballot, f"listener {number}", vote)
        return analyze(test, ballot)


@pytest.mark.parametrize("kind", ["MOS", "SMOS", "MUSHRA", "MUSHRA-NMR", "CMOS", "AB", "ABX", "BWS"])
@pytest.mark.parametrize("systems", ["ab", "abc"])
def test_every_number_of_the_text_is_among_the_figures(kind: Kind, systems: str) -> None:
    report = study(kind, systems).report()
    values = [f"{value:{form}}" for value in report.figures["value"] for form in (".2f", ".3g", ".4g", "g", ".0f")]
    told = report.text.partition("\n\n")[2].partition("Software and data")[0]
    for words in (
        r"\(ITU-T P.808\)",
        r"of \d+ listeners and \d+ items",
        r"\(9[05]%, n = \d+\)",
        r"(ICC|anchor|~ )\S+",
        r"t\(inf\)",
        r"p < 0\.0001",
    ):
        told = re.sub(words, "", told)
    numbers = re.findall(r"-?\d+(?:\.\d+)?(?:e-?\d+)?", told)
    assert len(numbers) > 25
    assert set(numbers) <= set(values), set(numbers) - set(values)


KINDS = ("MOS", "DMOS", "MUSHRA", "CMOS", "AB", "ABX", "BWS")
SCRIPTS = files("voicelab.listening").joinpath("scripts")
_LINE = re.compile(
    r"\s*(?:\d+\s+)?(?P<figure>mean|difference|share|log odds|means of listeners)\s+(?P<names>.*?)"
    r"\s+(?P<numbers>(?:(?:-|NA|[-+.e\d]+)\s+){6}(?:-|NA|[-+.e\d]+))\s+(?P<method>[a-zA-Z].*)"
)
Printed = dict[tuple[str, str, str, str], dict[str, float]]


def printed(text: str) -> Printed:
    """Parse the table of analysis.py or analysis.R: numbers by figure, systems and method."""
    table: Printed = {}
    for line in filter(None, map(_LINE.fullmatch, text.splitlines())):
        first, second = [*line["names"].split(), ""][:2]
        numbers = [math.nan if number in {"-", "NA"} else float(number) for number in line["numbers"].split()]
        key = (line["figure"], first, second, line["method"].strip())
        table[key] = dict(zip(("estimate", "low", "high", "error", "df", "t", "p"), numbers, strict=True))
    return table


def analysis(folder: Path, language: str = "py") -> Printed:
    """Run the program of a report in its folder, without voicelab, and parse its table."""
    if language == "R":
        if (program := shutil.which("Rscript")) is None:
            pytest.skip("R is not installed")
        command = [program, "analysis.R"]
    else:
        run = "import runpy, sys; runpy.run_path('analysis.py', run_name='__main__'); assert 'voicelab' not in sys.modules"
        command = [sys.executable, "-P", "-c", run]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return printed(done.stdout)


def constant_by_listener(kind: Kind) -> ListeningResult:
    """Analyze responses that are equal within each listener, two of whom disagree with the others, with a gap."""
    if kind == "transcription":
        test = listening_test(kind, "ab", items=4)
        answers = {"a": test.texts["s0"], "b": "nothing"}
        rows = [(f"l{who}", f"s{item}", "ab"[(who + item) % 2]) for who in range(8) for item in range(4)]
        table = pd.DataFrame(rows, columns=["listener", "item", "system"])
        return analyze(test, table.assign(answer=table["system"].map(answers)))
    votes = unanimous(kind, 9, 7).votes.drop(columns="counts")
    minority = votes["listener"].isin(["listener 1", "listener 2"])
    if "rating" in votes:
        votes["rating"] += minority * (votes["system"] == "a") * -1.0
    else:
        votes = votes.assign(chosen=np.where(minority, "b", "a"), other=np.where(minority, "a", "b"), right=~minority)
    votes = votes[~((votes["listener"] == "listener 5") & (votes["item"] == "s3"))]
    return analyze(listening_test(kind, "ab", items=7), votes)


def transcribed() -> ListeningResult:
    """Analyze transcriptions of three systems, whose effects differ between listeners and between items."""
    test, rng, rows = listening_test("transcription", "abc", items=9), np.random.default_rng(0), []
    shift = {name: rng.normal(0, 0.5, (count, 3)) for name, count in (("listener", 12), ("item", 9))}
    for who, item in np.ndindex(12, 9):
        system, words = (who + item) % 3, test.texts[f"s{item}"].split()
        level = 1.0 - 0.7 * system + shift["listener"][who, system] + shift["item"][item, system]
        heard = [word for word in words if rng.logistic() < level]
        rows.append((f"l{who}", f"s{item}", "abc"[system], " ".join(heard) or "nothing"))
    table = pd.DataFrame(rows, columns=["listener", "item", "system", "answer"])
    return analyze(test, table.assign(listener_note=table["answer"]))


def repeated(kind: Kind) -> ListeningResult:
    """Analyze ordinary responses as those to takes of three texts."""
    result = study(kind)
    test = listening_test(kind, "".join(result.design["systems"]), items=len(result.design["items"]))
    texts = {item: f"Text {place % 3}." for place, item in enumerate(test.items)}
    return analyze(replace(test, texts=texts), result.votes.drop(columns="counts"))


def test_agreement_is_over_clips_if_texts_are_repeated() -> None:
    names = ("icc(2,1)", "icc(2,k)", "alpha")
    figures = [result.report().figures.set_index("figure")["value"] for result in (study("MOS"), repeated("MOS"))]
    assert figures[0][[*names]].tolist() == figures[1][[*names]].tolist()


@pytest.mark.parametrize("language", ["py", "R"])
@pytest.mark.parametrize(
    ("data", "kind"),
    [
        *(("ordinary", kind) for kind in KINDS),
        *(("unanimous", kind) for kind in ("MUSHRA", "AB", "ABX")),
        *(("constant", kind) for kind in ("MOS", "AB", "transcription")),
        *(("repeated", kind) for kind in ("MOS", "AB", "CMOS", "BWS")),
        ("ordinary", "transcription"),
    ],
)
def test_analysis_programs_agree_with_voicelab(tmp_path: Path, kind: Kind, data: str, language: str) -> None:
    makers: dict[str, Callable[[Kind], ListeningResult]] = {
        "ordinary": study,
        "unanimous": lambda kind: unanimous(kind, 8, 7),
        "constant": constant_by_listener,
        "repeated": repeated,
    }
    if (data, kind) == ("ordinary", "transcription"):
        makers[data] = lambda _: transcribed()
    result = makers[data](kind)
    agree(result, analysis(result.report().save(tmp_path / "report"), language))


def agree(result: ListeningResult, table: Printed) -> None:
    """Check every number of a program's table that the report has, to four digits."""

    def same(row: dict[str, float], numbers: tuple[float, ...]) -> None:
        width = 1e-4 * (numbers[2] - numbers[1])
        assert [*row.values()][:3] == pytest.approx(numbers[:3], rel=1e-4, abs=width)
        assert [*row.values()][3 : len(numbers)] == pytest.approx(numbers[3:], rel=1e-4, abs=1e-6)

    kind, checked = result.kind, 0
    for system, score in result.scores.items() if kind in BY_SYSTEM else ():
        (row,) = (row for key, row in table.items() if key[:2] == ("mean", system))
        assert row["estimate"] == pytest.approx(score.value, rel=1e-4)
        if math.isfinite(row["error"]):
            same(row, (score.value, score.low, score.high))
    for pair, crossed in result.crossed.items():
        figure = "share" if kind in {"AB", "ABX"} else "difference"
        (row,) = (row for key, row in table.items() if key[:3] == (figure, *pair) and math.isfinite(row["df"]))
        value = crossed.estimate
        same(row, (value.value, value.low, value.high, crossed.error, crossed.df, crossed.statistic, crossed.p))
        checked += 1
    for pair, test in result.tests.items():
        if kind in {"AB", "ABX"}:
            won = leads(result.frame, kind, pair)[0]["value"]
            side: Any = "greater" if kind == "ABX" else "two-sided"
            exact = binomial(int(won.sum()), len(won), alternative=side, confidence=test.estimate.confidence)
            row = table["share", *pair, "exact binomial test"]
            same(row, (exact.estimate.value, exact.estimate.low, exact.estimate.high))
            assert row["p"] == pytest.approx(exact.p, rel=1e-4, abs=1e-6)
        if kind != "ABX":
            assert table["means of listeners", *pair, "Wilcoxon's test"]["p"] == pytest.approx(test.p, rel=1e-4)
        checked += 1
    assert checked


@pytest.mark.parametrize("language", ["py", "R"])
def test_analysis_programs_agree_on_sparse_data_in_the_order_and_at_the_level_of_the_report(
    tmp_path: Path, language: str
) -> None:
    # With gaps: sixteen listeners with ties; three listeners without variance of listeners and items.
    draw = np.random.default_rng(5)
    for number, listeners in enumerate((16, 3)):
        effects = (draw.normal(size=listeners)[:, None] + draw.normal(size=4)) * (number == 0)
        test = listening_test("MOS", "ba", items=4)
        rows = [
            {"listener": f"l{who}", "item": f"s{item}", "system": system,
             "rating": float(np.clip(np.round(3 + effects[who, item] * (system == "a") + draw.normal()), 1, 5))}
            for who, item in np.ndindex(listeners, 4) for system in "ab" if draw.random() < 0.9
        ]  # fmt: skip
        result = analyze(test, pd.DataFrame(rows), confidence=0.9)
        assert [*result.crossed] == [("b", "a")]
        agree(result, analysis(result.report().save(tmp_path / f"report {number}"), language))


@pytest.mark.parametrize("language", ["py", "R"])
def test_analysis_programs_read_names_as_text(tmp_path: Path, language: str) -> None:
    names = ("None", "NA", "nan", "'=1", "007")
    test = ListeningTest("names", "MOS", {f"s{n}": {name: sound(n) for name in names} for n in range(3)})
    rows = [
        {"listener": listener, "item": item, "kind": "MOS", "trial": f"{listener} {item} {name}", "check": False,
         "passed": True, "system": name, "rating": float(1 + (row + len(listener)) % 5)}
        for row, (item, name, listener) in enumerate(itertools.product(test.items, names, ("NA", "None", "Ada")))
    ]  # fmt: skip
    result = analyze(test, pd.DataFrame(rows))
    table = analysis(result.report().save(tmp_path / "report"), language)
    means = {first: row["estimate"] for (figure, first, *_), row in table.items() if figure == "mean"}
    assert means == pytest.approx({name: score.value for name, score in result.scores.items()}, abs=1e-3)
    assert len({key[1:3] for key in table if key[0] == "difference"}) == 10


def test_report_replaces_an_earlier_report_and_no_files_of_others(tmp_path: Path) -> None:
    report, notes = study("MOS").report(), tmp_path / "README.txt"
    notes.write_text("Mine.")
    with pytest.raises(StoreError, match=r"got README\.txt without report\.html; choose another folder$"):
        report.save(tmp_path)
    assert [*tmp_path.iterdir()] == [notes]
    report.save(report.save(tmp_path / "report"))


def test_analysis_of_no_responses_is_an_empty_table(tmp_path: Path) -> None:
    folder = study("MOS").report().save(tmp_path / "report")
    votes = pd.read_csv(folder / "votes.csv")
    votes.assign(counts=False).to_csv(folder / "votes.csv", index=False)
    assert analysis(folder) == {}


def test_report_folder_says_how_to_run_the_analysis(tmp_path: Path) -> None:
    folder = study("MOS", "ab").report().save(tmp_path / "report")
    names = {
        "report.html",
        "methods.txt",
        "figures.csv",
        "votes.csv",
        "study.json",
        "README.txt",
        "analysis.py",
        "analysis.R",
    }
    assert {path.name for path in folder.iterdir()} == names
    readme = (folder / "README.txt").read_text()
    assert "python analysis.py" in readme
    assert "Rscript analysis.R" in readme
    for name in ("analysis.py", "analysis.R"):
        text = SCRIPTS.joinpath(name).read_text()
        assert len(text.splitlines()) <= 160
        assert "voicelab" not in text


@pytest.mark.parametrize(
    ("kind", "primary"), [("MOS", ("b", "a")), ("AB", ("b", "a")), ("ABX", ("b", "a")), ("CMOS", ("a", "b"))]
)
def test_registered_test_is_among_the_figures(kind: Kind, primary: tuple[str, str]) -> None:
    votes = study(kind).votes.drop(columns="counts")
    claim: Any = "equivalent" if kind == "ABX" else "not worse"
    test = listening_test(kind, "abc", items=5)
    plan = Plan("as good", primary, listeners=6, claim=claim, margin=0.2, design=test.to_record())
    result = analyze(test, votes, plan=plan)
    figures = result.report().figures
    rows = figures[figures["figure"].str.startswith("registered")]
    assert set(zip(rows["first"], rows["second"], strict=True)) == {primary}
    assert result.outcome is not None
    assert result.outcome.test is not None
    estimate = there(result.outcome.estimate)
    assert (estimate.confidence, "one-sided p" in str(result.outcome)) == (0.9, True)
    values = [estimate.value, estimate.low, estimate.high, result.outcome.test.statistic, result.outcome.p]
    assert rows["value"].tolist() == values


def test_constant_change_between_halves_has_no_p() -> None:
    # The differences of these means are equal but for rounding.
    rows = [
        {"listener": listener, "place": place, "seconds": base + (0.2 if place > 1 else 0.0), "rating": 3.0}
        for listener, base in (("a", 3.2), ("b", 2.2), ("c", 7.7))
        for place in range(4)
    ]
    effects: dict[str, Any] = position_effects(pd.DataFrame(rows), "MOS")
    assert effects["seconds, second half"] == pytest.approx(effects["seconds, first half"] + 0.2)
    assert not [name for name in effects if name.endswith(": p")]


def test_mixed_model_of_the_program_agrees_where_variances_are_0_or_large() -> None:
    mean_of = runpy.run_path(str(SCRIPTS / "analysis.py"))["mean_of"]
    draw = np.random.default_rng(3)
    tables = [
        20 * draw.normal(size=(8, 1)) * listeners + 20 * draw.normal(size=6) * items + draw.normal(size=(8, 6))
        for listeners, items in itertools.product((0, 1), repeat=2)
    ]
    masks = (np.ones((8, 6), bool), np.arange(48).reshape(8, 6) % 5 > 0, np.eye(8, 6, dtype=bool))
    for table, mask in itertools.product(tables, masks):
        listeners, items = (list(map(str, places)) for places in np.nonzero(mask))
        ours = crossed_mean(table[mask], listeners, items, step=1.0)
        rows = pd.DataFrame({"value": table[mask], "listener": listeners, "item": items})
        mean, _, _, *numbers, p, method = mean_of(rows, 0.95, 0, (-math.inf, math.inf))
        assert (*numbers, p) == pytest.approx((ours.error, ours.df, ours.statistic, ours.p), rel=1e-3)
        assert mean == pytest.approx(ours.estimate.value, abs=1e-3 * ours.error)
        assert method == "mixed model"


def test_text_has_the_items_that_the_standards_require(tmp_path: Path) -> None:
    result = study("MUSHRA")
    report = result.report()
    assert isinstance(report, ListeningReport)
    for wanted in ("BS.1534-3", "median", "IQR", "ICC(2,1)", "Krippendorff's alpha (interval)", "(1 | listener)", "seed 0",
                   "to be added", "No listener was screened out", "anchor35", "seconds, first half",
                   "BS.1770-4"):  # fmt: skip
        assert wanted in report.text or wanted in report.text.lower(), wanted
    assert report.html.count("<tr>") == len(report.figures)
    assert "<script" not in report.html
    study_record = json.loads((report.save(tmp_path / "r") / "study.json").read_text())
    assert study_record["votes_sha256"] in report.text


def test_training_trials_are_reported(tmp_path: Path) -> None:
    test = replace(listening_test("MOS", items=3), training=2)
    with Ballot(test, tmp_path / "votes") as ballot:
        for number in range(3):
            vote_all(ballot, str(number), lambda trial: {"A": 3 + int(trial.id[-1]) % 2})
        text = analyze(test, ballot).report().text
    assert "3 sentences, after 2 training trials without stored responses." in text
    assert "training before the test" not in text


def test_answers_and_headphone_checks_of_listeners_are_counted(tmp_path: Path) -> None:
    study = a_study("AB", headphones="huggins")
    deaf, wrong = {"answers": [0] * 6}, {"age": 60, "tongue": "another"}
    with Ballot(study.test, tmp_path / "votes") as ballot:
        page = BlindStudy(study, ballot)
        for person in range(6):
            state = reach(page, page.enter(SECRET, f"p{person}"), "questionnaire")
            answers = wrong if person == 5 else {"age": 20 + person, "tongue": "English", "work": f"p{person}"}
            state = page.step(state["listener"], "questionnaire", answers)
            for _ in range((0, 1, 2, 0, 0, 0)[person]):
                state = page.step(state["listener"], "headphones", deaf)
            reach(page, state)
        result = analyze(study.test, ballot)
        merged = analyze(study.test, ballot.frame().merge(ballot.people(), on="listener"))
    # Some fail the check that is a sound in noise, for "A" is always chosen.
    left = len(result.excluded)
    report = result.report()
    rows = {row[:2]: row[2:] for row in report.listeners.itertuples(index=False, name=None)}
    assert rows["tongue", "English"] == (5, 4 - left)
    assert rows["tongue", "another"] == (1, 0)
    assert rows["age", "20 to 60, median 22.5"] == (6, 4 - left)
    assert rows["work", "5 different answers"] == (5, 4 - left)
    check = "headphone check"
    passed = [rows[check, answer] for answer in ("passed", "passed at the second attempt", "failed twice")]
    assert [count for count, _ in passed] == [3, 1, 1]
    assert sum(count for _, count in passed) == 4 - left
    assert f"tongue: 5 ({4 - left}) English, 1 (0) another" in report.text
    folder = report.save(tmp_path / "report")
    assert pd.read_csv(folder / "listeners.csv").equals(report.listeners)
    for known in ("listeners' ages", "two-channel headphone check", "how they were checked", "training before"):
        assert known not in report.text
    assert "listeners' hearing" in report.text
    # Of a table there are those who voted.
    again = {row[:2]: row[2:] for row in merged.report().listeners.itertuples(index=False, name=None)}
    assert again["tongue", "English"] == (4, 4 - left)


def test_listeners_are_screened_by_the_rules_of_p808(tmp_path: Path) -> None:
    test = replace(listening_test("MOS", "ab", items=3, checks=2), traps={2: sound(7)})

    def attentive(trial: Trial) -> dict[str, Any]:
        return {"A": trial.wanted or (1 if trial.check else 3 + "ab".index(trial.slots["A"].system))}

    habits: dict[str, Any] = {
        **dict.fromkeys(["ada", "quit", "silent"], attentive),
        "constant": lambda _: {"A": 2},
        "straight": lambda trial: {"A": trial.wanted or (1 if trial.check else 3)},
        "untrapped": lambda trial: {"A": 3} if trial.wanted else attentive(trial),
        "careless": lambda trial: {"A": 5} if trial.check and not trial.wanted else attentive(trial),
    }
    with Ballot(test, tmp_path / "votes.sqlite3") as ballot:
        for name, vote in habits.items():
            number = ballot.join(name)
            for trial in test.trials(number)[: 4 if name == "quit" else None]:
                ballot.vote(number, trial.id, vote(trial), plays=int((name, trial.id) != ("silent", "2-5")))
        result, votes = analyze(test, ballot), ballot.frame()
    failed = votes[~votes["passed"]].groupby("listener")["trial"].agg(", ".join)
    assert result.screening.to_numpy().tolist() == [
        ["untrapped", "trapping questions", failed["untrapped"], "failed 1 of 1 trapping questions"],
        ["careless", "attention checks", failed["careless"], "failed 2 of 2 attention checks"],
        ["silent", "playback", "2-5", "1 responses without playback"],
        ["constant", "constant ratings", "", "variance of ratings 0, below 0.1"],
        ["straight", "constant ratings", "", "variance of ratings 0, below 0.1"],
        ["quit", "completeness", "", "answered 4 of 9 trials"],
    ]  # fmt: skip
    assert set(result.frame["listener"]) == {"ada"}
    report = result.report()
    for listener, reason in result.excluded.items():
        assert f"excluded: {listener} ({reason})" in str(result)
        assert f"{listener}: {reason}" in report.text
    assert report.study["screening"] == result.screening.to_dict("records")
    assert "<h2>Screening</h2>" in report.html
    assert "each clip has 1 to 1 analyzed responses (median 1)" in report.text
    # Parts of a session may have been selected from a table.
    part = analyze(test, votes.drop(columns="plays"))
    assert set(part.frame["listener"]) == {"ada", "quit", "silent"}
    assert "Listeners who answered less than half of 9 trials: quit (4)." in part.notes


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("MUSHRA", "The hidden reference and the anchors serve as gold questions; each clip has 6 to 6 analyzed"),
        ("CMOS", "no gold or trapping questions; each pair of clips has 6 to 6 analyzed"),
        ("ABX", "no gold or trapping questions; each pair of clips has 6 to 6 analyzed"),
    ],
)
def test_report_counts_responses_of_each_clip_or_pair(kind: Kind, text: str) -> None:
    assert text in study(kind).report().text


def test_names_are_escaped_in_the_page(tmp_path: Path) -> None:
    test = listening_test("MOS", items=2)
    rows = [
        {"listener": "<b>Ada</b>", "trial": f"0-{n}", "item": item, "kind": "MOS", "check": False, "passed": True,
         "seconds": 1.0, "plays": 1, "system": system, "rating": 3.0 + (n % 2)}
        for n, (item, system) in enumerate((item, system) for item in test.items for system in "ab")
    ]  # fmt: skip
    page = analyze(test, pd.DataFrame(rows)).report().html
    assert "<b>Ada" not in page
