from __future__ import annotations

import shutil
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.kept import ask, spoil
from tests.tones import Keeper, ToneBackend
from voicelab.backend import Backend, SpeechStream, StreamSummary
from voicelab.backends.runs import CachedBackend, RecordingBackend, ReplayBackend, ReplayTiming
from voicelab.call import Call
from voicelab.clip import take_key
from voicelab.errors import Cancelled, NotFound, RequestInvalid, ServiceUnavailable, StoreError
from voicelab.runs.cache import Cache
from voicelab.runs.run import Journal
from voicelab.schema import ReferenceAudio, TTSRequest, VoiceCreate, VoiceModel
from voicelab.takes.collection import load


class Voices(Keeper):
    """Refuses noise."""

    def create_voice(self, request: VoiceCreate) -> VoiceModel:
        if request.voices[0] == b"noise":
            raise RequestInvalid.of("voices", "There is no speech in it")
        return super().create_voice(request)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "recording"


def _chunks(backend: Backend, request: TTSRequest, **options: Any) -> list[bytes]:
    return list(backend.synthesize(Call(request, **options)))


class Cloned(ToneBackend):
    """Tells how near the voice came to its reference, as the embedded one does."""

    def synthesize(self, call: Call) -> SpeechStream:
        heard = super().synthesize(call)
        return SpeechStream(
            iter(heard),
            call=call,
            backend=self.capabilities,
            summary=lambda: StreamSummary((), ("The reference is short.",), 0.81),
        )


def test_similarity_is_recorded(folder: Path) -> None:
    call, cached = Call(ask("Hello"), seed=1), CachedBackend(Cloned(), Cache(folder / "cache"))
    assert RecordingBackend(Cloned(), folder / "recording").synthesize(call).clip().similarity == 0.81
    for backend in (ReplayBackend(folder / "recording", "at once"), cached, cached):
        assert backend.synthesize(call).clip().similarity == 0.81
    assert cached.cache.stats().hits == 1
    with Journal(folder / "run", [cached.capabilities]) as journal:
        journal.add(Cloned().synthesize(call).take())
    run = load(folder / "run")
    assert (run.takes[0].similarity, run.frame().similarity.tolist()) == (0.81, [0.81])


def test_recording_streams_chunks_unchanged(folder: Path) -> None:
    reached: list[int] = []
    tones = ToneBackend(reached.append)
    stream = RecordingBackend(tones, folder).synthesize(Call(ask("Hello"), seed=1))
    next(stream)
    assert len(reached) < 5
    stream.close()
    assert tones.open == 0


def test_replay_timing(folder: Path) -> None:
    slow = ToneBackend(lambda number: time.sleep(0.1 if number in (0, 3) else 0.0))
    RecordingBackend(slow, folder).synthesize(Call(ask("Hello"), seed=1)).clip()
    streams = {}
    timings: tuple[ReplayTiming, ...] = ("original", "at once")
    for timing in timings:
        streams[timing] = ReplayBackend(folder, timing).synthesize(Call(ask("Hello"), seed=1))
        streams[timing].clip()
    original, quick = streams["original"], streams["at once"]
    assert [size for _, size in original.arrivals] == [size for _, size in quick.arrivals]
    recorded = original.timing
    assert quick.timing == recorded
    assert recorded.total_s >= 0.2
    # As late as then, and no later than a busy machine makes it.
    assert all(then <= now + 0.001 for (then, _), (now, _) in zip(recorded.arrivals, original.arrivals, strict=True))
    assert original.arrivals[-1][0] < recorded.total_s + 2.0
    assert quick.arrivals[-1][0] < 0.1


def test_replay_can_be_closed_at_once(folder: Path) -> None:
    slow = ToneBackend(lambda number: time.sleep(1.0 if number == 2 else 0.0))
    RecordingBackend(slow, folder).synthesize(Call(ask("Hello"), seed=1)).clip()
    stream = ReplayBackend(folder).synthesize(Call(ask("Hello"), seed=1))
    next(stream)
    started = time.monotonic()
    threading.Timer(0.05, stream.close).start()
    with pytest.raises(Cancelled):
        list(stream)
    assert time.monotonic() - started < 0.8


def test_takes_of_a_request_are_replayed_cyclically(folder: Path) -> None:
    class Drawing(ToneBackend):
        def synthesize(self, call: Call) -> SpeechStream:
            stream = super().synthesize(call.replace(seed=len(self.asked)) if call.seed is None else call)
            stream.call = call
            return stream

    recorder = RecordingBackend(Drawing(), folder)
    said = [_chunks(recorder, ask()) for _ in range(3)]
    assert len({b"".join(chunks) for chunks in said}) == 3
    player = ReplayBackend(folder, "at once")
    assert [_chunks(player, ask()) for _ in range(5)] == [*said, *said[:2]]
    assert player.synthesize(Call(ask())).seed == 2
    # A shorter recording of the same replaces a longer one.
    again = RecordingBackend(Drawing(), folder)
    fresh = [_chunks(again, ask()) for _ in range(2)]
    player = ReplayBackend(folder, "at once")
    assert [_chunks(player, ask()) for _ in range(4)] == [*fresh, *fresh]


