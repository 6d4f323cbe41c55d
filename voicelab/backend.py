"""Protocol of synthesis backends, and the stream of audio that they return.

Panels, sweeps and the service depend only on this protocol and work with every backend (the embedded
engine, a remote service, recordings).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Final, Generic, Protocol, Self, TypeVar, runtime_checkable

from voicelab.audio.decoders import StreamDecoder
from voicelab.audio.encoders import header_bytes
from voicelab.audio.samples import Samples
from voicelab.audio.words import WordTime
from voicelab.call import Call
from voicelab.capabilities import Capabilities, check_call, check_text_length, ignored_notes
from voicelab.clip import Clip, Take, Timing
from voicelab.errors import AudioError, Cancelled, EngineError, NotFound, RequestInvalid, VoicelabError
from voicelab.lifecycle import Closeable, ProcessOwner
from voicelab.schema import RATES, TTSRequest, VoiceCreate, VoiceModel

_Chunks = TypeVar("_Chunks")

DEFAULT_MAX_TEXT = 20_000
"""Default maximum characters of text per request of voicelab's own backends."""

_FORMATS_WITH_RATE: Final = frozenset({"wav", "mp3"})
"""Formats that state their sample rate. Raw PCM does not, so ``lab.check_knobs`` tests its rate; Opus is always 48 kHz."""


@dataclass(frozen=True, slots=True)
class StreamSummary:
    """Word times, notes and speaker similarity, as in ``Take``; available only after all audio has arrived."""

    words: tuple[WordTime, ...] = ()
    notes: tuple[str, ...] = ()
    similarity: float | None = None


@runtime_checkable
class Backend(Protocol):
    """Protocol of synthesis backends. Methods must be thread-safe."""

    @property
    def capabilities(self) -> Capabilities:
        """Capabilities of this backend."""

    def synthesize(self, call: Call) -> SpeechStream:
        """Start synthesis and return the stream of audio; reading the stream raises later errors.

        Raises RequestInvalid, ServiceError or EngineError.
        """

    def create_voice(self, request: VoiceCreate) -> VoiceModel:
        """Create a voice model from audio. Raises RequestInvalid, ServiceError or EngineError."""

    def get_voice(self, id: str) -> VoiceModel:
        """Return a voice model. Raises NotFound if it is unknown or private to another caller."""

    def close(self) -> None:
        """Release connections, threads and memory; running streams end. Idempotent."""


@runtime_checkable
class VoiceHost(Backend, Protocol):
    """Protocol of backends that store voice models per caller, as a service requires."""

    def acting_for(self, owner: str) -> Self:
        """Return a view of this backend for one caller, including its private voice models."""

    def usage(self) -> tuple[int, int]:
        """Return the number of the caller's voice models and the size of their recordings in bytes. Raises StoreError."""

    def cover_image(self, id: str) -> bytes:
        """Return the cover image of a voice model. Raises NotFound if the voice model or its image does not exist."""

    def sample_audio(self, id: str, number: int) -> bytes:
        """Return sample ``number``, from 0, of a voice model as a WAV file. Raises NotFound if it does not exist."""


@runtime_checkable
class VoiceStoreBackend(Backend, Protocol):
    """Protocol of backends that can list and delete voice models; the HTTP interface supports neither."""

    def list_voices(self) -> tuple[VoiceModel, ...]:
        """Return the caller's voice models, newest first. Raises StoreError."""

    def delete_voice(self, id: str) -> None:
        """Delete a voice model of the caller, with its recordings. Raises NotFound, StoreError."""


def list_voices(backend: Backend) -> tuple[VoiceModel, ...]:
    """Return the caller's voice models; empty if the backend does not list them."""
    lister: Callable[[], tuple[VoiceModel, ...]] = getattr(backend, "list_voices", tuple)
    return lister()


def delete_voice(backend: Backend, id: str) -> None:
    """Delete a voice model of a VoiceStoreBackend. Raises NotFound, StoreError, and RequestInvalid for other backends."""
    if not isinstance(backend, VoiceStoreBackend):
        message = f"the backend {backend.capabilities.name!r} does not support deleting voices"
        raise RequestInvalid.of("voice", message, type="unsupported")
    backend.delete_voice(id)


