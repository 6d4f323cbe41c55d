"""bench/sweep.py compares real sweeps, and says so in one last line of JSON."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

BENCH = Path(__file__).resolve().parents[2] / "bench"


@pytest.mark.thorough
def test_the_command_measures_and_ends() -> None:
    command = [sys.executable, str(BENCH / "sweep.py"), "--takes", "4", "--turns", "1", "--canned", "40"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    figures = json.loads(done.stdout.splitlines()[-1])
    gain, overhead = figures["gain"], figures["overhead"]
    assert (gain["takes"], gain["same_audio"]) == (4, True)
    assert 0 < overhead["cached_ms"] < overhead["sweep_ms"] * 5
    assert figures["machine"]["cores"] >= 1
