"""Fits what the language model is told of a speaker to what it then makes of it: it says a few sentences and is corrected.

The model learned from some hundreds of speakers; told of one that it never heard, it may be off by a semitone or two, and
always in the same way. What it says is measured by the same statistics as the reference, so the difference can be
given back (docs/decisions/2026-11-21-clones.md).
"""

from __future__ import annotations

import threading
from collections import OrderedDict

import torch
from torch import Tensor

from voicelab.engine.lm import STATISTICS, speaker_statistics
from voicelab.engine.pipeline import Parts
from voicelab.engine.sampling import Settings
from voicelab.engine.scheduler import Scheduler
from voicelab.engine.sequence import Sequence

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


class Fitting:
    """Fits speakers, and remembers the latest."""

    def __init__(self) -> None:
        self._fitted: OrderedDict[tuple[Scheduler, bytes], Tensor] = OrderedDict()
        self._lock = threading.Lock()

    def __call__(self, speaker: Tensor, parts: Parts) -> Tensor:
        """What to tell the model of a `speaker` (STATISTICS * latent,), on the CPU; the same for the same weights.

        Raises:
            EngineError: the engine is closed, or failed.
        """
        key = (parts.scheduler, speaker.numpy().tobytes())
        with self._lock:
            if key in self._fitted:
                self._fitted.move_to_end(key)
                return self._fitted[key]
        told = _valid(
            speaker + SHARE * (speaker - _heard(speaker, parts))
        )  # two callers may do the same at once: no harm
        with self._lock:
            self._fitted[key] = told
            while len(self._fitted) > _REMEMBERED:
                self._fitted.popitem(last=False)
        return told


def _heard(told: Tensor, parts: Parts) -> Tensor:
    """Statistics of all sentences, said side by side."""
    sequences = []
    for seed, text in enumerate(SENTENCES):
        sequence = Sequence(told, Settings(), seed, _LONGEST)
        sequence.wake_at = _LONGEST
        sequence.add(parts.front.read(text))
        sequence.finish()
        sequences.append(sequence)
    parts.scheduler.submit(*sequences)
    codes = torch.stack([f.codes for sequence in sequences for f in sequence.frames() if f.codes is not None])
    quantizer = parts.codec.quantizer
    return speaker_statistics(quantizer.decode(codes.to(quantizer.tables[0].device)).cpu())


def _valid(told: Tensor) -> Tensor:
    """Deviations and changes are not negative."""
    means, rest = told.split([told.numel() // STATISTICS, told.numel() - told.numel() // STATISTICS])
    return torch.cat([means, rest.clamp(min=0)])
