"""Where in a clip somebody speaks: the frames that levels, pauses and rates are counted on."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from voicelab.experiments.metrics.metric import Subject, Undefined

__all__ = ["HOP_S", "Activity", "activity", "frame_powers", "smoothed"]

HOP_S = 0.01
"""Seconds of one frame; frames do not overlap."""
_PER_SECOND = round(1 / HOP_S)
_BELOW_DB = 25.0
_ABOVE_NOISE_DB, _NEVER_WITHIN_DB = 6.0, 10.0
_INAUDIBLE = 1e-9
_SHORTEST_SOUND = 5
_SHORTEST_PAUSE_S = 0.25

_Bools = npt.NDArray[np.bool_]
_Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Activity:
    """Speech and pauses: ``active`` (frames,) of 10 ms; ``pauses`` (count, 2), begin and end of each in seconds.

    ``start`` and ``end`` in seconds are of the first and last speech.
    """

    active: _Bools
    pauses: _Floats
    start: float
    end: float


def frame_powers(subject: Subject) -> _Floats:
    """Return the mean power of every 10 ms, shape (frames,); a last frame that is not full is left out.

    Where 10 ms are no whole number of samples, as at 22.05 kHz, a sample is left out between some of them, so that they
    keep the time. Raises Undefined for a clip shorter than a frame.
    """
    clip = subject.clip
    count = len(clip) * _PER_SECOND // clip.rate
    if not count:
        raise Undefined(f"{clip.duration * 1000:.1f} ms is too short to measure")
    size = max(1, clip.rate // _PER_SECOND)
    begins = np.arange(count) * clip.rate // _PER_SECOND
    frames = np.lib.stride_tricks.sliding_window_view(clip.samples, size)[begins]
    powers: _Floats = np.einsum("ij,ij->i", frames, frames).astype(np.float64) / size
    return powers


def smoothed(powers: _Floats) -> _Floats:
    """Return frame powers averaged over three frames."""
    return np.convolve(powers, np.full(3, 1 / 3), "same") if powers.size >= 3 else powers


def activity(subject: Subject) -> Activity:
    """Find speech by its level.

    A frame (smoothed over 30 ms) is speech unless it is more than 25 dB below the 99th percentile of all
    frames, the threshold of N. H. de Jong & T. Wempe, "Praat script to detect syllable nuclei and measure
    speech rate automatically", Behavior Research Methods 41 (2009); in noise, it must also be 6 dB above the
    5th percentile, if that leaves 10 dB. What sounds for less than
    50 ms after smoothing is a click. A pause lies between two stretches of
    speech and lasts 0.25 s or longer, F. Goldman-Eisler's limit ("Psycholinguistics", 1968) between pauses and
    the silences of articulation.

    Raises Undefined for silence and for clips shorter than a frame.
    """
    powers = subject.once(frame_powers)
    smooth = smoothed(powers)
    peak, floor = np.quantile(smooth, (0.99, 0.05))
    if peak < _INAUDIBLE:
        raise Undefined("the clip is silent")
    below = np.array([_BELOW_DB, _NEVER_WITHIN_DB])
    quiet, loudest = peak * 10.0 ** (-below / 10.0)
    active = smooth >= max(quiet, min(floor * 10.0 ** (_ABOVE_NOISE_DB / 10.0), loudest))
    begins, ends = _runs(active)
    sounding = ends - begins >= _SHORTEST_SOUND
    if sounding.any():  # otherwise the clicks are all there is
        begins, ends = begins[sounding], ends[sounding]
    active = np.zeros(powers.size + 1, np.int64)
    active[begins] += 1
    active[ends] -= 1
    gaps = np.asarray(np.stack([ends[:-1], begins[1:]], axis=1) * HOP_S, np.float64)
    long = gaps[:, 1] - gaps[:, 0] >= _SHORTEST_PAUSE_S - 1e-9
    return Activity(np.cumsum(active)[:-1] > 0, gaps[long], float(begins[0] * HOP_S), float(ends[-1] * HOP_S))


def _runs(flags: _Bools) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    edges = np.diff(np.concatenate(([0], flags.astype(np.int8), [0])))
    return np.flatnonzero(edges == 1), np.flatnonzero(edges == -1)
