"""The scheduler: batching, segments, cancellation, failures, groups and closing."""

from __future__ import annotations

import dataclasses
import threading
import weakref
from collections.abc import Sequence as Rows
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch

from tests.engine.core.conftest import Begin
from tests.engine.tiny import BOTH, CODEBOOKS, LANGUAGE, LIVELY, make_lm, phonemes, sequence, spoken, until, voice
from tests.engine.tiny import scheduler as scheduler_of
from voicelab.engine.core.scheduler import RowStep, Scheduler
from voicelab.engine.core.sequence import Frame, Group, Sequence, Settings
from voicelab.engine.pointer.family import PointerRunner
from voicelab.engine.pointer.lm import LM
from voicelab.engine.pointer.speakers import SpeakerFit
from voicelab.errors import Cancelled, EngineError

PATIENCE = 30.0
"""Timeout in seconds."""


class Reading:
    """Reads a sequence in a daemon thread, with a timeout."""

    def __init__(self, made: Sequence) -> None:
        self._found: Future[list[Frame]] = Future()
        threading.Thread(target=self._run, args=(made,), daemon=True).start()

    def _run(self, made: Sequence) -> None:
        try:
            self._found.set_result(list(made.frames()))
        except BaseException as error:  # noqa: BLE001 - re-raised by frames()
            self._found.set_exception(error)

    def frames(self) -> list[Frame]:
        """All frames; TimeoutError if the sequence neither ends nor fails."""
        return self._found.result(PATIENCE)


def say(scheduler: Scheduler, *made: Sequence) -> list[list[Frame]]:
    scheduler.submit(*made)
    return read(made)


def read(made: Rows[Sequence]) -> list[list[Frame]]:
    return [reading.frames() for reading in [Reading(one) for one in made]]


def _endless() -> Sequence:
    return sequence(*[phonemes(500, i) for i in range(2000)])


def test_segment_is_synthesized_to_its_end(scheduler: Scheduler) -> None:
    (frames,) = say(scheduler, sequence(phonemes(20)))
    assert frames[-1] == Frame(0, None, ending="text")
    assert all(frame.codes is not None and frame.codes.shape == (3,) for frame in frames[:-1])
    for code in spoken(frames):
        assert all(0 <= c < size for c, size in zip(code, CODEBOOKS, strict=True))
    phones = [frame.position for frame in frames[:-1]]
    assert phones[0] == 0
    assert phones == sorted(phones)
    assert phones[-1] < 20
    assert max(phones.count(p) for p in phones) <= LANGUAGE.dwell


def test_seed_gives_equal_codes_alone_and_in_a_batch(begin: Begin) -> None:
    alone = []
    for seed in range(7):
        alone.extend(say(begin(1), sequence(phonemes(30, seed), seed=seed, speaker_seed=seed)))
    together = say(begin(3), *[sequence(phonemes(30, s), seed=s, speaker_seed=s) for s in range(7)])
    assert [spoken(frames) for frames in together] == [spoken(frames) for frames in alone]
    assert len({tuple(spoken(frames)) for frames in together}) == 7


def test_segments_of_a_sequence_continue(scheduler: Scheduler) -> None:
    (frames,) = say(scheduler, sequence(phonemes(10, 1), phonemes(12, 2), phonemes(4, 3)))
    ends = [i for i, frame in enumerate(frames) if frame.codes is None]
    assert [frames[i].segment for i in ends] == [0, 1, 2]
    assert ends[-1] == len(frames) - 1
    for segment, (start, stop) in enumerate(zip([-1, *ends], ends, strict=False)):
        assert {frame.segment for frame in frames[start + 1 : stop]} == {segment}
        assert frames[start + 1].position == 0
    (alone,) = say(scheduler, sequence(phonemes(12, 2)))
    assert spoken(frames[ends[0] + 1 : ends[1]]) != spoken(alone)  # conditioned on the previous segment


def test_segments_can_be_added_later(scheduler: Scheduler) -> None:
    made = Sequence(voice(), LIVELY, 0, 100)
    made.add(phonemes(5, 1))
    scheduler.submit(made)
    reading = Reading(made)
    until(lambda: made.segment == 0 and not made.speaking)
    made.add(phonemes(6, 2))
    scheduler.notify()
    until(lambda: made.segment == 1 and not made.speaking)
    assert scheduler.load == (1, 0)
    made.finish()
    scheduler.notify()
    assert [f.ending for f in reading.frames() if f.ending] == ["text", "text"]
    whole = say(scheduler, sequence(phonemes(5, 1), phonemes(6, 2), max_frames=100))[0]
    assert spoken(reading.frames()) == spoken(whole)


def test_max_frames_cuts_each_segment(scheduler: Scheduler) -> None:
    (frames,) = say(scheduler, sequence(phonemes(200, 1), phonemes(200, 2), max_frames=7))
    assert [frame.ending for frame in frames if frame.codes is None] == ["max_new_tokens"] * 2
    assert [sum(f.segment == s and f.codes is not None for f in frames) for s in (0, 1)] == [7, 7]


