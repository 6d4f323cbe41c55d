"""bench/service.py measures a real service and prints JSON."""

from __future__ import annotations

import pytest
from service import milliseconds

from tests.bench.conftest import last_line


def test_medians() -> None:
    assert milliseconds([0.001, 0.002, 0.9]) == 2.0


@pytest.mark.thorough
def test_command() -> None:
    figures = last_line("service.py", "--seconds", "0.3", "--callers", "2")
    assert figures["service"]["requests"] > 5
    assert figures["machine"]["cores"] >= 1
