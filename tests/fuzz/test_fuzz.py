"""A short run of every target, always the same: what is kept, and mutations of it. At night: python -m tests.fuzz.targets."""

from __future__ import annotations

import random
from itertools import islice

import pytest

from tests.fuzz.targets import CORPUS, TARGETS, kept, mutations, tried


@pytest.mark.parametrize("target", TARGETS)
def test_what_is_read_ends_well_or_with_an_error_of_ours(target: str) -> None:
    inputs = kept(target)
    for data in (*inputs, *islice(mutations(inputs, random.Random(target)), 60)):
        assert tried(target, data) == "", data[:200]


def test_a_fault_would_be_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(TARGETS, "json", lambda data: data[9])
    assert tried("json", b"").startswith("IndexError in test_fuzz.py:")


def test_every_target_has_something_valid_and_nothing_large() -> None:
    assert {folder.name for folder in CORPUS.iterdir()} == TARGETS.keys()
    assert sum(path.stat().st_size for path in CORPUS.rglob("*") if path.is_file()) < 200_000
