"""A learned guess at how an unknown word is said: letters to phones by a small transformer with a CTC output.

Every letter gets `PER_LETTER` output positions, each a phone or nothing, aligned in training by connectionist temporal
classification (Graves et al., 2006); reading them off is one pass, without a search.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from importlib.resources import as_file, files
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from voicelab.engine.config import StackConfig
from voicelab.engine.text.lexicon import LETTERS
from voicelab.engine.text.phones import PHONES
from voicelab.engine.transformer import Stack
from voicelab.errors import WeightsError

LETTER_IDS = {letter: i for i, letter in enumerate("\0abcdefghijklmnopqrstuvwxyz'")}
PER_LETTER = 3
LONGEST = 40
"""Letters of a word that are looked at; what is longer is no word."""
_CONFIG = StackConfig(width=128, layers=3, heads=4, hidden=320, window=64)


class Guesser(nn.Module):
    """Letters → log probabilities of phones; id 0, the padding of the inventory, is CTC's blank."""

    def __init__(self) -> None:
        super().__init__()
        self.letter = nn.Embedding(len(LETTER_IDS), _CONFIG.width)
        self.stack = Stack(_CONFIG, causal=False)
        self.out = nn.Linear(_CONFIG.width, PER_LETTER * len(PHONES))

    def forward(self, letters: Tensor) -> Tensor:
        """(batch, letters) ids, 0 where padded → (batch, PER_LETTER * letters, phones)."""
        y = self.out(self.stack(self.letter(letters), letters > 0))
        return torch.log_softmax(y.reshape(y.shape[0], -1, len(PHONES)), dim=-1)

    @torch.inference_mode()
    def guess(self, word: str) -> tuple[str, ...]:
        """Phones of a lower-case word; a word that gives none is spelled."""
        letters = [LETTER_IDS[c] for c in word[:LONGEST] if c in LETTER_IDS]
        if not letters:
            return ()
        best = self(torch.tensor([letters]))[0].argmax(-1).tolist()
        ids = [p for i, p in enumerate(best) if p and (i == 0 or best[i - 1] != p)]
        return tuple(PHONES[p] for p in ids) or tuple(p for c in word[:LONGEST] for p in LETTERS.get(c, ()))


def load_guess(path: Path | None = None) -> Callable[[str], tuple[str, ...]]:
    """The guess, with a memory; by default of the weights inside the package.

    Raises:
        WeightsError: the weights are missing or damaged.
    """
    if path is None:
        with as_file(files("voicelab.engine") / "weights" / "guess.safetensors") as embedded:
            return load_guess(embedded)
    model = Guesser()
    try:
        model.load_state_dict({k: v.float() for k, v in load_file(path).items()})
    except (OSError, SafetensorError, RuntimeError) as error:
        raise WeightsError(f"the weights {path.name} cannot be read: {error}") from error
    return lru_cache(maxsize=4096)(model.eval().requires_grad_(False).guess)
