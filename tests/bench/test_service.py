"""bench/service.py measures a real service, and says so in one last line of JSON."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from service import milliseconds

BENCH = Path(__file__).resolve().parents[2] / "bench"


def test_medians() -> None:
    assert milliseconds([0.001, 0.002, 0.9]) == 2.0


@pytest.mark.thorough
def test_the_command_measures_and_ends() -> None:
    command = [sys.executable, str(BENCH / "service.py"), "--seconds", "0.3", "--callers", "2"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    figures = json.loads(done.stdout.splitlines()[-1])
    assert figures["service"]["requests"] > 5
    assert figures["machine"]["cores"] >= 1
