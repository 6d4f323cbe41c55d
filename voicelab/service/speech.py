"""The answer to a speech request: the status waits for the first audio, then the rest is streamed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor
from contextlib import suppress
from dataclasses import dataclass

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from voicelab.backend import SpeechStream
from voicelab.errors import Cancelled, EngineError
from voicelab.schema import MEDIA_TYPES, TTSRequest
from voicelab.service.credit import played_seconds
from voicelab.service.gate import Full, Gate
from voicelab.service.relay import Relay
from voicelab.service.responses import failed, refused

__all__ = ["SpeechResponse", "Stage"]

_LOG = logging.getLogger("voicelab.service")


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """What all speech answers of a service share.

    ``voices`` are the threads in which backends speak, ``helpers`` those for short waits; ``buffer`` is
    in bytes; ``lag_seconds`` is how far a reader may be behind the pace at which the audio plays.
    """

    gate: Gate
    voices: Executor
    helpers: Executor
    buffer: int
    lag_seconds: float


class SpeechResponse(Response):
    """Speaks when called by the server.

    Until the first audio is there nothing has been sent, so that a failure is answered with its proper
    status. After it, a failure raises: the server then breaks the connection off without the chunk that
    ends the body, and the caller knows that the audio is not whole. A caller that leaves cancels the work.

    ``settle`` is awaited once at the end, with the bytes sent and whether that was all.
    """

    def __init__(
        self,
        stage: Stage,
        request: TTSRequest,
        begin: Callable[[], SpeechStream],
        *,
        owner: int,
        settle: Callable[[int, bool], Coroutine[None, None, None]],
    ) -> None:
        # Response's own constructor would set a body and its length.
        self.status_code = 200
        self.background = None
        self._stage = stage
        self._request = request
        self._begin = begin
        self._owner = owner
        self._settle = settle
        self._sent = 0
        self._whole = False
        self._settled = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        work = asyncio.ensure_future(self._answer(scope, receive, send))
        left = asyncio.ensure_future(_disconnected(receive))
        try:
            await asyncio.wait({work, left}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            # Also when the server itself is told to stop and cancels this call.
            left.cancel()
            if not work.done():
                work.cancel()
            await asyncio.wait({work, left})
            await self._settle_once()
        if not work.cancelled():
            work.result()

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        stage = self._stage
        try:
            await stage.gate.enter(self._owner)
        except Full:
            message = "All voices are busy; try again in a moment"
            await self._refuse(refused(503, message, {"retry-after": "1"}), scope, receive, send)
            return
        relay = Relay(self._begin, stage.buffer)
        # The place is taken until the thread is back, which may be after the caller has left.
        speaking = asyncio.get_running_loop().run_in_executor(stage.voices, relay.work)
        speaking.add_done_callback(lambda _: stage.gate.leave())
        try:
            try:
                audio = await relay.take()
            except Exception as error:  # noqa: BLE001 - whatever it is, it has a status
                await self._refuse(failed(error), scope, receive, send)
                return
            if audio is None:
                # Silence is never passed off as speech.
                silent = failed(EngineError("the backend gave no audio"))
                await self._refuse(silent, scope, receive, send)
                return
            await self._stream(relay, audio, send)
        finally:
            if not speaking.done():
                relay.stop()
                # Closing may wait for the backend. When the service is shutting down there are no helpers
                # any more; the thread then ends at its next chunk.
                with suppress(RuntimeError):
                    stage.helpers.submit(relay.close)

    async def _refuse(self, answer: Response, scope: Scope, receive: Receive, send: Send) -> None:
        # The credit is back before the caller can know that it may ask again.
        await self._settle_once()
        await answer(scope, receive, send)

    async def _settle_once(self) -> None:
        if not self._settled:
            self._settled = True
            await self._settle(self._sent, self._whole)

    async def _stream(self, relay: Relay, audio: bytes | None, send: Send) -> None:
        headers = [(b"content-type", MEDIA_TYPES[self._request.format].encode()), (b"cache-control", b"no-store")]
        if relay.seed is not None:
            headers.append((b"x-voicelab-seed", str(relay.seed).encode()))
        # Without a length the server uses the chunked transfer encoding.
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        # A place in the service is not for a reader who takes less than anybody listens to: patience runs out
        # while a reader is waited for, and comes back with the audio it has taken.
        clock = asyncio.get_running_loop().time
        patience = self._stage.lag_seconds
        while audio is not None:
            before, lasts = clock(), played_seconds(self._request, len(audio))
            await _taken(send, audio, patience + lasts)
            patience += lasts - (clock() - before)
            self._sent += len(audio)
            audio = await relay.take()
        await _taken(send, b"", patience)
        self._whole = True


async def _taken(send: Send, audio: bytes, seconds: float) -> None:
    """Send a piece of the body, the last one when it is empty; raise Cancelled when there is no room for it in time."""
    try:
        async with asyncio.timeout(seconds):
            await send({"type": "http.response.body", "body": audio, "more_body": bool(audio)})
    except TimeoutError:
        raise Cancelled("the reader is too far behind the audio") from None


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
