from __future__ import annotations

import math

import numpy as np
import pytest

from tests.noises import KINDS, noisy, segmental_snr, si_sdr, spectral_distance
from tests.speechlike import RATE, speechlike
from tests.utterances import Utterance
from voicelab.audio.denoise import enhance, survey
from voicelab.audio.samples import Samples


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
    assert survey(speechlike(4, pitch, noise), RATE).problem == ""


@pytest.mark.parametrize(
    ("sound", "why"),
    [
        (np.zeros(0, np.float32), "too short"),
        (np.zeros(100, np.float32), "too short"),
        (np.zeros(3 * RATE, np.float32), "silent"),
        (np.full(3 * RATE, 0.5, np.float32), "silent"),
        (_white(1e-4), "silent"),
        (_tone(), "constant level"),
        (_white(0.1), "constant level"),
        (_bursts(), "no voiced frames"),
        (speechlike(0.4, silence=1), "less than"),
    ],
    ids=["nothing", "a moment", "zeros", "a constant", "hiss", "a tone", "noise", "bursts of noise", "a syllable"],
)
def test_sounds_other_than_speech_have_a_reason(sound: Samples, why: str) -> None:
    assert why in survey(sound.astype(np.float32), RATE).problem


def test_start_and_end_are_detected() -> None:
    found = survey(speechlike(3, noise=0.001, silence=2), RATE)
    assert found.start == pytest.approx(2.0, abs=0.06)
    assert found.end == pytest.approx(5.0, abs=0.3)


@pytest.mark.parametrize("ratio", [5, 10, 20, 30])
def test_snr_is_estimated(ratio: float) -> None:
    clean = speechlike(6)
    loud = clean[np.abs(clean) > 0]
    noise = float(np.sqrt(np.mean(np.square(loud)))) / 10 ** (ratio / 20)
    assert survey(speechlike(6, noise=noise), RATE).snr == pytest.approx(ratio, abs=3)


def test_snr_without_noise_is_infinite() -> None:
    assert survey(speechlike(6), RATE).snr == math.inf


@pytest.fixture(scope="module", params=[110.0, 210.0], ids=["low", "high"])
def clean(request: pytest.FixtureRequest) -> Samples:
    return speechlike(6, request.param)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("snr", [5, 10, 15])
def test_enhanced_speech_is_closer_to_clean_speech(clean: Samples, kind: str, snr: float) -> None:
    before = noisy(clean, RATE, kind, snr)
    after = enhance(before, RATE)
    assert si_sdr(clean, after) > si_sdr(clean, before) + 4
    assert segmental_snr(clean, after) > segmental_snr(clean, before) + 3.5
    assert spectral_distance(clean, after, RATE) < spectral_distance(clean, before, RATE)


def test_clean_speech_is_nearly_unchanged(clean: Samples, utterances: tuple[Utterance, ...]) -> None:
    assert si_sdr(clean, enhance(clean, RATE)) > 25
    for one in utterances:
        after = enhance(one.samples, one.rate)
        assert si_sdr(one.samples, after) > 35
        assert spectral_distance(one.samples, after, one.rate) < 1.5


def test_enhanced_utterances_are_closer_to_clean_ones(utterances: tuple[Utterance, ...]) -> None:
    for number, kind in enumerate(KINDS):
        one = utterances[number % len(utterances)]
        before = noisy(one.samples, one.rate, kind, 8)
        after = enhance(before, one.rate)
        assert si_sdr(one.samples, after) > si_sdr(one.samples, before) + 4
        assert segmental_snr(one.samples, after) > segmental_snr(one.samples, before) + 4


def test_speech_without_pauses_is_not_removed(utterances: tuple[Utterance, ...]) -> None:
    for one in utterances:
        whole = one.samples[: one.samples.size // 882 * 882].reshape(-1, 882)
        power = np.mean(np.square(whole), axis=1)
        unpaused = whole[power > 0.002 * power.max()].reshape(-1)
        after = enhance(unpaused, one.rate)
        assert si_sdr(unpaused, after) > 15
        assert spectral_distance(unpaused, after, one.rate) < 4


@pytest.mark.parametrize("rate", [8000, 16_000, 44_100, 48_000])
@pytest.mark.parametrize("size", [0, 1, 500, 20_001])
def test_length_and_delay_are_unchanged(rate: int, size: int) -> None:
    sound = noisy(speechlike(2), RATE, "white", 15)[:size]
    after = enhance(sound, rate)
    assert after.size == sound.size
    assert after.dtype == np.dtype(np.float32)
    if size > 10_000:
        lags = [float(sound[100:-100] @ after[100 + lag : after.size - 100 + lag]) for lag in range(-90, 91)]
        assert int(np.argmax(lags)) == 90


@pytest.mark.parametrize(
    "sound", [np.zeros(RATE), np.ones(RATE), np.eye(1, RATE, 50)[0]], ids=["zeros", "ones", "click"]
)
def test_degenerate_signals_stay_finite(sound: Samples) -> None:
    after = enhance(sound.astype(np.float32), RATE)
    assert np.isfinite(after).all()
    assert np.abs(after).max() <= 1
