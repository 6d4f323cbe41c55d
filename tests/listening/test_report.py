from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pandas as pd
import pytest

from tests.listening.test_design import listening_test
from tests.listening.test_results import unanimous
from tests.listening.test_study import SECRET, a_study, reach
from tests.listening.test_votes import vote_all
from voicelab.listening import recompute
from voicelab.listening.design import REFERENCE, Kind, Trial
from voicelab.listening.plan import Plan
from voicelab.listening.report import ListeningReport
from voicelab.listening.results import ListeningResult, analyze
from voicelab.listening.study import BlindStudy
from voicelab.listening.votes import Ballot
from voicelab.stats import SignTest, crossed_mean

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
        if kind == "MUSHRA":
            hidden = {letter for letter, sound in trial.slots.items() if sound.system == REFERENCE}
            return {
                letter: 100 if letter in hidden else float(np.clip(50 + 15 * x, 0, 100).round())
                for letter, x in heard.items()
            }
        if kind == "MOS":
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


@pytest.mark.parametrize("kind", ["MOS", "MUSHRA", "CMOS", "AB", "ABX"])
def test_every_figure_is_computed_anew_from_the_votes(tmp_path: Path, kind: Kind) -> None:
    report = study(kind).report()
    folder = report.save(tmp_path / "report")
    lines: list[str] = []
    assert recompute.main(folder, lines.append) == 0, "".join(lines)
    assert {"crossed, p", "crossed, error", "these sentences, low", "votes"} <= set(report.figures["figure"])
    assert all(line.startswith("same") for line in lines[:-1])
    # Another vote, other figures.
    votes = pd.read_csv(folder / "votes.csv")
    column = "rating" if "rating" in votes else "right" if kind == "ABX" else "first"
    votes.loc[0, column] = 2 if column == "rating" else not votes.loc[0, column]
    votes.to_csv(folder / "votes.csv", index=False)
    assert recompute.main(folder, lines.append) == 1


@pytest.mark.parametrize("kind", ["MOS", "MUSHRA", "CMOS", "AB", "ABX"])
@pytest.mark.parametrize("systems", ["ab", "abc"])
def test_every_number_of_the_text_is_a_figure(kind: Kind, systems: str) -> None:
    report = study(kind, systems).report()
    values = [f"{value:{form}}" for value in report.figures["value"] for form in (".2f", ".3g", ".4g", "g", ".0f")]
    told = report.text.partition("\n\n")[2].partition("Software and data")[0]
    for words in (
        r"\(ITU-T P.808\)",
        r"of \d+ listeners and \d+ items",
        r"\(95%, n = \d+\)",
        r"(ICC|anchor|~ )\S+",
        r"t\(inf\)",
    ):
        told = re.sub(words, "", told)
    numbers = re.findall(r"-?\d+(?:\.\d+)?(?:e-?\d+)?", told)
    assert len(numbers) > 25
    assert set(numbers) <= set(values), set(numbers) - set(values)


@pytest.mark.parametrize(
    ("kind", "primary"), [("MOS", ("b", "a")), ("AB", ("b", "a")), ("ABX", ("b", "a")), ("CMOS", ("a", "b"))]
)
def test_what_was_registered_is_computed_anew(tmp_path: Path, kind: Kind, primary: tuple[str, str]) -> None:
    votes = study(kind).votes.drop(columns="counts")
    plan = Plan("as good", primary, listeners=6, claim="not worse", margin=0.2)
    report = analyze(listening_test(kind, "abc", items=5), votes, plan=plan).report()
    folder = report.save(tmp_path / "report")
    lines: list[str] = []
    assert recompute.main(folder, lines.append) == 0, "".join(lines)
    assert sum(line.startswith("same   registered") for line in lines) == 5
    program = shutil.which("Rscript")
    if program is not None:
        assert subprocess.run([program, "recompute.R"], capture_output=True, check=False, cwd=folder).returncode == 0


