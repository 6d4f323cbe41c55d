"""Rows: takes as somebody looks through them: sorted, filtered, the odd ones out, and a few sent on."""

from __future__ import annotations

import math
import operator
import re
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from voicelab.audio.clip import Clip
from voicelab.errors import NotFound, RequestInvalid
from voicelab.experiments.comparison import Comparison
from voicelab.experiments.sweeps.axes import field_name, short_name
from voicelab.experiments.sweeps.grid import Grid, Job
from voicelab.experiments.sweeps.run import Outcome
from voicelab.experiments.telling import told

__all__ = ["Row", "RowState", "comparison_of", "matching", "odd_one_out", "ordered", "row_of", "waiting_rows"]

RowState = Literal["waiting", "running", "done", "failed"]

_OPERATORS: Final[Mapping[str, Callable[[Any, Any], bool]]] = {
    ">=": operator.ge,
    "<=": operator.le,
    "!=": operator.ne,
    "=": operator.eq,
    ">": operator.gt,
    "<": operator.lt,
}
_TERM: Final = re.compile(r"^(?P<name>[\w.]+)\s*(?P<sign>>=|<=|!=|==|=|>|<)\s*(?P<value>.*)$")
# Iglewicz and Hoaglin, How to Detect and Handle Outliers (1993): makes the median deviation that of a normal one.
_NORMAL: Final = 0.6745


@dataclass(frozen=True, slots=True, eq=False)
class Row:
    """One take as a panel shows it.

    ``labels`` name its values, of which ``values`` has the plain ones; ``figures`` are measurements by their metric,
    NaN where undefined; ``hear`` fetches the sound, None while there is none; ``error`` is what went wrong.
    """

    id: int
    labels: Mapping[str, str]
    values: Mapping[str, Any] = field(default_factory=dict)
    state: RowState = "waiting"
    figures: Mapping[str, float] = field(default_factory=dict)
    error: str = ""
    notes: tuple[str, ...] = ()
    hear: Callable[[], Clip] | None = field(default=None, repr=False)

    @property
    def name(self) -> str:
        """All labels in one line."""
        return ", ".join(f"{short_name(axis)}={label}" for axis, label in self.labels.items())

    def of(self, name: str) -> Any:
        """Return what the row has under a name: a value, a measurement, its state; None when it has nothing."""
        name = field_name(name) if name not in self.labels else name
        if name in self.figures:
            return self.figures[name]
        return self.state if name == "state" else self.values.get(name, self.labels.get(name))

    def clip(self) -> Clip:
        """Return its sound. Raises NotFound while there is none, and what fetching it raises."""
        if self.hear is None:
            raise NotFound(f"there is no sound of {self.name} yet")
        return self.hear()


def waiting_rows(grid: Grid) -> list[Row]:
    """Return a row for each take of a grid, in its order; the takes of a cell follow each other."""
    return [
        Row(place(grid, cell.index, repeat), *_named(Job(cell, repeat, None), grid.repeats))
        for cell in grid.cells
        for repeat in range(grid.repeats)
    ]


def row_of(outcome: Outcome, grid: Grid) -> Row:
    """Return the row of an outcome: the take, or the error whole, but for what looks like a key in it."""
    job, take, error = outcome.job, outcome.take, outcome.error
    return Row(
        place(grid, job.cell.index, job.repeat),
        *_named(job, grid.repeats),
        state="failed" if take is None else "done",
        error="" if error is None else told(error),
        notes=() if take is None else take.all_notes,
        hear=None if take is None else take.clip,
    )


def place(grid: Grid, cell: int, repeat: int) -> int:
    """Return the id of a take's row."""
    return cell * grid.repeats + repeat


