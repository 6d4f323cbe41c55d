"""Add bench/ to the import path: benchmarks import each other as scripts."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

BENCH = Path(__file__).resolve().parents[2] / "bench"
sys.path.insert(0, str(BENCH))


def last_line(script: str, *arguments: str) -> Any:
    """Run a benchmark and return the JSON of its last line."""
    command = [sys.executable, str(BENCH / script), *arguments]
    process = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert process.returncode == 0, process.stderr
    return json.loads(process.stdout.splitlines()[-1])
