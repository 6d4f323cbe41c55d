"""The event loop and the threads of backends: who may speak, work in a thread, and audio from a thread to the loop."""

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

# How long a request whose body is on its way holds a place.
_ARRIVING_SECONDS = 1.0

_P = ParamSpec("_P")
_T = TypeVar("_T")


async def run_in_executor(executor: Executor, function: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
    """Return what ``function`` returns in a thread of ``executor``."""
    work = partial(function, *args, **kwargs)
    try:
        pending = asyncio.get_running_loop().run_in_executor(executor, work)
    except RuntimeError:
        # The executor is shut down: the service is stopping, and nobody else is kept waiting by this call.
        return work()
    return await pending


class QueueFull(Exception):
    """There is no room in the queue, or no turn came in time. Never leaves the service."""


@dataclass(frozen=True, slots=True, eq=False)
class Arrival:
    """A request whose head is there; it may hold a place in the queue until ``until``, on the event loop's clock."""

    owner: Hashable
    until: float


class FairQueue:
    """Admits ``active`` callers at once and ``waiting`` wait, each at most ``seconds``.

    Owners take turns, so that one of them with many requests does not keep the others waiting; and
    when the queue is full, an owner with fewer waiting requests displaces the last one of the owner
    with the most. By its head alone a request is refused, or is sure of a place for as long as a body takes that is
    sent at once; slower bodies hold no place, and are decided on when they are there. For use on one event loop.
    """

    def __init__(self, active: int, waiting: int, seconds: float) -> None:
        self._active = self._free = active
        self._room = waiting
        self._seconds = seconds
        self._queues: OrderedDict[Hashable, deque[asyncio.Future[None]]] = OrderedDict()
        self._arrivals: dict[Arrival, None] = {}  # the oldest first

    @property
    def speaking(self) -> int:
        """Number of callers whose turn it is."""
        return self._active - self._free

    @property
    def waiting(self) -> int:
        """Number of callers in the queue; may be asked from any thread."""
        return sum(map(len, tuple(self._queues.values())))

    def expect(self, owner: Hashable) -> Arrival:
        """Decide by the head of a request, which calls ``arrived()`` before it enters or ends. Raises QueueFull."""
        now = asyncio.get_running_loop().time()
        while self._arrivals and (oldest := next(iter(self._arrivals))).until <= now:
            del self._arrivals[oldest]
        if self._free + self._room <= self.waiting + len(self._arrivals):
            shares = Counter(arrival.owner for arrival in self._arrivals)
            shares.update({other: len(queue) for other, queue in self._queues.items()})
            longest = max(shares, key=lambda other: shares[other], default=None)
            if longest is None or shares[longest] <= shares[owner] + 1:
                raise QueueFull
            last = next((one for one in reversed(self._arrivals) if one.owner == longest), None)
            if last is not None:
                del self._arrivals[last]
        arrival = Arrival(owner, now + _ARRIVING_SECONDS)
        self._arrivals[arrival] = None
        return arrival

    def arrived(self, arrival: Arrival) -> None:
        """Free the place of an arrival. May be called again."""
        self._arrivals.pop(arrival, None)

    async def enter(self, owner: Hashable) -> None:
        """Wait for a turn; the caller must ``leave()`` afterwards. Raises QueueFull."""
        if self._free > 0:
            self._free -= 1
            return
        if self.waiting >= self._room:
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
        """Hand the place to the next in turn."""
        while self._queues:
            owner, queue = self._queues.popitem(last=False)
            turn = queue.popleft()
            if queue:
                self._queues[owner] = queue  # at the end: the other owners come first
            if not turn.done():
                turn.set_result(None)
                return
        self._free += 1

    def _displace(self, owner: Hashable) -> None:
        longest = max(self._queues, key=lambda other: len(self._queues[other]), default=None)
        own = len(self._queues.get(owner, ()))
        if longest is None or len(self._queues[longest]) <= own + 1:
            raise QueueFull
        turn = self._queues[longest].pop()
        if not turn.done():
            turn.set_exception(QueueFull())

    def _forget(self, owner: Hashable, turn: asyncio.Future[None]) -> None:
        if turn.done() and not turn.cancelled() and turn.exception() is None:
            # The turn came in the same moment as the cancellation: it is the next one's.
            self.leave()
            return
        queue = self._queues.get(owner)
        if queue is not None and turn in queue:
            queue.remove(turn)
            if not queue:
                del self._queues[owner]


class ThreadBridge:
    """Carries the chunks of one stream from a worker thread to the event loop.

    ``run()`` runs in the thread: it opens the stream, iterates and closes it, and waits while ``limit``
    bytes (and at least one chunk) are unread, so that a slow reader holds up the voice and not memory.
    ``read()`` and ``stop()`` belong to the event loop on which the bridge was made.
    """

    def __init__(self, begin: Callable[[], SpeechStream], limit: int) -> None:
        self._begin = begin
        self._limit = limit
        self._loop = asyncio.get_running_loop()
        self._arrival = asyncio.Event()
        # Guards the attributes below; the thread waits on it for room.
        self._change = threading.Condition()
        self._chunks: deque[bytes] = deque()
        self._held = 0
        self._stopped = False
        self._ended = False
        self._error: BaseException | None = None
        self._stream: SpeechStream | None = None
        self._waited_s = 0.0
        self.notes: tuple[str, ...] = ()
        """Notes on the speech that are known with its first audio."""
        self.busy_s = 0.0
        """Seconds that the voice took, when the end has been read; waiting for room is not counted."""

    @property
    def seed(self) -> int | None:
        """The seed in use, set when the first audio is there; None when the backend reports none."""
        return None if self._stream is None else self._stream.seed

    async def read(self) -> bytes | None:
        """Return all audio that has arrived since the last call, at least a byte; None at the end.

        Raises what the backend raised, after all audio before it was read.
        """
        while True:
            self._arrival.clear()
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
            await self._arrival.wait()

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

    def run(self) -> None:
        """Speak. Never raises: an error is raised by ``read()``."""
        began = time.perf_counter()
        try:
            if self._is_stopped():
                return
            self._stream = self._begin()
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
            self.busy_s = time.perf_counter() - began - self._waited_s
            self._ended = True
            self._notify()

    def _is_stopped(self) -> bool:
        with self._change:
            return self._stopped

    def _put(self, chunk: bytes) -> bool:
        with self._change:
            began = time.perf_counter()
            while self._held > 0 and self._held + len(chunk) > self._limit and not self._stopped:
                self._change.wait()
            self._waited_s += time.perf_counter() - began
            if self._stopped:
                return False
            self._chunks.append(chunk)
            self._held += len(chunk)
        self._notify()
        return True

    def _notify(self) -> None:
        # The loop is closed when a second signal ended the service; then nobody waits.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._arrival.set)
