"""bench/client.py compares the client with httpx, and says so in one last line of JSON."""

from __future__ import annotations

import numpy as np
import pytest
from client import compare, median_ratio

from tests.bench.conftest import last_line


def test_a_ratio_of_medians_and_its_interval() -> None:
    assert median_ratio([3.0, 2.2, 1.0], [1.0, 2.0, 9.0]).value == pytest.approx(1.1)
    draw = np.random.default_rng(1)
    found = median_ratio(draw.normal(1.2, 0.1, 400).tolist(), draw.normal(1.0, 0.1, 400).tolist())
    assert found.low < found.value < found.high
    assert found.low < 1.2 < found.high
    assert found.high - found.low < 0.06


def test_an_answer_that_is_not_the_whole_clip_stops_it() -> None:
    with pytest.raises(SystemExit, match="whole clip"):
        compare({"httpx": [(1.0, 2.0, 88_200)], "client": [(1.0, 2.0, 88_199)]}, 1, "blocking")


@pytest.mark.thorough
def test_the_command_compares_and_ends() -> None:
    figures = last_line("client.py", "--rounds", "4")
    cases = [(case["way"], case["clip_s"], case["rounds"]) for case in figures["client"]]
    assert cases == [(way, clip_s, 4) for clip_s in (1, 60) for way in ("blocking", "event loop")]
    for case in figures["client"]:
        for name in ("first_byte_ratio", "whole_ratio"):
            assert 0 < case[name]["low"] <= case[name]["value"] <= case[name]["high"]
        assert set(case["megabytes_per_s"]) == {"httpx", "client"}
    assert figures["machine"]["cores"] >= 1
