"""Concurrency of the service: a fair queue, work in threads, and transfer of audio from a thread to the event loop."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Hashable
from concurrent.futures import Executor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import ParamSpec, TypeVar

from voicelab.backend import SpeechStream

# Time for which a queue position is reserved while the body of a request arrives.
_ARRIVAL_TIMEOUT_S = 1.0

_P = ParamSpec("_P")
_T = TypeVar("_T")


async def run_in_executor(executor: Executor, function: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
    """Call ``function`` in a thread of ``executor``."""
    work = partial(function, *args, **kwargs)
    try:
        pending = asyncio.get_running_loop().run_in_executor(executor, work)
    except RuntimeError:
        # The executor is shut down because the service is stopping. Then it is acceptable to block the event loop.
        return work()
    return await pending


class QueueFull(Exception):
    """The queue is full, or a request waited too long. Internal to the service."""


@dataclass(frozen=True, slots=True, eq=False)
class Arrival:
    """Request whose headers have arrived. Its queue position is reserved until ``deadline``, in event loop time."""

    owner: Hashable
    deadline: float


class FairQueue:
    """Queue of at most ``active`` concurrent and ``waiting`` queued requests; a request waits at most ``seconds``.

    Owners are served round-robin. If the queue is full, a request of an owner with fewer queued requests displaces the
    newest request of the owner with the most. When its headers arrive, a request is either rejected or given a reserved
    position. The reservation ends after a second, so a request whose body takes longer to arrive is admitted or rejected
    when its body is complete. Used by one event loop.
    """

    def __init__(self, active: int, waiting: int, seconds: float) -> None:
        self._active = self._free = active
        self._capacity = waiting
        self._seconds = seconds
        self._queues: OrderedDict[Hashable, deque[asyncio.Future[None]]] = OrderedDict()
        self._arrivals: dict[Arrival, None] = {}  # oldest first

    @property
    def speaking(self) -> int:
        """Number of active requests."""
        return self._active - self._free

    @property
    def waiting(self) -> int:
        """Number of queued requests; safe to read from any thread."""
        return sum(map(len, tuple(self._queues.values())))

    def expect(self, owner: Hashable) -> Arrival:
        """Reserve a position for a request whose headers have arrived. Raises QueueFull.

        The caller must call ``arrived()`` when the body has arrived or the request has ended.
        """
        time_s = asyncio.get_running_loop().time()
        while self._arrivals and (oldest := next(iter(self._arrivals))).deadline <= time_s:
            del self._arrivals[oldest]
        if self._free + self._capacity <= self.waiting + len(self._arrivals):
            counts = Counter(arrival.owner for arrival in self._arrivals)
            counts.update({owner: len(queue) for owner, queue in self._queues.items()})
            largest = max(counts, key=lambda owner: counts[owner], default=None)
            if largest is None or counts[largest] <= counts[owner] + 1:
                raise QueueFull
            newest = next((arrival for arrival in reversed(self._arrivals) if arrival.owner == largest), None)
            if newest is not None:
                del self._arrivals[newest]
        arrival = Arrival(owner, time_s + _ARRIVAL_TIMEOUT_S)
        self._arrivals[arrival] = None
        return arrival

    def arrived(self, arrival: Arrival) -> None:
        """Release the reserved position; a second call has no effect."""
        self._arrivals.pop(arrival, None)

    async def enter(self, owner: Hashable) -> None:
        """Wait for a turn; the caller must call ``leave()`` afterwards. Raises QueueFull."""
        if self._free > 0:
            self._free -= 1
            return
        if self.waiting >= self._capacity:
            self._displace(owner)
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queues.setdefault(owner, deque()).append(turn)
        try:
            async with asyncio.timeout(self._seconds):
                await turn
        except TimeoutError:
            self._forget(owner, turn)
            raise QueueFull from None
        except asyncio.CancelledError:
            self._forget(owner, turn)
            raise

    def leave(self) -> None:
        """End a turn and give it to the next queued request."""
        while self._queues:
            owner, queue = self._queues.popitem(last=False)
            turn = queue.popleft()
            if queue:
                self._queues[owner] = queue  # at the end (round-robin)
            if not turn.done():
                turn.set_result(None)
                return
        self._free += 1

    def _displace(self, owner: Hashable) -> None:
        largest = max(self._queues, key=lambda owner: len(self._queues[owner]), default=None)
        if largest is None or len(self._queues[largest]) <= len(self._queues.get(owner, ())) + 1:
            raise QueueFull
        turn = self._queues[largest].pop()
        if not turn.done():
            turn.set_exception(QueueFull())

    def _forget(self, owner: Hashable, turn: asyncio.Future[None]) -> None:
        if turn.done() and not turn.cancelled() and turn.exception() is None:
            # The request got its turn and was cancelled at the same time, so give the turn to the next request.
            self.leave()
            return
        queue = self._queues.get(owner)
        if queue is not None and turn in queue:
            queue.remove(turn)
            if not queue:
                del self._queues[owner]


class ThreadBridge:
    """Buffer for the chunks of a stream between a worker thread and the event loop.

    ``run()`` runs in the thread: it opens, iterates and closes the stream, and blocks while ``limit`` bytes (and at least
    one chunk) are unread (backpressure). ``read()`` and ``stop()`` are for the event loop that created the buffer.
    """

    def __init__(self, open_stream: Callable[[], SpeechStream], limit: int) -> None:
        self._open_stream = open_stream
        self._limit = limit
        self._loop = asyncio.get_running_loop()
        self._arrival = asyncio.Event()
        # This condition guards the attributes below; the thread waits on it for space in the buffer.
        self._change = threading.Condition()
        self._chunks: deque[bytes] = deque()
        self._unread_bytes = 0
        self._stopped = False
        self._ended = False
        self._error: BaseException | None = None
        self._stream: SpeechStream | None = None
        self._waited_s = 0.0
        self.notes: tuple[str, ...] = ()
        """Notes of the stream at its first audio."""
        self.busy_s = 0.0
        """Synthesis time in seconds, excluding waits for the reader; available at the end."""

    @property
    def seed(self) -> int | None:
        """Seed of the stream, available at the first audio; None if the backend reports none."""
        return None if self._stream is None else self._stream.seed

    async def read(self) -> bytes | None:
        """Return the audio since the last call, at least one byte; None at the end.

        Raises the backend's error after all audio was read.
        """
        while True:
            self._arrival.clear()
            with self._change:
                if self._chunks:
                    audio = b"".join(self._chunks)
                    self._chunks.clear()
                    self._unread_bytes = 0
                    self._change.notify()
                    return audio
                if self._error is not None:
                    raise self._error
                if self._ended:
                    return None
            await self._arrival.wait()

    def stop(self) -> None:
        """End the thread at its next chunk. May be called repeatedly."""
        with self._change:
            self._stopped = True
            self._chunks.clear()
            self._change.notify()

    def close(self) -> None:
        """Cancel synthesis, from any thread. May block until the backend has stopped."""
        self.stop()
        if self._stream is not None:
            self._stream.close()

    def run(self) -> None:
        """Synthesize in this thread. Errors are raised by ``read()``."""
        start = time.perf_counter()
        try:
            if self._is_stopped():
                return
            self._stream = self._open_stream()
            with self._stream as stream:
                if self._is_stopped():
                    return
                for number, chunk in enumerate(stream):
                    if not number:
                        self.notes = stream.notes
                    if not self._put(chunk):
                        break
        except BaseException as error:  # noqa: BLE001 - read() raises it
            self._error = error
        finally:
            self.busy_s = time.perf_counter() - start - self._waited_s
            self._ended = True
            self._notify()

    def _is_stopped(self) -> bool:
        with self._change:
            return self._stopped

    def _put(self, chunk: bytes) -> bool:
        with self._change:
            start = time.perf_counter()
            while self._unread_bytes > 0 and self._unread_bytes + len(chunk) > self._limit and not self._stopped:
                self._change.wait()
            self._waited_s += time.perf_counter() - start
            if self._stopped:
                return False
            self._chunks.append(chunk)
            self._unread_bytes += len(chunk)
        self._notify()
        return True

    def _notify(self) -> None:
        # The loop is closed after a second signal.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._arrival.set)
