"""The interface between the engine and a model family: a new architecture implements these protocols.

`engine/core` batches sequences and owns the threads; it knows rows and codes, not text, and defines the protocols of a
language model (`Runner`) and of a codec (`Decoding`). A family splits text into its own segments, steps its language model
for the rows of a batch, and decodes codes to audio. Values typed ``Any`` are opaque to the engine.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, Protocol

from voicelab.audio.samples import resample
from voicelab.audio.sandbox import decode_apart
from voicelab.call import Call, VoicePreset
from voicelab.capabilities import SeedSupport
from voicelab.engine.core.decoding import Decoding, DecodingThread, Memo, Result, Samples
from voicelab.engine.core.scheduler import Runner, Scheduler
from voicelab.engine.core.sequence import Codes
from voicelab.errors import AudioError, RequestInvalid
from voicelab.schema import Model, ReferenceAudio

MAX_CACHED_REFERENCES = 32
"""Maximum number of entries in a cache of callers' recordings or of results derived from them."""


class Segment(Protocol):
    """A segment of text as input of the family's language model."""

    @property
    def words(self) -> tuple[tuple[str, int, int], ...]:
        """Words as (word as written, first position, position after the last); empty if the family has no word times."""

    @property
    def pause_s(self) -> float:
        """Seconds of silence that a tag adds before the segment, in addition to the pauses that the model makes."""


@dataclass(frozen=True)
class SpeechPlan:
    """The segments of a text to synthesize; the voice comes from `Family.voice`."""

    segments: Iterator[Segment]
    """Segments that have words; each is processed only when it is needed."""
    notes: tuple[str, ...]
    """User-facing notes on how the text is read, such as omissions."""
    pause_s: float = 0.0
    """Seconds of silence after the last segment."""


class Family(Protocol):
    """The models of one checkpoint: text, language models, codec and voices."""

    presets: tuple[VoicePreset, ...]
    """Preset voices; the first is the default speaker."""
    languages: tuple[str, ...]
    """Supported languages."""
    seeds: SeedSupport
    """Whether the same seed on the same device gives the same samples, regardless of concurrent requests."""
    models: tuple[Model, ...]
    """Models with their own weights; the first one also serves all other model names."""
    license: str
    """License of the weights and date of its acceptance; "" if none."""
    notice: str
    """Attribution required where the speech is served to others."""
    digests: tuple[str, ...]
    """Digests of all files that the samples depend on."""
    voice_digest: str
    """Digest of all files that a packed speaker depends on."""

    @property
    def decoding(self) -> Decoding:
        """Decoder of the codec."""

    def runners(self, model: Model, rows: int) -> Callable[[], Runner]:
        """Load the model's weights on first use, and return a function that makes a runner with `rows` rows.

        Raises:
            WeightsError: the weights are damaged.
        """

    def plan(self, call: Call) -> SpeechPlan:
        """Plan the segments of a call's text.

        Raises:
            RequestInvalid: a tag in the text cannot be read.
            MissingExtra: the text needs an optional package that is not installed.
        """

    def preset(self, id: str) -> Any:
        """Return the speaker of a preset. A speaker has a method ``to_bytes()``, whose result is kept with a stored voice."""

    def speaker(self, references: Sequence[ReferenceAudio]) -> Any:
        """Extract one speaker from all references.

        Raises:
            RequestInvalid: a reference is not audio or has no sound; the error names the field and its index.
        """

    def unpack(self, packed: bytes) -> Any:
        """Deserialize a speaker from its ``to_bytes()``; return None if the bytes have another format."""

    def voice(self, speaker: Any, parts: EngineParts) -> Any:
        """Convert a speaker to the voice for `Runner.admit`. For this, the family may synthesize speech with `parts`.

        Raises:
            EngineError: the engine is closed or has failed.
        """

    def similarity(self, codes: Codes, voice: Any) -> float | None:
        """Compute the similarity of speech, given as codes (frames, codebooks), to a voice.

        The similarity is 1 for the same speaker and about 0 for a different speaker; None if the family has no such metric.
        """

    def reference_notes(self, references: Sequence[ReferenceAudio]) -> tuple[str, ...]:
        """Describe problems with references as user-facing notes. Raises the same errors as `speaker`."""


@dataclass(frozen=True)
class EngineParts:
    """Components shared by the requests of one model."""

    family: Family
    scheduler: Scheduler
    decoding: DecodingThread


class EncodedReferences(Generic[Result]):
    """Decodes and encodes callers' recordings; the latest results are cached.

    Args:
        encode: encodes mono samples; raises AudioError if they have no speech.
        rate: sample rate in Hz that `encode` expects.
    """

    def __init__(self, encode: Callable[[Samples], Result], rate: int) -> None:
        self._encode, self._rate = encode, rate
        self._cache: Memo[Result] = Memo(MAX_CACHED_REFERENCES)

    def __call__(self, references: Sequence[ReferenceAudio]) -> list[Result]:
        """Encode each reference.

        Raises:
            RequestInvalid: a reference is not audio or has no speech; the error names the field and its index.
        """
        encoded = []
        for i, reference in enumerate(references):
            key = hashlib.sha256(reference.audio).hexdigest()
            try:
                encoded.append(self._cache.get(key, partial(self._read, reference.audio)))
            except AudioError as error:
                raise RequestInvalid.of(f"references.{i}.audio", str(error)) from error
        return encoded

    def _read(self, audio: bytes) -> Result:
        return self._encode(resample(*decode_apart(audio), self._rate))  # in a sandbox: untrusted bytes
