"""Background work of panels: a thread with error handling, a debouncer, and streamed synthesis that can be interrupted.

The threads of panels receive no KeyboardInterrupt; ``interruptible`` stops them when the kernel is interrupted.

This module imports no widgets, so that tests can use it without a page.
"""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Final, Self

import numpy as np

from voicelab.audio.samples import NO_SAMPLES, Samples
from voicelab.audio.words import Words
from voicelab.backend import SpeechStream
from voicelab.clip import Clip
from voicelab.errors import Cancelled

Arrival = tuple[float, int]
"""Arrival time of a chunk, in seconds since the call, and its number of samples."""

# Eight page updates a second suffice for continuous sound and display; more would only queue up. The first four are sent
# at once, since a page has nothing else to play when playback starts.
_INTERVAL_S: Final = 0.12
_BURST: Final = 4


def marimo() -> Any:
    """Return the module marimo if this is one of its notebooks, else None."""
    module = sys.modules.get("marimo")
    return module if module is not None and module.running_in_notebook() else None


class Task:
    """Work in a daemon thread, started by ``start``.

    If ``work`` raises an exception, ``failed`` is called with it in the same thread.
    """

    def __init__(
        self, work: Callable[[], object], *, name: str, failed: Callable[[Exception], object] | None = None
    ) -> None:
        self._work = work
        self._on_error = failed
        # In marimo, only its own threads can create widgets.
        kind = getattr(marimo(), "Thread", threading.Thread)
        self._thread: threading.Thread = kind(target=self._run, name=f"voicelab-{name}", daemon=True)
        # Not Thread.join: before Python 3.13 a thread counts as ended once an interrupt is raised in it.
        self._ended = threading.Event()

    def start(self) -> Self:
        """Start the thread and return the task."""
        self._thread.start()
        return self

    @property
    def running(self) -> bool:
        """Whether the work has started and not ended."""
        return self._thread.ident is not None and not self._ended.is_set()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait at most ``timeout`` seconds for the end of the work; return whether it has ended."""
        return self._ended.wait(timeout)

    def _run(self) -> None:
        try:
            self._work()
        except Exception as error:
            if self._on_error is None:
                raise
            self._on_error(error)
        finally:
            self._ended.set()


class Debouncer:
    """Calls ``work`` in a thread once ``ask`` has not been called for ``delay`` seconds.

    ``work`` receives a function that returns whether its result is still needed: False after a later ``ask`` or a
    ``cancel``. ``work`` must handle its errors.
    """

    def __init__(self, work: Callable[[Callable[[], bool]], object], delay: float = 0.15) -> None:
        self._work = work
        self._delay = delay
        self._changed = threading.Condition()
        self._work_lock = threading.Lock()
        self._requested = self._done = self._dropped = 0
        self._replaced = threading.Event()
        self._closed = False

    def ask(self) -> None:
        """Request the work; within ``delay`` only the latest request counts."""
        with self._changed:
            self._replaced.set()
            self._requested += 1
            if not self._closed:
                self._replaced = threading.Event()
                Task(partial(self._run, self._requested, self._replaced), name="debouncer").start()

    def cancel(self) -> None:
        """Drop pending requests."""
        with self._changed:
            self._dropped = self._requested

    def settled(self, timeout: float) -> bool:
        """Wait at most ``timeout`` seconds until no request is pending; return whether this is the case."""
        with self._changed:
            return self._changed.wait_for(lambda: self._done == self._requested, timeout)

    def close(self) -> None:
        """Ignore further requests."""
        self._closed = True
        self._replaced.set()

    def _run(self, number: int, replaced: threading.Event) -> None:
        if replaced.wait(self._delay):
            return

        def current() -> bool:
            return self._dropped < number == self._requested and not self._closed

        with self._work_lock:
            try:
                # A newer request may have arrived while this one waited for the lock.
                if current():
                    self._work(current)
            finally:
                with self._changed:
                    self._done = number
                    self._changed.notify_all()


class SpeechTask(Task):
    """Task that opens a stream and reads all audio; subclasses override the four callbacks.

    Callbacks run in order in the task's thread; the last one is ``finished`` or ``failed``.
    """

    def __init__(self, stream: Callable[[], SpeechStream]) -> None:
        super().__init__(self._speak, name="speech", failed=self.failed)
        self._open = stream
        self._cancelled = False
        self._lock = threading.Lock()
        self._stream: SpeechStream | None = None

    def began(self, rate: int) -> None:
        """Handle the start of synthesis, when the call was accepted; ``rate`` is the sample rate in Hz."""

    def arrived(self, samples: Samples, arrivals: Sequence[Arrival]) -> None:
        """Handle new audio, float32 of shape (n,), and the arrivals of its chunks.

        After 4 immediate calls, it is called at most 8 times per second.
        """

    def finished(self, clip: Clip) -> None:
        """Handle the complete audio."""

    def failed(self, error: Exception) -> None:
        """Handle an error of the synthesis; after ``cancel``, the error is Cancelled."""

    def cancel(self) -> None:
        """Stop the synthesis; ``failed`` is then called with Cancelled. Has no effect once the synthesis has ended."""
        with self._lock:
            self._cancelled = True
            stream = self._stream
        if stream is not None:
            stream.close()

    def _speak(self) -> None:
        stream = self._open()
        with self._lock:
            self._stream = stream
            cancelled = self._cancelled
        if cancelled:
            stream.close()
            raise Cancelled("cancelled before the first audio")
        with stream.keep(self._keep):
            self.began(stream.rate)
            samples = self._drain(stream)
        take = stream.take_of(self._encoded)
        self.finished(Clip(samples, stream.rate, Words(take.words), take))

    def _keep(self, _: SpeechStream, audio: bytes) -> tuple[str, ...]:
        self._encoded = audio
        return ()

    def _drain(self, stream: SpeechStream) -> Samples:
        chunks: list[Samples] = []
        arrivals: list[Arrival] = []
        sent, due = 0, 0.0
        for samples in stream.pcm():
            chunks.append(samples)
            arrivals.append((stream.arrivals[-1][0], samples.size))
            moment = time.monotonic()
            if moment >= due:
                self.arrived(np.concatenate(chunks[sent:]), arrivals[sent:])
                sent, due = len(chunks), max(due, moment - (_BURST - 1) * _INTERVAL_S) + _INTERVAL_S
        if self._cancelled:
            raise Cancelled("cancelled at the end of the audio")
        if sent < len(chunks):
            self.arrived(np.concatenate(chunks[sent:]), arrivals[sent:])
        return np.concatenate(chunks) if chunks else NO_SAMPLES


_RETRY_S: Final = 0.2

_stops: Final[list[Callable[[], object]]] = []
_watched: Final[set[int]] = set()


@contextmanager
def interruptible(stop: Callable[[], object]) -> Iterator[None]:
    """Call ``stop`` if the kernel is interrupted during the block, even if no cell is running."""
    _watch()
    _stops.append(stop)
    try:
        yield
    finally:
        _stops.remove(stop)


def _interrupted(*_: object) -> None:
    # ``stop`` runs in a thread, since the interrupted main thread may hold a lock that ``stop`` needs.
    for stop in _stops:
        Task(stop, name="interrupt").start()


def _watch() -> None:
    """Start the detection of kernel interrupts; does nothing outside a kernel, or if it is already started."""
    shell: Any = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    kernel = getattr(shell, "kernel", None)
    if kernel is None or id(kernel) in _watched:
        return
    _watched.add(id(kernel))

    def cell_ended(result: Any) -> None:
        if isinstance(result.error_in_exec, KeyboardInterrupt):
            _interrupted()

    def install() -> None:
        # An idle kernel ignores the signal. During a cell it has another handler, and restores this one afterwards.
        if threading.current_thread() is not threading.main_thread():
            return
        if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
            signal.signal(signal.SIGINT, _interrupted)
        else:
            kernel.io_loop.call_later(_RETRY_S, install)

    shell.events.register("post_run_cell", cell_ended)
    kernel.io_loop.add_callback(install)
