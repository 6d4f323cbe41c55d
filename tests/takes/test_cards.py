"""Cards of a panel's grid: filter, order, outlier, comparison."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from tests.sweeps.test_sweep import sweep
from tests.tones import DECLARED, ToneBackend, there
from voicelab.clip import Clip
from voicelab.errors import ArgumentError, NotFound, RequestInvalid
from voicelab.runs.cache import Cache
from voicelab.takes.cards import TakeCard, card_of, compare_cards, filter_cards, find_outlier, sort_cards

VALUES = ((0.5, 2.0), (0.25, math.nan), (1.0, 1.0), (0.75, 3.0))
CARDS = [
    TakeCard(
        number,
        {"temperature": f"{heat:g}", "voice": "Ada" if number % 2 else "Ben"},
        {"temperature": heat},
        "done",
        {"duration": seconds},
    )
    for number, (heat, seconds) in enumerate(VALUES)
]


def ids(rows: list[TakeCard]) -> list[int]:
    return [row.id for row in rows]


def test_a_take_has_a_card_before_it_is_made(tmp_path: Path) -> None:
    axes: dict[str, object] = {"temperature": [0, 1], "voice": ["ada", "nobody"]}
    plan = sweep(ToneBackend(voices=DECLARED), axes, repeats=2, cache=Cache(tmp_path))
    made = plan.run()
    names = [column.name for column in made.shown_columns]
    waiting = [card_of(index, row, names) for index, row in enumerate(plan.table().rows)]
    done = [card_of(index, row, names) for index, row in enumerate(made.rows)]
    assert [card.state for card in waiting] == ["missing"] * 8
    assert [(card.id, card.labels) for card in done] == [(card.id, card.labels) for card in waiting]
    assert [card.values for card in waiting] == [{k: v for k, v in card.values.items() if k != "seed"} for card in done]
    assert done[0].name == "temperature=0, voice=ada, repeat=0"
    assert [card.state for card in done] == ["done", "done", "failed", "failed"] * 2
    assert done[0].clip() == made.takes[0].clip()
    assert done[2].error == "reference_id: There is no such voice"
    with pytest.raises(NotFound, match="temperature=0, voice=nobody, repeat=0 has no take yet"):
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
    assert ids(filter_cards(CARDS, where)) == found


def test_a_filter_knows_the_short_names() -> None:
    rows = [
        TakeCard(number, {"reference_id": name}, {"prosody.speed": number})
        for number, name in enumerate(("ada", "ben"))
    ]
    assert ids(filter_cards(rows, "voice=ben")) == [1]
    assert ids(filter_cards(rows, "speed<1")) == [0]


def test_a_filter_of_what_is_not_there_names_what_is() -> None:
    with pytest.raises(
        RequestInvalid, match="must be one of temperature, voice, duration, state, got 'loudness'"
    ) as caught:
        filter_cards(CARDS, "loudness>3")
    assert caught.value.errors[0].field == "filter"


def test_rows_are_sorted_by_numbers_with_the_undefined_last_and_pins_first() -> None:
    assert ids(sort_cards(reversed(CARDS))) == [0, 1, 2, 3]
    assert ids(sort_cards(CARDS, "temperature")) == [1, 0, 3, 2]
    assert ids(sort_cards(CARDS, "duration")) == [2, 0, 3, 1]
    assert ids(sort_cards(CARDS, "duration", descending=True)) == [3, 0, 2, 1]
    assert ids(sort_cards(CARDS, "voice")) == [1, 3, 0, 2]
    assert ids(sort_cards(CARDS, "temperature", pinned=[3, 2])) == [3, 2, 1, 0]


def test_the_odd_one_out_is_the_farthest_from_the_median() -> None:
    rows = [
        TakeCard(number, {}, figures={"f0": value}) for number, value in enumerate([100.0, 102, 98, 101, 150, math.nan])
    ]
    found = there(find_outlier(rows, "f0"))
    # The median is 101, the deviations are 1, 1, 3, 0 and 49, their median is 1.
    assert found[0].id == 4
    assert found[1] == pytest.approx(0.6745 * 49 / 1.0)
    assert find_outlier(rows[:2], "f0") is None
    assert find_outlier([TakeCard(number, {}, figures={"f0": 1.0}) for number in range(5)], "f0") is None
    most_equal = [TakeCard(number, {}, figures={"f0": value}) for number, value in enumerate([1.0, 1, 1, 1, 0.5])]
    found = there(find_outlier(most_equal, "f0"))
    assert (found[0].id, found[1] < 0) == (4, True)


def test_a_comparison_is_named_by_what_differs() -> None:
    clip = Clip(np.zeros(100, np.float32), 8000)
    rows = [TakeCard(number, row.labels, fetch=lambda: clip) for number, row in enumerate(CARDS)]
    assert compare_cards([rows[0], rows[2]]).names == ("temperature=0.5", "temperature=1")
    assert compare_cards(rows[:2]).names == ("temperature=0.5, voice=Ben", "temperature=0.25, voice=Ada")
    assert compare_cards([rows[0], rows[0]]).names == ("take 1", "take 2")
    with pytest.raises(ArgumentError, match="must be 2 to 8 clips"):
        compare_cards([*rows, *rows, *rows])


def test_a_filter_takes_a_switch_for_the_word_it_is_shown_as() -> None:
    row = TakeCard(0, {"normalize": "on"}, {"normalize": True})
    assert [bool(filter_cards([row], where)) for where in ("normalize=on", "normalize=1")] == [True, False]
