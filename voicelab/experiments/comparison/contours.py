"""How pitch and level of one clip differ from another's, moment by moment, at the same word."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from voicelab.audio.analysis import Contour, energy, f0
from voicelab.audio.clip import Clip
from voicelab.experiments.comparison.alignment import Alignment
from voicelab.experiments.metrics.activity import HOP_S

__all__ = ["Contours", "Difference", "contours_of", "difference"]

_Floats = npt.NDArray[np.float64]

# As far below a clip's loudest moment its level counts: what is fainter is its pauses, on which no two takes agree.
_DYNAMIC_DB = 40.0


@dataclass(frozen=True, eq=False)
class Contours:
    """Pitch (Hz) and level (dBFS) of a clip, a value every 10 ms."""

    f0: Contour
    energy: Contour


@dataclass(frozen=True, eq=False)
class Difference:
    """How far a clip is above another one: ``times`` in seconds of that one, (frames,), every 10 ms.

    ``f0`` in semitones, NaN unless both are voiced there; ``energy`` in dB, of levels down to 40 dB below the loudest
    of each.
    """

    times: _Floats = field(repr=False)
    f0: _Floats = field(repr=False)
    energy: _Floats = field(repr=False)


def contours_of(clip: Clip) -> Contours:
    """Return what is compared of a clip: F0 by yin, RMS levels of 25 ms."""
    return Contours(f0(clip, hop_s=HOP_S), energy(clip, hop_s=HOP_S))


def difference(first: Contours, second: Contours, alignment: Alignment) -> Difference:
    """Return how far ``second`` is above ``first`` wherever ``alignment`` says that the same is said."""
    times = np.arange(first.energy.values.size, dtype=np.float64) * HOP_S
    there = np.asarray(np.interp(times, alignment.first, alignment.second), np.float64)
    pitch = 12.0 * np.log2(_at(second.f0, there) / _at(first.f0, times))
    return Difference(times, pitch, _level(second.energy, there) - _level(first.energy, times))


def _level(contour: Contour, moments: _Floats) -> _Floats:
    levels: _Floats = np.maximum(_at(contour, moments), contour.values.max(initial=-_DYNAMIC_DB) - _DYNAMIC_DB)
    return levels


def _at(contour: Contour, moments: _Floats) -> _Floats:
    """Return the values of the frames that are nearest to some moments, NaN where there are none."""
    if not contour.values.size:
        return np.full(moments.shape, np.nan)
    places = np.clip(np.round(moments / HOP_S).astype(np.intp), 0, contour.values.size - 1)
    found: _Floats = contour.values[places]
    return found
