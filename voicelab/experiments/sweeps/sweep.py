"""Sweep: a grid of requests, described, estimated and run; its results as a table and as clips."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from voicelab.audio.clip import Clip
from voicelab.backend import Backend, Capabilities, check_seed
from voicelab.errors import NotFound, RequestInvalid, StoreError
from voicelab.experiments.cache import Cache
from voicelab.experiments.journal import Journal
from voicelab.experiments.sweeps.axes import Axis
from voicelab.experiments.sweeps.budget import Budget, Estimate, estimate
from voicelab.experiments.sweeps.grid import Grid, Job
from voicelab.experiments.sweeps.run import Means, Outcome, Run, State, seconds_of
from voicelab.experiments.sweeps.workers import Factory, Pace, workers_for
from voicelab.experiments.take import Take, take_key
from voicelab.schema import DEFAULT_MODEL, Model, TTSRequest

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["ONLY", "Sweep", "SweepResult"]

ONLY: Final = "lab"
"""Name of the backend of a sweep over one."""


@dataclass(frozen=True)
class Sweep:
    """A grid of requests on one or several backends; nothing runs before ``run()`` or ``start()``.

    Args:
        base: the request that every cell starts from.
        axes: what is varied; see ``Axis.of``. An axis ``backend`` names entries of ``backends``.
        backends: who speaks, by name; with one and no axis ``backend``, that one.
        repeats: takes of each cell. Every cell has the same seeds, one for each repeat.
        seed: what those seeds are drawn from; ignored where a backend takes none.
        model: synthesis model where no axis says so.
        factories: for executors of other processes: how each backend is opened there.
        cache: where takes are kept as they come; the cache in voicelab's data folder when not given.

    Raises RequestInvalid: whatever is wrong with a value or a combination, before anything runs.
    """

    base: TTSRequest
    axes: tuple[Axis, ...]
    backends: Mapping[str, Backend]
    repeats: int = 1
    seed: int = 0
    model: Model = DEFAULT_MODEL
    factories: Mapping[str, Factory] = field(default_factory=dict, repr=False)
    cache: Cache | None = field(default=None, repr=False, compare=False)
    grid: Grid = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not self.backends:
            raise RequestInvalid.of("backend", "a sweep needs a backend", type="missing")
        if type(self.seed) is not int or self.seed < 0:
            raise RequestInvalid.of("seed", "Input should be a whole number, 0 or more", type="int_type")
        named = {value for axis in self.axes if axis.name == "backend" for value in axis.values}
        unknown = sorted(named - set(self.backends))
        if unknown:
            message = f"there is no backend {unknown[0]!r}; there are {', '.join(sorted(self.backends))}"
            raise RequestInvalid.of("backend", message, type="not_found")
        if not named and len(self.backends) > 1:
            raise RequestInvalid.of("backend", "several backends need an axis 'backend' that names them")
        grid = Grid.of(
            self.base,
            self.axes,
            repeats=self.repeats,
            seed=self.seed,
            model=self.model,
            backend=next(iter(self.backends)),
        )
        object.__setattr__(self, "backends", MappingProxyType(dict(self.backends)))
        object.__setattr__(self, "factories", MappingProxyType(dict(self.factories)))
        object.__setattr__(self, "grid", grid)
        for cell in grid.cells:
            if cell.seed is not None:
                check_seed(cell.seed, self.backends[cell.backend].capabilities)

    @classmethod
    def of(cls, backend: Backend, base: TTSRequest, axes: Mapping[str, object], **options: Any) -> Sweep:
        """Make a sweep over one backend from values as people write them: ``{"temperature": "0..1 step 0.5"}``."""
        return cls(base, tuple(Axis.of(name, values) for name, values in axes.items()), {ONLY: backend}, **options)

    def __len__(self) -> int:
        """Takes in all."""
        return len(self.grid)

    def jobs(self) -> tuple[Job, ...]:
        """All takes in the order in which they are made; without a seed where a backend takes none."""
        blind = {name for name, backend in self.backends.items() if backend.capabilities.seed == "none"}
        return tuple(Job(job.cell, job.repeat, None) if job.cell.backend in blind else job for job in self.grid.jobs())

    def key(self, job: Job) -> str:
        """Return what names a job's take in a cache."""
        cell = job.cell
        fingerprint = self.backends[cell.backend].capabilities.fingerprint
        return take_key(cell.request, model=cell.model, fingerprint=fingerprint, seed=job.seed, repeat=job.repeat)

    def estimate(self, cache: Cache | None = None) -> Estimate:
        """Return what the takes that the cache has not got will need; those it has tell how fast the backend is."""
        cache = cache or self.cache or Cache()
        missing, found = [], []
        for job in self.jobs():
            take = cache.look(self.key(job))[0]
            missing.append(job) if take is None else found.append(take)
        rtf = None
        if found:
            rtf = statistics.median(take.timing.rtf(seconds_of(take)) for take in found)
        return estimate(missing, self._capabilities(), cached=len(found), rtf=rtf)

    def start(
        self,
        *,
        manifest: str | Path | None = None,
        executor: Any = None,
        concurrency: int | None = None,
        budget: Budget | None = None,
        requests_per_minute: float | None = None,
        listener: Callable[[Outcome], object] | None = None,
    ) -> Run:
        """Begin, or go on: what the cache has is not made again.

        Args:
            manifest: a file that is written as the sweep goes on, or gone on with; the takes are then kept
                beside it, unless the sweep has a cache of its own.
            executor: None for threads (the local engine speaks them as one batch), any
                ``concurrent.futures`` executor, or a ``dask.distributed.Client``.
            concurrency: takes at once.
            budget: caps; over one by the estimate, nothing begins; reached while running, it stops there.
            requests_per_minute: to each backend, at most.
            listener: hears each outcome, in the run's own thread.

        Raises RequestInvalid before anything runs, StoreError when the manifest cannot be written.
        """
        workers = workers_for(executor, self.backends, self.factories, concurrency)
        capabilities = self._capabilities()
        journal = None
        try:
            pace = Pace(requests_per_minute)
            if manifest is not None:
                journal = Journal(manifest, capabilities.values(), about=self._about(), cache=self.cache)
            cache = journal.cache if journal is not None else self.cache or Cache()
            if budget is not None:
                budget.check(self.estimate(cache))
        except BaseException:
            workers.close()
            if journal is not None:
                journal.close()
            raise
        means = Means(workers, cache, capabilities, budget or Budget(), journal, pace)
        return Run(self.jobs(), means, listener)

    def run(self, **options: Any) -> SweepResult:
        """``start()`` and wait. A keyboard interrupt cancels; what is made stays in the cache."""
        work = self.start(**options)
        try:
            while not work.wait(0.2):
                pass
        except KeyboardInterrupt:
            work.cancel()
            work.wait()
            raise
        return self.result(work)

    def _capabilities(self) -> dict[str, Capabilities]:
        return {name: backend.capabilities for name, backend in self.backends.items()}

    def _about(self) -> dict[str, Any]:
        axes = {axis.name: list(axis.labels) for axis in self.axes}
        return {"sweep": {"axes": axes, "repeats": self.repeats, "seed": self.seed}}

    def result(self, work: Run) -> SweepResult:
        """Return what a run has brought so far."""
        return SweepResult(self.grid, work.outcomes, work.state)


