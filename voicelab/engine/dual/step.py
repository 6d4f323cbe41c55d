"""One frame for all rows at once: a function of small tables, run as it stands or, on a CUDA device, as a graph.

Where a row is after a frame stays on the device, so that its next frame can be launched before the host knows the codes of
this one; they come to the host meanwhile. The slow transformer, the choosing and all passes of the fast one are one graph for
each batch size and each length of the slots that is looked at, both in powers of two.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from voicelab.engine.core.fused import FrameGraphs, compile_frame, power_of_two, was_compiled
from voicelab.engine.dual.model import WINDOW, DualLM, draw_steps, uniform
from voicelab.engine.dual.tower import Slots

_SHORTEST = 256
"""Positions that a graph looks at at least."""


@dataclass(frozen=True)
class RowState:
    """Where a row is: with its slot and its settings, all that its next frame depends on."""

    column: tuple[int, ...]
    """What stands at its position: a token id and a frame's codes. Empty where no frame can follow."""
    position: int
    frame: int
    """Its number in the sequence; with the seed, what it draws."""
    spoken: int = 0
    """Frames of this turn so far."""
    recent: tuple[int, ...] = (-1,) * WINDOW
    """First entries of the frames before; -1 where there was none."""

    def numbers(self) -> list[int]:
        """As the device has it."""
        return [*self.column, self.position, self.frame, self.spoken, *self.recent]

    @classmethod
    def of(cls, numbers: Sequence[int]) -> RowState:
        """Of `numbers`."""
        *column, position, frame, spoken = numbers[:-WINDOW]
        return cls(tuple(column), position, frame, spoken, tuple(numbers[-WINDOW:]))


@dataclass(frozen=True)
class RowInput:
    """One row's part in a frame."""

    state: RowState | None
    """None: as the row's frame before leaves it, which was launched and not read."""
    position: int
    """Of the state."""
    seed: int
    temperature: float
    top_p: float
    again: bool
    """Whether a first entry that is among the recent ones is drawn once more, after the first frame of a turn."""


@dataclass(frozen=True)
class RowFrame:
    """What came of it."""

    state: RowState
    """After the frame, whose entries are in the column."""
    ended: bool
    """Whether speech is over; the entries mean nothing then."""
    finite: bool

    @property
    def entries(self) -> Tensor:
        """(codebooks,) int64 on the CPU."""
        return torch.tensor(self.state.column[1:])


class _Flight:
    """The host's memory of one frame, from its launch until it was read."""

    def __init__(self, rows: int, width: int, cuda: bool) -> None:
        self.table = torch.zeros(rows, 2 + width, dtype=torch.int64, pin_memory=cuda)
        self.settings = torch.ones(rows, 3, dtype=torch.float32, pin_memory=cuda)
        self.out = torch.zeros(rows, 2 + width, dtype=torch.int64, pin_memory=cuda)
        self.copied = torch.cuda.Event() if cuda else None
        self.rows: set[int] = set()


def _powers(first: int, last: int) -> list[int]:
    """Powers of two from the first on, and the last."""
    return [*(1 << i for i in range(first.bit_length() - 1, (last - 1).bit_length())), last]


