"""Lifecycle of open resources: closing in a ``with`` block, detection of forks, and delay of forks during computations.

Forks wait until the engine's matrix products end, because OpenBLAS hangs if the process forks during one.
"""

from __future__ import annotations

import os
import threading
from contextlib import ContextDecorator
from typing import Final, Self

from voicelab.errors import EngineError


class Closeable:
    """Context-manager mixin that calls ``close()`` at the end of a ``with`` block."""

    def close(self) -> None:
        """Release the resources."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class ProcessOwner:
    """The process that opened a resource. A fork of it shares connections of the resource, but has none of its threads."""

    def __init__(self) -> None:
        self._process = os.getpid()

    @property
    def forked(self) -> bool:
        """True in a fork of the process that opened the resource."""
        return os.getpid() != self._process

    def check(self, name: str) -> None:
        """Raise EngineError in a fork, where a call would wait for threads that do not exist."""
        if self.forked:
            raise EngineError(
                f"{name} was opened by the process {self._process} and does not work in a fork of it: call vl.connect() in "
                "the child, start processes by multiprocessing.get_context('spawn'), or give a sweep an executor="
            )


_TIMEOUT_S: Final = 10.0
"""Maximum delay of a fork in seconds. A step takes milliseconds, so a computation that takes longer hangs, and a hung
computation must not block the fork."""


class _Computing(ContextDecorator):
    """Context of a computation: a fork waits until all computations end, and new computations wait for the fork.

    Computations do not wait for each other. If a process forks while another thread computes a product, OpenBLAS waits
    forever for threads to end.
    """

    def __init__(self) -> None:
        self._reset()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(before=self._close, after_in_parent=self._open, after_in_child=self._reset)

    def _reset(self) -> None:
        self._changed, self._local = threading.Condition(), threading.local()
        self._active, self._is_closed = 0, False

    def __enter__(self) -> None:
        depth: int = getattr(self._local, "depth", 0)
        if depth == 0:
            with self._changed:
                self._changed.wait_for(lambda: not self._is_closed)
                self._active += 1
        self._local.depth = depth + 1

    def __exit__(self, *_: object) -> None:
        self._local.depth -= 1
        if self._local.depth == 0:
            with self._changed:
                self._active -= 1
                self._changed.notify_all()

    def _close(self) -> None:
        remaining = int(getattr(self._local, "depth", 0) > 0)  # that of the forking thread
        with self._changed:
            self._is_closed = True
            self._changed.wait_for(lambda: self._active <= remaining, _TIMEOUT_S)

    def _open(self) -> None:
        with self._changed:
            self._is_closed = False
            self._changed.notify_all()


COMPUTING: Final = _Computing()
"""Use ``with COMPUTING:`` or ``@COMPUTING`` for computations on a thread of the engine or of its caller."""