def test_cancelled_sequence_frees_its_row(begin: Begin) -> None:
    scheduler = begin(1)
    endless = _endless()
    scheduler.submit(endless)
    next(endless.frames())
    waiting = sequence(phonemes(3))
    scheduler.submit(waiting)
    assert scheduler.load == (1, 1)
    spoken_by_then = endless.frame_count
    endless.cancel()
    scheduler.notify()
    assert Reading(waiting).frames()[-1].ending == "text"
    assert endless.frame_count < spoken_by_then + 2000
    with pytest.raises(Cancelled):
        Reading(endless).frames()


def test_queued_sequence_can_be_cancelled(begin: Begin) -> None:
    scheduler = begin(1)
    first, second, third = (sequence(phonemes(60, i)) for i in range(3))
    second.cancel()
    scheduler.submit(first, second, third)
    assert Reading(first).frames()
    assert Reading(third).frames()
    assert second.frame_count == 0
    with pytest.raises(Cancelled):
        Reading(second).frames()


def test_sequence_waiting_for_text_can_be_cancelled(scheduler: Scheduler) -> None:
    made = Sequence(voice(), LIVELY, 0, 100)
    scheduler.submit(made)
    until(lambda: scheduler.load == (1, 0))
    made.cancel()
    scheduler.notify()
    until(lambda: scheduler.load == (0, 0))


# Weights that NumpyLM does not copy, so that restoring them takes effect.
@pytest.mark.parametrize(
    "name", ["slow.blocks.0.norm_attention.weight", "depth.blocks.0.norm_mlp.weight", "speaker.0.bias"]
)
def test_failure_is_raised_and_later_sequences_succeed(name: str, begin: Begin) -> None:
    lm = make_lm()
    scheduler = begin(2, lm)
    healthy = dict(lm.named_parameters())[name].clone()
    dict(lm.named_parameters())[name].fill_(torch.nan)
    made = [sequence(phonemes(10, i)) for i in range(3)]
    scheduler.submit(*made)
    for one in made:
        with pytest.raises(EngineError, match="finite") as caught:
            Reading(one).frames()
        assert caught.value.__cause__ is not caught.value  # a cycle would make tracebacks endless
    dict(lm.named_parameters())[name].copy_(healthy)
    # A long and a short sequence: attention reads the short row beyond its length, where the failure wrote NaN.
    for frames in say(scheduler, sequence(phonemes(60, 1)), sequence(phonemes(40, 2))):
        assert frames[-1].ending == "text"
    late = say(scheduler, sequence(phonemes(80, 3)), sequence(phonemes(5, 4)), sequence(phonemes(5, 5)))
    assert all(frames[-1].ending == "text" for frames in late)
    until(lambda: scheduler.load == (0, 0))


@pytest.mark.parametrize("made", BOTH)
def test_failed_rows_are_cleared_for_later_sequences(made: Any) -> None:
    """Non-finite values late in a row must not leak into a later, shorter row next to a longer one."""
    lm = make_lm()
    scheduler = Scheduler(partial(PointerRunner, made(lm), 2), 2)
    first, ill, weight = _endless(), _endless(), dict(lm.named_parameters())["slow.blocks.0.norm_attention.weight"]
    scheduler.submit(first)
    scheduler.submit(ill)
    until(lambda: ill.frame_count > 8)
    healthy = weight.clone()
    weight.fill_(torch.nan)
    for failing in (first, ill):
        with pytest.raises(EngineError, match="finite"):
            Reading(failing).frames()
    weight.copy_(healthy)
    beside, found = _endless(), sequence(phonemes(20, 1), seed=1)
    scheduler.submit(beside)
    until(lambda: beside.frame_count > 40)
    scheduler.submit(found)
    assert Reading(found).frames()[-1].ending == "text"
    assert (ill.row, beside.row, found.row) == (1, 0, 1)
    scheduler.close()


def test_invalid_segment_fails_only_its_sequence(scheduler: Scheduler) -> None:
    """A phone outside the inventory, and a speaker of another checkpoint: other sequences continue."""
    stranger = sequence(dataclasses.replace(phonemes(4), phones=(1, 2, 3, 9999)))
    foreign = Sequence(SpeakerFit(np.zeros(3, np.float32), np.zeros(3, np.float32)), LIVELY, 0, 100)
    foreign.add(phonemes(4))
    foreign.finish()
    good = [sequence(phonemes(30, i), seed=i) for i in range(4)]
    scheduler.submit(good[0], stranger, foreign, *good[1:])
    for bad in (stranger, foreign):
        with pytest.raises(EngineError, match="synthesis failed"):
            Reading(bad).frames()
    for one in good:
        assert Reading(one).frames()[-1].ending == "text"
    until(lambda: scheduler.load == (0, 0))


