"""What every training stage shares: the learning rate, averaged weights, steps that are gone on with after a cut."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
"""Where stages train that can use an accelerator."""
PIECE = 11_900_000
"""Bytes of tensors in a light checkpoint's file, at most: with its header it has less than 12 MB."""


def rate(done: float, step: int, warm: int = 200, hold: float = 0.4, floor: float = 0.03) -> float:
    """Share of the peak learning rate, `done` (0 to 1) of the way: warm up, hold, then cosine decay to `floor`."""
    after = max(0.0, done - hold) / (1 - hold)
    return min(1.0, (step + 1) / warm) * (floor + (1 - floor) * 0.5 * (1 + math.cos(math.pi * after)))


class Average:
    """Exponential moving average of a model's parameters."""

    def __init__(self, model: nn.Module, decay: float = 0.999) -> None:
        self.decay = decay
        self.values = {k: v.detach().clone() for k, v in model.state_dict().items()}
        self.steps = 0
        """Taken so far; a resumed average goes on from there, or it would begin anew."""

    @torch.no_grad()
    def update(self, model: nn.Module) -> None:
        """Moves towards the model; faster in the first steps."""
        self.steps += 1
        decay = min(self.decay, (1 + self.steps) / (10 + self.steps))
        now = model.state_dict()
        floats = [name for name, value in now.items() if value.is_floating_point()]
        torch._foreach_lerp_([self.values[k] for k in floats], [now[k] for k in floats], 1 - decay)
        for name in now.keys() - set(floats):
            self.values[name].copy_(now[name])


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
    for k, v in average.values.items():
        v.copy_(tensors[f"average.{k}"])
    states: list[dict[int, dict[str, Tensor]]] = [{} for _ in optimizers]
    for name, value in tensors.items():
        if name.startswith("optimizer."):
            _, which, index, key = name.split(".", 3)
            states[int(which)].setdefault(int(index), {})[key] = value
    for optimizer, state in zip(optimizers, states, strict=True):
        optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})
    return read_meta(path)


def save_light(path: Path, average: Average, meta: Mapping[str, Any]) -> None:
    """What is left of a run where little can be brought back: the averages in half precision, in files of up to PIECE bytes.

    They have `path`'s name with a number.
    """
    pieces: list[dict[str, Tensor]] = [{}]
    room = PIECE
    for name, value in average.values.items():
        half = value.half() if value.is_floating_point() else value
        if half.nbytes > room:
            pieces.append({})
            room = PIECE
        pieces[-1][name] = half
        room -= half.nbytes
    for number, piece in enumerate(pieces):
        save(path.with_stem(f"{path.stem}-{number}"), piece, meta)


def light_files(path: Path) -> list[Path]:
    """What `save_light` wrote to `path`."""
    return sorted(path.parent.glob(f"{path.stem}-?{path.suffix}"))


def load_light(path: Path, model: nn.Module, average: Average) -> dict[str, Any]:
    """Takes up what `save_light` wrote; the optimizers' moments begin anew. Returns its metadata."""
    found = light_files(path)
    halves = {k: v for file in found for k, v in load_file(file).items()}
    model.load_state_dict({k: v.float() if v.is_floating_point() else v for k, v in halves.items()})
    average.values = Average(model).values
    return read_meta(found[0])


class Run:
    """The steps of a stage: gone on with where they were cut off, with a checkpoint every two minutes and at the end.

    Stages end after so many steps, not minutes: other work on the machine makes them later, not worse. Beside the checkpoint
    lie the files of a light one (see `save_light`), from which a run goes on where there is no other.
    """

    def __init__(
        self,
        path: Path,
        steps: int,
        model: nn.Module,
        optimizers: Sequence[torch.optim.Optimizer],
        *,
        decay: float,
        warm: int,
        hold: float,
        about: Mapping[str, Any],
        minutes: float | None = None,
    ) -> None:
        """Takes up what is at `path`; `decay` is the average's, `warm` and `hold` those of `rate`, `about` is saved.

        Where `minutes` are given, it pauses after so many of the clock.
        """
        self.path, self.steps, self.model, self.optimizers = path, steps, model, optimizers
        self.average = Average(model, decay)
        self.step, self.spent = 0, 0.0
        self._warm, self._hold, self._about, self._minutes = warm, hold, about, minutes
        self._told: dict[str, float] = {}
        self._light = path.with_stem(path.stem + "-light")
        if path.exists() or light_files(self._light):
            whole = path.exists()
            meta = (
                load_run(path, model, self.average, optimizers)
                if whole
                else load_light(self._light, model, self.average)
            )
            self.step, self.spent = meta["step"], meta["spent"]
            self.average.steps = self.step

    def __iter__(self) -> Iterator[int]:
        """The number of each step that is left; `descend` in it."""
        begun = saved = time.monotonic()
        before = self.spent
        while self.step < self.steps:
            set_rate(self.optimizers, rate(self.step / self.steps, self.step, self._warm, self._hold))
            yield self.step
            self.step += 1
            now = time.monotonic()
            self.spent = before + now - begun
            if self.step % 50 == 0:
                print(self.step, f"{self.spent:.0f}s", {k: round(v, 4) for k, v in self._told.items()}, flush=True)
            paused = self._minutes is not None and now - begun > 60 * self._minutes
            if now - saved > 120 or self.step == self.steps or paused:
                meta = {"step": self.step, "spent": self.spent, **self._about}
                save_run(self.path, self.model, self.average, self.optimizers, meta)
                save_light(self._light, self.average, meta)
                saved = now
            if paused:
                return

    def descend(self, loss: Tensor, **parts: Tensor | float) -> None:
        """One step down the gradient of `loss`; `parts` go to the log too."""
        for optimizer in self.optimizers:
            optimizer.zero_grad()
        loss.backward()
        self.move()
        self.tell(loss=loss, **parts)

    def move(self) -> None:
        """One step of the optimizers along the gradients that are there, whose norm is cut at 1; the average follows."""
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        for optimizer in self.optimizers:
            optimizer.step()
        self.average.update(self.model)

    def tell(self, **parts: Tensor | float) -> None:
        """Brings the means of the log up to date."""
        for name, part in parts.items():
            value = float(part.detach()) if isinstance(part, Tensor) else part
            self._told[name] = self._told.get(name, value) * 0.97 + value * 0.03


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
