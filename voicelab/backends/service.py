"""ServiceBackend, AsyncServiceBackend and its AsyncSpeechStream: any service of the interface, over a pool of connections."""

from __future__ import annotations

import asyncio
import os
import threading
import time
import weakref
from collections.abc import AsyncGenerator, AsyncIterator, Generator, Iterator
from types import TracebackType
from typing import Final, Self

import httpx

from voicelab.audio.decoders import StreamDecoder
from voicelab.audio.samples import Samples
from voicelab.backend import SpeechStream, StreamBase, StreamSummary
from voicelab.backends import wire
from voicelab.backends.caller import Audio, Caller, RetryPolicy, Timeouts, open_client
from voicelab.backends.transport import AsyncTransport, BlockingTransport, run_blocking
from voicelab.backends.wire import Upload
from voicelab.call import Call
from voicelab.capabilities import Capabilities, check_call
from voicelab.clip import Clip, Take
from voicelab.errors import Cancelled
from voicelab.schema import VoiceCreate, VoiceModel
from voicelab.storage import Closing, ProcessOwner

API_KEY_VARIABLE: Final = "VOICELAB_API_KEY"

_UNSEEDED = "The service could not be asked whether it takes a seed, and did not say that it used {}"
_UNFRAMED = "The service did not say where the audio ends; whether it was cut off is unknown"


def open_service(base_url: str, *, api_key: str | None = None) -> ServiceBackend:
    """Open ``https://…``; the key is in VOICELAB_API_KEY when it is not given. Raises like ServiceBackend."""
    return ServiceBackend(base_url, api_key or os.environ.get(API_KEY_VARIABLE) or None)


class _Service:
    """What the two have in common: whom they call, and how."""

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
        """Make the client, which sends nothing yet."""
        raise NotImplementedError

    @property
    def base_url(self) -> str:
        """The service's address."""
        return self._caller.base_url

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.base_url!r})"


