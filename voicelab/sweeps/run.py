"""SweepRun: a sweep at work. It hands out takes, keeps what comes back, and stops at the limits of a Budget."""

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
from voicelab.errors import ExecutorError, FieldError, RequestInvalid
from voicelab.recordings import REPEAT
from voicelab.runs.cache import Cache
from voicelab.runs.failures import Failed
from voicelab.runs.run import Journal
from voicelab.sweeps.axes import Job
from voicelab.sweeps.workers import Workers
from voicelab.takes.rows import TakeRow, seconds_of


@dataclass(frozen=True, slots=True)
class SweepEstimate:
    """What the takes that are not there yet will need.

    ``characters`` and ``text_bytes`` (UTF-8) are exact; ``audio_s`` is guessed from them, ``compute_s`` from
    it and the real-time factor of earlier takes, None while there is none (takes made at once overlap, so the clock
    shows less); ``cost`` is in ``currency``, None where a backend names no price, or several name different currencies.
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
        parts = [
            f"{self.requests} requests",
            f"{self.characters} characters",
            f"about {_time(self.audio_s)} of audio",
        ]
        if self.compute_s is not None:
            parts.append(f"about {_time(self.compute_s)} of work")
        if self.cost:
            parts.append(f"costs {self.cost:.4g} {self.currency}".rstrip())
        if self.cached:
            parts.append(f"{self.cached} takes are there already")
        return ", ".join(parts)


@dataclass(frozen=True, slots=True)
class Budget:
    """Hard caps; None is no cap. A sweep whose estimate is over one does not begin, and it stops at one."""

    requests: int | None = None
    characters: int | None = None
    audio_s: float | None = None
    compute_s: float | None = None
    cost: float | None = None

    def __post_init__(self) -> None:
        for item in fields(self):
            value = getattr(self, item.name)
            if value is not None and (isinstance(value, bool) or not isinstance(value, int | float) or not value >= 0):
                raise RequestInvalid.of(f"budget.{item.name}", "Input should be a number, 0 or more")

    def check(self, needed: SweepEstimate) -> None:
        """Raise RequestInvalid that names every cap that ``needed`` is over."""
        troubles = []
        for item in fields(self):
            cap, need = getattr(self, item.name), getattr(needed, item.name)
            if cap is not None and need is not None and need > cap:
                message = f"the sweep would take {need:g}, and the budget is {cap:g}"
                troubles.append(FieldError(("body", f"budget.{item.name}"), "budget_exceeded", message))
            if cap is not None and need is None and item.name == "cost":
                message = "the backend names no price, so a budget in money cannot be kept; cap characters instead"
                if needed.currency:
                    message = f"the backends' prices are in {needed.currency}, which one budget cannot cap"
                troubles.append(FieldError(("body", "budget.cost"), "unsupported", message))
        if troubles:
            raise RequestInvalid(troubles)


CAPS: Final = tuple(item.name for item in fields(Budget))
"""What can be capped."""


def estimate(
    jobs: Iterable[Job],
    capabilities: Mapping[str, Capabilities],
    *,
    cached: int = 0,
    rate: float = 1.0,
    rtf: float | None = None,
) -> SweepEstimate:
    """Return what ``jobs`` will need; ``capabilities`` has each backend by its name.

    ``rate`` is how long earlier takes were against what was expected of their texts, and ``rtf`` seconds of work for a
    second of their audio; ``cached`` is how many takes are there.
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


def _time(seconds: float) -> str:
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


