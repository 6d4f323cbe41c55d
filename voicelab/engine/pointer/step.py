"""Sampling and the computation of a frame for several rows, in torch on any device; `numpy_step` is faster on a CPU."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Self

import torch
from torch import Tensor

from voicelab.engine.core.fused import FrameGraphs, power_of_two
from voicelab.engine.core.layers import Unfilled, filled
from voicelab.engine.core.sequence import Codes, Settings
from voicelab.engine.pointer.arrays import Floats
from voicelab.engine.pointer.config import LMConfig
from voicelab.engine.pointer.lm import LM
from voicelab.engine.pointer.rows import REPEAT_WINDOW, KVCache, PointerRow, Step
from voicelab.errors import EngineError


class Sampler:
    """Sampling settings of a batch.

    Args:
        settings: (rows, 3) float32, each row as returned by `sampling`.
    """

    def __init__(self, settings: Tensor) -> None:
        self._inverse, self._top_p = settings[:, :1], settings[:, 1:2]
        self._penalty = settings[:, 2:, None]

    def pick(self, logits: Tensor, draws: Tensor) -> Tensor:
        """Sample one index per row.

        Args:
            logits: (rows, n).
            draws: (rows,) uniform in [0, 1), from the generator of each row.

        Returns:
            (rows,) int64: the indices at which the cumulative distribution over the nucleus (Holtzman et al., 2020) exceeds
            the draws.
        """
        probabilities, order = torch.softmax(logits * self._inverse, dim=-1).sort(dim=-1, descending=True, stable=True)
        before = probabilities.cumsum(-1) - probabilities
        nucleus = torch.where(before < self._top_p, probabilities, torch.zeros_like(probabilities))
        nucleus[:, 0] = probabilities[:, 0]
        cumulative = nucleus.cumsum(-1)
        index = (cumulative <= draws[:, None] * cumulative[:, -1:]).sum(-1).clamp(max=logits.shape[-1] - 1)
        last_index = ((nucleus > 0).sum(-1) - 1).clamp(min=0)
        return order.gather(1, torch.minimum(index, last_index)[:, None])[:, 0]

    def penalize(self, logits: Tensor, recent: Tensor) -> Tensor:
        """Penalize recent codes without changing the distribution of pointer advances, so that durations are unaffected.

        Args:
            logits: (rows, advances, codes).
            recent: (rows, REPEAT_WINDOW) codes of the latest frames, -1 for none.

        Returns:
            (rows, advances, codes) log probabilities; log(repetition_penalty) is subtracted for recent codes, then each
            advance is renormalized to its probability (Keskar et al., CTRL, 2019, on log probabilities).
        """
        log_p = torch.log_softmax(logits.flatten(1), dim=-1).view_as(logits)
        hit = torch.zeros(logits.shape[0], logits.shape[2] + 1, dtype=torch.bool, device=logits.device)
        hit.scatter_(1, torch.where(recent < 0, logits.shape[2], recent), True)
        lowered = log_p - self._penalty * hit[:, None, :-1]
        return lowered + (log_p.logsumexp(-1, keepdim=True) - lowered.logsumexp(-1, keepdim=True))


def sampling(settings: Settings) -> tuple[float, float, float]:
    """Convert settings for `Sampler`: inverse temperature, top_p (0 for greedy), log of the repetition penalty."""
    top_p = settings.top_p if settings.temperature > 0 else 0.0
    return 1 / max(settings.temperature, 1e-3), top_p, math.log(settings.repetition_penalty)


class TorchStep:
    """`rows.Step` in torch, on any device. The slow stack's cache is shared with the runner.

    The host writes the inputs of a frame into tables, so a CUDA graph can compute it. The number of rows is rounded up to a
    power of two, with one graph for each. Only codes and pointer advances are copied to the host.

    Args:
        model: must not change afterwards.
        cache: cache of the slow stack.
        graphs: whether frames run as CUDA graphs; by default on CUDA devices.
    """

    def __init__(self, model: LM, cache: KVCache, graphs: bool | None = None) -> None:
        weight, rows, codebooks = model.begin, cache.keys.shape[1], len(model.config.codebooks)
        device, cuda = weight.device, weight.device.type == "cuda"
        self._model, self._slow = model, cache
        self._depth = KVCache(model.config.depth, rows, weight.new_zeros)
        self._widths = (codebooks, 1, 1, 1, 1, REPEAT_WINDOW)
        self._places = torch.zeros(rows, sum(self._widths), dtype=torch.int64, pin_memory=cuda)
        self._numbers = torch.zeros(rows, 3 + codebooks, pin_memory=cuda)
        self._inputs = torch.zeros(rows, len(weight), pin_memory=cuda)
        self._hosted = self._places, self._numbers, self._inputs
        self._on_device = tuple(table.to(device) for table in self._hosted)
        self._out = torch.zeros(rows, codebooks + 2, dtype=torch.int64, device=device)
        self._graphs = FrameGraphs(device, self._frame) if (cuda if graphs is None else graphs) else None

    def step(self, states: list[PointerRow], draws: list[Floats]) -> tuple[Codes, list[int]]:
        """Compute the next frame of each row; return the codes and the pointer advances."""
        with torch.inference_mode():
            return self._step(states, draws)

    def _step(self, states: list[PointerRow], draws: list[Floats]) -> tuple[Codes, list[int]]:
        index = [state.row for state in states]
        rows = max(index) + 1
        if self._graphs is not None:
            rows = min(power_of_two(rows), len(self._places))
        self._fill(states, draws, rows)
        for device, host in zip(self._on_device, self._hosted, strict=True):
            device[:rows].copy_(host[:rows], non_blocking=True)
        if self._graphs is None:
            self._frame(rows)
        else:
            self._graphs.run(rows)
        out = self._out[:rows].cpu()[index]  # the only synchronization of a frame
        for row in index:
            self._slow.lengths[row] += 1
        if not out[:, -1].all():
            raise EngineError("the language model's logits are not finite; the weights may be damaged")
        return out[:, :-2].numpy(), out[:, -2].tolist()

    def _fill(self, states: list[PointerRow], draws: list[Floats], rows: int) -> None:
        """Fill the input tables. Rows without a state are also computed, but write only to their next position."""
        slow = self._slow
        for row in range(rows):
            slow.make_room(row, 1)
            self._places[row].zero_()
            position = torch.tensor((slow.lengths[row], slow.offsets[row]))
            self._places[row, -sum(self._widths[3:]) : -REPEAT_WINDOW] = position
        for state, chance in zip(states, draws, strict=True):
            position, numbers, codebooks = self._places[state.row], self._numbers[state.row], self._widths[0]
            if state.before is not None:
                position[:codebooks], position[codebooks] = torch.from_numpy(state.before), 1
            position[codebooks + 1] = int(state.dwell)
            position[-REPEAT_WINDOW:] = torch.tensor(state.recent)
            numbers[:3], numbers[3:] = torch.tensor(sampling(state.settings)), torch.from_numpy(chance)
            self._inputs[state.row] = torch.from_numpy(state.input)

    def _frame(self, rows: int) -> None:
        model, slow = self._model, self._slow
        before, begun, dwell, slot, offset, recent = self._on_device[0][:rows].split(self._widths, 1)
        sampler, chance = Sampler(self._on_device[1][:rows, :3]), self._on_device[1][:rows, 3:]
        frames = torch.where(begun > 0, model.encode_frames(before), model.begin)
        text_and_speaker = self._on_device[2][:rows, None]
        inputs = model.step_input(frames[:, None], text_and_speaker, dwell)
        hidden = model.slow.extend(inputs, slow, slice(rows), slot, offset, slice(slow.room))[:, 0]
        sums = [hidden.sum(1)]
        raw = model.first_logits(hidden)
        sums.append(raw.sum((1, 2)))
        logits = sampler.penalize(raw, recent)
        stays = (torch.arange(logits.shape[1], device=logits.device) == 0) & (dwell + 1 >= model.config.dwell)
        symbol = sampler.pick(logits.masked_fill(stays[..., None], -torch.inf).flatten(1), chance[:, 0])
        first_code = symbol % model.config.codebooks[0]
        self._out[:rows, :-2] = self._codes(sampler, hidden, first_code, chance, sums)
        self._out[:rows, -2] = symbol // model.config.codebooks[0]
        self._out[:rows, -1] = torch.isfinite(torch.stack(sums)).all(0)

    def _codes(
        self, sampler: Sampler, hidden: Tensor, first_code: Tensor, chance: Tensor, sums: list[Tensor]
    ) -> Tensor:
        """Sample codes (rows, codebooks), each conditioned on those before it; append the sums of the logits to `sums`."""
        model, rows = self._model, hidden.shape[0]
        nowhere, chosen = torch.zeros_like(first_code)[:, None], [first_code]
        inputs = model.codes[0](first_code) + model.enter_depth(hidden)
        for i, head in enumerate(model.others):
            out = model.depth.extend(inputs[:, None], self._depth, slice(rows), nowhere + i, nowhere, slice(i + 1))
            logits = head(out[:, 0])
            sums.append(logits.sum(1))
            chosen.append(sampler.pick(logits, chance[:, i + 1]))
            if i + 1 < len(model.others):
                inputs = model.codes[i + 1](chosen[-1])
        return torch.stack(chosen, dim=1)


class TorchLM:
    """Implementation of `rows.LanguageModel` by a torch module, on the module's device."""

    def __init__(self, module: LM) -> None:
        self.module, self.config = module, module.config

    @classmethod
    def of(cls, config: LMConfig, tensors: Mapping[str, Floats], device: str) -> Self:
        """Build the language model from the tensors of a checkpoint, on a device."""
        with Unfilled():
            module = LM(config)
        return cls(filled(module, tensors, "lm.").to(device))

    @torch.inference_mode()
    def encode_text(self, phones: list[int], flags: list[int]) -> Floats:
        """Encode phone ids and flags as (phones, slow width)."""
        device = self.module.begin.device
        ids, positions = (torch.tensor([values], device=device) for values in (phones, flags))
        text: Floats = self.module.encode_text(ids, positions)[0].cpu().numpy()
        return text

    @torch.inference_mode()
    def encode_speaker(self, statistics: Floats) -> Floats:
        """Embed speaker statistics (n, STATISTICS * latent) as (n, slow width)."""
        speakers: Floats = (
            self.module.encode_speaker(torch.from_numpy(statistics).to(self.module.begin.device)).cpu().numpy()
        )
        return speakers

    def cache(self, rows: int) -> KVCache:
        """Create a cache of the slow stack for `rows` sequences."""
        return KVCache(self.config.slow, rows, self.module.begin.new_zeros)

    def step(self, cache: KVCache) -> Step:
        """Create a step that processes the rows of a cache."""
        return TorchStep(self.module, cache)

    def free_memory(self) -> None:
        """Release cached memory; on the CPU, torch caches none."""
        if self.module.begin.device.type == "cuda":
            torch.cuda.empty_cache()
