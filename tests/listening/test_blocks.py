from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tests.listening.test_design import listening_test, sound
from voicelab.errors import ArgumentError
from voicelab.listening.blocks import block_of, check_connected
from voicelab.listening.design import KINDS, MULTIPLE, Kind, ListeningTest
from voicelab.listening.results import analyze


@pytest.mark.parametrize(("items", "size"), [(7, 3), (12, 4), (20, 6), (40, 10), (5, 1)])
@pytest.mark.parametrize("listeners", [1, 9, 64, 65, 200])
def test_item_counts_are_balanced_for_any_number_of_listeners(items: int, size: int, listeners: int) -> None:
    blocks = [block_of(number, items, size, seed=3) for number in range(listeners)]
    assert all(len(block) == size for block in blocks)
    heard: Counter[int] = Counter()
    for block in blocks:
        for item, before in block.items():
            assert heard[item] == before
            heard[item] += 1
    counts = [heard[item] for item in range(items)]
    assert max(counts) - min(counts) <= 1


def test_pair_counts_are_nearly_balanced() -> None:
    # 7 items, 3 each, 70 listeners: 10 blocks of each of 21 pairs where the balance is perfect.
    blocks = [block_of(number, 7, 3, seed=0) for number in range(70)]
    pairs = Counter(pair for block in blocks for pair in itertools.combinations(sorted(block), 2))
    assert len(pairs) == 21
    assert max(pairs.values()) - min(pairs.values()) <= 2


def test_unconnected_items_are_named() -> None:
    names = [f"s{number}" for number in range(6)]
    check_connected(4, names, 3, seed=0)
    check_connected(1, names, 6, seed=0)
    with pytest.raises(
        ArgumentError,
        match=r"2 listeners with 3 of 6 items each leave 2 groups of items unconnected: 's\d', .* \| 's\d'",
    ):
        check_connected(2, names, 3, seed=0)
    with pytest.raises(ArgumentError, match="leave 6 groups of items unconnected"):
        check_connected(500, names, 1, seed=0)


def test_register_rejects_unconnected_items(tmp_path: Path) -> None:
    test = replace(listening_test("AB", items=6), per_listener=3)
    with pytest.raises(ArgumentError, match="unconnected"):
        test.register(tmp_path / "plan.toml", hypothesis="", primary=("a", "b"), listeners=2)
    test.register(tmp_path / "plan.toml", hypothesis="", primary=("a", "b"), listeners=12)


@pytest.mark.parametrize("kind", KINDS)
def test_block_has_all_systems_of_its_items(kind: Kind) -> None:
    test = replace(listening_test(kind, "abc", items=6), per_listener=2)
    heard: Counter[str] = Counter()
    for number in range(12):
        trials = test.trials(number)
        assert len({trial.item for trial in trials}) == 2
        assert len(trials) == 2 * (1 if kind in (*MULTIPLE, "transcription") else 3)
        heard.update({trial.item for trial in trials})
    assert set(heard.values()) == {4}
    assert test.to_record() == {**listening_test(kind, "abc", items=6).to_record(), "per_listener": 2}


@pytest.mark.parametrize("kind", ["AB", "CMOS", "ABX"])
def test_order_of_pairs_alternates_within_each_item(kind: Kind) -> None:
    test = replace(listening_test(kind, items=5), per_listener=2)
    first: dict[str, list[str]] = {}
    for number in range(40):
        for trial in test.trials(number):
            first.setdefault(trial.item, []).append(trial.slots["A"].system)
    for order in first.values():
        assert len(order) == 16
        assert all(one != two for one, two in itertools.pairwise(order))


@pytest.mark.parametrize(
    ("fields", "match"), [({"per_listener": 7}, "6 items"), ({"per_listener": -1}, "whole number|integer")]
)
def test_invalid_per_listener_is_rejected(fields: Mapping[str, int], match: str) -> None:
    with pytest.raises(ArgumentError, match=match):
        replace(listening_test("AB", items=6), **fields)  # type: ignore[arg-type]


def test_trapping_question_is_passed_by_the_requested_rating() -> None:
    test = replace(listening_test("MOS", items=2, checks=1), traps={4: sound(99), 2: sound(98)})
    traps = [trial for trial in test.trials(0) if trial.wanted is not None]
    assert sorted(trial.wanted or 0 for trial in traps) == [2, 4]
    assert all(trial.check and trial.passed(trial.wanted or 0) and not trial.passed(5) for trial in traps)
    assert test.to_record()["traps"] == [2, 4]
    pairs = [trial for trial in replace(listening_test("CMOS"), traps={-2: sound(9)}).trials(1) if trial.check]
    assert [trial.passed(-2) for trial in pairs] == [True]
    assert pairs[0].slots["A"].id != pairs[0].slots["B"].id
    for kind, wanted in (("AB", 1), ("MOS", 6), ("MUSHRA", 50)):
        with pytest.raises(ArgumentError, match=r"got .* for (AB|MOS|CMOS|MUSHRA)"):
            replace(listening_test(kind), traps={wanted: sound(9)})  # type: ignore[arg-type]


def simulated(test: ListeningTest, listeners: int, rng: np.random.Generator) -> pd.DataFrame:
    """Votes of systems that do not differ, of listeners and items that lean to one of them all the same."""
    who = rng.normal(0, 0.5, (listeners, 2))
    what = {item: rng.normal(0, 0.5, 2) for item in test.items}
    rows = []
    for number in range(listeners):
        for trial in test.trials(number):
            place = "ab".index(trial.slots["A"].system)
            level = 3.0 + who[number, place] + what[trial.item][place] + rng.normal(0, 0.7)
            row = {"listener": str(number), "trial": trial.id, "item": trial.item, "check": False, "passed": True}
            rows.append({**row, "system": "ab"[place], "rating": float(np.clip(round(level), 1, 5))})
    return pd.DataFrame(rows)


def type1(listeners: int, items: int, size: int, sets: int) -> float:
    test = replace(listening_test("MOS", items=items), per_listener=size)
    rng = np.random.default_rng(1)
    results = [analyze(test, simulated(test, listeners, rng)) for _ in range(sets)]
    return float(np.mean([result.crossed["a", "b"].p <= 0.05 for result in results]))


def test_incomplete_blocks_are_analyzed() -> None:
    # Few sets: a rate of .05 stays within this, one of .15 does not.
    assert type1(18, 8, 4, sets=60) <= 0.05 + 2.6 * math.sqrt(0.05 * 0.95 / 60)


@pytest.mark.thorough
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(("listeners", "items", "size"), [(12, 8, 4), (24, 12, 4), (40, 20, 5)])
def test_incomplete_blocks_keep_the_type_i_error(listeners: int, items: int, size: int) -> None:
    sets = 600
    assert abs(type1(listeners, items, size, sets) - 0.05) <= 3 * math.sqrt(0.05 * 0.95 / sets)
