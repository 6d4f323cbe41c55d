"""The grid of a sweep: every combination of the axes' values as a checked request, and the takes of each."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Final

import numpy as np

from voicelab.call import Call
from voicelab.errors import FieldError, RequestInvalid
from voicelab.experiments.sweeps.axes import Axis

__all__ = ["MAX_TAKES", "Cell", "Grid", "Job"]

MAX_TAKES: Final = 1_000_000
"""Takes of one sweep; a grid beyond it is a slip."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One combination: its place in the grid, a label for each axis, and its call.

    The call has a seed only where an axis ``seed`` gives it; otherwise the repeat says which.
    """

    index: int
    labels: Mapping[str, str]
    values: Mapping[str, Any]
    call: Call
    backend: str

    @property
    def plain(self) -> dict[str, str | int | float]:
        """What tables and manifests have for each axis: numbers and words as they are, a label for anything else."""
        return {
            name: value if isinstance(value, str | int | float) else self.labels[name]
            for name, value in self.values.items()
        }


@dataclass(frozen=True, slots=True)
class Job:
    """One take to be made: a cell, which of its repeats, and the seed that repeat has in every cell."""

    cell: Cell
    repeat: int
    seed: int | None

    @property
    def call(self) -> Call:
        """What is asked for."""
        return replace(self.cell.call, seed=self.seed)


@dataclass(frozen=True, slots=True)
class Grid:
    """All cells in the order of the caller's axes; ``jobs()`` has them in the order that costs least."""

    axes: tuple[Axis, ...]
    cells: tuple[Cell, ...]
    repeats: int
    seeds: tuple[int, ...]

    @classmethod
    def of(
        cls,
        base: Call,
        axes: Sequence[Axis],
        *,
        repeats: int = 1,
        seed: int = 0,
        backend: str = "",
    ) -> Grid:
        """Check every combination and return the grid.

        The seeds of the repeats are drawn from ``seed`` and are the same in every cell, so that cells
        differ by their parameters and not by their luck.

        Raises RequestInvalid: two axes of one name, repeats below 1, too many takes, or combinations that
        no request can have (a sample rate that a format has not), each with its place.
        """
        _check_shape(axes, repeats)
        cells: list[Cell] = []
        troubles: dict[str, FieldError] = {}
        for index, places in enumerate(itertools.product(*(range(len(axis)) for axis in axes))):
            values = {axis.name: axis.values[place] for axis, place in zip(axes, places, strict=True)}
            labels = {axis.name: axis.labels[place] for axis, place in zip(axes, places, strict=True)}
            try:
                call = base.replace(**{name: value for name, value in values.items() if name != "backend"})
            except RequestInvalid as error:
                troubles.update({str(item): item for item in error.errors})
                continue
            cells.append(
                Cell(index, MappingProxyType(labels), MappingProxyType(values), call, values.get("backend", backend))
            )
        if troubles:
            raise RequestInvalid(troubles.values())
        # 63 bits: what a seed may have, from one number, far apart.
        drawn = np.random.SeedSequence(seed).generate_state(repeats, np.uint64) >> np.uint64(1)
        return cls(tuple(axes), tuple(cells), repeats, tuple(int(one) for one in drawn))

    def __len__(self) -> int:
        """Takes in all."""
        return len(self.cells) * self.repeats

    def jobs(self) -> tuple[Job, ...]:
        """All takes, dear changes (backend, model, voice, text) outermost, otherwise in the axes' order."""
        dear = [place for place, axis in enumerate(self.axes) if axis.cost]
        dear.sort(key=lambda place: -self.axes[place].cost)
        sizes = [len(axis) for axis in self.axes]

        def order(cell: Cell) -> tuple[int, ...]:
            places = np.unravel_index(cell.index, sizes) if sizes else ()
            return (*(int(places[axis]) for axis in dear), cell.index)

        return tuple(
            Job(cell, repeat, self.seeds[repeat] if cell.call.seed is None else cell.call.seed)
            for cell in sorted(self.cells, key=order)
            for repeat in range(self.repeats)
        )


def _check_shape(axes: Sequence[Axis], repeats: int) -> None:
    names = [axis.name for axis in axes]
    for name in names:
        if names.count(name) > 1:
            raise RequestInvalid.of(name, "there are two axes of this name", type="duplicate")
    if type(repeats) is not int or repeats < 1:
        raise RequestInvalid.of("repeats", "Input should be a whole number, 1 or more", type="int_type")
    if "seed" in names and repeats > 1:
        message = "an axis of seeds already says what to repeat; leave repeats at 1"
        raise RequestInvalid.of("repeats", message, type="value_error")
    total = repeats
    for axis in axes:
        total *= len(axis)
    if total > MAX_TAKES:
        message = f"the grid has {total} takes; at most {MAX_TAKES} are taken"
        raise RequestInvalid.of("repeats", message, type="too_long")
