"""What the sockets do not show of queues and bridges: in which order, how many bytes, at which very moment.

What callers see of turns is tested in test_speech.py, test_admission.py and test_deadlines.py.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from tests.served import on_loop, until_async
from tests.tones import ToneBackend
from voicelab.backend import SpeechStream
from voicelab.call import Call
from voicelab.schema import TTSRequest
from voicelab.service.concurrency import FairQueue, QueueFull, ThreadBridge


def stream(chunks: Iterator[bytes], closed: Callable[[], None] | None = None) -> SpeechStream:
    return SpeechStream(
        chunks,
        call=Call(TTSRequest(text="a", format="pcm")),
        backend=ToneBackend().capabilities,
        on_close=closed,
    )


def running(bridge: ThreadBridge) -> asyncio.Future[None]:
    return asyncio.get_running_loop().run_in_executor(None, bridge.run)


async def all_of(bridge: ThreadBridge) -> list[bytes]:
    parts = []
    while (audio := await bridge.read()) is not None:
        parts.append(audio)
    return parts


@on_loop
async def test_backpressure() -> None:
    made = 0

    def chunks() -> Iterator[bytes]:
        nonlocal made
        for _ in range(1000):
            made += 1
            yield bytes(100)

    bridge = ThreadBridge(lambda: stream(chunks()), 1000)
    thread = running(bridge)
    await until_async(lambda: made == 11)
    await asyncio.sleep(0.05)
    assert made == 11  # ten held, one in the voice's hand
    sizes = [len(audio) for audio in await all_of(bridge)]
    await thread
    assert max(sizes) <= 1000
    assert sum(sizes) == 100_000


@on_loop
async def test_closing_cancels_work_that_is_in_the_middle_of_a_chunk() -> None:
    cancel = threading.Event()

    def chunks() -> Iterator[bytes]:
        yield b"one"
        cancel.wait(10)
        yield b"two"

    bridge = ThreadBridge(lambda: stream(chunks(), cancel.set), 1000)
    thread = running(bridge)
    assert await bridge.read() == b"one"
    before = time.perf_counter()
    bridge.close()
    await asyncio.wait_for(thread, 2)
    assert time.perf_counter() - before < 1


@on_loop
async def test_a_voice_stopped_before_it_began_never_begins() -> None:
    begun = threading.Event()

    def begin() -> SpeechStream:
        begun.set()
        return stream(iter([b"one"]))

    bridge = ThreadBridge(begin, 1000)
    bridge.stop()
    await running(bridge)
    assert not begun.is_set()


# Turns


async def _settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def _waiting(queue: FairQueue, *owners: str) -> list[asyncio.Task[None]]:
    turns = [asyncio.create_task(queue.enter(owner)) for owner in owners]
    await _settle()
    return turns


@on_loop
async def test_queue_timeout() -> None:
    queue = FairQueue(1, 5, 0.02)
    await queue.enter("a")
    with pytest.raises(QueueFull):
        await queue.enter("b")
    assert queue.waiting == 0
    queue.leave()
    await queue.enter("c")


@on_loop
async def test_owner_with_most_requests_is_displaced() -> None:
    queue = FairQueue(1, 4, 5)
    await queue.enter("flood")
    flood = await _waiting(queue, *["flood"] * 4)
    others = await _waiting(queue, "other", "other")
    # The last two of the flood have given way, and the shares are even now.
    assert [turn.done() for turn in flood] == [False, False, True, True]
    assert isinstance(flood[3].exception(), QueueFull)
    assert isinstance(flood[2].exception(), QueueFull)
    with pytest.raises(QueueFull):
        await queue.enter("other")
    for _ in range(4):
        queue.leave()
    await asyncio.gather(*others, *flood[:2])


@on_loop
async def test_cancelled_requests_leave_the_queue() -> None:
    queue = FairQueue(1, 5, 5)
    await queue.enter("a")
    gone, stays = await _waiting(queue, "b", "b")
    gone.cancel()
    await _settle()
    assert queue.waiting == 1
    queue.leave()
    await stays
    assert gone.cancelled()


@on_loop
async def test_turn_of_a_cancelled_request_is_passed_on() -> None:
    queue = FairQueue(1, 5, 5)
    await queue.enter("a")
    gone, stays = await _waiting(queue, "b", "c")
    queue.leave()  # b's turn, but before b runs …
    gone.cancel()
    await asyncio.wait_for(stays, 1)
    queue.leave()
    await asyncio.wait_for(queue.enter("d"), 1)


@on_loop
async def test_headers_beyond_capacity_are_rejected() -> None:
    queue = FairQueue(1, 2, 5)
    arrivals = [queue.expect("a") for _ in range(3)]
    with pytest.raises(QueueFull):
        queue.expect("a")
    # Another owner takes the place of one who has not come yet, until the shares are even.
    arrivals.append(queue.expect("b"))
    with pytest.raises(QueueFull):
        queue.expect("b")
    for arrival in arrivals:
        queue.arrived(arrival)
        queue.arrived(arrival)
    assert queue.expect("a").owner == "a"


@on_loop
async def test_late_arrivals_lose_their_place_and_may_enter() -> None:
    queue = FairQueue(1, 0, 5)
    late = queue.expect("a")
    with pytest.raises(QueueFull):
        queue.expect("a")
    await asyncio.sleep(1.05)
    soon = queue.expect("a")
    queue.arrived(soon)
    await queue.enter("a")
    assert queue.speaking == 1
    queue.arrived(late)
    with pytest.raises(QueueFull):
        await queue.enter("a")
