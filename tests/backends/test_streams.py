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

from tests.backends.conftest import QUICK, REQUEST
from tests.served import on_loop, until_async
from tests.service.conftest import Start
from tests.tones import ToneBackend
from voicelab.backend import StreamSummary
from voicelab.backends.service import AsyncServiceBackend, AsyncSpeechStream
from voicelab.call import Call
from voicelab.capabilities import Capabilities
from voicelab.errors import AudioError, Cancelled, EngineError, ServiceTimeout
from voicelab.schema import FORMATS, AudioFormat, TTSRequest

TONES = Capabilities("tones", ("s1", "s2-pro"), "cpu", "exact", "tones-1")


def stream(*steps: bytes | Exception, ended: list[bool], **options: Any) -> AsyncSpeechStream:
    async def chunks() -> AsyncIterator[bytes]:
        try:
            for step in steps:
                if isinstance(step, Exception):
                    raise step
                yield step
        finally:
            ended.append(True)

    return AsyncSpeechStream(chunks(), call=Call(TTSRequest(text="a", format="pcm"), "s1"), backend=TONES, **options)


@on_loop
async def test_chunks_are_unchanged_and_read_once() -> None:
    speech = stream(b"abc", b"", b"de", ended=[], summary=lambda: StreamSummary(notes=("n",)))
    assert await anext(speech) == b"abc"
    assert (speech.summary, speech.complete) == (StreamSummary(), False)
    with pytest.raises(AudioError, match="require an unread stream"):
        await speech.clip()
    with pytest.raises(AudioError, match="require an unread stream"):
        speech.pcm()
    assert [chunk async for chunk in speech] == [b"de"]
    assert [size for _, size in speech.arrivals] == [3, 2]
    assert speech.complete
    assert speech.summary.notes == ("n",)
    assert [chunk async for chunk in speech] == []
    assert repr(speech) == "AsyncSpeechStream(pcm, 44100 Hz, 5 bytes, complete)"


@pytest.mark.parametrize("error", [EngineError("broke"), ServiceTimeout("late")])
@on_loop
async def test_errors_of_the_source_propagate_and_close_it(error: Exception) -> None:
    ended: list[bool] = []
    speech = stream(b"ab", error, ended=ended)
    with pytest.raises(type(error)) as caught:
        await speech.clip()
    assert caught.value is error
    assert not speech.complete
    assert ended == [True]


@on_loop
async def test_async_with_closes_the_stream() -> None:
    ended: list[bool] = []
    async with stream(b"ab", b"cd", ended=ended) as speech:
        await anext(speech)
    assert ended == [True]
    unread = stream(b"ab", b"cd", ended=[])
    await unread.aclose()
    await unread.aclose()
    for reading in (anext(speech), unread.clip(), anext(unread)):
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
async def test_clip_has_the_streamed_audio(hall: Hall, kind: AudioFormat) -> None:
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
@on_loop
async def test_cancelling_the_task_closes_the_connection(hall: Hall, notes: int) -> None:
    go = threading.Event()
    voice = ToneBackend(lambda number: number < notes or go.wait(20))

    async with hall(voice) as backend:
        speech = await backend.synthesize(Call(REQUEST))

        async def listen() -> list[bytes]:
            return [chunk async for chunk in speech]

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
async def test_unreferenced_stream_is_closed(hall: Hall) -> None:
    voice = ToneBackend(lambda _: time.sleep(0.005))

    async with hall(voice) as backend:
        speech = await backend.synthesize(Call(TTSRequest(text="x" * 5000, format="pcm")))
        await anext(speech)
        assert voice.open == 1
        del speech
        gc.collect()
        await until_async(lambda: voice.open == 0)
