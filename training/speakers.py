"""Who speaks in the training data: flite's four voices as they are, and hundreds of speakers made by warping them.

A warp is exact, not an analysis: flite itself is asked for another mean and spread of F0 and another rate, and the audio is
then played faster or slower (which moves the formants), the rate and F0 having been chosen to allow for it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

TEACHERS = ("rms", "slt", "awb", "kal16")
VIRTUAL = 900
HELD_OUT = 100  # of the virtual ones, the last: never trained on, used to measure cloning
_TEACHER_SHARE = (0.36, 0.32, 0.22, 0.10)
_PLAIN_SHARE = (0.14, 0.04, 0.04, 0.03)


@dataclass(frozen=True)
class Speaker:
    """One speaker: a teacher and how it is warped."""

    id: int
    teacher: str
    f0_ratio: float = 1.0
    """Mean F0 asked of the teacher, relative to its own."""
    f0_spread: float = 1.0
    """Standard deviation of F0, relative to the teacher's own (at that mean)."""
    formants: float = 1.0
    """Factor on all frequencies, 0.86 to 1.18, made by resampling."""
    stretch: float = 1.0
    """Durations relative to the teacher's own, after the resampling."""
    tune: float = 1.0
    """How far punctuation bends F0."""
    tilt: float = 0.0
    """One-zero filter ``1 - tilt z^-1`` at 16 kHz: positive is brighter."""


def all_speakers(seed: int = 3) -> list[Speaker]:
    """The four plain teachers (ids 0 to 3), then `VIRTUAL` warped ones."""
    rng = np.random.default_rng(seed)
    plain = [Speaker(i, t) for i, t in enumerate(TEACHERS)]
    return plain + [
        Speaker(
            id=len(TEACHERS) + i,
            teacher=str(rng.choice(TEACHERS, p=_TEACHER_SHARE)),
            f0_ratio=float(2 ** rng.uniform(-0.45, 0.55)),
            f0_spread=float(rng.uniform(0.6, 1.6)),
            formants=float(rng.uniform(0.86, 1.18)),
            stretch=float(rng.uniform(0.85, 1.2)),
            tune=float(rng.uniform(0.6, 1.4)),
            tilt=float(rng.uniform(-0.3, 0.3)),
        )
        for i in range(VIRTUAL)
    ]


def mood(speaker: Speaker, rng: np.random.Generator) -> Speaker:
    """The speaker as he is in one utterance: pitch, liveliness and pace vary, and nothing in the text says how.

    So a model of this speech has to choose, and its temperature widens prosody before it breaks words.
    """
    pitch, spread, pace = np.clip(rng.standard_normal(3), -2.2, 2.2)
    return replace(
        speaker,
        f0_ratio=speaker.f0_ratio * float(2 ** (0.8 * pitch / 12)),
        f0_spread=speaker.f0_spread * float(np.exp(0.25 * spread)),
        stretch=speaker.stretch * float(np.exp(0.06 * pace)),
        tune=speaker.tune * float(rng.uniform(0.6, 1.4)),
    )


def draw(count: int, seed: int = 5) -> NDArray[np.int64]:
    """The speaker of each of `count` utterances: a quarter the plain teachers, most of it rms; the warped ones evenly."""
    rng = np.random.default_rng(seed)
    speakers = all_speakers()
    trained = len(speakers) - HELD_OUT
    share = np.full(trained, (1 - sum(_PLAIN_SHARE)) / (trained - len(TEACHERS)))
    share[: len(TEACHERS)] = _PLAIN_SHARE
    return rng.choice(trained, size=count, p=share / share.sum())
