from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from tests.experiments.conftest import ask
from tests.tones import ToneBackend
from voicelab.call import Call
from voicelab.clip import Take
from voicelab.errors import RequestInvalid, ServiceUnavailable, StoreError
from voicelab.experiments.runs.cache import Cache
from voicelab.experiments.runs.failures import Failure
from voicelab.experiments.runs.run import Failed, Journal, Manifest, load
from voicelab.schema import ProsodyControl, ReferenceAudio

REFERENCE = ReferenceAudio(audio=b"RIFF" * 100, text="Hi")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "run.jsonl"


def _takes(tones: ToneBackend, count: int = 3) -> list[Take]:
    return [tones.synthesize(Call(ask(f"Take {number}"), seed=number)).take() for number in range(count)]


def _write(path: Path, tones: ToneBackend, takes: list[Take]) -> Manifest:
    with Journal(path, [tones.capabilities]) as journal:
        for take in takes:
            journal.add(take)
    return load(path)


def _failed(tones: ToneBackend, text: str = "Failed") -> Failed:
    failure = Failure.of(ServiceUnavailable("overloaded", status=503, request_id="r1"))
    return Failed(Call(ask(text), "s1", 5), tones.capabilities.name, tones.capabilities.fingerprint, 0, failure)


def test_all_takes_come_back(path: Path, tones: ToneBackend) -> None:
    takes = _takes(tones)
    takes.append(
        tones.synthesize(Call(ask(references=(REFERENCE,), prosody=ProsodyControl(volume=3)), seed=None)).take(repeat=2)
    )
    with Journal(path, [tones.capabilities], about={"axes": {"text": 3}}) as journal:
        for number, take in enumerate(takes):
            assert journal.add(take, cell=number) == take
        journal.fail(_failed(tones))
    manifest = load(path)
    assert list(manifest) == takes
    assert [take.audio for take in manifest] == [take.audio for take in takes]
    assert [take.clip() for take in manifest] == [take.clip() for take in takes]
    assert manifest.labels == tuple({"cell": number} for number in range(4))
    assert manifest.failures == (_with_time(_failed(tones), manifest.failures[0]),)
    assert str(manifest.failures[0].failure.error()) == "overloaded"
    assert manifest.backends == (tones.capabilities,)
    assert (manifest.about, manifest.notes, len(manifest)) == ({"axes": {"text": 3}}, (), 4)
    assert manifest.sessions[0]["libraries"]["numpy"]
    assert manifest.sessions[0]["hardware"]["cores"] >= 1
    assert repr(manifest) == f"Manifest({str(path)!r}, 4 takes, 1 failed)"
    assert (path.parent / "run.takes").is_dir()


def _with_time(failed: Failed, like: Failed) -> Failed:
    return replace(failed, created=like.created)


def test_a_manifest_is_for_people_too(path: Path, tones: ToneBackend) -> None:
    _write(path, tones, [tones.synthesize(Call(ask("Grüß Gott"), seed=3)).take()])
    header, take = map(json.loads, path.read_text(encoding="utf-8").splitlines())
    assert (header["manifest"], header["takes"]) == (1, "run.takes")
    assert header["session"]["backends"][0]["seed"] == "exact"
    assert (take["take"]["request"]["text"], take["take"]["seed"]) == ("Grüß Gott", 3)
    assert "Grüß Gott" in path.read_text(encoding="utf-8")


def test_a_run_can_be_moved_with_its_folder(path: Path, tones: ToneBackend, tmp_path: Path) -> None:
    takes = _takes(tones)
    _write(path, tones, takes)
    (tmp_path / "elsewhere").mkdir()
    for item in (path, path.parent / "run.takes"):
        item.rename(tmp_path / "elsewhere" / item.name)
    assert [take.audio for take in load(tmp_path / "elsewhere" / "run.jsonl")] == [take.audio for take in takes]
    (tmp_path / "elsewhere" / "run.takes").rename(tmp_path / "audio")
    moved = load(tmp_path / "elsewhere" / "run.jsonl", folder=tmp_path / "audio")
    assert [take.audio for take in moved] == [take.audio for take in takes]
    with pytest.raises(StoreError, match="no longer"):
        _ = load(tmp_path / "elsewhere" / "run.jsonl").takes[0].audio


