"""A corpus of a few seconds: tones for speech, and a small codec."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from training import kept
from training.kokoro import FRAME, RATE
from training.plan import Request
from training.render import Rendering, save_shard
from training.understood import verdicts_of
from voicelab.engine.pointer.codec import Codec
from voicelab.engine.pointer.config import ALL_PHONES, CodecConfig

SPEAKERS = ("am_michael", "af_sky")
SMALL = CodecConfig(
    codebooks=(16, 8, 8), latent=8, width=16, fine_width=8, depth=2, phones=len(ALL_PHONES)
)  # the sizes of `tests.engine.tiny`


def small_codec(seed: int = 0) -> Codec:
    """One that has learned nothing."""
    torch.manual_seed(seed)
    return Codec(SMALL).eval()


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


def requests(utterances: int = 8) -> list[Request]:
    """What was asked in `speech`."""
    return [rendering(n).request for n in range(utterances)]


def speech(folder: Path, utterances: int = 8) -> Path:
    """Writes a shard, of which all but the second utterance was understood; returns the folder."""
    shard = folder / "speech" / "00000.npz"
    shard.parent.mkdir(parents=True)
    save_shard(shard, [rendering(n) for n in range(utterances)])
    lines = [f'{{"number": {n}, "heard": "ah", "wrong": {float(n == 1)}}}\n' for n in range(utterances)]
    verdicts_of(shard).write_text("".join(lines), encoding="utf-8")
    return folder


def corpus(folder: Path, codec: Codec, utterances: int = 8) -> Path:
    """Keeps what `speech` writes; returns the folder of what is kept."""
    kept.keep_all(speech(folder / "voice", utterances), codec, requests(utterances), 100, folder / "corpus")
    return folder / "corpus"
