"""Work that would hold up the event loop, done in a thread."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from functools import partial
from typing import ParamSpec, TypeVar

__all__ = ["aside"]

_P = ParamSpec("_P")
_T = TypeVar("_T")


async def aside(executor: Executor, call: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
    """Return what ``call`` returns in a thread of ``executor``."""
    work = partial(call, *args, **kwargs)
    try:
        pending = asyncio.get_running_loop().run_in_executor(executor, work)
    except RuntimeError:
        # The service is shutting down and the threads have gone; nobody is kept waiting any more.
        return work()
    return await pending
