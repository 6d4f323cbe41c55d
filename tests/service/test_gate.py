from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine

import pytest

from voicelab.service.gate import Full, Gate


def run(test: Coroutine[None, None, None]) -> None:
    asyncio.run(asyncio.wait_for(test, 20))


async def _settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def test_only_so_many_are_in_at_once() -> None:
    async def test() -> None:
        gate = Gate(2, 10, 5)
        inside = most = 0

        async def visit(owner: int) -> None:
            nonlocal inside, most
            await gate.enter(owner)
            inside += 1
            most = max(most, inside)
            await asyncio.sleep(0.001)
            inside -= 1
            gate.leave()

        await asyncio.gather(*(visit(number % 3) for number in range(12)))
        assert most == 2
        assert gate.waiting == 0

    run(test())


def test_a_full_queue_refuses_at_once() -> None:
    async def test() -> None:
        gate = Gate(1, 2, 5)
        await gate.enter("a")
        waiting = [asyncio.ensure_future(gate.enter("a")) for _ in range(2)]
        await _settle()
        before = time.perf_counter()
        with pytest.raises(Full):
            await gate.enter("a")
        assert time.perf_counter() - before < 0.05
        assert gate.waiting == 2
        for turn in waiting:
            gate.leave()
            await turn

    run(test())


def test_waiting_has_an_end() -> None:
    async def test() -> None:
        gate = Gate(1, 5, 0.02)
        await gate.enter("a")
        with pytest.raises(Full):
            await gate.enter("b")
        assert gate.waiting == 0
        gate.leave()
        await gate.enter("c")

    run(test())


def test_owners_take_turns() -> None:
    async def test() -> None:
        gate = Gate(1, 200, 5)
        await gate.enter("flood")
        order: list[str] = []

        async def visit(owner: str) -> None:
            await gate.enter(owner)
            order.append(owner)

        tasks = [asyncio.ensure_future(visit("flood")) for _ in range(100)]
        await _settle()
        tasks.append(asyncio.ensure_future(visit("other")))
        await _settle()
        for _ in tasks:
            gate.leave()
            await _settle()
        await asyncio.gather(*tasks)
        assert order.index("other") <= 1

    run(test())


def test_who_fills_the_queue_makes_room_for_who_does_not() -> None:
    async def test() -> None:
        gate = Gate(1, 4, 5)
        await gate.enter("flood")
        flood = [asyncio.ensure_future(gate.enter("flood")) for _ in range(4)]
        await _settle()
        others = [asyncio.ensure_future(gate.enter("other")) for _ in range(2)]
        await _settle()
        # The last two of the flood have given way, and the shares are even now.
        assert [turn.done() for turn in flood] == [False, False, True, True]
        assert isinstance(flood[3].exception(), Full)
        assert isinstance(flood[2].exception(), Full)
        with pytest.raises(Full):
            await gate.enter("other")
        for _ in range(4):
            gate.leave()
        await asyncio.gather(*others, *flood[:2])

    run(test())


def test_who_leaves_the_queue_is_never_let_in() -> None:
    async def test() -> None:
        gate = Gate(1, 5, 5)
        await gate.enter("a")
        gone = asyncio.ensure_future(gate.enter("b"))
        stays = asyncio.ensure_future(gate.enter("b"))
        await _settle()
        gone.cancel()
        await _settle()
        assert gate.waiting == 1
        gate.leave()
        await stays
        assert gone.cancelled()

    run(test())


def test_a_turn_that_comes_with_the_cancellation_is_the_next_ones() -> None:
    async def test() -> None:
        gate = Gate(1, 5, 5)
        await gate.enter("a")
        gone = asyncio.ensure_future(gate.enter("b"))
        stays = asyncio.ensure_future(gate.enter("c"))
        await _settle()
        gate.leave()  # b's turn, but before b runs …
        gone.cancel()
        await asyncio.wait_for(stays, 1)
        gate.leave()
        await asyncio.wait_for(gate.enter("d"), 1)

    run(test())
