"""Where takes are made: threads of this process, any concurrent.futures executor, or a Dask cluster."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from functools import lru_cache
from typing import Any, Final

from voicelab.backend import Backend, SpeechStream
from voicelab.call import Call
from voicelab.clip import Take
from voicelab.errors import Cancelled, RequestInvalid
from voicelab.experiments.sweeps.axes import Job

CONCURRENCY: Final = 8
"""Takes under way when nothing else is said, and a backend does not say how many it speaks at once."""


Factory = Callable[[], Backend]
"""Opens a backend in another process, once in each: picklable, hashable, and equal when it opens the same one.

A function of a module is one; so is a frozen dataclass with ``__call__``.
"""


class ThreadWorkers:
    """Threads of this process. A local engine speaks what they ask for as one batch; ``cancel`` stops it at once.

    ``pool`` are threads that somebody hands in, which stay theirs.
    """

    def __init__(
        self,
        backends: Mapping[str, Backend],
        concurrency: int | None = None,
        pool: ThreadPoolExecutor | None = None,
    ) -> None:
        self.concurrency = concurrency or under_way(backends)
        self._backends = backends
        self._own = pool is None
        self._pool = pool or ThreadPoolExecutor(self.concurrency, thread_name_prefix="voicelab-take")
        self._lock = threading.Lock()
        self._streams: set[SpeechStream] = set()
        self._cancelled = threading.Event()

    def submit(self, job: Job) -> Future[Take]:
        """Begin a take, or queue it."""
        return self._pool.submit(self._make, job)

    def cancel(self) -> None:
        """Break off what runs, and start nothing more."""
        with self._lock:
            self._cancelled.set()
            streams = tuple(self._streams)
        for stream in streams:
            stream.close()

    def close(self) -> None:
        """End the threads, once what they are at is over, unless they are somebody else's."""
        if self._own:
            self._pool.shutdown(wait=True, cancel_futures=True)

    def _make(self, job: Job) -> Take:
        if self._cancelled.is_set():
            raise Cancelled("the sweep was cancelled before this take began")
        stream = self._backends[job.cell.backend].synthesize(job.call)
        with self._lock:
            self._streams.add(stream)
        try:
            if self._cancelled.is_set():
                stream.close()
            return stream.take(job.repeat)
        finally:
            with self._lock:
                self._streams.discard(stream)


class RemoteWorkers:
    """An executor somebody hands in. Each process opens its backend once, by the factory; takes come back whole.

    ``cancel`` takes back what has not begun; a take that runs elsewhere runs to its end.
    """

    def __init__(self, executor: Executor, factories: Mapping[str, Factory], concurrency: int) -> None:
        self.concurrency = concurrency
        self._executor = executor
        self._factories = factories
        self._begun: set[Future[Take]] = set()

    def submit(self, job: Job) -> Future[Take]:
        """Hand a take to the executor."""
        future = self._executor.submit(make_there, self._factories[job.cell.backend], job.call, job.repeat)
        self._begun.add(future)
        future.add_done_callback(self._begun.discard)
        return future

    def cancel(self) -> None:
        """Take back what has not begun."""
        for future in tuple(self._begun):
            future.cancel()

    def close(self) -> None:
        """Leave the executor to whoever made it."""


Workers = ThreadWorkers | RemoteWorkers
"""What makes takes, several at once."""


def workers_for(
    executor: Any, backends: Mapping[str, Backend], factories: Mapping[str, Factory], concurrency: int | None
) -> Workers:
    """Return the workers for what the caller handed in.

    Args:
        executor: None for threads of this process, a ``concurrent.futures.Executor``, or a
            ``dask.distributed.Client`` (which is not imported here).
        backends: the backends of this process by name.
        factories: how another process opens each of them.
        concurrency: takes under way; when None, half as many again as the backend speaks at once (8 where it
            does not say; of several backends the least), and four for each thread of a cluster.

    Raises RequestInvalid when the executor is none of these, or a backend cannot be opened elsewhere.
    """
    if concurrency is not None and (type(concurrency) is not int or concurrency < 1):
        raise RequestInvalid.of("concurrency", "Input should be a whole number, 1 or more", type="int_type")
    if executor is None:
        return ThreadWorkers(backends, concurrency)
    cluster = hasattr(executor, "get_executor")
    if cluster:
        concurrency = concurrency or 4 * max(sum(executor.nthreads().values()), 1)
        # Dask takes equal calls of a pure function for one; equal takes are meant to be made again.
        executor = executor.get_executor(pure=False)
    if not isinstance(executor, Executor):
        message = f"a {type(executor).__name__} is no concurrent.futures executor and no Dask client"
        raise RequestInvalid.of("executor", message, type="executor_invalid")
    if isinstance(executor, ThreadPoolExecutor):
        return ThreadWorkers(backends, concurrency, executor)
    missing = sorted(name for name in backends if name not in factories)
    if missing:
        message = (
            f"other processes cannot open the backend {missing[0]!r} by themselves; give a factory for it: a function "
            "of a module that returns the backend"
        )
        raise RequestInvalid.of("factories", message, type="missing")
    return RemoteWorkers(executor, factories, concurrency or CONCURRENCY)


def under_way(backends: Mapping[str, Backend]) -> int:
    """Return how many takes to keep under way: so many that whoever ends one has the next at hand, and none gets too many."""
    limits = [backend.capabilities.at_once for backend in backends.values()]
    return min(at_once + at_once // 2 if at_once else CONCURRENCY for at_once in limits)


_opening = threading.Lock()


@lru_cache(maxsize=8)
def _opened(factory: Factory) -> Backend:
    return factory()


def make_there(factory: Factory, call: Call, repeat: int) -> Take:
    """Make a take in whatever process this runs in. Raises what the backend raises."""
    with _opening:  # else the threads of a worker would open it once each
        backend = _opened(factory)
    return backend.synthesize(call).take(repeat)


class RateLimiter:
    """Spaces the calls to each backend out so that at most ``per_minute`` begin in a minute; None does not wait.

    Raises RequestInvalid for a number that is not above 0.
    """

    def __init__(self, per_minute: float | None = None) -> None:
        number = isinstance(per_minute, int | float) and not isinstance(per_minute, bool)
        if per_minute is not None and not (number and per_minute > 0):
            raise RequestInvalid.of("requests_per_minute", "Input should be a number greater than 0")
        self._gap = 60.0 / per_minute if per_minute else 0.0
        self._next: dict[str, float] = {}

    def delay(self, backend: str) -> float:
        """Return how many seconds to wait before the next call, and count that call as made then."""
        now = time.monotonic()
        begins = max(now, self._next.get(backend, now))
        self._next[backend] = begins + self._gap
        return begins - now
