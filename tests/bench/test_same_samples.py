"""bench/same_samples.py reports every clip that differs, and those that one side lacks."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest
from same_samples import TOGETHER, compared, requests


@pytest.fixture
def rendering() -> dict[str, Any]:
    clip = {"samples": "ab", "words": "cd", "seconds": 1.5}
    return {"fingerprint": "f", "clips": {name: dict(clip) for name in ("one", "two", "three")}}


def test_the_same_is_the_same(rendering: dict[str, Any]) -> None:
    found = compared(rendering, deepcopy(rendering))
    assert (found["differing"], found["clips"], found["seconds"], found["same_fingerprint"]) == ([], 3, 4.5, True)


@pytest.mark.parametrize("field", ["samples", "words"])
def test_a_difference_is_named(rendering: dict[str, Any], field: str) -> None:
    other = deepcopy(rendering)
    other["clips"]["two"][field] = "ef"
    other["clips"]["four"] = other["clips"].pop("one")
    assert compared(rendering, other)["differing"] == ["four", "one", "two"]


def test_what_is_asked_together_is_asked_alone() -> None:
    assert set(TOGETHER) <= set(requests(["marlow", "clara"], {"one": {}}))
