"""Clip, an immutable audio signal, and Take, one rendering of a call with its audio, timing and metadata."""

from __future__ import annotations

import hashlib
import itertools
import json
import math
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any, Final, Self

import numpy as np
import numpy.typing as npt

from voicelab.audio.decoders import StreamDecoder
from voicelab.audio.formats import encode, read
from voicelab.audio.samples import NO_SAMPLES, Samples, as_samples, check_rate, dbfs, resample
from voicelab.audio.words import Words, WordTime
from voicelab.call import Call, call_knobs, call_of, call_record
from voicelab.display import Shown, view
from voicelab.errors import AudioError, RequestInvalid, StoreError, VoicelabError, shown_value
from voicelab.guesses import Guided, answers
from voicelab.schema import RATES, AudioFormat, TTSRequest
from voicelab.storage import digest_of, write_atomic

_FORMAT_OF_SUFFIX: dict[str, AudioFormat] = {
    ".wav": "wav",
    ".pcm": "pcm",
    ".mp3": "mp3",
    ".opus": "opus",
    ".ogg": "opus",
}
# Recordings may be long; the limit only stops decompression bombs.
_MAX_LOAD_SECONDS = 4 * 3600.0
# Part of every key; increment when the meaning of a key changes.
_KEY_VERSION = 1

UNKNOWN_TEXT: Final = "…"
"""Text of a take whose words are unknown; it contains no word, so text-based metrics are undefined."""
# Maximum difference in duration, in s, between a take and a clip of all of it, which may be resampled.
_SAME_S: Final = 0.1
# Separator of a file name and a media fragment.
_FRAGMENT: Final = "#t="

Sound = bytes | Callable[[], bytes]
"""Encoded audio, or a function that fetches it."""


