"""bench/sweep.py compares real sweeps and prints JSON."""

from __future__ import annotations

import pytest

from tests.bench.conftest import last_line


@pytest.mark.thorough
def test_command() -> None:
    figures = last_line("sweep.py", "--takes", "4", "--turns", "1", "--canned", "40")
    gain, overhead = figures["gain"], figures["overhead"]
    assert (gain["takes"], gain["same_audio"]) == (4, True)
    assert 0 < overhead["cached_ms"] < overhead["sweep_ms"] * 5
    assert figures["machine"]["cores"] >= 1
