from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pyloudnorm
import pytest
from scipy.signal import butter, lfilter, upfirdn

from tests.speechlike import RATE, speechlike
from voicelab.clip import Clip
from voicelab.metrics.level import _FILTERS, _k_weighting

Figure = Callable[..., tuple[float, str]]


def test_levels_of_a_sine(sounds: Any, figure: Figure) -> None:
    clip = sounds.sine(997, -6.0, 1.0)
    assert figure(clip, "duration")[0] == 1.0
    assert figure(clip, "level")[0] == pytest.approx(-9.01, abs=0.01)
    assert figure(clip, "peak")[0] == pytest.approx(-6.0, abs=0.01)


@pytest.mark.parametrize("rate", [16_000, 24_000, 44_100, 48_000, 96_000])
def test_full_scale_sine_of_997_hz_has_minus_3_lufs(rate: int, sounds: Any, figure: Figure) -> None:
    # Recommendation ITU-R BS.1770-4, Annex 1: a 0 dBFS sine of 997 Hz in one front channel reads -3.01 LKFS.
    assert figure(sounds.sine(997, 0.0, 4.0, rate), "loudness")[0] == pytest.approx(-3.01, abs=0.05)


def test_k_weighting_agrees_with_the_standard_at_48_khz() -> None:
    # Recommendation ITU-R BS.1770-4, Annex 1, tables 1 and 2.
    shelf = ([1.53512485958697, -2.69169618940638, 1.19839281085285], [1.0, -1.69065929318241, 0.73248077421585])
    high = ([1.0, -2.0, 1.0], [1.0, -1.99004745483398, 0.99007225036621])
    numerator, denominator = _k_weighting(48_000)
    assert numerator == pytest.approx(np.convolve(shelf[0], high[0]), abs=1e-6)
    assert denominator == pytest.approx(np.convolve(shelf[1], high[1]), abs=1e-6)


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        # EBU Tech 3341 (2016), table 1, tests 1 to 5: sines of 1 kHz, (dBFS, seconds); tolerance 0.1 LU. It plays them
        # on two channels, which is 3.01 LU louder than the one of a clip.
        ([(-23.0, 20)], -23.0),
        ([(-33.0, 20)], -33.0),
        ([(-36.0, 10), (-23.0, 60), (-36.0, 10)], -23.0),
        ([(-72.0, 10), (-36.0, 10), (-23.0, 60), (-36.0, 10), (-72.0, 10)], -23.0),
        ([(-26.0, 20), (-20.0, 20.1), (-26.0, 20)], -23.0),
    ],
)
def test_loudness_of_ebu_tech_3341_signals(
    parts: list[tuple[float, float]], expected: float, sounds: Any, figure: Figure
) -> None:
    clip = sounds.join(*(sounds.sine(1000, dbfs, seconds) for dbfs, seconds in parts))
    assert figure(clip, "loudness")[0] + 3.01 == pytest.approx(expected, abs=0.1)


@pytest.mark.parametrize("rate", [24_000, 44_100])
def test_loudness_of_speech_agrees_with_pyloudnorm(rate: int, figure: Figure) -> None:
    clip = Clip(speechlike(5.0, silence=1.0), RATE).resample(rate)
    theirs = pyloudnorm.Meter(rate, filter_class="DeMan").integrated_loudness(clip.samples)
    assert figure(clip, "loudness")[0] == pytest.approx(theirs, abs=0.02)
    assert theirs - clip.level > 1  # so the gate did something


@pytest.mark.parametrize(("rate", "seconds"), [(24_000, 0.45), (44_100, 1.37), (48_000, 2.0)])
def test_blockwise_loudness_agrees_with_the_direct_computation(
    rate: int, seconds: float, sounds: Any, figure: Figure
) -> None:
    # A low tone, of which the filter remembers most where one piece ends and the next begins.
    clip = sounds.sine(30, -6, seconds, rate=rate)
    weighted = np.square(lfilter(*_k_weighting(rate), clip.samples.astype(np.float64)))
    begins = [round(place * rate / 10) for place in range(int(seconds * 10 + 1e-9) - 3)]
    ends = [round((place + 4) * rate / 10) for place in range(len(begins))]
    blocks = np.array([weighted[begin:end].mean() for begin, end in zip(begins, ends, strict=True)])
    kept = blocks[blocks > blocks.mean() / 10]
    assert figure(clip, "loudness")[0] == pytest.approx(-0.691 + 10 * math.log10(kept.mean()), abs=1e-9)


