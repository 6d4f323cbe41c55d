from __future__ import annotations

import numpy as np
import pytest

from tests.noises import KINDS, noisy, segmental_snr, si_sdr, spectral_distance
from tests.speechlike import RATE, speechlike
from tests.voices.conftest import Spoken
from voicelab.audio.samples import Samples
from voicelab.voices.enhance import enhance


@pytest.fixture(scope="module", params=[110.0, 210.0], ids=["low", "high"])
def clean(request: pytest.FixtureRequest) -> Samples:
    return speechlike(6, request.param)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("snr", [5, 10, 15])
def test_noisy_speech_comes_nearer_to_the_clean(clean: Samples, kind: str, snr: float) -> None:
    before = noisy(clean, RATE, kind, snr)
    after = enhance(before, RATE)
    assert si_sdr(clean, after) > si_sdr(clean, before) + 4
    assert segmental_snr(clean, after) > segmental_snr(clean, before) + 3.5
    assert spectral_distance(clean, after, RATE) < spectral_distance(clean, before, RATE)


def test_clean_speech_is_left_alone(clean: Samples, spoken: tuple[Spoken, ...]) -> None:
    assert si_sdr(clean, enhance(clean, RATE)) > 25
    for one in spoken:
        after = enhance(one.samples, one.rate)
        assert si_sdr(one.samples, after) > 35
        assert spectral_distance(one.samples, after, one.rate) < 1.5


def test_a_spoken_voice_comes_nearer_too(spoken: tuple[Spoken, ...]) -> None:
    for number, kind in enumerate(KINDS):
        one = spoken[number % len(spoken)]
        before = noisy(one.samples, one.rate, kind, 8)
        after = enhance(before, one.rate)
        assert si_sdr(one.samples, after) > si_sdr(one.samples, before) + 4
        assert segmental_snr(one.samples, after) > segmental_snr(one.samples, before) + 4


def test_speech_without_a_pause_is_not_taken_for_noise(spoken: tuple[Spoken, ...]) -> None:
    for one in spoken:
        whole = one.samples[: one.samples.size // 882 * 882].reshape(-1, 882)
        power = np.mean(np.square(whole), axis=1)
        unpaused = whole[power > 0.002 * power.max()].reshape(-1)
        after = enhance(unpaused, one.rate)
        assert si_sdr(unpaused, after) > 15
        assert spectral_distance(unpaused, after, one.rate) < 4


@pytest.mark.parametrize("rate", [8000, 16_000, 44_100, 48_000])
@pytest.mark.parametrize("size", [0, 1, 500, 20_001])
def test_length_and_time_are_kept(rate: int, size: int) -> None:
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
def test_odd_sounds_stay_finite(sound: Samples) -> None:
    after = enhance(sound.astype(np.float32), RATE)
    assert np.isfinite(after).all()
    assert np.abs(after).max() <= 1
