"""AsyncSpeechStream: encoded audio as it arrives on an event loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from types import TracebackType
from typing import Self

from voicelab.audio.formats import StreamDecoder
from voicelab.backend import Capabilities, StreamBase, StreamSummary
from voicelab.call import Call
from voicelab.clip import Clip, Samples, Take
from voicelab.errors import Cancelled

__all__ = ["AsyncSpeechStream"]


class AsyncSpeechStream(StreamBase):
    """SpeechStream for ``async for``: iterate once for the bytes, or call ``take()``, ``clip()`` or ``pcm()``.

    Args:
        chunks: the encoded audio; an asynchronous generator is closed when the stream is.
        call: what was asked for; ``call.request.format`` and ``call.request.rate`` describe the bytes.
        backend: what the backend says about itself.
        seed: the seed in use, where the backend drew one; that of the call when not given.
        summary: asked once, after the last chunk, for the words and notes.
        started: ``time.perf_counter()`` at the call, when that was before this construction.

    Errors of ``chunks`` pass through unchanged; a rate that was not asked for is an AudioError. Cancelling the task that
    waits for a chunk ends the work at once, and so does ``aclose()``, also from another task: the reader then gets
    Cancelled. Leaving the ``async with`` block closes. A stream belongs to the event loop that it was made on.
    """

    def __init__(
        self,
        chunks: AsyncIterator[bytes],
        *,
        call: Call,
        backend: Capabilities,
        seed: int | None = None,
        summary: Callable[[], StreamSummary] | None = None,
        started: float | None = None,
    ) -> None:
        super().__init__(call=call, backend=backend, seed=seed, summary=summary, started=started)
        self._chunks = chunks
        # What the reader waits in; another task ends it by letting its time run out.
        self._waiting: asyncio.Timeout | None = None

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
        """Wait for all audio and return it with what was asked, its timing, words and notes.

        ``repeat`` counts the takes of one call. Raises AudioError when the stream was read from before, Cancelled when
        it was closed, and whatever the backend raises.
        """
        self._check_unread()
        async with self:
            audio = b"".join([chunk async for chunk in self])
        return self.take_of(audio, repeat)

    async def clip(self) -> Clip:
        """Wait for all audio and return it decoded. Raises like ``take()``, and AudioError when it is damaged."""
        return (await self.take()).clip()

    def pcm(self) -> AsyncIterator[Samples]:
        """Iterate over the decoded audio as it arrives: float32 arrays of shape (samples,) at ``rate``.

        Raises like ``clip()``. Closing the iterator early closes the stream.
        """
        return self._decoded(self._decoder())

    async def _decoded(self, decoder: StreamDecoder) -> AsyncIterator[Samples]:
        async with self:
            async for chunk in self:
                samples = decoder.feed(chunk)
                if samples.size:
                    yield samples
            samples = decoder.finish()
            if samples.size:
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
