from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest

from tests.tones import ToneBackend
from voicelab.backend import SpeechStream
from voicelab.errors import EngineError
from voicelab.schema import TTSRequest
from voicelab.service.relay import Relay


def stream(chunks: Iterator[bytes], closed: Callable[[], None] | None = None) -> SpeechStream:
    return SpeechStream(
        chunks,
        request=TTSRequest(text="a", format="pcm"),
        model="s2-pro",
        backend=ToneBackend().capabilities,
        on_close=closed,
    )


def run(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(test, 20))


async def _until(true: Callable[[], bool]) -> None:
    for _ in range(2000):
        if true():
            return
        await asyncio.sleep(0.001)
    pytest.fail("it never came")


def test_everything_arrives_in_order() -> None:
    async def test() -> None:
        parts = [bytes([number % 256]) * (number % 97 + 1) for number in range(500)]
        relay = Relay(lambda: stream(iter(parts)), 1000)
        thread = asyncio.get_running_loop().run_in_executor(None, relay.work)
        got = []
        while (audio := await relay.take()) is not None:
            got.append(audio)
        await thread
        assert b"".join(got) == b"".join(parts)
        assert await relay.take() is None

    run(test())


def test_a_slow_reader_holds_up_the_voice_not_memory() -> None:
    async def test() -> None:
        made = 0

        def chunks() -> Iterator[bytes]:
            nonlocal made
            for _ in range(1000):
                made += 1
                yield bytes(100)

        relay = Relay(lambda: stream(chunks()), 1000)
        thread = asyncio.get_running_loop().run_in_executor(None, relay.work)
        await _until(lambda: made == 11)
        await asyncio.sleep(0.05)
        assert made == 11  # ten held, one in the voice's hand
        total = 0
        while (audio := await relay.take()) is not None:
            assert len(audio) <= 1000
            total += len(audio)
        await thread
        assert total == 100_000

    run(test())


def test_one_chunk_may_be_larger_than_the_buffer() -> None:
    async def test() -> None:
        relay = Relay(lambda: stream(iter([bytes(5000), bytes(10), bytes(7000)])), 1000)
        thread = asyncio.get_running_loop().run_in_executor(None, relay.work)
        total = 0
        while (audio := await relay.take()) is not None:
            total += len(audio)
        await thread
        assert total == 12_010

    run(test())


def test_an_error_comes_after_the_audio_before_it() -> None:
    async def test() -> None:
        def chunks() -> Iterator[bytes]:
            yield b"one"
            raise EngineError("broke")

        relay = Relay(lambda: stream(chunks()), 1000)
        await asyncio.get_running_loop().run_in_executor(None, relay.work)
        assert await relay.take() == b"one"
        with pytest.raises(EngineError, match="broke"):
            await relay.take()

    run(test())


def test_an_error_at_the_start_arrives() -> None:
    async def test() -> None:
        def begin() -> SpeechStream:
            raise MemoryError

        relay = Relay(begin, 1000)
        await asyncio.get_running_loop().run_in_executor(None, relay.work)
        with pytest.raises(MemoryError):
            await relay.take()

    run(test())


@pytest.mark.parametrize("how", ["stop", "close"])
def test_a_stopped_voice_that_waits_for_room_ends(how: str) -> None:
    async def test() -> None:
        closed = threading.Event()
        relay = Relay(lambda: stream(iter([bytes(900)] * 5), closed.set), 1000)
        thread = asyncio.get_running_loop().run_in_executor(None, relay.work)
        await relay.take()
        await asyncio.sleep(0.02)
        getattr(relay, how)()
        await asyncio.wait_for(thread, 2)
        assert closed.is_set()

    run(test())


def test_closing_cancels_work_that_is_in_the_middle_of_a_chunk() -> None:
    async def test() -> None:
        cancel = threading.Event()

        def chunks() -> Iterator[bytes]:
            yield b"one"
            cancel.wait(10)
            yield b"two"

        relay = Relay(lambda: stream(chunks(), cancel.set), 1000)
        thread = asyncio.get_running_loop().run_in_executor(None, relay.work)
        assert await relay.take() == b"one"
        before = time.perf_counter()
        relay.close()
        await asyncio.wait_for(thread, 2)
        assert time.perf_counter() - before < 1

    run(test())


def test_a_voice_stopped_before_it_began_never_begins() -> None:
    async def test() -> None:
        begun = threading.Event()

        def begin() -> SpeechStream:
            begun.set()
            return stream(iter([b"one"]))

        relay = Relay(begin, 1000)
        relay.stop()
        await asyncio.get_running_loop().run_in_executor(None, relay.work)
        assert not begun.is_set()

    run(test())
