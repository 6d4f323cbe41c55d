from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from tests.listening.test_design import listening_test, sound
from tests.listening.test_votes import vote_all
from voicelab.errors import ArgumentError, StoreError
from voicelab.listening.design import Kind, ListeningTest, Trial
from voicelab.listening.plan import Plan, PlannedOutcome, outcome
from voicelab.listening.responses import read_responses
from voicelab.listening.results import ListeningResult, analyze
from voicelab.listening.votes import Ballot

TEST = listening_test("MOS", "ab", items=4)
RNG = np.random.default_rng(0)
ROWS = pd.DataFrame(
    [
        {"listener": f"l{listener}", "item": f"s{item}", "system": system, "rating": float(RNG.integers(2, 6))}
        for listener, item, system in itertools.product(range(6), range(4), "ab")
    ]
)


def changed(column: str, values: dict[int, Any]) -> pd.DataFrame:
    return ROWS.assign(**{column: [values.get(row, value) for row, value in enumerate(ROWS[column])]})


@pytest.mark.parametrize(
    "frame",
    [
        ROWS.assign(rating=[f"{rating:.0f}" for rating in ROWS.rating]),
        ROWS.assign(rating=[f" {rating:.1f}".replace(".", ",") for rating in ROWS.rating]),
        ROWS.assign(check=0, passed="yes"),
        ROWS.assign(check="no", system=[f" {system} " for system in ROWS.system]),
    ],
)
def test_tables_of_other_programs_give_the_same_result(frame: pd.DataFrame) -> None:
    assert str(analyze(TEST, frame)) == str(analyze(TEST, ROWS))


@pytest.mark.parametrize("separator", [",", ";", "\t"])
def test_a_file_of_responses(tmp_path: Path, separator: str) -> None:
    path = tmp_path / "ratings.csv"
    decimal = "." if separator == "," else ","
    ROWS.rename(columns={"rating": "Rating"}).to_csv(
        path, sep=separator, decimal=decimal, index=False, encoding="utf-16"
    )
    assert str(analyze(TEST, path)) == str(analyze(TEST, ROWS))


@pytest.mark.parametrize(
    ("frame", "messages"),
    [
        (
            changed("rating", {3: 0, 9: 7, 20: 99, 21: None, 22: "good"}),
            [
                "a number from 1 to 5, got 0 in row 3",
                "got 7 in row 9",
                "got 99 in row 20",
                "in row 21",
                "got 'good' in row 22",
                'empty ratings are missing ones with missing=[""]',
            ],
        ),
        (changed("system", {5: "A", 6: "sysX"}), ["one of a, b, got 'A' in row 5", "got 'sysX' in row 6"]),
        (
            changed("item", {2: "s9", 3: "S1"}).assign(rating=3),
            ["item must be one of the 4 items of the test (s0, s1, s2, s3), got 's9' in row 2, got 'S1' in row 3"],
        ),
        (changed("rating", {0: 5.5}), ["got 5.5 in row 0"]),
        (changed("listener", {0: None, 1: " "}), ["listener must be a name or number, got '' in row 0"]),
        (ROWS.assign(check="perhaps"), ["check must be true or false, got 'perhaps' in row 0", "and 28 more"]),
        (ROWS.rename(columns={"rating": "score"}), ["missing: rating; got listener, item, system, score"]),
    ],
)
def test_all_wrong_rows_are_named(frame: pd.DataFrame, messages: list[str]) -> None:
    with pytest.raises(ArgumentError) as caught:
        analyze(TEST, frame)
    assert all(message in str(caught.value) for message in messages), str(caught.value)


@pytest.mark.parametrize(("kind", "columns"), [("AB", "chosen, other"), ("ABX", "right"), ("CMOS", "against")])
def test_each_kind_has_columns_of_its_own(kind: Kind, columns: str) -> None:
    with pytest.raises(ArgumentError, match=columns):
        analyze(listening_test(kind, "ab", items=4), ROWS)
    table: Any = ROWS[ROWS.system == "a"].assign(chosen="a", other="b", right=1, against="b", rating=1)
    assert analyze(listening_test(kind, "ab", items=4), table).listeners == 6


WIDE = ROWS.pivot_table(index=["listener", "item"], columns="system", values="rating").reset_index()


def test_wide_tables_and_codes_of_missing_ratings(tmp_path: Path) -> None:
    assert str(analyze(TEST, WIDE)) == str(analyze(TEST, ROWS))
    gaps = WIDE.astype({"a": object, "b": object})
    gaps.loc[3, "a"], gaps.loc[5, "b"], gaps.loc[0, "a"] = "", None, 99
    path = tmp_path / "wide.xlsx"
    gaps.assign(listener=[int(name[1:]) for name in gaps["listener"]]).to_excel(path, index=False)
    with pytest.raises(ArgumentError, match="got '99' in row 2"):  # as the spreadsheet numbers it
        analyze(TEST, path)
    result = analyze(TEST, path, missing=[99])
    assert len(result.frame) == 45
    assert set(result.frame["listener"]) == set("012345")
    assert "Empty cells, read as systems that were not rated: 2." in str(result)
    assert "Missing responses, coded as 99: 1, in rows 2." in str(result)


