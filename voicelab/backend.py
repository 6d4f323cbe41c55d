"""The seam: whatever answers the three calls of the interface is a Backend.

Panels, sweeps and the service above need only this protocol, so that each backend (the embedded
engine, a remote service, recordings) can stand behind each of them.
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
from voicelab.capabilities import Capabilities, ignored_notes
from voicelab.clip import Clip, Take, Timing
from voicelab.errors import AudioError, Cancelled, RequestInvalid, VoicelabError
from voicelab.schema import RATES, TTSRequest, VoiceCreate, VoiceModel
from voicelab.storage import Closing

_Chunks = TypeVar("_Chunks")

DEFAULT_MAX_TEXT = 20_000
"""Characters of text that a backend of ours takes in one request, unless it is configured otherwise."""

_RATED: Final = frozenset({"wav", "mp3"})
"""Formats whose audio says its rate. Raw pcm does not (``lab.check_knobs`` asks for it at two rates), Opus has one only."""


@dataclass(frozen=True, slots=True)
class StreamSummary:
    """What is known only once all audio is out: when each word was said, what was noticed, how like the reference it is.

    ``similarity`` is that of a Take.
    """

    words: tuple[WordTime, ...] = ()
    notes: tuple[str, ...] = ()
    similarity: float | None = None


@runtime_checkable
class Backend(Protocol):
    """Whatever answers the three calls. Calls may come from several threads at once."""

    @property
    def capabilities(self) -> Capabilities:
        """What this backend is and can do."""

    def synthesize(self, call: Call) -> SpeechStream:
        """Begin to speak. The audio comes out of the stream; so do errors that come later.

        Raises RequestInvalid, ServiceError or EngineError.
        """

    def create_voice(self, request: VoiceCreate) -> VoiceModel:
        """Make a voice model from audio. Raises RequestInvalid, ServiceError or EngineError."""

    def get_voice(self, id: str) -> VoiceModel:
        """Return a voice model's record. Raises NotFound when it is unknown or private to another caller."""

    def close(self) -> None:
        """Let go of connections, threads and memory; running streams end. May be called twice."""


@runtime_checkable
class VoiceHost(Backend, Protocol):
    """A backend that keeps voice models of several callers apart, as a service needs it."""

    def acting_for(self, owner: str) -> Self:
        """Return the same backend for one caller: what it makes private only ``owner`` sees and speaks with."""

    def cover_image(self, id: str) -> bytes:
        """Return the cover image of a voice model. Raises NotFound like ``get_voice``, or when it has none."""

    def sample_audio(self, id: str, number: int) -> bytes:
        """Return a sample of a voice model as a WAV file; they count from 0. Raises NotFound like ``cover_image``."""


@runtime_checkable
class VoiceStoreBackend(Backend, Protocol):
    """A backend that lists the voice models it keeps and deletes them: the interface has no call for either."""

    def list_voices(self) -> tuple[VoiceModel, ...]:
        """Return the voice models that its caller has made, the newest first. Raises StoreError."""

    def delete_voice(self, id: str) -> None:
        """Delete a voice model that its caller has made, with its recordings. Raises NotFound, StoreError."""


def list_voices(backend: Backend) -> tuple[VoiceModel, ...]:
    """Return what a VoiceStoreBackend lists, and nothing for any other backend."""
    return backend.list_voices() if isinstance(backend, VoiceStoreBackend) else ()


def delete_voice(backend: Backend, id: str) -> None:
    """Delete a voice model of a VoiceStoreBackend. Raises like it, and RequestInvalid for any other backend."""
    if not isinstance(backend, VoiceStoreBackend):
        message = f"the backend {backend.capabilities.name!r} has no call that deletes a voice"
        raise RequestInvalid.of("voice", message, type="unsupported")
    backend.delete_voice(id)


