"""Noise to put over speech, and how near to the clean speech the result is."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from voicelab.audio.samples import Samples

KINDS = ("white", "pink", "hum")
_FRAME, _HOP = 1024, 256
_Floats = npt.NDArray[np.float64]


def noise(kind: str, size: int, rate: int, seed: int = 0) -> _Floats:
    """`size` samples of RMS 1: white, pink (equal power in each octave), or hum (50 Hz and harmonics, and some hiss)."""
    source = np.random.default_rng(seed)
    made = source.standard_normal(size)
    if kind == "pink":
        lines = np.fft.rfft(made) / np.sqrt(np.maximum(np.fft.rfftfreq(size, 1 / rate), 20))
        made = np.fft.irfft(lines, size)
    elif kind == "hum":
        time, orders = np.arange(size) / rate, (1, 2, 3, 4, 5, 7, 9)
        made = 0.03 * made
        for order in orders:
            made += np.sin(2 * np.pi * 50 * order * time + source.uniform(0, 6)) / order
    return np.asarray(made / np.sqrt(np.mean(np.square(made))))


def noisy(clean: Samples, rate: int, kind: str, snr: float, seed: int = 0) -> Samples:
    """`clean` with noise so many dB below the power of its loud frames."""
    power = np.mean(np.square(_frames(clean)[loud(clean)]))
    level = np.sqrt(power / 10 ** (snr / 10))
    mixed: Samples = (clean + level * noise(kind, clean.size, rate, seed)).astype(np.float32)
    return mixed


def loud(clean: Samples) -> npt.NDArray[np.bool_]:
    """The frames of 1024 samples within 35 dB of the loudest."""
    power = np.mean(np.square(_frames(clean)), axis=1)
    return np.asarray(power > power.max() * 10**-3.5)


def si_sdr(clean: Samples, heard: Samples) -> float:
    """Scale-invariant signal-to-distortion ratio in dB (Le Roux et al. 2019)."""
    target = float(clean @ heard) / float(clean @ clean) * clean.astype(np.float64)
    error = heard - target
    return float(10 * np.log10((target @ target) / (error @ error + 1e-20)))


def segmental_snr(clean: Samples, heard: Samples) -> float:
    """Mean over the loud frames of the SNR in dB, each within -10 to 35."""
    wanted, error = _frames(clean), _frames((heard - clean).astype(np.float32))
    ratio = 10 * np.log10(np.square(wanted).sum(1) / (np.square(error).sum(1) + 1e-12) + 1e-12)
    return float(np.clip(ratio[loud(clean)], -10, 35).mean())


def spectral_distance(clean: Samples, heard: Samples, rate: int) -> float:
    """Log-spectral distance in dB below 8 kHz over the loud frames, both spectra floored 60 dB below the loudest."""
    chosen = loud(clean)
    top = int(8000 / rate * _FRAME)
    one, other = (
        np.abs(np.fft.rfft(_frames(x)[chosen] * np.hanning(_FRAME), axis=1))[:, 1:top] for x in (clean, heard)
    )
    floor = 1e-3 * one.max()
    difference = 20 * np.log10(np.maximum(one, floor) / np.maximum(other, floor))
    return float(np.sqrt(np.mean(np.square(difference), axis=1)).mean())


def _frames(sound: Samples) -> npt.NDArray[np.float32]:
    return np.lib.stride_tricks.sliding_window_view(sound, _FRAME)[::_HOP]