@pytest.mark.parametrize("kind", ["MOS", "MUSHRA", "CMOS", "AB", "ABX"])
@pytest.mark.parametrize("claim", ["better", "different", "equivalent"])
@pytest.mark.parametrize("constant", ["all", "listener"])
def test_exact_tests_of_unanimous_answers_are_computed_anew(
    tmp_path: Path, kind: Kind, claim: Any, constant: str
) -> None:
    votes = unanimous(kind, 9, 7).votes.drop(columns="counts")
    if constant == "listener":  # and gaps, so that listeners explain every answer
        own = votes["listener"].isin(["listener 1", "listener 2"])
        if "rating" in votes:
            votes["rating"] += own * (votes["system"] == "a") * -1.0
        else:
            votes = votes.assign(chosen=np.where(own, "b", "a"), other=np.where(own, "a", "b"), right=~own)
        votes = votes[~((votes["listener"] == "listener 5") & (votes["item"] == "s3"))]
    plan = Plan("ahead", ("b", "a"), listeners=9, claim=claim, margin=0.2 if claim == "equivalent" else None)
    result = analyze(listening_test(kind, "ab", items=7), votes, plan=plan)
    # A logistic model shrinks listeners' logits, and has residual variance where a linear one has none.
    exact = constant == "all" or "rating" in votes
    assert isinstance(result.crossed["a", "b"], SignTest) == exact
    folder = result.report().save(tmp_path / "report")
    lines: list[str] = []
    assert recompute.main(folder, lines.append) == 0, "".join(lines)
    assert sum(line.startswith(("same   registered", "same   crossed")) for line in lines) == (9 if exact else 13)
    program = shutil.which("Rscript")
    if program is not None:
        assert subprocess.run([program, "recompute.R"], capture_output=True, check=False, cwd=folder).returncode == 0


def test_a_constant_change_between_halves_has_no_p() -> None:
    # The differences of these means are equal but for rounding.
    rows = [
        {"listener": who, "place": place, "seconds": base + (0.2 if place > 1 else 0.0), "rating": 3.0}
        for who, base in (("a", 3.2), ("b", 2.2), ("c", 7.7))
        for place in range(4)
    ]
    figures = {row[0]: row[3] for row in recompute.habits(pd.DataFrame(rows), "MOS")}
    assert figures["seconds, second half"] == pytest.approx(figures["seconds, first half"] + 0.2)
    assert not [name for name in figures if name.endswith(": p")]


