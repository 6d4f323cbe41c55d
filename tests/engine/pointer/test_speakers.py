"""Reference audio to speaker profiles: leveling, trimming, caching and errors."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.engine.tiny import LATENT, make_codec, numpy_codec
from voicelab.clip import Clip
from voicelab.engine.pointer.numpy_codec import NumpyCodec
from voicelab.engine.pointer.rows import STATISTICS
from voicelab.engine.pointer.speakers import LEVEL, MIN_SOUND_S, References, TelephoneBand, level, limit_band
from voicelab.errors import AudioError, RequestInvalid
from voicelab.schema import ReferenceAudio

RATE = 16_000


@pytest.fixture(scope="module")
def codec() -> NumpyCodec:
    return numpy_codec(make_codec())


def _tone(seconds: float, amplitude: float = 0.3, hz: float = 180.0) -> NDArray[np.float32]:
    time = np.arange(int(seconds * RATE)) / RATE
    return (amplitude * np.sin(2 * np.pi * hz * time)).astype(np.float32)


def _silence(seconds: float) -> NDArray[np.float32]:
    return np.zeros(int(seconds * RATE), np.float32)


def _wav(samples: NDArray[np.float32]) -> bytes:
    return Clip(samples, RATE).to_bytes("wav", sample_rate=RATE)


def _rms(samples: NDArray[np.float32]) -> float:
    return float(np.sqrt(np.mean(np.square(samples))))


@pytest.mark.parametrize("amplitude", [0.002, 0.03, 0.3, 1.0, 40.0])
def test_level_is_normalized(amplitude: float) -> None:
    found = level(_tone(1.0, amplitude), RATE)
    assert _rms(found) == pytest.approx(LEVEL, rel=0.03)
    assert found.dtype == np.float32


def test_surrounding_silence_is_trimmed() -> None:
    found = level(np.concatenate([_silence(3), _tone(1.0), _silence(2)]), RATE)
    assert 1.0 <= found.size / RATE <= 1.4
    middle = found[found.size // 2 - 2000 : found.size // 2 + 2000]
    assert _rms(middle) == pytest.approx(LEVEL, rel=0.05)


def test_inner_pause_does_not_change_level() -> None:
    found = level(np.concatenate([_tone(1.0), _silence(2), _tone(1.0)]), RATE)
    assert _rms(found[2000:10_000]) == pytest.approx(LEVEL, rel=0.05)


@pytest.mark.parametrize("offset", [-0.4, 0.2])
def test_dc_offset_is_removed(offset: float) -> None:
    with pytest.raises(AudioError, match="silent"):
        level(np.full(RATE, offset, np.float32), RATE)
    plain, moved = level(_tone(1.0, 0.1), RATE), level(_tone(1.0, 0.1) + np.float32(offset), RATE)
    assert plain.size == pytest.approx(moved.size, abs=200)
    assert _rms(moved) == pytest.approx(LEVEL, rel=0.03)
    assert abs(float(moved.mean())) < 0.01


@pytest.mark.parametrize("samples", [_silence(2), np.zeros(0, np.float32), _tone(2.0, 0.0005)], ids=len)
def test_silence_is_rejected(samples: NDArray[np.float32]) -> None:
    with pytest.raises(AudioError, match="silent"):
        level(samples, RATE)


def test_minimum_duration() -> None:
    with pytest.raises(AudioError, match=r"less than 0\.5 s"):
        level(np.concatenate([_silence(1), _tone(MIN_SOUND_S - 0.05), _silence(1)]), RATE)
    with pytest.raises(AudioError, match="less than"):
        level(np.array([1, *[0] * 20_000], np.float32), RATE)
    assert level(np.concatenate([_silence(1), _tone(MIN_SOUND_S + 0.02), _silence(1)]), RATE).size
    assert level(_tone(MIN_SOUND_S + 0.02), RATE).size  # without a silence around it


@pytest.mark.parametrize("seed", range(8))
def test_output_is_finite_and_bounded(seed: int) -> None:
    rng = np.random.default_rng(seed)
    samples = (rng.standard_t(2, RATE * 2) * 10 ** rng.uniform(-2, 2)).astype(np.float32)
    found = level(samples, RATE)
    assert np.isfinite(found).all()
    assert float(np.abs(found).max()) <= 1.0


def _ref(audio: bytes) -> ReferenceAudio:
    return ReferenceAudio(audio=audio, text="")


def test_speaker_is_deterministic(codec: NumpyCodec) -> None:
    references = References(codec)
    one = references.speaker([_ref(_wav(_tone(1.0)))]).statistics
    assert one.shape == (STATISTICS * LATENT,)
    assert np.isfinite(one).all()
    assert bool((one[LATENT:] >= 0).all())
    assert np.array_equal(one, References(codec).speaker([_ref(_wav(_tone(1.0)))]).statistics)
    other = _wav(np.random.default_rng(0).normal(size=RATE).astype(np.float32) * 0.1)
    assert not np.allclose(one, references.speaker([_ref(other)]).statistics)
    assert not np.allclose(one, references.speaker([_ref(_wav(_tone(1.0))), _ref(other)]).statistics)


def _hiss(low: float, high: float) -> ReferenceAudio:
    noise = np.random.default_rng(0).normal(size=2 * RATE).astype(np.float32) * 0.1
    return _ref(_wav(limit_band(noise, RATE, TelephoneBand(low, high))))


def test_band_requires_all_telephone_references(codec: NumpyCodec) -> None:
    """The widest band of all references; none if one is wideband."""
    one, other, wide = _hiss(300, 3400), _hiss(200, 3000), _hiss(0, 8000)
    speaker = References(codec).speaker
    first, both = speaker([one]).band, speaker([one, other]).band
    assert first is not None
    assert both is not None
    assert (first.low, first.high) == pytest.approx((300, 3400), abs=10)
    assert (both.low, both.high) == pytest.approx((200, 3400), abs=10)
    assert speaker([one, wide]).band is None


def test_references_are_cached(codec: NumpyCodec, monkeypatch: pytest.MonkeyPatch) -> None:
    references, audio = References(codec), [_ref(_wav(_tone(1.0)))]
    first = references.speaker(audio).statistics
    monkeypatch.setattr(Clip, "load", None)  # whoever decodes again fails
    assert np.array_equal(first, references.speaker(audio).statistics)


def test_error_names_the_reference(codec: NumpyCodec) -> None:
    good = _ref(_wav(_tone(1.0)))
    for bad in (b"no audio at all", _wav(_silence(2.0)), _wav(_tone(0.1)), _wav(_tone(1.0))[:30]):
        with pytest.raises(RequestInvalid) as caught:
            References(codec).speaker([good, _ref(bad)])
        assert caught.value.errors[0].loc == ("body", "references", "1", "audio")


def test_bad_reference_is_rejected_in_all_threads() -> None:
    references = References(numpy_codec(make_codec()))
    audio, gate = [_ref(_wav(_silence(0.2)))], threading.Barrier(8, timeout=30)

    def ask(_: int) -> None:
        gate.wait()
        for _ in range(20):
            with pytest.raises(RequestInvalid):
                references.speaker(audio)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(ask, range(8)))
