"""Later: work that is begun a moment after the last of several wishes for it, off the kernel's main thread."""

from __future__ import annotations

import threading
from collections.abc import Callable

__all__ = ["Later"]


class Later:
    """Calls ``does`` in a thread once nobody has asked for ``delay`` seconds; of calls at work, the newest counts.

    ``does`` gets a function that says whether its result is still wanted. The thread is there only while there is
    something to do. What ``does`` raises is its own affair: it should raise nothing.
    """

    def __init__(self, does: Callable[[Callable[[], bool]], object], delay: float = 0.15) -> None:
        self._does = does
        self._delay = delay
        self._awake = threading.Condition()
        self._asked = 0
        self._done = 0
        self._thread: threading.Thread | None = None
        self._closed = False

    def ask(self) -> None:
        """Wish for it."""
        with self._awake:
            self._asked += 1
            if self._closed:
                return
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="voicelab-later", daemon=True)
                self._thread.start()
            self._awake.notify_all()

    def settled(self, timeout: float) -> bool:
        """Wait until what was wished for is done, at most ``timeout`` seconds; returns whether it is."""
        with self._awake:
            return self._awake.wait_for(lambda: self._done == self._asked, timeout)

    def close(self) -> None:
        """Do no more."""
        with self._awake:
            self._closed = True
            self._awake.notify_all()

    def _run(self) -> None:
        while True:
            with self._awake:
                asked = self._asked
                # A new wish begins the wait anew.
                while self._awake.wait_for(lambda: self._closed or self._asked != asked, self._delay):  # noqa: B023
                    if self._closed:
                        return
                    asked = self._asked
            over = True
            try:
                self._does(lambda: self._asked == asked and not self._closed)  # noqa: B023
                over = False
            finally:
                with self._awake:
                    self._done = asked
                    self._awake.notify_all()
                    over = over or self._asked == asked
                    if over:
                        self._thread = None
            if over:
                return