def test_a_run_may_keep_its_takes_in_a_cache_of_others(path: Path, tones: ToneBackend, tmp_path: Path) -> None:
    cache = Cache(tmp_path / "a" / "cache")
    take = cache.get_or_render(tones, Call(ask(), seed=3))
    with Journal(path, [tones.capabilities], cache=cache) as journal:
        journal.add(take)
    assert load(path).takes[0].audio == take.audio
    assert json.loads(path.read_bytes().split(b"\n")[0])["takes"] == "a/cache"
    assert not (path.parent / "run.takes").exists()
    with Journal(path, [tones.capabilities], cache=Cache(tmp_path / "b")) as journal:
        assert journal.cache.folder.resolve() == cache.folder.resolve()


def test_a_run_goes_on(path: Path, tones: ToneBackend) -> None:
    takes = _takes(tones, 4)
    _write(path, tones, takes[:2])
    before = path.read_bytes()
    with Journal(path, [tones.capabilities], about={"other": 1}) as journal:
        assert journal.manifest.takes == tuple(takes[:2])
        assert journal.keys == {take.key for take in takes[:2]}
        for take in takes:
            journal.add(take)
        assert journal.keys == {take.key for take in takes}
    assert path.read_bytes().startswith(before)
    assert list(load(path)) == takes
    assert len(path.read_bytes().splitlines()) == 5  # nothing twice, and no new session
    other = ToneBackend(fingerprint="tones-2")
    with Journal(path, [other.capabilities]):
        pass
    assert [each.fingerprint for each in load(path).backends] == ["tones-1", "tones-2"]
    assert len(load(path).sessions) == 2


def test_takes_whose_audio_was_lost_are_done_again(path: Path, tones: ToneBackend) -> None:
    takes = _takes(tones)
    manifest = _write(path, tones, takes)
    manifest.cache.remove(takes[0].key)
    changed = manifest.folder / f"{takes[1].key}.entry"
    changed.write_bytes(changed.read_bytes()[:-1] + b"?")
    with Journal(path, [tones.capabilities]) as journal:
        assert journal.keys == {takes[2].key}
        for take in takes:
            journal.add(take)
    assert [take.audio for take in load(path)] == [take.audio for take in takes]


def test_a_failure_that_was_had_later_is_none(path: Path, tones: ToneBackend) -> None:
    failed = _failed(tones, "Take 0")
    with Journal(path, [tones.capabilities]) as journal:
        journal.fail(replace(failed, call=failed.call.replace(model="s2-pro", seed=0)))
        journal.fail(failed)
        journal.add(_takes(tones, 1)[0])
    assert [item.call.seed for item in load(path).failures] == [5]


@pytest.mark.parametrize("cut", [1, 30, 200, 400])
def test_a_torn_last_line_is_reported_and_the_run_goes_on(path: Path, tones: ToneBackend, cut: int) -> None:
    takes = _takes(tones)
    _write(path, tones, takes)
    path.write_bytes(path.read_bytes()[:-cut])
    torn = load(path)
    assert list(torn) == takes[:2]
    assert "torn off" in torn.notes[0]
    with Journal(path, [tones.capabilities]) as journal:
        journal.add(takes[2])
    assert list(load(path)) == takes
    assert load(path).notes == ()


def test_a_torn_header_is_begun_anew(path: Path, tones: ToneBackend) -> None:
    _write(path, tones, [])
    whole = path.read_bytes()
    for size in (0, 1, 5, 100, len(whole) - 1):
        path.write_bytes(whole[:size])
        assert len(_write(path, tones, _takes(tones, 1))) == 1
        assert load(path).notes == ()
    path.write_bytes(whole[:50])
    with pytest.raises(StoreError, match="no manifest"):
        load(path)


@pytest.mark.parametrize(
    "data", [b"hello", b"hello\nworld\n", b"{}\n", b"[1]\n", b'{"manifest": 1}\n', b"\xff\n", b"\n"]
)
def test_what_is_no_manifest_is_refused_and_left_alone(path: Path, tones: ToneBackend, data: bytes) -> None:
    path.write_bytes(data)
    with pytest.raises(StoreError, match="no manifest"):
        load(path)
    with pytest.raises(StoreError, match="no manifest"):
        Journal(path, [tones.capabilities])
    assert path.read_bytes() == data