def test_empty_ratings_are_missing_if_declared(tmp_path: Path) -> None:
    frame = changed("rating", {21: None})
    frame.to_csv(tmp_path / "votes.csv", index=False)
    for source in (frame, tmp_path / "votes.csv"):
        assert "Missing responses, coded as empty: 1" in str(analyze(TEST, source, missing=[""]))


def test_a_pair_that_nobody_compared_is_named() -> None:
    clip = next(iter(next(iter(TEST.items.values())).values()))
    test = ListeningTest("pairs", "AB", {item: dict.fromkeys("abc", clip) for item in ("s0", "s1")})
    rows = [
        {"listener": name, "item": item, "chosen": "a", "other": other}
        for name in "xyz"
        for item in test.items
        for other in "bc"
    ]
    assert "Pairs without responses: b and c." in str(analyze(test, pd.DataFrame(rows)))
    rows += [{"listener": "x", "item": "s0", "chosen": "b", "other": "c"}]
    assert "Pairs without responses" not in str(analyze(test, pd.DataFrame(rows)))


def test_ratings_between_the_points_of_the_scale_are_named() -> None:
    note = "Ratings that are not whole numbers: 2, as in row 7; check whether they are averages."
    assert note in str(analyze(TEST, changed("rating", {7: 3.5, 9: "2,5"})))


def test_tables_of_strangers(tmp_path: Path) -> None:
    assert str(analyze(TEST, ROWS.astype({"system": "category", "listener": "category"}))) == str(analyze(TEST, ROWS))
    coded = changed("rating", {1: "n/a", 5: 99})
    assert (
        len(analyze(TEST, coded.drop(5), missing="n/a").frame)
        == len(analyze(TEST, coded.drop(1), missing=99).frame)
        == 46
    )
    assert "Systems without responses: b." in str(analyze(TEST, ROWS[ROWS["system"] == "a"]))
    assert str(analyze(TEST, WIDE.rename(columns={"b": " b ", "item": "item "}))) == str(analyze(TEST, WIDE))
    for renamed in ({"b": "B"}, {"listener": "listener", "b": "a "}):
        with pytest.raises(
            ArgumentError, match=r"one column for each system, named as in the test: a, b; rename or remove '[Ba]'"
        ):
            analyze(TEST, WIDE.rename(columns=renamed))
    with pytest.raises(
        ArgumentError, match="one column for each system, named as in the test: a, b; rename or remove 'A', 'B'"
    ):
        analyze(TEST, WIDE.rename(columns={"a": "A", "b": "B"}))
    with pytest.raises(
        ArgumentError, match="got listener, item, x, y; in a wide table, one column for each system: a, b"
    ):
        analyze(TEST, WIDE.rename(columns={"a": "x", "b": "y"}))
    with pytest.raises(ArgumentError, match="kind must be MOS, as in the test, got SMOS"):
        analyze(TEST, ROWS.assign(kind="SMOS"))
    assert str(analyze(TEST, ROWS.assign(kind="expert"))) == str(analyze(TEST, ROWS))
    pair: Any = {"listener": ["x", "y"], "item": ["s0", "s1"]}
    kinds: list[tuple[Kind, tuple[str, str], dict[str, int]]] = [
        ("AB", ("chosen", "other"), {}),
        ("CMOS", ("system", "against"), {"rating": 1}),
    ]
    for kind, names, more in kinds:
        same = pd.DataFrame({**pair, **{name: ["a", "b"] for name in names}, **more})
        with pytest.raises(
            ArgumentError, match=f"got {names[0]} 'a' again in row 0, got {names[0]} 'b' again in row 1"
        ):
            analyze(listening_test(kind, "ab"), same)
    with pytest.raises(ArgumentError, match="l0 voted twice on a in 's0'; l0 voted twice on b in 's0'; remove the dup"):
        analyze(TEST, pd.concat([ROWS, ROWS.head(2)]))
    with pytest.raises(ArgumentError, match="must be a Ballot, a table, or a CSV or Excel file, got list"):
        analyze(TEST, [1, 2])  # type: ignore[arg-type]
    with pytest.raises(StoreError, match="export it as CSV"):
        analyze(TEST, tmp_path / "responses.sav")


def test_wide_tables_of_mushra_include_references_and_anchors() -> None:
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"listener": np.repeat([*"xyz"], 4), "item": ["s0", "s1", "s2", "s3"] * 3})
    names = ["a", "b", "reference", "anchor35", "anchor70"]
    table = table.assign(**{name: rng.integers(0, 100, 12) for name in names})
    result = analyze(listening_test("MUSHRA", "ab", items=4), table.assign(reference=[20] * 4 + [100] * 8))
    assert set(result.scores) == {*names}
    assert set(result.excluded) == {"x"}


