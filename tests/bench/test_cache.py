from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

BENCH = Path(__file__).resolve().parents[2] / "bench" / "cache.py"


@pytest.mark.thorough
def test_the_last_line_has_the_figures() -> None:
    command = [sys.executable, str(BENCH), "--takes", "3"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    figures = json.loads(done.stdout.splitlines()[-1])
    assert figures["takes"] == 3
    assert {"write_ms", "table_s", "verified_audio_ms", "table_with_metrics_s", "machine"} <= set(figures)
