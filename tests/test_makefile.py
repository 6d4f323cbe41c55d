"""The Makefile and .ci/setup find a Python, say what is missing and what to do, tell times, and explain themselves."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
MAKE = shutil.which("make")
TEXT = (ROOT / "Makefile").read_text(encoding="utf-8")
TARGETS = re.findall(r"^\.PHONY: (.*)$", TEXT, re.MULTILINE)[0].split()

pytestmark = pytest.mark.skipif(MAKE is None, reason="the Makefile is tried with make")


# A pip that has nothing to ask but a port where nobody listens.
AWAY = {
    "PIP_CONFIG_FILE": os.devnull,
    "PIP_EXTRA_INDEX_URL": "",
    "PIP_FIND_LINKS": "",
    "PIP_INDEX_URL": "http://127.0.0.1:9/simple",
    "PIP_NO_CACHE_DIR": "1",
    "PIP_RETRIES": "0",
}
# What recipes and .ci/setup call besides Python.
TOOLS = ("awk", "date", "df", "dirname", "touch")


def _make(
    *arguments: str, path: Path | None = None, variables: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, **({"PATH": str(path)} if path else {}), **(variables or {})}
    # What a make around this test was told is not for this one.
    for name in ("MAKEFLAGS", "MFLAGS", "MAKELEVEL", "MAKEOVERRIDES", "PYTHON"):
        environment.pop(name, None)
    return subprocess.run(
        [str(MAKE), "-C", str(ROOT), "--no-print-directory", *arguments],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def _program(path: Path, script: str) -> Path:
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A PATH with a python3 that does not run, as a version manager's shim without a version, and no other."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for tool in TOOLS:
        found = shutil.which(tool)
        assert found is not None
        (folder / tool).symlink_to(found)
    _program(folder / "python3", "exit 1")
    return folder


def test_the_first_python_that_is_new_enough_is_taken(path: Path, tmp_path: Path) -> None:
    # Not a link, which would make this interpreter look for its library beside it.
    new = _program(path / "python3.13", f'exec "{sys.executable}" "$@"')
    # It ends where packages would be fetched: there is no constraints.txt in this folder.
    done = subprocess.run(
        [str(ROOT / ".ci" / "setup"), str(tmp_path / "venv"), "local"],
        env={"PATH": str(path)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert f"making the environment {tmp_path / 'venv'} with {new}" in done.stdout
    assert re.search(r"^voicelab: the environment is made: \d+ s$", done.stdout, re.MULTILINE)
    assert (tmp_path / "venv" / "bin" / "python").exists()
    assert done.returncode == 1
    assert "constraints.txt" in done.stderr
    assert "why stands above. To begin anew: make clean" in done.stderr.splitlines()[-1]


@pytest.mark.parametrize(
    ("python", "words"),
    [
        ("exit 1", ("Python 3.11 or newer", "no Python is on the PATH")),
        ('case "$2" in *platform*) echo 3.9.2;; *) exit 1;; esac', ("Python 3.11 or newer", "python3 is Python 3.9.2")),
        # Debian's python3 without python3-venv: there is a venv, and no pip to put into it.
        (
            f'case "$2" in *ensurepip*) exit 1;; *) exec "{sys.executable}" "$@";; esac',
            ("no venv module", f"apt install python3.{sys.version_info.minor}-venv"),
        ),
    ],
    ids=["none", "old", "no venv"],
)
@pytest.mark.parametrize("target", ["lab", "test"])
def test_without_a_python_that_will_do_it_says_what_to_install(
    path: Path, tmp_path: Path, python: str, words: tuple[str, ...], target: str
) -> None:
    _program(path / "python3", python)
    done = _make(target, f"VENV={tmp_path / 'venv'}", path=path)
    assert done.returncode != 0
    told = next(line for line in done.stderr.splitlines() if line.startswith("voicelab: "))
    assert [word for word in words if word not in told] == []
    assert not (tmp_path / "venv").exists()


def test_the_python_that_is_named_is_taken_or_refused(path: Path, tmp_path: Path) -> None:
    _program(path / "python3", f'exec "{sys.executable}" "$@"')
    named = _program(tmp_path / "my python", "exit 1")
    done = _make("lab", f"VENV={tmp_path / 'venv'}", f"PYTHON={named}", path=path)
    assert done.returncode != 0
    assert "Python 3.11 or newer" in done.stderr


def _on_a_small_disk(tmp_path: Path, size: str, script: str) -> subprocess.CompletedProcess[str]:
    """Run a script in a namespace where tmp_path/disk is a file system of a size."""
    (tmp_path / "disk").mkdir()
    space = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c"]
    mount = f'mount -t tmpfs -o size={size} none "{tmp_path / "disk"}"'
    if shutil.which("unshare") is None or subprocess.run([*space, mount], capture_output=True, check=False).returncode:
        pytest.skip("this machine lets nobody mount a small disk")
    return subprocess.run(
        [*space, f"{mount} && {script}"],
        cwd=ROOT,
        env={**os.environ, **AWAY},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def test_without_room_it_says_so_before_it_begins(tmp_path: Path) -> None:
    venv = tmp_path / "disk" / "venv"
    done = _on_a_small_disk(tmp_path, "1m", f'PYTHON="{sys.executable}" .ci/setup "{venv}" local && ls "{venv}"')
    assert done.returncode == 1
    assert "2500 MiB of disk are needed" in done.stderr
    assert "make … VENV=" in done.stderr


def test_packages_that_cannot_be_fetched_or_do_not_fit(tmp_path: Path) -> None:
    venv = tmp_path / "venv"
    done = _make(str(venv / ".ready-local"), f"VENV={venv}", f"PYTHON={sys.executable}", variables=AWAY)
    assert done.returncode != 0
    assert "packages could not be fetched. Is there a network?" in done.stderr
    assert not (venv / ".ready-local").exists(), "the next make goes on from here"
    disk = tmp_path / "disk"
    small = f'cp -r "{venv}" "{disk}/venv" && TMPDIR="{disk}" .ci/setup "{disk}/venv" local'
    done = _on_a_small_disk(tmp_path, "60m", small)
    assert "the disk is full. Make room in" in done.stderr


def test_pip_is_given_the_constraints_and_its_settings_are_left_alone() -> None:
    setup = (ROOT / ".ci" / "setup").read_text(encoding="utf-8")
    assert "-c constraints.txt" in setup
    for text in (TEXT, setup):
        assert "--index-url" not in text
        assert "://" not in text


def test_a_target_says_what_it_does_and_how_long_it_took() -> None:
    # The environment of these tests is there: only the command itself is run.
    ready = [f"-o{name}" for name in _ready()]
    done = _make(*ready, "test", f"VENV={sys.prefix}", "ARGS=--version", "JOBS=0")
    assert done.returncode == 0, done.stderr
    first, *_, last = done.stdout.splitlines()
    assert first == "voicelab: all tests"
    assert re.fullmatch(r"voicelab: all tests: \d+ s, \d+ s in all", last)
    failed = _make(*ready, "test", f"VENV={sys.prefix}", "ARGS=--no-such-option")
    assert failed.returncode != 0


def _ready() -> list[str]:
    return [f"{sys.prefix}/.ready-{extras}" for extras in re.findall(r"\$\(VENV\)/\.ready-([a-z,]+)", TEXT)]


@pytest.mark.parametrize("target", [target for target in TARGETS if target != "help"])
def test_help_names_every_target(target: str) -> None:
    assert re.search(rf"^  make {target}\b", _make("help").stdout, re.MULTILINE)


@pytest.mark.parametrize("target", [target for target in TARGETS if target not in {"help", "clean"}])
def test_every_target_sets_itself_up(tmp_path: Path, target: str) -> None:
    done = _make("-n", target, f"VENV={tmp_path / 'venv'}")
    assert done.returncode == 0, done.stderr
    assert f'.ci/setup "{tmp_path / "venv"}" "local,' in done.stdout


def test_clean_removes_no_folder_that_only_the_environment_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VENV", "/somebody/elses")
    assert "/somebody/elses" not in _make("-n", "clean").stdout
