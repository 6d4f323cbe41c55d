"""SweepResult: what a sweep has brought: takes, a table, files, a blind test; and its takes as rows to look through."""

from __future__ import annotations

import math
import operator
import re
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, cast, get_args

from voicelab.call import field_name, short_name
from voicelab.capabilities import Capabilities
from voicelab.clip import Clip, Take
from voicelab.display import Shown, view
from voicelab.errors import ArgumentError, NotFound, RequestInvalid, check_options, suggestion
from voicelab.listening.design import TEST_OPTIONS, Kind, ListeningTest
from voicelab.listening.webmushra import export_webmushra
from voicelab.metrics import BASIC, MEASURE_OPTIONS, Metric, measure_rows, with_note
from voicelab.recordings import Layout, plain_name, write_layout
from voicelab.runs.failures import error_message
from voicelab.runs.folder import RUN_FILE
from voicelab.runs.run import Journal, take_columns
from voicelab.storage import check_folder, write_atomic
from voicelab.sweeps.axes import Grid, Job
from voicelab.sweeps.run import Outcome, State, seconds_of
from voicelab.tables import csv_bytes
from voicelab.takes.comparison import Comparison

if TYPE_CHECKING:
    import pandas as pd

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
    NaN where undefined; ``hear`` fetches the sound, None while there is none; ``error`` is what went wrong; ``code`` is
    the Python that makes the take again, "" where it is not known.
    """

    id: int
    labels: Mapping[str, str]
    values: Mapping[str, Any] = field(default_factory=dict)
    state: RowState = "waiting"
    figures: Mapping[str, float] = field(default_factory=dict)
    error: str = ""
    notes: tuple[str, ...] = ()
    hear: Callable[[], Clip] | None = field(default=None, repr=False)
    code: str = field(default="", repr=False)

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
    jobs = (Job(cell, repeat, None) for cell in grid.cells for repeat in range(grid.repeats))
    return [Row(place(grid, job), *_named(job, grid.repeats)) for job in jobs]


def row_of(outcome: Outcome, grid: Grid) -> Row:
    """Return the row of an outcome: the take, or the error whole, but for what looks like a key in it."""
    job, take, error = outcome.job, outcome.take, outcome.error
    labels, values = _named(job, grid.repeats)
    return Row(
        place(grid, job),
        labels,
        values if take is None else {"seed": take.seed, **values},
        state="failed" if take is None else "done",
        error="" if error is None else error_message(error),
        notes=() if take is None else take.all_notes,
        hear=None if take is None else take.clip,
        code="" if take is None else replace(take.call, seed=take.seed).code(also=job.cell.labels),
    )


def paired_by(job: Job, over: str) -> tuple[str, ...]:
    """Return what pairs a take with those of the other values of ``over``: all its other labels, and its repeat.

    Takes are paired by nothing else, never by their order: a pair differs in nothing but ``over``.
    """
    labels = job.cell.labels
    return (*(f"{axis}={label}" for axis, label in labels.items() if axis != over), f"take {job.repeat + 1}")


def place(grid: Grid, job: Job) -> int:
    """Return the id of a take's row."""
    return job.cell.index * grid.repeats + job.repeat


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
            names = ", ".join(dict.fromkeys([*map(short_name, rows[0].labels), *rows[0].figures, "state"]))
            raise RequestInvalid.of("filter", f"nothing is called {name!r}; there are {names}", type="not_found")
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
        values = {row.id: value for row in rows if (value := _sortable(row.of(by))) is not None}
        measured = [row for row in rows if row.id in values]
        rest = [row for row in rows if row.id not in values]
        rows = sorted(measured, key=lambda row: values[row.id], reverse=descending) + rest
    return sorted(rows, key=lambda row: row.id not in held)


def odd_one_out(rows: Iterable[Row], metric: str) -> tuple[Row, float] | None:
    """Return the row whose measurement is farthest from the median of all, and how far: its modified z-score.

    That is 0.6745 (x - median) / MAD (Iglewicz and Hoaglin 1993; beyond 3.5 they call it an outlier), with the mean
    deviation over 0.7979 in place of the MAD where that is 0. None when fewer than three are measured or all are equal.
    """
    measured = [(row, row.figures[metric]) for row in rows if math.isfinite(row.figures.get(metric, math.nan))]
    if len(measured) < 3:
        return None
    middle = statistics.median(value for _, value in measured)
    away = [abs(value - middle) for _, value in measured]
    spread = statistics.median(away) / _NORMAL or statistics.fmean(away) / math.sqrt(2 / math.pi)
    if spread == 0:
        return None
    row, value = max(measured, key=lambda item: abs(item[1] - middle))
    return row, (value - middle) / spread


