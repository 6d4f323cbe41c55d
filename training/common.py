"""What every training stage shares: a clock that sets the learning rate, averaged weights, checkpoints that resume."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn


class Clock:
    """Seconds of training spent, over all resumed runs, against a budget: stages are cut by time, not by steps."""

    def __init__(self, minutes: float, spent: float = 0.0, now: Callable[[], float] = time.monotonic) -> None:
        self._budget = minutes * 60
        self._before = spent
        self._now, self._start = now, now()

    @property
    def spent(self) -> float:
        """Seconds."""
        return self._before + self._now() - self._start

    @property
    def done(self) -> float:
        """Share of the budget, 0 to 1."""
        return min(1.0, self.spent / self._budget)

    def rate(self, peak: float, step: int, warm: int = 200, hold: float = 0.4, floor: float = 0.03) -> float:
        """Learning rate: warm up, hold, then cosine decay to `floor` of the peak."""
        after = max(0.0, self.done - hold) / (1 - hold)
        return peak * min(1.0, (step + 1) / warm) * (floor + (1 - floor) * 0.5 * (1 + math.cos(math.pi * after)))


class Average:
    """Exponential moving average of a model's parameters."""

    def __init__(self, model: nn.Module, decay: float = 0.999) -> None:
        self.decay = decay
        self.values = {k: v.detach().clone() for k, v in model.state_dict().items()}
        self._steps = 0

    @torch.no_grad()
    def update(self, model: nn.Module) -> None:
        """Moves towards the model; faster in the first steps."""
        self._steps += 1
        decay = min(self.decay, (1 + self._steps) / (10 + self._steps))
        for name, value in model.state_dict().items():
            if value.is_floating_point():
                self.values[name].lerp_(value, 1 - decay)
            else:
                self.values[name].copy_(value)


def save(path: Path, tensors: Mapping[str, Tensor], meta: Mapping[str, Any]) -> None:
    """Writes tensors and JSON metadata whole or not at all."""
    part = path.with_suffix(".part")
    save_file({k: v.contiguous() for k, v in tensors.items()}, part, metadata={"voicelab": json.dumps(meta)})
    part.rename(path)


def save_run(
    path: Path, model: nn.Module, average: Average, optimizers: Sequence[torch.optim.Optimizer], meta: Mapping[str, Any]
) -> None:
    """A checkpoint from which a run goes on: weights, their average, the optimizers' moments."""
    tensors = {f"model.{k}": v for k, v in model.state_dict().items()}
    tensors |= {f"average.{k}": v for k, v in average.values.items()}
    for which, optimizer in enumerate(optimizers):
        for index, state in optimizer.state_dict()["state"].items():
            tensors |= {f"optimizer.{which}.{index}.{k}": torch.as_tensor(v) for k, v in state.items()}
    save(path, {k: v.clone() for k, v in tensors.items()}, meta)


def load_run(
    path: Path, model: nn.Module, average: Average, optimizers: Sequence[torch.optim.Optimizer]
) -> dict[str, Any]:
    """Takes up what `save_run` wrote; returns its metadata."""
    tensors = load_file(path)
    model.load_state_dict({k[6:]: v for k, v in tensors.items() if k.startswith("model.")})
    average.values = {k[8:]: v for k, v in tensors.items() if k.startswith("average.")}
    states: list[dict[int, dict[str, Tensor]]] = [{} for _ in optimizers]
    for name, value in tensors.items():
        if name.startswith("optimizer."):
            _, which, index, key = name.split(".", 3)
            states[int(which)].setdefault(int(index), {})[key] = value
    for optimizer, state in zip(optimizers, states, strict=True):
        optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})
    return read_meta(path)


def descend(loss: Tensor, model: nn.Module, optimizers: Sequence[torch.optim.Optimizer], average: Average) -> None:
    """One step down the gradient of `loss`, whose norm is cut at 1; the average follows."""
    for optimizer in optimizers:
        optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    for optimizer in optimizers:
        optimizer.step()
    average.update(model)


def set_rate(optimizers: Sequence[torch.optim.Optimizer], share: float) -> None:
    """Sets each group's learning rate to `share` of the one it began with."""
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["lr"] = share * group.setdefault("peak", group["lr"])


def read_meta(path: Path) -> dict[str, Any]:
    """The JSON metadata of a checkpoint."""
    from safetensors import safe_open

    with safe_open(path, framework="pt") as file:
        found: dict[str, Any] = json.loads(file.metadata()["voicelab"])
    return found
