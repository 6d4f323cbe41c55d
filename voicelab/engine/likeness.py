"""How near a clone is to its reference, and whether the reference is something that the voice can follow at all."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

FOLLOWED = 0.88
"""Kept shares below this are outside what the voice can follow: see `kept`, and docs/decisions/2026-11-21-the-codec.md."""
_SHORT_S = 3.0
_TELEPHONE_HZ = 4000.0
_DARK_DB = -50.0


def kept(latents: Tensor, quantized: Tensor) -> float:
    """The share of a recording that the codebooks hold: 1 for what they were made for, 0 or less for what they do not know.

    One minus the energy of the difference over the energy of the latents around their mean; no unit. Clean speech of
    speakers like those of the training keeps .95 to .97, and so it does under noise as loud as itself or in a room, since the
    encoder hears through them; over a telephone .88 to .91, people .89 to .92, chords .88, white noise alone .77, a tone -4.

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


def doubts(samples: NDArray[np.float32], rate: int, share: float) -> tuple[str, ...]:
    """What stands in the way of following a reference, in phrases; nothing when all is well.

    Args:
        samples: the recording, mono.
        rate: in Hz.
        share: see `kept`.
    """
    found = []
    if samples.size < _SHORT_S * rate:
        found.append(f"it lasts {samples.size / rate:.1f} s, and a voice takes at least {_SHORT_S:g} s")
    if _telephone(samples, rate):
        found.append("it has nothing above 4 kHz, as over a telephone: what is above is guessed")
    if share < FOLLOWED:
        found.append(
            f"no speech, or a sound that the voice cannot follow: of it, the voice keeps {max(0.0, share):.0%}"
        )
    return tuple(found)


def _telephone(samples: NDArray[np.float32], rate: int) -> bool:
    """Whether there is nothing above `_TELEPHONE_HZ`: less than `_DARK_DB` of the power below it."""
    power = np.abs(np.fft.rfft(samples)) ** 2
    hertz = np.fft.rfftfreq(samples.size, 1 / rate)
    above, below = float(power[hertz > _TELEPHONE_HZ].sum()), float(power[hertz <= _TELEPHONE_HZ].sum())
    return bool(above <= below * 10 ** (_DARK_DB / 10))
