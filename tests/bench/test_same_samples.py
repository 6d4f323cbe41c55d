"""bench/same_samples.py reports differing and missing clips."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest
from same_samples import CONCURRENT, compared, requests


@pytest.fixture
def rendering() -> dict[str, Any]:
    clip = {"samples": "ab", "words": "cd", "seconds": 1.5}
    return {"fingerprint": "f", "clips": {name: dict(clip) for name in ("one", "two", "three")}}


def test_equal_renderings(rendering: dict[str, Any]) -> None:
    result = compared(rendering, deepcopy(rendering))
    assert (result["differing"], result["clips"], result["seconds"], result["same_fingerprint"]) == ([], 3, 4.5, True)


@pytest.mark.parametrize("field", ["samples", "words"])
def test_differing_and_missing_clips_are_named(rendering: dict[str, Any], field: str) -> None:
    changed = deepcopy(rendering)
    changed["clips"]["two"][field] = "ef"
    changed["clips"]["four"] = changed["clips"].pop("one")
    assert compared(rendering, changed)["differing"] == ["four", "one", "two"]


def test_concurrent_requests_are_also_sequential() -> None:
    assert set(CONCURRENT) <= set(requests(["marlow", "clara"], {"one": {}}))
