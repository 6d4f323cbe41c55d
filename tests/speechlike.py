"""Sound that is speech in all that intake measures: a pitched source with formants, syllables and pauses."""

from __future__ import annotations

import numpy as np

from voicelab.audio.samples import Samples
from voicelab.clip import Clip

RATE = 24_000


def speechlike(seconds: float = 3.0, pitch: float = 140.0, noise: float = 0.0, silence: float = 0.0) -> Samples:
    """`seconds` of syllables at `pitch` Hz (mono, `RATE`), with `silence` s around and white `noise` (RMS) over all."""
    time = np.arange(int(seconds * RATE)) / RATE
    f0 = pitch * (1 + 0.08 * np.sin(2 * np.pi * 0.7 * time) - 0.02 * time / max(seconds, 1))
    phase = 2 * np.pi * np.cumsum(f0) / RATE
    sound = np.zeros(time.size)
    for harmonic in range(1, 25):
        hertz = harmonic * pitch
        weight = sum(np.exp(-(((hertz - formant) / 150) ** 2)) for formant in (500, 1500, 2500)) + 0.05
        sound += weight * np.sin(harmonic * phase) / harmonic**0.5
    syllables = np.clip(np.sin(2 * np.pi * 2.1 * time), 0, 1) ** 0.5
    pauses = (time % 1.7) < 1.4
    sound *= syllables * pauses * 0.2
    quiet = np.zeros(int(silence * RATE))
    sound = np.concatenate((quiet, sound, quiet))
    sound += noise * np.random.default_rng(3).standard_normal(sound.size)
    return np.clip(sound, -1, 1).astype(np.float32)


def speech_file(seconds: float = 3.0, pitch: float = 140.0, format: str = "wav") -> bytes:
    """The same as a file."""
    return Clip(speechlike(seconds, pitch), RATE).to_bytes(format, sample_rate=RATE if format == "wav" else None)  # type: ignore[arg-type]
