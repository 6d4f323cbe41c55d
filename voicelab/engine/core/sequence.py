"""One stream of speech in the scheduler: its segments, position and ending."""

from __future__ import annotations

import queue
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from voicelab.errors import Cancelled

Codes = NDArray[np.int64]
MAX_UNREAD_FRAMES = 430
"""Unread frames (20 s) at which a stream is paused until its reader catches up."""
_POLL_S = 1.0

Ending = Literal["text", "max_new_tokens", "early_stop", "no_room"]
"""Why a segment ended: the model ended it, a field of the request did, or the model has no positions left."""


@dataclass(frozen=True)
class Settings:
    """Sampling settings of a sequence; the fields are those of the request."""

    temperature: float = 0.7
    """0 means greedy sampling."""
    top_p: float = 0.7
    repetition_penalty: float = 1.2


@dataclass(frozen=True)
class Frame:
    """One frame of codes, or the end of a segment."""

    segment: int
    codes: Codes | None
    """Codes (codebooks,); None at the end of the segment."""
    position: int = -1
    """Position in the segment to which the frame belongs; see `scheduler.RowStep`."""
    ending: Ending | None = None
    cut: bool = False
    """Whether speech is cut off after this frame; the end of the segment, which has the reason, follows at once."""


class Group:
    """Segments synthesized as a batch: once the fraction `threshold` of them has ended, the remaining ones are stopped."""

    def __init__(self, size: int, threshold: float) -> None:
        self.size = size
        self.begun = False
        self._threshold, self._ended = threshold, 0

    @property
    def in_step(self) -> bool:
        """Whether all members are stepped together, so that other sequences do not affect where they are stopped."""
        return self._threshold < 1

    def count_ended(self) -> None:
        """Record that a member ended without being stopped."""
        self._ended += 1

    @property
    def over(self) -> bool:
        """Whether the remaining members must stop."""
        return self.in_step and self._ended >= max(1, self._threshold * self.size)


@dataclass(eq=False)
class Sequence:
    """A sequence of segments that are spoken in order, each as the continuation of the previous one.

    The caller's thread fills it with `add` and `finish` and reads it with `frames`; the scheduler's thread processes it.
    """

    voice: Any
    """The voice, as the family's runner expects it."""
    settings: Settings
    seed: int
    max_frames: int
    """Maximum frames per segment."""
    group: Group | None = None

    row: int = -1
    """Index of its row; -1 if it has none."""
    speaking: bool = False
    """Whether a segment is in progress."""
    segment: int = -1
    """Index of the current segment."""
    frame_count: int = 0
    """Frames of this segment so far."""
    cancelled: bool = False
    parked: Any = None
    """Result of `scheduler.Runner.park` while the sequence has no row."""
    following: Any = None
    """The next segment, taken from the queue and not yet passed to the runner."""
    on_room: Callable[[], None] | None = None
    """Called by the reader after it has caught up with a paused stream."""
    on_silence: Callable[[], None] | None = None
    """Called by the reader after a timeout without frames: the engine's thread may be dead."""
    wake_at: int = 1
    """Total number of frames at which the reader is woken. Earlier frames are delivered together with that one, because every
    thread that wakes takes the GIL from the engine's thread. A segment's first frame and its end are delivered at once."""

    def __post_init__(self) -> None:
        self._paused = False
        self.waiting: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._out: queue.SimpleQueue[list[Frame] | BaseException | None] = queue.SimpleQueue()
        self._pile: list[Frame] = []
        self._frames_put = self._frames_read = 0
        self._announced = -1

    def add(self, segment: Any) -> None:
        """Append a segment, in the type that the family's runner expects."""
        self.waiting.put(segment)

    def finish(self) -> None:
        """Mark the end of the segments."""
        self.waiting.put(None)

    def begin_segment(self) -> None:
        """Record that the runner received the next segment. Called by the scheduler."""
        self.speaking, self.frame_count, self.following = True, 0, None
        self.segment += 1

    def cancel(self) -> None:
        """Stop at the next frame; `frames` raises Cancelled."""
        self.cancelled = True
        self._out.put(Cancelled("the synthesis was cancelled"))

    def put(self, item: Frame | BaseException | None) -> None:
        """Deliver a frame or an error to `frames`; None ends the iteration. Called by the scheduler."""
        if isinstance(item, Frame):
            begins = item.segment != self._announced
            self._pile.append(item)
            self._frames_put += item.codes is not None
            if item.codes is not None and self._frames_put < self.wake_at and not begins:
                return
            self._announced = item.segment
        pile, self._pile = self._pile, []
        if pile:
            self._out.put(pile)
        if not isinstance(item, Frame):
            self._out.put(item)

    @property
    def unread(self) -> int:
        """Number of frames that the reader has not taken."""
        return self._frames_put - self._frames_read

    def paused(self) -> bool:
        """Return whether the stream is paused because its reader is too far behind. Called by the scheduler."""
        if self.group is not None and self.group.in_step:
            return False
        # Evaluated each time: the reader may have caught up without calling on_room.
        self._paused = (self._paused or self.unread >= MAX_UNREAD_FRAMES) and self.unread > MAX_UNREAD_FRAMES // 2
        return self._paused

    def frames(self) -> Iterator[Frame]:
        """Yield frames as they are made.

        Raises:
            EngineError: the engine failed.
            Cancelled: the sequence was cancelled.
        """
        while True:
            try:
                item = self._out.get(timeout=_POLL_S)
            except queue.Empty:
                if self.on_silence is not None:
                    self.on_silence()
                continue
            if item is None:
                return
            if isinstance(item, BaseException):
                raise item
            for frame in item:
                self._frames_read += frame.codes is not None
                if self._paused and self.unread <= MAX_UNREAD_FRAMES // 2 and self.on_room is not None:
                    self.on_room()
                yield frame
