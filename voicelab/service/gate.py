"""Who may speak now: a bounded number at once, a bounded queue, and turns between callers."""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import Hashable

__all__ = ["Full", "Gate"]


class Full(Exception):
    """There is no room in the queue, or no turn came in time. Never leaves the service."""


class Gate:
    """Lets ``active`` callers in at once and ``waiting`` wait, each at most ``seconds``.

    Owners take turns, so that one of them with many requests does not keep the others waiting; and
    when the queue is full, an owner with fewer waiting requests displaces the last one of the owner
    with the most. For use on one event loop.
    """

    def __init__(self, active: int, waiting: int, seconds: float) -> None:
        self._free = active
        self._room = waiting
        self._seconds = seconds
        self._queues: OrderedDict[Hashable, deque[asyncio.Future[None]]] = OrderedDict()

    @property
    def waiting(self) -> int:
        """Number of callers in the queue."""
        return sum(map(len, self._queues.values()))

    async def enter(self, owner: Hashable) -> None:
        """Wait for a turn; the caller must ``leave()`` afterwards. Raises Full."""
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
            raise Full from None
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
            raise Full
        turn = self._queues[longest].pop()
        if not turn.done():
            turn.set_exception(Full())

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
