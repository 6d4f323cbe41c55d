"""Schedulers over the tiny model, which are closed at the end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing

import pytest

from tests.engine import tiny
from voicelab.engine.core.scheduler import Scheduler
from voicelab.engine.pointer.lm import LM

Begin = Callable[..., Scheduler]


@pytest.fixture
def begin(lm: LM) -> Iterator[Begin]:
    """A scheduler of so many rows, over another model where one is given."""
    with ExitStack() as stack:
        yield lambda rows, model=lm: stack.enter_context(closing(tiny.scheduler(model, rows)))


@pytest.fixture
def scheduler(begin: Begin) -> Scheduler:
    return begin(3)
