"""Normalize the level of renderings, remove low-frequency noise, and trim silence; phone times are adjusted."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from training.kokoro import RATE, Phone
from training.render import Rendering

LEVEL = 0.07
"""RMS of non-silent audio after normalization, about -23 dBFS."""
HIGHPASS_HZ = 50.0
"""Cutoff of the high-pass filter in Hz."""
LEAD = TAIL = 0.15
"""Seconds of silence before the first phone and after the last sound."""


def normalize_level(audio: NDArray[np.float32]) -> NDArray[np.float64]:
    """High-pass filter the audio, and normalize its non-silent RMS to `LEVEL`."""
    from scipy.signal import butter, sosfiltfilt

    clean: NDArray[np.float64] = sosfiltfilt(butter(2, HIGHPASS_HZ, "highpass", fs=RATE, output="sos"), audio)
    step = RATE // 50
    power = np.square(clean[: clean.size // step * step].reshape(-1, step)).mean(1)
    loud = float(np.mean(power[power > np.quantile(power, 0.95) / 1000]))
    even: NDArray[np.float64] = clean * (LEVEL / float(np.sqrt(loud)))
    return even


def trimmed(rendering: Rendering) -> tuple[NDArray[np.float64], list[Phone]]:
    """Return normalized and trimmed audio (samples,) at 24 kHz, and phones with its times in seconds."""
    phones, audio = rendering.phones, normalize_level(rendering.audio())
    sound_end = phones[-2].end if len(phones) > 1 else phones[-1].end
    begin = max(0, round((phones[0].start - LEAD) * RATE))
    end = min(audio.size, round((sound_end + TAIL) * RATE))
    shift, length = begin / RATE, (end - begin) / RATE
    moved = [Phone(p.name, p.start - shift, min(p.end - shift, length), p.first) for p in phones]
    return audio[begin:end], [p for p in moved if p.start < length]
