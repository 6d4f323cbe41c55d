"""Codes and phones of an utterance, the training data of the language models.

Speakers are indices into `PEOPLE`. For augmentation, an utterance can be resampled by one of `WARPS`, which changes
duration, pitch and formants and counts as a new speaker.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import soxr
import torch
from numpy.typing import NDArray

from training import plan
from training.ipa import arpabet, initials_and_finals
from training.kokoro import RATE as TEACHERS_RATE
from training.kokoro import Phone
from training.render import Rendering
from training.spoil import spoil
from training.trim import trimmed
from voicelab.engine.pointer.codec import Codec
from voicelab.engine.pointer.config import ALL_PHONES
from voicelab.engine.pointer.front import flags_of
from voicelab.engine.pointer.speakers import speaker_statistics

PEOPLE = tuple(name for part in plan.PARTS for name, _ in plan.speakers(part.name))
"""All speakers of the plan, in order."""
WARPS = (0.92, 0.96, 1.04, 1.08)
"""Duration factors of warped speech; each warp offsets the speaker index by the number of `PEOPLE`."""


@dataclass(frozen=True)
class PreparedUtterance:
    """A trimmed and level-normalized utterance."""

    samples: NDArray[np.int16]
    """Shape (frames * hop,) at the codec's rate, with trailing silence."""
    phones: list[Phone]
    """Phones of the engine's inventory."""


@dataclass(frozen=True)
class Encoded:
    """An utterance as input of the language model."""

    speaker: int
    phones: NDArray[np.int16]
    flags: NDArray[np.int16]
    """0 inside a word, 1 its first phone, 2 its last, 3 its only one or a pause."""
    codes: NDArray[np.int16]
    """Shape (frames, codebooks)."""
    at: NDArray[np.int16]
    """Index of the phone at the middle of each frame, shape (frames,)."""
    statistics: NDArray[np.float32]
    """Speaker statistics as of a reference, shape (STATISTICS * latent,); for some, of a degraded copy."""


def prepare(rendering: Rendering, codec: Codec) -> PreparedUtterance:
    """Convert a rendering to samples at the codec's rate, and phones of the engine's inventory."""
    audio, phones = trimmed(rendering)
    rate, hop = codec.config.sample_rate, codec.config.hop
    samples = np.clip(np.round(soxr.resample(audio, TEACHERS_RATE, rate) * 32768), -32768, 32767).astype(np.int16)
    sounds = initials_and_finals(phones) if rendering.request.language == "zh" else phones
    return PreparedUtterance(np.pad(samples, (0, -samples.size % hop)), arpabet(sounds))


def codes_of(codec: Codec, samples: NDArray[np.float32]) -> NDArray[np.int16]:
    """Encode audio of shape (samples,) at the codec's rate to codes, shape (frames, codebooks)."""
    return codec.encode(torch.from_numpy(samples)[None])[0].numpy().astype(np.int16)


def encode(codec: Codec, utterance: PreparedUtterance, speaker: str, spoiled: bool, warp: int = 0) -> Encoded:
    """Encode an utterance, optionally warped (from 1); `spoiled` takes the statistics from a degraded copy."""
    rate, hop = codec.config.sample_rate, codec.config.hop
    audio = utterance.samples.astype(np.float32) / np.float32(32768)
    stretch = 1.0 if warp == 0 else WARPS[warp - 1]
    if warp:
        audio = soxr.resample(audio, rate, rate * stretch)
        audio = np.pad(audio, (0, -audio.size % hop))
    codes = codes_of(codec, audio)
    reference = codes_of(codec, spoil(audio, rate, seed=audio.size)) if spoiled else codes
    ends = np.array([p.end for p in utterance.phones]) * stretch
    names = [p.name for p in utterance.phones]
    middles = (np.arange(codes.shape[0]) + 0.5) * hop / rate
    return Encoded(
        PEOPLE.index(speaker) + warp * len(PEOPLE),
        np.array([ALL_PHONES.index(name) for name in names], dtype=np.int16),
        np.array(flags_of(names, [p.first for p in utterance.phones]), dtype=np.int16),
        codes,
        np.minimum(np.searchsorted(ends, middles), len(names) - 1).astype(np.int16),
        statistics_of(codec, reference),
    )


def statistics_of(codec: Codec, codes: NDArray[np.int16]) -> NDArray[np.float32]:
    """Compute speaker statistics of `codes` (frames, codebooks), shape (STATISTICS * latent,)."""
    latents = codec.quantizer.decode(torch.from_numpy(codes.astype(np.int64)))
    return speaker_statistics(latents.numpy())