def test_closed_streams_are_not_recorded(folder: Path, tones: ToneBackend) -> None:
    recorder = RecordingBackend(tones, folder)
    with recorder.synthesize(Call(ask(), seed=1)) as stream:
        next(stream)
    with pytest.raises(StoreError, match="no recorded take"):
        ReplayBackend(folder).synthesize(Call(ask(), seed=1))
    said = _chunks(recorder, ask(), seed=1)
    assert _chunks(ReplayBackend(folder), ask(), seed=1) == said


def test_errors_are_replayed_at_their_stage(folder: Path) -> None:
    def step(number: int) -> None:
        if number == 3:
            raise ServiceUnavailable("broke off", status=503, request_id="r1")

    recorder = RecordingBackend(ToneBackend(step), folder)
    heard: list[bytes] = []
    with pytest.raises(ServiceUnavailable), recorder.synthesize(Call(ask(), seed=1)) as stream:
        heard.extend(stream)
    with pytest.raises(RequestInvalid):
        recorder.synthesize(Call(ask(reference_id="nobody")))
    player = ReplayBackend(folder)
    again: list[bytes] = []
    with pytest.raises(ServiceUnavailable, match="broke off") as caught:
        again.extend(player.synthesize(Call(ask(), seed=1)))
    assert caught.value.status == 503
    assert again == heard != []
    with pytest.raises(RequestInvalid) as refused:
        player.synthesize(Call(ask(reference_id="nobody")))
    assert refused.value.errors[0].loc == ("body", "reference_id")


def test_missing_recording_names_the_most_similar_request(folder: Path, tones: ToneBackend) -> None:
    recorder = RecordingBackend(tones, folder)
    for text in ("The birch canoe slid.", *(f"Something else altogether, {number}" for number in range(20))):
        _chunks(recorder, ask(text, temperature=0.3), seed=3)
    player = ReplayBackend(folder)
    with pytest.raises(StoreError) as caught:
        player.synthesize(Call(ask("The birch canoe slips.", temperature=0.4), model="s1", seed=3))
    message = str(caught.value)
    assert "text (recorded 'The birch canoe slid.', requested 'The birch canoe slips.')" in message
    assert "temperature (recorded 0.3, requested 0.4)" in message
    assert "model (recorded 's2-pro', requested 's1')" in message
    assert "seed" not in message
    with pytest.raises(StoreError, match=r"seed \(recorded 3, requested None\)"):
        player.synthesize(Call(ask("The birch canoe slid.", temperature=0.3)))
    references = (ReferenceAudio(audio=b"a", text="b"),)
    with pytest.raises(StoreError, match="references"):
        player.synthesize(Call(ask("The birch canoe slid.", temperature=0.3, references=references), seed=3))


def test_unsupported_calls_are_rejected(folder: Path) -> None:
    RecordingBackend(ToneBackend(max_text=10, seed="none"), folder)
    with pytest.raises(RequestInvalid, match="at most 10"):
        ReplayBackend(folder).synthesize(Call(ask("x" * 11)))
    with pytest.raises(RequestInvalid, match="seed"):
        ReplayBackend(folder).synthesize(Call(ask(), seed=1))


def test_voice_calls_are_replayed(folder: Path) -> None:
    recorder = RecordingBackend(Voices(), folder)
    create = VoiceCreate(title="Ada", voices=(b"speech",), visibility="private")
    made = [recorder.create_voice(create), recorder.create_voice(create)]
    got = recorder.get_voice(made[0].id)
    with pytest.raises(NotFound):
        recorder.get_voice("nobody")
    with pytest.raises(RequestInvalid):
        recorder.create_voice(create.replace(voices=(b"noise",)))
    player = ReplayBackend(folder)
    assert [player.create_voice(create), player.create_voice(create)] == made
    assert player.get_voice(made[0].id) == got
    with pytest.raises(NotFound) as caught:
        player.get_voice("nobody")
    assert caught.value.status == 404
    with pytest.raises(RequestInvalid, match="no speech"):
        player.create_voice(create.replace(voices=(b"noise",)))
    with pytest.raises(StoreError, match=made[1].id):
        player.get_voice(made[1].id)
    with pytest.raises(StoreError, match="'Ben'"):
        player.create_voice(create.replace(title="Ben"))


def test_concurrent_recording(folder: Path, tones: ToneBackend) -> None:
    recorder = RecordingBackend(tones, folder)
    requests = [ask(f"Number {number % 6}") for number in range(24)]
    with ThreadPoolExecutor(8) as pool:
        said = list(pool.map(lambda request: _chunks(recorder, request, seed=1), requests))
        player = ReplayBackend(folder, "at once")
        assert list(pool.map(lambda request: _chunks(player, request, seed=1), requests)) == said
    assert len(recorder.run.lines()) == 24


