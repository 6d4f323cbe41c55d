"""Common parts of the training stages: learning-rate schedule, weight averaging, resumable runs."""

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
"""Training device."""
MAX_FILE_BYTES = 11_900_000
"""Maximum bytes of tensors per file of a light checkpoint: below 12 MB with the header."""


def rate(done: float, step: int, warm: int = 200, hold: float = 0.4, floor: float = 0.03) -> float:
    """Return the fraction of the peak learning rate at progress `done` (0 to 1): warm-up, hold, cosine decay to `floor`."""
    after = max(0.0, done - hold) / (1 - hold)
    return min(1.0, (step + 1) / warm) * (floor + (1 - floor) * 0.5 * (1 + math.cos(math.pi * after)))


class Average:
    """Exponential moving average of the parameters of a model."""

    def __init__(self, model: nn.Module, decay: float = 0.999) -> None:
        self.decay = decay
        self.values = {k: v.detach().clone() for k, v in model.state_dict().items()}
        self.steps = 0
        """Number of updates so far, restored on resume."""

    @torch.no_grad()
    def update(self, model: nn.Module) -> None:
        """Update towards the model, faster in the first steps."""
        self.steps += 1
        decay = min(self.decay, (1 + self.steps) / (10 + self.steps))
        current = model.state_dict()
        floats = [name for name, value in current.items() if value.is_floating_point()]
        torch._foreach_lerp_([self.values[k] for k in floats], [current[k] for k in floats], 1 - decay)
        for name in current.keys() - set(floats):
            self.values[name].copy_(current[name])


def save(path: Path, tensors: Mapping[str, Tensor], meta: Mapping[str, Any]) -> None:
    """Write tensors and JSON metadata atomically."""
    partial = path.with_suffix(".part")
    save_file({k: v.contiguous() for k, v in tensors.items()}, partial, metadata={"voicelab": json.dumps(meta)})
    partial.rename(path)


def save_run(
    path: Path, model: nn.Module, average: Average, optimizers: Sequence[torch.optim.Optimizer], meta: Mapping[str, Any]
) -> None:
    """Save a resumable checkpoint: weights, their average, and optimizer moments."""
    tensors = {f"model.{k}": v for k, v in model.state_dict().items()}
    tensors |= {f"average.{k}": v for k, v in average.values.items()}
    for which, optimizer in enumerate(optimizers):
        for index, state in optimizer.state_dict()["state"].items():
            tensors |= {f"optimizer.{which}.{index}.{k}": torch.as_tensor(v) for k, v in state.items()}
    save(path, {k: v.clone() for k, v in tensors.items()}, meta)


def load_run(
    path: Path, model: nn.Module, average: Average, optimizers: Sequence[torch.optim.Optimizer]
) -> dict[str, Any]:
    """Load a checkpoint of `save_run`; return its metadata."""
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
    """Save the averaged weights in half precision, in numbered files of up to MAX_FILE_BYTES."""
    groups: list[dict[str, Tensor]] = [{}]
    room = MAX_FILE_BYTES
    for name, value in average.values.items():
        half = value.half() if value.is_floating_point() else value
        if half.nbytes > room:
            groups.append({})
            room = MAX_FILE_BYTES
        groups[-1][name] = half
        room -= half.nbytes
    for number, group in enumerate(groups):
        save(path.with_stem(f"{path.stem}-{number}"), group, meta)


def light_files(path: Path) -> list[Path]:
    """Return the files written by `save_light` for `path`."""
    return sorted(path.parent.glob(f"{path.stem}-?{path.suffix}"))


def load_light(path: Path, model: nn.Module, average: Average) -> dict[str, Any]:
    """Load a checkpoint of `save_light`, without optimizer moments; return its metadata."""
    paths = light_files(path)
    halves = {k: v for file in paths for k, v in load_file(file).items()}
    model.load_state_dict({k: v.float() if v.is_floating_point() else v for k, v in halves.items()})
    average.values = Average(model).values
    return read_meta(paths[0])


class Run:
    """Resumable training loop of a stage, with a checkpoint every two minutes and at the end.

    Stages end after a number of steps, so that their result does not depend on the load of the machine. Light checkpoint
    files (see `save_light`) are also written, and used to resume if the full checkpoint is missing.
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
        """Create a run, resuming the checkpoint at `path`.

        Args:
            path: checkpoint file.
            steps: total number of steps.
            model: the model.
            optimizers: its optimizers.
            decay: decay of the weight average.
            warm: warm-up steps, see `rate`.
            hold: fraction at the peak rate, see `rate`.
            about: metadata of the checkpoint.
            minutes: pause after this wall-clock time.
        """
        self.path, self.steps, self.model, self.optimizers = path, steps, model, optimizers
        self.average = Average(model, decay)
        self.step, self.spent = 0, 0.0
        self._warm, self._hold, self._about, self._minutes = warm, hold, about, minutes
        self._log_means: dict[str, float] = {}
        self._light = path.with_stem(path.stem + "-light")
        if path.exists() or light_files(self._light):
            complete = path.exists()
            meta = (
                load_run(path, model, self.average, optimizers)
                if complete
                else load_light(self._light, model, self.average)
            )
            self.step, self.spent = meta["step"], meta["spent"]
            self.average.steps = self.step

    def __iter__(self) -> Iterator[int]:
        """Iterate over the remaining steps; call `descend` in each."""
        begun = saved = time.monotonic()
        before = self.spent
        while self.step < self.steps:
            set_rate(self.optimizers, rate(self.step / self.steps, self.step, self._warm, self._hold))
            yield self.step
            self.step += 1
            now_s = time.monotonic()
            self.spent = before + now_s - begun
            if self.step % 50 == 0:
                print(self.step, f"{self.spent:.0f}s", {k: round(v, 4) for k, v in self._log_means.items()}, flush=True)
            paused = self._minutes is not None and now_s - begun > 60 * self._minutes
            if now_s - saved > 120 or self.step == self.steps or paused:
                meta = {"step": self.step, "spent": self.spent, **self._about}
                save_run(self.path, self.model, self.average, self.optimizers, meta)
                save_light(self._light, self.average, meta)
                saved = now_s
            if paused:
                return

    def descend(self, loss: Tensor, **parts: Tensor | float) -> None:
        """Take one gradient step on `loss`; `parts` are logged as well."""
        for optimizer in self.optimizers:
            optimizer.zero_grad()
        loss.backward()
        self.move()
        self.tell(loss=loss, **parts)

    def move(self) -> None:
        """Clip gradients to norm 1, step the optimizers, and update the weight average."""
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        for optimizer in self.optimizers:
            optimizer.step()
        self.average.update(self.model)

    def tell(self, **parts: Tensor | float) -> None:
        """Update the running means of the log."""
        for name, term in parts.items():
            value = float(term.detach()) if isinstance(term, Tensor) else term
            self._log_means[name] = self._log_means.get(name, value) * 0.97 + value * 0.03


def set_rate(optimizers: Sequence[torch.optim.Optimizer], share: float) -> None:
    """Set each group's learning rate to a fraction of its peak."""
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["lr"] = share * group.setdefault("peak", group["lr"])


def read_meta(path: Path) -> dict[str, Any]:
    """Read the JSON metadata of a checkpoint."""
    from safetensors import safe_open

    with safe_open(path, framework="pt") as file:
        meta: dict[str, Any] = json.loads(file.metadata()["voicelab"])
    return meta
