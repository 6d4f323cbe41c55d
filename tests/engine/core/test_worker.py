"""Failures inside the engine stay isolated, and unread streams are paused."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from collections.abc import Sequence as Rows
from functools import partial
from typing import cast

import numpy as np
import pytest
import torch

from tests.engine.core.conftest import Begin
from tests.engine.core.test_scheduler import PATIENCE, Reading, read, say
from tests.engine.tiny import numpy_lm, phonemes, sequence, spoken, until
from voicelab.engine.core.scheduler import RowStep, Scheduler
from voicelab.engine.core.sequence import MAX_UNREAD_FRAMES, Codes, Group, Sequence
from voicelab.engine.pointer.arrays import Floats
from voicelab.engine.pointer.family import PointerRunner
from voicelab.engine.pointer.lm import LM
from voicelab.engine.pointer.numpy_step import NumpyLM, NumpyStep
from voicelab.engine.pointer.rows import PointerRow, Step
from voicelab.errors import EngineError, EngineUnavailable


def _alone(begin: Begin, made: Sequence) -> list[tuple[int, ...]]:
    return spoken(say(begin(1), made)[0])


class Failing(PointerRunner):
    """Fails after the cache has been written, when the faulty sequence reaches a frame count."""

    def __init__(self, model: LM, rows: int) -> None:
        super().__init__(numpy_lm(model), rows)
        self._step = self._breaking()
        self.error: Exception | None = None
        self.ill: Sequence | None = None
        self.at = 5
        self.batches: list[int] = []

    def _breaking(self) -> Step:
        outer = self

        class Breaking(NumpyStep):
            def step(self, states: list[PointerRow], draws: list[Floats]) -> tuple[Codes, list[int]]:
                made = super().step(states, draws)
                outer.batches.append(len(states))
                ill = [outer.ill] if outer.ill is not None and outer.ill.frame_count >= outer.at else []
                if outer.error is not None and any(state.row == one.row for state in states for one in ill):
                    raise outer.error
                return made

        return Breaking(cast("NumpyLM", self.model), self.slow)


@pytest.fixture
def failing(lm: LM) -> Iterator[tuple[Scheduler, Failing]]:
    runner = Failing(lm, 3)
    made = Scheduler(lambda: runner, rows=3)
    yield made, runner
    made.close()


@pytest.mark.parametrize("at", [0, 1, 5, 23])
def test_failing_row_leaves_others_bit_identical(begin: Begin, failing: tuple[Scheduler, Failing], at: int) -> None:
    """The other sequences have the same codes as without the failure."""
    scheduler, runner = failing
    wanted = [_alone(begin, sequence(phonemes(40, i), seed=i)) for i in (1, 2)]
    made = [sequence(phonemes(40, 1), seed=1), sequence(phonemes(80, 0), seed=0), sequence(phonemes(40, 2), seed=2)]
    runner.ill, runner.error, runner.at = made[1], ValueError("planted"), at
    scheduler.submit(*made)
    readings = [Reading(one) for one in made]
    with pytest.raises(EngineError, match="planted"):
        readings[1].frames()
    assert [spoken(readings[i].frames()) for i in (0, 2)] == wanted
    assert max(runner.batches) == 3
    assert runner.batches.count(1) >= 3
    until(lambda: scheduler.load == (0, 0))
    runner.ill = None
    assert spoken(say(scheduler, sequence(phonemes(40, 1), seed=1))[0]) == wanted[0]


def test_non_finite_row_fails_alone(begin: Begin, scheduler: Scheduler) -> None:
    wanted = [_alone(begin, sequence(phonemes(40, i), seed=i)) for i in (1, 2)]
    ill = sequence(*[phonemes(500, i) for i in range(50)])
    scheduler.submit(ill)
    until(lambda: ill.frame_count > 3)
    healthy = [sequence(phonemes(40, i), seed=i) for i in (1, 2)]
    scheduler.submit(*healthy)
    readings = [Reading(one) for one in (ill, *healthy)]
    until(lambda: healthy[0].frame_count > 3)
    assert scheduler._worker is not None
    runner = scheduler._worker._runner
    assert isinstance(runner, PointerRunner)
    runner.rows[ill.row].voice = np.full_like(runner.rows[ill.row].voice, np.nan)
    with pytest.raises(EngineError, match="finite"):
        readings[0].frames()
    assert [spoken(reading.frames()) for reading in readings[1:]] == wanted


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        torch.OutOfMemoryError("CUDA out of memory"),
        RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 1 bytes"),
    ],
)
def test_out_of_memory_is_unavailable_and_recovers(failing: tuple[Scheduler, Failing], error: Exception) -> None:
    scheduler, runner = failing
    made = sequence(phonemes(20, 1), seed=1)
    runner.ill, runner.error = made, error
    with pytest.raises(EngineUnavailable, match="memory"):
        say(scheduler, made)
    runner.error = None
    assert say(scheduler, sequence(phonemes(20, 1), seed=1))[0][-1].ending == "text"


def test_dead_thread_is_replaced(scheduler: Scheduler, caplog: pytest.LogCaptureFixture) -> None:
    speaking, waiting = sequence(*[phonemes(500, i) for i in range(50)]), sequence(phonemes(500))
    scheduler.submit(speaking, waiting, *[sequence(phonemes(500, i)) for i in range(3)])
    until(lambda: speaking.frame_count > 3)
    worker = scheduler._worker
    assert worker is not None
    with caplog.at_level(logging.CRITICAL, "voicelab.engine"):
        setattr(worker, "_admit", None)  # noqa: B010 - breaks the loop outside of a step
        for one in (speaking, waiting):
            with pytest.raises(EngineUnavailable, match="restart"):
                Reading(one).frames()
        until(lambda: not worker.alive)
    health = [scheduler.healthy]
    assert caplog.records[0].exc_info is not None
    assert say(scheduler, sequence(phonemes(10)))[0][-1].ending == "text"
    assert [*health, scheduler.healthy] == [False, True]


def test_hung_thread_is_replaced_and_its_stack_logged(lm: LM, caplog: pytest.LogCaptureFixture) -> None:
    release, hangs = threading.Event(), threading.Event()

    class Hanging(PointerRunner):
        def step(self, rows: Rows[int]) -> list[RowStep]:
            if not hangs.is_set() and speaking.frame_count > 3:
                hangs.set()
                release.wait(PATIENCE)
            return super().step(rows)

    scheduler = Scheduler(partial(Hanging, numpy_lm(lm), 1), rows=1, step_timeout_s=3.0)
    speaking, waiting = sequence(phonemes(50)), sequence(phonemes(50))
    scheduler.submit(speaking, waiting)
    given_up = scheduler._worker
    with caplog.at_level(logging.CRITICAL, "voicelab.engine"):
        readings = [Reading(one) for one in (speaking, waiting)]  # readers detect the hang
        for reading in readings:
            with pytest.raises(EngineUnavailable, match="restart"):
                reading.frames()
    assert "release.wait(PATIENCE)" in caplog.text
    assert say(scheduler, sequence(phonemes(10)))[0][-1].ending == "text"
    assert given_up is not None
    release.set()  # the abandoned thread must have no effect
    until(lambda: not given_up.alive)
    assert scheduler.healthy
    scheduler.close()


def test_unread_stream_is_paused(scheduler: Scheduler) -> None:
    unread = sequence(*[phonemes(500, i) for i in range(50)])
    scheduler.submit(unread)
    frames = unread.frames()
    next(frames)
    until(unread.paused)
    time.sleep(0.1)
    assert unread._out.qsize() <= MAX_UNREAD_FRAMES + 1
    for _ in range(3 * MAX_UNREAD_FRAMES):  # reading resumes the stream
        next(frames)
    unread.cancel()
    scheduler.notify()


def test_paused_streams_yield_their_rows_and_resume(begin: Begin) -> None:
    """Paused streams are parked, and resume with the same codes."""
    texts = [[phonemes(500, 10 * i + j) for j in range(3)] for i in range(2)]
    wanted = [_alone(begin, sequence(*text, seed=i)) for i, text in enumerate(texts)]
    assert min(map(len, wanted)) > 1.5 * MAX_UNREAD_FRAMES
    scheduler = begin(2)
    unread = [sequence(*text, seed=i) for i, text in enumerate(texts)]
    scheduler.submit(*unread)
    until(lambda: all(one.paused() for one in unread))
    for frames in say(scheduler, *[sequence(phonemes(30, i), seed=i) for i in range(5)]):
        assert frames[-1].ending == "text"
    assert sum(scheduler.load) == 2
    assert [spoken(frames) for frames in read(unread)] == wanted
    until(lambda: scheduler.load == (0, 0))


def test_sequence_waiting_for_text_yields_its_row(begin: Begin) -> None:
    scheduler = begin(1)
    made = sequence(phonemes(5, 1))
    hungry = Sequence(made.voice, made.settings, 0, 100)
    hungry.add(phonemes(5, 1))
    scheduler.submit(hungry)
    until(lambda: hungry.segment == 0 and not hungry.speaking)
    assert say(scheduler, made)[0][-1].ending == "text"
    hungry.add(phonemes(6, 2))
    hungry.finish()
    scheduler.notify()
    whole = _alone(begin, sequence(phonemes(5, 1), phonemes(6, 2), max_frames=100))
    assert spoken(Reading(hungry).frames()) == whole


def test_parked_sequence_can_be_cancelled(begin: Begin) -> None:
    scheduler = begin(1)
    unread = sequence(*[phonemes(500, i) for i in range(50)])
    scheduler.submit(unread)
    until(unread.paused)
    assert say(scheduler, sequence(phonemes(3)))[0]
    unread.cancel()
    scheduler.notify()
    until(lambda: scheduler.load == (0, 0))


def test_lockstep_group_starts_together(begin: Begin) -> None:
    """With any number of busy rows it waits for its rows, and is cut at the same frame."""

    def lengths(busy: int) -> list[int]:
        scheduler = begin(4)
        before = [sequence(phonemes(40 + 20 * i, 90 + i)) for i in range(busy)]
        group = Group(4, 0.5)
        made = [sequence(phonemes(n, n), seed=n, group=group) for n in (30, 60, 90, 120)]
        scheduler.submit(*before)
        scheduler.submit(*made)
        return [len(spoken(frames)) for frames in read([*before, *made])][busy:]

    alone = lengths(0)
    assert all(lengths(busy) == alone for busy in (1, 3, 6))
