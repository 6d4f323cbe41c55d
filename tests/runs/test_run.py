from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.kept import ask, spoil
from tests.tones import ToneBackend
from voicelab.backends.runs import ReplayBackend
from voicelab.call import Call
from voicelab.clip import Clip, Take
from voicelab.errors import ServiceUnavailable, StoreError
from voicelab.runs.cache import Cache
from voicelab.runs.failures import Failed
from voicelab.runs.folder import RUN_FILE
from voicelab.runs.run import Journal, Run, read_run
from voicelab.schema import ProsodyControl, ReferenceAudio

REFERENCE = ReferenceAudio(audio=b"RIFF" * 100, text="Hi")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "run"


def _takes(tones: ToneBackend, count: int = 3) -> list[Take]:
    return [tones.synthesize(Call(ask(f"Take {number}"), seed=number)).take() for number in range(count)]


def _write(folder: Path, tones: ToneBackend, takes: list[Take]) -> Run:
    with Journal(folder, [tones.capabilities]) as journal:
        for take in takes:
            journal.add(take)
    return read_run(folder)


def _failed(tones: ToneBackend, text: str = "Failed", model: str = "s1", seed: int = 5) -> Failed:
    error = ServiceUnavailable("overloaded", status=503, request_id="r1")
    return Failed.of(Call(ask(text), model, seed), tones.capabilities, error)


def test_all_takes_come_back(folder: Path, tones: ToneBackend) -> None:
    takes = _takes(tones)
    takes.append(
        tones.synthesize(Call(ask(references=(REFERENCE,), prosody=ProsodyControl(volume=3)), seed=None)).take(repeat=2)
    )
    with Journal(folder, [tones.capabilities], about={"axes": {"text": 3}}) as journal:
        for number, take in enumerate(takes):
            assert journal.add(take, cell=number) == take
        journal.fail(_failed(tones))
    run = read_run(folder)
    assert list(run.takes) == takes
    assert [take.audio for take in run.takes] == [take.audio for take in takes]
    assert [take.clip() for take in run.takes] == [take.clip() for take in takes]
    assert run.labels == tuple({"cell": number} for number in range(4))
    (failed,) = run.failures
    assert (failed.call, failed.failure, failed.at) == (_failed(tones).call, _failed(tones).failure, "call")
    assert str(failed.failure.error()) == "overloaded"
    assert run.backends == (tones.capabilities,)
    assert (run.about, run.notes, len(run.takes)) == ({"axes": {"text": 3}}, (), 4)
    assert run.sessions[0]["libraries"]["numpy"]
    assert run.sessions[0]["hardware"]["cores"] >= 1
    assert sorted(path.name for path in folder.iterdir()) == ["references", "run.jsonl", "takes"]
    assert list(read_run(folder / RUN_FILE).takes) == takes


def test_a_run_is_for_people_too(folder: Path, tones: ToneBackend) -> None:
    take = tones.synthesize(Call(ask("Grüß Gott", format="wav"), seed=3)).take()
    _write(folder, tones, [take])
    text = (folder / RUN_FILE).read_text(encoding="utf-8")
    header, line = map(json.loads, text.splitlines())
    assert (header["run"], header["session"]["backends"][0]["seed"]) == (1, "exact")
    assert (line["take"]["request"]["text"], line["take"]["seed"]) == ("Grüß Gott", 3)
    assert "Grüß Gott" in text
    assert Clip.load(folder / "takes" / line["sound"]) == take.clip()


def test_a_run_can_be_moved(folder: Path, tones: ToneBackend, tmp_path: Path) -> None:
    takes = _takes(tones)
    _write(folder, tones, takes)
    folder.rename(tmp_path / "elsewhere")
    run = read_run(tmp_path / "elsewhere")
    assert [take.audio for take in run.takes] == [take.audio for take in takes]
    shutil.rmtree(tmp_path / "elsewhere" / "takes")
    with pytest.raises(StoreError, match="missing file"):
        _ = run.takes[0].audio


def test_a_run_goes_on(folder: Path, tones: ToneBackend) -> None:
    takes = _takes(tones, 4)
    _write(folder, tones, takes[:2])
    before = (folder / RUN_FILE).read_bytes()
    with Journal(folder, [tones.capabilities], about={"other": 1}) as journal:
        for take in takes:
            journal.add(take)
    assert (folder / RUN_FILE).read_bytes().startswith(before)
    assert list(read_run(folder).takes) == takes
    assert len((folder / RUN_FILE).read_bytes().splitlines()) == 5  # nothing twice, and no new session
    other = ToneBackend(fingerprint="tones-2")
    with Journal(folder, [other.capabilities]):
        pass
    assert [each.fingerprint for each in read_run(folder).backends] == ["tones-1", "tones-2"]
    assert len(read_run(folder).sessions) == 2


