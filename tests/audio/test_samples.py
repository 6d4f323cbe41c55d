from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.audio.sounds import babble, pieces
from voicelab.audio.decoders import StreamDecoder
from voicelab.audio.encoders import StreamEncoder
from voicelab.audio.prosody import ProsodyProcessor
from voicelab.audio.samples import (
    SILENT,
    Resampler,
    as_samples,
    check_rate,
    dbfs,
    from_int16,
    resample,
    to_int16,
)
from voicelab.errors import AudioError

RATES = [8000, 16000, 22050, 24000, 32000, 44100, 48000]


@pytest.mark.parametrize(
    ("value", "why"),
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
def test_what_is_no_mono_sound_is_refused_by_name(value: Any, why: str) -> None:
    with pytest.raises(AudioError, match=f"voice: .*{why}"):
        as_samples(value, "voice")


def test_any_floats_become_float32() -> None:
    for kind in (np.float16, np.float32, np.float64):
        samples = as_samples(np.array([0.5, -0.25], kind)[::-1])
        assert samples.dtype == np.float32
        assert samples.flags.c_contiguous
        assert samples.tolist() == [-0.25, 0.5]
    assert as_samples([]).size == 0
    assert as_samples([0.5]).tolist() == [0.5]


@pytest.mark.parametrize("rate", [0, -1, 10**9, 44100.0, True, None, "44100"])
def test_what_is_no_rate_is_refused_by_name(rate: Any) -> None:
    with pytest.raises(AudioError, match="speed of sampling: "):
        check_rate(rate, "speed of sampling")


@given(st.lists(st.integers(-32768, 32767), max_size=50))
def test_sixteen_bits_come_back_exactly(values: list[int]) -> None:
    steps = np.array(values, "<i2")
    assert to_int16(from_int16(steps)).tolist() == values


def test_sixteen_bits_round_to_the_nearest_and_never_wrap() -> None:
    assert to_int16(np.array([1.0, -1.0, 2.0, -2.0, 0.0], np.float32)).tolist() == [32767, -32768, 32767, -32768, 0]
    samples = np.linspace(-1, 1 - 1 / 32768, 4001, dtype=np.float32)
    assert np.abs(from_int16(to_int16(samples)) - samples).max() <= 0.5 / 32768 + 1e-9


def test_levels() -> None:
    assert dbfs(np.ones(10, np.float32)) == 0.0
    assert dbfs(np.full(10, 0.1, np.float32)) == pytest.approx(-20.0, abs=1e-4)
    assert dbfs(np.zeros(10, np.float32)) == dbfs(SILENT) == -math.inf


@pytest.mark.parametrize("source", RATES)
@pytest.mark.parametrize("rate", [8000, 44100, 48000])
def test_resampling_keeps_a_tone_and_the_duration(source: int, rate: int) -> None:
    tone = (0.5 * np.sin(2 * np.pi * 1000 * np.arange(source) / source)).astype(np.float32)
    out = resample(tone, source, rate)
    assert abs(out.size - rate) <= 1
    expected = 0.5 * np.sin(2 * np.pi * 1000 * np.arange(out.size) / rate)
    inner = slice(rate // 20, -rate // 20)
    assert np.abs(out[inner] - expected[inner]).max() < 1e-4


@settings(deadline=None, max_examples=25)
@given(
    source=st.sampled_from(RATES), rate=st.sampled_from(RATES), seed=st.integers(0, 1000), longest=st.integers(1, 5000)
)
def test_streamed_resampling_equals_the_whole(source: int, rate: int, seed: int, longest: int) -> None:
    samples = babble(source, 0.2, seed)
    resampler = Resampler(source, rate)
    parts = [resampler.feed(samples[begin:end]) for begin, end in pieces(samples.size, seed, longest)]
    assert np.array_equal(np.concatenate([*parts, resampler.finish()]), resample(samples, source, rate))


def test_equal_rates_pass_untouched() -> None:
    samples = np.array([0.1, 0.2], np.float32)
    assert Resampler(44100, 44100).feed(samples) is samples
    assert resample(SILENT, 44100, 48000).size == 0


@pytest.mark.parametrize(
    "one",
    [StreamDecoder("pcm"), StreamEncoder("pcm", 44100), ProsodyProcessor(44100)],
    ids=lambda one: type(one).__name__,
)
def test_what_is_finished_takes_no_more(one: Any) -> None:
    one.finish()
    for again in (one.finish, lambda: one.feed(b"" if isinstance(one, StreamDecoder) else SILENT)):
        with pytest.raises(AudioError, match="finished"):
            again()
