"""bench/service.py measures a real service, and says so in one last line of JSON."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from service import milliseconds, ratio

BENCH = Path(__file__).resolve().parents[2] / "bench"


def test_medians_and_ratios() -> None:
    assert milliseconds([0.001, 0.002, 0.9]) == 2.0
    assert ratio({"httpx": [1.0, 2.0, 9.0], "client": [3.0, 2.2, 1.0]}) == 1.1


def test_the_command_measures_and_ends() -> None:
    command = [sys.executable, str(BENCH / "service.py"), "--seconds", "0.3", "--repeats", "10", "--callers", "2"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    figures = json.loads(done.stdout.splitlines()[-1])
    assert figures["service"]["requests"] > 5
    assert [case["clip_s"] for case in figures["client"]] == [1, 60]
    assert all(case["whole_ratio"] > 0 for case in figures["client"])
    assert figures["machine"]["cores"] >= 1