class ServiceBackend(_Service, Closing):
    """Speaks through a service at ``base_url``, such as ``https://voice.example``.

    ``api_key`` is sent as the bearer credential and shown nowhere; without one the service decides.
    ``timeout`` is a Timeouts, or seconds for each of its waits. Calls that delivered nothing are
    repeated as ``retry`` says. ``upload`` says how recordings are sent to make a voice: as MessagePack,
    or as a form ("multipart"). Safe to use from several threads; ``close()`` when done.

    A service of ours declares itself at ``/health``, which is asked once; of any other one only the
    interface is assumed, and its Capabilities say that it takes no seed. Nothing is sent until the
    first call. Raises RequestInvalid for an address or a key that HTTP cannot carry, and for proxies or
    certificates of the environment (``HTTPS_PROXY``, ``SSL_CERT_FILE`` …) that cannot be used.
    """

    def _open(self) -> None:
        self._owner = ProcessOwner()
        self._probing = threading.Lock()
        self._calls: weakref.WeakSet[BlockingTransport] = weakref.WeakSet()
        self._calls_lock = threading.Lock()
        self._shut = threading.Event()
        self._client = open_client(httpx.Client, self._caller.http)

    def close(self) -> None:
        """Close all connections; who still reads a stream gets Cancelled. May be called twice."""
        if self._owner.forked:  # the connections are the parent's
            return
        with self._calls_lock:  # a new stream waits, and then finds it shut
            for call in list(self._calls):
                call.cancel()
            self._shut.set()
        self._client.close()

    @property
    def capabilities(self) -> Capabilities:
        """What the service declares about itself. It is asked the first time; this never fails."""
        self._reopen_in_fork()
        with self._probing:
            return run_blocking(self._caller.capabilities(self._transport()))

    def synthesize(self, call: Call) -> SpeechStream:
        """Return the audio as it will arrive; the request is sent when the stream is first read.

        Raises RequestInvalid for a seed that the service does not take. The stream raises RequestInvalid
        with the service's own fields, ServiceError and its kinds, StreamTruncated with what did arrive
        when the connection ends early, Cancelled when it was closed.
        """
        started = time.perf_counter()
        capabilities = self.capabilities
        call = check_call(call, capabilities)
        speech = _Speech(self._http_call(call, capabilities))
        transport = self._transport()
        with self._calls_lock:
            self._calls.add(transport)
        stream = SpeechStream(
            self._received(call, self._audio(speech, transport)),
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
        """Make a voice model with ``POST /model``. Raises RequestInvalid, ServiceError and its kinds.

        It is not repeated once it may have arrived, so that no voice is made twice.
        """
        return run_blocking(self._caller.create_voice(request, self._transport()))

    def get_voice(self, id: str) -> VoiceModel:
        """Return a voice model's record with ``GET /model/{id}``.

        Raises NotFound when it is unknown or private to another caller, ServiceError and its kinds.
        """
        return run_blocking(self._caller.get_voice(id, self._transport()))

    def check(self) -> None:
        """Ask whether the address is that of a service which takes the key. Nothing is spoken or charged.

        Raises AuthenticationError, NotFound when there is no such service there, ServiceError and its kinds.
        """
        run_blocking(self._caller.check(self._transport()))

    def _http_call(self, call: Call, _: Capabilities) -> wire.HttpCall:
        return wire.speech_call(call)

    def _received(self, _: Call, chunks: Generator[bytes, None, None]) -> Iterator[bytes]:
        """The audio as the call wants it, of the audio as it came."""
        return chunks

    def _reopen_in_fork(self) -> None:
        """Open connections of a fork's own: on the parent's both would read each other's answers."""
        if self._owner.forked and not self._shut.is_set():
            self._inherited = self._client  # not closed: that would end the parent's calls
            self._open()

    def _transport(self) -> BlockingTransport:
        self._reopen_in_fork()
        return BlockingTransport(self._client, self._shut)

    def _audio(self, speech: _Speech, transport: BlockingTransport) -> Generator[bytes, None, None]:
        audio = run_blocking(self._caller.speak(speech.call, transport))
        try:
            speech.read_head(audio)
            while chunk := run_blocking(audio.chunk()):
                yield chunk
        finally:
            run_blocking(audio.close())


class AsyncServiceBackend(_Service):
    """ServiceBackend for an asyncio event loop: the same calls, waits, tries and errors, to be awaited.

        async with AsyncServiceBackend("https://voice.example", key) as service:
            async with await service.synthesize(Call(TTSRequest(text="Hello."))) as stream:
                async for chunk in stream:
                    ...

    Takes the same arguments. It belongs to one event loop; ``aclose()`` when done. Cancelling a task that
    waits for an answer or for audio closes its connection at once.
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
        """Close all connections; who still reads a stream gets Cancelled. May be called twice."""
        for stream in list(self._streams):
            await stream.aclose()
        await self._client.aclose()

    async def capabilities(self) -> Capabilities:
        """What the service declares about itself. It is asked the first time; this never fails."""
        async with self._probing:
            return await self._caller.capabilities(self._transport)

    async def synthesize(self, call: Call) -> AsyncSpeechStream:
        """Return the audio as it will arrive; the request is sent when the stream is first read.

        Raises like ``ServiceBackend.synthesize``, and so does the stream.
        """
        started = time.perf_counter()
        capabilities = await self.capabilities()
        call = check_call(call, capabilities)
        speech = _Speech(wire.speech_call(call))
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
        """Make a voice model with ``POST /model``, as ``ServiceBackend.create_voice`` does."""
        return await self._caller.create_voice(request, self._transport)

    async def get_voice(self, id: str) -> VoiceModel:
        """Return a voice model's record with ``GET /model/{id}``, as ``ServiceBackend.get_voice`` does."""
        return await self._caller.get_voice(id, self._transport)

    async def check(self) -> None:
        """Ask whether the service is there and takes the key, as ``ServiceBackend.check`` does."""
        await self._caller.check(self._transport)

    async def _audio(self, speech: _Speech) -> AsyncGenerator[bytes, None]:
        audio = await self._caller.speak(speech.call, self._transport)
        try:
            speech.read_head(audio)
            while chunk := await audio.chunk():
                yield chunk
        finally:
            await audio.close()


class _Speech:
    """A call for speech, and what its answer says besides audio."""

    # Weak, so that a stream that nobody holds any more ends at once.
    stream: weakref.ref[SpeechStream | AsyncSpeechStream]

    def __init__(self, call: wire.HttpCall) -> None:
        self.call = call
        self._notes: tuple[str, ...] = ()

    def read_head(self, audio: Audio) -> None:
        """Take the seed and the notes from the head of the answer."""
        if not {"content-length", "transfer-encoding"} & audio.answer.headers.keys():
            # Nothing says where its body ends, so that one that was cut off is not noticed.
            self._notes = (_UNFRAMED,)
        self._notes += audio.notes
        stream = self.stream()
        if stream is None:
            return
        seed = stream.seed
        if seed is None or stream.backend.seed == "unknown":
            # A seed that the service drew itself belongs into the take, and one that it may have ignored does not.
            stream.seed = wire.seed_of(audio.answer)
        if seed is not None and stream.seed is None:
            self._notes += (_UNSEEDED.format(seed),)

    def notes(self) -> tuple[str, ...]:
        """Return the notes so far."""
        return self._notes

    def summary(self) -> StreamSummary:
        """Return the notes of the stream."""
        return StreamSummary(notes=self._notes)


class AsyncSpeechStream(StreamBase[AsyncIterator[bytes]]):
    """SpeechStream for ``async for``: iterate once for the bytes, or call ``take()``, ``clip()`` or ``pcm()``.

    Takes and raises what SpeechStream does, but for ``on_close``; an asynchronous generator is closed when the stream is.
    Cancelling the task that waits for a chunk ends the work at once, and so does ``aclose()``, also from another task:
    the reader then gets Cancelled. Leaving the ``async with`` block closes. A stream belongs to the event loop that it
    was made on.
    """

    # What the reader waits in; another task ends it by letting its time run out.
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
        """Cancel the work if it still runs. May be called twice, and from another task."""
        if self._closed:
            return
        self._closed = True
        if self._waiting is None:
            await self._close_source()
        else:
            # The reader closes the source, as soon as it comes back from there.
            self._waiting.reschedule(asyncio.get_running_loop().time())

    async def take(self, repeat: int = 0) -> Take:
        """Wait for all audio and return it as ``SpeechStream.take`` does."""
        self._check_unread()
        async with self:
            audio = b"".join([chunk async for chunk in self])
        return self.take_of(audio, repeat)

    async def clip(self) -> Clip:
        """Wait for all audio and return it decoded. Raises like ``take()``, and AudioError when it is damaged."""
        return (await self.take()).clip()

    def pcm(self) -> AsyncIterator[Samples]:
        """Iterate over the decoded audio as ``SpeechStream.pcm`` does. Closing the iterator early closes the stream."""
        return self._decoded(self._decoder())

    async def _decoded(self, decoder: StreamDecoder) -> AsyncIterator[Samples]:
        async with self:
            async for chunk in self:
                if (samples := decoder.feed(chunk)).size:
                    yield samples
            if (samples := decoder.finish()).size:
                yield samples

    async def _next(self) -> bytes | None:
        """Return the next chunk that holds anything, None at the end. Raises Cancelled when closed meanwhile."""
        try:
            async with asyncio.timeout(None) as self._waiting:
                chunk: bytes | None = b""
                while chunk == b"":
                    chunk = await anext(self._chunks, None)
        except TimeoutError:
            # Ours, if somebody closed the stream; else the service's.
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
