"""bench/same_samples.py reports differing and missing clips."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from same_samples import CONCURRENT, TOLERANCE, compared, requests


@pytest.fixture
def rendering() -> dict[str, Any]:
    clip = {"samples": "ab", "words": "cd", "seconds": 1.5}
    return {"fingerprint": "f", "clips": {name: dict(clip) for name in ("one", "two", "three")}}


def test_equal_renderings(rendering: dict[str, Any], tmp_path: Path) -> None:
    result = compared(rendering, deepcopy(rendering), tmp_path)
    assert (result["differing"], result["clips"], result["seconds"], result["same_fingerprint"]) == ([], 3, 4.5, True)


@pytest.mark.parametrize(("field", "largest"), [("samples", 0.5), ("words", 0.0)])
def test_differing_and_missing_clips_are_named(
    rendering: dict[str, Any], tmp_path: Path, field: str, largest: float
) -> None:
    changed = deepcopy(rendering)
    changed["clips"]["two"][field] = "ef"
    changed["clips"]["three"]["samples"] = "gh"
    for name, level in (("ab", 0.0), ("ef", largest), ("gh", TOLERANCE / 2)):
        np.save(tmp_path / name, np.full(9, level))
    changed["clips"]["four"] = changed["clips"].pop("one")
    assert compared(rendering, changed, tmp_path)["differing"] == ["four", "one", "two"]  # three has rounding only


def test_concurrent_requests_are_also_sequential() -> None:
    assert set(CONCURRENT) <= set(requests(["marlow", "clara"], {"one": {}}))
