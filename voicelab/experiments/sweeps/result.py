"""SweepResult: what a sweep has brought, as takes, as a table, as files, and as a blind test."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from voicelab.audio.clip import Clip
from voicelab.display import bundle, open_view, sweep_page_view, sweep_result_panel_view, sweep_result_view
from voicelab.errors import NotFound, RequestInvalid, StoreError
from voicelab.experiments.listening.design import Kind, ListeningTest
from voicelab.experiments.metrics import BASIC, Metric, measure_rows
from voicelab.experiments.sweeps.axes import field_name, short_name
from voicelab.experiments.sweeps.grid import Grid
from voicelab.experiments.sweeps.run import Outcome, State, seconds_of
from voicelab.experiments.telling import told
from voicelab.take import Take

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Measures", "SweepResult"]

Measures = Callable[[Sequence[Clip]], Iterable[Mapping[str, Any]]]
"""Measures all clips at once, a mapping for each."""


@dataclass(frozen=True)
class SweepResult:
    """What a sweep has brought: outcomes in the order of the grid, and how it ended."""

    grid: Grid
    outcomes: tuple[Outcome, ...]
    state: State

    def __len__(self) -> int:
        return len(self.outcomes)

    def __repr__(self) -> str:
        axes = ", ".join(f"{short_name(axis.name)}: {len(axis)}" for axis in self.grid.axes) or "no axes"
        failed = f", {len(self.failures)} failed" if self.failures else ""
        return f"SweepResult({axes}; {len(self.takes)} of {len(self.grid)} takes{failed}; {self.state})"

    def _repr_mimebundle_(self, **_: object) -> dict[str, Any]:
        return bundle(sweep_result_view, self)

    def panel(self, **options: Any) -> Any:
        """Return the panel in which its takes are heard, sorted and compared; ``metrics`` names what is measured.

        Raises MissingExtra when what it needs is not installed.
        """
        return open_view(sweep_result_panel_view, "the panel of a sweep's result")(self, **options)

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
        named = {field_name(name.replace("__", ".")): value for name, value in where.items()}
        known = {axis.name for axis in self.grid.axes} | {"repeat"}
        for name in named:
            if name not in known:
                listed = ", ".join(sorted(map(short_name, known)))
                raise RequestInvalid.of(name, f"there is no such axis; there are {listed}")
        return replace(self, outcomes=tuple(outcome for outcome in self.outcomes if _fits(outcome, named)))

    def clip(self, *, repeat: int = 0, **where: object) -> Clip:
        """Return the clip of one cell. Raises NotFound when there is none, RequestInvalid when there are several."""
        found = self.select(repeat=repeat, **where).takes
        if not found:
            raise NotFound("the sweep has no take of that")
        if len(found) > 1:
            raise RequestInvalid.of("where", f"{len(found)} takes are like that; name more axes")
        return found[0].clip()

    def listening_test(
        self, kind: Kind, over: str, *, name: str = "sweep", reference: object = None, **options: Any
    ) -> ListeningTest:
        """Return a blind test of the values of one axis, on everything else that was swept: ``analyse`` unblinds it.

        Args:
            kind: AB, ABX, MOS, CMOS or MUSHRA.
            over: the axis whose values are compared. An item is every combination of the others and every repeat that
                all of its values have takes of; ``select`` says before what shall be heard.
            name: what the test is called.
            reference: the value (or label) of the axis that MUSHRA takes for the reference.
            **options: what ListeningTest takes: ``seed``, ``checks``, ``question``, ``lufs``.

        Raises RequestInvalid when there is no such axis or value, or nothing is there for all of its values.
        """
        over = field_name(over)
        axis = next((axis for axis in self.grid.axes if axis.name == over), None)
        if axis is None:
            known = ", ".join(short_name(axis.name) for axis in self.grid.axes) or "none"
            raise RequestInvalid.of("over", f"there is no axis {over!r}; there are {known}", type="not_found")
        items: dict[str, dict[str, Clip]] = {}
        for outcome in self.outcomes:
            if outcome.take is not None:
                labels = outcome.job.cell.labels
                others = [f"{axis}={label}" for axis, label in labels.items() if axis != over]
                place = ", ".join([*others, f"take {outcome.job.repeat + 1}"])
                items.setdefault(place, {})[labels[over]] = outcome.take.clip()
        # What a selection has left of the axis is what is compared.
        there = [label for label in axis.labels if any(label in clips for clips in items.values())]
        whole = {
            item: {label: clips[label] for label in there} for item, clips in items.items() if len(clips) == len(there)
        }
        if not whole:
            raise RequestInvalid.of("over", f"no combination has a take for every {over}", type="too_short")
        if reference is None:
            return ListeningTest(name, kind, whole, **options)
        chosen = next(
            (label for value, label in zip(axis.values, axis.labels, strict=True) if reference in (value, label)), None
        )
        if chosen not in there:
            raise RequestInvalid.of("reference", f"{over} has no {reference!r}; it has {', '.join(there)}")
        references = {item: clips.pop(chosen) for item, clips in whole.items()}
        return ListeningTest(name, kind, whole, references, **options)

    def export(self, folder: str | Path) -> Path:
        """Write every take as it was received into ``folder/audio`` and the table into ``folder/takes.csv``.

        Files are named by their place in the grid and their repeat; the table's column ``file`` names them.
        Returns the table's path. Raises StoreError when the disk fails.
        """
        folder = Path(folder)
        table = self.frame()
        names = []
        try:
            (folder / "audio").mkdir(parents=True, exist_ok=True)
            for outcome in self.outcomes:
                names.append(_file_name(outcome, len(self.grid.cells)) if outcome.take is not None else None)
                if outcome.take is not None:
                    (folder / str(names[-1])).write_bytes(outcome.take.audio)
            table["file"] = names
            table.to_csv(folder / "takes.csv", index=False)
        except OSError as error:
            raise StoreError(f"the takes cannot be written to {folder}: {error.strerror or error}") from error
        return folder / "takes.csv"

    def page(self, path: str | Path, **options: Any) -> Path:
        """Write one HTML file in which every take plays and every column sorts, with nothing from anywhere else.

        ``metrics`` names the columns of measurements. The sound is mp3 of 64 kbit/s. Raises StoreError, RequestInvalid
        for an unknown metric, MissingExtra when nothing is installed that makes pages.
        """
        written: Path = open_view(sweep_page_view, "a page of a sweep's result")(self, path, **options)
        return written

    def frame(self, *metrics: str | Metric | Measures, **options: Any) -> pd.DataFrame:
        """Return a tidy table: one row a take, a column for each axis, then its measurements.

        Columns: the axes (values; labels of text, voice and the like), ``repeat``, ``seed``, ``duration_s``,
        ``first_audio_s``, ``total_s``, ``rtf``, ``cached``, ``digest``, ``key``, ``error``; then the metrics. Needs
        pandas.

        Args:
            *metrics: names or Metric objects, as for ``vl.measure``; or a function that takes all clips at once and
                returns a mapping for each, such as ``vl.measure_rows``.
            **options: what ``vl.measure`` takes besides: ``reference``, ``text``, ``tools``, ``jobs``.

        Raises what ``vl.measure`` raises.
        """
        import pandas as pd

        rows = [_row(outcome) for outcome in self.outcomes]
        made = [row for row, outcome in zip(rows, self.outcomes, strict=True) if outcome.take is not None]
        named = [metric for metric in metrics if not callable(metric)]
        measures: list[Measures] = [metric for metric in metrics if callable(metric)]
        if measure_rows in measures or named:
            # Take by take: their clips all at once may be more than the memory.
            chosen = [*(BASIC if measure_rows in measures else ()), *named]
            for row, more in zip(made, measure_rows(self.takes, chosen, **options), strict=True):
                row.update(more)
        for measure in measures:
            if measure is not measure_rows:
                clips = [take.clip() for take in self.takes]
                for row, found in zip(made, measure(clips), strict=True):
                    row.update(found)
        names = [*(axis.name for axis in self.grid.axes), *_COLUMNS]
        return pd.DataFrame(rows, columns=list(dict.fromkeys([*names, *(key for row in rows for key in row)])))


_COLUMNS: Final = (
    "repeat",
    "seed",
    "duration_s",
    "first_audio_s",
    "total_s",
    "rtf",
    "cached",
    "digest",
    "key",
    "error",
)


def _row(outcome: Outcome) -> dict[str, Any]:
    cell, take = outcome.job.cell, outcome.take
    row: dict[str, Any] = dict(cell.plain)
    row |= {"repeat": outcome.job.repeat, "seed": outcome.job.seed, "cached": outcome.cached}
    row["error"] = told(outcome.error) if outcome.error is not None else None
    if take is not None:
        seconds = seconds_of(take)
        row |= {
            "duration_s": seconds,
            "first_audio_s": take.timing.first_audio_s,
            "total_s": take.timing.total_s,
            "rtf": take.timing.rtf(seconds),
            "digest": take.digest,
            "key": take.key,
        }
    return row


def _file_name(outcome: Outcome, cells: int) -> str:
    suffix = {"opus": "ogg"}.get(outcome.job.cell.call.request.format, outcome.job.cell.call.request.format)
    return f"audio/{outcome.job.cell.index:0{len(str(cells))}d}-{outcome.job.repeat}.{suffix}"


def _fits(outcome: Outcome, where: Mapping[str, object]) -> bool:
    cell = outcome.job.cell
    for name, wanted in where.items():
        several = wanted if isinstance(wanted, list | tuple | set) else [wanted]
        known = [outcome.job.repeat] if name == "repeat" else [cell.values[name], cell.labels[name]]
        if not any(one == value for one in several for value in known):
            return False
    return True