def test_a_manifest_of_a_newer_version_says_so(path: Path, tones: ToneBackend) -> None:
    _write(path, tones, _takes(tones))
    data = path.read_bytes().replace(b'{"manifest": 1', b'{"manifest": 2', 1)
    path.write_bytes(data)
    with pytest.raises(StoreError, match="newer voicelab"):
        load(path)
    with pytest.raises(StoreError, match="newer voicelab"):
        Journal(path, [tones.capabilities])
    assert path.read_bytes() == data


def test_a_file_that_is_not_there(path: Path) -> None:
    with pytest.raises(StoreError, match=r"run\.jsonl"):
        load(path)


def test_a_changed_line_is_left_out_and_reported(path: Path, tones: ToneBackend) -> None:
    takes = _takes(tones)
    _write(path, tones, takes)
    lines = path.read_bytes().splitlines(keepends=True)
    changes = {
        "its temperature": lines[2].replace(b'"temperature": 0.7', b'"temperature": 0.6'),
        "its seed": lines[2].replace(b'"seed": 1', b'"seed": 9'),
        "no JSON": lines[2][:-5] + b"\n",
        "no object": b"17\n",
        "a field that is none": lines[2].replace(b'"top_p"', b'"top_q"'),
        "another kind": lines[2].replace(b'"line": "take"', b'"line": "lake"'),
    }
    for name, line in changes.items():
        assert line != lines[2], name
        path.write_bytes(lines[0] + lines[1] + line + lines[3])
        found = load(path)
        assert list(found) == [takes[0], takes[2]], name
        assert found.notes == ("Line 3 of run.jsonl is damaged; it is left out.",), name


def test_a_flipped_bit_never_changes_a_take_unnoticed(path: Path, tones: ToneBackend) -> None:
    take = tones.synthesize(Call(ask("Hi"), seed=3)).take()
    _write(path, tones, [take])
    whole = path.read_bytes()
    rng = random.Random(3)
    start = whole.index(b"\n") + 1
    for _ in range(150):
        place = rng.randrange(start, len(whole))
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1 << rng.randrange(8)]) + whole[place + 1 :])
        for found in load(path):
            assert (found.key, found.request, found.seed, found.model) == (take.key, take.request, 3, "s2-pro")


def test_missing_reference_audio_is_a_named_error(path: Path, tones: ToneBackend) -> None:
    _write(path, tones, [tones.synthesize(Call(ask(references=(REFERENCE,)), seed=1)).take()])
    for file in (path.parent / "run.takes" / "references").iterdir():
        file.unlink()
    with pytest.raises(StoreError, match=r"missing: .*references"):
        load(path)


def test_two_cannot_write_one_manifest_at_once(path: Path, tones: ToneBackend) -> None:
    with Journal(path, [tones.capabilities]), pytest.raises(StoreError, match="another process"):
        Journal(path, [tones.capabilities])
    Journal(path, [tones.capabilities]).close()


FULL = """
import resource, sys
from tests.tones import ToneBackend
from voicelab.errors import StoreError
from voicelab.experiments.runs.cache import Cache
from voicelab.experiments.runs.run import Journal
from voicelab.call import Call
from voicelab.schema import TTSRequest
tones = ToneBackend()
takes = [tones.synthesize(Call(TTSRequest(text="a", format="pcm", sample_rate=8000), seed=n)).take() for n in range(100)]
journal = Journal(sys.argv[1], [tones.capabilities])
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, resource.RLIM_INFINITY))
for number, take in enumerate(takes):
    try:
        journal.add(take)
    except StoreError as error:
        print(number, error)
        break
"""


def test_a_full_disk_keeps_all_that_was_finished(path: Path, tones: ToneBackend) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", FULL, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True, env=environment)
    number, _, message = done.stdout.partition(" ")
    assert "no room left on the disk" in message
    manifest = load(path)
    assert len(manifest) == int(number) > 5
    assert manifest.notes == ()
    with Journal(path, [tones.capabilities]) as journal:
        assert len(journal.keys) == int(number)


