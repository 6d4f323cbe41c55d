from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.checks.conftest import notebook, shown


def _write(name: str, text: str) -> Path:
    return notebook(Path(name), ("6 * 7", shown(text)))


def test_findings_summary_and_exit_status(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    # It runs in a folder of its own.
    monkeypatch.delenv("GITHUB_ACTIONS", raising=False)
    good, bad = _write("a/good.ipynb", "42"), _write("a/x/bad.ipynb", "43")
    _write("a/.ipynb_checkpoints/old.ipynb", "44")
    done = run("check", "a", "--jobs", "2")
    assert done.exit_code == 1
    first, second, summary = done.stdout.splitlines()
    shape = r"a/good\.ipynb: passed \(1 cells, 0\.00 MiB, \d+ s, peak memory \d+ MiB\)"
    assert re.fullmatch(shape, first)
    assert second == "a/x/bad.ipynb:1: difference: output 1 (text/plain): got '42', expected '43'"
    assert re.fullmatch(r"2 notebooks in \d+ s: 1 with findings \(1 difference\)", summary)

    done = run("check", "--update", str(bad), "--max-memory", "1")
    assert done.exit_code == 1
    assert "memory:" in done.stdout
    assert "43" in bad.read_text()
    done = run.well("check", "--update", str(bad))
    assert "bad.ipynb: updated (1 cells" in done.stdout
    (cell,) = json.loads(bad.read_text())["cells"]
    assert cell["outputs"][0]["data"]["text/plain"] == ["42"]
    assert good.exists()


def test_no_execute_lints_files(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    good = _write("good.ipynb", "42")
    done = run("check", "--no-execute", str(good), str(_write("bad.ipynb", "43")))
    assert (done.exit_code, done.stdout.count(".ipynb: passed")) == (0, 2)
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    done = run("check", "--no-execute", "--max-notebook", "0.0001", str(good))
    assert done.exit_code == 1
    assert "\n::error file=good.ipynb,title=size::a notebook must be at most 0.00 MiB, got 0.00 MiB\n" in done.stdout
    files = ["--json", "r.json", "--junit", "r.xml"]
    done = run("check", "--no-execute", "--max-output", "0.00001", *files, str(good))
    line = 1 + good.read_text().splitlines().index('    "6 * 7"')
    assert f"\n::error file=good.ipynb,line={line},title=size::cell 1: output 1 must be" in done.stdout
    assert json.loads(Path("r.json").read_text())[0]["findings"][0]["line"] == line
    assert f'line="{line}"' in Path("r.xml").read_text()


def test_missing_notebooks_are_one_line_errors(run: Any) -> None:
    Path("list.csv").write_text("path\na.wav\n")
    for arguments, what in (
        (["nowhere.ipynb"], "nowhere.ipynb"),
        (["."], "no notebook in ."),
        (["list.csv"], "notebooks: must be .ipynb files or folders, got list.csv"),
        (["--update", "--no-execute", "."], "remove --no-execute"),
        (["--update", "--keep-going", "."], "remove --keep-going"),
    ):
        assert what in run.refused("check", *arguments)