def current_capabilities(backend: Backend) -> Capabilities:
    """Return a backend's capabilities, with the current fingerprint of a function whose objects may have changed."""
    renew: Callable[[], object] = getattr(backend, "renew_fingerprint", tuple)
    renew()
    return backend.capabilities


class VoicelessBackend(Closeable):
    """Base of backends that store no voice models."""

    def __init__(self, capabilities: Capabilities) -> None:
        self._capabilities = capabilities
        self._closed = False

    @property
    def capabilities(self) -> Capabilities:
        """Capabilities of this backend."""
        return self._capabilities

    def checked(self, call: Call) -> Call:
        """Validate a call and the length of its text. Raises RequestInvalid, and EngineError after ``close()``."""
        if self._closed:
            raise EngineError(f"the backend {self._capabilities.name!r} is closed")
        call = check_call(call, self._capabilities)
        check_text_length(call.request, self._capabilities.max_text)
        return call

    def create_voice(self, request: VoiceCreate) -> VoiceModel:  # noqa: ARG002 - signature of the protocol
        """Raise RequestInvalid: voices are not stored."""
        cloning = "" if self._capabilities.ignored("references") else "; pass references=… to speak"
        message = f"the backend {self._capabilities.name!r} does not store voices{cloning}"
        raise RequestInvalid.of("voices", message, type="unsupported")

    def get_voice(self, id: str) -> VoiceModel:
        """Raise NotFound: voices are not stored."""
        message = f"the backend {self._capabilities.name!r} does not store voice models, so {id!r} does not exist"
        raise NotFound(message, status=404)

    def close(self) -> None:
        """Reject further calls; running streams continue. Idempotent."""
        self._closed = True


