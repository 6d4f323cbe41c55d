from __future__ import annotations

import numpy as np
import pytest

from voicelab.audio.clip import Clip, WordTime
from voicelab.experiments.comparison.comparison import compare

RATE = 16_000


def tone(hertz: float, level: float, seconds: float = 1.0) -> Clip:
    """A tone between two pauses of a quarter of its length, that calls itself a word."""
    time = np.arange(round(seconds * RATE)) / RATE
    sound = level * np.sin(2 * np.pi * hertz * time)
    quiet = np.zeros(round(seconds / 4 * RATE))
    samples = np.concatenate([quiet, sound, quiet]).astype(np.float32)
    return Clip(samples, RATE, words=(WordTime("tone", seconds / 4, seconds * 1.25),))


def test_an_octave_and_six_decibels_at_the_same_word() -> None:
    found = compare(tone(200, 0.2), slow=tone(400, 0.4, 2.0)).contours["slow"]
    assert found.times.shape == found.f0.shape == found.energy.shape == (150,)
    inside = slice(32, 118)
    assert found.f0[inside] == pytest.approx(12.0, abs=0.05)
    assert found.energy[inside] == pytest.approx(6.02, abs=0.05)
    # Nothing is voiced in a pause, and how quiet a pause is does not count.
    assert np.isnan(found.f0[:15]).all()
    assert found.energy[:15] == pytest.approx(6.02, abs=0.05)


def test_silence_has_no_pitch_to_differ_from() -> None:
    silent = Clip(np.zeros(RATE, np.float32), RATE)
    found = compare(silent, tone(200, 0.2)).contours["B"]
    assert np.isnan(found.f0).all()
    assert np.isfinite(found.energy).all()
