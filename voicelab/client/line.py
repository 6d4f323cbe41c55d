"""The connection under one stream, which another thread may cut."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from concurrent.futures import CancelledError, Future
from contextlib import suppress

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
        can tell which one it is. So another one waits, and closes the answer that nobody wants any more.
        """
        head: Future[httpx.Response] = Future()

        def wait() -> None:
            try:
                response = send()
            except BaseException as error:  # noqa: BLE001 - raised where the answer is awaited
                if head.set_running_or_notify_cancel():
                    head.set_exception(error)
            else:
                if head.set_running_or_notify_cancel():
                    head.set_result(response)
                else:
                    response.close()

        self._head = head
        self.check()
        threading.Thread(target=wait, name="voicelab-head", daemon=True).start()
        try:
            return head.result()
        except CancelledError:
            raise Cancelled(_CLOSED) from None
        except BaseException:
            if not head.cancel() and head.exception() is None:  # interrupted just when the answer came
                head.result().close()
            raise

    def hold(self, response: httpx.Response) -> None:
        """Note the answer that is being read; it can be cut from now on. To be followed by ``check()``."""
        self._response = response

    def cut(self) -> None:
        """End whatever waits on this line, now or later. May be called twice, from any thread."""
        self._cut.set()
        if self._head is not None:
            self._head.cancel()
        response = self._response
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
