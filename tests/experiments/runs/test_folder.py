from __future__ import annotations

import os
import random
import resource
import subprocess
import sys
import time
from pathlib import Path

import pytest
from voicelab.experiments.entries import Entries

from tests.experiments.conftest import ask
from voicelab.errors import StoreError
from voicelab.schema import ReferenceAudio
from voicelab.storage import DamagedFile, digest_of

KEY = "0123456789abcdef" * 4
OTHER = "f" * 64


@pytest.fixture
def entries(tmp_path: Path) -> Entries:
    return Entries(tmp_path / "entries")


def _path(entries: Entries) -> Path:
    return entries.folder / f"{KEY}.entry"


def _names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def _set_aside(entries: Entries) -> list[str]:
    return _names(entries.damaged) if entries.damaged.is_dir() else []


def test_nothing_is_there_before_the_first_put(entries: Entries) -> None:
    assert (KEY in entries, entries.get(KEY), entries.record(KEY), list(entries), entries.files()) == (
        False,
        None,
        None,
        [],
        [],
    )
    assert not entries.remove(KEY)
    assert not entries.folder.exists()


def test_an_entry_comes_back(entries: Entries) -> None:
    assert entries.put(KEY, {"text": "Grüß\nGott", "number": 1.5}, b"\0audio\n")
    record, audio = entries.get(KEY) or ({}, b"")
    assert audio == b"\0audio\n"
    assert record == {"text": "Grüß\nGott", "number": 1.5, "key": KEY, "digest": digest_of(b"\0audio\n")}
    assert entries.record(KEY) == record
    assert (KEY in entries, list(entries), OTHER in entries) == (True, [KEY], False)
    assert _names(entries.folder) == [f"{KEY}.entry"]
    assert entries.remove(KEY)
    assert entries.get(KEY) is None


def test_a_long_object_is_read_whole(entries: Entries) -> None:
    entries.put(KEY, {"arrivals": list(range(20_000))}, b"audio")
    record, audio = entries.get(KEY) or ({}, b"")
    assert record["arrivals"] == list(range(20_000))
    assert audio == b"audio"
    assert entries.record(KEY) == record


def test_of_two_writers_the_first_is_kept_unless_it_is_replaced(entries: Entries) -> None:
    assert entries.put(KEY, {}, b"one")
    assert not entries.put(KEY, {}, b"two")
    assert (entries.get(KEY) or ({}, b""))[1] == b"one"
    assert entries.put(KEY, {}, b"three", replace=True)
    assert (entries.get(KEY) or ({}, b""))[1] == b"three"


@pytest.mark.parametrize("key", ["", "a", "../" + "a" * 61, KEY.upper(), KEY + "\n", KEY + "/"])
def test_what_is_no_key_names_no_file(entries: Entries, key: str) -> None:
    with pytest.raises(StoreError, match="no key"):
        entries.put(key, {}, b"")


def _every_flip(entries: Entries, places: range | list[int]) -> None:
    path = _path(entries)
    whole = path.read_bytes()
    for place in places:
        bit = 1 << place % 8
        path.write_bytes(whole[:place] + bytes([whole[place] ^ bit]) + whole[place + 1 :])
        with pytest.raises(StoreError):
            entries.get(KEY)
        if path.exists():  # the version, which may be that of a newer voicelab
            assert path.read_bytes().split()[1] != b"1"
            path.unlink()
    assert len(_set_aside(entries)) >= len(places) - 1
    path.write_bytes(whole)
    assert entries.get(KEY) is not None


def test_a_flipped_bit_anywhere_is_noticed_and_set_aside(entries: Entries) -> None:
    entries.put(KEY, {"text": "Hello"}, random.Random(1).randbytes(40))
    size = _path(entries).stat().st_size
    _every_flip(entries, list(range(0, size, 3)))


@pytest.mark.thorough
def test_every_flipped_byte_is_noticed(entries: Entries) -> None:
    entries.put(KEY, {"text": "Hello"}, random.Random(1).randbytes(4000))
    _every_flip(entries, range(_path(entries).stat().st_size))


def test_a_cut_or_longer_file_is_noticed(entries: Entries) -> None:
    entries.put(KEY, {"text": "Hello"}, b"audio" * 10)
    whole = _path(entries).read_bytes()
    for data in (b"", whole[:10], whole[:80], whole[:150], whole[:-1], whole + b"x"):
        for read in (entries.get, entries.record):
            _path(entries).write_bytes(data)
            with pytest.raises(DamagedFile, match="set aside as"):
                read(KEY)
            assert entries.get(KEY) is None


def test_the_entry_of_another_key_is_noticed(entries: Entries) -> None:
    entries.put(OTHER, {}, b"audio")
    (entries.folder / f"{OTHER}.entry").rename(_path(entries))
    with pytest.raises(DamagedFile, match="another key"):
        entries.get(KEY)


def test_an_entry_of_a_newer_version_says_so_and_stays(entries: Entries) -> None:
    entries.put(KEY, {}, b"audio")
    _path(entries).write_bytes(_path(entries).read_bytes().replace(b"voicelab-entry 1 ", b"voicelab-entry 2 ", 1))
    with pytest.raises(StoreError, match="newer voicelab"):
        entries.get(KEY)
    assert _path(entries).exists()


def test_references_are_kept_once_and_checked(entries: Entries) -> None:
    request = ask(references=(ReferenceAudio(audio=b"RIFF", text="a"), ReferenceAudio(audio=b"fLaC", text="b")))
    entries.put_references(request)
    entries.put_references(request)
    assert _names(entries.references) == sorted([digest_of(b"RIFF"), digest_of(b"fLaC")])
    assert entries.reference(digest_of(b"RIFF")) == b"RIFF"
    (entries.references / digest_of(b"fLaC")).write_bytes(b"fLaD")
    with pytest.raises(DamagedFile):
        entries.reference(digest_of(b"fLaC"))
    with pytest.raises(StoreError, match="missing"):
        entries.reference(digest_of(b"fLaC"))
    for name in ("../x", OTHER):
        with pytest.raises(StoreError):
            entries.reference(name)


def test_what_killed_writers_left_is_removed_when_it_is_old(entries: Entries) -> None:
    entries.put(KEY, {}, b"audio")
    old, young = entries.folder / f"unfinished-{1:016x}", entries.folder / f"unfinished-{2:016x}"
    for path in (old, young):
        path.write_bytes(b"half")
    os.utime(old, (time.time() - 7200,) * 2)
    entries.tidy()
    assert _names(entries.folder) == [f"{KEY}.entry", f"unfinished-{2:016x}"]


FULL = """
import resource, sys
from voicelab.errors import StoreError
from voicelab.experiments.entries import Entries
entries = Entries(sys.argv[1])
entries.put("a" * 64, {}, b"small")
resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, resource.RLIM_INFINITY))
try:
    entries.put("b" * 64, {}, bytes(100_000))
except StoreError as error:
    print(error)
"""


def test_a_full_disk_is_a_named_error_and_leaves_nothing_half(entries: Entries) -> None:
    assert resource.getrlimit(resource.RLIMIT_FSIZE)
    command = [sys.executable, "-c", FULL, str(entries.folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert "no room left on the disk" in done.stdout
    assert _names(entries.folder) == ["a" * 64 + ".entry"]
    assert (entries.get("a" * 64) or ({}, b""))[1] == b"small"


def test_a_folder_that_cannot_be_is_a_named_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StoreError, match="file"):
        Entries(tmp_path / "file" / "entries").put(KEY, {}, b"")