class Numbers:
    """A minimal family: a segment is a number of frames, codes count them, and the end is a step without a frame."""

    def __init__(self) -> None:
        self.rows: dict[int, list[int]] = {}

    def admit(self, row: int, voice: int, settings: Settings, seed: int) -> None:
        self.rows[row] = [voice, 0, 0]

    def add_segment(self, row: int, segment: int) -> None:
        self.rows[row][2] += segment

    def step(self, rows: Rows[int]) -> list[RowStep]:
        steps = []
        for state in map(self.rows.__getitem__, rows):
            ended = state[1] == state[2]
            state[1] += not ended
            steps.append(RowStep(None if ended else np.array([state[0], state[1]]), ended=ended))
        return steps

    def park(self, row: int) -> list[int]:
        return self.rows.pop(row)

    def resume(self, row: int, parked: list[int]) -> None:
        self.rows[row] = parked

    def discard(self, row: int) -> None: ...

    def free_memory(self) -> None: ...


def test_scheduler_is_independent_of_the_family() -> None:
    """No dependence on phones: a segment may end without a frame, also at once; parked state is opaque."""
    scheduler = Scheduler(Numbers, rows=2)
    made = [Sequence(number, LIVELY, 0, 50) for number in range(5)]
    for one in made:
        one.add(3)
        one.finish()
    waiting = Sequence(9, LIVELY, 0, 50)
    waiting.add(2)
    scheduler.submit(waiting, *made)
    for number, frames in enumerate(read(made)):
        assert spoken(frames) == [(number, count) for count in (1, 2, 3)]
        assert (frames[-1].ending, frames[0].position) == ("text", -1)
    for length in (0, 60):
        waiting.add(length)
    waiting.finish()
    scheduler.notify()
    (frames,) = read([waiting])
    assert spoken(frames) == [(9, count) for count in range(1, 53)]
    assert [frame.ending for frame in frames if frame.ending] == ["text", "text", "max_new_tokens"]
    scheduler.close()


class Counting(Numbers):
    """Returns its thread count as codes; a row has room for three frames."""

    def step(self, rows: Rows[int]) -> list[RowStep]:
        for row in rows:
            self.rows[row][1] += 1
        return [RowStep(np.array([torch.get_num_threads()]), full=self.rows[row][1] == 3) for row in rows]


@pytest.mark.parametrize("threads", [1, 2])
def test_step_uses_its_thread_count_and_full_rows_are_cut(threads: int) -> None:
    scheduler, one = Scheduler(Counting, rows=1, threads=threads), Sequence(0, LIVELY, 0, 50)
    one.add(1)
    one.finish()
    (frames,) = say(scheduler, one)
    assert spoken(frames) == [(threads,)] * 3
    assert [frame.cut for frame in frames] == [False, False, True, False]
    assert frames[-1].ending == "no_room"
    scheduler.close()


def test_close_fails_running_sequences(begin: Begin) -> None:
    scheduler = begin(1)
    speaking, waiting = _endless(), _endless()
    hungry = Sequence(voice(), LIVELY, 0, 100)
    scheduler.submit(speaking, waiting, hungry)
    reading = [Reading(one) for one in (speaking, waiting, hungry)]
    until(lambda: speaking.frame_count > 3)
    worker = scheduler._worker
    assert worker is not None
    scheduler.close()
    for found in reading:
        with pytest.raises(EngineError, match="closed"):
            found.frames()
    with pytest.raises(EngineError, match="closed"):
        scheduler.submit(sequence(phonemes(3)))
    scheduler.close()
    assert not worker.alive


def test_unreferenced_scheduler_finishes_and_ends_its_thread(lm: LM) -> None:
    scheduler = scheduler_of(lm, rows=2)
    made = sequence(phonemes(60))
    scheduler.submit(made)
    worker, known = scheduler._worker, weakref.ref(scheduler)
    assert worker is not None
    del scheduler
    assert known() is not None
    assert Reading(made).frames()[-1].ending == "text"
    del made
    until(lambda: known() is None)
    until(lambda: not worker.alive)


def test_close_before_first_use(scheduler: Scheduler) -> None:
    scheduler.close()
    with pytest.raises(EngineError, match="closed"):
        scheduler.submit(sequence(phonemes(3)))


@pytest.mark.parametrize("threshold", [0.0, 0.5, 0.75, 1.0])
def test_group_stops_early_at_its_threshold(threshold: float, begin: Begin) -> None:
    group = Group(4, threshold)
    lengths = (4, 40, 200, 1000 if threshold < 1 else 220)
    found = say(begin(4), *[sequence(phonemes(n, n), group=group) for n in lengths])
    ended = max(1, round(threshold * 4))
    endings = [frames[-1].ending for frames in found]
    assert endings == ["text"] * ended + ["early_stop"] * (4 - ended)
    last = len(spoken(found[ended - 1]))
    for frames in found[ended:]:
        assert last <= len(spoken(frames)) <= last + 1


def test_concurrent_submit_and_cancel(scheduler: Scheduler) -> None:

    def one(number: int) -> str | None:
        made = sequence(phonemes(20, number), seed=number) if number % 3 else _endless()
        scheduler.submit(made)
        if number % 3 == 0:
            next(made.frames())
            made.cancel()
            scheduler.notify()
        try:
            return Reading(made).frames()[-1].ending
        except Cancelled:
            return "cancelled"

    with ThreadPoolExecutor(24) as pool:
        assert list(pool.map(one, range(24))) == ["text" if i % 3 else "cancelled" for i in range(24)]
    until(lambda: scheduler.load == (0, 0))
