"""The seam: whatever answers the three calls of the interface is a Backend.

Panels, sweeps and the service above need only this protocol, so that each backend (the embedded
engine, a remote service, recordings) can stand behind each of them.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Literal, Protocol, Self, runtime_checkable

import numpy as np

from voicelab.audio.clip import Clip, Provenance, Samples, Timing, WordTime
from voicelab.audio.formats import StreamDecoder, header_bytes
from voicelab.errors import AudioError, Cancelled, FieldError, RequestInvalid
from voicelab.outputs import bundle
from voicelab.schema import Model, TTSRequest, VoiceCreate, VoiceModel

__all__ = [
    "DEFAULT_MAX_TEXT",
    "Arriving",
    "Backend",
    "Capabilities",
    "Epilogue",
    "SeedSupport",
    "SpeechStream",
    "VoiceHost",
    "VoicePreset",
    "check_seed",
    "check_text_length",
]

SeedSupport = Literal["exact", "best-effort", "none", "unknown"]

DEFAULT_MAX_TEXT = 20_000
"""Characters of text that a backend of ours takes in one request, unless it is configured otherwise."""


@dataclass(frozen=True, slots=True)
class VoicePreset:
    """A voice that a backend brings with it; ``id`` is what ``reference_id`` takes."""

    id: str
    title: str
    description: str = ""


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a backend declares about itself.

    ``device`` is where it runs ("cpu", "cuda:0 …", "remote"). ``seed`` says whether the same seed gives
    the same samples (exact), nearly so (best-effort), or cannot be given (none); unknown is a service that could not
    be asked. ``fingerprint`` tells one set of weights, or one service, from another: a digest or a base address,
    never a secret.
    ``max_text`` is in characters, None when unknown; ``price_per_million_bytes`` in the account's
    currency per million UTF-8 bytes of text, None when unknown. ``one_model`` says whether all ``models`` are
    names of one and the same set of weights, None when unknown. ``at_once`` is how many requests it speaks side by
    side, None when unknown.
    """

    name: str
    models: tuple[Model, ...]
    device: str
    seed: SeedSupport
    fingerprint: str
    languages: tuple[str, ...] = ()
    voices: tuple[VoicePreset, ...] = ()
    max_text: int | None = None
    price_per_million_bytes: float | None = None
    one_model: bool | None = None
    at_once: int | None = None

    def _repr_mimebundle_(self, **_: object) -> dict[str, Any]:
        return bundle("capabilities", self)


