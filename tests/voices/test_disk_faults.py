"""A full disk, and damage between two runs."""

from __future__ import annotations

import resource
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.voices.conftest import SAMPLES, Make
from voicelab.errors import NotFound, StoreError
from voicelab.schema import VoiceCreate
from voicelab.voices.store import Sample, VoiceStore

REQUEST = VoiceCreate(title="Ada", voices=(b"a",), visibility="private")


@contextmanager
def _largest_file(size: int) -> Iterator[None]:
    """Let the kernel refuse to write beyond `size` bytes of any file, as a full disk would."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)


def _fill(store: VoiceStore) -> None:
    for number in range(50):
        voice = store.begin(REQUEST, (Sample(b"%d" % number * 35_000, "x" * 5000, ""),), "ann")
        store.train(voice)
        store.finish(voice, "w", b"s" * 5000)


@pytest.mark.parametrize("size", [0, 512, 5000, 20_000, 60_000])
def test_failed_writes_are_not_acknowledged(store: VoiceStore, make: Make, size: int) -> None:
    made = make()
    before = {path.name for path in (store.folder / "files").iterdir()}
    with _largest_file(size), pytest.raises(StoreError):
        _fill(store)
    assert store.get(made.id, "ann") == made
    assert store.samples(made.id, "ann") == SAMPLES
    after = store.begin(REQUEST, SAMPLES, "ann")
    assert after
    assert not any(path.name.startswith("unfinished") for path in (store.folder / "files").iterdir())
    if size < 35_000:
        assert {path.name for path in (store.folder / "files").iterdir()} == before


def test_damaged_journals_are_reported_or_rolled_back(store: VoiceStore, make: Make, tmp_path: Path) -> None:
    made = make()
    store.close()
    path, journal = store.folder / "voices.sqlite3", store.folder / "voices.sqlite3-journal"
    # What a process leaves that is killed in a transaction whose pages have been written already.
    db = sqlite3.connect(path, isolation_level=None)
    db.execute("PRAGMA cache_size = 1")
    db.execute("BEGIN IMMEDIATE")
    db.executemany("INSERT INTO samples VALUES (?, ?, 't', 't', 'a')", [(made.id, 10 + n) for n in range(400)])
    hot, kept = path.read_bytes(), journal.read_bytes()
    db.execute("ROLLBACK")
    db.close()
    assert len(kept) > 512
    for at in range(0, len(kept), max(1, len(kept) // 15)):
        for damaged in (kept[:at], kept[:at] + bytes((kept[at] ^ 0x41,)) + kept[at + 1 :]):
            copy = tmp_path / "copy"
            shutil.rmtree(copy, ignore_errors=True)
            shutil.copytree(store.folder, copy)
            (copy / path.name).write_bytes(hot)
            (copy / journal.name).write_bytes(damaged)
            with VoiceStore(copy) as again, suppress(StoreError, NotFound):  # told, in our words
                assert again.get(made.id, "ann") == made


@pytest.mark.thorough
@pytest.mark.timeout(700)
def test_acknowledged_voices_survive_two_hundred_kills(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.voices.killed_server", str(tmp_path), "200"]
    done = subprocess.run(
        command, capture_output=True, text=True, check=True, cwd=Path(__file__).parents[2], timeout=650
    )
    told = [line.split() for line in done.stdout.splitlines()]
    assert len(told) > 50
    db = sqlite3.connect(tmp_path / "voices" / "voices.sqlite3")
    owners: dict[str, str] = dict(db.execute("SELECT id, owner FROM voices"))
    db.close()
    with VoiceStore(tmp_path / "voices", stale_s=-1) as store:
        for voice, title in told:
            made = store.get(voice, owners[voice])
            assert (made.title, made.state) == (title, "trained")
            assert store.samples(voice, owners[voice])[0].audio[:4] == b"RIFF"
