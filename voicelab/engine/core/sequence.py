"""One stream of speech inside the scheduler: what it shall say, where it is, and how it ends."""

from __future__ import annotations

import queue
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

from torch import Tensor

from voicelab.errors import Cancelled

UNREAD = 430
"""Frames (20 s) that may lie unread: a stream whose reader is further behind is not worked on until it comes nearer."""
_LOOK_S = 1.0

Ending = Literal["text", "max_new_tokens", "early_stop", "no_room"]
"""Why a segment's speech ended: by itself, cut by one of the request's fields, or since the model has no more positions."""


@dataclass(frozen=True)
class Settings:
    """How one sequence is sampled; the fields are the interface's."""

    temperature: float = 0.7
    """0 takes the likeliest symbol."""
    top_p: float = 0.7
    repetition_penalty: float = 1.2


@dataclass(frozen=True)
class Frame:
    """One frame of codes, or the end of a segment."""

    segment: int
    codes: Tensor | None
    """(codebooks,) int64 on the CPU; None at the end of the segment."""
    position: int = -1
    """Place in the segment that the frame speaks, see `scheduler.RowStep`."""
    ending: Ending | None = None
    cut: bool = False
    """Whether speech is cut off behind this frame; the end of the segment, which says why, follows at once."""


class Group:
    """Segments that are synthesized together: once `threshold` of them have ended by themselves, the rest are stopped."""

    def __init__(self, size: int, threshold: float) -> None:
        self.size = size
        self.begun = False
        self._threshold, self._ended = threshold, 0

    @property
    def in_step(self) -> bool:
        """Whether the members must begin and go on together, so that where they are cut depends on no other sequence."""
        return self._threshold < 1

    def end_one(self) -> None:
        """A member ended by itself."""
        self._ended += 1

    @property
    def over(self) -> bool:
        """Whether the members that still speak shall stop."""
        return self.in_step and self._ended >= max(1, self._threshold * self.size)


@dataclass(eq=False)
class Sequence:
    """A row of the batch: segments spoken one after the other, each going on from the one before.

    Filled by the caller's thread with `add` and `finish`, worked on by the scheduler's, read with `frames`.
    """

    voice: Any
    """Who speaks, as the family's runner takes it."""
    settings: Settings
    seed: int
    max_frames: int
    """Most frames a segment may have."""
    group: Group | None = None

    row: int = -1
    """-1 while it has none."""
    speaking: bool = False
    """Whether a segment has begun that has not ended."""
    segment: int = -1
    """Segments begun, less one."""
    spoken: int = 0
    """Frames of this segment so far."""
    cancelled: bool = False
    parked: Any = None
    """What the row held, while another sequence has it: see `scheduler.Runner.park`."""
    following: Any = None
    """The next segment, out of the queue and not yet given to the runner."""
    on_room: Callable[[], None] | None = None
    """Called by the reader when it has caught up and the engine was waiting for that."""
    on_silence: Callable[[], None] | None = None
    """Called by the reader when nothing has come for a while: the engine's thread may be dead."""
    wake_at: int = 1
    """Frames of codes, from the sequence's first, that the reader waits for; those before come with them, since every
    thread that wakes takes the interpreter from the engine's. A segment's first frame and its end come at once."""

    def __post_init__(self) -> None:
        self._held = False
        self.waiting: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._out: queue.SimpleQueue[list[Frame] | BaseException | None] = queue.SimpleQueue()
        self._pile: list[Frame] = []
        self._frames_put = self._frames_read = 0
        self._announced = -1

    def add(self, segment: Any) -> None:
        """One more segment to say, as the family's runner takes it."""
        self.waiting.put(segment)

    def finish(self) -> None:
        """No more segments will come."""
        self.waiting.put(None)

    def begin_segment(self) -> None:
        """The runner has the next segment. The scheduler's side."""
        self.speaking, self.spoken, self.following = True, 0, None
        self.segment += 1

    def cancel(self) -> None:
        """Stops at the next frame; a reader gets Cancelled."""
        self.cancelled = True
        self._out.put(Cancelled("the synthesis was cancelled"))

    def put(self, item: Frame | BaseException | None) -> None:
        """The scheduler's side of `frames`; None ends them."""
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
        """Frames of codes that the reader has not taken."""
        return self._frames_put - self._frames_read

    def held(self) -> bool:
        """Whether the reader is so far behind that the engine should do something else. The scheduler's side."""
        if self.group is not None and self.group.in_step:
            return False
        # Looked at again: the reader may have emptied it in between, without a call to on_room.
        self._held = (self._held or self.unread >= UNREAD) and self.unread > UNREAD // 2
        return self._held

    def frames(self) -> Iterator[Frame]:
        """Frames as they are made.

        Raises:
            EngineError: the engine failed.
            Cancelled: it was cancelled.
        """
        while True:
            try:
                item = self._out.get(timeout=_LOOK_S)
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
                if self._held and self.unread <= UNREAD // 2 and self.on_room is not None:
                    self.on_room()
                yield frame
