"""One frame for all rows at once: a function of a small table, run as it stands or, on a CUDA device, as a graph.

The table is written by the host before a frame, and the codes are read back after it; nothing else passes between them. The
slow transformer, the choosing and all passes of the fast one are one graph for each batch size and each length of the slots
that is looked at, both in powers of two; a graph is captured when it is first wanted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from voicelab.engine.core.graphs import FrameGraphs, power_of_two
from voicelab.engine.dual.choose import WINDOW, uniform
from voicelab.engine.dual.model import DualLM
from voicelab.engine.dual.slots import Slots

_SHORTEST = 256
"""Positions that a graph looks at at least."""


@dataclass(frozen=True)
class RowInput:
    """What one row's next frame depends on, besides its slot."""

    column: Tensor
    """(1 + codebooks,) what stands at its position."""
    position: int
    frame: int
    """Its number in the sequence; with the seed, what it draws."""
    seed: int
    recent: tuple[int, ...]
    """The WINDOW first entries before; -1 where there was none."""
    temperature: float
    top_p: float
    again: bool
    """Whether a first entry that is among the recent ones is drawn once more."""


class DualStep:
    """The step of a model for rows 0 to `rows` - 1, each with the slot of its number.

    Args:
        model: it must not change from now on.
        rows: most rows.
        graphs: whether frames run as CUDA graphs; by default where the device can.
    """

    def __init__(self, model: DualLM, rows: int, *, graphs: bool | None = None) -> None:
        self.model, device = model, model.device
        self.slots = Slots(model.config.slow, rows, model.positions, model.embeddings)
        self._fast_slots = Slots(model.config.fast, rows, model.config.codebooks, model.embeddings)
        graphs = device.type == "cuda" if graphs is None else graphs
        self._graphs = FrameGraphs(device, self._frame) if graphs else None
        self._widths = (1 + model.config.codebooks, 1, 1, 1, WINDOW)
        pinned = device.type == "cuda"
        self._table = torch.zeros(rows, sum(self._widths), dtype=torch.int64, pin_memory=pinned)
        self._settings = torch.ones(rows, 3, dtype=torch.float32, pin_memory=pinned)
        self._on_device = self._table.to(device), self._settings.to(device)
        self._codes = torch.zeros(rows, model.config.codebooks + 1, dtype=torch.int64, device=device)

    def step(self, inputs: Mapping[int, RowInput], idle: Mapping[int, int]) -> dict[int, tuple[Tensor, bool]]:
        """A frame of each row: its entries (codebooks,) on the CPU, as `DualLM.frame` has them, and whether they are finite.

        Nothing but the slots changes, each at the row's position.

        Args:
            inputs: by row.
            idle: the positions of the other rows that hold something, which must not be overwritten.
        """
        rows, length = max(inputs) + 1, max(one.position for one in inputs.values()) + 1
        if self._graphs is not None:
            rows, length = power_of_two(rows), max(_SHORTEST, power_of_two(length))
        rows, length = min(rows, len(self._table)), min(length, self.slots.positions)
        self._fill(inputs, idle, rows)
        for device, host in zip(self._on_device, (self._table, self._settings), strict=True):
            device[:rows].copy_(host[:rows], non_blocking=True)
        if self._graphs is None:
            self._frame(rows, length)
        else:
            self._graphs.run(rows, length)
        codes = self._codes[:rows].cpu()  # the one wait of a frame
        return {row: (codes[row, :-1], bool(codes[row, -1])) for row in inputs}

    def prefill(self, row: int, columns: Tensor, position: int) -> None:
        """Puts the keys and values of columns (n, 1 + codebooks) into a row's slot, from a position on."""
        device, n = self.model.device, len(columns)
        at = torch.arange(position, position + n, device=device)[None]
        x = self.model.embed(columns.to(device)[None])
        self.model.slow(x, self.slots, slice(row, row + 1), at, position + n)

    def _fill(self, inputs: Mapping[int, RowInput], idle: Mapping[int, int], rows: int) -> None:
        """A row without an input computes something too: it may write only where nothing is yet."""
        place = self._widths[0]
        for row in range(rows):
            if row not in inputs:
                self._table[row].zero_()
                self._table[row, place] = min(idle.get(row, 0), self.slots.positions - 1)
                continue
            one = inputs[row]
            self._table[row, :place] = one.column
            self._table[row, place:] = torch.tensor((one.position, one.frame, one.seed, *one.recent))
            self._settings[row] = torch.tensor((one.temperature, one.top_p, float(one.again)))

    def _frame(self, rows: int, length: int) -> None:
        table, settings = self._on_device[0][:rows], self._on_device[1][:rows]
        column, position, frame, seed, recent = table.split(self._widths, 1)
        state = self.model.slow(self.model.embed(column[:, None]), self.slots, slice(rows), position, length)[:, -1]
        u = uniform(seed[:, 0], frame[:, 0], self.model.draws())
        temperature, top_p, again = settings.unbind(1)
        codes, finite = self.model.frame(state, temperature, top_p, u, recent, again > 0, self._fast_slots)
        self._codes[:rows, :-1], self._codes[:rows, -1] = codes, finite