def test_a_best_worst_trial_has_one_best_and_one_worst_sound() -> None:
    test = listening_test("BWS", "abcd", items=4)
    rows = [
        {"listener": listener, "item": item, "system": system, "rating": rating}
        for listener, item in itertools.product("xyz", test.items)
        for system, rating in zip("abcd", (1, 0, -1, 0), strict=True)
    ]
    table = pd.DataFrame(rows)
    assert analyze(test, table).listeners == 3
    for wrong, got in (
        ([1, 1, 1, 1], "1, 1, 1, 1"),
        ([1, 0, -0.5, 0], "1, 0, -0.5, 0"),
        ([0, 0, -1, 0], "0, 0, -1, 0"),
    ):
        changed = table.assign(rating=[*table["rating"][:4], *wrong, *table["rating"][8:]])
        with pytest.raises(ArgumentError, match=f"otherwise 0 in each trial, got {got} in rows 4, 5, 6, 7$"):
            analyze(test, changed)


@pytest.mark.parametrize("kind", ["MOS", "CMOS", "AB", "ABX"])
def test_attention_checks_without_passed_are_scored_by_their_answers(kind: Kind, tmp_path: Path) -> None:
    test = listening_test(kind, "ab", items=4, checks=3)
    test = replace(test, traps={2: sound(7)}) if kind in {"MOS", "CMOS"} else test

    def vote(trial: Trial) -> dict[str, Any]:
        if kind in {"AB", "ABX"}:
            return {"choice": "AB"[len(trial.id) % 2]}
        return {"B" if kind == "CMOS" else "A": int(trial.id.partition("-")[2]) % 3 + (kind == "MOS")}

    with Ballot(test, tmp_path / "votes.sqlite3") as ballot:
        for name in "vwxyz":
            vote_all(ballot, name, vote)
        frame = ballot.frame()
    assert frame["passed"].nunique() == 2
    assert read_responses(test, frame.drop(columns="passed"))["passed"].tolist() == frame["passed"].tolist()
    if kind in {"AB", "CMOS"}:
        named = frame.replace({"buried in noise": "a"}).drop(columns="passed")
        names = ["system", "against"] if kind == "CMOS" else ["chosen", "other"]
        named = named[named[names[0]] != named[names[1]]]
        assert "because there is neither a column passed" in str(analyze(test, named))


def test_listeners_whose_names_differ_in_case_are_named() -> None:
    frame = changed("listener", {row: "L1" for row, name in enumerate(ROWS["listener"]) if name == "l0"})
    assert "'L1' and 'l1' count as two listeners, but their names differ only in case." in str(analyze(TEST, frame))


def test_tables_of_scales_and_transcriptions() -> None:
    scales = {"quality": "How good?", "style": "How lively?"}
    test = replace(TEST, scales=scales)
    with pytest.raises(ArgumentError, match="columns listener, item, scale, system, rating; missing: scale"):
        analyze(test, ROWS)
    both = pd.concat([ROWS.assign(scale="quality"), ROWS.assign(scale=" style", rating=6 - ROWS["rating"])])
    with pytest.raises(ArgumentError, match="scale must be one of quality, style, got 'Style' in row 0"):
        analyze(test, both.replace({"scale": {" style": "Style"}}))
    result = analyze(test, both)
    alone = analyze(TEST, ROWS)
    assert list(result.scales) == ["quality", "style"]
    for scale, sign in (("quality", 1), ("style", -1)):
        own = result.scales[scale].crossed["a", "b"]
        assert own.estimate.value == pytest.approx(sign * alone.crossed["a", "b"].estimate.value)
        assert own.p == pytest.approx(alone.crossed["a", "b"].p)
        # Two tests of equal p.
        assert result.scales[scale].crossed_p_holm["a", "b"] == pytest.approx(min(1, 2 * own.p))
    assert result.crossed == result.scales["quality"].crossed
    assert "Holm's correction is over 2 tests of all scales." in str(result)
    assert "on quality" in str(replace(result, outcome=outcome_of(test, result)))
    words = listening_test("transcription", "ab", items=4)
    heard = ROWS[ROWS["system"] == "a"].assign(
        system=["ab"[row % 2] for row in range(24)], answer=["THE tables walked", "the table walked, thru truth"] * 12
    )
    frame = analyze(words, heard.drop(columns="rating")).frame
    assert frame["rating"].round(3).tolist()[:2] == [round(100 * 2 / 7, 3), round(100 * 4 / 7, 3)]
    with pytest.raises(ArgumentError, match="missing: answer"):
        analyze(words, ROWS)


def outcome_of(test: ListeningTest, result: ListeningResult) -> PlannedOutcome:
    plan = Plan("", ("a", "b"), 6, design=test.to_record())
    return outcome(plan, plan.design, result.crossed, listeners=6, begun=None)