class StreamBase(Generic[_Chunks]):
    """Base of the synchronous and the asynchronous stream, with call, arrival times and summary."""

    def __init__(
        self,
        chunks: _Chunks,
        *,
        call: Call,
        backend: Capabilities,
        seed: int | None = None,
        notes: Callable[[], Iterable[str]] = tuple,
        summary: Callable[[], StreamSummary] | None = None,
        started: float | None = None,
    ) -> None:
        self._chunks = chunks
        self.call = call
        self.backend = backend
        self.seed = call.seed if seed is None else seed
        self._started = time.perf_counter() if started is None else started
        self._ask_notes = notes
        self._ask_summary = summary
        self._summary = StreamSummary()
        self._arrivals: list[tuple[float, int]] = []
        self._rate_probe = StreamDecoder(call.request.format) if call.request.format in _FORMATS_WITH_RATE else None
        self._total_s: float | None = None
        self._created: datetime | None = None
        self._exhausted = False
        self._closed = False

    def __repr__(self) -> str:
        state = "complete" if self._exhausted else "closed" if self._closed else "open"
        received = sum(size for _, size in self._arrivals)
        return f"{type(self).__name__}({self.request.format}, {self.rate} Hz, {received} bytes, {state})"

    @property
    def request(self) -> TTSRequest:
        """Request of the call; its format and rate are those of the audio."""
        return self.call.request

    @property
    def rate(self) -> int:
        """Sample rate of the audio in Hz."""
        return self.request.rate

    @property
    def arrivals(self) -> tuple[tuple[float, int], ...]:
        """Arrivals of all chunks so far: (seconds since the call, size in bytes)."""
        return tuple(self._arrivals)

    @property
    def first_audio_s(self) -> float | None:
        """Time to first audio in seconds since the call, excluding a WAV header; None until it arrives."""
        total = 0
        for seconds, size in self._arrivals:
            total += size
            if total > header_bytes(self.request.format):
                return seconds
        return None

    @property
    def complete(self) -> bool:
        """Whether all audio has arrived."""
        return self._exhausted

    @property
    def summary(self) -> StreamSummary:
        """Words and notes; empty until all audio has arrived, or if the backend provides none."""
        return self._summary

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes so far; once all audio has arrived, the notes of the take."""
        if self._total_s is not None:
            return self._summary.notes
        return tuple(dict.fromkeys((*self._ask_notes(), *ignored_notes(self.call, self.backend))))

    @property
    def timing(self) -> Timing:
        """Arrival times; final once all audio has arrived."""
        total = self._total_s if self._total_s is not None else time.perf_counter() - self._started
        first_audio_s = self.first_audio_s
        return Timing(total if first_audio_s is None else first_audio_s, total, self.arrivals)

    def take_of(self, audio: bytes, repeat: int = 0) -> Take:
        """Build the take of a stream that was read chunk by chunk; ``audio`` is the concatenation of all chunks."""
        return Take(
            self.call,
            audio,
            self.timing,
            backend=self.backend.name,
            fingerprint=self.backend.fingerprint,
            device=self.backend.device,
            seed=self.seed,
            repeat=repeat,
            words=self.summary.words,
            notes=self.summary.notes,
            similarity=self.summary.similarity,
            created=self._created or datetime.now(UTC),
        )

    def _arrived(self, chunk: bytes) -> None:
        self._arrivals.append((time.perf_counter() - self._started, len(chunk)))
        if self._rate_probe is not None:
            self._check_rate(self._rate_probe, chunk)

    def _check_rate(self, probe: StreamDecoder, chunk: bytes) -> None:
        """Raise AudioError if the rate stated in the audio is not the requested one."""
        try:
            probe.feed(chunk)
        except AudioError:
            self._rate_probe = None  # decoding raises the error
            return
        rate = probe.source_rate
        if rate is None:
            return
        self._rate_probe = None
        if rate != self.rate:
            message = f"the audio of the backend {self.backend.name!r} must be at {self.rate} Hz, got {rate} Hz"
            remedy = f"request sample_rate={rate}" if rate in RATES[self.request.format] else "request format='pcm'"
            raise AudioError(f"{message}: {remedy}, or encode with StreamEncoder.for_request(call.request, rate)")

    def _ended(self) -> None:
        self._total_s = time.perf_counter() - self._started
        self._created = datetime.now(UTC)
        if self._ask_summary is not None:
            self._summary = self._ask_summary()
        ignored = [note for note in ignored_notes(self.call, self.backend) if note not in self._summary.notes]
        if ignored:
            self._summary = replace(self._summary, notes=(*self._summary.notes, *ignored))

    def _check_unread(self) -> None:
        if self._arrivals:
            raise AudioError("take(), clip() and pcm() require an unread stream, got one that was already read")

    def _decoder(self) -> StreamDecoder:
        self._check_unread()
        return StreamDecoder(self.request.format, self.rate)


Finished = Callable[["SpeechStream", bytes], tuple[str, ...]]
Failed = Callable[["SpeechStream", bytes, VoicelabError], object]


class SpeechStream(Closeable, StreamBase[Iterator[bytes]]):
    """Stream of encoded audio. Iterate once over the chunks of bytes, or call ``take()``, ``clip()`` or ``pcm()``.

    Args:
        chunks: encoded audio; a generator is closed together with the stream.
        call: the call; ``call.request.format`` and ``call.request.rate`` are those of ``chunks``.
        backend: capabilities of the backend.
        seed: seed drawn by the backend; defaults to the seed of the call.
        on_close: called exactly once when the stream ends or is closed, to cancel or release the work.
        notes: callback that returns the notes so far, for example for a response header; ``summary`` repeats them.
        summary: callback that returns words and notes; called once, after the last chunk.
        started: ``time.perf_counter()`` at the call; defaults to the time of construction.

    Errors of ``chunks`` propagate unchanged; WAV or MP3 at another rate raises AudioError.
    ``close()`` may be called from another thread; reading then raises Cancelled. Leaving a ``with`` block closes the stream.
    """

    def __init__(
        self,
        chunks: Iterator[bytes],
        *,
        call: Call,
        backend: Capabilities,
        seed: int | None = None,
        on_close: Callable[[], None] | None = None,
        notes: Callable[[], Iterable[str]] = tuple,
        summary: Callable[[], StreamSummary] | None = None,
        started: float | None = None,
    ) -> None:
        super().__init__(chunks, call=call, backend=backend, seed=seed, notes=notes, summary=summary, started=started)
        self._on_close = on_close
        self._owner = ProcessOwner()
        self._lock = threading.Lock()
        self._keepers: list[tuple[Finished, Failed | None]] = []
        self._copy: list[bytes] = []
        # Held while ``chunks`` runs: CPython 3.11 may crash if a generator is closed while another thread runs it.
        self._inside = threading.Lock()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> bytes:
        if self._exhausted:
            raise StopIteration
        self._owner.check("the audio stream")
        self._check_open()
        try:
            chunk = b""
            while not chunk:
                with self._inside:
                    chunk = next(self._chunks)
                self._check_open()
            if self._keepers:
                self._copy.append(chunk)
            self._arrived(chunk)
        except StopIteration:
            self._check_open()
            self._end()
            raise
        except BaseException as error:
            self.close()
            for _, failed in self._keepers:
                if failed is not None and isinstance(error, VoicelabError) and not isinstance(error, Cancelled):
                    failed(self, b"".join(self._copy), error)
            raise
        return chunk

    def __del__(self) -> None:
        # An abandoned stream must not occupy an engine slot.
        if not getattr(self, "_closed", True):
            self.close()

    def close(self) -> None:
        """Cancel the work if it is running. Idempotent and thread-safe."""
        if self._owner.forked:  # the request and its connection belong to the parent
            return
        with self._lock:
            if self._closed:
                return
            self._closed = True
        try:
            if self._on_close is not None:
                self._on_close()
        finally:
            self._close_source()

    def keep(self, finished: Finished, failed: Failed | None = None) -> Self:
        """Register callbacks for the end of an unread stream, and return the stream.

        ``finished`` receives the stream and all audio, and returns notes to add; ``failed`` receives the stream, the
        audio so far and the error. Neither is called if the stream is closed early.
        """
        self._keepers.append((finished, failed))
        return self

    def take(self, repeat: int = 0) -> Take:
        """Wait for all audio and return the take with its call, timing, words and notes.

        ``repeat`` is the index of the take among the takes of its call. Raises AudioError if the stream was already read,
        Cancelled if it was closed, and the errors of the backend.
        """
        self._check_unread()
        with self:
            audio = b"".join(self)
        return self.take_of(audio, repeat)

    def clip(self) -> Clip:
        """Wait for all audio and decode it. Raises the same errors as ``take()``, and AudioError for damaged audio."""
        return self.take().clip()

    def pcm(self) -> Iterator[Samples]:
        """Iterate over the decoded audio as it arrives: float32 arrays of shape (n,) at ``rate``.

        Raises the same errors as ``clip()``. Leaving the iteration early closes the stream.
        """
        return self._decoded(self._decoder())

    def _decoded(self, decoder: StreamDecoder) -> Iterator[Samples]:
        with self:
            for chunk in self:
                if (samples := decoder.feed(chunk)).size:
                    yield samples
            if (samples := decoder.finish()).size:
                yield samples

    def _check_open(self) -> None:
        if self._closed:
            # The closing thread could not close the source while this thread was reading it.
            self._close_source()
            raise Cancelled("the stream was closed before all audio had arrived")

    def _end(self) -> None:
        try:
            self._ended()
            for finished, _ in self._keepers:
                notes = finished(self, b"".join(self._copy))
                self._summary = replace(self._summary, notes=(*self._summary.notes, *notes))
        finally:
            self.close()
        self._exhausted = True

    def _close_source(self) -> None:
        close = getattr(self._chunks, "close", None)
        # If a reader is inside the source, the reader closes it afterwards.
        if close is None or not self._inside.acquire(blocking=False):
            return
        try:
            close()
        finally:
            self._inside.release()
