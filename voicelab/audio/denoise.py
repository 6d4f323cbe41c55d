"""Speech and noise in a recording: where the speech is, how far above the noise, and the noise taken away.

``survey`` measures 25 ms frames every 10 ms at 16 kHz. Speech has two properties that no other steady sound has
together: frames that repeat themselves at 60 to 500 Hz, as vocal folds do (normalized autocorrelation, Boersma 1993),
and a level that moves with the syllables. librosa.effects.split finds both ends to 0.2 s in 3 of 36 noisy recordings (5
to 20 dB), this in 33 (bench/readers.py), and cannot refuse what is no speech; webrtcvad needs a C compiler.

``enhance`` multiplies every line of the short-time spectrum by the gain of Ephraim & Malah's log-spectral amplitude
estimator (IEEE Trans. ASSP 33(2), 1985), with their decision-directed a-priori SNR; the quietest frames of the recording
tell what the noise is. It removes more than FFmpeg's filters and noisereduce do, measured in
docs/decisions/04-sound-and-its-formats.md.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from voicelab.audio.analysis import framed
from voicelab.audio.samples import Samples, resample

_Floats = npt.NDArray[np.float64]

# Frames and thresholds of survey.
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

# Windows and limits of enhance.
_WINDOW_S = 0.046
"""Long enough to tell the lines of a hum from the harmonics of a voice."""
_QUIETEST = 0.1
"""Share of the frames in which nobody is taken to speak."""
_SILENT = 1e-9
"""Frames this far below the loudest (in power) are digital silence, which tells nothing about the noise."""
_SELDOM = 0.1
"""Power of noise is distributed exponentially in each line: with this chance it is below -ln(1 - chance) of its mean."""
_SMOOTHING = 0.98
_LEAST_SNR = 10**-2.5
_LEAST_GAIN = 0.1
"""20 dB; what is left of the noise hides the tones that stronger gates make of it."""
_NOISE_BLOCK = 512


@dataclass(frozen=True, slots=True)
class Survey:
    """What a recording holds: where sound begins and ends (s), its level (dBFS) and SNR (dB), and what is wrong.

    ``problem`` says why it is no speech, and is empty when it is; ``snr`` is infinite without any noise.
    """

    start: float
    end: float
    level: float
    snr: float
    problem: str


def survey(samples: Samples, rate: int) -> Survey:
    """Find the speech in mono samples in [-1, 1] at ``rate`` Hz."""
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
    loud = np.flatnonzero(active)
    first, last = int(loud[0]), int(loud[-1])
    level = 10 * math.log10(max(float(power[active].mean()), 1e-12))
    noise = float(np.sort(power[first : last + 1])[: max(1, (last + 1 - first) // 10)].mean())
    speech = max(float(power[active].mean()) - noise, 1e-12)
    snr = 10 * math.log10(speech / noise) if noise > 1e-10 else math.inf
    span = np.maximum(decibels[first : last + 1], peak - 50)
    problem = _problem(sound, active, span, 10 ** ((peak - 25) / 10))
    return Survey(first * _HOP / _RATE, (last * _HOP + _FRAME) / _RATE, level, snr, problem)


def _problem(sound: Samples, active: npt.NDArray[np.bool_], span: _Floats, loud: float) -> str:
    if active.sum() * _HOP < _SHORTEST_ACTIVE * _RATE:
        return f"it has less than {_SHORTEST_ACTIVE} s of sound"
    if float(span.std()) < _STEADY_DB:
        return "its level never moves, as that of speech does"
    if _voiced_seconds(sound, loud) < _SHORTEST_VOICED:
        return "no voice is heard in it"
    return ""


def _powers(sound: Samples) -> _Floats:
    total = np.concatenate(([0.0], np.cumsum(np.square(sound, dtype=np.float64))))
    starts = np.arange(0, sound.size - _FRAME + 1, _HOP)
    powers: _Floats = np.maximum(total[starts + _FRAME] - total[starts], 0.0) / _FRAME
    return powers


def _voiced_seconds(sound: Samples, loud: float) -> float:
    window = np.hanning(_LONG).astype(np.float32)
    # A window's own autocorrelation falls with the lag; without it a low voice would seem no voice.
    fall = np.fft.irfft(np.abs(np.fft.rfft(window, _FFT)) ** 2)[_LAGS]
    fall = fall / float(np.sum(window**2))
    frames = framed(sound, _LONG, _LONG_HOP)
    count = 0
    for start in range(0, len(frames), _BLOCK):
        block = frames[start : start + _BLOCK]
        block = block[np.mean(np.square(block), axis=1) > loud]
        if not block.size:
            continue
        spectrum = np.abs(np.fft.rfft(block * window, _FFT, axis=1)) ** 2
        again = np.fft.irfft(spectrum, axis=1)
        repetition = again[:, _LAGS] / (again[:, :1] * fall + 1e-12)
        count += int(np.sum(repetition.max(axis=1) > _VOICED))
    return count * _LONG_HOP / _RATE


def enhance(samples: Samples, rate: int) -> Samples:
    """Return mono ``samples`` in [-1, 1] at ``rate`` Hz without their steady noise: as long as before, and in time."""
    hop = max(1, round(_WINDOW_S * rate / 4))
    size = 4 * hop
    if samples.size < 2 * size or not samples.any():
        return samples
    # The root of a Hann window, on both ways: overlapping by three quarters, its squares add up to two.
    window = np.sqrt(0.5 - 0.5 * np.cos(2 * np.pi * np.arange(size) / size))
    padded = np.pad(samples, (size, 2 * size))
    frames = framed(padded, size, hop)
    result = np.zeros(padded.size)
    spectra = (np.fft.rfft(frame * window) for frame in frames)
    for number, spectrum in enumerate(_denoised(spectra, _noise(frames, window))):
        result[number * hop : number * hop + size] += np.fft.irfft(spectrum, size) * window
    return np.clip(result[size : size + samples.size] / 2, -1.0, 1.0).astype(np.float32)


def _denoised(spectra: Iterable[npt.NDArray[np.complex128]], noise: _Floats) -> Iterator[npt.NDArray[np.complex128]]:
    """The spectra of frames in order, each line of each with a gain of its own."""
    from scipy.special import exp1

    before: _Floats | None = None
    for spectrum in spectra:
        posterior = np.minimum(np.square(np.abs(spectrum)) / noise, 1e6)
        excess = np.maximum(posterior - 1.0, 0.0)
        prior = _SMOOTHING * (excess if before is None else before) + (1.0 - _SMOOTHING) * excess
        share = np.maximum(prior, _LEAST_SNR)
        share = share / (1.0 + share)
        gain = np.clip(share * np.exp(0.5 * exp1(np.maximum(share * posterior, 1e-8))), _LEAST_GAIN, 1.0)
        before = np.square(gain) * posterior
        yield spectrum * gain


def _noise(frames: npt.NDArray[np.float32], window: _Floats) -> _Floats:
    """Mean power spectrum of the noise, for which the quietest frames are taken."""
    # Where nobody ever pauses they are speech: bounded, since line by line the noise is seldom far below its mean.
    blocks = (frames[first : first + _NOISE_BLOCK] for first in range(0, len(frames), _NOISE_BLOCK))
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
