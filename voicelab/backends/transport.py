"""Two ways for a call to travel: in a thread that blocks, and on an event loop.

What is made of a call is written once, as coroutines over a Transport (see ``caller``). On an event loop
they are awaited. ``BlockingTransport`` never suspends, so that ``run_blocking`` can run the very same coroutines
in a thread without a loop.
"""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from contextvars import copy_context
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import httpx

from voicelab.errors import Cancelled, VoicelabError

_T = TypeVar("_T")

_CLOSED = "the stream was closed before all audio had arrived"


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer of which the head is there."""

    response: httpx.Response
    """Its status and headers."""
    chunk: Callable[[], Coroutine[Any, Any, bytes]]
    """Return more of the body, b"" at its end. Raises httpx's errors."""
    close: Callable[[], Coroutine[Any, Any, None]]
    """Let go of it. In mid-body this closes the connection, which tells the service that we have left."""


class BlockingTransport:
    """Carries one call in the thread that makes it; another thread may cancel it, which wakes the one that waits.

    Its methods but ``cancel()`` belong to the thread that makes the call.
    """

    def __init__(self, client: httpx.Client, shut: threading.Event) -> None:
        self._client = client
        self._shut = shut
        self._cancelled = threading.Event()
        self._response: httpx.Response | None = None
        self._head: Future[httpx.Response] | None = None

    @property
    def closed(self) -> bool:
        """Whether the backend is shut; its client is closed then, or soon."""
        return self._shut.is_set()

    def check(self) -> None:
        """Raise Cancelled after ``cancel()``."""
        if self._cancelled.is_set():
            raise Cancelled(_CLOSED)

    async def sleep(self, seconds: float) -> None:
        """Block. Raises Cancelled as soon as the call is cancelled."""
        self._cancelled.wait(seconds)
        self.check()

    async def send(self, request: httpx.Request, auth: httpx.Auth | None) -> Reply:
        """Send, and block until the head of the answer is there, or the call is cancelled. Raises httpx's errors.

        To be followed by ``check()``: from here on ``cancel()`` shuts the connection of the answer.
        """
        response = self._wait_for(partial(self._client.send, request, stream=True, auth=auth))
        chunks = response.iter_bytes()
        self._response = response

        async def chunk() -> bytes:
            return next(chunks, b"")

        async def close() -> None:
            response.close()

        return Reply(response, chunk, close)

    def _wait_for(self, send: Callable[[], httpx.Response]) -> httpx.Response:
        """Return what ``send`` returns, or raise what it raises; raise Cancelled as soon as the call is cancelled.

        A thread that waits for the head of an answer cannot be woken: on a connection that was used before, nothing
        tells which socket it is. So another thread waits, and closes an answer that is no longer wanted. The main thread
        waits itself: an interrupt wakes it, and closes the connection at once.
        """
        if threading.current_thread() is threading.main_thread():
            return send()
        head = self._head = Future[httpx.Response]()
        self.check()
        waiter = threading.Thread(
            target=copy_context().run, args=(_send_for, head, send), name="voicelab-head", daemon=True
        )
        try:
            waiter.start()
        except RuntimeError:  # Python 3.12, while it ends
            return send()
        try:
            return head.result()
        except CancelledError:
            raise Cancelled(_CLOSED) from None
        finally:
            self._head = None
            del head  # an error that it holds would hold all of this

    def cancel(self) -> None:
        """End whatever waits in this call, now or later. May be called twice, from any thread."""
        self._cancelled.set()
        head, response = self._head, self._response
        if head is not None:
            head.cancel()
        # The connection of an answer that is read may already serve another call.
        if response is None or response.is_closed:
            return
        stream = response.extensions.get("network_stream")
        connection = stream.get_extra_info("socket") if stream is not None else None
        if isinstance(connection, socket.socket):
            # Closing would not wake a thread that waits in recv(). The method of the plain socket:
            # that of a TLS socket takes its state away under the reader's feet.
            with suppress(OSError):
                socket.socket.shutdown(connection, socket.SHUT_RDWR)


def _send_for(head: Future[httpx.Response], send: Callable[[], httpx.Response]) -> None:
    """Give ``head`` what ``send`` returns or raises; close an answer that nobody waits for any more."""
    try:
        response = send()
    except BaseException as error:  # noqa: BLE001 - raised where the answer is awaited
        if head.set_running_or_notify_cancel():
            head.set_exception(error)
        return
    if head.set_running_or_notify_cancel():
        head.set_result(response)
    else:
        response.close()


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
        """Send, and wait until the head of the answer is there. Raises httpx's errors."""
        response = await self._client.send(request, stream=True, auth=auth)
        chunks = response.aiter_bytes()

        async def chunk() -> bytes:
            return await anext(chunks, b"")

        async def close() -> None:
            # The iterator first: left to the event loop it would outlive the connection that it reads.
            if isinstance(chunks, AsyncGenerator):
                await chunks.aclose()
            await response.aclose()

        return Reply(response, chunk, close)

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        await asyncio.sleep(seconds)


Transport = BlockingTransport | AsyncTransport
"""What carries one call."""


def run_blocking(work: Coroutine[Any, Any, _T]) -> _T:
    """Run a coroutine that never suspends, and return its value."""
    try:
        work.send(None)
    except StopIteration as done:
        value: _T = done.value
        return value
    work.close()
    raise VoicelabError("a blocking transport waited for an event loop")
