"""The rules of .ci/language.py, each with a planted defect."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / ".ci" / "language.py"


def check(folder: Path, source: str) -> subprocess.CompletedProcess[str]:
    (folder / "voicelab").mkdir()
    (folder / "voicelab" / "module.py").write_text(source, encoding="utf-8")
    for command in (["init", "-q"], ["add", "."]):
        subprocess.run(["git", *command], cwd=folder, check=True)
    return subprocess.run([sys.executable, str(SCRIPT)], cwd=folder, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("source", "rule"),
    [
        ('"""Return what the backend does."""\n', "clause instead of a noun: Return what"),
        ("# there is none\n", "nothing, nobody, no X is: there is none"),
        ('"""Whoever hears it."""\n', "living machine: hears"),
        ('"""Count word errors."""\n', "plain word for a term: word errors"),
        ("place = 1\n", "vague name: place"),
        ("_LONGEST = 1\n", "adjective constant: _LONGEST"),
    ],
)
def test_defect_is_reported_with_its_place(tmp_path: Path, source: str, rule: str) -> None:
    result = check(tmp_path, source)
    assert result.returncode == 1
    assert f"voicelab/module.py:1: {rule}" in result.stdout


def test_field_terms_pass(tmp_path: Path) -> None:
    result = check(tmp_path, '"""Return the WER of a take."""\nMAX_FRAMES = 1\n')
    assert (result.returncode, result.stderr) == (0, "")
