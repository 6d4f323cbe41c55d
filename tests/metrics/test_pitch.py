from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from voicelab.clip import Clip
from voicelab.metrics import Subject, measure
from voicelab.metrics.pitch import pulses

Figure = Callable[..., tuple[float, str]]


@pytest.fixture(scope="module")
def vibrato(sounds: Any) -> Clip:
    """A vowel that swings two semitones up and down around 150 Hz, three times a second, for two seconds."""
    times = np.arange(2 * 24_000) / 24_000
    phase = 2 * np.pi * np.cumsum(150 * 2 ** (2 * np.sin(2 * np.pi * 3 * times) / 12)) / 24_000
    clip: Clip = sounds.clip(0.1 * sum(np.sin(k * phase) / k for k in range(1, 9)), 24_000)
    return clip


def test_statistics_of_a_known_melody(vibrato: Clip) -> None:
    row = measure([vibrato], ["f0_median", "f0_geometric_mean", "f0_sd", "f0_range", "voiced_share"]).iloc[0]
    assert row.f0_median == pytest.approx(150, rel=0.01)
    assert row.f0_geometric_mean == pytest.approx(150, rel=0.01)
    # A sine of 2 semitones: sd 2 / sqrt(2); 90 % of its time lies within 2 sin(0.45 pi) of the middle.
    assert row.f0_sd == pytest.approx(math.sqrt(2), rel=0.05)
    assert row.f0_range == pytest.approx(4 * math.sin(0.45 * math.pi), rel=0.05)
    assert row.voiced_share > 0.97


def test_voiced_share_is_of_speech_frames(vibrato: Clip, sounds: Any, figure: Figure) -> None:
    hiss = sounds.noise(2.0, 0.07, 24_000)
    half = sounds.join(sounds.clip(np.zeros(24_000), 24_000), hiss, vibrato)
    assert figure(half, "voiced_share")[0] == pytest.approx(0.5, abs=0.05)


@pytest.mark.parametrize("percent", [0.0, 0.5, 1.5])
def test_jitter_of_known_period_variation(percent: float, sounds: Any, figure: Figure) -> None:
    # The mean distance of two independent normal numbers is 2 sd / sqrt(pi).
    rng = np.random.default_rng(3)
    periods = 0.008 * (1 + percent / 100 * math.sqrt(math.pi) / 2 * rng.standard_normal(250))
    steps = np.abs(np.diff(periods)).mean() / periods.mean() * 100
    assert figure(sounds.pulses(periods, 1.0), "jitter")[0] == pytest.approx(steps, abs=0.06 + 0.1 * steps)


@pytest.mark.parametrize("percent", [0.0, 3.0, 8.0])
def test_shimmer_of_known_amplitude_variation(percent: float, sounds: Any, figure: Figure) -> None:
    rng = np.random.default_rng(4)
    heights = 1 + percent / 100 * math.sqrt(math.pi) / 2 * rng.standard_normal(250)
    steps = np.abs(np.diff(heights)).mean() / heights.mean() * 100
    clip = sounds.pulses(np.full(250, 0.008), heights)
    for metric in ("shimmer_local", "shimmer_rms"):
        assert figure(clip, metric)[0] == pytest.approx(steps, abs=0.3 + 0.15 * steps)


def _bursts(sounds: Any, gap: float, periods: list[Any], heights: Any = 1.0) -> Clip:
    silence = sounds.clip(np.zeros(round(gap * 48_000)))
    joined: Clip = sounds.join(*(part for each in periods for part in (silence, sounds.pulses(each, heights))), silence)
    return joined