def test_takes_whose_audio_was_lost_are_done_again(folder: Path, tones: ToneBackend) -> None:
    takes = _takes(tones)
    _write(folder, tones, takes)
    cache = Cache(folder, max_bytes=None)
    cache.remove(takes[0].key)
    spoil(cache.run, takes[1].key)
    assert [cache.look(take.key)[0] for take in takes] == [None, None, takes[2]]
    with Journal(folder, [tones.capabilities]) as journal:
        for take in takes:
            journal.add(take)
    assert {take.key: take.audio for take in read_run(folder).takes} == {take.key: take.audio for take in takes}


def test_a_failure_that_was_had_later_is_none(folder: Path, tones: ToneBackend) -> None:
    failed = _failed(tones, "Take 0")
    with Journal(folder, [tones.capabilities]) as journal:
        journal.fail(_failed(tones, "Take 0", "s2-pro", 0))
        journal.fail(failed)
        journal.add(_takes(tones, 1)[0])
    assert [item.call.seed for item in read_run(folder).failures] == [5]


def test_a_torn_header_is_begun_anew(folder: Path, tones: ToneBackend) -> None:
    _write(folder, tones, [])
    whole = (folder / RUN_FILE).read_bytes()
    for size in (0, 1, 5, 100, len(whole) - 1):
        (folder / RUN_FILE).write_bytes(whole[:size])
        assert len(_write(folder, tones, _takes(tones, 1)).takes) == 1
        assert read_run(folder).notes == ()
    (folder / RUN_FILE).write_bytes(whole[:50])
    with pytest.raises(StoreError, match="is not a run"):
        read_run(folder)


@pytest.mark.parametrize("data", [b"hello", b"hello\nworld\n", b"{}\n", b"[1]\n", b'{"run": 1}\n', b"\xff\n", b"\n"])
def test_what_is_no_run_is_refused_and_left_alone(folder: Path, tones: ToneBackend, data: bytes) -> None:
    folder.mkdir()
    (folder / RUN_FILE).write_bytes(data)
    with pytest.raises(StoreError, match="is not a run"):
        read_run(folder)
    with pytest.raises(StoreError, match="is not a run"):
        Journal(folder, [tones.capabilities])
    assert (folder / RUN_FILE).read_bytes() == data


def test_a_run_of_a_newer_version_says_so(folder: Path, tones: ToneBackend) -> None:
    _write(folder, tones, _takes(tones))
    data = (folder / RUN_FILE).read_bytes().replace(b'{"run": 1', b'{"run": 2', 1)
    (folder / RUN_FILE).write_bytes(data)
    with pytest.raises(StoreError, match="newer voicelab"):
        read_run(folder)
    with pytest.raises(StoreError, match="newer voicelab"):
        Journal(folder, [tones.capabilities])
    assert (folder / RUN_FILE).read_bytes() == data


def test_a_folder_without_a_run(folder: Path, tones: ToneBackend) -> None:
    with pytest.raises(StoreError, match=r"no run: run\.jsonl is missing"):
        read_run(folder)
    folder.write_text("# A page")
    with pytest.raises(StoreError, match="is a file; a run is a folder"):
        read_run(folder)
    folder.unlink()
    folder.mkdir()
    (folder / "backend.json").write_bytes(b"{}")
    for use in (read_run, ReplayBackend, lambda folder: Journal(folder, [tones.capabilities])):
        with pytest.raises(StoreError, match="older format"):
            use(folder)


def test_a_changed_line_is_left_out_and_reported(folder: Path, tones: ToneBackend) -> None:
    takes = _takes(tones)
    _write(folder, tones, takes)
    lines = (folder / RUN_FILE).read_bytes().splitlines(keepends=True)
    changes = {
        "its temperature": lines[2].replace(b'"temperature": 0.7', b'"temperature": 0.6'),
        "its notes": lines[2].replace(b'"notes": []', b'"notes": [0]'),
        "its seed": lines[2].replace(b'"seed": 1', b'"seed": 9'),
        "no JSON": lines[2][:-5] + b"\n",
        "no object": b"17\n",
        "a field that is none": lines[2].replace(b'"top_p"', b'"top_q"'),
        "another kind": lines[2].replace(b'"line": "take"', b'"line": "lake"'),
    }
    for name, line in changes.items():
        assert line != lines[2], name
        (folder / RUN_FILE).write_bytes(lines[0] + lines[1] + line + lines[3])
        found = read_run(folder)
        assert list(found.takes) == [takes[0], takes[2]], name
        assert found.notes == ("Line 3 of run.jsonl is damaged and is excluded.",), name


def test_missing_reference_audio_is_a_named_error(folder: Path, tones: ToneBackend) -> None:
    _write(folder, tones, [tones.synthesize(Call(ask(references=(REFERENCE,)), seed=1)).take()])
    for file in (folder / "references").iterdir():
        file.unlink()
    with pytest.raises(StoreError, match=r"missing file: .*references"):
        read_run(folder)


def test_two_cannot_carry_out_one_plan_at_once(folder: Path, tones: ToneBackend) -> None:
    with Journal(folder, [tones.capabilities]), pytest.raises(StoreError, match="another process"):
        Journal(folder, [tones.capabilities])
    Journal(folder, [tones.capabilities]).close()
