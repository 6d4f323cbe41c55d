"""Codes and phones of one utterance: what the language models learn from.

An utterance's speaker is its place in `PEOPLE`. It can be encoded as it was said, or by one of `WARPS`, played slower or
faster with its pitch and formants: another speaker, who costs no rendering.
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
from voicelab.engine.pointer.lm import speaker_statistics

PEOPLE = tuple(name for part in plan.PARTS for name, _ in plan.speakers(part.name))
"""Every speaker of the plan, in its order."""
WARPS = (0.92, 0.96, 1.04, 1.08)
"""How much longer warped speech is; the speaker's number goes up by as many as there are `PEOPLE` for each."""


@dataclass(frozen=True)
class Said:
    """One utterance, trimmed and at one level."""

    samples: NDArray[np.int16]
    """(frames * hop,) at the codec's rate, silence at the end."""
    phones: list[Phone]
    """By the inventory's names."""


@dataclass(frozen=True)
class Encoded:
    """One utterance as the language model sees it."""

    speaker: int
    phones: NDArray[np.int16]
    flags: NDArray[np.int16]
    """0 inside a word, 1 its first phone, 2 its last, 3 its only one, or a pause."""
    codes: NDArray[np.int16]
    """(frames, codebooks)."""
    at: NDArray[np.int16]
    """(frames,) the phone spoken at the middle of each frame."""
    statistics: NDArray[np.float32]
    """(STATISTICS * latent,) what the engine would make of it as a reference; for some, of a spoiled copy."""


def said_by(rendering: Rendering, codec: Codec) -> Said:
    """An utterance as the codec and the language models hear and read it."""
    audio, phones = trimmed(rendering)
    rate, hop = codec.config.sample_rate, codec.config.hop
    samples = np.clip(np.round(soxr.resample(audio, TEACHERS_RATE, rate) * 32768), -32768, 32767).astype(np.int16)
    sounds = initials_and_finals(phones) if rendering.request.language == "zh" else phones
    return Said(np.pad(samples, (0, -samples.size % hop)), arpabet(sounds))


def codes_of(codec: Codec, samples: NDArray[np.float32]) -> NDArray[np.int16]:
    """(frames, codebooks) of audio (samples,) at the codec's rate."""
    return codec.encode(torch.from_numpy(samples)[None])[0].numpy().astype(np.int16)


def encode(codec: Codec, said: Said, speaker: str, spoiled: bool, warp: int = 0) -> Encoded:
    """One utterance, as it was said or by a warp (from 1 on); `spoiled`: its speaker is told as by a spoiled recording."""
    rate, hop = codec.config.sample_rate, codec.config.hop
    audio = said.samples.astype(np.float32) / np.float32(32768)
    longer = 1.0 if warp == 0 else WARPS[warp - 1]
    if warp:
        audio = soxr.resample(audio, rate, rate * longer)
        audio = np.pad(audio, (0, -audio.size % hop))
    codes = codes_of(codec, audio)
    reference = codes_of(codec, spoil(audio, rate, seed=audio.size)) if spoiled else codes
    ends = np.array([p.end for p in said.phones]) * longer
    names = [p.name for p in said.phones]
    middles = (np.arange(codes.shape[0]) + 0.5) * hop / rate
    return Encoded(
        PEOPLE.index(speaker) + warp * len(PEOPLE),
        np.array([ALL_PHONES.index(name) for name in names], dtype=np.int16),
        np.array(flags_of(names, [p.first for p in said.phones]), dtype=np.int16),
        codes,
        np.minimum(np.searchsorted(ends, middles), len(names) - 1).astype(np.int16),
        statistics_of(codec, reference),
    )


def statistics_of(codec: Codec, codes: NDArray[np.int16]) -> NDArray[np.float32]:
    """(STATISTICS * latent,) what `codes` (frames, codebooks) tell of their speaker."""
    latents = codec.quantizer.decode(torch.from_numpy(codes.astype(np.int64)))
    statistics: NDArray[np.float32] = speaker_statistics(latents).numpy()
    return statistics