class DualStep:
    """The step of a model for rows 0 to `rows` - 1, each with the slot of its number.

    Args:
        model: it must not change from now on.
        rows: most rows.
        graphs: whether frames run as CUDA graphs; by default where the device can.
        compile: whether torch's compiler makes one function of few kernels of a frame; by default on a CUDA device where
            that was done before. It takes minutes the first time.
    """

    def __init__(self, model: DualLM, rows: int, *, graphs: bool | None = None, compile: bool | None = None) -> None:
        self.model, device, codebooks = model, model.device, model.config.codebooks
        self.slots = Slots(model.config.slow, rows, model.positions, model.embeddings)
        self._fast_slots = Slots(model.config.fast, rows, codebooks, model.embeddings)
        self._draw_steps = draw_steps(model.draws(), device)
        self._cuda = device.type == "cuda"
        self._compiled = was_compiled(device) if compile is None else compile
        self._speak = compile_frame(self._after_frame, must=compile is True) if self._compiled else self._after_frame
        self._graphs = FrameGraphs(device, self._frame) if (self._cuda if graphs is None else graphs) else None
        self._widths = (1 + codebooks, 1, 1, 1, WINDOW)
        width = sum(self._widths)
        # While one frame is being made the next is filled in, and no third is launched before the first was read.
        self._spare = deque(_Flight(rows, width, self._cuda) for _ in range(2))
        self._flying: deque[_Flight] = deque()
        first = self._spare[0]
        self._on_device = torch.zeros_like(first.table, device=device), torch.zeros_like(first.settings, device=device)
        self._before = torch.zeros(rows, width, dtype=torch.int64, device=device)
        self._after = torch.zeros(rows, width + 2, dtype=torch.int64, device=device)

    def prepare(self) -> None:
        """Compiles, and captures the graphs of all sizes, so that nobody waits later. Spoils the beginnings of all slots."""
        most, longest = self.slots.rows, self.slots.positions
        if self._graphs is not None:
            for rows in _powers(1, most):
                for length in _powers(_SHORTEST, longest):
                    self._graphs.prepare(rows, length)
        elif self._compiled:
            for rows in {1, min(2, most)}:
                self._frame(rows, min(_SHORTEST, longest))

    @property
    def unread(self) -> int:
        """Frames that were launched and not read."""
        return len(self._flying)

    def flies(self, row: int) -> bool:
        """Whether a frame of this row was launched and not read."""
        return any(row in flight.rows for flight in self._flying)

    def forget(self, row: int) -> None:
        """Nobody wants what is being made of this row: another state follows."""
        for flight in self._flying:
            flight.rows.discard(row)

    def launch(self, inputs: Mapping[int, RowInput], idle: Mapping[int, int]) -> None:
        """A frame of each row, which `read` will return; at most one other may be unread.

        Nothing but the slots changes, each at the row's position.

        Args:
            inputs: by row.
            idle: the positions of the other rows that hold something, which must not be overwritten.
        """
        flight = self._spare[0]
        rows, length = max(inputs) + 1, max(one.position for one in inputs.values()) + 1
        if self._graphs is not None:
            rows = min(power_of_two(rows), len(flight.table))
            length = min(max(_SHORTEST, power_of_two(length)), self.slots.positions)
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
        """The oldest frame that was not read, by row but for those to be forgotten; waits for it."""
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
        """Puts the keys and values of columns (n, 1 + codebooks) into a row's slot, from a position on."""
        device, n = self.model.device, len(columns)
        at = torch.arange(position, position + n, device=device)[None]
        on_device = columns.pin_memory().to(device, non_blocking=True) if self._cuda else columns.to(device)
        self.model.slow(self.model.embed(on_device[None]), self.slots, slice(row, row + 1), at, position + n)

    def _fill(self, flight: _Flight, inputs: Mapping[int, RowInput], idle: Mapping[int, int], rows: int) -> None:
        """A row without an input computes something too: it may write only where nothing is yet."""
        blank, width = (0,) * self._widths[0], sum(self._widths)
        table, settings = [], []
        for row in range(rows):
            one = inputs.get(row)
            if one is None:
                at = min(idle.get(row, 0), self.slots.positions - 1)
                table.append([1, 0, *RowState(blank, at, 0).numbers()])
                settings.append((1.0, 1.0, 0.0))
            else:
                numbers = [0] * width if one.state is None else one.state.numbers()
                table.append([int(one.state is not None), one.seed, *numbers])
                settings.append((one.temperature, one.top_p, float(one.again)))
        flight.table[:rows], flight.settings[:rows] = torch.tensor(table), torch.tensor(settings)

    def _frame(self, rows: int, length: int) -> None:
        """From what `_before` and the tables say to `_after`: doing it twice is doing it once."""
        table = self._on_device[0][:rows]
        state = torch.where(table[:, :1] > 0, table[:, 2:], self._before[:rows])
        draws = table[:, 1]
        if not self._cuda:  # where torch's compiler makes, of products of 64 bits, code that crashes
            draws = uniform(draws, state[:, -WINDOW - 2], self._draw_steps)
        # Once for all layers, in each of which a compiler would write it anew.
        mask = self.model.slow.mask(state[:, -WINDOW - 3, None], length, self.model.embeddings.dtype)
        self._after[:rows] = self._speak(state, self._on_device[1][:rows], draws, mask)

    def _after_frame(self, state: Tensor, settings: Tensor, draws: Tensor, mask: Tensor) -> Tensor:
        """What rows (rows, width) are after a frame, (rows, width + 2); `draws` are uniform numbers, or seeds (rows,)."""
        model, rows = self.model, slice(len(state))
        temperature, top_p, again = settings.unbind(1)
        column, position, frame, spoken, recent = state.split(self._widths, 1)
        u = draws if draws.ndim > 1 else uniform(draws, frame[:, 0], self._draw_steps)
        hidden = model.slow(model.embed(column[:, None]), self.slots, rows, position, mask.shape[-1], mask=mask)[:, -1]
        twice = (again > 0) & (spoken[:, 0] > 0)
        entries, finite = model.frame(hidden, temperature, top_p, u, recent, twice, self._fast_slots)
        main = entries[:, :1]
        ended, code = main >= model.config.entries, main.clamp_max(model.config.entries - 1)
        # The first frame of a turn never enters the window.
        recent = torch.where(spoken > 0, torch.cat((recent[:, 1:], main), 1), recent)
        after = (model.begin + code, code, entries[:, 1:], position + 1, frame + 1, spoken + 1, recent)
        return torch.cat((*after, ended, finite[:, None]), 1)
