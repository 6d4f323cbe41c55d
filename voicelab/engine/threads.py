"""The engine's two threads, one that steps the model and one that makes audio of its codes: each works by itself."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch

from voicelab.errors import EngineError

Made = TypeVar("Made")


class OneThread:
    """A thread on which one piece of work is done after the other, for whoever asks.

    What many threads give torch at once is shared by each of them among as many more, which then wait for each other.
    """

    def __init__(self, name: str) -> None:
        self._pool = ThreadPoolExecutor(1, name, initializer=work_alone)

    def do(self, work: Callable[[], Made]) -> Made:
        """What `work` returns, or raises.

        Raises:
            EngineError: it is closed.
        """
        try:
            waiting = self._pool.submit(work)
        except RuntimeError as error:
            raise EngineError("the engine is closed") from error
        return waiting.result()

    def close(self) -> None:
        """Ends the thread when what it was given is done."""
        self._pool.shutdown()


def work_alone() -> None:
    """Lets torch share the operations of this thread with no other; all others, and those to come, go on as they were.

    The number of threads is each thread's own, but what was set last is what later ones begin with: so it is set again.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    again = threading.Thread(target=torch.set_num_threads, args=(before,))
    again.start()
    again.join()
