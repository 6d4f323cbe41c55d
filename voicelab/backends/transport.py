"""Transports of HTTP calls: blocking in a thread, and on an event loop.

The client logic is written once, as coroutines over a Transport (see ``caller``). ``BlockingTransport`` never suspends, so
``run_blocking`` can run the coroutines in a thread without an event loop.
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
    """A response whose status and headers have arrived and whose body can be read."""

    response: httpx.Response
    chunk: Callable[[], Coroutine[Any, Any, bytes]]
    """Return the next chunk of the body, b"" at its end. Raises errors of httpx."""
    close: Callable[[], Coroutine[Any, Any, None]]
    """Release the response. If its body is incomplete, this closes the connection."""


class BlockingTransport:
    """Transport of a single call in the calling thread. Only ``cancel()`` may be called from other threads.

    Args:
        client: HTTP client of the backend.
        backend_closed: Set when the backend is closed.
    """

    def __init__(self, client: httpx.Client, backend_closed: threading.Event) -> None:
        self._client = client
        self._backend_closed = backend_closed
        self._cancelled = threading.Event()
        self._response: httpx.Response | None = None
        self._head: Future[httpx.Response] | None = None

    @property
    def closed(self) -> bool:
        """Whether the backend was closed."""
        return self._backend_closed.is_set()

    def check(self) -> None:
        """Raise Cancelled after ``cancel()``."""
        if self._cancelled.is_set():
            raise Cancelled(_CLOSED)

    async def sleep(self, seconds: float) -> None:
        """Block for ``seconds``. Raises Cancelled as soon as the call is cancelled."""
        self._cancelled.wait(seconds)
        self.check()

    async def send(self, request: httpx.Request, auth: httpx.Auth | None) -> Reply:
        """Send a request and block until the response headers arrive or the call is cancelled. Raises errors of httpx.

        The caller must call ``check()`` next; from then on ``cancel()`` shuts down the connection of the response.
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
        """Run ``send`` so that it can be cancelled. Raises Cancelled.

        A thread that waits for response headers cannot be woken, because the socket of a reused connection is unknown.
        Therefore a helper thread waits, and closes a response that is no longer needed. The main thread needs no helper,
        because an interrupt wakes it and closes the connection.
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
        except RuntimeError:  # Python 3.12 at interpreter shutdown
            return send()
        try:
            return head.result()
        except CancelledError:
            raise Cancelled(_CLOSED) from None
        finally:
            self._head = None
            del head  # its exception would keep this frame alive

    def cancel(self) -> None:
        """Cancel the call; present and future waits raise Cancelled. Idempotent, from any thread."""
        self._cancelled.set()
        head, response = self._head, self._response
        if head is not None:
            head.cancel()
        # The connection of a completed response may already serve another call.
        if response is None or response.is_closed:
            return
        stream = response.extensions.get("network_stream")
        connection = stream.get_extra_info("socket") if stream is not None else None
        if isinstance(connection, socket.socket):
            # close() would not wake a thread in recv(). shutdown() of SSLSocket would discard TLS state that the
            # reader still uses, hence the method of the base class.
            with suppress(OSError):
                socket.socket.shutdown(connection, socket.SHUT_RDWR)


def _send_for(head: Future[httpx.Response], send: Callable[[], httpx.Response]) -> None:
    """Set ``head`` to the result or exception of ``send``; close the response if ``head`` was cancelled."""
    try:
        response = send()
    except BaseException as error:  # noqa: BLE001 - raised where the response is awaited
        if head.set_running_or_notify_cancel():
            head.set_exception(error)
        return
    if head.set_running_or_notify_cancel():
        head.set_result(response)
    else:
        response.close()


class AsyncTransport:
    """Transport of calls on an event loop; cancelling the waiting task closes the connection."""

    def __init__(self, client: httpx.AsyncClient) -> None:
        self._client = client

    @property
    def closed(self) -> bool:
        """Whether the client is closed."""
        return self._client.is_closed

    def check(self) -> None:
        """Do nothing: the stream itself wakes the task that reads it."""

    async def send(self, request: httpx.Request, auth: httpx.Auth | None) -> Reply:
        """Send a request and wait for the response headers. Raises errors of httpx."""
        response = await self._client.send(request, stream=True, auth=auth)
        chunks = response.aiter_bytes()

        async def chunk() -> bytes:
            return await anext(chunks, b"")

        async def close() -> None:
            # Close the iterator first; the event loop would close it only after its connection.
            if isinstance(chunks, AsyncGenerator):
                await chunks.aclose()
            await response.aclose()

        return Reply(response, chunk, close)

    async def sleep(self, seconds: float) -> None:
        """Wait for ``seconds``."""
        await asyncio.sleep(seconds)


Transport = BlockingTransport | AsyncTransport
"""Transport of a call."""


def run_blocking(work: Coroutine[Any, Any, _T]) -> _T:
    """Run a coroutine that never suspends, and return its result."""
    try:
        work.send(None)
    except StopIteration as stop:
        result: _T = stop.value
        return result
    work.close()
    raise VoicelabError("a blocking transport waited for an event loop")
