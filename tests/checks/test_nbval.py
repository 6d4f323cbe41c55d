"""nbval's own plugin holds the notebooks to what `voicelab check` does, by notebooks/conftest.py."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.checks.conftest import notebook, printed
from voicelab.checks import processor

CONFTEST = Path(__file__).parents[2] / "notebooks" / "conftest.py"


@pytest.mark.parametrize(
    ("elsewhere", "verdicts"),
    [
        (False, {"level -24.3 dB": "PASSED", "level -24.4 dB": "FAILED"}),
        (True, {"level -24.4 dB": "PASSED", "pitch -24.4 dB": "FAILED"}),
    ],
)
def test_figures_count_where_they_were_made(tmp_path: Path, elsewhere: bool, verdicts: dict[str, str]) -> None:
    """``verdicts`` has what is committed, each of a cell that prints "level -24.3 dB"."""
    cells = [('print("level -24.3 dB")', printed(f"{said}\n")) for said in verdicts]
    made_on = "of another kind" if elsewhere else processor()
    notebook(tmp_path / "levels.ipynb", *cells, voicelab={"processor": made_on})
    shutil.copy(CONFTEST, tmp_path)
    options = ["--nbval", "-q", "-rA", "-p", "no:cacheprovider", "--rootdir", str(tmp_path), str(tmp_path)]
    command = [sys.executable, "-m", "pytest", *options]
    lines = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False).stdout.splitlines()
    said = [" ".join(line.split()[:3]) for line in lines if line.startswith(("PASSED", "FAILED"))]
    assert sorted(said) == sorted(
        f"{verdict} levels.ipynb::Cell {number}" for number, verdict in enumerate(verdicts.values())
    )