def comparison_of(rows: Sequence[Row]) -> Comparison:
    """Return the rows' sounds side by side, named by what differs between them.

    Raises RequestInvalid unless there are 2 to 8, and what fetching a sound raises.
    """
    axes = dict.fromkeys(axis for row in rows for axis in row.labels)
    differing = [axis for axis in axes if len({row.labels.get(axis) for row in rows}) > 1]
    named: dict[str, Clip] = {}
    for number, row in enumerate(rows[:9], start=1):
        differences = (f"{short_name(axis)}={row.labels[axis]}" for axis in differing if axis in row.labels)
        name = ", ".join(differences) or f"take {number}"
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


Measures = Callable[[Sequence[Clip]], Iterable[Mapping[str, Any]]]
"""Measures all clips at once, a mapping for each."""


@dataclass(frozen=True)
class SweepResult(Shown):
    """What a sweep has brought: outcomes in the order of the grid, how it ended, and notes on the workers left out."""

    grid: Grid
    outcomes: tuple[Outcome, ...]
    state: State
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.outcomes)

    def __repr__(self) -> str:
        axes = ", ".join(f"{short_name(axis.name)}: {len(axis)}" for axis in self.grid.axes) or "no axes"
        failed = f", {len(self.failures)} failed" if self.failures else ""
        notes = f"; {len(self.notes)} note{'s'[: len(self.notes) > 1]}" if self.notes else ""
        return f"SweepResult({axes}; {len(self.takes)} of {len(self.grid)} takes{failed}; {self.state}{notes})"

    def panel(self, **options: Any) -> Any:
        """Return the panel in which its takes are heard, sorted and compared; ``metrics`` names what is measured.

        Raises MissingExtra when what it needs is not installed.
        """
        return view("SweepResult.panel")(self, **options)

    @property
    def takes(self) -> tuple[Take, ...]:
        """The takes there are."""
        return tuple(outcome.take for outcome in self.outcomes if outcome.take is not None)

    @property
    def failures(self) -> tuple[Outcome, ...]:
        """What went wrong, with its error."""
        return tuple(outcome for outcome in self.outcomes if outcome.error is not None)

    def select(self, **where: object) -> SweepResult:
        """Return the result with those outcomes only whose values or labels are ``where``; a list chooses several.

        ``repeat`` is one too; ``voice``, ``speed`` and ``volume`` are called as in ``lab.sweep``. Raises
        RequestInvalid for a name that is no axis.
        """
        named = {self._axis_name(name.replace("__", ".")): value for name, value in where.items()}
        axes = {axis.name for axis in self.grid.axes} | {"repeat"}
        for name in named:
            if name not in axes:
                listed = sorted(map(short_name, axes))
                near = suggestion(name, listed) or f"; there are {', '.join(listed)}"
                raise RequestInvalid.of(name, f"there is no such axis{near}")
        fitting = (one for one in self.outcomes if all(_fits(one, *wanted) for wanted in named.items()))
        return replace(self, outcomes=tuple(fitting))

    def _axis_name(self, name: str) -> str:
        return name if any(axis.name == name for axis in self.grid.axes) else field_name(name)

    def clip(self, *, repeat: object = 0, **where: object) -> Clip:
        """Return the clip of one cell. Raises NotFound when there is none, RequestInvalid when there are several."""
        takes = self.select(repeat=repeat, **where).takes
        if not takes:
            there = "; ".join(f"{short_name(axis.name)} is {', '.join(axis.labels)}" for axis in self.grid.axes)
            raise NotFound(f"the sweep has no take of that: {there}; repeat is 0 to {self.grid.repeats - 1}")
        if len(takes) > 1:
            raise RequestInvalid.of("where", f"{len(takes)} takes are like that; name more axes")
        return takes[0].clip()

    def listening_test(
        self, kind: Kind, over: str, *, name: str = "sweep", reference: object = None, **options: Any
    ) -> ListeningTest:
        """Return a blind test of the values of one axis, on everything else that was swept: ``analyze`` unblinds it.

        Args:
            kind: AB, ABX, MOS, CMOS or MUSHRA.
            over: the axis whose values are compared. An item is every combination of the others and every repeat that
                all of its values have takes of; ``select`` says before what shall be heard.
            name: what the test is called.
            reference: the value (or label) of the axis that MUSHRA takes for the reference.
            **options: what ListeningTest takes: ``seed``, ``checks``, ``question``, ``lufs``.

        Raises RequestInvalid when there is no such axis or value, or nothing is there for all of its values.
        """
        check_options(options, TEST_OPTIONS)
        over = self._axis_name(over)
        axis = next((axis for axis in self.grid.axes if axis.name == over), None)
        if axis is None:
            names = [short_name(axis.name) for axis in self.grid.axes]
            near = suggestion(over, names) or f"; there are {', '.join(names) or 'none'}"
            raise RequestInvalid.of("over", f"there is no axis {over!r}{near}", type="not_found")
        items: dict[str, dict[str, Clip]] = {}
        for outcome in self.outcomes:
            if outcome.take is not None:
                item = ", ".join(paired_by(outcome.job, over))
                items.setdefault(item, {})[outcome.job.cell.labels[over]] = outcome.take.clip()
        # What a selection has left of the axis is what is compared.
        there = [label for label in axis.labels if any(label in clips for clips in items.values())]
        if len(there) == 1 < len(axis) and kind != "MOS":
            message = f"these takes all have {short_name(over)}={there[0]}; choose another axis, or more takes"
            raise RequestInvalid.of("over", message, type="too_short")
        complete = {item: clips for item, clips in items.items() if len(clips) == len(there)}
        whole = {item: {label: clips[label] for label in there} for item, clips in complete.items()}
        if not whole:
            raise RequestInvalid.of("over", f"no combination has a take for every {over}", type="too_short")
        if reference is None:
            return ListeningTest(name, kind, whole, **options)
        named = zip(axis.values, axis.labels, strict=True)
        chosen = next((label for value, label in named if reference in (value, label)), None)
        if chosen not in there:
            raise RequestInvalid.of("reference", f"{over} has no {reference!r}; it has {', '.join(there)}")
        references = {item: clips.pop(chosen) for item, clips in whole.items()}
        return ListeningTest(name, kind, whole, references, **options)

    def export(self, folder: str | Path, layout: str = "takes", **options: Any) -> Path:
        """Write every take as it was received into ``folder/audio`` and the table into ``folder/takes.csv``.

        Files are named by their place in the grid and their repeat; the table's column ``file`` names them.

        ``layout`` writes them otherwise: "run" a run folder, which ``vl.load`` reads, with every take's digest;
        "audiofolder" (Hugging Face), "ljspeech" or "kaldi" as WAV files with a table, digests, and a data card to be
        completed; "webmushra" as a configuration of ``self.listening_test(**options)``, of which ``kind`` is MOS and
        ``over`` is backend when not given. Returns the table's path. Raises StoreError when the disk fails.
        """
        folder = Path(folder)
        check_folder(folder)
        if layout != "webmushra":
            check_options(options, ())
        if layout != "takes":
            return self._lay_out(folder, layout, options)
        table = self.frame()
        names = []
        for outcome in self.outcomes:
            take, name = outcome.take, _file_name(outcome, len(self.grid.cells))
            names.append(None if take is None else f"audio/{name}.{take.suffix}")
            if take is not None:
                write_atomic(folder / str(names[-1]), take.audio, sync=False)
        table["file"] = names
        write_atomic(folder / "takes.csv", csv_bytes(table), sync=False)
        return folder / "takes.csv"

    def _lay_out(self, folder: Path, layout: str, options: Mapping[str, Any]) -> Path:
        if layout == "webmushra":
            return export_webmushra(self.listening_test(**{"kind": "MOS", "over": "backend", **options}), folder)
        there = [(outcome, outcome.job.cell, outcome.take) for outcome in self.outcomes if outcome.take is not None]
        if layout == "run":
            declared = {
                take.fingerprint: Capabilities(take.backend, (take.model,), take.device, "none", take.fingerprint)
                for _, _, take in there
            }
            with Journal(folder, declared.values()) as kept:
                for _, cell, take in there:
                    kept.add(take, **cell.plain, cell=cell.index)
            return folder / RUN_FILE
        if layout not in get_args(Layout):
            listed = ", ".join(("takes", "run", *get_args(Layout), "webmushra"))
            raise ArgumentError.of("layout", f"there is no {layout!r}; there are {listed}")
        named = []
        for outcome, cell, take in there:
            more = {name: value for name, value in cell.plain.items() if name not in {"text", "backend"}}
            system = cell.labels.get("backend", take.backend)
            keys = [label for name, label in cell.labels.items() if name != "backend"] if "item" in more else []
            name = "-".join([_file_name(outcome, len(self.grid.cells)), *map(plain_name, keys)])
            named.append((name, system, take, more))
        return write_layout(folder, cast(Layout, layout), named)

    def page(self, path: str | Path = "sweep.html", **options: Any) -> Path:
        """Write one HTML file in which every take plays and every column sorts, with nothing from anywhere else.

        ``metrics`` names the columns of measurements. The sound is mp3 of 64 kbit/s. Raises StoreError, RequestInvalid
        for an unknown metric, MissingExtra when nothing is installed that makes pages.
        """
        written: Path = view("SweepResult.page")(self, path, **options)
        return written

    def frame(self, *metrics: str | Metric | Measures, also: Iterable[str] = (), **options: Any) -> pd.DataFrame:
        """Return a tidy table: one row a take, a column for each axis, then its measurements.

        Columns: the axes (values; labels of text, voice and the like), ``repeat``, ``seed``, ``duration_s``,
        ``first_audio_s``, ``total_s``, ``rtf``, ``cached``, ``digest``, ``key``, ``error``; then the metrics. Needs
        pandas.

        Args:
            *metrics: names or Metric objects, as for ``vl.measure``; or a function that takes all clips at once and
                returns a mapping for each, such as ``voicelab.metrics.measure_rows``.
            also: further columns of the takes, as a run's table names them: ``host``, ``fingerprint``, ``device``, ….
            **options: what ``vl.measure`` takes besides: ``reference``, ``text``, ``tools``, ``jobs``.

        Raises what ``vl.measure`` raises, and ArgumentError for an unknown column.
        """
        import pandas as pd

        check_options(options, MEASURE_OPTIONS)
        rows = [_row(outcome) for outcome in self.outcomes]
        rendered = [row for row, outcome in zip(rows, self.outcomes, strict=True) if outcome.take is not None]
        named = [metric for metric in metrics if not callable(metric)]
        chosen = [*(BASIC if measure_rows in metrics else ()), *named]
        # Take by take: their clips all at once may be more than the memory.
        figures: list[Iterable[Mapping[str, Any]]] = [measure_rows(self.takes, chosen, **options)] if chosen else []
        own = (metric for metric in metrics if callable(metric) and metric is not measure_rows)
        figures += [measure([take.clip() for take in self.takes]) for measure in own]
        if also:
            figures.insert(0, (take_columns(take, also) for take in self.takes))
        for several in figures:
            for row, measured in zip(rendered, several, strict=True):
                row.update(measured)
        names = [*(axis.name for axis in self.grid.axes), *TAKE_COLUMNS]
        table = pd.DataFrame(rows, columns=list(dict.fromkeys([*names, *(key for row in rows for key in row)])))
        return with_note(table, chosen, options.get("tools"))


