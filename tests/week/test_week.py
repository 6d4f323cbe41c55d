"""What a bad week does to each kind of thing that is kept: kills, a full disk, two writers at once, flipped bytes."""

from __future__ import annotations

import random
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.week.kinds import KINDS

QUICK = [kind for kind in KINDS if kind != "compiled"]  # a minute each


def _start(*arguments: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.week.kinds", *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2])


def _said(process: subprocess.Popen[str]) -> list[str]:
    said, _ = process.communicate(timeout=3000)
    assert process.returncode == 0
    return said.split("\n")[:-1]


def _each(short: int, long: int, more: tuple[str, ...] = ()) -> list[object]:
    marks = [pytest.mark.thorough, pytest.mark.timeout(3600)]
    return [*((kind, short) for kind in QUICK), *(pytest.param(kind, long, marks=marks) for kind in (*QUICK, *more))]


@pytest.mark.parametrize(("kind", "kills"), _each(3, 100, ("compiled",)))
def test_what_was_acknowledged_survives_kills_and_nothing_half_is_shown(tmp_path: Path, kind: str, kills: int) -> None:
    said = 0
    for part in range(0, kills, 10):
        home = tmp_path / str(part)
        said += len(_said(_start("kill", kind, home, min(10, kills), part)))
    assert said > kills // 4 or kind == "compiled"


@pytest.mark.parametrize(
    "size", [0, 20_000, *(pytest.param(size, marks=pytest.mark.thorough) for size in (512, 40_000))]
)
@pytest.mark.parametrize("kind", QUICK)
def test_a_full_disk_is_named_and_what_was_acknowledged_stays(tmp_path: Path, kind: str, size: int) -> None:
    *said, raised = _said(_start("fill", kind, tmp_path, size))
    assert raised.split(":")[0] in {"StoreError", "ServiceUnavailable"}
    assert "disk" in raised  # in our words, or in SQLite's
    assert KINDS[kind].check(tmp_path, said) == len(said) + (kind == "keys")


@pytest.mark.parametrize(("kind", "writes"), _each(20, 400))
def test_two_processes_write_into_one_home(tmp_path: Path, kind: str, writes: int) -> None:
    writers = [_start("write", kind, tmp_path, name, writes) for name in ("a", "b")]
    said = [line for writer in writers for line in _said(writer)]
    assert len(set(said)) == 2 * writes
    assert KINDS[kind].check(tmp_path, said) == len(said) + (kind == "keys")


@pytest.mark.parametrize(("kind", "flips"), _each(12, 60))
def test_flipped_bytes_are_named_and_never_something_else(tmp_path: Path, kind: str, flips: int) -> None:
    home, chance = tmp_path / "home", random.Random(kind)
    said = _said(_start("write", kind, home, "a", 2))
    for path in sorted(one for one in home.rglob("*") if one.is_file() and one.stat().st_size):
        for at in chance.sample(range(path.stat().st_size), min(flips, path.stat().st_size)):
            copy = tmp_path / "copy"
            shutil.copytree(home, copy)
            data = bytearray(path.read_bytes())
            data[at] ^= 1 << chance.randrange(8)
            (copy / path.relative_to(home)).write_bytes(data)
            KINDS[kind].check(copy, said, damaged=True)
            shutil.rmtree(copy)
