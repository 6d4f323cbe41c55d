"""How near a clone is to its reference, and whether the reference is something that the voice can follow at all."""

from __future__ import annotations

import torch
from torch import Tensor

FOLLOWED = 0.88
"""Kept shares below this are outside what the voice can follow: see `kept`, and docs/decisions/2026-11-21-clones.md."""
_SHORT_S = 3.0


def kept(latents: Tensor, quantized: Tensor) -> float:
    """The share of a recording that the codebooks hold: 1 for what they were made for, 0 or less for what they do not know.

    One minus the energy of the difference over the energy of the latents around their mean; no unit. Speech of speakers like
    those of the training keeps .91 to .97, and so it does over a telephone or under noise, since the encoder hears through
    them; people keep .89 to .94, white noise alone .83, chords and tones less than nothing.

    Args:
        latents: (n, latent) what the codec's encoder makes of the recording.
        quantized: (n, latent) the same as the codes hold it.
    """
    spread = float((latents - latents.mean(0)).square().sum())
    lost = float((latents - quantized).square().sum())
    return 1.0 - lost / spread if spread > 0 else 0.0


def similarity(one: Tensor, other: Tensor, voices: Tensor) -> float:
    """How near two speakers are: 1 for the same, 0 for as far apart as two voices of the checkpoint are on average.

    One minus their distance, as the language model sees speakers, over the mean distance between the checkpoint's voices; no
    unit, at most 1, below 0 for those further apart than voices usually are. Two texts of one speaker are some way below 1
    too, the more so the shorter they are: .67 to .84 for 3 s, .78 to .88 for 9 s. Others had 0 on average, .75 at most.

    Args:
        one: (width,) a speaker, as `LM.encode_speaker` makes it of its statistics.
        other: the same of the other.
        voices: (voices, width) those of the checkpoint; at least two that differ, or the answer is 0.
    """
    usual = float(torch.pdist(voices.float()).mean()) if len(voices) > 1 else 0.0
    return 1.0 - float((one - other).norm()) / usual if usual > 0 else 0.0


def doubts(seconds: float, share: float, *, narrow: bool) -> tuple[str, ...]:
    """What stands in the way of following a reference, in phrases; nothing when all is well.

    Args:
        seconds: how long the recording lasts.
        share: see `kept`.
        narrow: whether it came over a telephone.
    """
    found = []
    if seconds < _SHORT_S:
        found.append(f"it lasts {seconds:.1f} s, and a voice takes at least {_SHORT_S:g} s")
    if narrow:
        found.append("it has nothing above 4 kHz, as over a telephone: what is above is guessed")
    if share < FOLLOWED:
        found.append(
            f"no speech, or a sound that the voice cannot follow: of it, the voice keeps {max(0.0, share):.0%}"
        )
    return tuple(found)
