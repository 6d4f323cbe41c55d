"""The connection under one stream, which another thread may cut."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress

import httpx

from voicelab.errors import Cancelled

__all__ = ["Line"]


class Line:
    """Lets the thread that closes a stream wake the one that waits for its audio."""

    def __init__(self) -> None:
        self._cut = threading.Event()
        self._response: httpx.Response | None = None

    def check(self) -> None:
        """Raise Cancelled after ``cut()``."""
        if self._cut.is_set():
            raise Cancelled("the stream was closed before all audio had arrived")

    def wait(self, seconds: float) -> None:
        """Sleep. Raises Cancelled as soon as the line is cut."""
        self._cut.wait(seconds)
        self.check()

    def hold(self, response: httpx.Response) -> None:
        """Note the answer that is being read; it can be cut from now on. To be followed by ``check()``."""
        self._response = response

    def cut(self) -> None:
        """End whatever waits on this line, now or later. May be called twice, from any thread."""
        self._cut.set()
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
