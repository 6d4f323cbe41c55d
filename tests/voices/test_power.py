"""Loss of power while voices are made: every prefix of what was written, synced and renamed, replayed."""

from __future__ import annotations

import os
import random
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from tests.voices.disk import Disk, Step, recorded
from voicelab.errors import NotFound
from voicelab.voices.store import VoiceStore

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="the recorder is preloaded, which is Linux's way"),
    pytest.mark.skipif(
        shutil.which("cc") is None, reason="the recorder needs a C compiler (on Debian: apt-get install gcc)"
    ),
]


@pytest.fixture(scope="module")
def steps(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Step]]:
    here, folder = Path(__file__).parent, tmp_path_factory.mktemp("power").resolve()
    library, root, log = folder / "recorder.so", folder / "root", folder / "log"
    root.mkdir()
    subprocess.run(
        ["cc", "-shared", "-fPIC", "-O1", "-w", "-o", library, here / "recorder.c", "-ldl"], check=True, timeout=120
    )
    environment = {**os.environ, "LD_PRELOAD": str(library), "RECORD_ROOT": str(root), "RECORD_LOG": str(log)}
    program = [sys.executable, str(here / "recorded.py"), str(root)]
    subprocess.run(program, check=True, timeout=120, env=environment, cwd=here.parents[1])
    return root, recorded(log)


def _check(folder: Path, acknowledged: dict[str, str]) -> None:
    with VoiceStore(folder / "home" / "voices", stale_s=-1) as store:
        for title, voice in acknowledged.items():
            assert store.get(voice, "ann").title == title
            assert store.embedding(voice, "ann", "weights") == title.encode()
            assert [one.audio for one in store.samples(voice, "ann")] == [title.encode() * 3000, b"shared" * 1000]
            assert store.cover(voice, "ann") == title.encode() * 50
        # Nothing half-made is seen, and nothing is left of it once the store was opened.
        with pytest.raises(NotFound):
            store.get("0" * 32, "ann")
        path = folder / "home" / "voices" / "voices.sqlite3"
        if not path.exists():
            return
        for voice in _voices(path):
            made = store.get(voice, "ann")
            assert made.state == "trained"
            assert [len(one.audio) for one in store.samples(voice, "ann")] == [len(made.title) * 3000, 6000]


def _voices(path: Path) -> list[str]:
    db = sqlite3.connect(path)
    try:
        return [voice for (voice,) in db.execute("SELECT id FROM voices")]
    finally:
        db.close()


def _replay(root: Path, steps: list[Step], chosen: range, tmp_path: Path) -> int:
    disk, chance, acknowledged, states = Disk(root), random.Random(1), dict[str, str](), 0
    for number, step in enumerate(steps):
        if step.path.name == "told":
            if step.what == "W":
                title, voice = step.data.decode().split()
                acknowledged[title] = voice
            continue
        disk.do(step)
        if number not in chosen:
            continue
        for write in disk.after_power_loss(chance):
            folder = tmp_path / f"{number}-{states}"
            write(folder)
            try:
                _check(folder, acknowledged)
            except Exception as error:
                error.add_note(f"after step {number} of {len(steps)}: {step.what} {step.path.name}, in {folder}")
                raise
            shutil.rmtree(folder)
            states += 1
    assert len(acknowledged) == 2
    return states


@pytest.mark.thorough
def test_power_loss_at_any_write_keeps_acknowledged_voices(steps: tuple[Path, list[Step]], tmp_path: Path) -> None:
    root, done = steps
    assert _replay(root, done, range(len(done)), tmp_path) >= 500


def test_power_loss_at_sampled_writes_keeps_acknowledged_voices(steps: tuple[Path, list[Step]], tmp_path: Path) -> None:
    root, done = steps
    assert {step.what for step in done} >= set("CWSRUM")  # the recorder sees files of both Python and SQLite
    assert any(step.path.name == "voices.sqlite3-journal" and step.what == "U" for step in done)
    assert _replay(root, done, range(len(done) % 9, len(done), 9), tmp_path) > 50
