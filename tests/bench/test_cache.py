from __future__ import annotations

import pytest

from tests.bench.conftest import last_line


@pytest.mark.thorough
def test_the_last_line_has_the_figures() -> None:
    figures = last_line("cache.py", "--takes", "3")
    assert figures["takes"] == 3
    assert {"write_ms", "table_s", "verified_audio_ms", "table_with_metrics_s", "machine"} <= set(figures)
