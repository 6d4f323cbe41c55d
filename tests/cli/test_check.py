from __future__ import annotations

from pathlib import Path
from typing import Any

import nbformat
from nbformat.v4 import new_code_cell, new_notebook, new_output


def _write(name: str, text: str) -> Path:
    output = new_output("execute_result", {"text/plain": text}, execution_count=1)
    cell = new_code_cell("6 * 7", execution_count=1, outputs=[output])
    nbformat.write(new_notebook(cells=[cell]), name)
    return Path(name)


def test_one_line_for_each_finding_and_the_exit_status(run: Any) -> None:
    # It runs in a folder of its own.
    run("--version")
    good, bad = _write("good.ipynb", "42"), _write("bad.ipynb", "43")
    done = run("check", str(good), str(bad))
    assert done.exit_code == 1
    assert done.stdout.splitlines() == [
        "good.ipynb: as it should be",
        "bad.ipynb:1: difference: output 1 (text/plain): '42' where it was '43'",
    ]
    done = run("check", "--no-execute", str(good), str(bad))
    assert (done.exit_code, done.stdout.count("as it should be")) == (0, 2)
    done = run("check", "--no-execute", "--max-notebook", "0.0001", str(good))
    assert done.exit_code == 1
    assert "size" in done.stdout


def test_what_cannot_be_read_is_one_line(run: Any) -> None:
    done = run("check", "nowhere.ipynb")
    assert done.exit_code == 2
    assert done.stderr.count("\n") == 1
