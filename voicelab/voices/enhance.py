"""Take steady noise out of recorded speech: hiss, hum, fans, the noise of a room.

Every line of the short-time spectrum is multiplied by the gain of Ephraim & Malah's log-spectral amplitude
estimator (IEEE Trans. ASSP 33(2), 1985), with their decision-directed a-priori SNR. What the noise is, the quietest
frames of the recording tell. It was measured against FFmpeg's filters and a library of spectral gating:
docs/decisions/2026-11-21-enhance.md.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from voicelab.audio.samples import Samples

__all__ = ["enhance"]

_WINDOW_S = 0.046
"""Long enough to tell the lines of a hum from the harmonics of a voice."""
_QUIETEST = 0.1
"""Share of the frames in which nobody is taken to speak."""
_SILENT = 1e-9
"""Frames this much below the loudest (in power) are digital silence, and say nothing about the noise."""
_SELDOM = 0.1
"""Power of noise is distributed exponentially in each line: with this chance it is below -ln(1 - chance) of its mean."""
_SMOOTHING = 0.98
_LEAST_SNR = 10**-2.5
_LEAST_GAIN = 0.1
"""20 dB; what is left of the noise hides the tones that stronger gates make of it."""
_BLOCK = 512

_Floats = npt.NDArray[np.float64]


def enhance(samples: Samples, rate: int) -> Samples:
    """Return mono ``samples`` in [-1, 1] at ``rate`` Hz without their steady noise: as long as before, and in time."""
    hop = max(1, round(_WINDOW_S * rate / 4))
    size = 4 * hop
    if samples.size < 2 * size or not samples.any():
        return samples
    # The root of a Hann window, on both ways: overlapping by three quarters, its squares add up to two.
    window = np.sqrt(0.5 - 0.5 * np.cos(2 * np.pi * np.arange(size) / size))
    padded = np.pad(samples, (size, 2 * size))
    frames = np.lib.stride_tricks.sliding_window_view(padded, size)[::hop]
    gain = _Gain(_noise(frames, window))
    made = np.zeros(padded.size)
    for number, frame in enumerate(frames):
        spectrum = np.fft.rfft(frame * window)
        made[number * hop : number * hop + size] += np.fft.irfft(spectrum * gain(spectrum), size) * window
    return np.clip(made[size : size + samples.size] / 2, -1.0, 1.0).astype(np.float32)


class _Gain:
    """One gain for each line of a frame's spectrum; frames come in order."""

    def __init__(self, noise: _Floats) -> None:
        from scipy.special import exp1

        self._exp1 = exp1
        self._noise = noise
        self._before: _Floats | None = None

    def __call__(self, spectrum: npt.NDArray[np.complex128]) -> _Floats:
        posterior = np.minimum(np.square(np.abs(spectrum)) / self._noise, 1e6)
        excess = np.maximum(posterior - 1.0, 0.0)
        before = excess if self._before is None else self._before
        prior = np.maximum(_SMOOTHING * before + (1.0 - _SMOOTHING) * excess, _LEAST_SNR)
        share = prior / (1.0 + prior)
        gain = share * np.exp(0.5 * self._exp1(np.maximum(share * posterior, 1e-8)))
        gain = np.clip(gain, _LEAST_GAIN, 1.0)
        self._before = np.square(gain) * posterior
        return np.asarray(gain)


def _noise(frames: npt.NDArray[np.float32], window: _Floats) -> _Floats:
    """Mean power spectrum of the noise.

    The quietest frames are taken for noise alone. Where nobody ever pauses they are speech, so a second estimate
    bounds the first: that line by line the noise is seldom far below its mean.
    """
    blocks = (frames[first : first + _BLOCK] for first in range(0, len(frames), _BLOCK))
    powers = np.concatenate([np.square(block * window).sum(axis=1) for block in blocks])
    heard = np.flatnonzero(powers > _SILENT * powers.max())
    quietest = heard[np.argsort(powers[heard])[: max(1, round(_QUIETEST * heard.size))]]
    total = np.zeros(window.size // 2 + 1)
    for number in quietest:
        total += np.square(np.abs(np.fft.rfft(frames[number] * window)))
    some = heard[:: max(1, heard.size // 2000)]
    lines = np.square(np.abs(np.fft.rfft(frames[some] * window, axis=1)))
    bound = np.quantile(lines, _SELDOM, axis=0) / -np.log1p(-_SELDOM)
    return np.asarray(np.minimum(total / max(1, quietest.size), bound) + 1e-12)
