"""Groups, and a sequence's two ends."""

from __future__ import annotations

import pytest
import torch

from tests.engine.tiny import sequence
from voicelab.engine.core.sequence import Frame, Group
from voicelab.errors import Cancelled, EngineError


@pytest.mark.parametrize(
    ("size", "threshold", "enough"),
    [(4, 0.5, 2), (4, 0.51, 3), (4, 0.0, 1), (3, 0.34, 2), (1, 0.5, 1), (10, 0.99, 10), (4, 0.25, 1)],
)
def test_a_group_is_over_once_the_share_has_ended(size: int, threshold: float, enough: int) -> None:
    group = Group(size, threshold)
    for _ in range(enough):
        assert not group.over
        group.end_one()
    assert group.over


def test_frames_come_until_the_end() -> None:
    made = sequence()
    made.put(Frame(0, None, ending="text"))
    made.put(None)
    assert [frame.ending for frame in made.frames()] == ["text"]


def test_frames_come_when_the_reader_needs_them() -> None:
    """The first of a segment and its end at once, between them as many together as the reader waits for."""
    made, codes = sequence(), torch.zeros(4, dtype=torch.int64)
    made.wake_at = 4
    arrived = []
    for item in [*[Frame(0, codes)] * 6, Frame(0, None, ending="text"), *[Frame(1, codes)] * 2]:
        made.put(item)
        arrived.append(made._out.qsize())
    assert arrived == [1, 1, 1, 2, 3, 4, 5, 6, 7]
    made.wake_at = 99
    for _ in range(3):
        made.put(Frame(1, codes))
    assert (made.unread, made._out.qsize()) == (11, 7)
    made.put(None)
    assert [frame.segment for frame in made.frames()] == [0] * 7 + [1] * 5
    assert made.unread == 0


def test_an_error_comes_out_after_the_frames_before_it() -> None:
    made = sequence()
    made.put(Frame(0, None))
    made.put(EngineError("broken"))
    frames = made.frames()
    next(frames)
    with pytest.raises(EngineError, match="broken"):
        next(frames)


def test_who_reads_a_cancelled_sequence_is_told() -> None:
    made = sequence()
    made.cancel()
    assert made.cancelled
    with pytest.raises(Cancelled):
        list(made.frames())
