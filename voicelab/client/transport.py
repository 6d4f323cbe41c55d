"""Two ways for a call to travel: in a thread that blocks, and on an event loop.

What is made of a call is written once, as coroutines over a Transport (see ``caller``). On an event loop
they are awaited. ``BlockingTransport`` never suspends, so that ``at_once`` can run the very same coroutines
in a thread without a loop.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Coroutine, Iterator
from functools import partial
from typing import Any, Protocol, TypeVar

import httpx

from voicelab.client.line import Line
from voicelab.errors import VoicelabError

__all__ = ["AsyncTransport", "BlockingTransport", "Reply", "Transport", "at_once"]

_T = TypeVar("_T")


class Reply(Protocol):
    """An answer of which the head is there."""

    @property
    def response(self) -> httpx.Response:
        """Its status and headers."""
        ...

    async def chunk(self) -> bytes:
        """Return more of the body, b"" at its end. Raises httpx's errors."""
        ...

    async def close(self) -> None:
        """Let go of it. In mid-body this closes the connection, which tells the service that we have left."""
        ...


class Transport(Protocol):
    """What carries one call."""

    @property
    def closed(self) -> bool:
        """Whether the backend is closed, so that nothing can be sent any more."""
        ...

    def check(self) -> None:
        """Raise Cancelled when whoever made the call has closed its stream."""
        ...

    async def send(self, request: httpx.Request, auth: httpx.Auth | None) -> Reply:
        """Send a request and wait for the head of its answer. Raises httpx's errors."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait before another try."""
        ...


class BlockingTransport:
    """Carries one call in the thread that makes it; another thread may cut its line."""

    def __init__(self, client: httpx.Client, line: Line, shut: threading.Event) -> None:
        self._client = client
        self._line = line
        self._shut = shut

    @property
    def closed(self) -> bool:
        """Whether the backend is shut; its client is closed then, or soon."""
        return self._shut.is_set()

    def check(self) -> None:
        """Raise Cancelled when the line was cut."""
        self._line.check()

    async def send(self, request: httpx.Request, auth: httpx.Auth | None) -> Reply:
        """Send, and block until the head of the answer is there, or the line is cut."""
        send = partial(self._client.send, request, stream=True, auth=auth)
        return _BlockingReply(self._line.first(send), self._line)

    async def sleep(self, seconds: float) -> None:
        """Block, until the line is cut at the latest."""
        self._line.wait(seconds)


class _BlockingReply:
    def __init__(self, response: httpx.Response, line: Line) -> None:
        self.response = response
        self._chunks: Iterator[bytes] = response.iter_bytes()
        line.hold(response)

    async def chunk(self) -> bytes:
        return next(self._chunks, b"")

    async def close(self) -> None:
        self.response.close()


class AsyncTransport:
    """Carries calls on the event loop; cancelling the task that waits closes the connection."""

    def __init__(self, client: httpx.AsyncClient) -> None:
        self._client = client

    @property
    def closed(self) -> bool:
        """Whether the client is closed."""
        return self._client.is_closed

    def check(self) -> None:
        """Nothing to look at: the task that reads a closed stream is woken by the stream itself."""

    async def send(self, request: httpx.Request, auth: httpx.Auth | None) -> Reply:
        """Send, and wait until the head of the answer is there."""
        return _AsyncReply(await self._client.send(request, stream=True, auth=auth))

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        await asyncio.sleep(seconds)


class _AsyncReply:
    def __init__(self, response: httpx.Response) -> None:
        self.response = response
        self._chunks: AsyncIterator[bytes] = response.aiter_bytes()

    async def chunk(self) -> bytes:
        return await anext(self._chunks, b"")

    async def close(self) -> None:
        # The iterator first: left to the event loop it would outlive the connection that it reads.
        if isinstance(self._chunks, AsyncGenerator):
            await self._chunks.aclose()
        await self.response.aclose()


def at_once(work: Coroutine[Any, Any, _T]) -> _T:
    """Run a coroutine that never suspends, and return its value."""
    try:
        work.send(None)
    except StopIteration as done:
        value: _T = done.value
        return value
    work.close()
    raise VoicelabError("a blocking transport waited for an event loop")
