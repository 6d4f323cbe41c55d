from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.kept import ask
from tests.tones import ToneBackend, there
from voicelab.call import Call
from voicelab.clip import Take, Timing
from voicelab.errors import StoreError
from voicelab.runs.folder import RUN_FILE, RunFolder, unseal
from voicelab.schema import ReferenceAudio
from voicelab.storage import DamagedFile, digest_of

KEY = "0123456789abcdef" * 4


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    return RunFolder(tmp_path / "run")


def take(audio: bytes = b"\0audio\n", repeat: int = 0, **fields: Any) -> Take:
    return Take(Call(ask(**fields)), audio, Timing(0.1, 0.2, ((0.1, len(audio)),)), "b", "f", repeat=repeat)


def _names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []


def test_new_run_is_empty(run: RunFolder) -> None:
    assert (KEY in run, run.record(KEY), run.lines(), run.present(), run.files(), run.backends()) == (
        False,
        None,
        (),
        [],
        {},
        (),
    )
    assert not run.folder.exists()


def test_take_is_restored_by_all_readers(run: RunFolder) -> None:
    other = RunFolder(run.folder)
    assert other.lines() == ()
    one = take()
    assert run.add(one, labels={"cell": 1, "text": "Grüß\nGott"})
    for reader in (run, other, RunFolder(run.folder)):
        record = there(reader.record(one.key))
        assert (record["labels"], reader.take_of(record)) == ({"cell": 1, "text": "Grüß\nGott"}, one)
        assert reader.take_of(record, audio=True).sound == one.audio
        assert (one.key in reader, reader.present(), KEY in reader) == (True, [one.key], False)
        assert [(line.kind, line.key, line.call_key) for line in reader.lines()] == [("take", one.key, one.key)]
    assert _names(run.folder) == [RUN_FILE, "takes"]
    assert _names(run.takes.folder) == [f"{digest_of(one.audio)}.pcm"]
    assert run.drop(lambda line: line.key == one.key) == 1
    for reader in (run, other):
        assert (reader.record(one.key), one.key in reader) == (None, False)
    assert _names(run.takes.folder) == []


def test_once_keeps_an_existing_take(run: RunFolder) -> None:
    one, two = take(b"one"), take(b"two")
    assert run.add(one, once=True)
    assert not RunFolder(run.folder).add(two, once=True)
    assert (run.record(one.key) or {})["take"]["digest"] == one.digest
    (run.takes.folder / f"{one.digest}.pcm").unlink()
    assert one.key not in run
    assert RunFolder(run.folder).add(two, once=True)
    assert (run.record(one.key) or {})["take"]["digest"] == two.digest


def test_shared_audio_is_removed_with_its_last_line(run: RunFolder) -> None:
    several = [take(repeat=repeat) for repeat in range(3)]
    for one in several:
        run.add(one)
    for one in several:
        assert _names(run.takes.folder) == [f"{one.digest}.pcm"]
        assert run.drop(lambda line, key=one.key: line.key == key) == 1  # type: ignore[misc]
    assert _names(run.takes.folder) == []


@pytest.mark.parametrize("key", ["", "a", "../" + "a" * 61, KEY.upper(), KEY + "\n", KEY + "/"])
def test_malformed_keys_are_rejected(run: RunFolder, key: str) -> None:
    with pytest.raises(StoreError, match="must have 64 hexadecimal digits"):
        run.record(key)


def test_sessions_are_written_on_change(run: RunFolder) -> None:
    one, two = ToneBackend().capabilities, ToneBackend(fingerprint="tones-2").capabilities
    for declared in ([one], [one], [two], [one, two], [ToneBackend(max_text=7).capabilities]):
        RunFolder(run.folder).begin(declared)
    run.lines()
    assert [len(session["backends"]) for session in run.sessions] == [1, 1, 1]
    assert [(each.fingerprint, each.max_text) for each in run.backends()] == [("tones-1", 7), ("tones-2", 20_000)]


def test_damaged_line_is_reported_once_and_replaced(run: RunFolder) -> None:
    one = take()
    run.add(one)
    run.path.write_bytes(run.path.read_bytes().replace(b'"total_s": 0.2', b'"total_s": 0.3'))
    for reader in (run, RunFolder(run.folder)):
        with pytest.raises(DamagedFile, match="is damaged"):
            reader.record(one.key)
        assert (reader.record(one.key), one.key in reader) == (None, False)
    assert run.add(one, once=True)
    assert one.key in RunFolder(run.folder)


@pytest.mark.parametrize("cut", [1, 40, 300])
def test_torn_line_is_removed_by_the_next_writer(run: RunFolder, cut: int) -> None:
    one, two = take(), take(repeat=1)
    run.add(one)
    run.add(two)
    run.path.write_bytes(run.path.read_bytes()[:-cut])
    again = RunFolder(run.folder)
    assert again.present() == [one.key]
    again.add(two)
    assert RunFolder(run.folder).present() == [one.key, two.key]
    assert all(unseal(line) for line in run.path.read_bytes().splitlines())


def test_waiting_writer_appends_to_a_replaced_file(run: RunFolder) -> None:
    program = """
import sys
from pathlib import Path
from tests.runs.test_folder import take
from voicelab.runs.folder import RunFolder
for repeat in range(int(sys.argv[2]), 60, 2):
    run = RunFolder(Path(sys.argv[1]))
    run.add(take(repeat=repeat))
    if repeat % 3 == 0:
        assert run.drop(lambda line: line.key == take(repeat=repeat).key) == 1
"""
    writers = [
        subprocess.Popen([sys.executable, "-c", program, str(run.folder), str(number)], cwd=Path.cwd())
        for number in (0, 1)
    ]
    assert [writer.wait(timeout=120) for writer in writers] == [0, 0]
    assert sorted(run.present()) == sorted(take(repeat=repeat).key for repeat in range(60) if repeat % 3)


def test_audio_of_a_take_that_is_being_added_is_not_dropped(run: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    run.add(take(repeat=0))
    dropping = threading.Thread(target=RunFolder(run.folder).drop, args=(lambda line: line.key == take(repeat=0).key,))
    put = run.takes.put

    def put_during_a_drop(*arguments: Any) -> str:
        name = put(*arguments)
        dropping.start()
        dropping.join(0.5)
        return name

    monkeypatch.setattr(run.takes, "put", put_during_a_drop)
    run.add(take(repeat=1))
    dropping.join()
    assert run.present() == [take(repeat=1).key]


def test_references_are_deduplicated_and_verified(run: RunFolder) -> None:
    references = (ReferenceAudio(audio=b"RIFF", text="a"), ReferenceAudio(audio=b"fLaC", text="b"))
    for repeat in range(2):
        run.add(take(repeat=repeat, references=references))
    assert _names(run.references.folder) == sorted([digest_of(b"RIFF"), digest_of(b"fLaC")])
    assert run.reference(digest_of(b"RIFF")) == b"RIFF"
    (run.references.folder / digest_of(b"fLaC")).write_bytes(b"fLaD")
    with pytest.raises(DamagedFile):
        run.reference(digest_of(b"fLaC"))
    with pytest.raises(StoreError, match="missing"):
        run.reference(digest_of(b"fLaC"))
    for name in ("../x", KEY):
        with pytest.raises(StoreError):
            run.reference(name)
