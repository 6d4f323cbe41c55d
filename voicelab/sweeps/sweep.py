"""Sweep: a grid of requests, described, estimated and run; its results as a table and as clips."""

from __future__ import annotations

import re
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import numpy as np

from voicelab.backend import Backend
from voicelab.call import Call, Knob, is_field, short_name
from voicelab.capabilities import Capabilities, check_call
from voicelab.clip import take_key
from voicelab.display import Shown, view
from voicelab.errors import FieldError, NotFound, RequestInvalid, VoicelabError, suggestion
from voicelab.recordings import REPEAT
from voicelab.runs.cache import Cache
from voicelab.runs.run import Journal
from voicelab.session import Session, recorded
from voicelab.sweeps.axes import Axis, Grid, Job, Rows, axes_of_rows, template_names, varied
from voicelab.sweeps.cluster import workers_for
from voicelab.sweeps.run import Budget, Outcome, RunContext, SweepEstimate, SweepRun, estimate
from voicelab.sweeps.workers import Factory
from voicelab.takes.rows import Column, seconds_of
from voicelab.takes.table import TakeTable

ONLY: Final = "lab"
"""Name of the backend of a sweep over one."""

# The voices of a blend, "ada(0.6)+ben(0.4)".
_BLEND: Final = re.compile(r"([^()+]+)\([\d.e+-]+\)")

# Takes that an estimate learns the speed from.
_ASKED: Final = 32


