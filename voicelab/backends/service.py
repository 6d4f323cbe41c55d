"""Blocking and asyncio clients of a speech service, with pooled connections."""

from __future__ import annotations

import asyncio
import os
import threading
import time
import weakref
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Iterator
from types import TracebackType
from typing import Final, Self

import httpx

from voicelab.audio.decoders import StreamDecoder
from voicelab.audio.samples import Samples
from voicelab.backend import SpeechStream, StreamBase, StreamSummary
from voicelab.backends import wire
from voicelab.backends.caller import (
    AsyncTransport,
    Audio,
    BlockingTransport,
    Caller,
    RetryPolicy,
    Timeouts,
    open_client,
    run_blocking,
)
from voicelab.backends.wire import Upload
from voicelab.call import Call
from voicelab.capabilities import Capabilities, check_call
from voicelab.clip import Clip, Take
from voicelab.errors import Cancelled, RequestInvalid, ServiceError
from voicelab.lifecycle import Closeable, ProcessOwner
from voicelab.schema import VoiceCreate, VoiceModel

API_KEY_VARIABLE: Final = "VOICELAB_API_KEY"

_NO_LIST: Final = frozenset({400, 404, 405, 501})
_SEED_NOTE = "Seed support of the service is unknown, and its response does not confirm seed {}"
_LENGTH_NOTE = "The response has no length; truncation cannot be detected"


def open_service(base_url: str, *, api_key: str | None = None) -> ServiceBackend:
    """Open ``https://…``; the key defaults to VOICELAB_API_KEY. Raises the same errors as ServiceBackend."""
    return ServiceBackend(base_url, api_key or os.environ.get(API_KEY_VARIABLE) or None)


class _ServiceClient:
    """Base of the blocking and the asyncio client."""

    def __init__(
        self,
        base_url: str,
        api_key: str | None = None,
        *,
        timeout: Timeouts | float | None = None,
        retry: RetryPolicy | None = None,
        upload: Upload = "msgpack",
    ) -> None:
        self._caller = Caller(base_url, api_key, timeout, retry, upload)
        self._open()

    def _open(self) -> None:
        """Create the HTTP client, without connecting to the service."""
        raise NotImplementedError

    @property
    def base_url(self) -> str:
        """Address of the service."""
        return self._caller.base_url

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.base_url!r})"


class ServiceBackend(_ServiceClient, Closeable):
    """Client of a speech service; thread-safe. Sends nothing before the first call.

    A voicelab service declares its capabilities at ``/health``, which is read once; other services are assumed to
    support the interface without seeds.

    Args:
        base_url: Address, such as ``https://voice.example``.
        api_key: Bearer token; never shown in a repr, error or log.
        timeout: Timeouts, or one number of seconds for all of them.
        retry: Retry policy for calls that have not yet delivered audio or another answer.
        upload: Encoding of recordings for new voices: "msgpack", or "multipart" for a form.

    Raises:
        RequestInvalid: The address or key is not valid in HTTP, or proxies or certificates of the environment
            (``HTTPS_PROXY``, ``SSL_CERT_FILE`` …) are unusable.
    """

    def _open(self) -> None:
        self._owner = ProcessOwner()
        self._probing = threading.Lock()
        self._calls: weakref.WeakSet[BlockingTransport] = weakref.WeakSet()
        self._calls_lock = threading.Lock()
        self._closed = threading.Event()
        self._client = open_client(httpx.Client, self._caller.http)

    def close(self) -> None:
        """Close all connections; open streams raise Cancelled. Idempotent."""
        if self._owner.forked:  # the connections belong to the parent
            return
        with self._calls_lock:  # a new stream waits for the lock, then sees the backend closed
            for call in list(self._calls):
                call.cancel()
            self._closed.set()
        self._client.close()

    @property
    def capabilities(self) -> Capabilities:
        """Capabilities declared by the service, requested on first use. Never raises."""
        self._reopen_in_fork()
        with self._probing:
            return run_blocking(self._caller.capabilities(self._transport()))

    def synthesize(self, call: Call) -> SpeechStream:
        """Return a stream of audio; the request is sent when it is first read.

        Raises:
            RequestInvalid: The service does not support the call, for example its seed. Reading the stream raises
                RequestInvalid with the fields that the service rejects, ServiceError and its subclasses,
                StreamTruncated with the partial audio, and Cancelled after ``close()``.
        """
        started = time.perf_counter()
        capabilities = self.capabilities
        call = check_call(call, capabilities)
        speech = _SpeechRequest(self._http_call(call, capabilities))
        transport = self._transport()
        with self._calls_lock:
            self._calls.add(transport)
        stream = SpeechStream(
            self._convert(call, self._audio(speech, transport), speech.add_note),
            call=call,
            backend=capabilities,
            on_close=transport.cancel,
            notes=speech.notes,
            summary=speech.summary,
            started=started,
        )
        speech.stream = weakref.ref(stream)
        return stream

    def create_voice(self, request: VoiceCreate) -> VoiceModel:
        """Create a voice model with ``POST /model``. Raises RequestInvalid, ServiceError and its subclasses.

        The request is not retried if the service may have received it, to avoid duplicate voices.
        """
        return run_blocking(self._caller.create_voice(request, self._transport()))

    def get_voice(self, id: str) -> VoiceModel:
        """Return the record of a voice model with ``GET /model/{id}``.

        Raises NotFound if it is unknown or private to another caller, ServiceError and its subclasses.
        """
        return run_blocking(self._caller.get_voice(id, self._transport()))

    def list_voices(self) -> tuple[VoiceModel, ...]:
        """Return up to 100 voice models of the caller; none if the service does not list them (``GET /model``).

        Raises ServiceError and its subclasses.
        """
        try:
            return wire.voices_of(run_blocking(self._caller.probe(wire.LIST, self._transport())))
        except (RequestInvalid, ServiceError) as error:
            return _no_voices(error)

    def check(self) -> None:
        """Check that the service is reachable and accepts the key, without synthesis or charges.

        Raises AuthenticationError, NotFound if the address is not a speech service, ServiceError and its subclasses.
        """
        run_blocking(self._caller.check(self._transport()))

    def _http_call(self, call: Call, _: Capabilities) -> wire.HttpCall:
        return wire.speech_call(call)

    def _convert(
        self,
        call: Call,  # noqa: ARG002 - for backends with other formats
        chunks: Generator[bytes, None, None],
        note: Callable[[str], object],  # noqa: ARG002
    ) -> Iterator[bytes]:
        """Convert received audio to the format of the call; ``note`` adds a note to the take."""
        return chunks

    def _reopen_in_fork(self) -> None:
        """Open new connections in a forked process, because responses on shared connections would be mixed up."""
        if self._owner.forked and not self._closed.is_set():
            self._inherited = self._client  # closing it would end calls of the parent
            self._open()

    def _transport(self) -> BlockingTransport:
        self._reopen_in_fork()
        return BlockingTransport(self._client, self._closed)

    def _audio(self, speech: _SpeechRequest, transport: BlockingTransport) -> Generator[bytes, None, None]:
        audio = run_blocking(self._caller.speak(speech.call, transport))
        try:
            speech.read_headers(audio)
            while chunk := run_blocking(audio.chunk()):
                yield chunk
        finally:
            run_blocking(audio.close())


