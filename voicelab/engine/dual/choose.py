"""Choosing on the device: nucleus, top-k, the race that draws, and the second draw of a token that repeats.

Randomness is a function of the sequence's seed and the frame's number, computed where it is needed: a row draws the same
alone and among others, and nothing comes from the host.
"""

from __future__ import annotations

import torch
from torch import Tensor

TOP_K = 30
WINDOW = 10
"""Main tokens that a new one should not be among."""
AGAIN_TEMPERATURE, AGAIN_TOP_P = 1.0, 0.9
"""Settings of the draw that replaces a repetition."""
_COLDEST = 1e-5
_GOLDEN, _FIRST, _SECOND = (
    -0x61C8864680B583EB,
    -0x40A7B892E31B1A47,
    -0x6B2FB644ECCEEE15,
)  # splitmix64, as signed numbers
_BITS = 23
"""So that the largest number is still below 1 in float32."""


def uniform(seeds: Tensor, frames: Tensor, size: int) -> Tensor:
    """(rows, size) float32 in (0, 1): of each seed (rows,) and frame number (rows,), both int64, numbers of their own.

    splitmix64 (Steele, Lea, Flood, 2014), with the entry's number as its state's step.
    """
    entries = torch.arange(size, device=seeds.device)
    state = _mix(_mix(seeds) + frames)[:, None] + entries * _GOLDEN
    bits = _shift(_mix(state), 64 - _BITS)
    return (bits.float() + 0.5) * 0.5**_BITS


def _mix(z: Tensor) -> Tensor:
    z = (z ^ _shift(z, 30)) * _FIRST
    z = (z ^ _shift(z, 27)) * _SECOND
    return z ^ _shift(z, 31)


def _shift(z: Tensor, by: int) -> Tensor:
    """To the right, with zeros from the left."""
    return (z >> by) & ((1 << (64 - by)) - 1)


def choose(logits: Tensor, temperature: Tensor, top_p: Tensor, u: Tensor, top_k: int = TOP_K) -> Tensor:
    """The entry (rows,) that each row draws.

    Unlike the usual nucleus, the entry that crosses `top_p` is removed, and the temperature comes last.

    Args:
        logits: (rows, n); -inf for what cannot be chosen.
        temperature: (rows,) at 0 the likeliest is taken.
        top_p: (rows,) entries are kept while their probabilities, from the likeliest on, sum to no more.
        u: (rows, n) uniform in (0, 1), one for each entry.
        top_k: most entries that are kept.
    """
    sorted_logits, order = logits.float().topk(min(top_k, logits.shape[-1]), -1)
    summed = (sorted_logits - logits.float().logsumexp(-1, keepdim=True)).exp().cumsum(-1)
    within = (summed <= top_p[:, None]) | (top_p[:, None] >= 1)  # a sum of all may be rounded to more than 1
    kept = within & (temperature[:, None] > 0)
    kept[:, 0] = True
    likely = (sorted_logits / temperature.clamp_min(_COLDEST)[:, None]).masked_fill(~kept, -torch.inf).softmax(-1)
    winner = (likely / -u.gather(-1, order).log()).argmax(-1, keepdim=True)
    return order.gather(-1, winner)[:, 0]


def choose_main(
    logits: Tensor, temperature: Tensor, top_p: Tensor, u: tuple[Tensor, Tensor], recent: Tensor, again: Tensor
) -> Tensor:
    """As `choose` for a frame's first entry, of which the last is the end of speech.

    Args:
        logits: (rows, n).
        temperature: (rows,).
        top_p: (rows,).
        u: for each of two draws (rows, n).
        recent: (rows, WINDOW) entries of the frames before; -1 where there was none.
        again: (rows,) bool: whether an entry that is among them is drawn once more.
    """
    first = choose(logits, temperature, top_p, u[0])
    warm = torch.full_like(temperature, AGAIN_TEMPERATURE)
    second = choose(logits, warm, torch.full_like(top_p, AGAIN_TOP_P), u[1])
    repeats = (recent == first[:, None]).any(-1) & (first < logits.shape[-1] - 1)
    return torch.where(repeats & again, second, first)
