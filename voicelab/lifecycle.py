"""Lifecycle of open resources: closing in a ``with`` block, and detection of forks."""

from __future__ import annotations

import os
from typing import Self

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
    """Process that opened a resource. A fork shares the resource's connections, but lacks its threads."""

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
