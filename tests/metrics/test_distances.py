from __future__ import annotations

import importlib.util
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pystoi
import pytest
from scipy.signal import firwin2, lfilter

from tests.speechlike import RATE, speechlike
from voicelab.clip import Clip
from voicelab.errors import MissingExtra
from voicelab.metrics import measure
from voicelab.metrics.distances import cepstrum

Figure = Callable[..., tuple[float, str]]
_TO_DB = 10 * math.sqrt(2) / math.log(10)


@pytest.fixture(scope="module")
def speech() -> Clip:
    return Clip(speechlike(3.0, noise=0.001), RATE)


def test_mcd_constant_gives_the_rms_of_a_ripple() -> None:
    # Spectra that differ by a cosine of 3 dB over the mel scale differ by 3 / sqrt(2) dB; c0, a change of level, is out.
    bands = np.arange(80)[:, None]
    flat = np.full((80, 1), -40.0)
    rippled = flat + 7.0 + 3.0 * np.cos(np.pi * 5 * (bands + 0.5) / 80)
    distance = np.linalg.norm(cepstrum(rippled, 24) - cepstrum(flat, 24))
    assert _TO_DB * distance == pytest.approx(3 / math.sqrt(2))
    assert cepstrum(rippled, 24)[4, 0] == pytest.approx(3 * math.log(10) / 20)


def test_distance_to_itself_is_zero_at_any_level(speech: Clip, figure: Figure) -> None:
    assert figure(speech, "mfcc_distance", reference=speech)[0] == 0.0
    assert figure(Clip(speech.samples * 0.25, RATE), "mfcc_distance", reference=speech)[0] == pytest.approx(
        0.0, abs=0.02
    )


def test_distance_of_a_filter_of_known_ripple(sounds: Any, figure: Figure) -> None:
    # Hiss through a filter that swings by 4 dB over the mel scale: 4 / sqrt(2) dB, plus the estimation noise of two
    # spectra, which the unfiltered hiss of another seed has alone.
    import librosa

    hertz = np.linspace(0, 8000, 257)
    mels = librosa.hz_to_mel(hertz) / librosa.hz_to_mel(8000.0)
    taps = firwin2(801, hertz / 8000, 10 ** (4 * np.cos(np.pi * 4 * mels) / 20))
    plain, other = sounds.noise(2.0, 0.05, 16_000, seed=1), sounds.noise(2.0, 0.05, 16_000, seed=2)
    filtered = sounds.clip(lfilter(taps, 1, other.samples), 16_000)
    noise = figure(other, "mfcc_distance", reference=plain)[0]
    found = figure(filtered, "mfcc_distance", reference=plain)[0]
    assert math.sqrt(found**2 - noise**2) == pytest.approx(4 / math.sqrt(2), rel=0.12)


def test_warping_compensates_tempo_and_silence(speech: Clip, sounds: Any, figure: Figure) -> None:
    slower = Clip(np.repeat(speech.samples.reshape(-1, 240), 2, axis=0).reshape(-1)[: 2 * len(speech)], RATE)
    late = sounds.join(sounds.clip(np.zeros(RATE), RATE), speech, sounds.clip(np.zeros(RATE), RATE))
    assert figure(late, "mfcc_distance", reference=speech)[0] < 0.1
    other = Clip(speechlike(3.0, pitch=240.0, noise=0.001), RATE)
    assert figure(slower, "mfcc_distance", reference=speech)[0] < figure(other, "mfcc_distance", reference=speech)[0]


@pytest.mark.parametrize("semitones", [0.0, 2.0, 5.0])
def test_f0_rmse_of_a_transposed_voice(semitones: float, figure: Figure) -> None:
    low, high = (Clip(speechlike(2.0, pitch=140 * 2 ** (s / 12)), RATE) for s in (0.0, semitones))
    assert figure(high, "log_f0_rmse", reference=low)[0] == pytest.approx(semitones, abs=0.25)


def test_stoi_agrees_with_pystoi(speech: Clip, figure: Figure) -> None:
    clean = speech.resample(16_000)
    noise = 0.05 * np.random.default_rng(0).standard_normal(len(clean))
    noisy = Clip(np.clip(clean.samples + noise, -1, 1).astype(np.float32), 16_000)
    found = figure(noisy, "stoi", reference=clean)[0]
    assert found == pytest.approx(pystoi.stoi(clean.samples, noisy.samples, 16_000), abs=1e-6)
    assert 0.1 < found < 0.95
    assert figure(clean, "stoi", reference=clean)[0] == pytest.approx(1.0)


@pytest.mark.parametrize("late_ms", [2.5, 4.9, -4.9])
def test_stoi_compensates_a_lag(late_ms: float, speech: Clip, sounds: Any, figure: Figure) -> None:
    silence = sounds.clip(np.zeros(round(abs(late_ms) * RATE / 1000)), RATE)
    parts = (silence, speech) if late_ms > 0 else (speech.slice(abs(late_ms) / 1000, 9), silence)
    clip = sounds.join(*parts).slice(0, speech.duration)
    assert figure(clip, "stoi", reference=speech)[0] == pytest.approx(1.0, abs=0.001)


def test_pesq_where_installed(speech: Clip, figure: Figure) -> None:
    clean = speech.resample(16_000)
    if importlib.util.find_spec("pesq") is None:
        with pytest.raises(MissingExtra, match=r"pip install .*\[pesq\]"):
            figure(clean, "pesq", reference=clean)
        return
    # The largest score of P.862.2's mapping, for a signal compared with itself.
    assert figure(clean, "pesq", reference=clean)[0] == pytest.approx(4.64, abs=0.01)
    noise = 0.02 * np.random.default_rng(0).standard_normal(len(clean))
    noisy = Clip(np.clip(clean.samples + noise, -1, 1).astype(np.float32), 16_000)
    assert 1.0 < figure(noisy, "pesq", reference=clean)[0] < 3.0


def test_misaligned_reference_is_undefined(speech: Clip, sounds: Any, figure: Figure) -> None:
    silence = sounds.clip(np.zeros(RATE // 20), RATE)
    later = sounds.join(silence, speech).slice(0, speech.duration)
    reason = figure(later, "stoi", reference=speech)[1]
    assert "the clip must be aligned with the reference within 5 ms, got a lag of +50 ms" in reason
    reason = figure(speech.slice(0, 2.5), "stoi", reference=speech)[1]
    assert "at most 50 ms, got 2.50 s and, for the reference, 3.00 s" in reason
    assert "silent" in figure(sounds.clip(np.zeros(len(speech)), RATE), "stoi", reference=speech)[1]
    assert "0.4 s" in figure(speech.slice(0, 0.2), "stoi", reference=speech.slice(0, 0.2))[1]


def test_undefined_distances_have_reasons(speech: Clip, sounds: Any, figure: Figure) -> None:
    assert "8 kHz" in figure(speech.resample(8000), "mfcc_distance", reference=speech)[1]
    assert "16000 Hz" in figure(speech.resample(8000), "stoi", reference=speech)[1]
    assert "no reference" in measure([speech, speech], ["mfcc_distance"], reference=[speech, None]).undefined[1]
    hiss = sounds.noise(1.0, 0.05, RATE)
    assert "voiced in both" in figure(hiss, "log_f0_rmse", reference=speech.slice(0, 1))[1]
    long = sounds.noise(51.0, 0.05, 16_000)
    assert "at most 50 s" in figure(long, "mfcc_distance", reference=long)[1]
    assert "silent" in figure(sounds.clip(np.zeros(RATE), RATE), "mfcc_distance", reference=speech)[1]
