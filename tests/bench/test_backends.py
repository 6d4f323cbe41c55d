"""bench/backends.py measures the overhead of functions, workers and commands."""

from __future__ import annotations

import pytest

from tests.bench.conftest import last_line


@pytest.mark.thorough
def test_command() -> None:
    figures = last_line("backends.py", "--calls", "20", "--rows", "5")
    assert list(figures["overhead"]) == ["function", "worker", "command"]
    assert all(0 < case["median_ms"] <= case["p95_ms"] for case in figures["overhead"].values())
    assert figures["evaluation"]["rows"] == 5