KILLED = """
import itertools, os, random, signal, sys, time
from pathlib import Path
from tests.tones import ToneBackend
from voicelab.experiments.runs.run import Journal
from voicelab.call import Call
from voicelab.schema import TTSRequest
tones = ToneBackend()
rng = random.Random(int(sys.argv[3]))
request = TTSRequest(text="a", format="pcm", sample_rate=8000)
for name in range(int(sys.argv[2])):
    heard, tell = os.pipe()
    child = os.fork()
    if child == 0:
        with Journal(sys.argv[1], [tones.capabilities]) as journal:
            done = {take.repeat for take in journal.manifest}
            for repeat in itertools.count():
                if repeat not in done:
                    journal.add(tones.synthesize(Call(request, seed=1)).take(repeat))
                    os.write(1, f"{repeat}\\n".encode())
                    os.write(tell, b".")
    if rng.random() < 0.5:
        os.read(heard, 1)
    for end in (heard, tell):
        os.close(end)
    time.sleep(rng.uniform(0.0, 0.1))
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
"""


def _kill(path: Path, rounds: int, seed: int) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", KILLED, str(path), str(rounds), str(seed)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=250, check=True, env=environment)
    said = [int(line) for line in done.stdout.splitlines()]
    found = [take.repeat for take in load(path)]
    assert len(said) == len(set(said)), "a take that was acknowledged was done again"
    assert len(found) == len(set(found))
    assert set(said) <= set(found)
    assert found == sorted(found)
    assert len(said) >= rounds / 4
    for take in load(path):
        assert take.clip().duration > 0


def test_a_run_killed_at_any_time_goes_on_with_nothing_lost_or_done_twice(path: Path) -> None:
    _kill(path, 10, 1)


@pytest.mark.thorough
def test_a_run_killed_many_times_goes_on_with_nothing_lost_or_done_twice(path: Path) -> None:
    _kill(path, 100, 2)


def test_a_run_as_a_table(path: Path, tones: ToneBackend) -> None:
    with Journal(path, [tones.capabilities]) as journal:
        journal.add(
            tones.synthesize(Call(ask("One", prosody=ProsodyControl(speed=1.5)), seed=2**63 - 1)).take(),
            cell=1,
            text="first",
        )
        journal.add(tones.synthesize(Call(ask("Two", references=(REFERENCE,)))).take(repeat=1), cell=2, text="second")
    frame = load(path).frame()
    assert list(frame["cell"]) == [1, 2]
    assert list(frame["text"]) == ["first", "second"]
    assert list(frame["prosody.speed"]) == [1.5, 1.0]
    assert frame["seed"][0] == 2**63 - 1
    assert frame["seed"].isna().tolist() == [False, True]
    assert frame["references"].isna().tolist() == [True, False]
    assert list(frame["repeat"]) == [0, 1]
    assert list(frame["bytes"]) == [len(take.audio) for take in load(path)]
    assert set(tones.asked[0][0].canonical()) - {"prosody"} <= set(frame.columns)
    assert str(frame["created"].dtype).startswith("datetime64")


def test_an_empty_run_is_an_empty_table(path: Path, tones: ToneBackend) -> None:
    assert len(_write(path, tones, []).frame()) == 0


def test_a_thousand_takes_are_read_quickly(path: Path, tones: ToneBackend) -> None:
    take = tones.synthesize(Call(ask(), seed=3)).take()
    with Journal(path, [tones.capabilities]) as journal:
        for repeat in range(1000):
            journal.add(replace(take, repeat=repeat))
    started = time.process_time()
    frame = load(path).frame()
    assert time.process_time() - started < 2.0
    assert len(frame) == 1000


def test_errors_come_back_as_what_they_were() -> None:
    invalid = RequestInvalid.of("prosody.speed", "too fast")
    again = Failure.of_record(json.loads(json.dumps(Failure.of(invalid).record()))).error()
    assert isinstance(again, RequestInvalid)
    assert again.errors == invalid.errors
    error = Failure.of(ServiceUnavailable("busy", status=503, body=b"secret", request_id="r")).error()
    assert isinstance(error, ServiceUnavailable)
    assert (str(error), error.status, error.request_id, error.body) == ("busy", 503, "r", None)
    assert type(Failure("Strange", "m").error()).__name__ == "VoicelabError"
    with pytest.raises(StoreError):
        Failure.of_record({"kind": "x"})
