from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from tests.listening.test_design import listening_test
from voicelab.errors import ArgumentError, StoreError
from voicelab.listening.design import Kind, ListeningTest
from voicelab.listening.plan import Plan, PlannedOutcome, outcome
from voicelab.listening.results import ListeningResult, analyze

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
    assert "2 empty cells of the table were read as systems that were not rated." in str(result)
    assert "1 missing responses, coded as 99: rows 2." in str(result)


def test_ratings_between_the_points_of_the_scale_are_named() -> None:
    note = "2 ratings are not whole numbers, as in row 7: are they averages?"
    assert note in str(analyze(TEST, changed("rating", {7: 3.5, 9: "2,5"})))


def test_tables_of_strangers(tmp_path: Path) -> None:
    assert str(analyze(TEST, ROWS.astype({"system": "category", "listener": "category"}))) == str(analyze(TEST, ROWS))
    coded = changed("rating", {1: "n/a", 5: 99})
    assert (
        len(analyze(TEST, coded.drop(5), missing="n/a").frame)
        == len(analyze(TEST, coded.drop(1), missing=99).frame)
        == 46
    )
    assert "Systems without responses: b." in str(analyze(TEST, WIDE.rename(columns={"b": "B"})))
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
