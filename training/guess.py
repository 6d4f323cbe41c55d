"""Train the letter-to-sound model on the lexicon."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn import functional as F

from training import common
from voicelab.engine.pointer.arrays import Weights
from voicelab.engine.pointer.config import PHONES
from voicelab.engine.pointer.english import G2P, LETTER_IDS, PER_LETTER, Guesser, load_lexicon
from voicelab.engine.pointer.lm import Stack

HELD_OUT = 2000
"""Number of held-out words."""


class GuesserModule(nn.Module):
    """The module of `english.Guesser`, trained here: letters → log probabilities of phones."""

    def __init__(self) -> None:
        super().__init__()
        self.letter = nn.Embedding(len(LETTER_IDS), G2P.width)
        self.stack = Stack(G2P, causal=False)
        self.out = nn.Linear(G2P.width, PER_LETTER * len(PHONES))

    def forward(self, letters: Tensor) -> Tensor:
        """Compute (batch, PER_LETTER * letters, phones) log probabilities of letter ids (batch, letters), 0 for padding."""
        y = self.out(self.stack(self.letter(letters), letters > 0))
        return torch.log_softmax(y.reshape(y.shape[0], -1, len(PHONES)), dim=-1)

    def words(self) -> Guesser:
        """Return the model with these weights as it is used."""
        return Guesser(Weights({name: tensor.detach().cpu().numpy() for name, tensor in self.state_dict().items()}))


def _split(
    lexicon: Mapping[str, str], seed: int
) -> tuple[list[tuple[list[int], list[int]]], list[tuple[str, list[str]]]]:
    words = [(w, p.split(" ")) for w, p in sorted(lexicon.items()) if len(w) > 1]
    order = np.random.default_rng(seed).permutation(len(words))
    held = [words[int(i)] for i in order[:HELD_OUT]]
    rest = [words[int(i)] for i in order[HELD_OUT:]]
    return [([LETTER_IDS[c] for c in w], [PHONES.index(p) for p in phones]) for w, phones in rest], held


def measure(model: Guesser, held: list[tuple[str, list[str]]]) -> dict[str, float]:
    """Compute phone and word error rates, including stress."""
    wrong = phones = words = 0
    for word, truth in held:
        phones_of_word = list(model.guess(word))
        wrong += _distance(phones_of_word, truth)
        phones += len(truth)
        words += phones_of_word != truth
    return {"phone_error": wrong / phones, "word_error": words / len(held)}


def _distance(a: list[str], b: list[str]) -> int:
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        diagonal, row[0] = row[0], i
        for j, y in enumerate(b, 1):
            diagonal, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, diagonal + (x != y))
    return row[-1]


def train(
    folder: Path,
    start: Path | None,
    steps: int,
    batch_size: int = 384,
    seed: int = 0,
    peak: float = 2e-3,
) -> dict[str, float]:
    """Train on the lexicon in `folder` for `steps`, resuming an interrupted run; write ``folder/guess.safetensors``.

    Initial weights are those of `start`, if given.

    Returns:
        Error rates on held-out words.
    """
    torch.manual_seed(seed)
    words, held = _split(load_lexicon(folder / "lexicon.txt.gz"), seed)
    model = GuesserModule()
    if start is not None:
        model.load_state_dict({k: v.float() for k, v in load_file(start / "guess.safetensors").items()})
    optimizers = [torch.optim.AdamW(model.parameters(), lr=peak, weight_decay=0.01, betas=(0.9, 0.98))]
    path = folder / "guess-run.safetensors"
    run = common.Run(path, steps, model, optimizers, decay=0.998, warm=200, hold=0.3, about={"seed": seed})
    rng = np.random.default_rng(seed + run.step)
    for _ in run:
        loss = _loss(model, [words[int(i)] for i in rng.integers(len(words), size=batch_size)])
        run.descend(loss)
    model.load_state_dict(run.average.values)
    figures = measure(model.eval().words(), held)
    save_file(
        {k: v.half().contiguous() for k, v in run.average.values.items()},
        folder / "guess.safetensors",
        metadata={"voicelab": json.dumps({"steps": run.step, **figures})},
    )
    print(json.dumps({"steps": run.step, **figures}), flush=True)
    return figures


def _loss(model: GuesserModule, rows: list[tuple[list[int], list[int]]]) -> Tensor:
    return F.ctc_loss(
        model(torch.nn.utils.rnn.pad_sequence([torch.tensor(r[0]) for r in rows], batch_first=True)).transpose(0, 1),
        torch.cat([torch.tensor(r[1]) for r in rows]),
        torch.tensor([PER_LETTER * len(r[0]) for r in rows]),
        torch.tensor([len(r[1]) for r in rows]),
        zero_infinity=True,
    )
