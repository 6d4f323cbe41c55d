"""LocalBackend whole: text in, audio out, with a real checkpoint whose weights were drawn at random.

It says nonsense, but in real time, through the real front end, scheduler, codec and encoders.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.engine.tiny import CODEC, LANGUAGE, make_codec, make_lm, speaker, until, write_weights
from voicelab.backend import Backend, SpeechStream
from voicelab.call import Call, VoicePreset
from voicelab.clip import Clip
from voicelab.engine import local
from voicelab.engine.core.scheduler import Scheduler
from voicelab.engine.local import LocalBackend, _fingerprint
from voicelab.engine.pointer import checkpoint
from voicelab.engine.pointer.codec import Codec
from voicelab.engine.pointer.config import ALL_PHONES
from voicelab.engine.speech import BATCH, _peak
from voicelab.errors import Cancelled, EngineError, MissingExtra, RequestInvalid, WeightsError
from voicelab.schema import TTSRequest

PATIENCE = 60.0
TEXT = "The birch canoe slid on the smooth planks. It's 3 o'clock, says the UK's Dr. Smith!"


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("weights") / "tiny.safetensors"
    codec = make_codec()
    codec.decoder.leave.bias[1:].sub_(3)  # at a level that speech has, so that no limiter hides a difference
    return write_weights(path, codec, "ada", "ben")


@pytest.fixture(scope="module")
def backend(weights: Path) -> Iterator[LocalBackend]:
    made = LocalBackend("cpu", weights=weights, rows=4)
    yield made
    made.close()


def _request(text: str = TEXT, **fields: object) -> TTSRequest:
    return TTSRequest.build(text=text, **{"format": "pcm", "sample_rate": 44100, **fields})


def _clip(backend: LocalBackend, text: str = TEXT, seed: int = 1, **fields: object) -> Clip:
    return backend.synthesize(Call(_request(text, **fields), seed=seed)).clip()


def _bytes(stream: SpeechStream) -> bytes:
    return b"".join(stream)


def _scheduler(backend: LocalBackend) -> Scheduler:
    return backend._models.parts("s2-pro").scheduler


def _idle(backend: LocalBackend) -> None:
    until(lambda: _scheduler(backend).load == (0, 0))


def test_capabilities(backend: LocalBackend) -> None:
    assert isinstance(backend, Backend)
    found = backend.capabilities
    assert (found.name, found.device, found.seed, found.languages) == ("tiny", "cpu", "exact", ("en",))
    assert [voice.id for voice in found.voices] == ["ada", "ben"]
    assert len(found.fingerprint) == 16
    assert found.at_once == 4  # its rows


@pytest.fixture
def both(tmp_path: Path) -> Iterator[LocalBackend]:
    """A voice of English and Mandarin."""
    path = tmp_path / "both.safetensors"
    lm = make_lm(config=replace(LANGUAGE, phones=len(ALL_PHONES)))
    checkpoint.save(path, make_codec(), lm, {VoicePreset("ada", "Ada"): speaker(1)}, {}, ("en", "zh"))
    made = LocalBackend("cpu", weights=path)
    yield made
    made.close()


def test_mandarin(both: LocalBackend) -> None:
    assert both.capabilities.languages == ("en", "zh")
    clip = both.synthesize(Call(_request("花儿，3个dogs？好！"), seed=1)).clip()
    said = [word.text for word in clip.words]
    told = ["花儿", "三", "个", "dogs", "好"]
    assert len(said) >= 3  # it says nonsense, and may pass over a phone
    assert said == [word for word in told if word in said]
    assert not clip.notes


def test_chinese_without_pypinyin_is_rejected(both: LocalBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pypinyin", None)
    with pytest.raises(MissingExtra, match="mandarin"):
        both.synthesize(Call(_request(f"{TEXT * 20} 你好")))
    assert both.synthesize(Call(_request(), seed=1)).clip().samples.size


def test_streamed_bytes_equal_the_clip(backend: LocalBackend) -> None:
    streamed = _bytes(backend.synthesize(Call(_request(), seed=5)))
    clip = _clip(backend, seed=5)
    assert len(streamed) == 2 * len(clip)
    assert np.array_equal(np.frombuffer(streamed, "<i2"), np.round(clip.samples * 32768).astype("<i2"))
    assert len(clip) % CODEC.hop == 0
    assert clip.take is not None
    assert clip.take.seed == 5
    assert clip.take.fingerprint == backend.capabilities.fingerprint


def test_seeds_determine_the_audio(weights: Path, backend: LocalBackend) -> None:
    first = _bytes(backend.synthesize(Call(_request(), seed=7)))
    assert _bytes(backend.synthesize(Call(_request(), seed=7))) == first
    assert _bytes(backend.synthesize(Call(_request(), seed=8))) != first
    again = LocalBackend("cpu", weights=weights)
    assert _bytes(again.synthesize(Call(_request(), seed=7))) == first
    again.close()


def test_drawn_seed_reproduces_the_audio(backend: LocalBackend) -> None:
    stream = backend.synthesize(Call(_request()))
    assert stream.seed is not None
    assert _bytes(backend.synthesize(Call(_request(), seed=stream.seed))) == _bytes(stream)
    assert backend.synthesize(Call(_request())).seed != stream.seed


@pytest.mark.parametrize("conditioned", [True, False])
def test_latency_does_not_change_samples(backend: LocalBackend, conditioned: bool) -> None:
    text = "One dog barks at night, and the cats of this long street answer it. " * 4
    clips = {
        latency: _clip(backend, text, seed=3, latency=latency, condition_on_previous_chunks=conditioned)
        for latency in ("low", "balanced", "normal")
    }
    whole = clips["normal"]
    for clip in clips.values():
        assert len(clip) == len(whole)
        assert clip.words == whole.words
        error = clip.samples - whole.samples
        assert float(np.sqrt(np.mean(np.square(error)))) < 2e-2 * float(np.sqrt(np.mean(np.square(whole.samples))))
    stream = backend.synthesize(Call(_request(text, latency="low"), seed=3))
    assert len(next(stream)) <= 2 * CODEC.hop
    stream.close()


def test_speed_stretches_words_too(backend: LocalBackend) -> None:
    plain = _clip(backend, seed=2)
    fast = _clip(backend, prosody={"speed": 2.0}, seed=2)
    edges = [edge for word in plain.words for edge in (word.start, word.end)]
    assert edges == sorted(edges)
    assert edges[-1] <= plain.duration + 1e-6
    assert fast.duration == pytest.approx(plain.duration / 2, rel=0.1)
    assert fast.words[-1].end == pytest.approx(plain.words[-1].end / 2, rel=0.1)


def test_default_voice_is_the_first_preset(backend: LocalBackend) -> None:
    default = _bytes(backend.synthesize(Call(_request(), seed=1)))
    assert _bytes(backend.synthesize(Call(_request(reference_id="ada"), seed=1))) == default
    assert _bytes(backend.synthesize(Call(_request(reference_id="ben"), seed=1))) != default


def test_fingerprint_depends_on_revision_and_few_rows_and_not_on_the_device(
    backend: LocalBackend, weights: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    many, few, eight = (_fingerprint(backend._family.digests, rows) for rows in (24, 4, 8))
    assert many == eight != few == backend.capabilities.fingerprint
    with LocalBackend("cpu:0", weights=weights, rows=4) as torch_backend:  # the implementation for GPUs
        assert torch_backend.capabilities.fingerprint == few
        call = Call(_request("Yes."), seed=1)
        ours, theirs = (made.synthesize(call).take().clip().samples for made in (backend, torch_backend))
    assert np.abs(ours - theirs).max() < 0.02  # the same codes; the random codec amplifies rounding
    monkeypatch.setattr(local, "REVISION", local.REVISION + 1)
    assert _fingerprint(backend._family.digests, BATCH) not in {many, few}


@pytest.mark.parametrize("text", ["!!! ... ???", "😀 🎉", "\u200b\u200b", "***", "你好，世界", "Привет, как дела?"])
@pytest.mark.parametrize("normalize", [True, False])
def test_unspeakable_text_is_rejected(backend: LocalBackend, text: str, normalize: bool) -> None:
    with pytest.raises(RequestInvalid) as caught:
        backend.synthesize(Call(_request(text, normalize=normalize)))
    assert caught.value.errors[0].loc == ("body", "text")
    _idle(backend)


def test_omissions_are_noted(backend: LocalBackend) -> None:
    assert any("😀" in note for note in _clip(backend, "Hello 😀 there", seed=1).notes)


@pytest.mark.parametrize(
    "text", ["word " * 4000, "1" * 20_000, "B" * 20_000, "a" * 20_000, "9,876.54 " * 2222, "no. " * 5000]
)
def test_long_text_starts_at_once_and_can_be_cancelled(backend: LocalBackend, text: str) -> None:
    text = text[:20_000].strip()
    started = time.monotonic()
    stream = backend.synthesize(Call(_request(text, latency="low"), seed=1))
    assert next(stream)
    assert time.monotonic() - started < 20  # on a machine that is busy with other things; alone it is a second
    stream.close()
    _idle(backend)
    with pytest.raises(RequestInvalid, match="20000"):
        backend.synthesize(Call(_request("a" * 20_001)))


def test_early_stop_does_not_affect_other_sequences(backend: LocalBackend) -> None:
    text = "One dog barks at the moon tonight and the cats of this long street answer. " * 5
    plain = _bytes(backend.synthesize(Call(_request(text), seed=1)))
    assert _bytes(backend.synthesize(Call(_request(text, early_stop_threshold=0.0), seed=1))) == plain


def test_closing_the_stream_frees_the_engine(backend: LocalBackend) -> None:
    text = "One dog barks at the moon tonight. " * 200
    with backend.synthesize(Call(_request(text, latency="low"))) as stream:
        next(stream)
    _idle(backend)
    stream = backend.synthesize(Call(_request(text, condition_on_previous_chunks=False, latency="low")))
    next(stream)
    stream.close()
    with pytest.raises(Cancelled):
        next(stream)
    _idle(backend)
    paused = backend.synthesize(Call(_request(text, latency="low")))
    next(paused)
    worker = _scheduler(backend)._worker
    assert worker is not None
    (speaking,) = worker._active
    until(lambda: not speaking.speaking)  # all of the first segments is spoken: the engine waits for the reader
    paused.close()
    _idle(backend)
    forgotten = backend.synthesize(Call(_request(text)))
    assert next(forgotten)
    del forgotten
    _idle(backend)


def test_closing_the_backend_fails_its_streams(weights: Path) -> None:
    with ThreadPoolExecutor() as pool:
        with LocalBackend("cpu", weights=weights) as backend:
            stream = backend.synthesize(Call(_request("One dog barks at the moon tonight. " * 400, latency="low")))
            next(stream)
            reading = pool.submit(_bytes, stream)
        backend.close()
        with pytest.raises(EngineError, match="closed"):
            reading.result(PATIENCE)
    with pytest.raises(EngineError, match="closed"):
        backend.synthesize(Call(_request()))


@contextmanager
def _speaking(codec: Codec, folder: Path) -> Iterator[LocalBackend]:
    with LocalBackend("cpu", weights=write_weights(folder / "ill.safetensors", codec)) as backend:
        yield backend


def test_silence_is_an_error(tmp_path: Path) -> None:
    codec = make_codec()
    codec.decoder.leave.weight.zero_()
    codec.decoder.leave.bias[1:].fill_(-100)
    with _speaking(codec, tmp_path) as backend:
        with pytest.raises(EngineError, match="silence"):
            _clip(backend)
        assert _clip(backend, "One dog barks.", max_new_tokens=1).notes  # that is no failure of the voice


@pytest.mark.parametrize("number", [np.nan, np.inf])
def test_non_finite_audio_is_an_error(number: float) -> None:
    with pytest.raises(EngineError, match="finite"):
        _peak(np.array([0.1, number, 0.2], np.float32))


@pytest.mark.parametrize("device", ["cuda:99", "nonsense"])
def test_unavailable_device_is_an_error(weights: Path, device: str) -> None:
    with pytest.raises(EngineError, match=device):
        LocalBackend(device, weights=weights)


def test_missing_weights_are_an_error(tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match=r"none\.safetensors"):
        LocalBackend("cpu", weights=tmp_path / "none.safetensors")
