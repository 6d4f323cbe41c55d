"""State of the rows of a batch (cache, position and random numbers), and the protocols of a step and a language model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from voicelab.engine.core.sequence import Codes, Settings
from voicelab.engine.pointer.arrays import Floats
from voicelab.engine.pointer.config import Phonemes, StackConfig
from voicelab.errors import EngineError

DWELL_STEPS = 24
"""Number of dwells (frames already spent on a phone) that the model distinguishes; longer ones count as the longest."""
STATISTICS = 3
"""Statistics per latent dimension that describe a speaker: see `speakers.speaker_statistics`."""
REPEAT_WINDOW = 4
"""Number of frames that the repetition penalty covers."""
GRAIN = 32
"""Cached positions are evicted in multiples of this number, so that evictions do not change the rounding of sums."""

Parked = tuple[Any, Any, int]
"""A saved cache row: keys and values (layers, heads, length, head width), and the number of positions evicted before."""


class KVCache:
    """Preallocated key-value cache of several sequences.

    Shapes: keys and values (layers, rows, heads, room, head width); `lengths[row]` positions of a row are filled.
    A row is filled from its start; when it is full, `make_room` moves the window to the start, so the length of a sequence
    is unlimited.

    Args:
        config: configuration of the stack.
        rows: number of sequences.
        zeros: makes a numpy or torch array of a given shape.
    """

    def __init__(self, config: StackConfig, rows: int, zeros: Callable[[tuple[int, ...]], Any] | None = None) -> None:
        head = config.width // config.heads
        self.window = config.window
        self.room = -(-3 * config.window // (2 * GRAIN)) * GRAIN + GRAIN
        shape = (config.layers, rows, config.heads, self.room, head)
        self.keys, self.values = (zeros(shape) if zeros else np.zeros(shape, np.float32) for _ in range(2))
        self.lengths = [0] * rows
        self.offsets = [0] * rows
        """Number of evicted positions of each row, which rotary positions still count."""

    def reset(self, row: int) -> None:
        """Set a row to zeros for a new sequence, because a number that is not finite would propagate even if masked."""
        self.keys[:, row] = self.values[:, row] = 0
        self.lengths[row] = self.offsets[row] = 0

    def take(self, row: int) -> Parked:
        """Copy the keys and values of a row to which later positions can attend."""
        length = self.lengths[row]
        begin = self._evictable(length)
        keys, values = (store[:, row, :, begin:length] * 1 for store in (self.keys, self.values))
        return keys, values, self.offsets[row] + begin

    def put(self, row: int, parked: Parked) -> None:
        """Restore a row from a copy that `take` made of this or another row."""
        keys, values, offset = parked
        length = keys.shape[2]
        self.reset(row)
        self.keys[:, row, :, :length], self.values[:, row, :, :length] = keys, values
        self.lengths[row], self.offsets[row] = length, offset

    def rewind(self, row: int, position: int) -> None:
        """Drop the positions from `position` on; positions count from the start of the sequence."""
        self.lengths[row] = position - self.offsets[row]

    def position(self, row: int) -> int:
        """Count the positions added to a row since its reset."""
        return self.lengths[row] + self.offsets[row]

    def make_room(self, row: int, count: int) -> None:
        """If `count` more positions do not fit into a row, move its attention window to the start of the row."""
        length = self.lengths[row]
        if length + count > self.room:
            keep = length - self._evictable(length)
            for store in (self.keys, self.values):
                store[:, row, :, :keep] = store[:, row, :, length - keep : length] * 1  # a copy, as they overlap
            self.lengths[row] = keep
            self.offsets[row] += length - keep

    def _evictable(self, length: int) -> int:
        """Count the positions at the start of a row to which no later position attends."""
        return max(0, length - self.window) // GRAIN * GRAIN


def random_numbers(seed: int) -> Callable[[int], Floats]:
    """Create a generator of uniform numbers in [0, 1): those that ``torch.rand`` draws on a CPU with this seed.

    The generator is MT19937 (Matsumoto and Nishimura, 1998), seeded with the low 32 bits of the seed. A number consists of
    the low 24 bits of a draw.
    """
    generator = np.random.RandomState(seed & 0xFFFFFFFF)

    def draw(count: int) -> Floats:
        bits = generator.randint(0, 1 << 32, size=count, dtype=np.uint32) & np.uint32(0xFFFFFF)
        return bits.astype(np.float32) * np.float32(2**-24)

    return draw


@dataclass(eq=False)
class PointerRow:
    """State of one row."""

    row: int
    settings: Settings
    random: Callable[[int], Floats]
    """Draws uniform numbers in [0, 1)."""
    voice: Floats
    """Embedding (slow width,) of the speaker."""
    pointer: int = 0
    dwell: float = 0.0
    """Number of frames that the pointer has spent on its phone; a frame on an emphasized vowel counts less."""
    before: Codes | None = None
    """Codes (codebooks,) of the previous frame."""
    recent: list[int] = field(default_factory=lambda: [-1] * REPEAT_WINDOW)
    """First codes of the latest frames."""
    text: Floats | None = None
    """Text embedding (phones, slow width) of this segment, preceded by the context from the previous segment."""
    segment: Phonemes | None = None
    context_length: int = 0
    """Phones at the start of `text` that belong to the previous segment."""
    draws: Floats | None = None
    """Random numbers of the next frame, kept so that a retried step draws the same numbers."""
    parked_cache: Parked | None = None
    """Keys and values of the row while it is parked."""

    @property
    def input(self) -> Floats:
        """Sum of the text embedding at the pointer and the speaker embedding, shape (slow width,).

        Raises:
            EngineError: the row has no text.
        """
        if self.text is None:
            raise EngineError("a row must have text before it is stepped")
        out: Floats = self.text[self.pointer] + self.voice
        return out


class Step(Protocol):
    """Protocol for the computation of a frame. Its only side effect is that it appends a position to the cache's rows."""

    def step(self, rows: list[PointerRow], draws: list[Floats]) -> tuple[Codes, list[int]]:
        """Compute the next frame of each row.

        Args:
            rows: rows with text.
            draws: uniform numbers (codebooks,) in [0, 1) for each row.

        Returns:
            Codes (rows, codebooks), int64, and the pointer advance of each row, in phones.

        Raises:
            EngineError: a logit is not finite.
        """


class LanguageModel(Protocol):
    """A language model on a device; its inputs and results are numpy arrays."""

    config: Any
    """The model's `config.LMConfig`."""

    def encode_text(self, phones: list[int], flags: list[int]) -> Floats:
        """Encode phone ids and flags as (phones, slow width)."""

    def encode_speaker(self, statistics: Floats) -> Floats:
        """Embed speaker statistics (n, STATISTICS * latent) as (n, slow width)."""

    def cache(self, rows: int) -> KVCache:
        """Create a cache of the slow stack for `rows` sequences."""

    def step(self, cache: KVCache) -> Step:
        """Create a step that processes the rows of a cache."""

    def free_memory(self) -> None:
        """Release cached memory."""
