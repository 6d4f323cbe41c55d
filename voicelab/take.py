"""Take: one rendering of one call: what was asked for, what came, when, and from whom."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Self

import numpy as np

from voicelab.audio.clip import Clip, Words, WordTime
from voicelab.audio.formats import StreamDecoder
from voicelab.call import Call, knob_pairs
from voicelab.display import bundle, take_view
from voicelab.errors import RequestInvalid, StoreError
from voicelab.schema import ReferenceAudio, TTSRequest

__all__ = [
    "NoRecord",
    "Take",
    "Timing",
    "call_of",
    "call_record",
    "digest_of",
    "request_of",
    "request_record",
    "take_key",
]

# Part of every key. Raised when the same key would mean another rendering than it did before.
_KEY_VERSION = 1

Sound = bytes | Callable[[], bytes]
"""Encoded audio, or what fetches it from where it is kept."""


class NoRecord(StoreError):
    """What should describe a take or a failure does not."""


def digest_of(data: bytes) -> str:
    """Return the sha256 of bytes, in hexadecimal."""
    return hashlib.sha256(data).hexdigest()


def take_key(call: Call, fingerprint: str, repeat: int = 0) -> str:
    """Return what names a take: 64 hexadecimal digits, equal exactly for takes that mean the same.

    ``fingerprint`` is that of the backend's Capabilities; ``repeat`` counts the takes of one call from 0. Reference
    audio counts by its bytes, whatever order fields were given in. Raises RequestInvalid when ``repeat`` is no whole
    number from 0.
    """
    if type(repeat) is not int or repeat < 0:
        raise RequestInvalid.of("repeat", "Input should be a whole number from 0", type="int_type")
    named = {
        "version": _KEY_VERSION,
        "request": call.request.canonical(),
        "model": call.model,
        "fingerprint": fingerprint,
        "seed": call.seed,
        "repeat": repeat,
        **_knobs_record(call),
    }
    return digest_of(json.dumps(named, sort_keys=True, separators=(",", ":"), allow_nan=False).encode())


@dataclass(frozen=True, slots=True)
class Timing:
    """How audio arrived: seconds since the call, and (seconds since the call, bytes) of every chunk."""

    first_audio_s: float = 0.0
    total_s: float = 0.0
    arrivals: tuple[tuple[float, int], ...] = ()

    def rtf(self, duration: float) -> float:
        """Real-time factor: seconds of work for each of ``duration`` seconds of audio; inf for none."""
        return self.total_s / duration if duration > 0.0 else math.inf


@dataclass(frozen=True)
class Take:
    """One rendering of one call: enough to hear it, and to make it again.

    Args:
        call: what was asked for; its seed is None when none was given, even where the backend then drew one.
        sound: the encoded audio as received, or a function that fetches it; read it as ``audio``.
        timing: when the first audio, every chunk and the end came.
        backend: the backend's name.
        fingerprint: what tells the backend from others: a digest of its weights, or its address.
        device: where the backend ran.
        seed: the seed in use, given or drawn; None when it is not known.
        repeat: which of the takes of this call it is, from 0.
        words: when each word is said, where the backend tells.
        notes: what was noticed, in sentences.
        similarity: of a cloned voice, how near it came to its reference, where the backend tells: 1 for the same
            speaker, 0 for as far away as two voices of the backend are on average, negative beyond; no unit. A short
            text is some way below 1 even in the reference's own voice.
        created: when it was made, UTC.
        digest: sha256 of the audio; computed when ``sound`` is bytes and none is given.
        cached: whether it was not made for this call, but kept from an earlier one.

    Takes are equal when all is but ``cached`` and the place of their audio.
    """

    call: Call
    sound: Sound = field(repr=False, compare=False)
    timing: Timing = field(default=Timing(), repr=False)
    backend: str = ""
    fingerprint: str = ""
    device: str = ""
    seed: int | None = None
    repeat: int = 0
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

    @property
    def audio(self) -> bytes:
        """The encoded audio as received. Raises StoreError when it is no longer where it was kept."""
        return self.sound if isinstance(self.sound, bytes) else self.sound()

    @property
    def request(self) -> TTSRequest:
        """What was asked for."""
        return self.call.request

    @property
    def model(self) -> str:
        """The synthesis model that spoke."""
        return self.call.model

    @property
    def key(self) -> str:
        """What names this take: see ``take_key``."""
        return take_key(self.call, self.fingerprint, self.repeat)

    @property
    def chunks(self) -> tuple[bytes, ...]:
        """The audio in the pieces in which it arrived."""
        audio, parts, at = self.audio, [], 0
        for _, size in self.timing.arrivals:
            parts.append(audio[at : at + size])
            at += size
        return tuple(parts)

    @property
    def all_notes(self) -> tuple[str, ...]:
        """The notes, and for a cached take when it was made."""
        if not self.cached:
            return self.notes
        return (*self.notes, f"This is a kept take, made {self.created:%Y-%m-%d %H:%M:%S} UTC.")

    def clip(self) -> Clip:
        """Return the take decoded; ``clip.take`` is this take.

        Raises AudioError when the audio is damaged, StoreError when it cannot be fetched.
        """
        decoder = StreamDecoder(self.request.format, self.request.rate)
        samples = np.concatenate((decoder.feed(self.audio), decoder.finish()))
        return Clip(samples, self.request.rate, Words(self.words), self)

    def noted(self, *notes: str) -> Self:
        """Return the take with more notes."""
        return replace(self, notes=(*self.notes, *notes)) if notes else self

    def _repr_mimebundle_(self, **_: object) -> dict[str, Any]:
        return bundle(take_view, self)

    def record(self) -> dict[str, Any]:
        """Return the take without its audio as a JSON-able object; ``of_record`` reads it back."""
        return {
            **call_record(self.call),
            "backend": self.backend,
            "fingerprint": self.fingerprint,
            "device": self.device,
            "seed_used": self.seed,
            "repeat": self.repeat,
            "digest": self.digest,
            "first_audio_s": self.timing.first_audio_s,
            "total_s": self.timing.total_s,
            "arrivals": [list(arrival) for arrival in self.timing.arrivals],
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
                call_of(record, references),
                sound,
                Timing(record["first_audio_s"], record["total_s"], arrivals),
                backend=record["backend"],
                fingerprint=record["fingerprint"],
                device=record["device"],
                seed=record["seed_used"],
                repeat=record["repeat"],
                words=tuple(WordTime(*word) for word in record["words"]),
                notes=tuple(record["notes"]),
                similarity=record.get("similarity"),  # takes of before it was kept have none
                created=datetime.fromisoformat(record["created"]),
                digest=record["digest"],
            )
        except (KeyError, TypeError, ValueError) as error:
            raise NoRecord(f"this is no record of a take: {type(error).__name__}: {error}") from error


def call_record(call: Call) -> dict[str, Any]:
    """Return a call as a JSON-able object; own knobs are in it only where there are any."""
    record = {"request": request_record(call.request), "model": call.model, "seed": call.seed}
    return record | _knobs_record(call)


def call_of(record: Mapping[str, Any], references: Callable[[str], bytes]) -> Call:
    """Return the call that ``call_record`` described; raises like ``request_of``."""
    request = request_of(record["request"], references)
    return Call(request, record["model"], record["seed"], knob_pairs(record.get("knobs", {})))


def _knobs_record(call: Call) -> dict[str, Any]:
    # A call without any has the keys and records that it had before there were knobs.
    return {"knobs": dict(call.knobs)} if call.knobs else {}


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