TAKE_COLUMNS: Final = "repeat seed duration_s first_audio_s total_s rtf cached digest key error".split()
"""What ``SweepResult.frame`` has of each take beside its axes and metrics."""


def _row(outcome: Outcome) -> dict[str, Any]:
    cell, take = outcome.job.cell, outcome.take
    row: dict[str, Any] = dict(cell.plain)
    if cell.template:
        row |= {"text": cell.template, "sent": cell.call.request.text}
    row = {"repeat": outcome.job.repeat, **row, "seed": outcome.job.seed, "cached": outcome.cached}
    row["error"] = error_message(outcome.error) if outcome.error is not None else None
    if take is not None:
        seconds, timing = seconds_of(take), take.timing
        row |= {"duration_s": seconds, "digest": take.digest, "key": take.key}
        if not take.source:
            row |= {"first_audio_s": timing.first_audio_s, "total_s": timing.total_s, "rtf": timing.rtf(seconds)}
    return row


def _file_name(outcome: Outcome, cells: int) -> str:
    return f"{outcome.job.cell.index:0{len(str(cells))}d}-{outcome.job.repeat}"


def _fits(outcome: Outcome, name: str, wanted: object) -> bool:
    cell = outcome.job.cell
    several = wanted if isinstance(wanted, list | tuple | set) else [wanted]
    labelled = name in cell.labels
    own = [cell.values.get(name), cell.labels[name]] if labelled else [outcome.job.repeat]
    return any(one == value for one in several for value in own)
