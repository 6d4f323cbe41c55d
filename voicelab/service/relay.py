"""Audio from a backend's thread to the event loop: bounded, and cancelled from either end."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress

from voicelab.backend import SpeechStream

__all__ = ["Relay"]


class Relay:
    """Carries the chunks of one stream from a worker thread to the event loop.

    ``work()`` runs in the thread: it opens the stream, iterates and closes it, and waits while ``limit``
    bytes (and at least one chunk) lie untaken, so that a slow reader holds up the voice and not memory.
    ``take()`` and ``stop()`` belong to the event loop on which the relay was made.
    """

    def __init__(self, begin: Callable[[], SpeechStream], limit: int) -> None:
        self._begin = begin
        self._limit = limit
        self._loop = asyncio.get_running_loop()
        self._news = asyncio.Event()
        # Guards what follows; the thread waits on it for room.
        self._change = threading.Condition()
        self._chunks: deque[bytes] = deque()
        self._held = 0
        self._stopped = False
        self._ended = False
        self._error: BaseException | None = None
        self._stream: SpeechStream | None = None

    @property
    def seed(self) -> int | None:
        """The seed in use, known once the first audio is there; None when the backend tells none."""
        return None if self._stream is None else self._stream.seed

    async def take(self) -> bytes | None:
        """Return all audio that has come since the last call, at least a byte; None at the end.

        Raises what the backend raised, once all audio before it has been taken.
        """
        while True:
            self._news.clear()
            with self._change:
                if self._chunks:
                    audio = b"".join(self._chunks)
                    self._chunks.clear()
                    self._held = 0
                    self._change.notify()
                    return audio
                if self._error is not None:
                    raise self._error
                if self._ended:
                    return None
            await self._news.wait()

    def stop(self) -> None:
        """Let the thread end at its next chunk. May be called twice, or after the end."""
        with self._change:
            self._stopped = True
            self._chunks.clear()
            self._change.notify()

    def close(self) -> None:
        """Cancel the work at once, from any thread. It may take a while: the backend decides."""
        self.stop()
        if self._stream is not None:
            self._stream.close()

    def work(self) -> None:
        """Speak. Never raises: an error is handed to ``take()``."""
        try:
            if self._gone():
                return
            self._stream = self._begin()
            with self._stream as stream:
                if self._gone():
                    return
                for chunk in stream:
                    if not self._put(chunk):
                        break
        except BaseException as error:  # noqa: BLE001 - it is raised on the other side
            self._error = error
        finally:
            self._ended = True
            self._tell()

    def _gone(self) -> bool:
        with self._change:
            return self._stopped

    def _put(self, chunk: bytes) -> bool:
        with self._change:
            while self._held > 0 and self._held + len(chunk) > self._limit and not self._stopped:
                self._change.wait()
            if self._stopped:
                return False
            self._chunks.append(chunk)
            self._held += len(chunk)
        self._tell()
        return True

    def _tell(self) -> None:
        # The loop is closed when a second signal ended the service; then nobody waits.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._news.set)
