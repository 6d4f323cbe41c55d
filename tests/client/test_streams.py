"""AsyncSpeechStream and AsyncServiceBackend on an event loop, against our own service over real sockets."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import numpy as np
import pytest

from tests.client.conftest import QUICK, REQUEST
from tests.served import on_loop, until_async
from tests.service.conftest import Start
from tests.tones import ToneBackend
from voicelab.backend import StreamSummary
from voicelab.call import Call
from voicelab.capabilities import Capabilities
from voicelab.client import AsyncServiceBackend, AsyncSpeechStream
from voicelab.errors import AudioError, Cancelled, EngineError, RequestInvalid, ServiceTimeout
from voicelab.schema import FORMATS, AudioFormat, TTSRequest

TONES = Capabilities("tones", ("s1", "s2-pro"), "cpu", "exact", "tones-1")


def stream(chunks: AsyncIterator[bytes], kind: AudioFormat = "pcm", **options: Any) -> AsyncSpeechStream:
    request = TTSRequest(text="a", format=kind)
    return AsyncSpeechStream(chunks, call=Call(request, "s1"), backend=TONES, **options)


async def given(
    *chunks: bytes, ended: list[bool] | None = None, error: Exception | None = None, wait: float = 0
) -> AsyncIterator[bytes]:
    try:
        for chunk in chunks:
            yield chunk
        await asyncio.sleep(wait)
        if error is not None:
            raise error
    finally:
        if ended is not None:
            ended.append(True)


# The stream by itself


@on_loop
async def test_chunks_come_as_they_are_with_their_times() -> None:
    async def slow() -> AsyncIterator[bytes]:
        yield b"abc"
        yield b""
        await asyncio.sleep(0.05)
        yield b"de"

    speech = stream(slow(), summary=lambda: StreamSummary(notes=("n",)))
    assert speech.summary == StreamSummary()
    assert [chunk async for chunk in speech] == [b"abc", b"de"]
    assert [size for _, size in speech.arrivals] == [3, 2]
    (first, _), (second, _) = speech.arrivals
    assert second >= first + 0.05
    assert speech.first_audio_s == first
    assert speech.complete
    assert speech.summary.notes == ("n",)
    assert [chunk async for chunk in speech] == []
    assert repr(speech) == "AsyncSpeechStream(pcm, 44100 Hz, 5 bytes, complete)"


@on_loop
async def test_it_is_read_once_and_from_its_beginning() -> None:
    speech = stream(given(b"ab", b"cd"))
    assert await anext(speech) == b"ab"
    with pytest.raises(AudioError, match="from its beginning"):
        await speech.clip()
    with pytest.raises(AudioError, match="from its beginning"):
        speech.pcm()


@pytest.mark.parametrize("error", [EngineError("broke"), RequestInvalid.of("text", "no"), ServiceTimeout("late")])
@on_loop
async def test_errors_of_the_source_pass_unchanged_and_close_it(error: Exception) -> None:
    ended: list[bool] = []
    speech = stream(given(b"ab", ended=ended, error=error))
    with pytest.raises(type(error)) as caught:
        await speech.clip()
    assert caught.value is error
    assert not speech.complete
    assert ended == [True]


@on_loop
async def test_leaving_the_block_closes_and_a_closed_stream_is_not_read() -> None:
    ended: list[bool] = []
    async with stream(given(b"ab", b"cd", ended=ended)) as speech:
        await anext(speech)
    assert ended == [True]
    with pytest.raises(Cancelled):
        await anext(speech)
    unread = stream(given(b"ab", b"cd"))
    await unread.aclose()
    for reading in (unread.clip(), anext(unread)):
        with pytest.raises(Cancelled):
            await reading


# Over a socket


Hall = Callable[[ToneBackend], AsyncServiceBackend]


@pytest.fixture
def hall(start: Start) -> Hall:
    """Serve a voice, and return a client of it."""

    def serve(voice: ToneBackend) -> AsyncServiceBackend:
        service = start(voice)
        return AsyncServiceBackend(service.url, service.secret, retry=QUICK)

    return serve


@pytest.mark.parametrize("kind", FORMATS)
@on_loop
async def test_a_clip_is_what_the_voice_said(hall: Hall, kind: AudioFormat) -> None:
    request = TTSRequest(text="hello there", format=kind)

    async with hall(ToneBackend()) as backend:
        parts = [part async for part in (await backend.synthesize(Call(request, seed=5))).pcm()]
        clip = await (await backend.synthesize(Call(request, seed=5))).clip()
    direct = ToneBackend().synthesize(Call(request, seed=5)).clip()
    np.testing.assert_array_equal(clip.samples, direct.samples)
    np.testing.assert_array_equal(np.concatenate(parts), direct.samples)
    assert clip.take is not None
    assert clip.take.seed == 5


@pytest.mark.parametrize("notes", [0, 1], ids=["before the answer", "in mid-audio"])
@pytest.mark.parametrize("read", ["clip", "for"])
@on_loop
async def test_cancelling_the_task_ends_the_work_at_once(hall: Hall, read: str, notes: int) -> None:
    go = threading.Event()
    voice = ToneBackend(lambda number: number < notes or go.wait(20))

    async with hall(voice) as backend:
        speech = await backend.synthesize(Call(REQUEST))

        async def listen() -> None:
            if read == "clip":
                await speech.clip()
            else:
                async for _ in speech:
                    pass

        reader = asyncio.create_task(listen())
        await until_async(lambda: voice.open == 1 and len(speech.arrivals) == notes)
        before = time.monotonic()
        reader.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reader
        assert time.monotonic() - before < 1
        pool = backend._client._transport._pool  # type: ignore[attr-defined]
        assert pool.connections == []
        go.set()
        await until_async(lambda: voice.open == 0)
        # The backend is none the worse for it.
        assert len((await (await backend.synthesize(Call(REQUEST))).clip()).samples) == 5 * 1200


@on_loop
async def test_a_stream_that_nobody_holds_ends(hall: Hall) -> None:
    voice = ToneBackend(lambda _: time.sleep(0.005))

    async with hall(voice) as backend:
        speech = await backend.synthesize(Call(TTSRequest(text="x" * 5000, format="pcm")))
        await anext(speech)
        assert voice.open == 1
        del speech
        gc.collect()
        await until_async(lambda: voice.open == 0)
