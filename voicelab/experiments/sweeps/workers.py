"""Where takes are made: threads of this process, any concurrent.futures executor, or a Dask cluster."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Final

from voicelab.backend import Backend, SpeechStream
from voicelab.call import Call
from voicelab.clip import Take
from voicelab.errors import RequestInvalid
from voicelab.experiments.sweeps.axes import Job

CONCURRENCY: Final = 8
"""Takes under way when nothing else is said, and a backend does not say how many it speaks at once."""


Factory = Callable[[], Backend]
"""Opens a backend in another process, once in each: picklable, hashable, and equal when it opens the same one.

A function of a module is one; so is a frozen dataclass with ``__call__``.
"""


class Workers:
    """What makes takes, several at once.

    Args:
        executor: threads of this process, with ``backends`` (a local engine speaks what they ask for as one batch); or what
            somebody hands in, with ``factories``: each process opens its backend once, and takes come back whole.
        concurrency: takes under way.
        backends: who speaks, by name.
        factories: how another process opens each of them.
        own: whether ``close`` ends the executor.
    """

    def __init__(
        self,
        executor: Executor,
        concurrency: int,
        backends: Mapping[str, Backend] = MappingProxyType({}),
        factories: Mapping[str, Factory] = MappingProxyType({}),
        *,
        own: bool = False,
    ) -> None:
        self.concurrency = concurrency
        self._executor = executor
        self._backends, self._factories = backends, factories
        self._own = own
        self._begun: set[Future[Take]] = set()
        self._lock = threading.Lock()
        self._streams: set[SpeechStream] = set()
        self._cancelled = threading.Event()

    def submit(self, job: Job) -> Future[Take]:
        """Begin a take, or queue it."""
        if self._backends:
            future = self._executor.submit(self._make, job)
        else:
            future = self._executor.submit(make_there, self._factories[job.cell.backend], job.call, job.repeat)
        self._begun.add(future)
        future.add_done_callback(self._begun.discard)
        return future

    def cancel(self) -> None:
        """Take back what has not begun, and break off what runs in this process; elsewhere a take runs to its end."""
        self._cancelled.set()
        for future in tuple(self._begun):
            future.cancel()
        with self._lock:
            streams = tuple(self._streams)
        for stream in streams:
            stream.close()

    def close(self) -> None:
        """End the threads, once what they are at is over, unless they are somebody else's."""
        if self._own:
            self._executor.shutdown(wait=True, cancel_futures=True)

    def _make(self, job: Job) -> Take:
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
        concurrency = concurrency or under_way(backends)
        threads = ThreadPoolExecutor(concurrency, thread_name_prefix="voicelab-take")
        return Workers(threads, concurrency, backends, own=True)
    cluster = hasattr(executor, "get_executor")
    if cluster:
        concurrency = concurrency or 4 * max(sum(executor.nthreads().values()), 1)
        # Dask takes equal calls of a pure function for one; equal takes are meant to be made again.
        executor = executor.get_executor(pure=False)
    if not isinstance(executor, Executor):
        message = f"a {type(executor).__name__} is no concurrent.futures executor and no Dask client"
        raise RequestInvalid.of("executor", message, type="executor_invalid")
    if isinstance(executor, ThreadPoolExecutor):
        return Workers(executor, concurrency or under_way(backends), backends)
    missing = sorted(name for name in backends if name not in factories)
    if missing:
        message = (
            f"other processes cannot open the backend {missing[0]!r} by themselves; give a factory for it: a function "
            "of a module that returns the backend"
        )
        raise RequestInvalid.of("factories", message, type="missing")
    return Workers(executor, concurrency or CONCURRENCY, factories=factories)


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
