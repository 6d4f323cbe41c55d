"""Sweep, a grid of requests that is validated, estimated and run."""

from __future__ import annotations

import re
import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import numpy as np

from voicelab.backend import Backend, current_capabilities
from voicelab.call import Call, Knob, is_field, short_name
from voicelab.capabilities import Capabilities, check_call
from voicelab.clip import take_key
from voicelab.display import Shown, view
from voicelab.errors import FieldError, NotFound, RequestInvalid, VoicelabError, shown_value, suggestion
from voicelab.recordings import REPEAT
from voicelab.runs.cache import Cache
from voicelab.runs.run import Journal
from voicelab.session import Session, recorded, without_extra
from voicelab.sweeps.axes import Axis, Grid, Job, Rows, axes_of_rows, check_placeholders, template_names, varied
from voicelab.sweeps.cluster import workers_for
from voicelab.sweeps.run import Budget, Outcome, RunContext, SweepEstimate, SweepRun, counted, estimate
from voicelab.sweeps.workers import Factory
from voicelab.takes.rows import Column, device_notes, seconds_of
from voicelab.takes.table import TakeTable

ONLY: Final = "lab"
"""Name of the backend in a sweep that has a single backend."""

# A voice in a blend such as "ada(0.6)+ben(0.4)".
_BLEND: Final = re.compile(r"([^()+]+)\([\d.e+-]+\)")

# Number of cached takes from which an estimate computes the duration ratio and the real-time factor.
_SAMPLE_COUNT: Final = 32


