"""Telephone bandwidth: detection, measurement and simulation."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from voicelab.audio.samples import resample
from voicelab.engine.pointer.speakers import TelephoneBand, limit_band, telephone_band

RATE = 44_100


def _noise(seconds: float = 4.0) -> NDArray[np.float32]:
    return (0.1 * np.random.default_rng(1).standard_normal(int(seconds * RATE))).astype(np.float32)


def _share(samples: NDArray[np.float32], low: float, high: float) -> float:
    power, hertz = np.abs(np.fft.rfft(samples)) ** 2, np.fft.rfftfreq(samples.size, 1 / RATE)
    return float(power[(hertz >= low) & (hertz <= high)].sum() / power.sum())


@pytest.mark.parametrize(("rate", "told"), [(8_000, True), (11_025, False), (16_000, False), (44_100, False)])
def test_telephone_detection(rate: int, told: bool) -> None:
    """The same noise at several sample rates, resampled to the codec's."""
    recorded = resample(resample(_noise(), RATE, rate), rate, RATE)
    assert (telephone_band(recorded, RATE) is not None) is told


@pytest.mark.parametrize(("low", "high"), [(300.0, 3400.0), (60.0, 3900.0), (150.0, 2800.0)])
def test_band_edges(low: float, high: float) -> None:
    found = telephone_band(limit_band(_noise(), RATE, TelephoneBand(low, high)), RATE)
    assert found is not None
    assert (found.low, found.high) == pytest.approx((low, high), abs=3)


def test_line_noise_does_not_widen_the_band() -> None:
    """Noise of 8-bit mu-law: 38 dB below speech, up to 4 kHz."""
    speech = limit_band(_noise(), RATE, TelephoneBand(300.0, 3400.0))
    line = limit_band(np.roll(_noise(), 999), RATE, TelephoneBand(0.0, 4000.0))
    line *= np.sqrt(np.mean(speech**2) / np.mean(line**2)) * 10 ** (-38 / 20)
    found = telephone_band(speech + line, RATE)
    assert found is not None
    assert (found.low, found.high) == pytest.approx((300, 3400), abs=10)


def test_silence_has_no_band() -> None:
    assert telephone_band(np.zeros(RATE, np.float32), RATE) is None


def test_limit_band() -> None:
    heard = limit_band(_noise(2.0), RATE, TelephoneBand(300.0, 3400.0))
    assert heard.dtype == np.float32
    assert heard.size == 2 * RATE
    assert _share(heard, 299, 3401) == pytest.approx(1)
    assert telephone_band(heard, RATE) == telephone_band(limit_band(heard, RATE, TelephoneBand(300.0, 3400.0)), RATE)
