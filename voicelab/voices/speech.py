"""Is there speech in it, where does it begin and end, and how far is it above the noise?

Measured on 25 ms frames every 10 ms at 16 kHz. Speech is told by two things that no other steady sound has
together: frames that repeat themselves at 60 to 500 Hz, as vocal folds do (normalized autocorrelation,
Boersma 1993), and a level that moves with the syllables.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from voicelab.audio.samples import Samples, resample

__all__ = ["Survey", "survey"]

_RATE = 16_000
_FRAME, _HOP = 400, 160
_LONG, _LONG_HOP = 640, 320
_LAGS = slice(_RATE // 500, _RATE // 60 + 1)
_FFT = 2048
_BLOCK = 1000
_VOICED = 0.5
_INAUDIBLE = -60.0
_SHORTEST_VOICED = 0.2
_SHORTEST_ACTIVE = 0.5
_STEADY_DB = 1.5


@dataclass(frozen=True, slots=True)
class Survey:
    """What a recording holds: where sound begins and ends (s), its level (dBFS) and SNR (dB), and what is wrong.

    ``trouble`` says why it is no speech, and is empty when it is; ``snr`` is infinite without any noise.
    """

    start: float
    end: float
    level: float
    snr: float
    trouble: str


def survey(samples: Samples, rate: int) -> Survey:
    """Look at mono samples in [-1, 1] at ``rate`` Hz."""
    sound = resample(samples - np.float32(samples.mean()), rate, _RATE) if samples.size else samples
    if sound.size < _LONG:
        return Survey(0.0, 0.0, -math.inf, 0.0, "it is too short to hold speech")
    power = _powers(sound)
    decibels = 10 * np.log10(np.maximum(power, 1e-12))
    peak, floor = float(np.percentile(decibels, 99)), float(np.percentile(decibels, 10))
    if peak < _INAUDIBLE:
        return Survey(0.0, 0.0, peak, 0.0, "it is silent")
    # Above the noise, but never so high that the quiet ends of words are lost, nor so low that hiss counts.
    active = decibels > max(peak - 40, min(floor + 6, peak - 10))
    found = np.flatnonzero(active)
    first, last = int(found[0]), int(found[-1])
    level = 10 * math.log10(max(float(power[active].mean()), 1e-12))
    noise = float(np.sort(power[first : last + 1])[: max(1, (last + 1 - first) // 10)].mean())
    speech = max(float(power[active].mean()) - noise, 1e-12)
    snr = 10 * math.log10(speech / noise) if noise > 1e-10 else math.inf
    span = np.maximum(decibels[first : last + 1], peak - 50)
    trouble = _trouble(sound, active, span, 10 ** ((peak - 25) / 10))
    return Survey(first * _HOP / _RATE, (last * _HOP + _FRAME) / _RATE, level, snr, trouble)


def _trouble(sound: Samples, active: npt.NDArray[np.bool_], span: npt.NDArray[np.float64], loud: float) -> str:
    if active.sum() * _HOP < _SHORTEST_ACTIVE * _RATE:
        return f"it has less than {_SHORTEST_ACTIVE} s of sound"
    if float(span.std()) < _STEADY_DB:
        return "its level never moves, as that of speech does"
    if _voiced_seconds(sound, loud) < _SHORTEST_VOICED:
        return "no voice is heard in it"
    return ""


def _frames(sound: Samples, length: int, hop: int) -> npt.NDArray[np.float32]:
    return np.lib.stride_tricks.sliding_window_view(sound, length)[::hop]


def _powers(sound: Samples) -> npt.NDArray[np.float64]:
    total = np.concatenate(([0.0], np.cumsum(np.square(sound, dtype=np.float64))))
    starts = np.arange(0, sound.size - _FRAME + 1, _HOP)
    powers: npt.NDArray[np.float64] = np.maximum(total[starts + _FRAME] - total[starts], 0.0) / _FRAME
    return powers


def _voiced_seconds(sound: Samples, loud: float) -> float:
    window = np.hanning(_LONG).astype(np.float32)
    # A window's own autocorrelation falls with the lag; without it a low voice would seem no voice.
    fall = np.fft.irfft(np.abs(np.fft.rfft(window, _FFT)) ** 2)[_LAGS]
    fall = fall / float(np.sum(window**2))
    frames = _frames(sound, _LONG, _LONG_HOP)
    count = 0
    for start in range(0, len(frames), _BLOCK):
        block = frames[start : start + _BLOCK]
        block = block[np.mean(np.square(block), axis=1) > loud]
        if not block.size:
            continue
        spectrum = np.abs(np.fft.rfft(block * window, _FFT, axis=1)) ** 2
        again = np.fft.irfft(spectrum, axis=1)
        likeness = again[:, _LAGS] / (again[:, :1] * fall + 1e-12)
        count += int(np.sum(likeness.max(axis=1) > _VOICED))
    return count * _LONG_HOP / _RATE
