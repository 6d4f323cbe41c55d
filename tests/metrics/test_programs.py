"""Praat and WORLD are asked where their extras are installed, as the nightly run does."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest
from scipy.signal import lfilter

from voicelab.clip import Clip
from voicelab.metrics import measure
from voicelab.metrics.programs import mel_cepstrum

Figure = Callable[..., tuple[float, str]]


PERIODS = (1 + 0.01 * np.random.default_rng(3).standard_normal(240)) / 120
"""Of a voice at 120 Hz with a jitter of 1.1 %."""


@pytest.fixture(scope="module")
def vowel(sounds: Any) -> Clip:
    clip: Clip = sounds.pulses(PERIODS, 1 + 0.05 * np.random.default_rng(4).standard_normal(240))
    return clip


@pytest.mark.thorough  # Praat is GPL: the nightly run installs it, no extra for development does
def test_praat_metrics_agree_with_synthesis_and_ours(vowel: Clip, sounds: Any, figure: Figure) -> None:
    parselmouth = pytest.importorskip("parselmouth")
    row = measure([vowel], ["jitter", "praat_jitter_local", "shimmer_local", "praat_shimmer_local", "praat_cpps"]).iloc[
        0
    ]
    assert row.praat_jitter_local == pytest.approx(100 * np.abs(np.diff(PERIODS)).mean() / PERIODS.mean(), rel=0.05)
    assert row.jitter == pytest.approx(row.praat_jitter_local, rel=0.05)
    assert row.shimmer_local == pytest.approx(row.praat_shimmer_local, rel=0.05)
    assert row.praat_cpps > 10
    # A sine 20 dB above noise.
    sine = sounds.sine(200, -6, 2.0)
    loud = sounds.clip(sine.samples + sounds.noise(2.0, 0.1 * 10 ** (-9.03 / 20)).samples)
    assert figure(loud, "praat_hnr")[0] == pytest.approx(20.0, abs=1.0)
    sound = parselmouth.Sound(loud.samples.astype(np.float64), loud.rate)
    assert figure(loud, "praat_hnr")[0] == pytest.approx(
        parselmouth.praat.call(sound.to_harmonicity_cc(0.01, 75.0, 0.1, 1.0), "Get mean", 0, 0)
    )
    for name in ("praat_jitter_local", "praat_shimmer_local"):
        assert "no voiced interval" in figure(sounds.clip(np.zeros(48_000)), name)[1]
    assert "Praat failed on a clip of 0.00 s" in figure(sounds.noise(0.003, 0.1), "praat_hnr")[1]


def test_mel_cepstra_agree_with_sptk() -> None:
    angles = np.arange(129) * np.pi / 128
    power = np.exp(np.cos(angles) + 0.3 * np.cos(4 * angles))[None]
    # pysptk 1.0.1: sp2mc(power, order=4, alpha=0.42).
    sptk = [0.2146675440, 0.4484113261, -0.0806431564, 0.1294232792, -0.0846017870]
    assert mel_cepstrum(power, 4, 0.42)[0] == pytest.approx(sptk, abs=1e-8)


@pytest.mark.thorough  # pyworld is compiled when it is installed, which the nightly run does
def test_mcd_of_world_envelopes(vowel: Clip, sounds: Any, figure: Figure) -> None:
    if find_spec("pyworld") is None:
        pytest.skip("pyworld is not installed")
    assert figure(vowel, "mcd", reference=vowel)[0] == 0.0
    # Level is left out, the shape of the spectrum is not.
    half = sounds.clip(0.5 * vowel.samples)
    dull = sounds.clip(lfilter([0.3], [1.0, -0.7], vowel.samples))
    assert figure(half, "mcd", reference=vowel)[0] < 0.1
    assert 0.5 < figure(dull, "mcd", reference=vowel)[0] < 5
    short = vowel.resample(8000)
    assert "got 8000" in figure(short, "mcd", reference=vowel)[1]
