"""Clip and Take: sound as an immutable value, and one rendering of a call: what was asked, what came, when, from whom."""

from __future__ import annotations

import hashlib
import itertools
import json
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any, Final, Self

import numpy as np

from voicelab.audio.decoders import StreamDecoder
from voicelab.audio.formats import encode, read
from voicelab.audio.samples import NO_SAMPLES, Samples, as_samples, check_rate, dbfs, resample
from voicelab.audio.words import Words, WordTime
from voicelab.call import Call, call_knobs, call_of, call_record
from voicelab.display import Shown, view
from voicelab.errors import AudioError, RequestInvalid, StoreError
from voicelab.schema import RATES, AudioFormat, TTSRequest
from voicelab.storage import digest_of, open_atomic

_FORMAT_OF_SUFFIX: dict[str, AudioFormat] = {
    ".wav": "wav",
    ".pcm": "pcm",
    ".mp3": "mp3",
    ".opus": "opus",
    ".ogg": "opus",
}
# A recording of one's own may be long; this only stops a file that unpacks without end.
_LOAD_SECONDS = 4 * 3600.0
# Part of every key. Raised when the same key would mean another rendering than it did before.
_KEY_VERSION = 1

UNKNOWN_TEXT: Final = "…"
"""The text of a take of which nobody knows what is said in it: no word, so that nothing is measured by it."""
# Between a file and a part of it.
_PART: Final = "#t="

Sound = bytes | Callable[[], bytes]
"""Encoded audio, or what fetches it from where it is kept."""


