"""Degrade clean speech like real references: noise, reverberation, telephone, band limits, coloration."""

from __future__ import annotations

import numpy as np
import soxr
from numpy.typing import NDArray

from training.trim import LEVEL

Samples = NDArray[np.float32]


def _power(samples: NDArray[np.floating]) -> float:
    return float(np.mean(np.square(samples))) + 1e-12


def room(samples: Samples, rate: int, seconds: float, share: float, rng: np.random.Generator) -> Samples:
    """Add reverberation with T60 = `seconds`; `share` is its power relative to the direct sound."""
    count = int(seconds * rate)
    tail = rng.standard_normal(count) * np.exp(-6.9 * np.arange(count) / count)
    tail[: int(0.004 * rate)] = 0
    size = 1 << int(np.ceil(np.log2(samples.size + count)))
    wet = np.fft.irfft(np.fft.rfft(samples, size) * np.fft.rfft(tail, size), size)[: samples.size]
    return np.asarray(samples + wet * np.sqrt(share * _power(samples) / _power(wet)), np.float32)


def noise(samples: Samples, snr_db: float, slope: float, rng: np.random.Generator) -> Samples:
    """Add noise with power proportional to 1 / frequency ** `slope` (0 white, 1 pink, 2 brown)."""
    spectrum = np.fft.rfft(rng.standard_normal(samples.size))
    spectrum /= np.maximum(np.arange(spectrum.size), spectrum.size / 400) ** (slope / 2)
    added = np.fft.irfft(spectrum, samples.size)
    return np.asarray(samples + added * np.sqrt(_power(samples) / _power(added) * 10 ** (-snr_db / 10)), np.float32)


def band(samples: Samples, rate: int, low: float, high: float) -> Samples:
    """Band-pass `low` to `high` Hz, with smooth edges."""
    hz = np.fft.rfftfreq(samples.size, 1 / rate)
    gain = 1 / (1 + (low / np.maximum(hz, 1)) ** 6) / (1 + (hz / high) ** 16)
    return np.fft.irfft(np.fft.rfft(samples) * np.sqrt(gain), samples.size).astype(np.float32)


def telephone(samples: Samples, rate: int, low: float | None = None) -> Samples:
    """Simulate a telephone channel: 300 to 3,400 Hz, 8 kHz, 8-bit mu-law; optionally with a brick-wall cutoff at `low` Hz."""
    limited = band(samples, rate, 300, 3400)
    if low is not None:
        spectrum = np.fft.rfft(limited)
        spectrum[: int(low * limited.size / rate)] = 0
        limited = np.fft.irfft(spectrum, limited.size).astype(np.float32)
    narrow = np.clip(soxr.resample(limited, rate, 8000), -1, 1)
    level = np.sign(narrow) * np.log1p(255 * np.abs(narrow)) / np.log(256)
    level = np.round(level * 127) / 127
    wide = soxr.resample(np.sign(level) * np.expm1(np.abs(level) * np.log(256)) / 255, 8000, rate)
    return np.pad(wide, (0, max(0, samples.size - wide.size)))[: samples.size].astype(np.float32)


def color(samples: Samples, rate: int, rng: np.random.Generator) -> Samples:
    """Apply a random smooth microphone response, of up to about ±6 dB."""
    hz = np.fft.rfftfreq(samples.size, 1 / rate)
    octaves = np.log2(np.maximum(hz, 40) / 40)
    db = sum(rng.normal(0, 2.5) * np.cos(np.pi * k * octaves / 9) for k in range(1, 6))
    return np.fft.irfft(np.fft.rfft(samples) * 10 ** (db / 20), samples.size).astype(np.float32)


def spoil(samples: Samples, rate: int, seed: int) -> Samples:
    """Apply random degradations, at the level that the engine sets."""
    rng = np.random.default_rng(seed)
    out = samples
    if rng.random() < 0.5:
        out = color(out, rate, rng)
    if rng.random() < 0.45:
        out = room(out, rate, rng.uniform(0.15, 0.8), 10 ** rng.uniform(-1.5, 0), rng)
    if rng.random() < 0.65:
        out = noise(out, rng.uniform(3, 30), rng.choice([0.0, 1.0, 1.5]), rng)
    kind = rng.random()
    if kind < 0.25:
        out = telephone(out, rate)
    elif kind < 0.4:
        out = band(out, rate, 60, rng.uniform(3000, 7500))
    active = out[np.abs(out) > 0.01]
    level = np.sqrt(_power(active if active.size > 100 else out))
    return np.asarray(np.clip(out * (LEVEL / level * 10 ** rng.normal(0, 0.05)), -1, 1), np.float32)