def test_folder_of_another_backend_is_rejected(folder: Path, tones: ToneBackend) -> None:
    RecordingBackend(tones, folder)
    RecordingBackend(tones, folder)
    with pytest.raises(StoreError, match="another backend"):
        RecordingBackend(ToneBackend(fingerprint="tones-2"), folder)


def test_recording_of_a_service_that_was_unreachable_at_first(folder: Path, tones: ToneBackend) -> None:
    busy = ToneBackend(seed="unknown", fingerprint="http://tones")
    RecordingBackend(busy, folder)
    _chunks(RecordingBackend(busy, folder), ask("One"))
    recorder = RecordingBackend(tones, folder)
    said = _chunks(recorder, ask("One"), seed=1)
    assert _chunks(ReplayBackend(folder, "at once"), ask("One"), seed=1) == said
    with pytest.raises(StoreError, match=r"has a recording of another backend .*tones-1.* is unreachable"):
        RecordingBackend(busy, folder)


def test_unreachable_services_are_distinguished_by_address(folder: Path) -> None:
    RecordingBackend(ToneBackend(seed="unknown", fingerprint="http://tones"), folder)
    with pytest.raises(StoreError, match="another backend"):
        RecordingBackend(ToneBackend(seed="unknown", fingerprint="http://others"), folder)


def test_recording_continues_while_the_service_is_busy(folder: Path) -> None:
    RecordingBackend(ToneBackend(seed="none", fingerprint="http://tones"), folder)
    said = _chunks(RecordingBackend(ToneBackend(seed="unknown", fingerprint="http://tones"), folder), ask("One"))
    player = ReplayBackend(folder, "at once")
    assert _chunks(player, ask("One")) == said
    assert player.capabilities.seed == "none"


def test_a_folder_without_a_recording(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="no recording"):
        ReplayBackend(tmp_path)
    (tmp_path / "run.jsonl").write_bytes(b"{}\n")
    with pytest.raises(StoreError, match="is not a run"):
        ReplayBackend(tmp_path)
    with pytest.raises(RequestInvalid, match="timing"):
        ReplayBackend(tmp_path, "fast")  # type: ignore[arg-type]


def test_damaged_recording_is_an_error(folder: Path, tones: ToneBackend) -> None:
    recorder = RecordingBackend(tones, folder)
    _chunks(recorder, ask(), seed=1)
    spoil(recorder.run, recorder.run.lines()[0].key)
    with pytest.raises(StoreError, match="moved to"):
        ReplayBackend(folder).synthesize(Call(ask(), seed=1))


def test_disk_failure_loses_the_recording_but_not_the_speech(folder: Path, tones: ToneBackend) -> None:
    recorder = RecordingBackend(tones, folder)
    shutil.rmtree(folder)
    folder.write_bytes(b"")
    clip = recorder.synthesize(Call(ask(), seed=1)).clip()
    assert clip == tones.synthesize(Call(ask(), seed=1)).clip()
    assert "could not be recorded" in clip.notes[0]


def test_a_recording_can_be_closed(folder: Path, tones: ToneBackend) -> None:
    for backend in (RecordingBackend(tones, folder), ReplayBackend(folder)):
        assert isinstance(backend, Backend)
        backend.close()
        backend.close()
        assert str(folder) in repr(backend)


# The backend with a cache in front of it.


def test_only_deterministic_calls_are_cached(cache: Cache, tones: ToneBackend) -> None:
    backend = CachedBackend(tones, cache)
    for _ in range(2):
        backend.synthesize(Call(ask())).clip()
    assert (len(tones.asked), len(cache)) == (2, 0)
    for _ in range(2):
        backend.synthesize(Call(ask(temperature=0))).clip()
    assert (len(tones.asked), len(cache)) == (3, 1)
    rough = ToneBackend(seed="best-effort")
    for _ in range(2):
        CachedBackend(rough, cache).synthesize(Call(ask(), seed=3)).clip()
    assert (len(rough.asked), len(cache)) == (2, 1)


def test_closed_stream_is_not_cached(cache: Cache, tones: ToneBackend) -> None:
    with CachedBackend(tones, cache).synthesize(Call(ask(), seed=3)) as stream:
        next(stream)
    assert tones.open == 0
    assert len(cache) == 0
    forgotten = CachedBackend(tones, cache).synthesize(Call(ask(), seed=3))
    next(forgotten)
    assert tones.open == 1
    del forgotten
    assert tones.open == 0


def test_damaged_take_is_synthesized_again_with_a_note(cache: Cache, tones: ToneBackend) -> None:
    backend = CachedBackend(tones, cache)
    clip = backend.synthesize(Call(ask(), seed=3)).clip()
    spoil(cache.run, take_key(Call(ask(), seed=3), "tones-1"))
    again = backend.synthesize(Call(ask(), seed=3)).clip()
    assert again == clip
    assert "replaces it" in again.notes[0]
    kept = backend.synthesize(Call(ask(), seed=3))
    assert "cached take, made" in kept.clip().notes[-1]
    assert "cached take, made" in kept.summary.notes[-1], "whoever hands the stream on tells it too"