@dataclass(frozen=True, repr=False)
class Sweep(Shown):
    """A grid of requests on one or several backends; nothing runs before ``run()`` or ``start()``.

    Args:
        base: the call that every cell starts from; its seed does not count.
        axes: what is varied; see ``Axis.of``. An axis ``backend`` names entries of ``backends``.
        backends: who speaks, by name; with one and no axis ``backend``, that one.
        repeats: takes of each cell. Every cell has the same seeds, one for each repeat.
        seed: what those seeds are drawn from; ignored where a backend takes none.
        factories: for executors of other processes: how each backend is opened there.
        cache: where takes are kept as they come; the cache in voicelab's data folder when not given.
        rows: where not every combination of the first axes is asked for, but those of a table: see ``axes_of_rows``.
        bases: for backends whose cells start from another call: the voice, the model and the defaults of their labs.

    Raises RequestInvalid before anything runs: an axis that a backend ignores or has not, a voice that it has not, and
    whatever is wrong with a value or a combination.
    """

    base: Call
    axes: tuple[Axis, ...]
    backends: Mapping[str, Backend]
    repeats: int = 1
    seed: int = 0
    factories: Mapping[str, Factory] = field(default_factory=dict, repr=False)
    cache: Cache | None = field(default=None, repr=False, compare=False)
    bases: Mapping[str, Call] = field(default_factory=dict, repr=False)
    rows: Rows = field(default_factory=dict, repr=False)
    grid: Grid = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not self.backends:
            raise RequestInvalid.of("backend", "a sweep needs a backend", type="missing")
        if type(self.seed) is not int or self.seed < 0:
            raise RequestInvalid.of("seed", "Input should be a whole number, 0 or more", type="int_type")
        named = {value for axis in self.axes if axis.name == "backend" for value in axis.values}
        if unknown := sorted(named - set(self.backends)):
            message = f"there is no backend {unknown[0]!r}; there are {', '.join(sorted(self.backends))}"
            raise RequestInvalid.of("backend", message, type="not_found")
        if not named and len(self.backends) > 1:
            raise RequestInvalid.of("backend", "several backends need an axis 'backend' that names them")
        grid = Grid.of(
            replace(self.base, seed=None),
            self.axes,
            repeats=self.repeats,
            seed=self.seed,
            backend=next(iter(self.backends)),
            bases=self.bases,
            rows=self.rows,
        )
        declared = self._capabilities()
        _check_axes(self.axes, {name: declared[name] for name in {cell.backend for cell in grid.cells}})
        cells = (replace(cell, call=check_call(cell.call, declared[cell.backend])) for cell in grid.cells)
        grid = replace(grid, cells=tuple(cells))
        _check_voices(grid, self.backends, tuple(self.rows))
        object.__setattr__(self, "backends", MappingProxyType(dict(self.backends)))
        object.__setattr__(self, "factories", MappingProxyType(dict(self.factories)))
        object.__setattr__(self, "grid", grid)

    @property
    def knobs(self) -> tuple[Knob, ...]:
        """The own parameters of the backends, those of one name once."""
        return knobs_of(backend.capabilities for backend in self.backends.values())

    def __len__(self) -> int:
        """Takes in all."""
        return len(self.grid)

    def __repr__(self) -> str:
        width = len(next(iter(self.rows.values()), ()))
        rows = [f"{len(self.rows)} rows of {', '.join(short_name(axis.name) for axis in self.axes[:width])}"]
        axes = [f"{short_name(axis.name)}: {len(axis)}" for axis in self.axes[width:]]
        return f"Sweep({', '.join([*rows[: bool(width)], *axes]) or 'no axes'}; {len(self)} takes)"

    def panel(self, **options: Any) -> Any:
        """Return the panel that types, estimates, runs and plays it; ``metrics`` names what stands under each take.

        Raises MissingExtra when what it needs is not installed.
        """
        return view("Sweep.panel")(self, **options)

    def jobs(self) -> tuple[Job, ...]:
        """All takes in the order in which they are made; without a seed where a backend takes none."""
        blind = {name for name, backend in self.backends.items() if backend.capabilities.seed == "none"}
        return tuple(Job(job.cell, job.repeat, None) if job.cell.backend in blind else job for job in self.grid.jobs())

    def key(self, job: Job) -> str:
        """Return what names a job's take in a cache."""
        return take_key(job.call, self.backends[job.cell.backend].capabilities.fingerprint, job.repeat)

    def estimate(self, *caches: Cache) -> SweepEstimate:
        """Return what the takes will need that are in none of ``caches``; in the sweep's own when none is given.

        Those that are there tell how much audio their texts made and how fast the backend is.
        """
        caches = caches or (self.cache or Cache(),)
        jobs = self.jobs()
        keys = [self.key(job) for job in jobs]
        present = {key: cache for cache in reversed(caches) for key in keys if key in cache}
        missing = [job for job, key in zip(jobs, keys, strict=True) if key not in present]
        # A few tell it; that they are whole is looked at when they are used.
        asked = list(present)[:: max(len(present) // _ASKED, 1)]
        learned = [pace for key in asked if (pace := _pace(present[key], key))]
        rate, rtf = (statistics.median(values) for values in zip(*learned, strict=True)) if learned else (1.0, None)
        return estimate(missing, self._capabilities(), cached=len(jobs) - len(missing), rate=rate, rtf=rtf)

    def start(
        self,
        folder: str | Path | None = None,
        *,
        executor: Any = None,
        concurrency: int | None = None,
        budget: Budget | None = None,
        requests_per_minute: float | None = None,
        listener: Callable[[Outcome], object] | None = None,
    ) -> SweepRun:
        """Begin, or go on: what was kept is not made again.

        Args:
            folder: of the run that is written as the sweep goes on, or gone on with: ``vl.load(folder)`` reads it. Without
                one the sweep's cache alone keeps takes; with both, what the cache has is copied into the folder.
            executor: None for threads (the local engine speaks them as one batch), any
                ``concurrent.futures`` executor, or a ``dask.distributed.Client``.
            concurrency: takes under way; see ``workers_for`` for how many when not given.
            budget: caps; over one by the estimate, nothing begins; reached while running, it stops there.
            requests_per_minute: to each backend, at most.
            listener: hears each outcome, in the run's own thread.

        Raises RequestInvalid before anything runs, StoreError when the folder cannot be written.
        """
        if budget is not None and not isinstance(budget, Budget):
            raise RequestInvalid.of("budget", f"give a Budget, not a {type(budget).__name__}")
        workers = workers_for(executor, self.backends, self.factories, concurrency)
        number = isinstance(requests_per_minute, int | float) and not isinstance(requests_per_minute, bool)
        if requests_per_minute is not None and not (number and requests_per_minute > 0):
            raise RequestInvalid.of("requests_per_minute", "Input should be a number greater than 0")
        gap = 60.0 / requests_per_minute if requests_per_minute else 0.0
        capabilities = self._capabilities()
        cache = Cache() if self.cache is None and folder is None else self.cache
        written = () if folder is None else (Cache(folder, max_bytes=None),)
        caches = written if cache is None else (*written, cache)
        if budget is not None:
            budget.check(self.estimate(*caches))
        axes = {axis.name: list(axis.labels) for axis in self.axes}
        about = {"sweep": {"axes": axes, "repeats": self.repeats, "seed": self.seed}}
        journal = None if folder is None else Journal(folder, capabilities.values(), about=about)
        context = RunContext(workers, caches, capabilities, cache, journal, budget or Budget(), gap)
        return SweepRun(self.jobs(), context, listener)

    def run(self, folder: str | Path | None = None, **options: Any) -> TakeTable:
        """``start()`` and wait. A keyboard interrupt cancels; what is made is kept. Raises ExecutorError like ``wait``."""
        work = self.start(folder, **options)
        try:
            while not work.wait(0.2):
                pass
        except KeyboardInterrupt:
            work.cancel()
            with suppress(VoicelabError):  # Ctrl-C ends the processes of a pool too
                work.wait()
            raise
        return self.table(work)

    def _capabilities(self) -> dict[str, Capabilities]:
        return {name: backend.capabilities for name, backend in self.backends.items()}

    def table(self, work: SweepRun | None = None) -> TakeTable:
        """Return the table of all takes of the grid; those that ``work`` has not made yet are waiting."""
        made = {self.grid.position(outcome.job): outcome for outcome in work.outcomes} if work is not None else {}
        jobs = sorted(self.jobs(), key=self.grid.position)
        rows = tuple(made.get(index, Outcome(job)).row() for index, job in enumerate(jobs))
        columns = [Column(axis.name, axis.values, axis.labels) for axis in self.axes]
        repeats = tuple(range(self.repeats))
        columns.append(Column(REPEAT, repeats, tuple(map(str, repeats))))
        state, notes = ("waiting", ()) if work is None else (work.state, work.notes)
        return TakeTable(tuple(columns), rows, notes=notes, state=state)


def _pace(cache: Cache, key: str) -> tuple[float, float] | None:
    """Return how long a kept take is against what was expected of its text, and its real-time factor."""
    try:
        take = cache.get(key, audio=False)
        if take is None:
            return None
        seconds = seconds_of(take)
        return seconds / take.call.expected_seconds, take.timing.rtf(seconds)
    except VoicelabError:
        return None


def knobs_of(capabilities: Iterable[Capabilities]) -> tuple[Knob, ...]:
    """Return the knobs that backends declare, those of one name once."""
    return tuple({knob.name: knob for one in capabilities for knob in one.knobs}.values())


def _check_axes(axes: Iterable[Axis], capabilities: Mapping[str, Capabilities]) -> None:
    """Raise RequestInvalid for axes along which a backend would say the same thing again and again."""
    troubles = [
        FieldError(
            ("body", *axis.name.split(".")),
            "ignored",
            f"the backend {declared.name!r} ignores it: {reason}; leave it out",
        )
        for axis in axes
        for declared in capabilities.values()
        if (reason := declared.ignored(axis.name))
    ]
    if troubles:
        raise RequestInvalid(troubles)


def _check_voices(grid: Grid, backends: Mapping[str, Backend], rows: Sequence[str]) -> None:
    """Raise RequestInvalid for voices that their backends have not got; one that cannot be asked is not asked."""
    troubles = []
    asked = {(cell.backend, cell.call.request.reference_id): cell.index for cell in reversed(grid.cells)}
    for (name, voice), index in reversed(asked.items()):
        backend = backends[name]
        presets = [preset.id for preset in backend.capabilities.voices]
        if voice is None or {*(_BLEND.findall(voice) or [voice])} <= {*presets}:
            continue
        try:
            backend.get_voice(voice)
        except NotFound as error:
            if not presets and error.body is None:
                continue  # no service answered: the backend has no list and keeps no records, and may speak it all the same
            hint = suggestion(voice.casefold(), presets) or (f"; there are {', '.join(presets)}" if presets else "")
            message = f"the backend {backend.capabilities.name!r} has no voice {voice!r}{hint}"
            row = f"{rows[index * len(rows) // len(grid.cells)]}: " if rows else ""
            troubles.append(FieldError(("body", "voice" if rows else "reference_id"), "not_found", row + message))
        except VoicelabError:
            continue
    if troubles:
        raise RequestInvalid(troubles)


def sweep_of(
    lab: Session,
    text: str | Sequence[str] | Mapping[str, str] | None,
    *,
    rows: object = None,
    repeats: int,
    seed: int | Sequence[int],
    labs: Mapping[str, Session],
    cache: Cache | str | Path | None,
    fields: Mapping[str, object],
) -> Sweep:
    """Return the sweep that ``Lab.sweep`` describes; ``fields`` are its keywords. Raises RequestInvalid."""
    numbers: Any = (one.item() if isinstance(one, np.generic) else one for one in (repeats, seed))
    repeats, seed = numbers
    everyone = dict(labs) or {ONLY: lab}
    given = {name: value for name, value in recorded(fields).items() if value is not None}
    asked = rows is not None or not all(map(is_field, given))  # what a service has of its own is asked of it
    knobs = knobs_of(one.capabilities for one in everyone.values()) if asked else ()
    columns: list[Axis] = []
    places: Rows = {}
    if rows is not None:
        if text is not None and not isinstance(text, str):
            raise RequestInvalid.of("text", "the rows say what varies; give one text beside them, or none")
        columns, places = axes_of_rows(rows, knobs, text)
    elif text is None:
        raise RequestInvalid.of("text", "say what to say, or give rows=…", type="missing")
    elif not isinstance(text, str):
        columns = [Axis.of("text", text)]
    texts = [text] if isinstance(text, str) else []
    texts += [value for axis in columns if axis.name == "text" for value in axis.values if value is not None]
    templates = {name for one in texts for name in template_names(one) if not is_field(name)}
    templates -= {knob.name for knob in knobs}
    axes = list(columns)
    fixed: dict[str, object] = {}
    for name, value in given.items():
        if varied(name, value, knobs):
            axes.append(Axis.of(name, value, knobs, template=name in templates))
        elif name in templates:
            axes.append(Axis.of(name, [value], template=True))
        else:
            fixed[name] = value
    if not isinstance(seed, int):
        axes.append(Axis.of("seed", seed))
        seed = 0
    if labs and not any(axis.name == "backend" for axis in columns):
        axes.append(Axis.of("backend", list(labs)))
    bases = {name: one.call(texts[0], **fixed) for name, one in everyone.items()}
    return Sweep(
        next(iter(bases.values())),
        tuple(axes),
        {name: one.backend for name, one in everyone.items()},
        repeats=repeats,
        seed=seed,
        factories={name: one.factory for name, one in everyone.items() if one.factory is not None},
        cache=cache if cache is None or isinstance(cache, Cache) else Cache(cache),
        bases=bases if labs else {},
        rows=places,
    )
