"""Damaged folders of open weights: whatever is in them, speech or an error of ours that names a file, soon and in bounds."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import threading
from pathlib import Path
from typing import IO, Any

import pytest

HUNG_S, HUNGER_MB = 5.0, 500.0
_BEGIN_S = 120.0
"""For the imports and the first speech on a busy machine."""
ROOT = Path(__file__).parents[3]


def _tried(home: Path, first: int, last: int) -> list[dict[str, Any]]:
    """What came of the damages until one hangs, or kills the process: that one with nothing but its number."""
    command = [sys.executable, "-m", "tests.engine.dual.damage", str(home), str(first), str(last - first)]
    environment = os.environ | {"VOICELAB_HOME": str(home), "VOICELAB_ACCEPT_LICENSE": "1", "OMP_NUM_THREADS": "1"}
    outcomes, lines = list[dict[str, Any]](), queue.SimpleQueue[str]()
    with subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        reader = threading.Thread(target=_put, args=(process.stdout, lines))
        reader.start()
        try:
            while line := lines.get(timeout=_BEGIN_S if not outcomes else 4 * HUNG_S):
                outcomes.append(json.loads(line))
        except queue.Empty:
            process.kill()
        reader.join()
    assert all(one["came"] == "speech" for one in outcomes if one["healthy"])
    damaged = [one for one in outcomes if not one["healthy"]]
    assert damaged, "it did not begin"
    return damaged if len(damaged) == last - first else [*damaged, {"number": first + len(damaged)}]


def _put(out: IO[str], lines: queue.SimpleQueue[str]) -> None:
    for line in out:
        lines.put(line)
    lines.put("")


def _try(home: Path, first: int, last: int) -> None:
    outcomes = list[dict[str, Any]]()
    while first < last:
        outcomes += _tried(home, first, last)
        first = outcomes[-1]["number"] + 1
    raw = [one for one in outcomes if not one.get("came", "RAW").startswith(("speech", "error"))]
    hung = [one for one in outcomes if one.get("seconds", 0.0) > HUNG_S]
    hungry = [one for one in outcomes if one.get("mb", 0.0) > HUNGER_MB]
    assert (raw, hung, hungry) == ([], [], [])
    assert sum(one["came"].startswith("error") for one in outcomes) > len(outcomes) / 2  # the others are harmless


def test_two_hundred_damages(tmp_path: Path) -> None:
    _try(tmp_path, 0, 200)


@pytest.mark.thorough
def test_two_thousand_damages(tmp_path: Path) -> None:
    _try(tmp_path, 0, 2000)
