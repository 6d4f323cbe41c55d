"""What a model will take of a device's memory, said before anything is loaded."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from pathlib import Path

import torch

from voicelab.engine.dual.config import DualConfig
from voicelab.engine.dual.model import model_tensors
from voicelab.engine.dual.runner import PREFILL
from voicelab.engine.dual.slots import bytes_of
from voicelab.errors import EngineError

_GB = 1e9
_AVAILABLE = "MemAvailable:"


@dataclass(frozen=True)
class MemoryPlan:
    """Bytes that a model needs on its device."""

    model: str
    rows: int
    positions: int
    weights: int
    codec: int
    """0 where it is there already."""
    slots: int
    """Keys and values of all rows, and of the references that are kept."""
    work: int
    """Attention of the largest piece of a prompt."""

    @classmethod
    def of(cls, folder: Path, config: DualConfig, rows: int, positions: int, codec: Path | None) -> MemoryPlan:
        """The plan for a folder's model. Raises WeightsError: its files cannot be read."""
        tensors = model_tensors(folder).entries
        table = tensors["embeddings.weight"]
        width = table.bytes // prod(table.shape)
        return cls(
            model=config.model,
            rows=rows,
            positions=positions,
            weights=sum(tensor.bytes for tensor in tensors.values()),
            codec=0 if codec is None else codec.stat().st_size,
            slots=(rows + 1) * bytes_of(config.slow, positions, width),
            work=config.slow.heads * PREFILL * positions * (3 * 4 + width),
        )

    @property
    def total(self) -> int:
        """All of it."""
        return self.weights + self.codec + self.slots + self.work

    def check(self, device: torch.device) -> None:
        """Sees that there is room, where the device says how much it has left.

        Raises:
            EngineError: there is not; the error says what is needed, and what would need less.
        """
        free = free_memory(device)
        if free is not None and self.total > free:
            raise EngineError(f"{self}, and {device} has {free / _GB:.2f} GB left; fewer rows need less: rows=…")

    def __str__(self) -> str:
        return (
            f"{self.model} needs {self.total / _GB:.2f} GB: weights {self.weights / _GB:.2f}, codec {self.codec / _GB:.2f}, "
            f"{self.rows} rows of {self.positions} positions {self.slots / _GB:.2f}, work {self.work / _GB:.2f}"
        )


def free_memory(device: torch.device) -> int | None:
    """Bytes that a device has left; None where nobody knows."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    if device.type == "mps":
        return torch.mps.recommended_max_memory() - torch.mps.driver_allocated_memory()
    memory = Path("/proc/meminfo")
    if device.type != "cpu" or not memory.exists():
        return None
    lines = (line.split() for line in memory.read_text(encoding="utf-8").splitlines())
    return next((int(line[1]) * 1024 for line in lines if line[0] == _AVAILABLE), None)