def test_the_programs_mixed_model_is_ours_where_votes_are_missing_too() -> None:
    draw = np.random.default_rng(3)
    seen = set()
    for number in range(40):
        # In some no listeners differ, in some no sentences, in some neither.
        effects = draw.normal(size=6)[:, None] * (number % 2) + draw.normal(size=5) * (number // 2 % 2)
        table, there = 20 * (effects + draw.normal(size=(6, 5))), draw.random((6, 5)) < (1.0 if number % 3 else 0.8)
        who, what = np.nonzero(there)
        ours = crossed_mean(table[there], list(map(str, who)), list(map(str, what)))
        mean, error, degrees = recompute.crossed(table[there], who, what)
        assert (error, degrees) == pytest.approx((ours.error, ours.df), rel=5e-3)
        assert mean == pytest.approx(ours.estimate.value, abs=1e-3 * error)
        seen.add(round(degrees, 1))
    assert {5.0, 4.0, 29.0} < seen


def test_the_program_beside_the_votes_needs_no_voicelab(tmp_path: Path) -> None:
    folder = study("MOS", "ab").report().save(tmp_path / "report")
    program = [sys.executable, "-P", "-W", "ignore", str(folder / "recompute.py")]
    done = subprocess.run(program, capture_output=True, text=True, check=False, cwd=tmp_path, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    assert ", 0 of them other" in done.stdout
    assert "import voicelab" not in (folder / "recompute.py").read_text()


@pytest.mark.parametrize("kind", ["MOS", "MUSHRA", "CMOS", "AB", "ABX"])
def test_r_computes_the_same(tmp_path: Path, kind: Kind) -> None:
    program = shutil.which("Rscript")
    if program is None:
        pytest.skip("R is not installed")
    folder = study(kind).report().save(tmp_path / "report")
    done = subprocess.run(
        [program, "recompute.R"], capture_output=True, text=True, check=False, cwd=folder, timeout=300
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_text_has_what_the_standards_ask_for(tmp_path: Path) -> None:
    result = study("MUSHRA")
    report = result.report()
    assert isinstance(report, ListeningReport)
    for wanted in ("BS.1534-3", "median", "IQR", "ICC(2,1)", "Krippendorff's alpha (interval)", "(1 | listener)", "seed 0",
                   "To be added".lower(), "Nobody was left out", "anchor35", "seconds, first half", "BS.1770-4",
                   "Kendall's W"):  # fmt: skip
        assert wanted in report.text or wanted in report.text.lower(), wanted
    assert report.html.count("<tr>") == len(report.figures)
    assert "<script" not in report.html
    study_record = json.loads((report.save(tmp_path / "r") / "study.json").read_text())
    assert study_record["votes_sha256"] in report.text


def test_practice_is_told_of_where_there_was_some(tmp_path: Path) -> None:
    test = replace(listening_test("MOS", items=3), training=2)
    with Ballot(test, tmp_path / "votes") as ballot:
        for number in range(3):
            vote_all(ballot, str(number), lambda trial: {"A": 3 + int(trial.id[-1]) % 2})
        text = analyze(test, ballot).report().text
    assert "3 sentences, after 2 trials of practice whose answers were not kept." in text
    assert "training before the test" not in text


def test_answers_of_listeners_and_their_headphones_are_counted(tmp_path: Path) -> None:
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
    check = "check of headphones"
    passed = [rows[check, answer] for answer in ("passed", "passed at the second try", "failed twice")]
    assert [count for count, _ in passed] == [3, 1, 1]
    assert sum(count for _, count in passed) == 4 - left
    assert f"tongue: 5 ({4 - left}) English, 1 (0) another" in report.text
    folder = report.save(tmp_path / "report")
    assert pd.read_csv(folder / "listeners.csv").equals(report.listeners)
    assert recompute.main(folder, lambda _: None) == 0
    for known in ("listeners' ages", "check of headphones on both ears", "how they were checked", "training before"):
        assert known not in report.text
    assert "listeners' hearing" in report.text
    # Of a table there are those who voted.
    again = {row[:2]: row[2:] for row in merged.report().listeners.itertuples(index=False, name=None)}
    assert again["tongue", "English"] == (4, 4 - left)


def test_a_ranking_has_odds_ratios_with_intervals() -> None:
    result = study("AB")
    assert result.ranking is not None
    assert (
        f"a over b after Bradley and Terry, all votes taken for independent: odds ratio {result.ranking.odds_ratio('a', 'b')}"
        in (result.report().text)
    )
    assert f"Bradley-Terry, a preferred to b: {result.ranking.preference('a', 'b')}" in str(result)


def test_what_p808_asks_of_listeners_is_stated_or_named_as_not_collected(tmp_path: Path) -> None:
    test = listening_test("MOS", "ab", items=3, checks=2)
    draw = np.random.default_rng(1)
    habits: dict[str, Any] = {
        "attentive": lambda trial: {"A": 1 if trial.check else int(draw.integers(2, 6))},
        "constant": lambda trial: {"A": 1},
        "careless": lambda trial: {"A": 5 if trial.check else 3},
    }
    with Ballot(test, tmp_path / "votes.sqlite3") as ballot:
        for name, vote in habits.items():
            vote_all(ballot, name, vote)
        votes = ballot.frame()
    votes.loc[0, "plays"] = 0
    text = analyze(test, votes).report().text
    assert "4 of 6 answers were right; who failed more than 25% is left out" in text
    assert "careless: failed 2 of 2 attention checks" in text
    assert "each clip has 2 to 2 votes that count (median 2)" in text
    assert "not left out: constant; answers given without starting a sound: 1. Not collected" in text


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("MUSHRA", "The hidden reference and the anchors stand in place of gold questions; each clip has 6 to 6 votes"),
        ("CMOS", "no gold or trapping questions; each pair of clips has 6 to 6 votes"),
        ("ABX", "no gold or trapping questions; each pair of clips has 6 to 6 votes"),
    ],
)
def test_votes_of_a_clip_or_a_pair_are_counted(kind: Kind, said: str) -> None:
    assert said in study(kind).report().text


def test_names_are_text_in_the_page(tmp_path: Path) -> None:
    test = listening_test("MOS", items=2)
    rows = [
        {"listener": "<b>Ada</b>", "trial": f"0-{n}", "item": item, "kind": "MOS", "check": False, "passed": True,
         "seconds": 1.0, "plays": 1, "system": system, "rating": 3.0 + (n % 2)}
        for n, (item, system) in enumerate((item, system) for item in test.items for system in "ab")
    ]  # fmt: skip
    page = analyze(test, pd.DataFrame(rows)).report().html
    assert "<b>Ada" not in page
