"""The engine's two threads, one that steps the model and one that makes audio of its codes: each works by itself."""

from __future__ import annotations

import heapq
import itertools
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar, cast

import torch

from voicelab.errors import EngineError

Made = TypeVar("Made")


class OneThread:
    """A thread on which one piece of work is done after the other, for whoever asks; what is short goes first.

    What many threads give torch at once is shared by each of them among as many more, which then wait for each other.
    """

    def __init__(self, name: str) -> None:
        self._pool = ThreadPoolExecutor(1, name, initializer=work_alone)
        self._lock = threading.Lock()
        self._waiting: list[tuple[int, int, Callable[[], object], Future[object]]] = []
        self._asked = itertools.count()

    def do(self, work: Callable[[], Made], size: int = 0) -> Made:
        """What `work` returns, or raises; among those that wait, the one of the smallest `size` is next.

        Raises:
            EngineError: it is closed.
        """
        made: Future[Made] = Future()
        with self._lock:
            heapq.heappush(self._waiting, (size, next(self._asked), work, cast("Future[object]", made)))
        try:
            self._pool.submit(self._next)
        except RuntimeError as error:
            raise EngineError("the engine is closed") from error
        return made.result()

    def close(self) -> None:
        """Ends the thread when what it was given is done."""
        self._pool.shutdown()

    def _next(self) -> None:
        with self._lock:
            _, _, work, made = heapq.heappop(self._waiting)
        try:
            made.set_result(work())
        except BaseException as error:  # noqa: BLE001 - it is raised where it was asked for
            made.set_exception(error)


def work_alone() -> None:
    """Lets torch share the operations of this thread with no other; all others, and those to come, go on as they were.

    The number of threads is each thread's own, but what was set last is what later ones begin with: so it is set again.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    again = threading.Thread(target=torch.set_num_threads, args=(before,))
    again.start()
    again.join()