@dataclass(frozen=True, slots=True)
class Epilogue:
    """What is known only once all audio is out: when each word was said, what was noticed, how like the reference it is.

    ``similarity`` is ``Clip.similarity``.
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

    def synthesize(self, request: TTSRequest, *, model: Model = "s2-pro", seed: int | None = None) -> SpeechStream:
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


def check_text_length(request: TTSRequest, limit: int | None) -> None:
    """Raise RequestInvalid when the text has more than ``limit`` characters; None is no limit."""
    length = len(request.text)
    if limit is not None and length > limit:
        message = f"The text has {length} characters; at most {limit} are taken at once"
        error = FieldError(("body", "text"), "string_too_long", message, ctx=f"max_length: {limit}")
        raise RequestInvalid((error,))


def check_seed(seed: object, capabilities: Capabilities) -> int | None:
    """Return the seed. Raises RequestInvalid when the backend takes none, or it is not 0 to 2**63 - 1."""
    if seed is None:
        return None
    if capabilities.seed == "none":
        message = f"the backend {capabilities.name!r} takes no seed, so it could not be honoured"
        raise RequestInvalid.of("seed", message, type="unsupported", in_="header")
    if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed < 2**63:
        message = "Input should be a whole number from 0 to 9223372036854775807"
        raise RequestInvalid.of("seed", message, type="int_type", in_="header")
    return seed


class Arriving:
    """Speech of which the audio is on its way: what was asked for, and what has come when.

    SpeechStream and its asynchronous twin differ in how the next chunk is waited for, and share this.
    """

    def __init__(
        self,
        *,
        request: TTSRequest,
        model: Model,
        backend: Capabilities,
        seed: int | None = None,
        epilogue: Callable[[], Epilogue] | None = None,
        started: float | None = None,
    ) -> None:
        self.request = request
        self.model: Model = model
        self.backend = backend
        self.seed = seed
        self._started = time.perf_counter() if started is None else started
        self._ask_epilogue = epilogue
        self._epilogue = Epilogue()
        self._arrivals: list[tuple[float, int]] = []
        self._total_s: float | None = None
        self._exhausted = False
        self._closed = False

    def __repr__(self) -> str:
        state = "complete" if self._exhausted else "closed" if self._closed else "open"
        received = sum(size for _, size in self._arrivals)
        return f"{type(self).__name__}({self.request.format}, {self.rate} Hz, {received} bytes, {state})"

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
        silent = header_bytes(self.request.format)
        total = 0
        for seconds, size in self._arrivals:
            total += size
            if total > silent:
                return seconds
        return None

    @property
    def complete(self) -> bool:
        """Whether all audio has arrived."""
        return self._exhausted

    @property
    def epilogue(self) -> Epilogue:
        """Words and notes; empty until all audio has arrived, or when the backend tells none."""
        return self._epilogue

    @property
    def provenance(self) -> Provenance:
        """Where the audio comes from; its timing is final once all audio has arrived."""
        total = self._total_s if self._total_s is not None else time.perf_counter() - self._started
        first = self.first_audio_s
        timing = Timing(first_audio_s=total if first is None else first, total_s=total, arrivals=self.arrivals)
        return Provenance(
            request=self.request,
            model=self.model,
            backend=self.backend.name,
            fingerprint=self.backend.fingerprint,
            seed=self.seed,
            timing=timing,
        )

    def _arrived(self, chunk: bytes) -> None:
        self._arrivals.append((time.perf_counter() - self._started, len(chunk)))

    def _ended(self) -> None:
        self._total_s = time.perf_counter() - self._started
        if self._ask_epilogue is not None:
            self._epilogue = self._ask_epilogue()

    def _decoder(self) -> StreamDecoder:
        if self._arrivals:
            raise AudioError("the stream was already read from; clip() and pcm() need it from its beginning")
        return StreamDecoder(self.request.format, self.rate)

    def _clip(self, parts: list[Samples]) -> Clip:
        samples = np.concatenate(parts) if parts else np.zeros(0, np.float32)
        known = self._epilogue
        return Clip(samples, self.rate, self.provenance, known.words, known.notes, known.similarity)


class SpeechStream(Arriving):
    """Encoded audio as it arrives. Iterate once for the bytes, or call ``clip()`` or ``pcm()`` instead.

    Args:
        chunks: the encoded audio; a generator is closed when the stream is, so its ``finally`` runs.
        request: what was asked for; ``request.format`` and ``request.rate`` describe the bytes.
        model: the synthesis model that speaks.
        backend: what the backend says about itself.
        seed: the seed in use, or None.
        on_close: called exactly once when the stream ends, however it ends: this cancels or frees the work.
        epilogue: asked once, after the last chunk, for the words and notes.
        started: ``time.perf_counter()`` at the call, when that was before this construction.

    Errors of ``chunks`` pass through unchanged. ``close()`` may be called from another thread; the
    reader then gets Cancelled. Leaving the ``with`` block closes.
    """

    def __init__(
        self,
        chunks: Iterator[bytes],
        *,
        request: TTSRequest,
        model: Model,
        backend: Capabilities,
        seed: int | None = None,
        on_close: Callable[[], None] | None = None,
        epilogue: Callable[[], Epilogue] | None = None,
        started: float | None = None,
    ) -> None:
        super().__init__(request=request, model=model, backend=backend, seed=seed, epilogue=epilogue, started=started)
        self._chunks = chunks
        self._on_close = on_close
        self._lock = threading.Lock()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> bytes:
        if self._exhausted:
            raise StopIteration
        self._check_open()
        try:
            chunk = b""
            while not chunk:
                chunk = next(self._chunks)
                self._check_open()
        except StopIteration:
            self._check_open()
            self._end()
            raise
        except BaseException:
            self.close()
            raise
        self._arrived(chunk)
        return chunk

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

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

    def clip(self) -> Clip:
        """Wait for all audio and return it as a Clip with provenance, words and notes.

        Raises AudioError when the stream was read from before, or when its audio is damaged or cut off,
        Cancelled when it was closed, and whatever the backend raises.
        """
        return self._clip(list(self.pcm()))

    def pcm(self) -> Iterator[Samples]:
        """Iterate over the decoded audio as it arrives: float32 arrays of shape (samples,) at ``rate``.

        Raises like ``clip()``. Leaving the iteration early closes the stream.
        """
        return self._decoded(self._decoder())

    def _decoded(self, decoder: StreamDecoder) -> Iterator[Samples]:
        with self:
            for chunk in self:
                samples = decoder.feed(chunk)
                if samples.size:
                    yield samples
            samples = decoder.finish()
            if samples.size:
                yield samples

    def _check_open(self) -> None:
        if self._closed:
            # The closing thread may have found the source busy with us; now it is not.
            self._close_source()
            raise Cancelled("the stream was closed before all audio had arrived")

    def _end(self) -> None:
        try:
            self._ended()
        finally:
            self.close()
        self._exhausted = True

    def _close_source(self) -> None:
        close = getattr(self._chunks, "close", None)
        if close is None:
            return
        try:
            close()
        except ValueError as error:
            # "generator already executing": its reader closes it as soon as it comes back.
            if "already executing" not in str(error):
                raise
