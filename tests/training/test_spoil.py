"""Degradations of references."""

from __future__ import annotations

import numpy as np
import pytest

from training.spoil import telephone

RATE = 44_100


def _below(samples: np.ndarray[tuple[int], np.dtype[np.float32]], hertz: float) -> float:
    """Compute the fraction of power below a frequency in dB."""
    power = np.abs(np.fft.rfft(samples)) ** 2
    return float(10 * np.log10(power[: int(hertz * samples.size / RATE)].sum() / power.sum()))


@pytest.mark.parametrize("low", [200.0, 300.0, 400.0])
def test_steep_telephone_removes_the_fundamental(low: float) -> None:
    """The default 18 dB per octave filter keeps the fundamental."""
    time = np.arange(RATE) / RATE
    partials = np.arange(1, 40)[:, None]
    voice = (0.1 * (np.cos(2 * np.pi * 110 * partials * time) / partials).sum(0)).astype(np.float32)
    gentle, steep = telephone(voice, RATE), telephone(voice, RATE, low=low)
    assert steep.size == voice.size
    assert _below(gentle, 120) > -25
    assert _below(steep, 120) < -35
