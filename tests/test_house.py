"""The rules that .ci/house.py checks, each with a planted defect; and the lists in pyproject.toml."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
# Made here, so that this file does not hold one.
KEY = "vl_" + "a1B2c3D4" * 6 + "0"


def _check(folder: Path, name: str, text: str) -> list[str]:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    command = [sys.executable, str(ROOT / ".ci" / "house.py"), name]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=60)
    assert done.stderr == ""
    assert done.returncode == (1 if done.stdout else 0)
    return done.stdout.splitlines()


def test_a_module_of_700_lines_passes_and_one_more_does_not(tmp_path: Path) -> None:
    assert _check(tmp_path, "voicelab/long.py", "x = 1\n" * 700) == []
    assert _check(tmp_path, "voicelab/long.py", "x = 1\n" * 701) == [
        "voicelab/long.py:1: 701 lines; a module has at most 700: one file, one idea"
    ]


def test_a_function_of_60_lines_passes_and_one_more_does_not(tmp_path: Path) -> None:
    assert _check(tmp_path, "bench/f.py", "def f():\n" + "    x = 1\n" * 59) == []
    (line,) = _check(tmp_path, "bench/f.py", "def f():\n" + "    x = 1\n" * 60)
    assert "f() has 61 lines" in line


@pytest.mark.parametrize(
    ("code", "what"),
    [
        ("def f():\n    raise ValueError('no')\n", "not a bare ValueError"),
        ("def f():\n    raise RuntimeError\n", "not a bare RuntimeError"),
        ("import pickle\n", "pickle runs code"),
        ("from joblib import load\n", "joblib runs code"),
        ("import torch\n\ndef f():\n    torch.load('x')\n", "torch.load unpickles"),
        ("import torch\n\ndef f():\n    torch.load('x', weights_only=True)\n", "torch.load unpickles"),
        ("import torch\n\ntorch.set_num_threads(1)\n", "must not set threads"),
        ("def f(:\n", "not Python"),
        ("def f():\n    found = 1\n    return found\n", "'found' says nothing"),
        ("def f(told):\n    return told\n", "'told' says nothing"),
    ],
)
def test_what_the_package_must_not_do(tmp_path: Path, code: str, what: str) -> None:
    (line,) = _check(tmp_path, "voicelab/bad.py", code)
    assert what in line


def test_two_public_classes_of_one_name(tmp_path: Path) -> None:
    for name in ("a", "b"):
        path = tmp_path / "voicelab" / f"{name}.py"
        path.parent.mkdir(exist_ok=True)
        path.write_text("class Report:\n    pass\n\n\nclass _Private:\n    pass\n")
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    command = [sys.executable, str(ROOT / ".ci" / "house.py")]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60)
    assert done.stdout == "voicelab/b.py:1: the class Report is in voicelab/a.py too\n"
    assert done.returncode == 1


@pytest.mark.parametrize("name", ["README.md", "voicelab/x.py", "deploy.yml"])
def test_a_key_is_found_anywhere(tmp_path: Path, name: str) -> None:
    assert any("looks like a key" in line for line in _check(tmp_path, name, f"# {KEY}\n"))


@pytest.mark.parametrize(
    "cell",
    [
        {"cell_type": "code", "source": [f"lab = connect(api_key='{KEY}')"], "outputs": []},
        {"cell_type": "code", "source": [], "outputs": [{"output_type": "stream", "text": [KEY[:9], KEY[9:]]}]},
        {"cell_type": "code", "source": [], "outputs": [{"data": {"text/html": f"<b>{KEY}</b>"}}]},
        {"cell_type": "code", "source": [], "outputs": [{"traceback": [f"Authorization: Bearer {'q' * 20}"]}]},
    ],
    ids=["source", "broken over two lines", "rich output", "traceback"],
)
def test_a_key_in_a_notebook_is_found(tmp_path: Path, cell: dict[str, object]) -> None:
    assert _check(tmp_path, "notebooks/a.ipynb", json.dumps({"cells": [cell]}, indent=1))


def test_a_notebook_without_a_key_passes(tmp_path: Path) -> None:
    cell = {"cell_type": "code", "source": ["lab = connect()  # Authorization: Bearer <API_KEY>"], "outputs": []}
    assert _check(tmp_path, "notebooks/a.ipynb", json.dumps({"cells": [cell]})) == []


def _contract(name: str) -> dict[str, object]:
    (contract,) = (item for item in PYPROJECT["tool"]["importlinter"]["contracts"] if item["name"].startswith(name))
    return dict(contract)


def test_the_ban_on_torch_covers_every_module_but_the_engine() -> None:
    package = ROOT / "voicelab"
    modules = {path.stem for path in package.glob("*.py")} | {
        path.parent.name for path in package.glob("*/__init__.py")
    }
    expected = {f"voicelab.{name}" for name in modules - {"__init__", "engine"}}
    assert _contract("torch")["source_modules"] == sorted(expected)


def test_every_exception_of_the_linter_is_explained() -> None:
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    section = text[text.index("[tool.ruff.lint]\n") : text.index("[tool.ruff.lint.pydocstyle]")]
    section = section[section.index("ignore = [") :]
    entries = [line for line in section.splitlines() if re.match(r'\s+"[A-Z]+\d*",', line)]
    assert len(entries) > 20
    assert [line for line in entries if not re.search(r"# \S+", line)] == []


def test_the_constraints_pin_every_dependency() -> None:
    project = PYPROJECT["project"]
    wanted = [
        *project["dependencies"],
        *(item for group in project["optional-dependencies"].values() for item in group),
    ]
    names = {re.split(r"[\[<>=!~; ]", item)[0].lower().replace("_", "-") for item in wanted} - {"jupyter-voicelab"}
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pinned = {line.split("==")[0].lower().replace("_", "-") for line in lines if "==" in line}
    assert names - pinned == set()
    assert [line for line in lines if not re.fullmatch(r"#.*|[\w.-]+==[\w.!]+", line)] == []