@pytest.mark.parametrize("count", [14, 24])
@pytest.mark.parametrize("noise", [0.0, 0.0005])
def test_edges_of_voiced_intervals_add_no_jitter(count: int, noise: float, sounds: Any) -> None:
    clip = _bursts(sounds, 0.15, [np.full(count, 1 / 120)] * 4)
    hiss = noise * np.random.default_rng(0).standard_normal(len(clip))
    row = measure([sounds.clip(clip.samples + hiss)], ["jitter", "shimmer_local", "shimmer_rms"]).iloc[0]
    assert row.jitter == pytest.approx(0.0, abs=0.01)
    assert row[["shimmer_local", "shimmer_rms"]].to_numpy() == pytest.approx([0.0, 0.0], abs=0.3)


def test_jitter_of_short_bursts(sounds: Any, figure: Figure) -> None:
    rng = np.random.default_rng(5)
    periods = [0.008 * (1 + 0.01 * rng.standard_normal(25)) for _ in range(8)]
    # The first of each is the time before its first pulse.
    steps = [np.abs(np.diff(each[1:])) for each in periods]
    truth = 100 * np.mean(steps) / np.mean([each[1:] for each in periods])
    assert figure(_bursts(sounds, 0.1, periods), "jitter")[0] == pytest.approx(truth, rel=0.03)


@pytest.mark.parametrize("gap", [0.1, 0.03])
def test_pulses_on_both_sides_of_the_largest_peak(gap: float, sounds: Any) -> None:
    # The gap of 0.03 s is too short for the pitch to have one: what is left of a voiced stretch is searched, too.
    arch = np.sin(np.pi * (np.arange(24) + 0.5) / 24)
    clip = _bursts(sounds, gap, [np.full(24, 0.008)] * 4, arch)
    found = sorted(pulses(Subject(clip)), key=lambda stretch: stretch[0, 0])
    assert len(found) == 4
    for number, stretch in enumerate(found):
        assert len(stretch) >= 22
        assert np.diff(stretch[:, 0]) == pytest.approx(0.008, abs=1e-5)
        begin = gap + number * (gap + 24 * 0.008 + 0.02)
        assert begin < stretch[0, 0] < stretch[-1, 0] < begin + 25 * 0.008


@pytest.mark.parametrize("rate", [16_000, 44_100])
@pytest.mark.parametrize(("slope", "color"), [(0.0, 0.0), (-3.01, 0.5), (-6.02, 1.0)])
def test_spectral_tilt_of_colored_noise(slope: float, color: float, rate: int, sounds: Any, figure: Figure) -> None:
    # Amplitude 1 / f^color is a power that falls by 6.02 dB times color each octave: white, pink and red.
    spectrum = np.fft.rfft(np.random.default_rng(5).standard_normal(4 * rate))
    spectrum[1:] /= np.arange(1, spectrum.size) ** color
    spectrum[0] = 0
    samples = np.fft.irfft(spectrum)
    clip = sounds.clip(0.5 * samples / np.abs(samples).max(), rate)
    assert figure(clip, "spectral_tilt")[0] == pytest.approx(slope, abs=0.15)


@pytest.mark.parametrize("metric", ["f0_median", "f0_geometric_mean", "f0_sd", "f0_range"])
def test_noise_and_silence_have_no_f0(metric: str, sounds: Any, figure: Figure) -> None:
    for clip in (sounds.clip(np.zeros(24_000)), sounds.clip(np.zeros(0))):
        value, reason = figure(clip, metric)
        assert math.isnan(value)
        assert "voiced" in reason


def test_undefined_voice_metrics_have_reasons(sounds: Any, figure: Figure) -> None:
    assert "long enough" in figure(sounds.noise(0.5, 0.1), "jitter")[1]
    assert "long enough" in figure(sounds.clip(np.zeros(0)), "shimmer_local")[1]
    assert "16000 Hz" in figure(sounds.noise(0.5, 0.1, rate=8000), "spectral_tilt")[1]
    assert "more than 10 ms" in figure(sounds.clip(np.full(480, 0.1)), "spectral_tilt")[1]
    assert figure(sounds.clip(np.full(100, 0.1)), "voiced_share")[1]
