"""What stands between the engine and the models of one architecture: a new family implements these protocols.

`engine/core` batches sequences and owns the threads; it knows rows, codes and nothing of text. A family turns text into its
own segments, steps its language model for the rows of a batch, and turns codes into audio. Values typed ``Any`` are the
family's own: the engine passes them on without looking at them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from voicelab.backend import SeedSupport, VoicePreset
from voicelab.schema import Model, ReferenceAudio, TTSRequest

if TYPE_CHECKING:
    from voicelab.engine.speech import EngineParts

Samples = NDArray[np.float32]


@dataclass(frozen=True)
class Settings:
    """How one sequence is sampled; the fields are the interface's."""

    temperature: float = 0.7
    """0 takes the likeliest symbol."""
    top_p: float = 0.7
    repetition_penalty: float = 1.2


@dataclass(frozen=True)
class RowStep:
    """What one row did in a step."""

    codes: Tensor | None
    """(codebooks,) int64 on the CPU; None where there is no frame: the model said that speech is over, or, unless `ended`, is
    still reading what it was given."""
    position: int = -1
    """Place in the segment that the frame speaks, in the units of `Segment.words`; -1 where the family does not know."""
    ended: bool = False
    """Whether the segment's speech is over, with this frame if there is one."""


class Runner(Protocol):
    """The language model at work: it holds a state for each row that was admitted, and makes a frame for each in a step.

    Called by one thread only.
    """

    def admit(self, row: int, voice: Any, settings: Settings, seed: int) -> None:
        """Gives an empty row to a new sequence: who speaks, how it is sampled, and the seed of its randomness."""
        ...

    def more(self, row: int, segment: Any) -> None:
        """Puts the next segment of text before the row; speech goes on after what the row has said already."""
        ...

    def step(self, rows: Sequence[int]) -> list[RowStep]:
        """One frame of each row; every row has a segment that has not ended. The rows do not influence each other.

        Raises:
            EngineError: the model's numbers are not finite. After any error the rows are as they were before, so that the
                step can be tried again, or with fewer of them.
        """
        ...

    def park(self, row: int) -> Any:
        """Takes out all that a row holds, so that another sequence can have it; `resume` puts it back into any row."""
        ...

    def resume(self, row: int, parked: Any) -> None:
        """Gives a row what `park` took out of this or another row."""
        ...

    def discard(self, row: int) -> None:
        """The row's step failed: removes what it left behind, which could spoil a later sequence even unseen."""
        ...

    def free_memory(self) -> None:
        """Gives back memory that is kept for later."""
        ...


@dataclass(frozen=True)
class Piece:
    """Codes of one stream to be decoded."""

    stream: Any
    """What `Decoding.open` returned."""
    codes: Tensor
    """(frames, codebooks) int64 on the CPU; may be empty in the last piece."""
    last: bool
    """Whether the stream ends with it."""


class Decoding(Protocol):
    """Codes become audio, piece by piece; the pieces of a stream together give what the whole would give."""

    sample_rate: int
    """Hz."""
    hop: int
    """Samples of a frame."""
    codebooks: int
    """Codes of a frame."""
    together: int
    """Most streams that `feed` takes at once."""

    def open(self, voice: Any) -> Any:
        """A new stream of speech by `voice`, as `Family.voice` returned it."""
        ...

    def feed(self, pieces: Sequence[Piece]) -> list[Samples]:
        """The samples that each piece completes; the pieces are of different streams."""
        ...

    def close(self, stream: Any) -> None:
        """Frees what a stream holds; it may have ended or not."""
        ...


class Segment(Protocol):
    """A piece of text as the family's language model reads it."""

    @property
    def words(self) -> tuple[tuple[str, int, int], ...]:
        """(word as written, its first position, the position after its last); empty where the family knows no word times."""
        ...


@dataclass(frozen=True)
class SpeechPlan:
    """How a text will be said; who says it is `Family.voice`'s."""

    segments: Iterator[Segment]
    """Those that have something to say, each read when it is needed."""
    notes: tuple[str, ...]
    """What a listener should know of how the text is read, such as what is left out of it."""


class Family(Protocol):
    """The models of one checkpoint: text, language models, codec and voices."""

    @property
    def presets(self) -> tuple[VoicePreset, ...]:
        """Its voices; the first is the default speaker."""
        ...

    @property
    def languages(self) -> tuple[str, ...]:
        """The languages that it speaks."""
        ...

    @property
    def seeds(self) -> SeedSupport:
        """Whether the same seed on the same device gives the same samples, whatever else is spoken."""
        ...

    @property
    def models(self) -> tuple[Model, ...]:
        """The models that have weights of their own; the first speaks for all others."""
        ...

    @property
    def license(self) -> str:
        """What binds who uses its speech, and when that was accepted; "" where nothing does."""
        ...

    @property
    def notice(self) -> str:
        """What has to be shown where it serves others."""
        ...

    @property
    def digests(self) -> tuple[str, ...]:
        """Digests of everything that the samples depend on."""
        ...

    @property
    def voice_digest(self) -> str:
        """Digest of everything that a packed speaker depends on."""
        ...

    @property
    def decoding(self) -> Decoding:
        """The codec's decoder."""
        ...

    def runners(self, model: Model, rows: int) -> Callable[[], Runner]:
        """What makes a runner of so many rows. Loads the model's weights when it is first asked for.

        Raises:
            WeightsError: the weights are damaged.
        """
        ...

    def plan(self, request: TTSRequest) -> SpeechPlan:
        """How a request's text will be said.

        Raises:
            MissingExtra: reading it needs what is not installed.
        """
        ...

    def preset(self, id: str) -> Any:
        """The speaker of a preset."""
        ...

    def speaker(self, references: Sequence[ReferenceAudio]) -> Any:
        """The speaker of all references together.

        Raises:
            RequestInvalid: a reference is no audio, or holds no sound; the field is named with its position.
        """
        ...

    def pack(self, speaker: Any) -> bytes:
        """A speaker as a stored voice keeps it."""
        ...

    def unpack(self, packed: bytes) -> Any:
        """The speaker of `pack`; None where the bytes are of another form."""
        ...

    def voice(self, speaker: Any, parts: EngineParts) -> Any:
        """What `Runner.admit` takes of a speaker. May speak with the engine's parts to find out.

        Raises:
            EngineError: the engine is closed, or failed.
        """
        ...

    def similarity(self, codes: Tensor, voice: Any) -> float | None:
        """How near speech, as codes (frames, codebooks), is to its voice: 1 for the same, 0 for another voice.

        None where the family has no measure of it.
        """
        ...

    def doubts(self, references: Sequence[ReferenceAudio]) -> tuple[str, ...]:
        """What a listener should know of references that the voice cannot follow well, in sentences. Raises as `speaker`."""
        ...