def matching(rows: Iterable[Row], where: str) -> list[Row]:
    """Return the rows that fit ``where``: terms with commas between, all of which must hold.

    A term is a comparison, ``temperature>=0.5``, ``latency=low``, ``duration<2``, ``state=failed``, or words to be
    found among the labels. A measurement that is undefined fits no comparison. Raises RequestInvalid, which names
    ``filter``.
    """
    rows = list(rows)
    terms = [term for term in map(str.strip, where.split(",")) if term]
    for term in terms:
        matched = _TERM.match(term)
        if matched is None:
            rows = [row for row in rows if term.casefold() in row.name.casefold()]
            continue
        name, value = matched["name"], matched["value"].strip()
        if rows and not any(row.of(name) is not None for row in rows):
            known = ", ".join(dict.fromkeys([*map(short_name, rows[0].labels), *rows[0].figures, "state"]))
            raise RequestInvalid.of("filter", f"nothing is called {name!r}; there are {known}", type="not_found")
        compare = _OPERATORS[matched["sign"].replace("==", "=")]
        rows = [row for row in rows if _holds(row, name, compare, value)]
    return rows


def ordered(rows: Iterable[Row], by: str = "", *, descending: bool = False, pinned: Iterable[int] = ()) -> list[Row]:
    """Return the rows by an axis or a metric, in the order of the grid where that is the same or ``by`` is "".

    Pinned ones come first; those that have no such value last, however the others go.
    """
    held = set(pinned)
    rows = sorted(rows, key=lambda row: row.id)
    if by:
        known = [row for row in rows if _sortable(row.of(by)) is not None]
        rest = [row for row in rows if _sortable(row.of(by)) is None]
        known.sort(key=lambda row: _sortable(row.of(by)) or (0, 0.0, ""), reverse=descending)
        rows = known + rest
    return sorted(rows, key=lambda row: row.id not in held)


def odd_one_out(rows: Iterable[Row], metric: str) -> tuple[Row, float] | None:
    """Return the row whose measurement is farthest from the median of all, and how far: its modified z-score.

    That is 0.6745 (x - median) / MAD (Iglewicz and Hoaglin 1993; beyond 3.5 they call it an outlier), with the mean
    deviation over 0.7979 in place of the MAD where that is 0. None when fewer than three are measured or all are equal.
    """
    known = [(row, row.figures[metric]) for row in rows if math.isfinite(row.figures.get(metric, math.nan))]
    if len(known) < 3:
        return None
    middle = statistics.median(value for _, value in known)
    away = [abs(value - middle) for _, value in known]
    spread = statistics.median(away) / _NORMAL or statistics.fmean(away) / math.sqrt(2 / math.pi)
    if spread == 0:
        return None
    row, value = max(known, key=lambda item: abs(item[1] - middle))
    return row, (value - middle) / spread


def comparison_of(rows: Sequence[Row]) -> Comparison:
    """Return the rows' sounds side by side, named by what differs between them.

    Raises RequestInvalid unless there are 2 to 8, and what fetching a sound raises.
    """
    axes = dict.fromkeys(axis for row in rows for axis in row.labels)
    differing = [axis for axis in axes if len({row.labels.get(axis) for row in rows}) > 1]
    named: dict[str, Clip] = {}
    for number, row in enumerate(rows[:9], start=1):
        name = (
            ", ".join(f"{short_name(axis)}={row.labels[axis]}" for axis in differing if axis in row.labels)
            or f"take {number}"
        )
        named[name if name not in named else f"{name} ({number})"] = row.clip()
    return Comparison(named)


def _named(job: Job, repeats: int) -> tuple[dict[str, str], dict[str, Any]]:
    labels, values = dict(job.cell.labels), dict(job.cell.plain)
    if repeats > 1:
        labels["take"] = str(job.repeat + 1)
        values["take"] = job.repeat + 1
    return labels, values


def _holds(row: Row, name: str, compare: Callable[[Any, Any], bool], wanted: str) -> bool:
    value = row.of(name)
    if isinstance(value, int | float) and not isinstance(value, bool):
        try:
            return math.isfinite(value) and compare(value, float(wanted))
        except ValueError:
            pass
    text = row.labels.get(name, row.labels.get(field_name(name), value))
    return text is not None and compare(str(text).casefold(), wanted.casefold())


def _sortable(value: object) -> tuple[int, float, str] | None:
    """Return what values are sorted by, numbers before words; None for what cannot be."""
    if isinstance(value, int | float):
        return (0, float(value), "") if math.isfinite(value) else None
    return None if value is None else (1, 0.0, str(value))
