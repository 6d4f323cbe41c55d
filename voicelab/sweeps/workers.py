"""Workers that synthesize takes: threads of this process, a concurrent.futures executor, or a Dask cluster."""

from __future__ import annotations

import os
import platform
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from concurrent.futures import Executor, Future, InvalidStateError
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache
from typing import Final

from voicelab.backend import Backend, SpeechStream, current_capabilities
from voicelab.call import Call
from voicelab.clip import Take
from voicelab.errors import ExecutorError
from voicelab.sweeps.axes import Job

CONCURRENCY: Final = 8
"""Default number of concurrent takes for a backend that declares no limit."""


Factory = Callable[[], Backend]
"""Function that opens a backend in another process. It must be picklable, hashable, and equal for the same backend, as are
module-level functions, and frozen dataclasses with ``__call__``.
"""


class Workers(ABC):
    """Base class of workers that synthesize takes concurrently."""

    @property
    def notes(self) -> tuple[str, ...]:
        """Excluded workers, with the reasons, as sentences."""
        return ()

    @property
    @abstractmethod
    def concurrency(self) -> int:
        """Maximum number of concurrent takes."""

    @abstractmethod
    def submit(self, job: Job) -> Future[Take]:
        """Start or queue a take. Raises ExecutorError if no workers are available."""

    def watch(self) -> None:  # noqa: B027 - most need nothing
        """Check the workers; called often. Raises ExecutorError if none are available."""

    @abstractmethod
    def cancel(self) -> None:
        """Cancel queued takes, and abort those that run in this process; takes in other processes finish."""

    @abstractmethod
    def close(self) -> None:
        """Shut down the executor after its running takes, unless it belongs to the caller."""


class ExecutorWorkers(Workers):
    """Threads of this process, or any ``concurrent.futures`` executor.

    Args:
        executor: either threads of this process, with ``backends`` (the local engine synthesizes their calls as a
            batch), or an executor of the caller, with ``factories``. In the latter case, each process opens its backend
            once and returns complete takes.
        concurrency: maximum number of concurrent takes.
        backends: backends by name.
        factories: functions that open each backend in another process; None for threads.
        shut_down: whether ``close`` shuts down the executor.
    """

    def __init__(
        self,
        executor: Executor,
        concurrency: int,
        backends: Mapping[str, Backend],
        factories: Mapping[str, Factory] | None = None,
        *,
        shut_down: bool = False,
    ) -> None:
        self._concurrency = concurrency
        self._executor = executor
        self._backends, self._factories = backends, factories
        self._shut_down = shut_down
        self._begun: set[Future[Take]] = set()
        self._lock = threading.Lock()
        self._streams: set[SpeechStream] = set()
        self._cancelled = threading.Event()

    @property
    def concurrency(self) -> int:
        """Maximum number of concurrent takes."""
        return self._concurrency

    def submit(self, job: Job) -> Future[Take]:
        """Start or queue a take. Raises ExecutorError if the executor is broken or shut down."""
        name = job.cell.backend
        try:
            if self._factories is None:
                future = self._executor.submit(self._make, job)
            else:
                fingerprint = current_capabilities(self._backends[name]).fingerprint
                future = self._executor.submit(make_there, self._factories[name], job.call, job.repeat, fingerprint)
                _let_fail(future)
        except RuntimeError as error:  # the base class of BrokenExecutor
            raise ExecutorError(f"the executor accepts no work: {error}") from error
        self._begun.add(future)
        future.add_done_callback(self._begun.discard)
        return future

    def cancel(self) -> None:
        """Cancel queued takes, and abort those that run in this process; takes in other processes finish."""
        self._cancelled.set()
        for future in tuple(self._begun):
            future.cancel()
        with self._lock:
            streams = tuple(self._streams)
        for stream in streams:
            stream.close()

    def close(self) -> None:
        """Shut down the executor after its running takes, unless it belongs to the caller."""
        if self._shut_down:
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


def _let_fail(future: Future[Take]) -> None:
    """Allow a broken process pool to set its error on a cancelled future.

    In Python before 3.13, setting this error would raise an exception in the pool's thread and end the thread; at exit, the
    interpreter would then wait for the pool's processes forever.
    """
    fail = future.set_exception

    def set_exception(error: BaseException | None) -> None:
        with suppress(InvalidStateError):
            fail(error)

    future.set_exception = set_exception  # type: ignore[method-assign, assignment]


def under_way(backends: Mapping[str, Backend]) -> int:
    """Return the default number of concurrent takes: 1.5 times the limit of the backend, so that it is always busy."""
    limits = [backend.capabilities.at_once for backend in backends.values()]
    return min(at_once + at_once // 2 if at_once else CONCURRENCY for at_once in limits)


_opening = threading.Lock()


@lru_cache(maxsize=8)
def _open(factory: Factory, process: int) -> Backend:
    del process  # a forked process opens its own backend
    return factory()


def opened(factory: Factory) -> Backend:
    """Open the backend of a factory, once per process."""
    with _opening:  # threads of a worker share the backend
        return _open(factory, os.getpid())


def make_there(factory: Factory, call: Call, repeat: int, fingerprint: str) -> Take:
    """Synthesize a take in this process.

    Raises ExecutorError if the fingerprint of the backend here differs from the sweep's, or if this process is
    interrupted, and the errors of the backend.
    """
    backend, host = opened(factory), platform.node()
    if (actual := backend.capabilities.fingerprint) != fingerprint:
        message = f"the backend opened by process {os.getpid()} on {host} has the fingerprint {actual}"
        raise ExecutorError(f"{message}, the sweep's has {fingerprint}")
    try:
        return replace(backend.synthesize(call).take(repeat), host=host)
    except KeyboardInterrupt:  # of this process alone: the sweep goes on in the others
        raise ExecutorError(f"process {os.getpid()} on {host} was interrupted") from None
