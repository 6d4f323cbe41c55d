"""The connection under one stream, which another thread may cut."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from contextvars import copy_context

import httpx

from voicelab.errors import Cancelled

__all__ = ["Line"]

_CLOSED = "the stream was closed before all audio had arrived"


class Line:
    """Lets the thread that closes a stream wake the one that waits for its audio."""

    def __init__(self) -> None:
        self._cut = threading.Event()
        self._response: httpx.Response | None = None
        self._head: Future[httpx.Response] | None = None

    def check(self) -> None:
        """Raise Cancelled after ``cut()``."""
        if self._cut.is_set():
            raise Cancelled(_CLOSED)

    def wait(self, seconds: float) -> None:
        """Sleep. Raises Cancelled as soon as the line is cut."""
        self._cut.wait(seconds)
        self.check()

    def first(self, send: Callable[[], httpx.Response]) -> httpx.Response:
        """Return what ``send`` returns, or raise what it raises; raise Cancelled as soon as the line is cut.

        A thread that waits for the head of an answer cannot be woken: on a connection that was used before, nobody
        can tell which one it is. So another one waits, and closes the answer that nobody wants any more. The main thread
        waits itself: an interrupt wakes it, and closes the connection at once.
        """
        if threading.current_thread() is threading.main_thread():
            return send()
        head = self._head = Future[httpx.Response]()
        self.check()
        waiter = threading.Thread(
            target=copy_context().run, args=(_answer, head, send), name="voicelab-head", daemon=True
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

    def hold(self, response: httpx.Response) -> None:
        """Note the answer that is being read; it can be cut from now on. To be followed by ``check()``."""
        self._response = response

    def cut(self) -> None:
        """End whatever waits on this line, now or later. May be called twice, from any thread."""
        self._cut.set()
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


def _answer(head: Future[httpx.Response], send: Callable[[], httpx.Response]) -> None:
    """Keep what ``send`` returns or raises for who waits, and close an answer for which nobody does."""
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