class AsyncServiceBackend(_ServiceClient):
    """ServiceBackend for asyncio, with the same arguments, calls, timeouts, retries and errors.

        async with AsyncServiceBackend("https://voice.example", key) as service:
            async with await service.synthesize(Call(TTSRequest(text="Hello."))) as stream:
                async for chunk in stream:
                    ...

    Bound to one event loop. Cancelling a task that waits for a response or for audio closes its connection.
    """

    def _open(self) -> None:
        self._probing = asyncio.Lock()
        self._streams: weakref.WeakSet[AsyncSpeechStream] = weakref.WeakSet()
        self._client = open_client(httpx.AsyncClient, self._caller.http)
        self._transport = AsyncTransport(self._client)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close all connections; open streams raise Cancelled. Idempotent."""
        for stream in list(self._streams):
            await stream.aclose()
        await self._client.aclose()

    async def capabilities(self) -> Capabilities:
        """Return the capabilities declared by the service, requested on first use. Never raises."""
        async with self._probing:
            return await self._caller.capabilities(self._transport)

    async def synthesize(self, call: Call) -> AsyncSpeechStream:
        """Return a stream of audio. Raises the same errors as ``ServiceBackend.synthesize``."""
        started = time.perf_counter()
        capabilities = await self.capabilities()
        call = check_call(call, capabilities)
        speech = _SpeechRequest(wire.speech_call(call))
        stream = AsyncSpeechStream(
            self._audio(speech),
            call=call,
            backend=capabilities,
            notes=speech.notes,
            summary=speech.summary,
            started=started,
        )
        speech.stream = weakref.ref(stream)
        self._streams.add(stream)
        return stream

    async def create_voice(self, request: VoiceCreate) -> VoiceModel:
        """Create a voice model; see ``ServiceBackend.create_voice``."""
        return await self._caller.create_voice(request, self._transport)

    async def get_voice(self, id: str) -> VoiceModel:
        """Return the record of a voice model; see ``ServiceBackend.get_voice``."""
        return await self._caller.get_voice(id, self._transport)

    async def list_voices(self) -> tuple[VoiceModel, ...]:
        """Return the voice models of the caller; see ``ServiceBackend.list_voices``."""
        try:
            return wire.voices_of(await self._caller.probe(wire.LIST, self._transport))
        except (RequestInvalid, ServiceError) as error:
            return _no_voices(error)

    async def check(self) -> None:
        """Check address and key; see ``ServiceBackend.check``."""
        await self._caller.check(self._transport)

    async def _audio(self, speech: _SpeechRequest) -> AsyncGenerator[bytes, None]:
        audio = await self._caller.speak(speech.call, self._transport)
        try:
            speech.read_headers(audio)
            while chunk := await audio.chunk():
                yield chunk
        finally:
            await audio.close()


def _no_voices(error: RequestInvalid | ServiceError) -> tuple[VoiceModel, ...]:
    """Return an empty tuple if an error means that the service does not list voices. Raises other errors."""
    if isinstance(error, ServiceError) and error.status not in _NO_LIST:
        raise error
    return ()


class _SpeechRequest:
    """A speech request with the metadata of its response."""

    # A weak reference, so that a stream is closed as soon as its user drops it.
    stream: weakref.ref[SpeechStream | AsyncSpeechStream]

    def __init__(self, call: wire.HttpCall) -> None:
        self.call = call
        self._notes: tuple[str, ...] = ()

    def read_headers(self, audio: Audio) -> None:
        """Read seed and notes from the response headers."""
        if not {"content-length", "transfer-encoding"} & audio.answer.headers.keys():
            self._notes = (_LENGTH_NOTE,)
        self._notes += audio.notes
        stream = self.stream()
        if stream is None:
            return
        seed = stream.seed
        if seed is None or stream.backend.seed == "unknown":
            # Record a seed drawn by the service, but not one that it may have ignored.
            stream.seed = wire.seed_of(audio.answer)
        if seed is not None and stream.seed is None:
            self._notes += (_SEED_NOTE.format(seed),)

    def add_note(self, note: str) -> None:
        """Add a note to the take."""
        self._notes += (note,)

    def notes(self) -> tuple[str, ...]:
        """Return the notes received so far."""
        return self._notes

    def summary(self) -> StreamSummary:
        """Return the notes of the stream."""
        return StreamSummary(notes=self._notes)


class AsyncSpeechStream(StreamBase[AsyncIterator[bytes]]):
    """SpeechStream for ``async for``: iterate once over the bytes, or call ``take()``, ``clip()`` or ``pcm()``.

    Arguments (without ``on_close``) and errors are those of SpeechStream. If the chunks come from an asynchronous generator,
    closing the stream closes it. Cancelling the waiting task stops the work at once, as does ``aclose()``. If another task
    calls ``aclose()``, reading raises Cancelled. The stream is bound to the event loop that created it.
    """

    # Timeout around the reader; another task expires it to wake the reader.
    _waiting: asyncio.Timeout | None = None

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        if self._exhausted:
            raise StopAsyncIteration
        self._check_open()
        try:
            chunk = await self._next()
            if chunk is not None:
                self._arrived(chunk)
                return chunk
            self._ended()
        except BaseException:
            await self._close_source()
            raise
        await self.aclose()
        self._exhausted = True
        raise StopAsyncIteration

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Cancel the work if it is running. Idempotent; may be called from another task."""
        if self._closed:
            return
        self._closed = True
        if self._waiting is None:
            await self._close_source()
        else:
            # The reader closes the source when it wakes.
            self._waiting.reschedule(asyncio.get_running_loop().time())

    async def take(self, repeat: int = 0) -> Take:
        """Wait for all audio and return it as a take; see ``SpeechStream.take``."""
        self._check_unread()
        async with self:
            audio = b"".join([chunk async for chunk in self])
        return self.take_of(audio, repeat)

    async def clip(self) -> Clip:
        """Wait for all audio and return it decoded. Raises the errors of ``take()``, and AudioError for damaged audio."""
        return (await self.take()).clip()

    def pcm(self) -> AsyncIterator[Samples]:
        """Iterate over decoded audio; see ``SpeechStream.pcm``. Closing the iterator early closes the stream."""
        return self._decoded(self._decoder())

    async def _decoded(self, decoder: StreamDecoder) -> AsyncIterator[Samples]:
        async with self:
            async for chunk in self:
                if (samples := decoder.feed(chunk)).size:
                    yield samples
            if (samples := decoder.finish()).size:
                yield samples

    async def _next(self) -> bytes | None:
        """Return the next non-empty chunk; None at the end. Raises Cancelled if the stream was closed."""
        try:
            async with asyncio.timeout(None) as self._waiting:
                chunk: bytes | None = b""
                while chunk == b"":
                    chunk = await anext(self._chunks, None)
        except TimeoutError:
            # Raised by aclose() or, otherwise, by the service.
            self._check_open()
            raise
        finally:
            self._waiting = None
        self._check_open()
        return chunk

    def _check_open(self) -> None:
        if self._closed:
            raise Cancelled("the stream was closed before all audio had arrived") from None

    async def _close_source(self) -> None:
        self._closed = True
        close = getattr(self._chunks, "aclose", None)
        if close is not None:
            await close()
