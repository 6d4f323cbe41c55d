"""Where takes are made: threads of this process, any concurrent.futures executor, or a Dask cluster."""

from __future__ import annotations

import os
import platform
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from concurrent.futures import Executor, Future
from dataclasses import replace
from functools import lru_cache
from typing import Final

from voicelab.backend import Backend, SpeechStream
from voicelab.call import Call
from voicelab.clip import Take
from voicelab.errors import ExecutorError
from voicelab.sweeps.axes import Job

CONCURRENCY: Final = 8
"""Takes under way when nothing else is said, and a backend does not say how many it speaks at once."""


Factory = Callable[[], Backend]
"""Opens a backend in another process, once in each: picklable, hashable, and equal when it opens the same one.

A function of a module is one; so is a frozen dataclass with ``__call__``.
"""


class Workers(ABC):
    """What makes takes, several at once."""

    @property
    def notes(self) -> tuple[str, ...]:
        """Workers that get no takes, and why, in sentences."""
        return ()

    @property
    @abstractmethod
    def concurrency(self) -> int:
        """Takes under way at most."""

    @abstractmethod
    def submit(self, job: Job) -> Future[Take]:
        """Begin a take, or queue it. Raises ExecutorError when no more can be made."""

    def watch(self) -> None:  # noqa: B027 - most need nothing
        """Look after the workers; called often. Raises ExecutorError when no more takes can be made."""

    @abstractmethod
    def cancel(self) -> None:
        """Take back what has not begun, and break off what runs in this process; elsewhere a take runs to its end."""

    @abstractmethod
    def close(self) -> None:
        """End the threads, once what they are at is over, unless they are somebody else's."""


class ExecutorWorkers(Workers):
    """Threads of this process, or any ``concurrent.futures`` executor.

    Args:
        executor: threads of this process, with ``backends`` (a local engine speaks what they ask for as one batch); or what
            somebody hands in, with ``factories``: each process opens its backend once, and takes come back whole.
        concurrency: takes under way.
        backends: who speaks, by name.
        factories: how another process opens each of them; None for threads.
        own: whether ``close`` ends the executor.
    """

    def __init__(
        self,
        executor: Executor,
        concurrency: int,
        backends: Mapping[str, Backend],
        factories: Mapping[str, Factory] | None = None,
        *,
        own: bool = False,
    ) -> None:
        self._concurrency = concurrency
        self._executor = executor
        self._backends, self._factories = backends, factories
        self._own = own
        self._begun: set[Future[Take]] = set()
        self._lock = threading.Lock()
        self._streams: set[SpeechStream] = set()
        self._cancelled = threading.Event()

    @property
    def concurrency(self) -> int:
        """Takes under way at most."""
        return self._concurrency

    def submit(self, job: Job) -> Future[Take]:
        """Begin a take, or queue it. Raises ExecutorError when the executor is broken or shut down."""
        name = job.cell.backend
        try:
            if self._factories is None:
                future = self._executor.submit(self._make, job)
            else:
                fingerprint = self._backends[name].capabilities.fingerprint
                future = self._executor.submit(make_there, self._factories[name], job.call, job.repeat, fingerprint)
        except RuntimeError as error:  # BrokenExecutor is one
            raise ExecutorError(f"the executor takes no more work: {error}") from error
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


def under_way(backends: Mapping[str, Backend]) -> int:
    """Return how many takes to keep under way: so many that whoever ends one has the next at hand, and none gets too many."""
    limits = [backend.capabilities.at_once for backend in backends.values()]
    return min(at_once + at_once // 2 if at_once else CONCURRENCY for at_once in limits)


_opening = threading.Lock()


@lru_cache(maxsize=8)
def _open(factory: Factory, process: int) -> Backend:
    del process  # what a fork inherits is opened anew
    return factory()


def opened(factory: Factory) -> Backend:
    """Return this process's backend of a factory, opened once."""
    with _opening:  # else the threads of a worker would open it once each
        return _open(factory, os.getpid())


def make_there(factory: Factory, call: Call, repeat: int, fingerprint: str) -> Take:
    """Make a take in whatever process this runs in.

    Raises ExecutorError where its backend has another fingerprint than the sweep's, and what the backend raises.
    """
    backend, host = opened(factory), platform.node()
    if (there := backend.capabilities.fingerprint) != fingerprint:
        message = f"the backend opened by process {os.getpid()} on {host} has the fingerprint {there}"
        raise ExecutorError(f"{message}, the sweep's has {fingerprint}")
    return replace(backend.synthesize(call).take(repeat), host=host)