class StreamBase(Generic[_Chunks]):
    """Speech of which the audio is on its way: what was asked for, and what has come when.

    SpeechStream and its asynchronous twin differ in how the next chunk is waited for, and share this.
    """

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
        self._rate_probe = StreamDecoder(call.request.format) if call.request.format in _RATED else None
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
        """What was asked for; its format and rate describe the bytes."""
        return self.call.request

    @property
    def rate(self) -> int:
        """Sample rate of the audio in Hz."""
        return self.request.rate

    @property
    def arrivals(self) -> tuple[tuple[float, int], ...]:
        """(seconds since the call, bytes) of every chunk so far."""
        return tuple(self._arrivals)

    @property
    def first_audio_s(self) -> float | None:
        """Seconds from the call to the first audio; None before it. A WAV's header is not audio."""
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
        """Words and notes; empty until all audio has arrived, or when the backend tells none."""
        return self._summary

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes so far; those of the take once all audio has arrived."""
        if self._total_s is not None:
            return self._summary.notes
        return tuple(dict.fromkeys((*self._ask_notes(), *ignored_notes(self.call, self.backend))))

    @property
    def timing(self) -> Timing:
        """When the audio came; final once all audio has arrived."""
        total = self._total_s if self._total_s is not None else time.perf_counter() - self._started
        first = self.first_audio_s
        return Timing(total if first is None else first, total, self.arrivals)

    def take_of(self, audio: bytes, repeat: int = 0) -> Take:
        """Return the take of a stream that was read chunk by chunk; ``audio`` is all that came."""
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
        """Raise AudioError when the audio says of itself another rate than was asked for."""
        try:
            probe.feed(chunk)
        except AudioError:
            self._rate_probe = None  # whoever decodes it will say what is wrong
            return
        rate = probe.source_rate
        if rate is None:
            return
        self._rate_probe = None
        if rate != self.rate:
            message = f"the backend {self.backend.name!r} was asked for {self.rate} Hz, and its audio has {rate} Hz"
            asking = f"ask for sample_rate={rate}" if rate in RATES[self.request.format] else "ask for format='pcm'"
            encoding = "let the backend encode with StreamEncoder.for_request(call.request, rate)"
            raise AudioError(f"{message}: {asking}, or {encoding}")

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
            raise AudioError("the stream was already read from; take(), clip() and pcm() need it from its beginning")

    def _decoder(self) -> StreamDecoder:
        self._check_unread()
        return StreamDecoder(self.request.format, self.rate)


Finished = Callable[["SpeechStream", bytes], tuple[str, ...]]
Failed = Callable[["SpeechStream", bytes, VoicelabError], object]


class SpeechStream(Closing, StreamBase[Iterator[bytes]]):
    """Encoded audio as it arrives. Iterate once for the bytes, or call ``take()``, ``clip()`` or ``pcm()`` instead.

    Args:
        chunks: the encoded audio; a generator is closed when the stream is, so its ``finally`` runs.
        call: what was asked for; ``call.request.format`` and ``call.request.rate`` describe the bytes.
        backend: what the backend says about itself.
        seed: the seed in use, where the backend drew one; that of the call when not given.
        on_close: called exactly once when the stream ends, however it ends: this cancels or frees the work.
        notes: returns the notes so far, as for a response header; ``summary`` repeats them.
        summary: asked once, after the last chunk, for the words and notes.
        started: ``time.perf_counter()`` at the call, when that was before this construction.

    Errors of ``chunks`` pass through unchanged; AudioError when they are WAV or MP3 of another rate than was asked for.
    ``close()`` may be called from another thread; the reader then gets Cancelled. Leaving the ``with`` block closes.
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
        self._lock = threading.Lock()
        self._keepers: list[tuple[Finished, Failed | None]] = []
        self._copy: list[bytes] = []
        # Held inside ``chunks``: CPython 3.11 may crash where a generator is closed while another thread runs it.
        self._inside = threading.Lock()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> bytes:
        if self._exhausted:
            raise StopIteration
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
        # A stream that nobody reads any more must not hold a slot of the engine.
        if not getattr(self, "_closed", True):
            self.close()

    def close(self) -> None:
        """Cancel the work if it still runs. May be called twice, and from another thread."""
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
        """Have a copy handed on when the stream ends, and return the stream, which nobody may have read from.

        ``finished`` gets it and all audio once that has arrived, and returns notes to add; ``failed`` the audio so far and
        the error that ends it. Neither is called for a stream that its reader leaves.
        """
        self._keepers.append((finished, failed))
        return self

    def take(self, repeat: int = 0) -> Take:
        """Wait for all audio and return it with what was asked, its timing, words and notes.

        ``repeat`` counts the takes of one call. Raises AudioError when the stream was read from before, Cancelled when
        it was closed, and whatever the backend raises.
        """
        self._check_unread()
        with self:
            audio = b"".join(self)
        return self.take_of(audio, repeat)

    def clip(self) -> Clip:
        """Wait for all audio and return it decoded. Raises like ``take()``, and AudioError when it is damaged."""
        return self.take().clip()

    def pcm(self) -> Iterator[Samples]:
        """Iterate over the decoded audio as it arrives: float32 arrays of shape (samples,) at ``rate``.

        Raises like ``clip()``. Leaving the iteration early closes the stream.
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
            # The closing thread may have found the source busy with us; now it is not.
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
        # Where its reader is inside, that closes it as soon as it comes back.
        if close is None or not self._inside.acquire(blocking=False):
            return
        try:
            close()
        finally:
            self._inside.release()
