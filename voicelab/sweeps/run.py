"""SweepRun, a running sweep, which submits takes, stores them, and stops at the limits of a Budget."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import BrokenExecutor, CancelledError, Future
from dataclasses import dataclass, field, fields, replace
from typing import Final, Literal

from voicelab.capabilities import Capabilities, speech_cost
from voicelab.clip import Take, take_key
from voicelab.errors import ExecutorError, FieldError, RequestInvalid, shown_value
from voicelab.lifecycle import ProcessOwner
from voicelab.recordings import REPEAT
from voicelab.runs.cache import Cache
from voicelab.runs.failures import Failed
from voicelab.runs.run import Journal
from voicelab.sweeps.axes import Job
from voicelab.sweeps.workers import Workers
from voicelab.takes.rows import TakeRow, seconds_of


@dataclass(frozen=True, slots=True)
class SweepEstimate:
    """Estimated size, duration and cost of the takes that are not stored yet.

    ``characters`` and ``text_bytes`` (UTF-8) are exact. ``audio_s`` is estimated from the texts. ``compute_s`` is
    estimated from ``audio_s`` and the real-time factor of earlier takes, and is None if there are none; since takes
    overlap, wall-clock time is shorter. ``cost`` is in ``currency``, and is None if a backend declares no price or
    backends declare different currencies.
    """

    requests: int
    cached: int
    characters: int
    text_bytes: int
    audio_s: float
    compute_s: float | None
    cost: float | None
    currency: str = ""

    def __str__(self) -> str:
        counts = [counted(self.requests, "request"), counted(self.characters, "character")]
        parts = [*counts, f"about {_time(self.audio_s)} of audio"]
        if self.compute_s is not None:
            parts.append(f"about {_time(self.compute_s)} of work")
        if self.cost:
            parts.append(f"costs {self.cost:.4g} {self.currency}".rstrip())
        if self.cached:
            parts.append(f"{counted(self.cached, 'take')} cached")
        return ", ".join(parts)


@dataclass(frozen=True, slots=True)
class Budget:
    """Hard limits; None is unlimited. A sweep whose estimate exceeds a limit does not start; a run stops at a limit."""

    requests: int | None = None
    characters: int | None = None
    audio_s: float | None = None
    compute_s: float | None = None
    cost: float | None = None

    def __post_init__(self) -> None:
        for item in fields(self):
            value = getattr(self, item.name)
            if value is not None and (isinstance(value, bool) or not isinstance(value, int | float) or not value >= 0):
                raise RequestInvalid.of(f"budget.{item.name}", f"must be a number, 0 or more, got {shown_value(value)}")

    def check(self, needed: SweepEstimate) -> None:
        """Raise RequestInvalid, which names every limit that the estimate exceeds."""
        troubles = []
        for item in fields(self):
            cap, need = getattr(self, item.name), getattr(needed, item.name)
            if cap is not None and need is not None and need > cap:
                message = f"the estimate must be within {cap:g}, got {need:g}"
                troubles.append(FieldError(("body", f"budget.{item.name}"), "budget_exceeded", message))
            if cap is not None and need is None and item.name == "cost":
                message = "the backend declares no price, so cost cannot be limited; limit characters instead"
                if needed.currency:
                    message = f"the backends' prices are in {needed.currency}, which one budget cannot limit"
                troubles.append(FieldError(("body", "budget.cost"), "unsupported", message))
        if troubles:
            raise RequestInvalid(troubles)


CAPS: Final = tuple(item.name for item in fields(Budget))
"""Names of the limits."""


def estimate(
    jobs: Iterable[Job],
    capabilities: Mapping[str, Capabilities],
    *,
    cached: int = 0,
    rate: float = 1.0,
    rtf: float | None = None,
) -> SweepEstimate:
    """Estimate the takes of ``jobs``.

    Args:
        jobs: the takes.
        capabilities: capabilities of each backend by name.
        cached: number of takes that are already stored.
        rate: ratio of the actual duration of earlier takes to the duration expected from their texts.
        rtf: real-time factor of earlier takes.
    """
    jobs = list(jobs)
    texts = [job.call.request.text for job in jobs]
    seconds = [rate * job.call.expected_seconds for job in jobs]
    costs = [
        speech_cost(job.call, expected, capabilities[job.cell.backend].prices)
        for job, expected in zip(jobs, seconds, strict=True)
    ]
    sums: dict[str, float] = {}
    for currency, amount in (item for cost in costs if cost for item in cost.items()):
        sums[currency] = sums.get(currency, 0.0) + amount
    audio = sum(seconds)
    work = None if rtf is None else audio * rtf
    total = sum(sums.values()) if None not in costs and len(sums) < 2 else None
    characters, text_bytes = (sum(map(len, each)) for each in (texts, map(str.encode, texts)))
    return SweepEstimate(
        len(jobs), cached, characters, text_bytes, audio, work, total, " and ".join(sorted(filter(None, sums)))
    )


def counted(number: int, noun: str) -> str:
    """Return a number with its noun, as in "1 take" and "2 takes"."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _time(seconds: float) -> str:
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


