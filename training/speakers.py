"""Who speaks in the training data: flite's four voices as they are, and hundreds of speakers made by warping them.

A warp is exact, not an analysis: flite itself is asked for another mean and spread of F0 and another rate, and the audio is
then played faster or slower (which moves the formants), the rate and F0 having been chosen to allow for it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

TEACHERS = ("rms", "slt", "awb", "kal16")
VIRTUAL = 500
HELD_OUT = 12  # of the virtual ones, the last: never trained on, used to measure cloning
_TEACHER_SHARE = (0.35, 0.30, 0.20, 0.15)


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
    """Factor on all frequencies, 0.9 to 1.12, made by resampling."""
    stretch: float = 1.0
    """Durations relative to the teacher's own, after the resampling."""
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
            f0_ratio=float(2 ** rng.uniform(-0.35, 0.4)),
            f0_spread=float(rng.uniform(0.6, 1.5)),
            formants=float(rng.uniform(0.9, 1.12)),
            stretch=float(rng.uniform(0.85, 1.2)),
            tilt=float(rng.uniform(-0.3, 0.3)),
        )
        for i in range(VIRTUAL)
    ]


def draw(count: int, seed: int = 5) -> NDArray[np.int64]:
    """The speaker of each of `count` utterances: rms 16 %, other plain teachers 4 % each, the warped ones the rest evenly."""
    rng = np.random.default_rng(seed)
    speakers = all_speakers()
    trained = len(speakers) - HELD_OUT
    share = np.full(trained, 0.72 / (trained - len(TEACHERS)))
    share[: len(TEACHERS)] = (0.16, 0.04, 0.04, 0.04)
    return rng.choice(trained, size=count, p=share / share.sum())
