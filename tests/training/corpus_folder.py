"""A synthetic corpus of a few seconds, and a small codec."""

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
    """Create an untrained codec."""
    torch.manual_seed(seed)
    return Codec(SMALL).eval()


def rendering(number: int, frames: int = 100) -> Rendering:
    """Synthesize a rendering: a 150 Hz buzz as vowel between two silences."""
    durations = np.array([12, frames - 25, 12, 1], np.uint8)
    count = int(durations.sum())
    f0 = np.full(2 * count, 150, np.float32)
    # Phase of the teacher's source at the middle of its first value.
    cycles = (np.arange(count * FRAME) + 150) * 150 / RATE
    buzz = sum(np.cos(2 * np.pi * h * cycles) for h in range(1, 40))
    time_s = np.arange(count * FRAME) / RATE
    buzz = 0.02 * np.asarray(buzz) * ((time_s > 0.25) & (time_s < time_s[-1] - 0.35))
    request = Request(number, "stock", SPEAKERS[number % 2], ((SPEAKERS[number % 2], 1.0),), "en", "ah.", 1.0, 0)
    return Rendering(request, "a.", durations, f0, f0, np.round(buzz * 32768).astype(np.int16), 1.0)


def requests(utterances: int = 8) -> list[Request]:
    """Return the requests of `speech`."""
    return [rendering(n).request for n in range(utterances)]


def speech(folder: Path, utterances: int = 8) -> Path:
    """Write a shard in which all but the second utterance are intelligible; return the folder."""
    shard = folder / "speech" / "00000.npz"
    shard.parent.mkdir(parents=True)
    save_shard(shard, [rendering(n) for n in range(utterances)])
    lines = [f'{{"number": {n}, "heard": "ah", "wrong": {float(n == 1)}}}\n' for n in range(utterances)]
    verdicts_of(shard).write_text("".join(lines), encoding="utf-8")
    return folder


def corpus(folder: Path, codec: Codec, utterances: int = 8) -> Path:
    """Encode the shard of `speech`; return the folder of the encoded corpus."""
    kept.keep_all(speech(folder / "voice", utterances), codec, requests(utterances), 100, folder / "corpus")
    return folder / "corpus"