@dataclass(frozen=True, eq=False, repr=False)
class Clip(Shown, metaclass=Guided):
    """Mono audio with its sample rate, word times and, if synthesized, its take.

    Args:
        samples: float32 of shape (n,) in [-1, 1]; stored as a read-only copy.
        rate: sample rate in Hz.
        words: word times, if known.
        take: take from which the clip was decoded and can be rendered again; None if it was loaded or computed.
        loading_notes: notes from loading a file, as sentences.

    Clips are equal if their samples and rates are equal; words and takes are not compared. Clips can be hashed,
    pickled and copied. Raises AudioError for an invalid argument.
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
            raise AudioError(f"samples must be within ±1, got a peak of {peak:.3g}; scale or limit them")
        # A view of bytes cannot be made writeable again. Adding zero turns -0.0 into 0.0, so that equal
        # samples are equal bytes.
        frozen = np.frombuffer((samples + np.float32(0.0)).tobytes(), np.float32) if samples.size else NO_SAMPLES
        object.__setattr__(self, "samples", frozen)
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
        # Rebuild through the constructor, since unpickled arrays are writeable.
        return type(self), (np.array(self.samples), self.rate, self.words, self.take, self.loading_notes)

    def __len__(self) -> int:
        return int(self.samples.size)

    def __array__(self, dtype: npt.DTypeLike | None = None, copy: bool | None = None) -> npt.NDArray[Any]:
        if copy is False and dtype not in (None, self.samples.dtype):
            raise AudioError(f"copy=False requires dtype float32, got {dtype}")
        return self.samples.astype(dtype or self.samples.dtype, copy=bool(copy))

    def __bool__(self) -> bool:
        # `clip or other` must not depend on the length.
        return True

    def __repr__(self) -> str:
        return f"Clip({self.duration:.2f} s, {self.rate} Hz, {self.level:.1f} dBFS)"

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes of the take and from loading, as sentences."""
        return (*(() if self.take is None else self.take.all_notes), *self.loading_notes)

    @property
    def similarity(self) -> float | None:
        """Speaker similarity of a cloned voice to its reference, see ``Take``; None if unknown."""
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
        """SHA-256 of the rate and the samples (little-endian float32), for manifests and caches."""
        head = f"{self.rate}:".encode()
        return hashlib.sha256(head + self.samples.astype("<f4", copy=False).tobytes()).hexdigest()

    @answers(**dict.fromkeys(("sr", "target_sr", "sample_rate", "orig_sr"), "clip.resample(16000)"))
    def resample(self, rate: int) -> Clip:
        """Resample to another rate in Hz (soxr, high quality). Overshoot beyond ±1 is clipped."""
        if check_rate(rate) == self.rate:
            return self
        samples = resample(self.samples, self.rate, rate)
        return replace(self, samples=np.clip(samples, np.float32(-1.0), np.float32(1.0)), rate=rate)

    @property
    def spoken_text(self) -> str | None:
        """Spoken text of the take; None if it is unknown, or if the clip is only a part of the take."""
        take = self.take
        if take is None or take.call.said == UNKNOWN_TEXT:
            return None
        # ``slice`` removes the arrival times, which recordings do not have either.
        whole = bool(take.timing.arrivals) or len(self.words) == len(take.words) > 0
        if not whole:
            with suppress(VoicelabError):  # the audio is gone
                whole = abs(take.clip().duration - self.duration) < _SAME_S
        return take.call.said if whole else None

    def slice(self, start: float = 0.0, end: float | None = None) -> Clip:
        """Return the interval from ``start`` to ``end`` in seconds; ``end`` defaults to, and is limited to, the clip's end.

        Words that overlap the interval are included; arrival times are dropped unless the interval is the complete clip.
        Raises AudioError unless 0 <= start <= end.
        """
        stop = self.duration if end is None else end
        if not 0.0 <= start <= stop:
            raise AudioError(f"slice must satisfy 0 <= start <= end, got {start} to {stop} s")
        start_index, stop_index = (
            min(round(seconds * self.rate), len(self)) for seconds in (start, min(stop, self.duration))
        )
        begin, length = start_index / self.rate, (stop_index - start_index) / self.rate
        words = Words(
            WordTime(word.text, max(0.0, word.start - begin), min(length, word.end - begin))
            for word in self.words
            if word.start < begin + length and word.end > begin
        )
        take = self.take
        if take is not None and stop_index - start_index < len(self):
            take = replace(take, timing=replace(take.timing, arrivals=()))
        return replace(self, samples=self.samples[start_index:stop_index], words=words, take=take)

    def to_bytes(
        self, format: AudioFormat = "wav", sample_rate: int | None = None, bitrate: int | None = None
    ) -> bytes:
        """Encode the clip as a complete file.

        Args:
            format: wav, pcm, mp3 or opus.
            sample_rate: rate in Hz; None for the clip's rate if the format supports it, else the format's default.
            bitrate: kbit/s of mp3 (64, 128, 192) or opus (24, 32, 48, 64, or -1000 for automatic); None for the
                interface's default.

        Raises:
            AudioError: an argument is not supported by the format.
        """
        if bitrate is not None and format not in ("mp3", "opus"):
            raise AudioError(f"bitrate must be None for {format}, got {bitrate}")
        if sample_rate is None and (format in ("wav", "pcm") or self.rate in RATES.get(format, ())):
            sample_rate = self.rate
        mp3 = bitrate if bitrate is not None and format == "mp3" else 128
        opus = bitrate if bitrate is not None and format == "opus" else -1000
        return encode(self.samples, format, self.rate, sample_rate, mp3, opus)

    def save(self, path: str | Path, bitrate: int | None = None) -> Path:
        """Write the clip to a .wav, .pcm, .mp3, .opus or .ogg (Opus) file and return its path.

        An existing file is replaced atomically; a missing folder is created. Raises AudioError for any other suffix, and
        StoreError if the file cannot be written.
        """
        target = Path(path)
        file_format = _FORMAT_OF_SUFFIX.get(target.suffix.lower())
        if file_format is None:
            raise AudioError(f"path: the suffix must be one of {', '.join(_FORMAT_OF_SUFFIX)}, got {target.name!r}")
        write_atomic(target, self.to_bytes(file_format, bitrate=bitrate), sync=False)
        return target

    @classmethod
    @answers(**dict.fromkeys(("sr", "rate", "sample_rate"), "vl.Clip.load(path).resample(16000)"))
    def load(
        cls,
        source: str | Path | bytes,
        *,
        words: str | Path | Iterable[WordTime] = (),
        max_seconds: float | None = _MAX_LOAD_SECONDS,
    ) -> Self:
        """Load a WAV, MP3, FLAC, Ogg, M4A, AIFF, WebM or similar file; channels are averaged.

        Samples beyond full scale, as in float WAV files, are clipped, with a note in ``notes``.

        Args:
            source: path or content of the file.
            words: word times, or the path of a .TextGrid, .srt or .vtt file.
            max_seconds: maximum duration; None for no limit.

        Raises:
            AudioError: the file has an unsupported format, is damaged, truncated or too long.
            OSError: the file cannot be read.
        """
        data = source if isinstance(source, bytes) else Path(source).read_bytes()
        samples, rate = read(data, max_seconds=max_seconds, max_bytes=None, foreign=True)
        peak = float(np.abs(samples).max(initial=0.0))
        timed_words = Words.load(words) if isinstance(words, str | Path) else Words(words)
        if peak <= 1.0:
            return cls(samples, rate, timed_words)
        clipped = int((np.abs(samples) > 1.0).sum())
        excess = f"{20 * math.log10(peak):.1f} dB"
        note = f"The file exceeds full scale by {excess} at its peak: {clipped} of {samples.size} samples were clipped."
        return cls(np.clip(samples, np.float32(-1.0), np.float32(1.0)), rate, timed_words, loading_notes=(note,))

    def plot(self, **options: Any) -> Any:
        """Plot waveform, spectrogram, F0 or energy. ``options`` are those of ``voicelab.views.plots.plot_clips``."""
        return view("Clip.plot")(self, **options)

    def audio(self, **options: Any) -> Any:
        """Create an ``IPython.display.Audio`` without normalization. ``options`` are passed to it."""
        return view("Clip.audio")(self, **options)


