"""Choosing: draw for draw the twin's, and randomness that is each row's own."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.engine.dual.twin import draw
from voicelab.engine.dual.choose import WINDOW, choose, choose_main, uniform

MASK = 2**64 - 1
SETTINGS = [
    (1.0, 0.9, 30),
    (0.7, 0.7, 30),
    (0.8, 0.8, 5),
    (0.7, 1.0, 200),
    (1.0, 0.01, 30),
    (0.1, 0.5, 30),
    (0.0, 0.9, 30),
]


def _logits(rows: int = 200, size: int = 150) -> Tensor:
    return 2 * torch.randn(rows, size, generator=torch.Generator().manual_seed(0))


def _uniform(rows: int = 200, size: int = 150) -> Tensor:
    return torch.rand(rows, size, generator=torch.Generator().manual_seed(1))


def _all(logits: Tensor, temperature: float, top_p: float, top_k: int) -> list[int]:
    rows = torch.ones(len(logits))
    return choose(logits, temperature * rows, top_p * rows, _uniform(*logits.shape), top_k).tolist()


def _twins(logits: Tensor, temperature: float, top_p: float, top_k: int, turned: str = "") -> list[int]:
    pairs = zip(logits.double().numpy(), _uniform(*logits.shape).double().numpy(), strict=True)
    return [draw(of, u, temperature, top_p, top_k, turned) for of, u in pairs]


@pytest.mark.parametrize(("temperature", "top_p", "top_k"), SETTINGS)
def test_every_draw_is_the_twins(temperature: float, top_p: float, top_k: int) -> None:
    assert _all(_logits(), temperature, top_p, top_k) == _twins(_logits(), temperature, top_p, top_k)


@pytest.mark.parametrize("fact", ["the one that crosses stays", "temperature first", "no top k"])
def test_a_rule_turned_round_shows_in_the_draws(fact: str) -> None:
    assert _all(_logits(), 0.7, 0.7, 5) != _twins(_logits(), 0.7, 0.7, 5, fact)


def test_rows_have_settings_of_their_own() -> None:
    logits, u = _logits(3), _uniform(3)
    temperature, top_p = torch.tensor([0.0, 1.0, 0.5]), torch.tensor([0.9, 1.0, 0.3])
    alone = [choose(logits[i : i + 1], temperature[i : i + 1], top_p[i : i + 1], u[i : i + 1]).item() for i in range(3)]
    assert choose(logits, temperature, top_p, u).tolist() == alone
    assert alone[0] == logits[0].argmax()


def test_draws_follow_the_probabilities() -> None:
    logits = torch.tensor([0.0, 1.0, 2.0, -torch.inf]).expand(20_000, -1)
    ones = torch.ones(20_000)
    chosen = choose(logits, ones, ones, _uniform(20_000, 4))
    shares = torch.bincount(chosen, minlength=4) / 20_000
    assert (shares - logits[0].softmax(-1)).abs().max() < 0.015
    assert shares[3] == 0


@pytest.mark.parametrize(
    ("recent", "again", "chosen"),
    [([-1] * WINDOW, True, 1), ([-1] * 9 + [1], True, 0), ([1] + [-1] * 9, True, 0), ([-1] * 9 + [1], False, 1)],
)
def test_a_repetition_is_drawn_once_more(recent: list[int], again: bool, chosen: int) -> None:
    """The second draw has settings and randomness of its own, so that it may say something else."""
    logits = torch.tensor([[1.1, 1.2, 1.0, -9.0]])
    cold, narrow = torch.tensor([0.0]), torch.tensor([0.0])
    u = torch.full((1, 4), 0.5), torch.tensor([[0.99, 0.01, 0.01, 0.5]])
    got = choose_main(logits, cold, narrow, u, torch.tensor([recent]), torch.tensor([again]))
    assert got.item() == chosen


def test_the_end_of_speech_is_no_repetition() -> None:
    logits, one = torch.tensor([[0.0, 0.0, 9.0]]), torch.ones(1)
    u = torch.tensor([[0.5, 0.5, 0.5]]), torch.tensor([[0.99, 0.99, 0.01]])
    assert choose_main(logits, one, one, u, torch.tensor([[2] * WINDOW]), torch.tensor([True])).item() == 2


def _mix(z: int) -> int:
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    return z ^ (z >> 31)


def test_randomness_is_splitmix64_of_seed_and_frame() -> None:
    seeds, frames = torch.tensor([0, 7, 2**32 - 1]), torch.tensor([0, 3, 1000])
    for row, (seed, frame) in enumerate(zip(seeds.tolist(), frames.tolist(), strict=True)):
        state = _mix((_mix(seed) + frame) & MASK)
        bits = [_mix((state + i * 0x9E3779B97F4A7C15) & MASK) >> 41 for i in range(50)]
        assert uniform(seeds, frames, 50)[row].tolist() == [(b + 0.5) / 2**23 for b in bits]


def test_randomness_is_even_and_everybodys_own() -> None:
    u = uniform(torch.arange(40), torch.zeros(40, dtype=torch.int64), 5000)
    assert 0 < u.min() < u.max() < 1
    assert abs(u.mean() - 0.5) < 0.003
    assert abs(u.var() - 1 / 12) < 0.001
    assert np.abs(np.corrcoef(u.numpy()) - np.eye(40)).max() < 0.08
    later = uniform(torch.arange(40), torch.ones(40, dtype=torch.int64), 5000)
    assert np.abs(np.corrcoef(u.numpy(), later.numpy())[:40, 40:]).max() < 0.08
    assert torch.equal(uniform(torch.tensor([7]), torch.tensor([0]), 5000)[0], u[7])  # alone as among others
