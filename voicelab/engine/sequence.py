"""One stream of speech inside the scheduler: what it shall say, where it is, and how it ends."""

from __future__ import annotations

import queue
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor

from voicelab.engine.sampling import REPEAT_WINDOW, Settings
from voicelab.engine.transformer import Parked
from voicelab.errors import Cancelled, EngineError

KEPT_PHONES = 40
"""Phones of what was said before that the text encoder still sees when the next segment follows."""
UNREAD = 430
"""Frames (20 s) that may lie unread: a stream whose reader is further behind is not worked on until it comes nearer."""
_LOOK_S = 1.0

Ending = Literal["text", "max_new_tokens", "early_stop"]
"""Why a segment's speech ended: by itself, or cut by one of the request's fields."""


@dataclass(frozen=True)
class Phonemes:
    """A segment as the language model reads it."""

    phones: tuple[int, ...]
    flags: tuple[int, ...]
    words: tuple[tuple[str, int, int], ...]
    """(word as written, its first phone, the phone after its last)."""


@dataclass(frozen=True)
class Frame:
    """One frame of codes, or the end of a segment."""

    segment: int
    codes: Tensor | None
    """(codebooks,) int64 on the CPU; None at the end of the segment."""
    phone: int = 0
    """The phone (of the segment) that the frame speaks."""
    ending: Ending | None = None


class Group:
    """Segments that are synthesized together: once `threshold` of them have ended by themselves, the rest are stopped."""

    def __init__(self, size: int, threshold: float) -> None:
        self.size = size
        self.begun = False
        self._threshold, self._ended = threshold, 0

    @property
    def in_step(self) -> bool:
        """Whether the members must begin and go on together, so that where they are cut depends on nobody else."""
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

    speaker: Tensor
    """(STATISTICS * latent,) statistics of the speaker's latents."""
    settings: Settings
    seed: int
    max_frames: int
    """Most frames a segment may have."""
    group: Group | None = None

    row: int = -1
    pointer: int = 0
    dwell: int = 0
    spoken: int = 0
    """Frames of this segment so far."""
    segment: int = -1
    before: Tensor | None = None
    """(codebooks,) the frame before."""
    recent: list[int] = field(default_factory=lambda: [-1] * REPEAT_WINDOW)
    text: Tensor | None = None
    """(phones, slow width) of this segment with what is kept of the one before."""
    voice: Tensor | None = None
    """(slow width,)."""
    phones: Phonemes | None = None
    kept: int = 0
    """Phones at the start of `text` that were said before."""
    cancelled: bool = False
    draws: Tensor | None = None
    """The randomness of the frame being made: the same if it must be made again."""
    parked: Parked | None = None
    """What the row held, while another has it."""
    on_room: Callable[[], None] | None = None
    """Called by the reader when it has caught up and the engine was waiting for that."""
    on_silence: Callable[[], None] | None = None
    """Called by the reader when nothing has come for a while: it may find that nobody works any more."""
    wake_at: int = 1
    """Frames of codes, from the sequence's first, that the reader waits for; those before come with them, since every
    thread that wakes takes the interpreter from the engine's. A segment's first frame and its end come at once."""

    def __post_init__(self) -> None:
        self.generator = torch.Generator().manual_seed(self.seed)
        self._held = False
        self.waiting: queue.SimpleQueue[Phonemes | None] = queue.SimpleQueue()
        self._out: queue.SimpleQueue[list[Frame] | BaseException | None] = queue.SimpleQueue()
        self._pile: list[Frame] = []
        self._made = self._read = 0
        self._told = -1

    @property
    def given(self) -> tuple[Tensor, Tensor]:
        """What the model is told at this frame: the phone at the pointer, and the speaker; each (slow width,).

        Raises:
            EngineError: the sequence has no row, or no text.
        """
        if self.text is None or self.voice is None:
            raise EngineError("a sequence was stepped before it was given a row and text")
        return self.text[self.pointer], self.voice

    def add(self, phonemes: Phonemes) -> None:
        """One more segment to say."""
        self.waiting.put(phonemes)

    def finish(self) -> None:
        """No more segments will come."""
        self.waiting.put(None)

    def cancel(self) -> None:
        """Stops at the next frame; a reader gets Cancelled."""
        self.cancelled = True
        self._out.put(Cancelled("the synthesis was cancelled"))

    def put(self, item: Frame | BaseException | None) -> None:
        """The scheduler's side of `frames`; None ends them."""
        if isinstance(item, Frame):
            begins = item.segment != self._told
            self._pile.append(item)
            self._made += item.codes is not None
            if item.codes is not None and self._made < self.wake_at and not begins:
                return
            self._told = item.segment
        pile, self._pile = self._pile, []
        if pile:
            self._out.put(pile)
        if not isinstance(item, Frame):
            self._out.put(item)

    @property
    def unread(self) -> int:
        """Frames of codes that the reader has not taken."""
        return self._made - self._read

    def held(self) -> bool:
        """Whether the reader is so far behind that the engine should do something else. The scheduler's side."""
        if self.group is not None and self.group.in_step:
            return False
        if not self._held and self.unread >= UNREAD:
            self._held = True
        # Looked at again: the reader may have emptied it in between, and would not tell.
        if self._held and self.unread <= UNREAD // 2:
            self._held = False
        return self._held

    def frames(self) -> Iterator[Frame]:
        """Frames as they are made.

        Raises:
            EngineError: the engine failed.
            Cancelled: somebody cancelled.
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
                self._read += frame.codes is not None
                if self._held and self.unread <= UNREAD // 2 and self.on_room is not None:
                    self.on_room()
                yield frame
