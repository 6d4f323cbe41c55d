"""Computation of a frame for all rows, from small tables of inputs; on CUDA devices it runs as a CUDA graph.

Row states stay on the device, so that the next frame can be launched while the codes of this one are copied to the
host. The slow transformer, sampling and all passes of the fast transformer are one graph per batch size and
attention length, both in powers of two.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from voicelab.engine.core.fused import FrameGraphs, Regions, has_compiler, power_of_two
from voicelab.engine.dual.model import WINDOW, DualLM, draw_steps, uniform
from voicelab.engine.dual.tower import Slots

_MIN_GRAPH_LENGTH = 256
"""Smallest attention length of a graph."""


@dataclass(frozen=True)
class RowState:
    """State of a row: with its slot and settings, it determines the row's next frame."""

    column: tuple[int, ...]
    """Input at its position: a token id and a frame's codes. Empty if no frame can follow."""
    position: int
    frame: int
    """Index of the frame in the sequence; together with the seed, it determines the random numbers."""
    turn_frames: int = 0
    """Frames of this turn so far."""
    recent: tuple[int, ...] = (-1,) * WINDOW
    """First entries of the previous frames; -1 for none."""

    def numbers(self) -> list[int]:
        """Return the state as a list of integers, as stored on the device."""
        return [*self.column, self.position, self.frame, self.turn_frames, *self.recent]

    @classmethod
    def of(cls, numbers: Sequence[int]) -> RowState:
        """Restore a state from the integers of `numbers`."""
        *column, position, frame, turn_frames = numbers[:-WINDOW]
        return cls(tuple(column), position, frame, turn_frames, tuple(numbers[-WINDOW:]))


@dataclass(frozen=True)
class RowInput:
    """Input of a frame for one row."""

    state: RowState | None
    """State before the frame; None for the state after the row's previous frame, which is still in flight."""
    position: int
    """Position of the state."""
    seed: int
    temperature: float
    top_p: float
    redraw: bool
    """Whether a first entry is drawn again if it is among the recent ones, except in the first frame of a turn."""


@dataclass(frozen=True)
class RowFrame:
    """Result of a frame for one row."""

    state: RowState
    """State after the frame, with the frame's entries in its column."""
    ended: bool
    """Whether speech has ended; the entries are then meaningless."""
    finite: bool

    @property
    def entries(self) -> Tensor:
        """Codes of the frame, (codebooks,) int64 on the CPU."""
        return torch.tensor(self.state.column[1:])


class _FrameBuffers:
    """Host memory of one frame, from its launch until it is read."""

    def __init__(self, rows: int, width: int, cuda: bool) -> None:
        self.table = torch.zeros(rows, 2 + width, dtype=torch.int64, pin_memory=cuda)
        self.settings = torch.ones(rows, 3, dtype=torch.float32, pin_memory=cuda)
        self.out = torch.zeros(rows, 2 + width, dtype=torch.int64, pin_memory=cuda)
        self.copied = torch.cuda.Event() if cuda else None
        self.rows: set[int] = set()


