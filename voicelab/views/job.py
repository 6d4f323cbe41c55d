"""SpeechJob: one utterance made off the kernel's main thread, told to a listener as it comes.

No widget is known here: what happens is told by four calls, so a test can listen as well as a panel.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Final, Protocol

import numpy as np

from voicelab.audio.clip import Clip
from voicelab.audio.samples import SILENT, Samples
from voicelab.backend import SpeechStream
from voicelab.errors import Cancelled

__all__ = ["Arrival", "Listener", "SpeechJob"]

Arrival = tuple[float, int]
"""When a chunk came, in seconds since the call, and how many samples it brought."""

# Updates of a page: eight a second are enough for sound and look continuous, more would only queue up. Four may come at
# once, as the first do: they are all that a page has to play until the next.
_INTERVAL_S: Final = 0.12
_AT_ONCE: Final = 4


class Listener(Protocol):
    """Whoever wants to know. The calls come from the job's thread, one after another."""

    def began(self, rate: int) -> None:
        """The call was accepted; audio at ``rate`` Hz will come."""

    def arrived(self, samples: Samples, arrivals: Sequence[Arrival]) -> None:
        """More audio, float32 of shape (n,), and the chunks that brought it.

        Told at once, unless more than four came in a short time: then eight times a second.
        """

    def finished(self, clip: Clip) -> None:
        """All audio has arrived."""

    def failed(self, error: Exception) -> None:
        """No more audio will come: Cancelled after ``cancel``, otherwise what went wrong."""


class SpeechJob:
    """Runs ``start`` and drains the stream it returns, in a thread of its own.

    The last call to the listener is always ``finished`` or ``failed``.
    """

    def __init__(self, start: Callable[[], SpeechStream], listener: Listener) -> None:
        self._start = start
        self._listener = listener
        self._lock = threading.Lock()
        self._stream: SpeechStream | None = None
        self._cancelled = False
        # Daemonic: a kernel that shuts down does not wait for speech.
        self._thread = threading.Thread(target=self._run, name="voicelab-speech", daemon=True)
        self._thread.start()

    @property
    def running(self) -> bool:
        """Whether it is still at work."""
        return self._thread.is_alive()

    def cancel(self) -> None:
        """Stop the work; the listener hears of it as Cancelled. Does nothing when it is over."""
        with self._lock:
            self._cancelled = True
            stream = self._stream
        if stream is not None:
            stream.close()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until it is over, at most ``timeout`` seconds; returns whether it is."""
        self._thread.join(timeout)
        return not self.running

    def _run(self) -> None:
        try:
            clip = self._work()
        except Exception as error:  # noqa: BLE001 (the end of the thread: nobody above could see it)
            self._listener.failed(error)
        else:
            self._listener.finished(clip)

    def _work(self) -> Clip:
        stream = self._start()
        with self._lock:
            self._stream = stream
            cancelled = self._cancelled
        if cancelled:
            stream.close()
            raise Cancelled("cancelled before any audio came")
        with stream:
            self._listener.began(stream.rate)
            samples = self._drain(stream)
        told = stream.epilogue
        return Clip(samples, stream.rate, stream.provenance, told.words, told.notes, told.similarity)

    def _drain(self, stream: SpeechStream) -> Samples:
        parts: list[Samples] = []
        arrivals: list[Arrival] = []
        told, due = 0, 0.0
        for samples in stream.pcm():
            parts.append(samples)
            arrivals.append((stream.arrivals[-1][0], samples.size))
            now = time.monotonic()
            if now >= due:
                self._listener.arrived(np.concatenate(parts[told:]), arrivals[told:])
                told, due = len(parts), max(due, now - (_AT_ONCE - 1) * _INTERVAL_S) + _INTERVAL_S
        if self._cancelled:
            raise Cancelled("cancelled as the last audio came")
        if told < len(parts):
            self._listener.arrived(np.concatenate(parts[told:]), arrivals[told:])
        return np.concatenate(parts) if parts else SILENT