@dataclass(frozen=True)
class SweepResult:
    """What a sweep has brought: outcomes in the order of the grid, and how it ended."""

    grid: Grid
    outcomes: tuple[Outcome, ...]
    state: State

    def __len__(self) -> int:
        return len(self.outcomes)

    def __repr__(self) -> str:
        axes = ", ".join(f"{axis.name}: {len(axis)}" for axis in self.grid.axes) or "no axes"
        failed = f", {len(self.failures)} failed" if self.failures else ""
        return f"SweepResult({axes}; {len(self.takes)} of {len(self.grid)} takes{failed}; {self.state})"

    @property
    def takes(self) -> tuple[Take, ...]:
        """The takes there are."""
        return tuple(outcome.take for outcome in self.outcomes if outcome.take is not None)

    @property
    def failures(self) -> tuple[Outcome, ...]:
        """What went wrong, with its error."""
        return tuple(outcome for outcome in self.outcomes if outcome.error is not None)

    def select(self, **where: object) -> tuple[Outcome, ...]:
        """Return the outcomes whose labels or values are ``where``; ``repeat=`` too.

        Raises RequestInvalid for a name that is no axis.
        """
        named = {name.replace("__", "."): value for name, value in where.items()}
        known = {axis.name for axis in self.grid.axes} | {"repeat"}
        for name in named:
            if name not in known:
                raise RequestInvalid.of(name, f"there is no such axis; there are {', '.join(sorted(known))}")
        return tuple(outcome for outcome in self.outcomes if _fits(outcome, named))

    def clip(self, *, repeat: int = 0, **where: object) -> Clip:
        """Return the clip of one cell. Raises NotFound when there is none, RequestInvalid when there are several."""
        found = [outcome.take for outcome in self.select(repeat=repeat, **where) if outcome.take is not None]
        if not found:
            raise NotFound("the sweep has no take of that")
        if len(found) > 1:
            raise RequestInvalid.of("where", f"{len(found)} takes are like that; name more axes")
        return found[0].clip()

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

    def frame(self, measures: Callable[[Sequence[Clip]], Iterable[Mapping[str, Any]]] | None = None) -> pd.DataFrame:
        """Return a tidy table: one row a take, a column for each axis, then its measurements.

        Columns: the axes (values; labels of text, voice and the like), ``repeat``, ``seed``, ``duration_s``,
        ``first_audio_s``, ``total_s``, ``rtf``, ``cached``, ``digest``, ``key``, ``error``; and what
        ``measures`` returns for each clip. Needs pandas.
        """
        import pandas as pd

        rows = [_row(outcome) for outcome in self.outcomes]
        if measures is not None:
            made = [place for place, outcome in enumerate(self.outcomes) if outcome.take is not None]
            clips = [take.clip() for take in self.takes]
            for place, more in zip(made, measures(clips), strict=True):
                rows[place].update(more)
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
    row["error"] = str(outcome.error) if outcome.error is not None else None
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
    suffix = {"opus": "ogg"}.get(outcome.job.cell.request.format, outcome.job.cell.request.format)
    return f"audio/{outcome.job.cell.index:0{len(str(cells))}d}-{outcome.job.repeat}.{suffix}"


def _fits(outcome: Outcome, where: Mapping[str, object]) -> bool:
    cell = outcome.job.cell
    return all(
        outcome.job.repeat == value if name == "repeat" else cell.values[name] == value or cell.labels[name] == value
        for name, value in where.items()
    )
