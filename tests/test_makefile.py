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

from tests.tones import there

ROOT = Path(__file__).parents[1]
MAKE = shutil.which("make")
TEXT = (ROOT / "Makefile").read_text(encoding="utf-8")
CI = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
EXTRAS = re.findall(r"\$\(VENV\)/\.ready-([a-z,]+)", TEXT)
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
# MiB that no disk has.
ENDLESS = "999999999999"
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


def _tools(folder: Path) -> Path:
    """Make a PATH with a python3 that does not run, as a version manager's shim without a version, and no other."""
    folder.mkdir()
    _program(folder / "python3", "exit 1")
    for tool in TOOLS:
        (folder / tool).symlink_to(there(shutil.which(tool)))
    return folder


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return _tools(tmp_path / "bin")


@pytest.fixture(scope="module")
def attempt(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, subprocess.CompletedProcess[str]]:
    """A folder with an environment that was made, and what make said, which found no packages."""
    folder = tmp_path_factory.mktemp("attempt")
    tools = _tools(folder / "bin")
    # Not a link, which would make this interpreter look for its library beside it.
    _program(tools / "python3.13", f'exec "{sys.executable}" "$@"')
    venv = folder / "venv"
    return folder, _make(str(venv / ".ready-local"), f"VENV={venv}", path=tools, variables=AWAY)


Attempt = tuple[Path, subprocess.CompletedProcess[str]]


def test_what_cannot_be_compiled_is_named_and_left_out(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    script = f'case "$*" in "-c "*) exec "{sys.executable}" "$@";; *" pesq") echo "no cc" >&2; exit 1;; esac'
    _program(tmp_path / "bin" / "python", script)
    done = _make(str(tmp_path / ".ready-local"), f"VENV={tmp_path}")
    assert done.returncode == 0, done.stderr
    (told,) = [line for line in done.stdout.splitlines() if line.startswith("voicelab: without pesq")]
    assert f"python3.{sys.version_info.minor}-dev" in told
    assert f"{tmp_path}/bin/pip install -c constraints.txt pesq" in told
    assert (tmp_path / ".ready-local").exists()


@pytest.mark.parametrize(
    ("settings", "installer"),
    [
        ("", "uv pip install"),
        ("global.index-url='https://a.b'", "-m pip install"),
        ("global.proxy='http://a.b:3128'", "-m pip install"),
    ],
)
def test_uv_installs_where_pip_has_no_index_and_no_proxy_of_its_own(
    tmp_path: Path, settings: str, installer: str
) -> None:
    (tmp_path / "bin").mkdir()
    log = tmp_path / "log"
    record = f'echo "$(basename "$0") $*" >> {log}'
    _program(tmp_path / "bin" / "python", f'{record}; case "$*" in *"config list") echo "{settings}" ;; esac')
    _program(tmp_path / "uv", record)
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "HASHES": "yes"}
    subprocess.run([ROOT / ".ci" / "setup", tmp_path, "notebook"], env=environment, cwd=ROOT, check=True)
    (line,) = [line for line in log.read_text(encoding="utf-8").splitlines() if "lab.txt" in line]
    assert installer in line
    assert "--require-hashes" in line


