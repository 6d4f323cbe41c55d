"""Voice activity, SNR and noise reduction of a recording.

``survey`` measures frames of 25 ms every 10 ms at 16 kHz. A recording is speech if it has voiced frames (F0 of 60 to
500 Hz by normalized autocorrelation, Boersma 1993) and its level varies with the syllables. ``survey`` detects onset and
offset within 0.2 s in 33 of 36 noisy recordings (SNR 5 to 20 dB), librosa.effects.split in 3 (bench/readers.py). webrtcvad
is not used because it requires a C compiler.

``enhance`` applies the log-spectral amplitude estimator of Ephraim & Malah (IEEE Trans. ASSP 33(2), 1985) with
decision-directed a-priori SNR; the noise spectrum is estimated from the quietest frames.
docs/decisions/04-sound-and-its-formats.md compares it with FFmpeg's filters and noisereduce.
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
_PITCH_FRAME, _PITCH_HOP = 640, 320
_LAGS = slice(_RATE // 500, _RATE // 60 + 1)
_FFT = 2048
_BLOCK = 1000
_MIN_AUTOCORRELATION = 0.5
_MIN_PEAK_DBFS = -60.0
_MIN_VOICED_S = 0.2
_MIN_ACTIVE_S = 0.5
_MIN_LEVEL_SD_DB = 1.5

# Windows and limits of enhance.
_WINDOW_S = 0.046
"""Window length, long enough to resolve mains hum and the harmonics of a voice."""
_NOISE_FRACTION = 0.1
"""Fraction of frames (the quietest ones) from which the noise is estimated."""
_SILENCE_POWER = 1e-9
"""Power, relative to the maximum, below which a frame is digital silence."""
_BOUND_QUANTILE = 0.1
"""Quantile q that bounds the noise power in each bin; for an exponential distribution it is -ln(1 - q) times the mean."""
_SMOOTHING = 0.98
_MIN_SNR = 10**-2.5
_MIN_GAIN = 0.1
"""Minimum gain (-20 dB); the residual noise masks musical noise."""
_NOISE_BLOCK = 512


@dataclass(frozen=True, slots=True)
class Survey:
    """Start and end of the sound in seconds, level (dBFS) and SNR (dB) of a recording.

    ``problem`` states why the recording is not speech ("" if it is); ``snr`` is infinite if there is no noise.
    """

    start: float
    end: float
    level: float
    snr: float
    problem: str


def survey(samples: Samples, rate: int) -> Survey:
    """Detect speech in mono samples in [-1, 1] at ``rate`` Hz."""
    sound = resample(samples - np.float32(samples.mean()), rate, _RATE) if samples.size else samples
    if sound.size < _PITCH_FRAME:
        return Survey(0.0, 0.0, -math.inf, 0.0, "too short for speech")
    power = _powers(sound)
    decibels = 10 * np.log10(np.maximum(power, 1e-12))
    peak, floor = float(np.percentile(decibels, 99)), float(np.percentile(decibels, 10))
    if peak < _MIN_PEAK_DBFS:
        return Survey(0.0, 0.0, peak, 0.0, "silent")
    # The threshold is 6 dB above the noise floor, but at least 10 dB below the peak, because word endings are quiet, and at
    # most 40 dB below the peak, because of hiss.
    active = decibels > max(peak - 40, min(floor + 6, peak - 10))
    indices = np.flatnonzero(active)
    start, end = int(indices[0]), int(indices[-1])
    level = 10 * math.log10(max(float(power[active].mean()), 1e-12))
    noise = float(np.sort(power[start : end + 1])[: max(1, (end + 1 - start) // 10)].mean())
    speech = max(float(power[active].mean()) - noise, 1e-12)
    snr = 10 * math.log10(speech / noise) if noise > 1e-10 else math.inf
    levels = np.maximum(decibels[start : end + 1], peak - 50)
    problem = _problem(sound, active, levels, 10 ** ((peak - 25) / 10))
    return Survey(start * _HOP / _RATE, (end * _HOP + _FRAME) / _RATE, level, snr, problem)


def _problem(sound: Samples, active: npt.NDArray[np.bool_], levels: _Floats, min_power: float) -> str:
    if active.sum() * _HOP < _MIN_ACTIVE_S * _RATE:
        return f"less than {_MIN_ACTIVE_S} s of sound"
    if float(levels.std()) < _MIN_LEVEL_SD_DB:
        return "constant level, unlike speech"
    if _voiced_seconds(sound, min_power) < _MIN_VOICED_S:
        return "no voiced frames"
    return ""


def _powers(sound: Samples) -> _Floats:
    total = np.concatenate(([0.0], np.cumsum(np.square(sound, dtype=np.float64))))
    starts = np.arange(0, sound.size - _FRAME + 1, _HOP)
    powers: _Floats = np.maximum(total[starts + _FRAME] - total[starts], 0.0) / _FRAME
    return powers


def _voiced_seconds(sound: Samples, min_power: float) -> float:
    window = np.hanning(_PITCH_FRAME).astype(np.float32)
    # Normalized by the autocorrelation of the window, because low voices would otherwise seem unvoiced.
    window_autocorrelation = np.fft.irfft(np.abs(np.fft.rfft(window, _FFT)) ** 2)[_LAGS]
    window_autocorrelation = window_autocorrelation / float(np.sum(window**2))
    frames = framed(sound, _PITCH_FRAME, _PITCH_HOP)
    count = 0
    for start in range(0, len(frames), _BLOCK):
        block = frames[start : start + _BLOCK]
        block = block[np.mean(np.square(block), axis=1) > min_power]
        if not block.size:
            continue
        spectrum = np.abs(np.fft.rfft(block * window, _FFT, axis=1)) ** 2
        autocorrelation = np.fft.irfft(spectrum, axis=1)
        normalized = autocorrelation[:, _LAGS] / (autocorrelation[:, :1] * window_autocorrelation + 1e-12)
        count += int(np.sum(normalized.max(axis=1) > _MIN_AUTOCORRELATION))
    return count * _PITCH_HOP / _RATE


def enhance(samples: Samples, rate: int) -> Samples:
    """Reduce the stationary noise of mono ``samples`` in [-1, 1] at ``rate`` Hz, without changing length or delay."""
    hop = max(1, round(_WINDOW_S * rate / 4))
    size = 4 * hop
    if samples.size < 2 * size or not samples.any():
        return samples
    # Square-root Hann window for analysis and synthesis; at 75 % overlap the squares sum to 2.
    window = np.sqrt(0.5 - 0.5 * np.cos(2 * np.pi * np.arange(size) / size))
    padded = np.pad(samples, (size, 2 * size))
    frames = framed(padded, size, hop)
    result = np.zeros(padded.size)
    spectra = (np.fft.rfft(frame * window) for frame in frames)
    for number, spectrum in enumerate(_denoised(spectra, _noise(frames, window))):
        result[number * hop : number * hop + size] += np.fft.irfft(spectrum, size) * window
    return np.clip(result[size : size + samples.size] / 2, -1.0, 1.0).astype(np.float32)


def _denoised(spectra: Iterable[npt.NDArray[np.complex128]], noise: _Floats) -> Iterator[npt.NDArray[np.complex128]]:
    """Apply the gain of each frequency bin to the spectra of successive frames."""
    from scipy.special import exp1

    previous: _Floats | None = None
    for spectrum in spectra:
        posterior = np.minimum(np.square(np.abs(spectrum)) / noise, 1e6)
        excess = np.maximum(posterior - 1.0, 0.0)
        prior = _SMOOTHING * (excess if previous is None else previous) + (1.0 - _SMOOTHING) * excess
        wiener = np.maximum(prior, _MIN_SNR)
        wiener = wiener / (1.0 + wiener)
        gain = np.clip(wiener * np.exp(0.5 * exp1(np.maximum(wiener * posterior, 1e-8))), _MIN_GAIN, 1.0)
        previous = np.square(gain) * posterior
        yield spectrum * gain


def _noise(frames: npt.NDArray[np.float32], window: _Floats) -> _Floats:
    """Estimate the mean power spectrum of the noise from the quietest frames.

    If there are no pauses, these frames contain speech, so the estimate is bounded by a quantile of the power in each bin.
    """
    blocks = (frames[start : start + _NOISE_BLOCK] for start in range(0, len(frames), _NOISE_BLOCK))
    powers = np.concatenate([np.square(block * window).sum(axis=1) for block in blocks])
    audible = np.flatnonzero(powers > _SILENCE_POWER * powers.max())
    quietest = audible[np.argsort(powers[audible])[: max(1, round(_NOISE_FRACTION * audible.size))]]
    total = np.zeros(window.size // 2 + 1)
    for number in quietest:
        total += np.square(np.abs(np.fft.rfft(frames[number] * window)))
    subset = audible[:: max(1, audible.size // 2000)]
    spectra = np.square(np.abs(np.fft.rfft(frames[subset] * window, axis=1)))
    bound = np.quantile(spectra, _BOUND_QUANTILE, axis=0) / -np.log1p(-_BOUND_QUANTILE)
    return np.asarray(np.minimum(total / max(1, quietest.size), bound) + 1e-12)
