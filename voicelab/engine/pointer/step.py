"""Choosing symbols, and one frame of several rows in torch on any device; `numpy_step` does the same on a CPU, faster."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor

from voicelab.engine.family import Settings
from voicelab.engine.pointer.lm import LM, KVCache, Parked
from voicelab.engine.pointer.phones import Phonemes
from voicelab.errors import EngineError

REPEAT_WINDOW = 4
"""Frames back that the repetition penalty looks: within a phone a code may well repeat, a loop is longer."""


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


@dataclass(eq=False)
class PointerRow:
    """What one row is saying, and where it is."""

    row: int
    settings: Settings
    generator: torch.Generator
    voice: Tensor
    """(slow width,) the speaker."""
    pointer: int = 0
    dwell: int = 0
    """Frames that the pointer has rested on its phone."""
    before: Tensor | None = None
    """(codebooks,) the frame before."""
    recent: list[int] = field(default_factory=lambda: [-1] * REPEAT_WINDOW)
    """First codes of the latest frames."""
    text: Tensor | None = None
    """(phones, slow width) of this segment with what is kept of the one before."""
    segment: Phonemes | None = None
    kept: int = 0
    """Phones at the start of `text` that were said before."""
    draws: Tensor | None = None
    """The random numbers of the next frame: the same if its step must be tried again."""
    held: Parked | None = None
    """Its keys and values, while it is parked."""

    @property
    def inputs(self) -> tuple[Tensor, Tensor]:
        """The phone at the pointer, and the speaker; each (slow width,).

        Raises:
            EngineError: it has no text.
        """
        if self.text is None:
            raise EngineError("a row was stepped before it was given text")
        return self.text[self.pointer], self.voice


class Step(Protocol):
    """The arithmetic of a frame. It adds a position to the cache's rows and changes nothing else."""

    def step(self, rows: list[PointerRow], draws: list[Tensor]) -> tuple[Tensor, list[int]]:
        """What each row says next.

        Args:
            rows: those that have text.
            draws: for each (codebooks,) uniform in [0, 1).

        Returns:
            codes (rows, codebooks), int64, on the CPU, and by how many phones each pointer moves.

        Raises:
            EngineError: the model's numbers are not finite.
        """
        ...


class TorchStep:
    """In torch, on any device. The slow stack's cache is shared with the runner."""

    def __init__(self, model: LM, cache: KVCache) -> None:
        weight = model.begin
        self._model, self._slow, self._device = model, cache, weight.device
        self._depth = KVCache(model.config.depth, cache.keys.shape[1], weight.device, weight.dtype)

    def step(self, states: list[PointerRow], draws: list[Tensor]) -> tuple[Tensor, list[int]]:
        """See Step."""
        model, device = self._model, self._device
        frames = torch.stack(
            [model.begin if s.before is None else model.encode_frames(s.before.to(device)) for s in states]
        )
        text, speaker = (torch.stack(given) for given in zip(*[s.inputs for s in states], strict=True))
        dwell = torch.tensor([[s.dwell] for s in states], device=device)
        given = model.step_input(frames[:, None], text=text[:, None], dwell=dwell, speaker=speaker)
        hidden = model.slow.extend(given, self._slow, [s.row for s in states])[:, 0]
        sampler = Sampler([s.settings for s in states], device)
        chance = torch.stack(draws).to(device)
        sums = [hidden.sum()]
        symbol = self._first(sampler, hidden, states, chance[:, 0], sums)
        codes = self._others(sampler, hidden, symbol % model.config.codebooks[0], chance, sums)
        if not torch.isfinite(torch.stack(sums)).all():  # once a frame: on a GPU every look costs a wait
            raise EngineError("the language model's numbers are not finite; the weights may be damaged")
        return codes.cpu(), (symbol // model.config.codebooks[0]).tolist()

    def _first(
        self, sampler: Sampler, hidden: Tensor, states: list[PointerRow], draws: Tensor, sums: list[Tensor]
    ) -> Tensor:
        """(code, move) as one symbol; appends the sum of its logits to `sums`."""
        recent = torch.tensor([s.recent for s in states], device=self._device)
        raw = self._model.first_logits(hidden)
        sums.append(raw.sum())
        logits = sampler.penalize(raw, recent)
        for i, state in enumerate(states):
            if state.dwell + 1 >= self._model.config.dwell:
                logits[i, 0] = -torch.inf
        return sampler.pick(logits.flatten(1), draws)

    def _others(self, sampler: Sampler, hidden: Tensor, first: Tensor, draws: Tensor, sums: list[Tensor]) -> Tensor:
        """The codebooks after the first, each from those before it; appends the sums of their logits to `sums`."""
        model, rows = self._model, list(range(hidden.shape[0]))
        for row in rows:
            self._depth.reset(row)
        chosen = [first]
        given = model.codes[0](first) + model.enter_depth(hidden)
        for i, head in enumerate(model.others):
            out = model.depth.extend(given[:, None], self._depth, rows)[:, 0]
            logits = head(out)
            sums.append(logits.sum())
            chosen.append(sampler.pick(logits, draws[:, i + 1]))
            if i + 1 < len(model.others):
                given = model.codes[i + 1](chosen[-1])
        return torch.stack(chosen, dim=1)
