from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from tests.listening.test_design import listening_test
from voicelab.errors import ArgumentError
from voicelab.listening.design import Kind
from voicelab.listening.results import analyze

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
            ["1 to 5, got 0 in row 3", "got 7 in row 9", "got 99 in row 20", "in row 21", "got 'good' in row 22"],
        ),
        (changed("system", {5: "A", 6: "sysX"}), ["one of a, b, got 'A' in row 5", "got 'sysX' in row 6"]),
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
