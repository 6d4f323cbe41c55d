from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.audio.sounds import babble, random_chunks
from voicelab.audio.decoders import StreamDecoder
from voicelab.audio.encoders import StreamEncoder
from voicelab.audio.prosody import ProsodyProcessor
from voicelab.audio.samples import NO_SAMPLES, Resampler, as_samples, check_rate, dbfs, from_int16, resample, to_int16
from voicelab.errors import AudioError

RATES = [8000, 16000, 22050, 24000, 32000, 44100, 48000]


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (np.zeros((2, 2), np.float32), "shape"),
        (np.float32(0.5), "shape"),
        (np.zeros(3, np.int16), "int16"),
        ([1, 2, 3], "int"),
        (np.zeros(3, bool), "bool"),
        (np.zeros(3, complex), "complex"),
        (["a"], "<U1"),
        (np.array([0.0, math.nan], np.float32), "finite"),
        (np.array([math.inf]), "finite"),
        (np.array([1e300]), "finite"),
    ],
)
@pytest.mark.filterwarnings("ignore:overflow encountered in cast:RuntimeWarning")
def test_invalid_samples_are_rejected_by_name(value: Any, reason: str) -> None:
    with pytest.raises(AudioError, match=f"voice .*{reason}"):
        as_samples(value, "voice")


def test_floating_types_become_float32() -> None:
    for kind in (np.float16, np.float32, np.float64):
        samples = as_samples(np.array([0.5, -0.25], kind)[::-1])
        assert samples.dtype == np.float32
        assert samples.flags.c_contiguous
        assert samples.tolist() == [-0.25, 0.5]
    assert as_samples([]).size == 0
    assert as_samples([0.5]).tolist() == [0.5]


@pytest.mark.parametrize("rate", [0, -1, 24, 999, 10**9, 44100.0, True, None, "44100"])
def test_invalid_rates_are_rejected_by_name(rate: Any) -> None:
    with pytest.raises(AudioError, match="sampling_rate must be"):
        check_rate(rate, "sampling_rate")
    if rate == 24:
        with pytest.raises(AudioError, match=r"between 1000 and 768000 Hz, got 24 \(24 kHz is 24000 Hz\)$"):
            check_rate(rate)


@given(st.lists(st.integers(-32768, 32767), max_size=50))
def test_int16_round_trip_is_exact(values: list[int]) -> None:
    steps = np.array(values, "<i2")
    assert to_int16(from_int16(steps)).tolist() == values


def test_int16_rounds_to_nearest_and_saturates() -> None:
    assert to_int16(np.array([1.0, -1.0, 2.0, -2.0, 0.0], np.float32)).tolist() == [32767, -32768, 32767, -32768, 0]
    samples = np.linspace(-1, 1 - 1 / 32768, 4001, dtype=np.float32)
    assert np.abs(from_int16(to_int16(samples)) - samples).max() <= 0.5 / 32768 + 1e-9


def test_levels() -> None:
    assert dbfs(np.ones(10, np.float32)) == 0.0
    assert dbfs(np.full(10, 0.1, np.float32)) == pytest.approx(-20.0, abs=1e-4)
    assert dbfs(np.zeros(10, np.float32)) == dbfs(NO_SAMPLES) == -math.inf


@pytest.mark.parametrize("source", RATES)
@pytest.mark.parametrize("rate", [8000, 44100, 48000])
def test_resampling_preserves_tone_and_duration(source: int, rate: int) -> None:
    tone = (0.5 * np.sin(2 * np.pi * 1000 * np.arange(source) / source)).astype(np.float32)
    out = resample(tone, source, rate)
    assert abs(out.size - rate) <= 1
    expected = 0.5 * np.sin(2 * np.pi * 1000 * np.arange(out.size) / rate)
    inner = slice(rate // 20, -rate // 20)
    assert np.abs(out[inner] - expected[inner]).max() < 1e-4


@settings(deadline=None, max_examples=25)
@given(
    source=st.sampled_from(RATES), rate=st.sampled_from(RATES), seed=st.integers(0, 1000), max_size=st.integers(1, 5000)
)
def test_resampling_is_independent_of_block_sizes(source: int, rate: int, seed: int, max_size: int) -> None:
    samples = babble(source, 0.2, seed)
    resampler = Resampler(source, rate)
    blocks = [resampler.feed(samples[begin:end]) for begin, end in random_chunks(samples.size, seed, max_size)]
    assert np.array_equal(np.concatenate([*blocks, resampler.finish()]), resample(samples, source, rate))


def test_equal_rates_return_the_same_samples() -> None:
    samples = np.array([0.1, 0.2], np.float32)
    assert Resampler(44100, 44100).feed(samples) is samples
    assert resample(NO_SAMPLES, 44100, 48000).size == 0


@pytest.mark.parametrize(
    "processor",
    [StreamDecoder("pcm"), StreamEncoder("pcm", 44100), ProsodyProcessor(44100)],
    ids=lambda processor: type(processor).__name__,
)
def test_finished_processors_raise(processor: Any) -> None:
    processor.finish()
    for action in (
        processor.finish,
        lambda: processor.feed(b"" if isinstance(processor, StreamDecoder) else NO_SAMPLES),
    ):
        with pytest.raises(AudioError, match="finished"):
            action()