@dataclass(frozen=True, eq=False, repr=False)
class Clip(Shown):
    """Mono sound with its rate and, when a backend made it, the take it comes from.

    Args:
        samples: float32 of shape (n,) in [-1, 1]; copied, and read-only from then on.
        rate: sample rate in Hz.
        words: when each word is said, where the backend tells.
        take: what it was decoded from, enough to make it again; None when it was loaded or computed.
        loading_notes: what was noticed when it was loaded from a file, in sentences.

    Two clips are equal when their samples and rates are: the same sound compares equal wherever and
    however fast it was made. Clips can be hashed, pickled and copied. Raises AudioError, which names
    the argument.
    """

    samples: Samples
    rate: int
    words: Words = Words()  # noqa: RUF009 (it is immutable)
    take: Take | None = None
    loading_notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        samples = as_samples(self.samples)
        peak = float(np.abs(samples).max(initial=0.0))
        if peak > 1.0:
            raise AudioError(f"samples: the peak is {peak:.3g}, beyond ±1; make it quieter, or limit it")
        # A view of bytes can never be made writeable again, an array's own memory can. Adding zero
        # makes -0.0 and 0.0 one, so that equal samples are equal bytes.
        held = np.frombuffer((samples + np.float32(0.0)).tobytes(), np.float32) if samples.size else NO_SAMPLES
        object.__setattr__(self, "samples", held)
        object.__setattr__(self, "rate", check_rate(self.rate))
        object.__setattr__(self, "words", Words(self.words, self.duration))
        object.__setattr__(self, "loading_notes", tuple(self.loading_notes))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Clip):
            return NotImplemented
        return self.rate == other.rate and np.array_equal(self.samples, other.samples)

    def __hash__(self) -> int:
        return hash(self.sha256)

    def __reduce__(self) -> tuple[Callable[..., Clip], tuple[object, ...]]:
        # Through the constructor, because a pickled array forgets that it is read-only.
        held = np.array(self.samples)
        return type(self), (held, self.rate, self.words, self.take, self.loading_notes)

    def __len__(self) -> int:
        return int(self.samples.size)

    def __bool__(self) -> bool:
        # An empty clip is still a clip: `clip or other` must not depend on its length.
        return True

    def __repr__(self) -> str:
        return f"Clip({self.duration:.2f} s, {self.rate} Hz, {self.level:.1f} dBFS)"

    @property
    def notes(self) -> tuple[str, ...]:
        """What the listener should know, in sentences."""
        return (*(() if self.take is None else self.take.all_notes), *self.loading_notes)

    @property
    def similarity(self) -> float | None:
        """Of a cloned voice, how near it came to its reference: see ``Take``; None where it is not known."""
        return None if self.take is None else self.take.similarity

    @property
    def duration(self) -> float:
        """Length in seconds."""
        return len(self) / self.rate

    @property
    def level(self) -> float:
        """Root-mean-square level in dBFS; -inf for silence."""
        return dbfs(self.samples)

    @property
    def peak(self) -> float:
        """Largest absolute sample, 0 to 1."""
        return float(np.abs(self.samples).max(initial=0.0))

    @cached_property
    def sha256(self) -> str:
        """Digest of the rate and the samples (little-endian float32), for manifests and caches."""
        head = f"{self.rate}:".encode()
        return hashlib.sha256(head + self.samples.astype("<f4", copy=False).tobytes()).hexdigest()

    def resample(self, rate: int) -> Clip:
        """Return the clip at another rate in Hz (soxr, high quality). Overshoot beyond ±1 is clipped."""
        if check_rate(rate) == self.rate:
            return self
        samples = resample(self.samples, self.rate, rate)
        return replace(self, samples=np.clip(samples, np.float32(-1.0), np.float32(1.0)), rate=rate)

    def slice(self, start: float = 0.0, end: float | None = None) -> Clip:
        """Return the part from ``start`` to ``end`` in seconds; None, or an end beyond it, is the clip's end.

        Words that lie in it, even in part, come along; when chunks arrived does not, unless it is the whole. Raises
        AudioError unless 0 <= start <= end.
        """
        stop = self.duration if end is None else end
        if not 0.0 <= start <= stop:
            raise AudioError(f"slice: {start} to {stop} s is no part of a clip; 0 <= start <= end is needed")
        first, last = (min(round(seconds * self.rate), len(self)) for seconds in (start, min(stop, self.duration)))
        begin, length = first / self.rate, (last - first) / self.rate
        words = Words(
            WordTime(word.text, max(0.0, word.start - begin), min(length, word.end - begin))
            for word in self.words
            if word.start < begin + length and word.end > begin
        )
        take = self.take
        if take is not None and last - first < len(self):
            take = replace(take, timing=replace(take.timing, arrivals=()))
        return replace(self, samples=self.samples[first:last], words=words, take=take)

    def to_bytes(
        self, format: AudioFormat = "wav", sample_rate: int | None = None, bitrate: int | None = None
    ) -> bytes:
        """Return the clip as a file of ``format``, with exact sizes in a WAV's header.

        ``sample_rate`` in Hz: None keeps the clip's own where the format can have it, otherwise takes the
        format's default. ``bitrate`` in kbit/s for mp3 (64, 128, 192) and opus (24, 32, 48, 64, or -1000
        for automatic); None is the interface's default. Raises AudioError.
        """
        if bitrate is not None and format not in ("mp3", "opus"):
            raise AudioError(f"bitrate: {format} has none")
        if sample_rate is None and (format in ("wav", "pcm") or self.rate in RATES.get(format, ())):
            sample_rate = self.rate
        mp3 = bitrate if bitrate is not None and format == "mp3" else 128
        opus = bitrate if bitrate is not None and format == "opus" else -1000
        return encode(self.samples, format, self.rate, sample_rate, mp3, opus)

    def save(self, path: str | Path, bitrate: int | None = None) -> Path:
        """Write the clip; the suffix says how: .wav, .pcm, .mp3, .opus or .ogg (Opus).

        A file that is there already is replaced, or stays as it was when the disk fails. Returns the path. Raises
        AudioError for another suffix and OSError when it cannot be written.
        """
        target = Path(path)
        named = _FORMAT_OF_SUFFIX.get(target.suffix.lower())
        if named is None:
            raise AudioError(f"path: {target.name!r} does not end in one of {', '.join(_FORMAT_OF_SUFFIX)}")
        data = self.to_bytes(named, bitrate=bitrate)
        with open_atomic(target, sync=False) as file:
            file.write(data)
        return target

    @classmethod
    def load(
        cls,
        source: str | Path | bytes,
        *,
        words: str | Path | Iterable[WordTime] = (),
        max_seconds: float | None = _LOAD_SECONDS,
    ) -> Self:
        """Read a WAV, MP3, FLAC, Ogg, M4A, AIFF, WebM or like file, by path or as bytes; several channels are averaged.

        ``words`` are the times of its words, or the path of the .TextGrid, .srt or .vtt file that has them.

        Samples beyond full scale, as a WAV in floats can have, are clipped, and ``notes`` say so. Raises AudioError when
        it is none of these, damaged, cut off or longer than ``max_seconds``, and OSError when it cannot be read.
        """
        data = source if isinstance(source, bytes) else Path(source).read_bytes()
        samples, rate = read(data, max_seconds=max_seconds, max_bytes=None, foreign=True)
        peak = float(np.abs(samples).max(initial=0.0))
        said = Words.load(words) if isinstance(words, str | Path) else Words(words)
        if peak <= 1.0:
            return cls(samples, rate, said)
        loud = int((np.abs(samples) > 1.0).sum())
        over = f"{20 * math.log10(peak):.1f} dB"
        note = (
            f"The file is louder than full scale, by {over} at its peak: {loud} of {samples.size} samples were clipped."
        )
        return cls(np.clip(samples, np.float32(-1.0), np.float32(1.0)), rate, said, loading_notes=(note,))

    def plot(self, **options: Any) -> Any:
        """Plot waveform, spectrogram and pitch; the options are those of voicelab.views."""
        return view("Clip.plot")(self, **options)

    def audio(self, **options: Any) -> Any:
        """Return a plain ``IPython.display.Audio`` of the clip, as loud as it is; the options are Audio's own."""
        return view("Clip.audio")(self, **options)


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
class Take(Shown):
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
        source: of sound that was not made here, the file that it was read from, "talk.flac", or the part of it,
            "talk.flac#t=1.5,3.2" (seconds, W3C Media Fragments); its audio then is a file of any format, and the
            request has the words alone, ``UNKNOWN_TEXT`` where they are not known.
        host: name of the machine on which a process of a sweep's ``executor`` made it; "" where this process did.
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
    source: str = ""
    host: str = ""
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
        audio, sizes = self.audio, [size for _, size in self.timing.arrivals]
        return tuple(audio[end - size : end] for size, end in zip(sizes, itertools.accumulate(sizes), strict=True))

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
        if self.source:
            return replace(Clip.load(self.audio, words=self.words), take=self)
        decoder = StreamDecoder(self.request.format, self.request.rate)
        samples = np.concatenate((decoder.feed(self.audio), decoder.finish()))
        return Clip(samples, self.request.rate, Words(self.words), self)

    @property
    def suffix(self) -> str:
        """How a file of its audio ends, without the dot: ``wav``, ``ogg``; of a part of a file it is ``wav``."""
        if self.source:
            suffix = Path(self.source).suffix.lstrip(".").lower()
            return suffix if suffix.isalnum() and _PART not in self.source else "wav"
        return {"opus": "ogg"}.get(self.request.format, self.request.format)

    def noted(self, *notes: str) -> Self:
        """Return the take with more notes."""
        return replace(self, notes=(*self.notes, *notes)) if notes else self

    def record(self) -> dict[str, Any]:
        """Return the take without its audio as a JSON-able object; ``of_record`` reads it back."""
        return {
            **call_record(self.call),
            **{name: getattr(self, name) for name in ("backend", "fingerprint", "device")},
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
            **{name: value for name in ("source", "host") if (value := getattr(self, name))},
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
                **{name: record[name] for name in ("backend", "fingerprint", "device", "repeat", "digest")},
                seed=record["seed_used"],
                words=tuple(WordTime(*word) for word in record["words"]),
                notes=tuple(record["notes"]),
                similarity=record.get("similarity"),  # takes of before it was kept have none
                created=datetime.fromisoformat(record["created"]),
                **{name: record.get(name, "") for name in ("source", "host")},
            )
        except (KeyError, TypeError, ValueError) as error:
            raise NoRecord(f"this is no record of a take: {type(error).__name__}: {error}") from error


class NoRecord(StoreError):
    """What should describe a take or a failure does not."""


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
        **call_knobs(call),
    }
    return digest_of(json.dumps(named, sort_keys=True, separators=(",", ":"), allow_nan=False).encode())
