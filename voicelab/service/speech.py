"""Streaming response to a speech request, and its cost in characters."""

from __future__ import annotations

import asyncio
import json
import math
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import suppress

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from voicelab.backend import SpeechStream
from voicelab.errors import Cancelled, EngineError
from voicelab.schema import MEDIA_TYPES, OPUS_BITRATES, TTSRequest
from voicelab.service.admission import BUSY
from voicelab.service.concurrency import Arrival, FairQueue, QueueFull, ThreadBridge
from voicelab.service.limits import Limits
from voicelab.service.openai import audio_event, done_event
from voicelab.service.openapi import MAX_NOTES_BYTES, NOTES_HEADER, SEED_HEADER
from voicelab.service.record import RECORD
from voicelab.service.responses import backend_failure, refusal

# Used to charge for truncated responses, of which the position in the text is unknown. English speech has 12 to 15 characters
# per second. The minimum is used, so that callers never pay for more than they received.
_CHARACTERS_PER_SECOND = 12.0
# Maximum bitrate of Opus for mono speech in kbit/s, if the bitrate is automatic.
_OPUS_AUTOMATIC_KBPS = 51
# Minimum bitrate of Opus relative to the requested bitrate, or to the lowest bitrate if it is automatic.
_OPUS_MIN_RATIO = 0.5
_MAX_NOTES = 16