@dataclass(frozen=True, slots=True)
class Timing:
    """Arrival times of audio in seconds since the call; ``arrivals`` lists (time, size in bytes) for every chunk."""

    first_audio_s: float = 0.0
    total_s: float = 0.0
    arrivals: tuple[tuple[float, int], ...] = ()

    def rtf(self, duration: float) -> float:
        """Compute the real-time factor for ``duration`` seconds of audio; inf if the duration is 0."""
        return self.total_s / duration if duration > 0.0 else math.inf


@dataclass(frozen=True)
class Take(Shown, metaclass=Guided):
    """One rendering of one call, with its audio and everything needed to render it again.

    Args:
        call: the call; its seed is None if unset, even if the backend drew one.
        sound: encoded audio as received, or a function that fetches it; read it as ``audio``.
        timing: arrival times of the audio.
        backend: name of the backend.
        fingerprint: digest of the backend's weights, or its address.
        device: device of the backend.
        seed: seed in use, requested or drawn; None if unknown.
        repeat: index of the take among the takes of this call, from 0.
        words: word times, if known.
        notes: notes, as sentences.
        similarity: speaker similarity of a cloned voice to its reference, if known: 1 for the same speaker, 0 for the
            mean distance between voices of the backend, negative for larger distances. Takes of short texts score below
            1 even if the voice is that of the reference.
        created: UTC time of the rendering.
        source: file of a recording, "talk.flac", or an interval of a file, "talk.flac#t=1.5,3.2" (seconds, W3C Media
            Fragments). Its audio may have any format; its request contains only the text (``UNKNOWN_TEXT`` if unknown).
        host: name of the computer that rendered the take for a sweep; "" if unknown.
        digest: SHA-256 of the audio; computed by default if ``sound`` is bytes.
        cached: whether the take comes from a cache.

    Takes are equal if all fields except ``sound`` and ``cached`` are equal.
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
        # A digest that is passed is trusted: computing it takes longer than reading the audio.
        if isinstance(self.sound, bytes) and not self.digest:
            object.__setattr__(self, "digest", digest_of(self.sound))

    @property
    def audio(self) -> bytes:
        """Encoded audio as received. Raises StoreError if it cannot be fetched."""
        return self.sound if isinstance(self.sound, bytes) else self.sound()

    @property
    def request(self) -> TTSRequest:
        """Request of the call."""
        return self.call.request

    @property
    def model(self) -> str:
        """Name of the model."""
        return self.call.model

    @property
    def key(self) -> str:
        """Key of the take, see ``take_key``."""
        return take_key(self.call, self.fingerprint, self.repeat)

    @property
    def chunks(self) -> tuple[bytes, ...]:
        """Audio chunks as received."""
        audio, sizes = self.audio, [size for _, size in self.timing.arrivals]
        return tuple(audio[end - size : end] for size, end in zip(sizes, itertools.accumulate(sizes), strict=True))

    @property
    def all_notes(self) -> tuple[str, ...]:
        """Notes, including the creation time of a cached take."""
        if not self.cached:
            return self.notes
        return (*self.notes, f"This is a cached take, made {self.created:%Y-%m-%d %H:%M:%S} UTC.")

    def clip(self) -> Clip:
        """Decode the take; ``clip.take`` is this take.

        Raises AudioError if the audio is damaged, and StoreError if it cannot be fetched.
        """
        if self.source:
            return replace(Clip.load(self.audio, words=self.words), take=self)
        decoder = StreamDecoder(self.request.format, self.request.rate)
        samples = np.concatenate((decoder.feed(self.audio), decoder.finish()))
        return Clip(samples, self.request.rate, Words(self.words), self)

    @property
    def suffix(self) -> str:
        """File suffix of the audio without the dot, such as ``wav`` or ``ogg``; ``wav`` for an interval of a file."""
        if self.source:
            suffix = Path(self.source).suffix.lstrip(".").lower()
            return suffix if suffix.isalnum() and _FRAGMENT not in self.source else "wav"
        return {"opus": "ogg"}.get(self.request.format, self.request.format)

    def noted(self, *notes: str) -> Self:
        """Return a copy with additional notes."""
        return replace(self, notes=(*self.notes, *notes)) if notes else self

    def record(self) -> dict[str, Any]:
        """Convert to a JSON-serializable object without the audio; inverse of ``of_record``."""
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
        """Create from the object of ``record()``.

        ``references`` returns reference audio by its SHA-256. Raises NoRecord (a StoreError) if the object is invalid.
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
                similarity=record.get("similarity"),  # missing in old records
                created=datetime.fromisoformat(record["created"]),
                **{name: record.get(name, "") for name in ("source", "host")},
            )
        except (KeyError, TypeError, ValueError) as error:
            raise NoRecord(f"invalid record of a take: {type(error).__name__}: {error}") from error


class NoRecord(StoreError):
    """The record of a take or failure is invalid."""


def take_key(call: Call, fingerprint: str, repeat: int = 0) -> str:
    """Compute the key of a take: 64 hexadecimal digits, equal if and only if the takes are equivalent.

    Reference audio is compared by its bytes; the order of fields is irrelevant.

    Args:
        call: the call.
        fingerprint: fingerprint of the backend's Capabilities.
        repeat: index of the take among the takes of the call, from 0.

    Raises:
        RequestInvalid: ``repeat`` is not an integer of at least 0.
    """
    if type(repeat) is not int or repeat < 0:
        raise RequestInvalid.of(
            "repeat", f"must be an integer of at least 0, got {shown_value(repeat)}", type="int_type"
        )
    content = {
        "version": _KEY_VERSION,
        "request": call.request.canonical(),
        "model": call.model,
        "fingerprint": fingerprint,
        "seed": call.seed,
        "repeat": repeat,
        **call_knobs(call),
    }
    return digest_of(json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False).encode())
