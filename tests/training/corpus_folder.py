"""A folder with a corpus of a few seconds: tones for speech, and made-up measures of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from training import world
from training.kokoro import FRAME, RATE
from training.plan import Request
from training.render import Rendering, save_shard

SPEAKERS = ("am_michael", "af_sky")


def rendering(number: int, frames: int = 100) -> Rendering:
    """A buzz at 150 Hz for a vowel, between two silences; its source's own phase is the buzz's."""
    durations = np.array([12, frames - 25, 12, 1], np.uint8)
    count = int(durations.sum())
    f0 = np.full(2 * count, 150, np.float32)
    # The phase of the teacher's source at the middle of its first value is that value's own step.
    cycles = (np.arange(count * FRAME) + 150) * 150 / RATE
    buzz = sum(np.cos(2 * np.pi * h * cycles) for h in range(1, 40))
    at = np.arange(count * FRAME) / RATE
    buzz = 0.02 * np.asarray(buzz) * ((at > 0.25) & (at < at[-1] - 0.35))
    asked = Request(number, "stock", SPEAKERS[number % 2], ((SPEAKERS[number % 2], 1.0),), "en", "ah.", 1.0, 0)
    return Rendering(asked, "a.", durations, f0, f0, np.round(buzz * 32768).astype(np.int16), 1.0)


def measured(said: Rendering) -> world.Measured:
    """What WORLD might say of it: voiced all through, the envelope drawn."""
    audio, phones = world.trimmed(said)
    frames = int(audio.size / RATE / world.STEP) + 1
    meta = {
        "number": said.request.number,
        "speaker": said.request.speaker,
        "language": said.request.language,
        "phones": [[p.name, p.start, p.end, p.first] for p in phones],
    }
    envelope = np.random.default_rng(said.request.number).integers(120, 180, (frames, world.BANDS), np.uint8)
    return world.Measured(meta, envelope, np.full((frames, 3), 100, np.uint8), np.full(frames, 150, np.float32))


def corpus(folder: Path, utterances: int = 8) -> Path:
    """Writes a shard and its measures; returns the folder."""
    (folder / "speech").mkdir()
    (folder / "world").mkdir()
    said = [rendering(n, 100 + 5 * n) for n in range(utterances)]
    save_shard(folder / "speech" / "00000.npz", said)
    world.save(folder / "world" / "00000.npz", [measured(r) for r in said])
    return folder