State = Literal["running", "paused", "done", "cancelled", "over budget", "failed"]
# How soon a pause, a cancel or the end of a wait is noticed.
_TICK: Final = 0.1


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a job: a take, which may have been there already, or an error."""

    job: Job
    take: Take | None = None
    error: Exception | None = None
    cached: bool = False

    def row(self) -> TakeRow:
        """Return the row of a TakeTable."""
        job, cell = self.job, self.job.cell
        columns = {"text": cell.template, "sent": cell.call.request.text} if cell.template else {}
        keys, labels = {**cell.plain, REPEAT: job.repeat}, {**cell.labels, REPEAT: str(job.repeat)}
        if "text" in columns and "text" in keys:
            del columns["text"]
        return TakeRow(keys, labels, job.call, self.take, self.error, self.cached, columns)


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a run is. ``audio_s`` is of takes that were rendered, not cached; ``elapsed_s`` is without pauses.

    ``remaining_s`` is None until it is known.
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
        """Takes that are over, well or badly."""
        return self.rendered + self.cached + self.failed

    def __str__(self) -> str:
        parts = [f"{self.done} of {self.total} takes, {self.state}"]
        if self.cached:
            parts.append(f"{self.cached} were there already")
        if self.failed:
            parts.append(f"{self.failed} failed")
        return ", ".join(parts)


@dataclass(frozen=True, slots=True)
class RunContext:
    """What a run works with: takes are looked for in ``caches``, and kept in ``cache`` and written to ``journal``.

    ``gap_s`` is how many seconds after one call of a backend the next may begin.
    """

    workers: Workers
    caches: Sequence[Cache]
    capabilities: Mapping[str, Capabilities]
    cache: Cache | None = None
    journal: Journal | None = None
    budget: Budget = field(default_factory=Budget)
    gap_s: float = 0.0


class SweepRun:
    """A sweep at work, in a thread of its own.

    ``listener`` is called with each outcome, from that thread, one after another. Every outcome is in the
    caches and the journal before the listener hears of it, so that a run that is cut off at any point goes
    on where it was: what was kept is not made again.
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
        self._state: State = "running"
        self._error: Exception | None = None
        self._began = time.monotonic()
        self._paused: float | None = None
        self._ended: float | None = None
        self._thread = threading.Thread(target=self._run, name="voicelab-sweep", daemon=True)
        self._thread.start()

    def __len__(self) -> int:
        """Takes in all, those that are not made yet too."""
        return len(self._jobs)

    def __iter__(self) -> Iterator[Outcome]:
        """Yield every outcome as it comes, and end with the run: ``for outcome in vl.progress(sweep.start()): …``.

        Raises what ``wait`` raises. To leave the loop does not end the run; ``cancel`` does.
        """
        yielded, over = 0, False
        while not over:
            over = self.wait(_TICK)
            new = list(self._outcomes.copy().values())[yielded:]
            yielded += len(new)
            yield from new

    @property
    def progress(self) -> Progress:
        """How far it is, now."""
        outcomes, remaining = self._outcomes.copy(), None
        cached = sum(outcome.cached for outcome in outcomes.values())
        failed = sum(outcome.error is not None for outcome in outcomes.values())
        rendered = len(outcomes) - cached - failed
        elapsed = (self._ended or self._paused or time.monotonic()) - self._began
        if rendered and self._ended is None:  # as long for each second of expected audio as it took so far
            over = sum(one.job.call.expected_seconds for one in outcomes.values() if not one.cached)
            left = (job for job in self._jobs if (job.cell.index, job.repeat) not in outcomes)
            remaining = elapsed * sum(job.call.expected_seconds for job in left) / over
        counts = (len(self._jobs), rendered, cached, failed, len(self._running))
        return Progress(self.state, *counts, self._spent["audio_s"], elapsed, remaining)

    @property
    def state(self) -> State:
        """Whether it runs, is paused, or how it ended."""
        return "paused" if self._state == "running" and self._paused is not None else self._state

    @property
    def outcomes(self) -> tuple[Outcome, ...]:
        """What has come so far, in the order of the grid."""
        return tuple(outcome for _, outcome in sorted(dict(self._outcomes).items()))

    @property
    def notes(self) -> tuple[str, ...]:
        """Workers of a cluster that get no takes, and why, in sentences."""
        return self._context.workers.notes

    @property
    def running(self) -> tuple[Job, ...]:
        """The takes that are being made now."""
        return tuple(self._running.copy().values())

    def pause(self) -> None:
        """Start no more takes; those that run are finished. Does nothing to a run that is over."""
        if self._paused is None and self._thread.is_alive():
            self._paused = time.monotonic()

    def unpause(self) -> None:
        """Go on."""
        if self._paused is not None:
            # As if it had begun later: what is left is reckoned from the time at work.
            self._began += time.monotonic() - self._paused
            self._paused = None

    def cancel(self) -> None:
        """Stop: takes that run in this process are broken off, nothing more is started. What is made is kept."""
        self._stop.set()
        self._context.workers.cancel()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until it is over, at most ``timeout`` seconds; returns whether it is.

        Raises what the run itself failed of (not a take: that is in its outcome): ExecutorError when what makes the takes
        is gone; the takes that are missing are then failed outcomes too.
        """
        self._thread.join(timeout)
        if self._error is not None:
            raise self._error
        return not self._thread.is_alive()

    def _run(self) -> None:
        state: State = "failed"
        try:
            state = self._hand_out()
        except ExecutorError as error:
            self._context.workers.cancel()
            if self._stop.is_set():
                state = "cancelled"
            else:
                self._error = self._unmade(error)
        except Exception as error:  # noqa: BLE001 - the end of the thread: wait() raises it
            self._context.workers.cancel()
            self._error = error
        finally:
            self._context.workers.close()
            if self._context.journal is not None:
                self._context.journal.close()
            self._running.clear()
            self._ended = self._paused or time.monotonic()
            self._state = state

    def _hand_out(self) -> State:
        over_budget = False
        for job in self._jobs:
            # What is kept is found fast, but there may be much of it.
            if self._stop.is_set():
                break
            if self._cached(job):
                continue
            if not self._may_begin():
                break
            prices = self._context.capabilities[job.cell.backend].prices
            cost = sum((speech_cost(job.call, job.call.expected_seconds, prices) or {}).values())
            ahead = {"requests": 1, "characters": len(job.call.request.text), "cost": cost}
            if self._over_budget(ahead):
                over_budget = True
                break
            self._begin(job, ahead)
        while self._running:
            self._collect(_TICK)
        if len(self._outcomes) == len(self._jobs):
            return "done"
        return "over budget" if over_budget else "cancelled"

    def _unmade(self, error: ExecutorError) -> Exception:
        """Fail every take that is missing, and return the error of the run."""
        count = sum(outcome.take is not None for outcome in self._outcomes.values())
        ended = ExecutorError(f"{error}. {count} of {len(self._jobs)} takes are kept; the same sweep makes the others")
        ended.__cause__ = error
        try:
            for job in self._jobs:
                if (job.cell.index, job.repeat) not in self._outcomes:
                    self._over(Outcome(job, error=error))
        except Exception as failure:  # noqa: BLE001 - a full disk, a listener: wait() raises it
            return failure
        return ended

    def _over_budget(self, ahead: Mapping[str, float]) -> bool:
        """Whether one more take would be over a cap that counts ahead, or one that counts behind is reached."""
        caps = {name: getattr(self._context.budget, name) for name in CAPS}
        left = {name: cap - self._spent[name] for name, cap in caps.items() if cap is not None}
        return any(ahead[name] > rest if name in ahead else rest <= 0.0 for name, rest in left.items())

    def _cached(self, job: Job) -> bool:
        cell = job.cell
        key = take_key(job.call, self._context.capabilities[cell.backend].fingerprint, job.repeat)
        remarks: list[str] = []
        for cache in self._context.caches:
            take, notes = cache.look(key)
            if take is not None:
                self._over(Outcome(job, cache.run.light(take), cached=True))
                return True
            remarks += notes
        self._remarks[cell.index, job.repeat] = tuple(remarks)
        return False

    def _may_begin(self) -> bool:
        """Wait for a free place, and while paused; returns whether to go on."""
        while not self._stop.is_set():
            if len(self._running) < self._context.workers.concurrency and self._paused is None:
                return True
            self._collect(_TICK)
        return False

    def _begin(self, job: Job, ahead: Mapping[str, float]) -> None:
        now = time.monotonic()
        begins = max(now, self._next.get(job.cell.backend, now))
        self._next[job.cell.backend] = begins + self._context.gap_s
        if self._stop.wait(begins - now):
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
        except BaseException as error:  # noqa: BLE001 - one take's failure is its own, also an interrupt of its process
            if not self._stop.is_set():  # else it is as if the take had never been begun
                self._over(Outcome(job, error=_failure(error)))
            return
        self._spent["audio_s"] += seconds
        self._spent["compute_s"] += take.timing.total_s
        take = take.noted(*self._remarks.pop((job.cell.index, job.repeat), ()))
        if self._context.cache is not None:
            take = self._context.cache.keep(take, backend=self._context.capabilities[job.cell.backend])
            # A sweep may be larger than the memory.
            take = self._context.cache.run.light(take)
        self._over(Outcome(job, take))

    def _over(self, outcome: Outcome) -> None:
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
    failure = ExecutorError(f"the take was not made: {type(error).__name__} in its executor")
    failure.__cause__ = error
    return failure
