"""Trains the letter-to-sound guess on the lexicon."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file
from torch.nn import functional as F

from training import common
from training.lexicon import OUT
from voicelab.engine.text.guess import LETTER_IDS, PER_LETTER, Guesser
from voicelab.engine.text.lexicon import _load
from voicelab.engine.text.phones import PHONES

HELD = 2000
"""Words kept for the measurement."""


def _split(seed: int) -> tuple[list[tuple[list[int], list[int]]], list[tuple[str, list[str]]]]:
    words = [(w, p.split(" ")) for w, p in sorted(_load().items()) if len(w) > 1]
    order = np.random.default_rng(seed).permutation(len(words))
    held = [words[int(i)] for i in order[:HELD]]
    rest = [words[int(i)] for i in order[HELD:]]
    return [([LETTER_IDS[c] for c in w], [PHONES.index(p) for p in phones]) for w, phones in rest], held


def measure(model: Guesser, held: list[tuple[str, list[str]]]) -> dict[str, float]:
    """Share of phones and of words wrong, stress counted."""
    wrong = phones = words = 0
    for word, truth in held:
        said = list(model.guess(word))
        wrong += _distance(said, truth)
        phones += len(truth)
        words += said != truth
    return {"phone_error": wrong / phones, "word_error": words / len(held)}


def _distance(a: list[str], b: list[str]) -> int:
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        last, row[0] = row[0], i
        for j, y in enumerate(b, 1):
            last, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, last + (x != y))
    return row[-1]


def train(
    minutes: float, out: Path = OUT, batch_size: int = 384, seed: int = 0, peak: float = 2e-3
) -> dict[str, float]:
    """Trains on the package's lexicon for `minutes`, writes ``out/guess.safetensors``, returns errors on held-out words."""
    torch.manual_seed(seed)
    rng = np.random.default_rng(seed)
    words, held = _split(seed)
    model = Guesser()
    average = common.Average(model, 0.998)
    optimizer = torch.optim.AdamW(model.parameters(), lr=peak, weight_decay=0.01, betas=(0.9, 0.98))
    clock, step = common.Clock(minutes), 0
    while clock.done < 1:
        for group in optimizer.param_groups:
            group["lr"] = clock.rate(peak, step, hold=0.3)
        rows = [words[int(i)] for i in rng.integers(len(words), size=batch_size)]
        letters = torch.nn.utils.rnn.pad_sequence([torch.tensor(r[0]) for r in rows], batch_first=True)
        targets = torch.cat([torch.tensor(r[1]) for r in rows])
        lengths = torch.tensor([PER_LETTER * len(r[0]) for r in rows])
        loss = F.ctc_loss(
            model(letters).transpose(0, 1),
            targets,
            lengths,
            torch.tensor([len(r[1]) for r in rows]),
            zero_infinity=True,
        )
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        average.update(model)
        step += 1
        if step % 100 == 0:
            print(step, f"{clock.spent:.0f}s", round(loss.item(), 4), flush=True)
    model.load_state_dict(average.values)
    figures = measure(model.eval(), held)
    path = out / "guess.safetensors"
    save_file(
        {k: v.half().contiguous() for k, v in average.values.items()},
        path,
        metadata={"voicelab": json.dumps({"steps": step, **figures})},
    )
    print(json.dumps({"steps": step, **figures}), flush=True)
    return figures