@dataclass(frozen=True, repr=False)
class Sweep(Shown):
    """A grid of requests on one or several backends; nothing runs before ``run()`` or ``start()``.

    Args:
        base: base call of every cell; its seed is ignored.
        axes: the varied fields; see ``Axis.of``. An axis ``backend`` names entries of ``backends``.
        backends: backends by name; more than one requires an axis ``backend``.
        repeats: takes per cell. Every cell has the same seeds, one per repeat.
        seed: seed from which these seeds are drawn, for backends that support seeds.
        factories: functions that open each backend in other processes of an executor.
        cache: cache of the takes; default: the cache in voicelab's data folder.
        rows: the combinations of the first axes to use, instead of all combinations; see ``axes_of_rows``.
        bases: base calls by backend, with the voice, model and defaults of its lab.

    Raises RequestInvalid, before anything runs, if a backend ignores the field of an axis or lacks a voice, or if a value or
    combination is invalid.
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
            raise RequestInvalid.of(
                "seed", f"must be a whole number, 0 or more, got {shown_value(self.seed)}", type="int_type"
            )
        names = {value for axis in self.axes if axis.name == "backend" for value in axis.values}
        if unknown := sorted(names - set(self.backends)):
            message = f"must be one of {', '.join(sorted(self.backends))}, got {unknown[0]!r}"
            raise RequestInvalid.of("backend", message, type="not_found")
        if not names and len(self.backends) > 1:
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
        """Parameters of all backends, without repeated names."""
        return knobs_of(backend.capabilities for backend in self.backends.values())

    def __len__(self) -> int:
        """Return the number of takes."""
        return len(self.grid)

    def __repr__(self) -> str:
        width = len(next(iter(self.rows.values()), ()))
        rows = [f"{len(self.rows)} rows of {', '.join(short_name(axis.name) for axis in self.axes[:width])}"]
        axes = [f"{short_name(axis.name)}: {len(axis)}" for axis in self.axes[width:]]
        return f"Sweep({', '.join([*rows[: bool(width)], *axes]) or 'no axes'}; {counted(len(self), 'take')})"

    def panel(self, **options: Any) -> Any:
        """Return a panel to edit, estimate, run and play the sweep; ``metrics`` are the metrics measured on each take.

        Raises MissingExtra if widgets are not installed.
        """
        return view("Sweep.panel")(self, **options)

    def jobs(self) -> tuple[Job, ...]:
        """Return all takes in the order of synthesis, without seeds for backends that do not support them."""
        blind = {name for name, backend in self.backends.items() if backend.capabilities.seed == "none"}
        return tuple(Job(job.cell, job.repeat, None) if job.cell.backend in blind else job for job in self.grid.jobs())

    def key(self, job: Job) -> str:
        """Return the key of a take in caches."""
        return take_key(job.call, self.backends[job.cell.backend].capabilities.fingerprint, job.repeat)

    def estimate(self, *caches: Cache) -> SweepEstimate:
        """Estimate the takes that are in none of ``caches``; default: the sweep's cache.

        The duration ratio and the real-time factor come from cached takes.
        """
        caches = caches or (self.cache or Cache(),)
        capabilities, jobs = self._capabilities(), self.jobs()
        keys = [self.key(job) for job in jobs]
        present = {key: cache for cache in reversed(caches) for key in keys if key in cache}
        missing = [job for job, key in zip(jobs, keys, strict=True) if key not in present]
        sample = list(present)[:: max(len(present) // _SAMPLE_COUNT, 1)]
        learned = [pace for key in sample if (pace := _pace(present[key], key))]
        rate, rtf = (statistics.median(values) for values in zip(*learned, strict=True)) if learned else (1.0, None)
        return estimate(missing, capabilities, cached=len(jobs) - len(missing), rate=rate, rtf=rtf)

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
        """Start or resume the sweep: stored takes are not synthesized again.

        Args:
            folder: run folder to write or continue, which ``vl.load(folder)`` reads. Cached takes are copied into it.
                If None, takes are stored only in the sweep's cache.
            executor: None for threads (the local engine synthesizes their calls as a batch), any
                ``concurrent.futures`` executor, or a ``dask.distributed.Client``.
            concurrency: concurrent takes; see ``workers_for`` for the default.
            budget: a sweep whose estimate exceeds a limit does not start; a running sweep stops at the limit.
            requests_per_minute: maximum number of requests per minute and backend.
            listener: called with each outcome, in the thread of the run.

        Raises RequestInvalid, before anything runs, for an invalid option or an exceeded budget, StoreError if the
        folder cannot be written.
        """
        if budget is not None and not isinstance(budget, Budget):
            raise RequestInvalid.of("budget", f"must be a Budget, got {type(budget).__name__}")
        capabilities = self._capabilities()
        workers = workers_for(executor, self.backends, self.factories, concurrency)
        number = isinstance(requests_per_minute, int | float) and not isinstance(requests_per_minute, bool)
        if requests_per_minute is not None and not (number and requests_per_minute > 0):
            raise RequestInvalid.of(
                "requests_per_minute", f"must be a number greater than 0, got {shown_value(requests_per_minute)}"
            )
        gap = 60.0 / requests_per_minute if requests_per_minute else 0.0
        cache = Cache() if self.cache is None and folder is None else self.cache
        folder_caches = () if folder is None else (Cache(folder, max_bytes=None),)
        caches = folder_caches if cache is None else (*folder_caches, cache)
        if budget is not None:
            budget.check(self.estimate(*caches))
        axes = {axis.name: list(axis.labels) for axis in self.axes}
        about = {"sweep": {"axes": axes, "repeats": self.repeats, "seed": self.seed, "takes": len(self)}}
        journal = None if folder is None else Journal(folder, capabilities.values(), about=about)
        context = RunContext(workers, caches, capabilities, cache, journal, budget or Budget(), gap)
        return SweepRun(self.jobs(), context, listener)

    def run(self, folder: str | Path | None = None, **options: Any) -> TakeTable:
        """Run the sweep and return its table.

        A keyboard interrupt, also one that a backend raises, cancels the sweep; finished takes are stored. Raises
        ExecutorError if the executor breaks.
        """
        work = self.start(folder, **options)
        try:
            while not work.wait(0.2):
                pass
        except KeyboardInterrupt:
            work.cancel()
            with suppress(VoicelabError):  # Ctrl-C also ends the processes of a pool
                work.wait()
            raise
        if work.interrupt is not None:
            raise work.interrupt
        return self.table(work)

    def _capabilities(self) -> dict[str, Capabilities]:
        return {name: current_capabilities(backend) for name, backend in self.backends.items()}

    def table(self, work: SweepRun | None = None) -> TakeTable:
        """Return the table of the grid; takes that ``work`` has not completed have the state "waiting"."""
        outcomes = {self.grid.position(outcome.job): outcome for outcome in work.outcomes} if work is not None else {}
        jobs = sorted(self.jobs(), key=self.grid.position)
        rows = tuple(outcomes.get(index, Outcome(job)).row() for index, job in enumerate(jobs))
        columns = [Column(axis.name, axis.values, axis.labels) for axis in self.axes]
        repeats = tuple(range(self.repeats))
        columns.append(Column(REPEAT, repeats, tuple(map(str, repeats))))
        state, notes = ("waiting", ()) if work is None else (work.state, work.notes)
        takes = {(each.job.cell.backend, each.take.fingerprint): each.take for each in outcomes.values() if each.take}
        counts = Counter((name, take.backend) for (name, _), take in takes.items())
        notes += tuple(
            f"{model} changed while the sweep ran: its takes have {count} fingerprints, "
            'which frame(also=["fingerprint"]) lists; run the sweep again.'
            for (_, model), count in counts.items()
            if count > 1
        )
        # Only an address identifies a service that declares no fingerprint.
        if count := sum(
            each.cached and each.take is not None and "://" in each.take.fingerprint for each in outcomes.values()
        ):
            note = (
                f"The service is identified by its address, and {counted(count, 'take')} from the cache may be outdated"
            )
            notes += (f'{note}: frame(also=["created"]) has the dates, and a new folder as cache= avoids them.',)
        return TakeTable(tuple(columns), rows, notes=(*notes, *device_notes(rows)), state=state)


def _pace(cache: Cache, key: str) -> tuple[float, float] | None:
    """Return the ratio of the actual to the expected duration of a cached take, and its real-time factor."""
    try:
        take = cache.get(key, audio=False)
        if take is None:
            return None
        seconds = seconds_of(take)
        return seconds / take.call.expected_seconds, take.timing.rtf(seconds)
    except VoicelabError:
        return None


def knobs_of(capabilities: Iterable[Capabilities]) -> tuple[Knob, ...]:
    """List the parameters that backends declare, without repeated names."""
    return tuple({knob.name: knob for declared in capabilities for knob in declared.knobs}.values())


def _check_axes(axes: Iterable[Axis], capabilities: Mapping[str, Capabilities]) -> None:
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
    """Raise RequestInvalid for unknown voices of backends that can look them up."""
    troubles = []
    voices = {(cell.backend, cell.call.request.reference_id): cell.index for cell in reversed(grid.cells)}
    for (name, voice), index in reversed(voices.items()):
        backend = backends[name]
        presets = [preset.id for preset in backend.capabilities.voices]
        if voice is None or {*(_BLEND.findall(voice) or [voice])} <= {*presets}:
            continue
        try:
            backend.get_voice(voice)
        except NotFound as error:
            if not presets and error.body is None:
                continue  # a backend that lists no voices may still know this one
            hint = suggestion(voice, presets) or (f"; available: {', '.join(presets)}" if presets else "")
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
    """Create a sweep as ``Lab.sweep`` does; ``fields`` are the keywords of ``Lab.sweep``. Raises RequestInvalid."""
    numbers: Any = (value.item() if isinstance(value, np.generic) else value for value in (repeats, seed))
    repeats, seed = numbers
    speakers = dict(labs) or {ONLY: lab}
    # Query the parameters of a service only if a name may be one of them.
    has_own = rows is not None or bool(fields.get("extra")) or not all(map(is_field, fields))
    declared = [speaker.capabilities for speaker in speakers.values()] if has_own else []
    knobs = knobs_of(declared)
    columns: list[Axis] = []
    positions: Rows = {}
    if rows is not None:
        if text is not None and not isinstance(text, str):
            raise RequestInvalid.of("text", f"must be a single text or None with rows=..., got {shown_value(text)}")
        columns, positions = axes_of_rows(rows, knobs, text)
    elif text is None:
        raise RequestInvalid.of("text", "text is required (or pass rows=...)", type="missing")
    elif not isinstance(text, str):
        columns = [Axis.of("text", text)]
    texts = [text] if isinstance(text, str) else []
    texts += [value for axis in columns if axis.name == "text" for value in axis.values if value is not None]
    templates = {name for template in texts for name in template_names(template) if not is_field(name)}
    # A service with open-ended fields validates single values in ``extra`` itself.
    extra = fields.get("extra")
    listed = {name for name in extra if varied(name, extra[name], knobs)} if isinstance(extra, Mapping) else set()
    own = {knob.name for item in declared for knob in item.knobs if not item.open_ended or knob.name in listed}
    own, templates = own | templates, templates - {knob.name for knob in knobs}
    values = {name: value for name, value in without_extra(recorded(fields), own).items() if value is not None}
    check_placeholders(" ".join(texts) if rows is None else "", values)  # before an unknown keyword
    values |= {name: [values[name]] for name in templates & values.keys() if not varied(name, values[name])}
    fixed: dict[str, Any] = {name: value for name, value in values.items() if not varied(name, value, knobs)}
    axes = [Axis.of(name, values[name], knobs, template=name in templates) for name in values if name not in fixed]
    axes = columns + axes
    if not isinstance(seed, int):
        axes.append(Axis.of("seed", seed))
        seed = 0
    if labs and not any(axis.name == "backend" for axis in columns):
        axes.append(Axis.of("backend", list(labs)))
    bases = {name: speaker.call(texts[0], **fixed) for name, speaker in speakers.items()}
    return Sweep(
        next(iter(bases.values())),
        tuple(axes),
        {name: speaker.backend for name, speaker in speakers.items()},
        repeats=repeats,
        seed=seed,
        factories={name: speaker.factory for name, speaker in speakers.items() if speaker.factory is not None},
        cache=cache if cache is None or isinstance(cache, Cache) else Cache(cache),
        bases=bases if labs else {},
        rows=positions,
    )
