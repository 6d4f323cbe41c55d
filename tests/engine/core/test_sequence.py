"""Groups, and the queue between scheduler and reader."""

from __future__ import annotations

import numpy as np
import pytest

from tests.engine.tiny import sequence
from voicelab.engine.core.sequence import Frame, Group
from voicelab.errors import Cancelled, EngineError


@pytest.mark.parametrize(
    ("size", "threshold", "enough"),
    [(4, 0.5, 2), (4, 0.51, 3), (4, 0.0, 1), (3, 0.34, 2), (1, 0.5, 1), (10, 0.99, 10), (4, 0.25, 1)],
)
def test_group_is_over_at_its_threshold(size: int, threshold: float, enough: int) -> None:
    group = Group(size, threshold)
    for _ in range(enough):
        assert not group.over
        group.count_ended()
    assert group.over


def test_frames_end_at_none() -> None:
    made = sequence()
    made.put(Frame(0, None, ending="text"))
    made.put(None)
    assert [frame.ending for frame in made.frames()] == ["text"]


def test_frames_are_delivered_at_wake_at() -> None:
    """A segment's first frame and its end at once; in between, batches of the size the reader waits for."""
    made, codes = sequence(), np.zeros(4, np.int64)
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


def test_error_is_raised_after_earlier_frames() -> None:
    made = sequence()
    made.put(Frame(0, None))
    made.put(EngineError("broken"))
    frames = made.frames()
    next(frames)
    with pytest.raises(EngineError, match="broken"):
        next(frames)


def test_reading_a_cancelled_sequence_raises_cancelled() -> None:
    made = sequence()
    made.cancel()
    assert made.cancelled
    with pytest.raises(Cancelled):
        list(made.frames())
