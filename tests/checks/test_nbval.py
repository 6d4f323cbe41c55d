"""nbval's own plugin holds the notebooks to what `voicelab check` does, by notebooks/conftest.py."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_notebook, new_output

from voicelab.checks import processor

CONFTEST = Path(__file__).parents[2] / "notebooks" / "conftest.py"


def _nbval(folder: Path, *, made_on: str, shown: str) -> str:
    """What pytest says at its end of a notebook that prints "level -24.3 dB" where `shown` is committed."""
    output = new_output("stream", name="stdout", text=f"{shown}\n")
    cell = new_code_cell('print("level -24.3 dB")', execution_count=1, outputs=[output])
    notebook = new_notebook(cells=[cell], metadata={"voicelab": {"processor": made_on}})
    nbformat.write(notebook, folder / "one.ipynb")
    shutil.copy(CONFTEST, folder)
    command = [
        sys.executable,
        "-m",
        "pytest",
        "--nbval",
        "-q",
        "-p",
        "no:cacheprovider",
        "--rootdir",
        str(folder),
        str(folder),
    ]
    return subprocess.run(command, capture_output=True, text=True, cwd=folder, check=False).stdout.splitlines()[-1]


@pytest.mark.parametrize(
    ("elsewhere", "shown", "passes"),
    [
        (False, "level -24.3 dB", True),
        (False, "level -24.4 dB", False),
        (True, "level -24.4 dB", True),
        (True, "pitch -24.4 dB", False),
    ],
)
def test_figures_count_where_they_were_made(tmp_path: Path, *, elsewhere: bool, shown: str, passes: bool) -> None:
    closing = _nbval(tmp_path, made_on="of another kind" if elsewhere else processor(), shown=shown)
    assert ("1 passed" in closing) is passes
    assert ("1 failed" in closing) is not passes
