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


def _check_all(folder: Path, **files: str) -> str:
    """Return what the rules say of a repository with these files, dots in whose names are folders."""
    for name, text in files.items():
        path = folder / f"{name.replace('.', '/')}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    subprocess.run(["git", "init", "-q"], cwd=folder, check=True)
    command = [sys.executable, str(ROOT / ".ci" / "house.py")]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == (1 if done.stdout else 0)
    return done.stdout


def test_two_public_classes_of_one_name(tmp_path: Path) -> None:
    text = "class Report:\n    pass\n\n\nclass _Private:\n    pass\n"
    said = _check_all(tmp_path, **{"voicelab.a": text, "voicelab.b": text})
    assert said == "voicelab/b.py:1: the class Report is in voicelab/a.py too\n"


@pytest.mark.parametrize(
    "back",
    [
        "from voicelab import a\n",
        "import voicelab.a\n",
        "def f():\n    from voicelab.a import X\n",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from voicelab.a import X\n",
    ],
)
def test_a_circle_of_imports_is_found_however_it_is_closed(tmp_path: Path, back: str) -> None:
    files = {"voicelab.__init__": "", "voicelab.a": "from voicelab.b import Y\nX = 1\n", "voicelab.b": "Y = 1\n"}
    assert _check_all(tmp_path, **files) == ""
    said = _check_all(tmp_path, **{**files, "voicelab.b": back})
    assert said.startswith("imports run in a circle: voicelab.")


def test_scripts_of_bench_and_the_facade_are_looked_at_too(tmp_path: Path) -> None:
    files = {"bench.one": "import two\n", "bench.two": "import one\n"}
    files |= {"voicelab.__init__": "from voicelab.a import X\n", "voicelab.a": "from voicelab import __version__\n"}
    lines = _check_all(tmp_path, **files).splitlines()
    assert lines[0] == "voicelab.a imports the facade voicelab: name the module"
    assert lines[1].startswith("imports run in a circle: bench.")


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