@pytest.mark.parametrize(
    ("divisor", "phase", "peak", "expected"),
    [
        # EBU Tech 3341 (2016), tests 15 to 19: sines of a part of the rate, whose samples miss the peaks; +0.2, -0.4 dB.
        (4, 0.0, 0.50, -6.0),
        (4, 45.0, 0.50, -6.0),
        (6, 60.0, 0.50, -6.0),
        (8, 67.5, 0.50, -6.0),
        (4, 45.0, 1.41, 3.0),
    ],
)
def test_true_peak_of_ebu_tech_3341_signals(
    divisor: int, phase: float, peak: float, expected: float, sounds: Any, figure: Figure
) -> None:
    sine = sounds.sine(48_000 / divisor, 20 * math.log10(peak), 0.5, phase=phase)
    # Faded in and out: a sine that begins with a step has a peak of its own there.
    fade = np.minimum(1.0, np.arange(len(sine)) / 480)
    clip = sounds.clip(sine.samples * fade * fade[::-1])
    found = figure(clip, "true_peak")[0]
    assert expected - 0.4 <= found <= expected + 0.2
    assert found >= figure(clip, "peak")[0]


def test_fast_true_peak_agrees_with_full_oversampling(sounds: Any, figure: Figure) -> None:
    # Every fourth output of the 48-tap filter is one phase: the plain way is to filter four times the samples.
    interleaved = _FILTERS.T.reshape(-1)
    for seed in range(20):
        # Long ones, in several pieces, and one shorter than the filter.
        size = 7 if seed == 0 else 5000
        samples = np.clip(0.2 * np.random.default_rng(seed).standard_t(4, size), -1, 1).astype(np.float32)
        if seed == 1:
            samples[[0, -1]] = 1.0  # a peak at the very ends
        whole = np.abs(upfirdn(interleaved, samples.astype(np.float64), 4)).max()
        expected = 20 * math.log10(max(whole, np.abs(samples).max()))
        assert figure(sounds.clip(samples), "true_peak")[0] == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("true", [5.0, 20.0, 40.0])
def test_snr_of_added_noise(true: float, sounds: Any, figure: Figure) -> None:
    speech = sounds.join(*[sounds.noise(0.5, 0.1, seed=1), sounds.noise(0.5, 1e-9)] * 3)
    noise = sounds.noise(3.0, 0.1 * 10 ** (-true / 20), seed=2)
    clip = sounds.clip(speech.samples + noise.samples)
    assert figure(clip, "snr")[0] == pytest.approx(true, abs=1.0)


@pytest.mark.parametrize("true", [10.0, 20.0, 40.0])
def test_snr_of_rumble_in_a_clip_of_mostly_pauses(true: float, sounds: Any, figure: Figure) -> None:
    # Low noise has few independent samples in a frame, so that frames differ, and the quietest are far below the mean.
    speech = sounds.join(*[sounds.noise(0.5, 0.1, 24_000, seed=1), sounds.clip(np.zeros(18_000), 24_000)] * 4)
    hum = lfilter(*butter(2, 300 / 12_000), np.random.default_rng(2).standard_normal(len(speech)))
    hum *= 0.1 * 10 ** (-true / 20) / hum.std()
    assert figure(sounds.clip(speech.samples + hum, 24_000), "snr")[0] == pytest.approx(true, abs=0.5)


@pytest.mark.parametrize(
    ("metric", "clip", "why"),
    [
        ("loudness", np.full(19_000, 0.1), "at least 0.4 s"),
        ("loudness", np.full(48_000, 1e-5), "gate of -70"),
        ("level", np.zeros(48_000), "silent"),
        ("level", np.zeros(0), "silent"),
        ("peak", np.zeros(48_000), "silent"),
        ("true_peak", np.zeros(48_000), "silent"),
        ("snr", np.zeros(48_000), "digital silence"),
        ("snr", np.zeros(10), "must be at least 10 ms, got 0.2 ms"),
        ("snr", np.concatenate((np.zeros(24_000), np.full(24_000, 0.1))), "digital silence"),
        # One faint step among the quietest, and all others silent.
        ("snr", np.concatenate((np.full(38_400, 0.2), np.zeros(2_400), np.full(480, 0.003))), "digital silence"),
    ],
)
def test_undefined_levels_have_reasons(metric: str, clip: Any, why: str, sounds: Any, figure: Figure) -> None:
    value, reason = figure(sounds.clip(clip), metric)
    assert math.isnan(value)
    assert reason.startswith(f"{metric}: ")
    assert why in reason


def test_loudness_at_low_rate_is_undefined(sounds: Any, figure: Figure) -> None:
    assert "8000 Hz" in figure(sounds.sine(100, -6, 1.0, rate=4000), "loudness")[1]
