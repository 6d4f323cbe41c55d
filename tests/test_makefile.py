"""The Makefile finds a Python that is new enough, says so when there is none, and explains itself."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
MAKE = shutil.which("make")
TEXT = (ROOT / "Makefile").read_text(encoding="utf-8")
TARGETS = re.findall(r"^\.PHONY: (.*)$", TEXT, re.MULTILINE)[0].split()

pytestmark = pytest.mark.skipif(MAKE is None, reason="the Makefile is tried with make")


def _make(*arguments: str, path: Path | None = None) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, **({"PATH": str(path)} if path else {})}
    # What a make around this test was told is not for this one.
    for name in ("MAKEFLAGS", "MFLAGS", "MAKELEVEL", "MAKEOVERRIDES"):
        environment.pop(name, None)
    return subprocess.run(
        [str(MAKE), "-C", str(ROOT), "--no-print-directory", *arguments],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A PATH with a python3 that is too old, and what recipes call."""
    folder = tmp_path / "bin"
    folder.mkdir()
    old = folder / "python3"
    old.write_text("#!/bin/sh\nexit 1\n")
    old.chmod(0o755)
    return folder


def test_the_first_python_that_is_new_enough_is_taken(path: Path, tmp_path: Path) -> None:
    # Not a link, which would make this interpreter look for its library beside it.
    new = path / "python3.13"
    new.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    new.chmod(0o755)
    done = _make("-n", "lab", f"VENV={tmp_path / 'venv'}", path=path)
    assert done.returncode == 0, done.stderr
    assert f'"{new}" -m venv' in done.stdout


def test_without_one_it_says_what_is_needed(path: Path, tmp_path: Path) -> None:
    done = _make("lab", f"VENV={tmp_path / 'venv'}", path=path)
    assert done.returncode != 0
    assert "Python 3.11 or newer" in done.stderr
    assert not (tmp_path / "venv").exists()


def test_pip_is_given_the_constraints_and_its_settings_are_left_alone(tmp_path: Path) -> None:
    done = _make("-n", "test", f"VENV={tmp_path / 'venv'}")
    (install,) = (line for line in done.stdout.splitlines() if "pip install" in line)
    assert "-c constraints.txt" in install
    assert "--index-url" not in TEXT
    assert "://" not in TEXT


@pytest.mark.parametrize("target", [target for target in TARGETS if target != "help"])
def test_help_names_every_target(target: str) -> None:
    assert re.search(rf"^  make {target}\b", _make("help").stdout, re.MULTILINE)


@pytest.mark.parametrize("target", [target for target in TARGETS if target not in {"help", "clean"}])
def test_every_target_sets_itself_up(tmp_path: Path, target: str) -> None:
    done = _make("-n", target, f"VENV={tmp_path / 'venv'}")
    assert done.returncode == 0, done.stderr
    assert "-m venv" in done.stdout
    assert "pip install" in done.stdout


def test_clean_removes_no_folder_that_only_the_environment_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VENV", "/somebody/elses")
    assert "/somebody/elses" not in _make("-n", "clean").stdout
