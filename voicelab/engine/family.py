"""What stands between the engine and the models of one architecture: a new family implements these protocols.

`engine/core` batches sequences and owns the threads; it knows rows, codes and nothing of text, and says what it asks of a
language model (`Runner`) and of a codec (`Decoding`). A family turns text into its own segments, steps its language model
for the rows of a batch, and turns codes into audio. Values typed ``Any`` are the family's own: the engine passes them on
without looking at them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, Protocol

from torch import Tensor

from voicelab.audio.samples import resample
from voicelab.audio.sandbox import decode_apart
from voicelab.call import Call, VoicePreset
from voicelab.capabilities import SeedSupport
from voicelab.engine.core.decoding import Decoding, DecodingThread, Memo, Result, Samples
from voicelab.engine.core.scheduler import Runner, Scheduler
from voicelab.errors import AudioError, RequestInvalid
from voicelab.schema import Model, ReferenceAudio

REMEMBERED = 32
"""Recordings of callers, or what came of them, that are kept."""


class Segment(Protocol):
    """A piece of text as the family's language model reads it."""

    @property
    def words(self) -> tuple[tuple[str, int, int], ...]:
        """(word as written, its first position, the position after its last); empty where the family knows no word times."""

    @property
    def pause_s(self) -> float:
        """Seconds of silence before it that a tag of the text asks for, beside the pauses that the model makes itself."""


@dataclass(frozen=True)
class SpeechPlan:
    """How a text will be said; who says it is `Family.voice`'s."""

    segments: Iterator[Segment]
    """Those that have something to say, each read when it is needed."""
    notes: tuple[str, ...]
    """What a listener should know of how the text is read, such as what is left out of it."""
    pause_s: float = 0.0
    """Seconds of silence after the last segment."""


class Family(Protocol):
    """The models of one checkpoint: text, language models, codec and voices."""

    presets: tuple[VoicePreset, ...]
    """Its voices; the first is the default speaker."""
    languages: tuple[str, ...]
    """The languages that it speaks."""
    seeds: SeedSupport
    """Whether the same seed on the same device gives the same samples, whatever else is spoken."""
    models: tuple[Model, ...]
    """The models that have weights of their own; the first speaks for all others."""
    license: str
    """What binds who uses its speech, and when that was accepted; "" where nothing does."""
    notice: str
    """What has to be shown where it serves others."""
    digests: tuple[str, ...]
    """Digests of everything that the samples depend on."""
    voice_digest: str
    """Digest of everything that a packed speaker depends on."""

    @property
    def decoding(self) -> Decoding:
        """The codec's decoder."""

    def runners(self, model: Model, rows: int) -> Callable[[], Runner]:
        """What makes a runner of so many rows. Loads the model's weights when it is first asked for.

        Raises:
            WeightsError: the weights are damaged.
        """

    def plan(self, call: Call) -> SpeechPlan:
        """How a call's text will be said.

        Raises:
            RequestInvalid: a tag in the text cannot be read.
            MissingExtra: reading it needs what is not installed.
        """

    def preset(self, id: str) -> Any:
        """The speaker of a preset. A stored voice keeps what the ``to_bytes()`` of a speaker gives."""

    def speaker(self, references: Sequence[ReferenceAudio]) -> Any:
        """The speaker of all references together.

        Raises:
            RequestInvalid: a reference is no audio, or holds no sound; the field is named with its position.
        """

    def unpack(self, packed: bytes) -> Any:
        """The speaker whose ``to_bytes()`` these are; None where the bytes are of another form."""

    def voice(self, speaker: Any, parts: EngineParts) -> Any:
        """What `Runner.admit` takes of a speaker. May speak with the engine's parts to find out.

        Raises:
            EngineError: the engine is closed, or failed.
        """

    def similarity(self, codes: Tensor, voice: Any) -> float | None:
        """How near speech, as codes (frames, codebooks), is to its voice: 1 for the same, 0 for another voice.

        None where the family has no measure of it.
        """

    def doubts(self, references: Sequence[ReferenceAudio]) -> tuple[str, ...]:
        """What a listener should know of references that the voice cannot follow well, in sentences. Raises as `speaker`."""


@dataclass(frozen=True)
class EngineParts:
    """What the requests of one model share."""

    family: Family
    scheduler: Scheduler
    decoding: DecodingThread


class EncodedReferences(Generic[Result]):
    """Recordings that callers give, each decoded and encoded once: the latest are kept.

    Args:
        encode: makes of mono samples what the family keeps of a recording; AudioError where there is no speech in them.
        rate: Hz of these samples.
    """

    def __init__(self, encode: Callable[[Samples], Result], rate: int) -> None:
        self._encode, self._rate = encode, rate
        self._kept: Memo[Result] = Memo(REMEMBERED)

    def __call__(self, references: Sequence[ReferenceAudio]) -> list[Result]:
        """What each is encoded as.

        Raises:
            RequestInvalid: one is no audio, or holds no speech; the field is named with its position.
        """
        encoded = []
        for i, reference in enumerate(references):
            key = hashlib.sha256(reference.audio).hexdigest()
            try:
                encoded.append(self._kept.get(key, partial(self._read, reference.audio)))
            except AudioError as error:
                raise RequestInvalid.of(f"references.{i}.audio", str(error)) from error
        return encoded

    def _read(self, audio: bytes) -> Result:
        return self._encode(resample(*decode_apart(audio), self._rate))  # the bytes may come from anybody
