"""Fixtures: schedulers of the tiny model, closed after the test."""

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
    """Factory of schedulers with a number of rows, optionally with another model."""
    with ExitStack() as stack:
        yield lambda rows, model=lm: stack.enter_context(closing(tiny.scheduler(model, rows)))


@pytest.fixture
def scheduler(begin: Begin) -> Scheduler:
    return begin(3)