State = Literal["running", "paused", "done", "cancelled", "over budget", "failed"]
# Time in seconds within which the run reacts to a pause, a cancellation, or the end of a wait.
_TICK_S: Final = 0.1


@dataclass(frozen=True, slots=True)
class Outcome:
    """Result of a job: a take, possibly cached, or an error."""

    job: Job
    take: Take | None = None
    error: Exception | None = None
    cached: bool = False

    def row(self) -> TakeRow:
        """Convert the outcome to a row of a TakeTable."""
        job, cell = self.job, self.job.cell
        columns = {"text": cell.template, "sent": cell.call.request.text} if cell.template else {}
        keys, labels = {**cell.plain, REPEAT: job.repeat}, {**cell.labels, REPEAT: str(job.repeat)}
        if "text" in columns and "text" in keys:
            del columns["text"]
        return TakeRow(keys, labels, job.call, self.take, self.error, self.cached, columns)


@dataclass(frozen=True, slots=True)
class Progress:
    """Progress of a run.

    ``audio_s`` counts synthesized takes, not cached takes; ``elapsed_s`` excludes pauses; ``remaining_s`` is None
    while unknown.
    """

    state: State
    total: int
    rendered: int
    cached: int
    failed: int
    running: int
    audio_s: float
    elapsed_s: float
    remaining_s: float | None

    @property
    def done(self) -> int:
        """Number of finished takes, failures included."""
        return self.rendered + self.cached + self.failed

    def __str__(self) -> str:
        failed = self.state == "done" and 0 < self.failed == self.total
        parts = [f"{self.done} of {self.total} takes, {'failed' if failed else self.state}"]
        if self.cached:
            parts.append(f"{self.cached} cached")
        if self.failed and not failed:
            parts.append(f"{self.failed} failed")
        return ", ".join(parts)


@dataclass(frozen=True, slots=True)
class RunContext:
    """Resources of a run.

    Takes are read from ``caches``, stored in ``cache`` and written to ``journal``. ``gap_s`` is the minimum interval in
    seconds between calls of a backend.
    """

    workers: Workers
    caches: Sequence[Cache]
    capabilities: Mapping[str, Capabilities]
    cache: Cache | None = None
    journal: Journal | None = None
    budget: Budget = field(default_factory=Budget)
    gap_s: float = 0.0


