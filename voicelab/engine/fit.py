"""Fits what the language model is told of a speaker to what it then makes of it: it says a few sentences and is corrected.

The model learned from some hundreds of speakers; told of one that it never heard, it may be off by a semitone or two, and
always in the same way. What it says is measured by the same statistics as the reference, so the difference can be
given back (docs/decisions/2026-11-21-clones.md). Of a reference over a telephone, what the telephone did is taken away
first: the model hears its sentences once as they are and once over the same band, and the difference is the telephone's.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from voicelab.engine.channel import Band, through
from voicelab.engine.latest import Latest
from voicelab.engine.lm import STATISTICS, speaker_statistics
from voicelab.engine.pipeline import Parts
from voicelab.engine.sampling import Settings
from voicelab.engine.sequence import Sequence
from voicelab.engine.speakers import Speaker, hear, level
from voicelab.errors import AudioError

SENTENCES = (
    "The old clock in the hall strikes nine before the children wake up.",
    "She bought fresh bread, a jar of honey, and two ripe pears.",
    "Why should anyone choose the longer road through the valley?",
    "A thin layer of ice covered the pond, yet nobody slipped.",
    "Our neighbour plays the violin whenever the weather is dull.",
    "Judge the picture by its colours, not by the size of its frame.",
    "They watched five yellow boats leave the harbour at noon.",
    "Thank you for showing us how the machine was built.",
)
"""Of no test set; together they hold every English phone but those of "boy" and "measure"."""
SHARE = 0.6
"""How much of the difference is given back: more of it follows the chance of eight sentences."""
_LONGEST = 160
"""Frames of a sentence (7 s): twice what it needs."""
_REMEMBERED = 32


@dataclass(frozen=True)
class Fitted:
    """A speaker and how to come near him, each (STATISTICS * latent,), on the CPU."""

    wanted: Tensor
    """What speech of his is like; with a telephone's part in it taken away."""
    told: Tensor
    """What the model is told, that it may sound so."""


class Fitting:
    """Fits speakers, and remembers the latest."""

    def __init__(self) -> None:
        self._fitted: Latest[Fitted] = Latest(_REMEMBERED)

    def __call__(self, speaker: Speaker, parts: Parts) -> Fitted:
        """What to tell the model of a `speaker`; the same for the same weights.

        Raises:
            EngineError: the engine is closed, or failed.
        """
        key = (parts.scheduler, speaker.statistics.numpy().tobytes(), speaker.band)
        return self._fitted.get(key, partial(_fitted, speaker, parts))


def _fitted(speaker: Speaker, parts: Parts) -> Fitted:
    wanted = _as_heard_here(speaker, parts)
    return Fitted(wanted, _valid(wanted + SHARE * (wanted - _statistics(_say(wanted, parts), parts))))


def as_it_is(speaker: Speaker) -> Fitted:
    """A speaker of the training, whom the model knows."""
    return Fitted(speaker.statistics, speaker.statistics)


def _as_heard_here(speaker: Speaker, parts: Parts) -> Tensor:
    """The statistics without what a telephone adds to those of the same model's speech."""
    if speaker.band is None:
        return speaker.statistics
    said = _say(speaker.statistics, parts)
    try:
        far = parts.decoding.do(partial(_over_telephone, said, speaker.band, parts), len(said))
    except AudioError:  # it says nothing that can be heard over it
        return speaker.statistics
    return _valid(speaker.statistics - (far - _statistics(said, parts)))


def _say(told: Tensor, parts: Parts) -> Tensor:
    """The codes (n, codebooks) of all sentences, said side by side, one after the other."""
    sequences = []
    for seed, text in enumerate(SENTENCES):
        sequence = Sequence(told, Settings(), seed, _LONGEST)
        sequence.wake_at = _LONGEST
        sequence.add(parts.front.read(text))
        sequence.finish()
        sequences.append(sequence)
    parts.scheduler.submit(*sequences)
    codes = torch.stack([f.codes for sequence in sequences for f in sequence.frames() if f.codes is not None])
    return codes.to(parts.codec.quantizer.tables[0].device)


def _statistics(codes: Tensor, parts: Parts) -> Tensor:
    return speaker_statistics(parts.codec.quantizer.decode(codes).cpu())


def _over_telephone(codes: Tensor, band: Band, parts: Parts) -> Tensor:
    """The statistics of the codes' sound, heard again over a band."""
    rate = parts.codec.config.sample_rate
    samples = through(parts.codec.decode(codes[None])[0].cpu().numpy(), rate, band)
    return speaker_statistics(hear(parts.codec, level(samples, rate))[1])


def _valid(told: Tensor) -> Tensor:
    """Deviations and changes are not negative."""
    means, rest = told.split([told.numel() // STATISTICS, told.numel() - told.numel() // STATISTICS])
    return torch.cat([means, rest.clamp(min=0)])