def test_uv_is_installed_for_the_installation_where_it_is_missing(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    log = tmp_path / "log"
    make_uv = f"mkdir -p {tmp_path}/uv/bin; cp {tmp_path}/fake {tmp_path}/uv/bin/uv"
    _program(tmp_path / "fake", f'echo "uv $*" >> {log}')
    _program(
        tmp_path / "bin" / "python", f'echo "$*" >> {log}; case "$*" in *"config list") ;; *uv.txt) {make_uv} ;; esac'
    )
    environment = {**os.environ, "PATH": "/usr/bin:/bin", "HASHES": "yes"}
    subprocess.run([ROOT / ".ci" / "setup", tmp_path, "notebook"], env=environment, cwd=ROOT, check=True)
    bootstrap, installation = [
        line for line in log.read_text(encoding="utf-8").splitlines() if "--require-hashes" in line
    ]
    assert f"--target {tmp_path}/uv -r .ci/locked/uv.txt" in bootstrap
    assert installation.startswith("uv pip install")
    assert "lab.txt" in installation
    assert not (tmp_path / "uv").exists()


def test_the_first_python_that_is_new_enough_is_taken(attempt: Attempt) -> None:
    folder, done = attempt
    assert f"making the environment {folder / 'venv'} with {folder / 'bin' / 'python3.13'}\n" in done.stdout
    assert re.search(r"^voicelab: the environment is made: \d+ s$", done.stdout, re.MULTILINE)
    assert (folder / "venv" / "bin" / "python").exists()


def test_packages_that_cannot_be_fetched(attempt: Attempt) -> None:
    folder, done = attempt
    assert done.returncode != 0
    assert "packages could not be fetched. Is there a network?" in done.stderr
    assert not (folder / "venv" / ".ready-local").exists(), "the next make goes on from here"


def test_a_disk_that_is_full_afterwards(attempt: Attempt) -> None:
    # No disk has as much room as is asked for here; the environment is there, so it is noticed when pip fails.
    done = _make("lab", f"VENV={attempt[0] / 'venv'}", path=attempt[0] / "bin", variables={**AWAY, "NEED_MIB": ENDLESS})
    assert done.returncode != 0
    assert "the disk is full. Make room in" in done.stderr


def test_without_room_it_says_so_before_it_begins(path: Path, tmp_path: Path) -> None:
    _program(path / "python3", f'exec "{sys.executable}" "$@"')
    done = _make("lab", f"VENV={tmp_path / 'venv'}", path=path, variables={"NEED_MIB": ENDLESS})
    assert done.returncode != 0
    assert re.search(rf"{ENDLESS} MiB of disk are needed for \S+, and \d+ MiB are free\. .*VENV=", done.stderr)
    assert not (tmp_path / "venv").exists()


@pytest.mark.parametrize(("extras", "begins"), [("notebook", True), ("dev", False)])
def test_disk_space_is_required_by_the_size_of_the_environment(
    path: Path, tmp_path: Path, extras: str, begins: bool
) -> None:
    """2,000 MiB are enough for make lab, but not for make test, which installs torch."""
    (path / "df").unlink()
    _program(path / "df", "echo; echo /dev/sda 0 0 2048000")
    _program(path / "python3", 'case "$*" in *"-m venv"*) exit 1;; esac')
    command = [str(ROOT / ".ci" / "setup"), str(tmp_path / "venv"), extras]
    done = subprocess.run(command, env={"PATH": str(path)}, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ("making the environment" in done.stdout) is begins
    assert ("3000 MiB of disk are needed" in done.stderr) is not begins


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


def test_pip_is_given_the_constraints_and_its_settings_are_left_alone() -> None:
    setup = (ROOT / ".ci" / "setup").read_text(encoding="utf-8")
    assert "-c constraints.txt" in setup
    for text in (TEXT, setup):
        assert "--index-url" not in text
        assert "://" not in text


def test_a_target_says_what_it_does_and_how_long_it_took() -> None:
    # The environment of these tests is there: only the command itself is run.
    ready = [f"-o{sys.prefix}/.ready-{extras}" for extras in EXTRAS]
    done = _make(*ready, "test", f"VENV={sys.prefix}", "ARGS=--version", "JOBS=0")
    assert done.returncode == 0, done.stderr
    first, *_, last = done.stdout.splitlines()
    assert first == "voicelab: all tests but those in a browser"
    assert re.fullmatch(rf"{first}: \d+ s, \d+ s in all", last)


def test_what_make_test_leaves_out_is_a_step_of_its_own_in_ci() -> None:
    assert re.findall(r"--ignore=\S+", _make("-n", "test").stdout) == ["--ignore=tests/browser"]
    assert re.search(r"-m pytest .*tests/browser", _make("-n", "test-browser").stdout)
    assert "--ignore" not in _make("-n", "test", "ARGS=tests/browser/test_lanes.py").stdout
    steps = re.findall(r'^step "[^"]+" (.+?)(?: ARGS=.*)?$', CI, re.MULTILINE)
    assert {"env TZ=NPT-5:45 make test", "make test-browser", "make notebooks-browser"} <= set(steps)
    # On every change some notebooks, every night all.
    assert "- run: make notebooks-browser\n" in (ROOT / ".github/workflows/thorough.yml").read_text(encoding="utf-8")


def test_a_target_fails_with_what_it_runs(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    _program(tmp_path / "bin" / "python", "exit 3")
    ready = [f"-o{tmp_path}/.ready-{extras}" for extras in EXTRAS]
    done = _make(*ready, "test", f"VENV={tmp_path}")
    assert done.returncode != 0
    assert re.search(r"^voicelab: all tests but those in a browser: \d+ s", done.stdout, re.MULTILINE)


@pytest.mark.parametrize("target", [target for target in TARGETS if target != "help"])
def test_help_names_every_target(target: str) -> None:
    assert re.search(rf"^  make {target}\b", _make("help").stdout, re.MULTILINE)


@pytest.mark.parametrize("target", [target for target in TARGETS if target not in {"help", "clean"}])
def test_every_target_sets_itself_up(tmp_path: Path, target: str) -> None:
    done = _make("-n", target, f"VENV={tmp_path / 'venv'}")
    assert done.returncode == 0, done.stderr
    assert ".ci/setup" in done.stdout


def test_clean_removes_no_folder_that_only_the_environment_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VENV", "/somebody/elses")
    assert "/somebody/elses" not in _make("-n", "clean").stdout
