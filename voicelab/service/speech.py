"""The answer to a speech request, and what it costs: the status waits for the first audio, then the rest is streamed."""

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
from voicelab.service.openai import audio_event, last_event
from voicelab.service.openapi import LONGEST_NOTES, NOTES_HEADER, SEED_HEADER
from voicelab.service.record import RECORD
from voicelab.service.responses import backend_failure, refusal

# Encoded speech does not say which character it has come to. Unhurried English has 12 to 15 characters
# a second; taking the low end, a caller whose speech was cut short never pays for more than it heard.
_CHARACTERS_PER_SECOND = 12.0
# What automatic Opus comes to for mono speech at most, in kbit/s; and what any Opus comes to at least, as a
# share of the bitrate in the request, which for automatic is the lowest of the list.
_OPUS_AUTOMATIC = 51
_OPUS_LEAST = 0.5
_MOST_NOTES = 16


class SpeechResponse(Response):
    """Speaks when called by the server.

    Until the first audio is there nothing has been sent, so that a failure is answered with its proper
    status. After it, a failure raises: the server then breaks the connection off without the chunk that
    ends the body, and the caller knows that the audio is not whole. A caller that leaves cancels the work.

    ``queue`` decides whose turn it is; ``voices`` are the threads in which backends speak, ``helpers`` those for
    short waits. ``arrival`` is the place that the request holds until its turn is asked for. ``settle`` is awaited once
    at the end, with the bytes of audio sent and whether that was all. With ``events`` the audio is sent as server-sent
    events.
    """

    def __init__(
        self,
        queue: FairQueue,
        voices: Executor,
        helpers: Executor,
        limits: Limits,
        request: TTSRequest,
        begin: Callable[[], SpeechStream],
        *,
        arrival: Arrival,
        settle: Callable[[int, bool], Coroutine[None, None, None]],
        events: bool = False,
    ) -> None:
        # Response's own constructor would set a body and its length.
        self.status_code = 200
        self.background = None
        self._queue, self._voices, self._helpers = queue, voices, helpers
        self._limits = limits
        self._request = request
        self._begin = begin
        self._arrival = arrival
        self._settle = settle
        self._events = events
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
            # Also when the server itself stops and cancels this call.
            left.cancel()
            if not work.done():
                work.cancel()
            await asyncio.wait({work, left})
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
        bridge = ThreadBridge(self._begin, self._limits.buffer)
        # The place is taken until the thread is back, which may be after the caller has left.
        speaking = asyncio.get_running_loop().run_in_executor(self._voices, bridge.run)
        speaking.add_done_callback(lambda _: self._queue.leave())
        try:
            try:
                audio = await bridge.read()
            except Exception as error:  # noqa: BLE001 - whatever it is, it has a status
                await self._refuse(backend_failure(error), scope, receive, send)
                return
            if audio is None:
                # Silence is never passed off as speech.
                silent = backend_failure(EngineError("the backend gave no audio"))
                await self._refuse(silent, scope, receive, send)
                return
            await self._stream(bridge, audio, send)
        finally:
            if not speaking.done():
                bridge.stop()
                # Closing may wait for the backend. When the service is shutting down there are no helpers
                # any more; the thread then ends at its next chunk.
                with suppress(RuntimeError):
                    self._helpers.submit(bridge.close)

    async def _refuse(self, answer: Response, scope: Scope, receive: Receive, send: Send) -> None:
        # The credit is back before the caller can know that it may ask again.
        await self._settle_once()
        await answer(scope, receive, send)

    async def _settle_once(self) -> None:
        if not self._settled:
            self._settled = True
            await self._settle(self._sent, self._whole)

    async def _stream(self, bridge: ThreadBridge, audio: bytes | None, send: Send) -> None:
        events = self._events
        media_type = "text/event-stream" if events else MEDIA_TYPES[self._request.format]
        headers = [(b"content-type", media_type.encode()), (b"cache-control", b"no-store")]
        if bridge.seed is not None:
            headers.append((SEED_HEADER.encode(), str(bridge.seed).encode()))
        if bridge.notes:
            headers.append((NOTES_HEADER.encode(), header_of_notes(bridge.notes)))
        record = RECORD.get()
        record.first_audio_s = time.perf_counter() - record.began
        # Without a length the server uses the chunked transfer encoding.
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        # A place in the service is not for a reader who takes less than anybody listens to: patience runs out
        # while a reader is waited for, and comes back with the audio that it has taken.
        clock = asyncio.get_running_loop().time
        patience = self._limits.lag_seconds
        while audio is not None:
            before, lasts = clock(), played_seconds(self._request, len(audio))
            await _send_part(send, audio_event(audio) if events else audio, patience + lasts)
            patience += lasts - (clock() - before)
            self._sent += len(audio)
            record.audio_s = self._sent / _bytes_per_second(self._request)
            audio = await bridge.read()
        record.rtf = bridge.busy_s / record.audio_s if record.audio_s else None
        if events:
            await _send_part(send, last_event(len(self._request.text)), patience)
        await _send_part(send, b"", patience)
        self._whole = True


def header_of_notes(notes: Sequence[str]) -> bytes:
    """Return notes as a JSON array in ASCII of at most ``LONGEST_NOTES`` bytes; what does not fit is counted at its end."""
    for kept in range(min(len(notes), _MOST_NOTES), -1, -1):
        more = [f"and {len(notes) - kept} more"] if kept < len(notes) else []
        # JSON escapes every control character but DEL.
        value = json.dumps([*notes[:kept], *more]).replace("\x7f", r"\u007f")
        if len(value) <= LONGEST_NOTES:
            break
    return value.encode("ascii")


async def _send_part(send: Send, audio: bytes, seconds: float) -> None:
    """Send a piece of the body, the last one when it is empty; raise Cancelled when there is no room for it in time."""
    try:
        async with asyncio.timeout(seconds):
            await send({"type": "http.response.body", "body": audio, "more_body": bool(audio)})
    except TimeoutError:
        raise Cancelled("the reader is too far behind the audio") from None


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def cost(wire: object) -> int:
    """Return the characters of a decoded body that need not be valid; 0 when it has no text, which OpenAI calls input."""
    text = wire.get("text", wire.get("input")) if isinstance(wire, Mapping) else None
    return len(text) if isinstance(text, str) else 0


def delivered_cost(request: TTSRequest, sent: int) -> int:
    """Return the characters to charge for the first ``sent`` bytes of a speech that was cut short."""
    speed = request.prosody.speed if request.prosody is not None else 1.0
    said = sent / _bytes_per_second(request) * speed * _CHARACTERS_PER_SECOND
    return min(len(request.text), math.ceil(said))


def played_seconds(request: TTSRequest, sent: int) -> float:
    """Return how long ``sent`` bytes of audio take to play, rather more than less."""
    if request.format != "opus":
        return sent / _bytes_per_second(request)
    bitrate = min(rate for rate in OPUS_BITRATES if rate > 0) if request.opus_bitrate < 0 else request.opus_bitrate
    return sent / (bitrate * 125.0 * _OPUS_LEAST)


def _bytes_per_second(request: TTSRequest) -> float:
    if request.format == "mp3":
        return request.mp3_bitrate * 125.0
    if request.format == "opus":
        return (_OPUS_AUTOMATIC if request.opus_bitrate < 0 else request.opus_bitrate) * 125.0
    return request.rate * 2.0
