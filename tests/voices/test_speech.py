from __future__ import annotations

import math

import numpy as np
import pytest

from tests.speechlike import RATE, speechlike
from voicelab.audio.samples import Samples
from voicelab.voices.speech import survey


def _white(level: float, seconds: float = 3.0) -> Samples:
    return (level * np.random.default_rng(1).standard_normal(int(seconds * RATE))).astype(np.float32)


def _tone(hertz: float = 170.0) -> Samples:
    return (0.3 * np.sin(2 * np.pi * hertz * np.arange(3 * RATE) / RATE)).astype(np.float32)


def _bursts() -> Samples:
    # Noise that comes and goes: its level moves as that of speech, and nothing in it repeats.
    return _white(0.2) * (np.sin(2 * np.pi * 3 * np.arange(3 * RATE) / RATE) > 0)


@pytest.mark.parametrize("pitch", [70, 100, 140, 250, 400])
@pytest.mark.parametrize("noise", [0.0, 0.003, 0.02])
def test_voices_of_every_pitch_are_speech(pitch: float, noise: float) -> None:
    assert survey(speechlike(4, pitch, noise), RATE).trouble == ""


@pytest.mark.parametrize(
    ("sound", "why"),
    [
        (np.zeros(0, np.float32), "too short"),
        (np.zeros(100, np.float32), "too short"),
        (np.zeros(3 * RATE, np.float32), "silent"),
        (np.full(3 * RATE, 0.5, np.float32), "silent"),
        (_white(1e-4), "silent"),
        (_tone(), "never moves"),
        (_white(0.1), "never moves"),
        (_bursts(), "no voice"),
        (speechlike(0.4, silence=1), "less than"),
    ],
    ids=["nothing", "a moment", "zeros", "a constant", "hiss", "a tone", "noise", "bursts of noise", "a syllable"],
)
def test_what_is_no_speech_is_told_with_its_reason(sound: Samples, why: str) -> None:
    assert why in survey(sound.astype(np.float32), RATE).trouble


def test_its_ends_are_found() -> None:
    found = survey(speechlike(3, noise=0.001, silence=2), RATE)
    assert found.start == pytest.approx(2.0, abs=0.06)
    assert found.end == pytest.approx(5.0, abs=0.3)


@pytest.mark.parametrize("ratio", [5, 10, 20, 30])
def test_the_ratio_of_speech_to_noise_is_estimated(ratio: float) -> None:
    clean = speechlike(6)
    loud = clean[np.abs(clean) > 0]
    noise = float(np.sqrt(np.mean(np.square(loud)))) / 10 ** (ratio / 20)
    assert survey(speechlike(6, noise=noise), RATE).snr == pytest.approx(ratio, abs=3)


def test_without_noise_there_is_no_ratio() -> None:
    assert survey(speechlike(6), RATE).snr == math.inf