class SweepRun:
    """A running sweep, in a separate thread.

    ``listener`` is called in this thread with each outcome, after the outcome is stored in the cache and the journal. An
    interrupted run therefore resumes without synthesizing stored takes again.
    """

    def __init__(
        self, jobs: Sequence[Job], context: RunContext, listener: Callable[[Outcome], object] | None = None
    ) -> None:
        self._jobs = tuple(jobs)
        self._context = context
        self._listener = listener
        self._spent = dict.fromkeys(CAPS, 0.0)
        self._next: dict[str, float] = {}
        self._outcomes: dict[tuple[int, int], Outcome] = {}
        self._running: dict[Future[Take], Job] = {}
        self._done: queue.SimpleQueue[Future[Take]] = queue.SimpleQueue()
        self._remarks: dict[tuple[int, int], tuple[str, ...]] = {}
        self._stop = threading.Event()
        # Not Thread.join: before Python 3.13 a thread counts as ended once an interrupt is raised in it.
        self._finished = threading.Event()
        self._owner = ProcessOwner()
        self._state: State = "running"
        self._error: Exception | None = None
        self.interrupt: KeyboardInterrupt | None = None
        """Interrupt that a function of the caller raised; it cancelled the run."""
        self._started = time.monotonic()
        self._paused: float | None = None
        self._ended: float | None = None
        threading.Thread(target=self._run, name="voicelab-sweep", daemon=True).start()

    def __len__(self) -> int:
        """Return the number of takes, including pending takes."""
        return len(self._jobs)

    def __iter__(self) -> Iterator[Outcome]:
        """Yield every outcome until the run ends: ``for outcome in vl.progress(sweep.start()): …``.

        Raises the errors of ``wait``. Leaving the loop does not end the run; ``cancel`` does.
        """
        yielded, over = 0, False
        while not over:
            over = self.wait(_TICK_S)
            new = list(self._outcomes.copy().values())[yielded:]
            yielded += len(new)
            yield from new

    @property
    def progress(self) -> Progress:
        """Progress of the run."""
        outcomes, remaining = self._outcomes.copy(), None
        cached = sum(outcome.cached for outcome in outcomes.values())
        failed = sum(outcome.error is not None for outcome in outcomes.values())
        rendered = len(outcomes) - cached - failed
        elapsed = (self._ended or self._paused or time.monotonic()) - self._started
        if rendered and self._ended is None:  # extrapolates the speed so far per second of expected audio
            finished = sum(outcome.job.call.expected_seconds for outcome in outcomes.values() if not outcome.cached)
            open_jobs = (job for job in self._jobs if (job.cell.index, job.repeat) not in outcomes)
            remaining = elapsed * sum(job.call.expected_seconds for job in open_jobs) / finished
        counts = (len(self._jobs), rendered, cached, failed, len(self._running))
        return Progress(self.state, *counts, self._spent["audio_s"], elapsed, remaining)

    @property
    def state(self) -> State:
        """State of the run: running, paused, or how it ended."""
        return "paused" if self._state == "running" and self._paused is not None else self._state

    @property
    def outcomes(self) -> tuple[Outcome, ...]:
        """Outcomes so far, in the order of the grid."""
        return tuple(outcome for _, outcome in sorted(dict(self._outcomes).items()))

    @property
    def notes(self) -> tuple[str, ...]:
        """Workers of a cluster that are excluded, with the reasons, as sentences."""
        return self._context.workers.notes

    @property
    def running(self) -> tuple[Job, ...]:
        """Takes that are being synthesized."""
        return tuple(self._running.copy().values())

    def pause(self) -> None:
        """Start no more takes; running takes finish. Has no effect on a run that has ended."""
        if self._paused is None and not self._finished.is_set():
            self._paused = time.monotonic()

    def unpause(self) -> None:
        """Start takes again after ``pause``."""
        if self._paused is not None:
            # Pauses do not count as elapsed time.
            self._started += time.monotonic() - self._paused
            self._paused = None

    def cancel(self) -> None:
        """Cancel the run. Takes that run in this process are aborted, and no more start; finished takes are stored."""
        self._stop.set()
        self._context.workers.cancel()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for the end, at most ``timeout`` seconds; return whether the run has ended.

        Raises errors of the run, not of single takes: ExecutorError if the executor broke (missing takes are then
        recorded as failed outcomes), or if this process is a fork of the one that runs the sweep, since a fork lacks
        its thread.
        """
        if self._owner.forked and not self._finished.is_set():
            message = "the sweep runs in the process that started it, not in a fork of it"
            raise ExecutorError(f"{message}: wait there, or start the sweep in the fork")
        finished = self._finished.wait(timeout)
        if self._error is not None:
            raise self._error
        return finished

    def _run(self) -> None:
        state: State = "failed"
        try:
            state = self._submit_all()
        except ExecutorError as error:
            self._context.workers.cancel()
            if self._stop.is_set():
                state = "cancelled"
            else:
                self._error = self._fail_missing(error)
        except Exception as error:  # noqa: BLE001 - wait() raises it
            self._context.workers.cancel()
            self._error = error
        finally:
            self._running.clear()
            try:
                self._context.workers.close()
                if self._context.journal is not None:
                    self._context.journal.close()
            finally:
                self._ended = self._paused or time.monotonic()
                self._state = state
                self._finished.set()

    def _submit_all(self) -> State:
        over_budget = False
        for job in self._jobs:
            if self._stop.is_set():
                break
            if self._is_cached(job):
                continue
            if not self._wait_for_slot():
                break
            prices = self._context.capabilities[job.cell.backend].prices
            cost = sum((speech_cost(job.call, job.call.expected_seconds, prices) or {}).values())
            ahead = {"requests": 1, "characters": len(job.call.request.text), "cost": cost}
            if self._over_budget(ahead):
                over_budget = True
                break
            self._submit(job, ahead)
        while self._running:
            self._collect(_TICK_S)
        if len(self._outcomes) == len(self._jobs):
            return "done"
        return "over budget" if over_budget else "cancelled"

    def _fail_missing(self, error: ExecutorError) -> Exception:
        """Record a failure for every missing take, and return the error of the run."""
        count = sum(outcome.take is not None for outcome in self._outcomes.values())
        ended = ExecutorError(
            f"{error}. {count} of {len(self._jobs)} takes are stored; run the same sweep again to synthesize the others"
        )
        ended.__cause__ = error
        try:
            for job in self._jobs:
                if (job.cell.index, job.repeat) not in self._outcomes:
                    self._finish(Outcome(job, error=error))
        except Exception as failure:  # noqa: BLE001 - a full disk, a listener: wait() raises it
            return failure
        return ended

    def _over_budget(self, ahead: Mapping[str, float]) -> bool:
        """Return whether the next take would exceed a limit of requests, characters or cost, or another limit is reached."""
        caps = {name: getattr(self._context.budget, name) for name in CAPS}
        budgets = {name: cap - self._spent[name] for name, cap in caps.items() if cap is not None}
        return any(ahead[name] > rest if name in ahead else rest <= 0.0 for name, rest in budgets.items())

    def _is_cached(self, job: Job) -> bool:
        cell = job.cell
        key = take_key(job.call, self._context.capabilities[cell.backend].fingerprint, job.repeat)
        remarks: list[str] = []
        for cache in self._context.caches:
            take, notes = cache.look(key)
            if take is not None:
                self._finish(Outcome(job, cache.run.light(take), cached=True))
                return True
            remarks += notes
        self._remarks[cell.index, job.repeat] = tuple(remarks)
        return False

    def _wait_for_slot(self) -> bool:
        """Wait until a worker is free and the run is not paused; return False if the run is cancelled."""
        while not self._stop.is_set():
            if len(self._running) < self._context.workers.concurrency and self._paused is None:
                return True
            self._collect(_TICK_S)
        return False

    def _submit(self, job: Job, ahead: Mapping[str, float]) -> None:
        clock = time.monotonic()
        start = max(clock, self._next.get(job.cell.backend, clock))
        self._next[job.cell.backend] = start + self._context.gap_s
        if self._stop.wait(start - clock):
            return
        for name, more in ahead.items():
            self._spent[name] += more
        future = self._context.workers.submit(job)
        self._running[future] = job
        future.add_done_callback(self._done.put)

    def _collect(self, timeout: float) -> None:
        self._context.workers.watch()
        try:
            future = self._done.get(timeout=timeout)
        except queue.Empty:
            return
        job = self._running.pop(future)
        try:
            take = future.result()
            seconds = seconds_of(take)
        except BrokenExecutor as error:
            raise ExecutorError(f"a process of the executor was killed or ran out of memory: {error}") from error
        except KeyboardInterrupt as error:
            self.interrupt = error
            self.cancel()
            return
        except BaseException as error:  # noqa: BLE001 - a failure of this take only
            if not self._stop.is_set():  # a cancelled take has not failed
                self._finish(Outcome(job, error=_failure(error)))
            return
        self._spent["audio_s"] += seconds
        self._spent["compute_s"] += take.timing.total_s
        take = take.noted(*self._remarks.pop((job.cell.index, job.repeat), ()))
        if self._context.cache is not None:
            take = self._context.cache.keep(take, backend=self._context.capabilities[job.cell.backend])
            # Takes are not kept in memory, since those of a whole sweep may exceed it.
            take = self._context.cache.run.light(take)
        self._finish(Outcome(job, take))

    def _finish(self, outcome: Outcome) -> None:
        journal, job = self._context.journal, outcome.job
        if journal is not None and outcome.take is not None:
            outcome = replace(outcome, take=journal.add(outcome.take, cell=job.cell.index, **job.cell.plain))
        elif journal is not None and outcome.error is not None:
            backend = self._context.capabilities[job.cell.backend]
            journal.fail(Failed.of(job.call, backend, outcome.error, repeat=job.repeat))
        self._outcomes[job.cell.index, job.repeat] = outcome
        if self._listener is not None:
            self._listener(outcome)


def _failure(error: BaseException) -> Exception:
    if isinstance(error, Exception) and not isinstance(error, CancelledError):
        return error
    failure = ExecutorError(f"no take was returned: {type(error).__name__} in its executor")
    failure.__cause__ = error
    return failure
