"""One frame of several sequences in torch, on whatever device the model is; on a CPU `quick` does the same, faster."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from voicelab.engine.lm import LM
from voicelab.engine.sampling import Sampler
from voicelab.engine.sequence import Sequence
from voicelab.engine.transformer import KVCache
from voicelab.errors import EngineError


class Step(Protocol):
    """The arithmetic of a frame. It adds a position to the cache's rows and changes no sequence."""

    def step(self, sequences: list[Sequence], draws: list[Tensor]) -> tuple[Tensor, list[int]]:
        """What each sequence says next.

        Args:
            sequences: those with something to say, each in a row of its own.
            draws: for each (codebooks,) uniform in [0, 1).

        Returns:
            codes (sequences, codebooks), int64, on the CPU, and by how many phones each pointer moves.

        Raises:
            EngineError: the model's numbers are not finite.
        """
        ...


class TorchStep:
    """As `Step` says; the slow stack's cache is shared with whoever keeps its rows."""

    def __init__(self, model: LM, cache: KVCache) -> None:
        weight = model.begin
        self._model, self._slow, self._device = model, cache, weight.device
        self._depth = KVCache(model.config.depth, cache.keys.shape[1], weight.device, weight.dtype)

    def step(self, sequences: list[Sequence], draws: list[Tensor]) -> tuple[Tensor, list[int]]:
        """See Step."""
        model, device = self._model, self._device
        frames = torch.stack(
            [model.begin if s.before is None else model.encode_frames(s.before.to(device)) for s in sequences]
        )
        text, speaker = (torch.stack(given) for given in zip(*[s.given for s in sequences], strict=True))
        dwell = torch.tensor([[s.dwell] for s in sequences], device=device)
        given = model.step_input(frames[:, None], text=text[:, None], dwell=dwell, speaker=speaker)
        hidden = model.slow.extend(given, self._slow, [s.row for s in sequences])[:, 0]
        sampler = Sampler([s.settings for s in sequences], device)
        chance = torch.stack(draws).to(device)
        sums = [hidden.sum()]
        symbol = self._first(sampler, hidden, sequences, chance[:, 0], sums)
        codes = self._others(sampler, hidden, symbol % model.config.codebooks[0], chance, sums)
        if not torch.isfinite(torch.stack(sums)).all():  # once a frame: on a GPU every look costs a wait
            raise EngineError("the language model's numbers are not finite; the weights may be damaged")
        return codes.cpu(), (symbol // model.config.codebooks[0]).tolist()

    def _first(
        self, sampler: Sampler, hidden: Tensor, sequences: list[Sequence], draws: Tensor, sums: list[Tensor]
    ) -> Tensor:
        """(code, move) as one symbol; appends the sum of its logits to `sums`."""
        recent = torch.tensor([s.recent for s in sequences], device=self._device)
        raw = self._model.first_logits(hidden)
        sums.append(raw.sum())
        logits = sampler.penalize(raw, recent)
        for i, sequence in enumerate(sequences):
            if sequence.dwell + 1 >= self._model.config.dwell:
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
