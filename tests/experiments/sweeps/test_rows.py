from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from tests.experiments.sweeps.test_sweep import sweep
from tests.tones import ToneBackend
from voicelab.audio.clip import Clip
from voicelab.errors import ArgumentError, NotFound, RequestInvalid
from voicelab.experiments.cache import Cache
from voicelab.experiments.sweeps.rows import Row, comparison_of, matching, odd_one_out, ordered, row_of, waiting_rows

VALUES = ((0.5, 2.0), (0.25, math.nan), (1.0, 1.0), (0.75, 3.0))
ROWS = [
    Row(
        number,
        {"temperature": f"{heat:g}", "voice": "Ada" if number % 2 else "Ben"},
        {"temperature": heat},
        "done",
        {"duration": seconds},
    )
    for number, (heat, seconds) in enumerate(VALUES)
]


def ids(rows: list[Row]) -> list[int]:
    return [row.id for row in rows]


def test_every_take_of_the_grid_has_a_row_before_it_is_made(tmp_path: Path) -> None:
    made = sweep(
        ToneBackend(), {"temperature": [0, 1], "voice": ["ada", "nobody"]}, repeats=2, cache=Cache(tmp_path)
    ).run()
    waiting = waiting_rows(made.grid)
    assert ids(waiting) == list(range(8))
    done = [row_of(outcome, made.grid) for outcome in made.outcomes]
    assert [(row.id, row.labels, row.values) for row in done] == [(row.id, row.labels, row.values) for row in waiting]
    assert done[0].name == "temperature=0, voice=ada, take=1"
    assert [row.state for row in done] == ["done", "done", "failed", "failed"] * 2
    assert done[0].clip() == made.takes[0].clip()
    assert done[2].error == "reference_id: There is no such voice"
    with pytest.raises(NotFound, match="no sound of temperature=0, voice=nobody, take=1"):
        done[2].clip()


@pytest.mark.parametrize(
    ("where", "found"),
    [
        ("", [0, 1, 2, 3]),
        ("temperature>=0.75", [2, 3]),
        ("temperature>0.3, voice=ada", [3]),
        ("temperature=0.50", [0]),
        ("voice!=ada", [0, 2]),
        ("duration<2.5", [0, 2]),
        ("state=done", [0, 1, 2, 3]),
        ("be", [0, 2]),
        ("temperature=1", [2]),
        ("voice=nobody", []),
    ],
)
def test_a_filter_finds(where: str, found: list[int]) -> None:
    assert ids(matching(ROWS, where)) == found


def test_a_filter_knows_the_short_names() -> None:
    rows = [
        Row(number, {"reference_id": name}, {"prosody.speed": number}) for number, name in enumerate(("ada", "ben"))
    ]
    assert ids(matching(rows, "voice=ben")) == [1]
    assert ids(matching(rows, "speed<1")) == [0]


def test_a_filter_of_what_is_not_there_names_what_is() -> None:
    with pytest.raises(RequestInvalid, match=r"'loudness'; there are temperature, voice, duration, state") as caught:
        matching(ROWS, "loudness>3")
    assert caught.value.errors[0].field == "filter"


def test_rows_are_sorted_by_numbers_with_the_undefined_last_and_pins_first() -> None:
    assert ids(ordered(reversed(ROWS))) == [0, 1, 2, 3]
    assert ids(ordered(ROWS, "temperature")) == [1, 0, 3, 2]
    assert ids(ordered(ROWS, "duration")) == [2, 0, 3, 1]
    assert ids(ordered(ROWS, "duration", descending=True)) == [3, 0, 2, 1]
    assert ids(ordered(ROWS, "voice")) == [1, 3, 0, 2]
    assert ids(ordered(ROWS, "temperature", pinned=[3, 2])) == [3, 2, 1, 0]


def test_the_odd_one_out_is_the_farthest_from_the_median() -> None:
    rows = [Row(number, {}, figures={"f0": value}) for number, value in enumerate([100.0, 102, 98, 101, 150, math.nan])]
    found = odd_one_out(rows, "f0")
    assert found is not None
    # The median is 101, the deviations are 1, 1, 3, 0 and 49, their median is 1.
    assert found[0].id == 4
    assert found[1] == pytest.approx(0.6745 * 49 / 1.0)
    assert odd_one_out(rows[:2], "f0") is None
    assert odd_one_out([Row(number, {}, figures={"f0": 1.0}) for number in range(5)], "f0") is None
    most_equal = [Row(number, {}, figures={"f0": value}) for number, value in enumerate([1.0, 1, 1, 1, 0.5])]
    found = odd_one_out(most_equal, "f0")
    assert found is not None
    assert (found[0].id, found[1] < 0) == (4, True)


def test_a_comparison_is_named_by_what_differs() -> None:
    clip = Clip(np.zeros(100, np.float32), 8000)
    rows = [Row(number, row.labels, hear=lambda: clip) for number, row in enumerate(ROWS)]
    assert comparison_of([rows[0], rows[2]]).names == ("temperature=0.5", "temperature=1")
    assert comparison_of(rows[:2]).names == ("temperature=0.5, voice=Ben", "temperature=0.25, voice=Ada")
    assert comparison_of([rows[0], rows[0]]).names == ("take 1", "take 2")
    with pytest.raises(ArgumentError, match="2 to 8"):
        comparison_of([*rows, *rows, *rows])
