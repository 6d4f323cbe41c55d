"""Take: one rendering of one request, whole: what was asked, what came, when, and from whom."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Self

import numpy as np

from voicelab.audio.clip import Clip, Provenance, Timing, WordTime
from voicelab.audio.formats import StreamDecoder
from voicelab.backend import Backend, SpeechStream
from voicelab.errors import RequestInvalid, StoreError
from voicelab.schema import DEFAULT_MODEL, Model, ReferenceAudio, TTSRequest

__all__ = ["NoRecord", "Take", "digest_of", "render", "request_of", "request_record", "take_key"]

# Part of every key. Raised when the same key would mean another rendering than it did before.
_KEY_VERSION = 1

Sound = bytes | Callable[[], bytes]
"""Encoded audio, or what fetches it from where it is kept."""


class NoRecord(StoreError):
    """What should describe a take or a failure does not."""


def digest_of(data: bytes) -> str:
    """Return the sha256 of bytes, in hexadecimal."""
    return hashlib.sha256(data).hexdigest()


def take_key(request: TTSRequest, *, model: str, fingerprint: str, seed: int | None, repeat: int = 0) -> str:
    """Return what names a take: 64 hexadecimal digits, equal exactly for takes that mean the same.

    ``fingerprint`` is that of the backend's Capabilities, ``seed`` the one asked for (None: none was),
    ``repeat`` counts the takes of one request from 0. Reference audio counts by its bytes, whatever
    order fields were given in. Raises RequestInvalid when ``repeat`` is no whole number from 0.
    """
    if type(repeat) is not int or repeat < 0:
        raise RequestInvalid.of("repeat", "Input should be a whole number from 0", type="int_type")
    named = {
        "version": _KEY_VERSION,
        "request": request.canonical(),
        "model": model,
        "fingerprint": fingerprint,
        "seed": seed,
        "repeat": repeat,
    }
    return digest_of(json.dumps(named, sort_keys=True, separators=(",", ":"), allow_nan=False).encode())


@dataclass(frozen=True)
class Take:
    """One rendering of one request.

    Args:
        provenance: where it comes from: request, model, backend, fingerprint, the seed in use, timing.
        sound: the encoded audio as received, or a function that fetches it; read it as ``audio``.
        seed: the seed that was asked for; None when none was, even where the backend then drew one.
        repeat: which of the takes of this request it is, from 0.
        device: where the backend ran.
        words: when each word is said, where the backend tells.
        notes: what was noticed, in sentences.
        similarity: of a cloned voice, how near it came to its reference; see Clip.
        created: when it was made, UTC.
        digest: sha256 of the audio; computed when ``sound`` is bytes and none is given.
        cached: whether it was not made for this call, but kept from an earlier one.

    Takes are equal when all is but ``cached`` and the place of their audio.
    """

    provenance: Provenance
    sound: Sound = field(repr=False, compare=False)
    seed: int | None = None
    repeat: int = 0
    device: str = ""
    words: tuple[WordTime, ...] = field(default=(), repr=False)
    notes: tuple[str, ...] = ()
    similarity: float | None = None
    created: datetime = field(default_factory=lambda: datetime.now(UTC))
    digest: str = ""
    cached: bool = field(default=False, compare=False)

    def __post_init__(self) -> None:
        # Whoever gives a digest has checked it: a sha256 takes longer than reading the audio.
        if isinstance(self.sound, bytes) and not self.digest:
            object.__setattr__(self, "digest", digest_of(self.sound))

    @classmethod
    def of(cls, stream: SpeechStream, *, seed: int | None, repeat: int = 0) -> Self:
        """Wait for all audio of a stream that nobody has read from. ``seed`` is the one asked for.

        Raises what the stream raises.
        """
        with stream:
            audio = b"".join(stream)
        return cls.finished(stream, audio, seed=seed, repeat=repeat)

    @classmethod
    def finished(cls, stream: SpeechStream, audio: bytes, *, seed: int | None, repeat: int = 0) -> Self:
        """Return the take of a stream that was read to its end by somebody else: ``audio`` is what came."""
        told = stream.epilogue
        return cls(
            stream.provenance,
            audio,
            seed=seed,
            repeat=repeat,
            device=stream.backend.device,
            words=told.words,
            notes=told.notes,
            similarity=told.similarity,
        )

    @property
    def audio(self) -> bytes:
        """The encoded audio as received. Raises StoreError when it is no longer where it was kept."""
        return self.sound if isinstance(self.sound, bytes) else self.sound()

    @property
    def request(self) -> TTSRequest:
        """What was asked for."""
        return self.provenance.request

    @property
    def model(self) -> str:
        """The synthesis model that spoke."""
        return self.provenance.model

    @property
    def backend(self) -> str:
        """The backend's name."""
        return self.provenance.backend

    @property
    def fingerprint(self) -> str:
        """What tells the backend from others: a digest of its weights, or its address."""
        return self.provenance.fingerprint

    @property
    def timing(self) -> Timing:
        """When the first audio, every chunk and the end came, in seconds since the call."""
        return self.provenance.timing

    @property
    def key(self) -> str:
        """What names this take: see ``take_key``."""
        return take_key(
            self.request, model=self.model, fingerprint=self.fingerprint, seed=self.seed, repeat=self.repeat
        )

    @property
    def chunks(self) -> tuple[bytes, ...]:
        """The audio in the pieces in which it arrived."""
        audio, parts, at = self.audio, [], 0
        for _, size in self.timing.arrivals:
            parts.append(audio[at : at + size])
            at += size
        return tuple(parts)

    def clip(self) -> Clip:
        """Return the take decoded, with the provenance, words and notes it was made with.

        Of a cached take the notes say so. Raises AudioError when the audio is damaged, StoreError when it
        cannot be fetched.
        """
        request = self.request
        decoder = StreamDecoder(request.format, request.rate)
        samples = np.concatenate((decoder.feed(self.audio), decoder.finish()))
        return Clip(samples, request.rate, self.provenance, self.words, self.told, self.similarity)

    @property
    def told(self) -> tuple[str, ...]:
        """The notes, and for a cached take when it was made."""
        if not self.cached:
            return self.notes
        return (*self.notes, f"This is a kept take, made {self.created:%Y-%m-%d %H:%M:%S} UTC.")

    def noted(self, *notes: str) -> Self:
        """Return the take with more notes."""
        return replace(self, notes=(*self.notes, *notes))

    def record(self) -> dict[str, Any]:
        """Return the take without its audio as a JSON-able object; ``of_record`` reads it back."""
        timing = self.timing
        return {
            "request": request_record(self.request),
            "model": self.model,
            "backend": self.backend,
            "fingerprint": self.fingerprint,
            "device": self.device,
            "seed": self.seed,
            "seed_used": self.provenance.seed,
            "repeat": self.repeat,
            "digest": self.digest,
            "first_audio_s": timing.first_audio_s,
            "total_s": timing.total_s,
            "arrivals": [list(arrival) for arrival in timing.arrivals],
            "words": [[word.text, word.start, word.end] for word in self.words],
            "notes": list(self.notes),
            "similarity": self.similarity,
            "created": self.created.isoformat(),
        }

    @classmethod
    def of_record(cls, record: Mapping[str, Any], sound: Sound, references: Callable[[str], bytes]) -> Self:
        """Return the take that ``record()`` described.

        ``references`` returns reference audio by its sha256. Raises NoRecord (a StoreError) when the record is none.
        """
        try:
            arrivals = tuple((float(seconds), int(size)) for seconds, size in record["arrivals"])
            return cls(
                Provenance(
                    request=request_of(record["request"], references),
                    model=record["model"],
                    backend=record["backend"],
                    fingerprint=record["fingerprint"],
                    seed=record["seed_used"],
                    timing=Timing(record["first_audio_s"], record["total_s"], arrivals),
                ),
                sound,
                seed=record["seed"],
                repeat=record["repeat"],
                device=record["device"],
                words=tuple(WordTime(*word) for word in record["words"]),
                notes=tuple(record["notes"]),
                similarity=record.get("similarity"),  # takes of before it was kept have none
                created=datetime.fromisoformat(record["created"]),
                digest=record["digest"],
            )
        except (KeyError, TypeError, ValueError) as error:
            raise NoRecord(f"this is no record of a take: {type(error).__name__}: {error}") from error


def render(
    backend: Backend, request: TTSRequest, *, model: Model = DEFAULT_MODEL, seed: int | None = None, repeat: int = 0
) -> Take:
    """Ask a backend once and wait for all audio. Raises what the backend raises."""
    return Take.of(backend.synthesize(request, model=model, seed=seed), seed=seed, repeat=repeat)


def request_record(request: TTSRequest) -> dict[str, Any]:
    """Return a request as a JSON-able object, all fields as given; reference audio is named by its sha256."""
    wire = request.to_wire()
    if request.references is not None:
        wire["references"] = [{"audio_sha256": digest_of(item.audio), "text": item.text} for item in request.references]
    return wire


def request_of(record: Mapping[str, Any], references: Callable[[str], bytes]) -> TTSRequest:
    """Return the request that ``request_record`` described.

    ``references`` returns audio by its sha256. Raises RequestInvalid and what ``references`` raises.
    """
    fields = dict(record)
    if fields.get("references") is not None:
        fields["references"] = [
            ReferenceAudio(audio=references(item["audio_sha256"]), text=item["text"]) for item in fields["references"]
        ]
    return TTSRequest.build(**fields)
