"""The telephone that a reference came over: the band that it left, and how other speech sounds in it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

_TELEPHONE_HZ = 4000.0
_DARK_DB = -50.0
_BEYOND = 1e-4
"""Share of the power below a band, and as much above it: what 8 bits of mu-law add there is less."""


@dataclass(frozen=True)
class Band:
    """What is left of speech, in whole Hz."""

    low: float
    high: float


def telephone(samples: NDArray[np.float32], rate: int) -> Band | None:
    """The band of a recording over a telephone; None for one that has more than -50 dB of its power above 4 kHz.

    Args:
        samples: the recording, mono.
        rate: in Hz.
    """
    power, hertz = _power(samples), np.fft.rfftfreq(samples.size, 1 / rate)
    narrow = hertz <= _TELEPHONE_HZ
    below = float(power[narrow].sum())
    if below <= 0 or float(power[~narrow].sum()) > below * 10 ** (_DARK_DB / 10):
        return None
    share = power[narrow].cumsum() / below
    edges = hertz[np.searchsorted(share, (_BEYOND, 1 - _BEYOND))]
    return Band(*(float(round(edge)) for edge in edges))


def through(samples: NDArray[np.float32], rate: int, band: Band) -> NDArray[np.float32]:
    """The same speech, of which nothing is left but the band."""
    spectrum, hertz = np.fft.rfft(samples), np.fft.rfftfreq(samples.size, 1 / rate)
    spectrum[(hertz < band.low) | (hertz > band.high)] = 0
    return np.fft.irfft(spectrum, samples.size).astype(np.float32)


def _power(samples: NDArray[np.float32]) -> NDArray[np.float64]:
    power: NDArray[np.float64] = np.abs(np.fft.rfft(samples.astype(np.float64))) ** 2
    return power