class SpeechResponse(Response):
    """Response that synthesizes speech when the server calls it.

    The status is sent with the first audio, so that an earlier error is answered with the status of the error. A later error
    aborts the connection without the final chunk, so that the caller detects the truncation. If the caller disconnects,
    synthesis is cancelled.

    Args:
        queue: queue of the speech requests.
        voices: threads for synthesis.
        helpers: threads for short tasks.
        limits: limits of the service.
        request: the speech request.
        open_stream: opens the backend's stream; called in a thread of ``voices``.
        arrival: reserved queue position.
        settle: awaited once at the end, with the number of bytes of audio sent, and whether the response is complete.
        events: send server-sent events.
        notes: notes on the request, sent before those of the backend.
    """

    def __init__(
        self,
        queue: FairQueue,
        voices: Executor,
        helpers: Executor,
        limits: Limits,
        request: TTSRequest,
        open_stream: Callable[[], SpeechStream],
        *,
        arrival: Arrival,
        settle: Callable[[int, bool], Coroutine[None, None, None]],
        events: bool = False,
        notes: Sequence[str] = (),
    ) -> None:
        # Not Response.__init__, which sets a body and its length.
        self.status_code = 200
        self.background = None
        self._queue, self._voices, self._helpers = queue, voices, helpers
        self._limits = limits
        self._request = request
        self._open_stream = open_stream
        self._arrival = arrival
        self._settle = settle
        self._events = events
        self._notes = notes
        self._sent = 0
        self._complete = False
        self._settled = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Synthesize and send the response."""
        work = asyncio.ensure_future(self._answer(scope, receive, send))
        disconnection = asyncio.ensure_future(_disconnected(receive))
        try:
            await asyncio.wait({work, disconnection}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            # This also runs if the server cancels this call.
            disconnection.cancel()
            if not work.done():
                work.cancel()
            await asyncio.wait({work, disconnection})
            await self._settle_once()
        if not work.cancelled():
            work.result()

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            self._queue.arrived(self._arrival)
            await self._queue.enter(self._arrival.owner)
        except QueueFull:
            await self._refuse(refusal(503, BUSY, {"retry-after": "1"}), scope, receive, send)
            return
        bridge = ThreadBridge(self._open_stream, self._limits.buffer)
        # The turn ends when the thread ends, which may be after a disconnection.
        synthesis = asyncio.get_running_loop().run_in_executor(self._voices, bridge.run)
        synthesis.add_done_callback(lambda _: self._queue.leave())
        try:
            try:
                audio = await bridge.read()
            except Exception as error:  # noqa: BLE001 - every error has a status
                await self._refuse(backend_failure(error), scope, receive, send)
                return
            if audio is None:
                await self._refuse(backend_failure(EngineError("the backend returned no audio")), scope, receive, send)
                return
            await self._stream(bridge, audio, send)
        finally:
            if not synthesis.done():
                bridge.stop()
                # close() may block, so a helper thread calls it. During shutdown submit() fails; then the synthesis thread
                # ends at its next chunk.
                with suppress(RuntimeError):
                    self._helpers.submit(bridge.close)

    async def _refuse(self, response: Response, scope: Scope, receive: Receive, send: Send) -> None:
        # Refund before the response, because the caller may retry at once.
        await self._settle_once()
        await response(scope, receive, send)

    async def _settle_once(self) -> None:
        if not self._settled:
            self._settled = True
            await self._settle(self._sent, self._complete)

    async def _stream(self, bridge: ThreadBridge, audio: bytes | None, send: Send) -> None:
        events = self._events
        media_type = "text/event-stream" if events else MEDIA_TYPES[self._request.format]
        headers = [(b"content-type", media_type.encode()), (b"cache-control", b"no-store")]
        if bridge.seed is not None:
            headers.append((SEED_HEADER.encode(), str(bridge.seed).encode()))
        if notes := [*self._notes, *bridge.notes]:
            headers.append((NOTES_HEADER.encode(), header_of_notes(notes)))
        record = RECORD.get()
        record.first_audio_s = time.perf_counter() - record.start
        # Without a content length the server uses chunked transfer encoding.
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        # A caller that reads more slowly than playback is disconnected when it lags by lag_seconds. The budget decreases
        # while the server waits for the caller, and increases by the duration of the audio sent.
        clock = asyncio.get_running_loop().time
        lag_budget_s = self._limits.lag_seconds
        while audio is not None:
            start, duration_s = clock(), played_seconds(self._request, len(audio))
            await _send_chunk(send, audio_event(audio) if events else audio, lag_budget_s + duration_s)
            lag_budget_s += duration_s - (clock() - start)
            self._sent += len(audio)
            record.audio_s = self._sent / _bytes_per_second(self._request)
            audio = await bridge.read()
        record.rtf = bridge.busy_s / record.audio_s if record.audio_s else None
        if events:
            await _send_chunk(send, done_event(len(self._request.text)), lag_budget_s)
        await _send_chunk(send, b"", lag_budget_s)
        self._complete = True


def header_of_notes(notes: Sequence[str]) -> bytes:
    """Encode notes as a JSON array in ASCII of at most ``MAX_NOTES_BYTES`` bytes, ending with the number of omitted notes."""
    for count in range(min(len(notes), _MAX_NOTES), -1, -1):
        more = [f"and {len(notes) - count} more"] if count < len(notes) else []
        # JSON escapes all control characters except DEL.
        value = json.dumps([*notes[:count], *more]).replace("\x7f", r"\u007f")
        if len(value) <= MAX_NOTES_BYTES:
            break
    return value.encode("ascii")


async def _send_chunk(send: Send, audio: bytes, seconds: float) -> None:
    """Send a chunk of the body; an empty chunk ends it. Raises Cancelled if the reader is too slow."""
    try:
        async with asyncio.timeout(seconds):
            await send({"type": "http.response.body", "body": audio, "more_body": bool(audio)})
    except TimeoutError:
        raise Cancelled("the reader is too far behind the audio") from None


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def cost(wire: object) -> int:
    """Return the number of characters of ``text`` (OpenAI: ``input``) in an unvalidated body; 0 if there is no text."""
    text = wire.get("text", wire.get("input")) if isinstance(wire, Mapping) else None
    return len(text) if isinstance(text, str) else 0


def delivered_cost(request: TTSRequest, sent: int) -> int:
    """Return the number of characters to charge for a response that was truncated after ``sent`` bytes."""
    speed = request.prosody.speed if request.prosody is not None else 1.0
    characters = sent / _bytes_per_second(request) * speed * _CHARACTERS_PER_SECOND
    return min(len(request.text), math.ceil(characters))


def played_seconds(request: TTSRequest, sent: int) -> float:
    """Return an upper bound of the duration in seconds of ``sent`` bytes of audio."""
    if request.format != "opus":
        return sent / _bytes_per_second(request)
    bitrate = min(rate for rate in OPUS_BITRATES if rate > 0) if request.opus_bitrate < 0 else request.opus_bitrate
    return sent / (bitrate * 125.0 * _OPUS_MIN_RATIO)


def _bytes_per_second(request: TTSRequest) -> float:
    if request.format == "mp3":
        return request.mp3_bitrate * 125.0
    if request.format == "opus":
        return (_OPUS_AUTOMATIC_KBPS if request.opus_bitrate < 0 else request.opus_bitrate) * 125.0
    return request.rate * 2.0
