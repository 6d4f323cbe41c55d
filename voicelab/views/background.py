"""Work off the kernel's main thread: a task that can be cancelled, a debouncer, and speech as it arrives.

No widget is known here, so a test can listen as well as a panel.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Final, Self

import numpy as np

from voicelab.audio.samples import NO_SAMPLES, Samples
from voicelab.audio.words import Words
from voicelab.backend import SpeechStream
from voicelab.clip import Clip
from voicelab.errors import Cancelled

Arrival = tuple[float, int]
"""When a chunk came, in seconds since the call, and how many samples it brought."""

# Updates of a page: eight a second are enough for sound and look continuous, more would only queue up. Four may come at
# once, as the first do: they are all that a page has to play until the next.
_INTERVAL_S: Final = 0.12
_BURST: Final = 4


class Task:
    """Work in a thread of its own, begun by ``start``.

    ``failed`` gets what ``work`` raises, in that thread, which is daemonic: a kernel that shuts down does not wait for it.
    """

    def __init__(
        self, work: Callable[[], object], *, name: str, failed: Callable[[Exception], object] | None = None
    ) -> None:
        self._work = work
        self._on_error = failed
        self._thread = threading.Thread(target=self._run, name=f"voicelab-{name}", daemon=True)

    def start(self) -> Self:
        """Begin, and return the task."""
        self._thread.start()
        return self

    @property
    def running(self) -> bool:
        """Whether it is still at work."""
        return self._thread.is_alive()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until it is over, at most ``timeout`` seconds; returns whether it is."""
        self._thread.join(timeout)
        return not self.running

    def _run(self) -> None:
        try:
            self._work()
        except Exception as error:
            if self._on_error is None:
                raise
            self._on_error(error)


class Debouncer:
    """Calls ``work`` in a thread once ``ask`` has not been called for ``delay`` seconds.

    ``work`` gets a function that says whether its result is still wanted: no later ``ask``, no ``cancel``. The thread
    is there only while there is something to do. ``work`` should handle its own errors.
    """

    def __init__(self, work: Callable[[Callable[[], bool]], object], delay: float = 0.15) -> None:
        self._work = work
        self._delay = delay
        self._changed = threading.Condition()
        self._one_at_a_time = threading.Lock()
        self._asked = self._done = self._dropped = 0
        self._timer = threading.Timer(0, lambda: None)
        self._closed = False

    def ask(self) -> None:
        """Ask for the work; of several calls in a short time the last one counts."""
        with self._changed:
            self._timer.cancel()
            self._asked += 1
            if not self._closed:
                self._timer = threading.Timer(self._delay, self._run, (self._asked,))
                self._timer.name, self._timer.daemon = "voicelab-debouncer", True
                self._timer.start()

    def cancel(self) -> None:
        """Drop what was asked for so far."""
        with self._changed:
            self._dropped = self._asked

    def settled(self, timeout: float) -> bool:
        """Wait until what was asked for is done, at most ``timeout`` seconds; returns whether it is."""
        with self._changed:
            return self._changed.wait_for(lambda: self._done == self._asked, timeout)

    def close(self) -> None:
        """Do no more."""
        self._closed = True
        self._timer.cancel()

    def _run(self, number: int) -> None:
        def wanted() -> bool:
            return self._dropped < number == self._asked and not self._closed

        with self._one_at_a_time:
            try:
                # It may have waited for the one before, and been asked for again meanwhile.
                if wanted():
                    self._work(wanted)
            finally:
                with self._changed:
                    self._done = number
                    self._changed.notify_all()


class SpeechTask(Task):
    """Runs ``stream`` and drains the stream that it returns; override the four methods to follow it.

    They are called in the task's thread, one after another; the last one is ``finished`` or ``failed``.
    """

    def __init__(self, stream: Callable[[], SpeechStream]) -> None:
        super().__init__(self._speak, name="speech", failed=self.failed)
        self._open = stream
        self._cancelled = False
        self._lock = threading.Lock()
        self._stream: SpeechStream | None = None

    def began(self, rate: int) -> None:
        """The call was accepted; audio at ``rate`` Hz will come."""

    def arrived(self, samples: Samples, arrivals: Sequence[Arrival]) -> None:
        """More audio, float32 of shape (n,), and the chunks that brought it.

        Called at once, unless more than four came in a short time: then eight times a second.
        """

    def finished(self, clip: Clip) -> None:
        """All audio has arrived."""

    def failed(self, error: Exception) -> None:
        """No more audio will come: Cancelled after ``cancel``, otherwise what went wrong."""

    def cancel(self) -> None:
        """Stop the work; ``failed`` gets Cancelled. Does nothing when it is over."""
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
            raise Cancelled("cancelled before any audio came")
        with stream.keep(self._keep):
            self.began(stream.rate)
            samples = self._drain(stream)
        take = stream.take_of(self._encoded)
        self.finished(Clip(samples, stream.rate, Words(take.words), take))

    def _keep(self, _: SpeechStream, audio: bytes) -> tuple[str, ...]:
        self._encoded = audio
        return ()

    def _drain(self, stream: SpeechStream) -> Samples:
        parts: list[Samples] = []
        arrivals: list[Arrival] = []
        sent, due = 0, 0.0
        for samples in stream.pcm():
            parts.append(samples)
            arrivals.append((stream.arrivals[-1][0], samples.size))
            now = time.monotonic()
            if now >= due:
                self.arrived(np.concatenate(parts[sent:]), arrivals[sent:])
                sent, due = len(parts), max(due, now - (_BURST - 1) * _INTERVAL_S) + _INTERVAL_S
        if self._cancelled:
            raise Cancelled("cancelled as the last audio came")
        if sent < len(parts):
            self.arrived(np.concatenate(parts[sent:]), arrivals[sent:])
        return np.concatenate(parts) if parts else NO_SAMPLES
