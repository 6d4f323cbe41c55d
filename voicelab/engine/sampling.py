"""Choosing a symbol: temperature, nucleus, repetition; a batch at once, each row with its own settings and randomness."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

REPEAT_WINDOW = 4
"""Frames back that the repetition penalty looks: within a phone a code may well repeat, a loop is longer."""


@dataclass(frozen=True)
class Settings:
    """How one sequence is sampled; the fields are the interface's."""

    temperature: float = 0.7
    """0 takes the likeliest symbol."""
    top_p: float = 0.7
    repetition_penalty: float = 1.2


class Sampler:
    """Settings of the rows of a batch, as tensors."""

    def __init__(self, settings: Sequence[Settings], device: torch.device) -> None:
        self._inverse = torch.tensor([1 / max(s.temperature, 1e-3) for s in settings], device=device)[:, None]
        self._top_p = torch.tensor([s.top_p if s.temperature > 0 else 0.0 for s in settings], device=device)[:, None]
        self._penalty = torch.tensor([math.log(s.repetition_penalty) for s in settings], device=device)[:, None, None]

    def pick(self, logits: Tensor, draws: Tensor) -> Tensor:
        """One index a row.

        Args:
            logits: (rows, n).
            draws: (rows,) uniform in [0, 1), from each row's own generator.

        Returns:
            (rows,) int64: the inverse of the cumulative distribution over the nucleus (Holtzman et al., 2020).
        """
        probabilities, order = torch.softmax(logits * self._inverse, dim=-1).sort(dim=-1, descending=True, stable=True)
        before = probabilities.cumsum(-1) - probabilities
        kept = torch.where(before < self._top_p, probabilities, torch.zeros_like(probabilities))
        kept[:, 0] = probabilities[:, 0]
        cumulative = kept.cumsum(-1)
        place = (cumulative <= draws[:, None] * cumulative[:, -1:]).sum(-1).clamp(max=logits.shape[-1] - 1)
        last = ((kept > 0).sum(-1) - 1).clamp(min=0)
        return order.gather(1, torch.minimum(place, last)[:, None])[:, 0]

    def penalize(self, logits: Tensor, recent: Tensor) -> Tensor:
        """Makes recent codes less likely and leaves how the pointer moves alone, so that durations keep their distribution.

        Args:
            logits: (rows, advances, codes).
            recent: (rows, REPEAT_WINDOW) codes of the latest frames, -1 where there is none.

        Returns:
            (rows, advances, codes) log probabilities; a recent code's is lower by log(repetition_penalty) before what
            is left is shared out again within the same advance (Keskar et al., CTRL, 2019, on log probabilities).
        """
        log_p = torch.log_softmax(logits.flatten(1), dim=-1).view_as(logits)
        hit = torch.zeros(logits.shape[0], logits.shape[2] + 1, dtype=torch.bool, device=logits.device)
        hit.scatter_(1, torch.where(recent < 0, logits.shape[2], recent), True)
        lowered = log_p - self._penalty * hit[:, None, :-1]
        return lowered + (log_p.logsumexp(-1, keepdim=True) - lowered.logsumexp(-1, keepdim=True))
