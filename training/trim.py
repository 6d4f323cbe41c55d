"""Brings what the teacher said to one level, freed of rumble, with little silence at its ends; phones' times follow."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from training.kokoro import RATE, Phone
from training.render import Rendering

LEVEL = 0.07
"""Root mean square of what is not silence, after levelling: about -23 dBFS."""
RUMBLE = 50.0
"""Hz below which everything is taken away."""
LEAD = TAIL = 0.15
"""Seconds kept before the first phone and after the last sound."""


def levelled(audio: NDArray[np.float32]) -> NDArray[np.float64]:
    """The audio without rumble, what is not silence at `LEVEL`."""
    from scipy.signal import butter, sosfiltfilt

    clean: NDArray[np.float64] = sosfiltfilt(butter(2, RUMBLE, "highpass", fs=RATE, output="sos"), audio)
    step = RATE // 50
    power = np.square(clean[: clean.size // step * step].reshape(-1, step)).mean(1)
    loud = float(np.mean(power[power > np.quantile(power, 0.95) / 1000]))
    even: NDArray[np.float64] = clean * (LEVEL / float(np.sqrt(loud)))
    return even


def trimmed(rendering: Rendering) -> tuple[NDArray[np.float64], list[Phone]]:
    """Levelled audio (samples,) at 24 kHz, and the phones by its times in seconds."""
    phones, audio = rendering.phones, levelled(rendering.audio())
    last = phones[-2].end if len(phones) > 1 else phones[-1].end
    begin = max(0, round((phones[0].start - LEAD) * RATE))
    end = min(audio.size, round((last + TAIL) * RATE))
    shift, length = begin / RATE, (end - begin) / RATE
    moved = [Phone(p.name, p.start - shift, min(p.end - shift, length), p.first) for p in phones]
    return audio[begin:end], [p for p in moved if p.start < length]
