"""Remembers the latest of what takes long to make. Each is made once, however many ask for it at the same time."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from typing import Generic, TypeVar

Made = TypeVar("Made")


class Latest(Generic[Made]):
    """The latest ``most`` things that were made, by their keys."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._made: OrderedDict[Hashable, Future[Made]] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: Hashable, make: Callable[[], Made]) -> Made:
        """Return what `make` made for a key; whoever asks meanwhile waits for it. What failed is not remembered.

        Raises what `make` raises, in all who wait for it.
        """
        while True:
            made, mine = self._place(key)
            if mine:
                return self._make(key, made, make)
            try:
                return made.result()
            except _Interrupted:
                continue

    def _place(self, key: Hashable) -> tuple[Future[Made], bool]:
        """Where what belongs to a key is or will be, and whether it is the caller's to make."""
        with self._lock:
            made = self._made.get(key)
            if made is not None:
                self._made.move_to_end(key)
                return made, False
            made = self._made[key] = Future()
            while len(self._made) > self._most:
                self._made.popitem(last=False)
            return made, True

    def _make(self, key: Hashable, made: Future[Made], make: Callable[[], Made]) -> Made:
        try:
            result = make()
        except BaseException as error:
            with self._lock:
                if self._made.get(key) is made:
                    del self._made[key]
            # Ctrl-C is for the one thread only: whoever waits goes on in its place.
            made.set_exception(error if isinstance(error, Exception) else _Interrupted())
            raise
        made.set_result(result)
        return result


class _Interrupted(Exception):
    """Whoever made it was called away."""