@dataclass(frozen=True)
class _States:
    """Functions that compute the states of rows before and after a frame."""

    model: DualLM
    widths: tuple[int, ...]
    draw_steps: Tensor

    def begin(
        self, table: Tensor, settings: Tensor, before: Tensor, along: Tensor
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Compute states (rows, width), random numbers, redraw flags, and the attention mask.

        The mask is computed once for all layers, because a compiler would recompute it in each layer. The tensor `along`
        determines its length, so that the compiled code works for all lengths.
        """
        state = torch.where(table[:, :1] > 0, table[:, 2:], before)
        _, position, frame, turn_frames, _ = state.split(self.widths, 1)
        u = uniform(table[:, 1], frame[:, 0], self.draw_steps)
        redrawn = (settings[:, 2] > 0) & (turn_frames[:, 0] > 0)
        return state, u, redrawn, self.model.slow.mask(position, len(along), self.model.embeddings.dtype)

    def next(self, state: Tensor, entries: Tensor, finite: Tensor) -> Tensor:
        """Compute row states after a frame, (rows, width + 2)."""
        model, (_, position, frame, turn_frames, recent) = self.model, state.split(self.widths, 1)
        main = entries[:, :1]
        ended, code = main >= model.config.entries, main.clamp_max(model.config.entries - 1)
        # The first frame of a turn never enters the window.
        recent = torch.where(turn_frames > 0, torch.cat((recent[:, 1:], main), 1), recent)
        after = (model.begin + code, code, entries[:, 1:], position + 1, frame + 1, turn_frames + 1, recent)
        return torch.cat((*after, ended, finite[:, None]), 1)


def _powers(smallest: int, largest: int) -> list[int]:
    """List the powers of two from `smallest` to below `largest`, then `largest`."""
    return [*(1 << i for i in range(smallest.bit_length() - 1, (largest - 1).bit_length())), largest]


class DualStep:
    """Computes frames for rows 0 to `rows` - 1; each row uses the slot with its index.

    Args:
        model: must not change afterwards.
        rows: maximum number of rows.
        graphs: whether frames run as CUDA graphs; by default on CUDA devices.
        compile: whether torch's compiler fuses a frame into few kernels; by default on CUDA devices if triton is installed.
            Compilation happens once and takes 35 s of CPU time: 12 s for one row, 23 s for several. If it fails, frames run
            uncompiled, unless `compile` is True.
    """

    def __init__(self, model: DualLM, rows: int, *, graphs: bool | None = None, compile: bool | None = None) -> None:
        self.model, device, codebooks = model, model.device, model.config.codebooks
        self.slots = Slots(model.config.slow, rows, model.positions, model.embeddings)
        self._fast_slots = Slots(model.config.fast, rows, codebooks + 1, model.embeddings)
        self._widths = (1 + codebooks, 1, 1, 1, WINDOW)
        states = _States(model, self._widths, draw_steps(model.draws(), device))
        self._begin, self._next = states.begin, states.next
        self._cuda = device.type == "cuda"
        self._fused = model
        self._regions: Regions | None = None
        if has_compiler(device) if compile is None else compile:
            regions = self._regions = Regions(required=compile is True)
            self._fused, self._next = model.compiled(regions), regions.compiled(self._next)
            if self._cuda:  # on a CPU, torch's compiler makes code for 64-bit products that crashes
                self._begin = regions.compiled(self._begin)  # type: ignore[assignment]
        self._graphs = FrameGraphs(device, self._frame) if (self._cuda if graphs is None else graphs) else None
        width = sum(self._widths)
        # Two buffers are enough: while one frame is computed, the tables of the next one are filled, and a third frame is
        # launched only after the first was read.
        self._spare = deque(_FrameBuffers(rows, width, self._cuda) for _ in range(2))
        self._flying: deque[_FrameBuffers] = deque()
        spare = self._spare[0]
        self._on_device = (
            torch.zeros_like(spare.table, device=device),
            torch.zeros_like(spare.settings, device=device),
        )
        self._before = torch.zeros(rows, width, dtype=torch.int64, device=device)
        self._after = torch.zeros(rows, width + 2, dtype=torch.int64, device=device)

    def prepare(self) -> None:
        """Compile the model, and capture the graphs of all sizes; this overwrites the first positions of all slots."""
        max_rows, max_length = self.slots.rows, self.slots.positions
        if self._regions is not None:
            for rows, step in ((1, "frames of one row (step 1 of 2)"), (2, "frames of several rows (step 2 of 2)")):
                if rows <= max_rows:
                    with self._regions.progress(step):
                        self._frame(rows, min(_MIN_GRAPH_LENGTH, max_length))
        if self._graphs is not None:
            for rows in _powers(1, max_rows):
                for length in _powers(_MIN_GRAPH_LENGTH, max_length):
                    self._graphs.prepare(rows, length)

    @property
    def unread(self) -> int:
        """Number of frames in flight."""
        return len(self._flying)

    def in_flight(self, row: int) -> bool:
        """Return whether a frame of this row is in flight."""
        return any(row in flight.rows for flight in self._flying)

    def drop(self, row: int) -> None:
        """Discard the frames in flight of a row whose state is replaced."""
        for flight in self._flying:
            flight.rows.discard(row)

    def launch(self, inputs: Mapping[int, RowInput], idle: Mapping[int, int]) -> None:
        """Launch a frame of each row, which `read` returns later; at most one other frame may be in flight.

        A launch writes only to the slots, at the position of each row.

        Args:
            inputs: inputs of the frame by row.
            idle: positions of the other rows in use, whose slots must not be overwritten.
        """
        flight = self._spare[0]
        rows, length = max(inputs) + 1, max(row.position for row in inputs.values()) + 1
        if self._graphs is not None:
            rows = min(power_of_two(rows), len(flight.table))
            length = min(max(_MIN_GRAPH_LENGTH, power_of_two(length)), self.slots.positions)
        self._fill(flight, inputs, idle, rows)
        for device, host in zip(self._on_device, (flight.table, flight.settings), strict=True):
            device[:rows].copy_(host[:rows], non_blocking=True)
        self._before.copy_(self._after[:, :-2])
        if self._graphs is None:
            self._frame(rows, length)
        else:
            self._graphs.run(rows, length)
        flight.out[:rows].copy_(self._after[:rows], non_blocking=True)
        if flight.copied is not None:
            flight.copied.record(torch.cuda.current_stream(self.model.device))
        flight.rows = set(inputs)
        self._flying.append(self._spare.popleft())

    def read(self) -> dict[int, RowFrame]:
        """Wait for the oldest frame in flight; return its results by row, without dropped rows."""
        flight = self._flying.popleft()
        self._spare.append(flight)
        if flight.copied is not None:
            flight.copied.synchronize()
        out = flight.out.tolist()
        return {
            row: RowFrame(RowState.of(out[row][:-2]), ended=bool(out[row][-2]), finite=bool(out[row][-1]))
            for row in sorted(flight.rows)
        }

    def prefill(self, row: int, columns: Tensor, position: int) -> None:
        """Append columns (n, 1 + codebooks) to a row's slot, starting at `position`."""
        device, n = self.model.device, len(columns)
        at = torch.arange(position, position + n, device=device)[None]
        on_device = columns.pin_memory().to(device, non_blocking=True) if self._cuda else columns.to(device)
        self.model.slow(self.model.embed(on_device[None]), self.slots, slice(row, row + 1), at, position + n)

    def _fill(self, flight: _FrameBuffers, inputs: Mapping[int, RowInput], idle: Mapping[int, int], rows: int) -> None:
        """Fill the input tables. Rows without an input are also computed, but write only to their next free position."""
        blank, width = (0,) * self._widths[0], sum(self._widths)
        table, settings = [], []
        for row in range(rows):
            row_input = inputs.get(row)
            if row_input is None:
                position = min(idle.get(row, 0), self.slots.positions - 1)
                table.append([1, 0, *RowState(blank, position, 0).numbers()])
                settings.append((1.0, 1.0, 0.0))
            else:
                numbers = [0] * width if row_input.state is None else row_input.state.numbers()
                table.append([int(row_input.state is not None), row_input.seed, *numbers])
                settings.append((row_input.temperature, row_input.top_p, float(row_input.redraw)))
        flight.table[:rows], flight.settings[:rows] = torch.tensor(table), torch.tensor(settings)

    def _frame(self, rows: int, length: int) -> None:
        """Compute the states `_after` from the states `_before` and the input tables; idempotent."""
        table, settings = (tensor[:rows] for tensor in self._on_device)
        along = self.model.slow.rotary[:length]
        state, u, redrawn, mask = self._begin(table, settings, self._before[:rows], along)
        column, position, _, _, recent = state.split(self._widths, 1)
        model, (temperature, top_p, _) = self._fused, settings.unbind(1)
        hidden = model.slow(model.embed(column[:, None]), self.slots, slice(rows), position, length, mask=mask)[:, -1]
        entries, finite = model.frame(hidden, temperature, top_p, u, recent, redrawn, self._fast_slots)
        self._after[:rows] = self._next(state, entries, finite)
