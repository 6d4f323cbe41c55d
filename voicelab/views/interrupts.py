"""Stop the work of panels when the kernel is interrupted, since their threads get no KeyboardInterrupt."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from voicelab.views.background import Task

_RETRY_S: Final = 0.2

_stops: Final[list[Callable[[], object]]] = []
_watched: Final[set[int]] = set()


@contextmanager
def interruptible(stop: Callable[[], object]) -> Iterator[None]:
    """Call ``stop`` if the kernel is interrupted during the block, whether or not a cell is running."""
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
    """Start watching for kernel interrupts, once; do nothing outside a kernel."""
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
