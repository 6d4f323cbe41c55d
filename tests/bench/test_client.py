"""bench/client.py compares the client with httpx and prints JSON."""

from __future__ import annotations

import numpy as np
import pytest
from client import compare, median_ratio

from tests.bench.conftest import last_line


def test_median_ratio() -> None:
    assert median_ratio([3.0, 2.2, 1.0], [1.0, 2.0, 9.0]).value == pytest.approx(1.1)
    draw = np.random.default_rng(1)
    interval = median_ratio(draw.normal(1.2, 0.1, 400).tolist(), draw.normal(1.0, 0.1, 400).tolist())
    assert interval.low < interval.value < interval.high
    assert interval.low < 1.2 < interval.high
    assert interval.high - interval.low < 0.06


def test_incomplete_response_exits() -> None:
    with pytest.raises(SystemExit, match="complete clip"):
        compare({"httpx": [(1.0, 2.0, 88_200)], "client": [(1.0, 2.0, 88_199)]}, 1, "blocking")


@pytest.mark.thorough
def test_command() -> None:
    figures = last_line("client.py", "--rounds", "4")
    cases = [(case["way"], case["clip_s"], case["rounds"]) for case in figures["client"]]
    assert cases == [(way, clip_s, 4) for clip_s in (1, 60) for way in ("blocking", "event loop")]
    for case in figures["client"]:
        for name in ("first_byte_ratio", "whole_ratio"):
            assert 0 < case[name]["low"] <= case[name]["value"] <= case[name]["high"]
        assert set(case["megabytes_per_s"]) == {"httpx", "client"}
    assert figures["machine"]["cores"] >= 1
