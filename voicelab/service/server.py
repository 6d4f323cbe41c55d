"""uvicorn with deadlines: connections that no caller can hold for ever, and a stop that finishes what is running.

The only module that builds on parts of uvicorn which are not documented. uvicorn waits without end for the head of a
request, for the rest of a body after the answer was sent, and for a reader who does not read the end of an answer
when a connection is closed; it answers what is no HTTP with text rather than ``{status, message}``; and it stops
listening before its requests have ended. No setting of it changes any of these, and other servers have the same
gaps, so its protocol and its server are subclassed here. ``.ci/next`` runs the tests of this package against
uvicorn's next version.
"""

from __future__ import annotations

import asyncio
import json
import math
import socket
import time
from collections.abc import Callable
from types import FrameType
from typing import Any

import h11
import uvicorn
from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from voicelab.service.app import ServiceMiddleware
from voicelab.service.requests import Limits

__all__ = ["ReadyServer", "ServiceServer"]

# Longer than clients keep an idle connection, so that it is they who close it: a request sent while
# the server closes is lost.
_KEEP_ALIVE_SECONDS = 75


class _Connection(H11Protocol):
    """A connection with deadlines.

    ``head_seconds`` is how long the head of a request may take to arrive, or what is left of a body after its
    answer; ``linger_seconds`` how long the end of a broken-off answer waits for its reader.
    """

    head_seconds: float
    linger_seconds: float

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._inner: Any = self.app
        self.app = self._answered
        self.access_log = False  # our own log hides keys in paths; uvicorn's does not
        self._deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        super().connection_made(transport)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        self._unwatch()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._watch()

    def timeout_keep_alive_handler(self) -> None:
        super().timeout_keep_alive_handler()
        self._abort_if_unread()

    def send_400_response(self, msg: str) -> None:
        """Answer what is no HTTP."""
        self._refuse(400, msg)

    async def _answered(self, scope: Scope, receive: Receive, send: Send) -> None:
        cycle = self.cycle
        try:
            await self._inner(scope, receive, send)
        except BaseException:
            if not cycle.response_complete:
                # uvicorn closes the connection now, which waits for the reader of what was sent before.
                self.loop.call_later(self.linger_seconds, self.transport.abort)
            raise

    def _watch(self) -> None:
        """Set a deadline while it is the caller's turn, and only then; what is idle has uvicorn's own."""
        rest_of_body = self.conn.our_state is h11.DONE and self.conn.their_state is h11.SEND_BODY
        awaited = self.conn.their_state is h11.IDLE or rest_of_body
        if not awaited or self.timeout_keep_alive_task is not None or self.transport.is_closing():
            self._unwatch()
        elif self._deadline is None:
            self._deadline = self.loop.call_later(self.head_seconds, self._late)

    def _unwatch(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _late(self) -> None:
        self._deadline = None
        if self.conn.their_state is h11.IDLE and self.conn.trailing_data[0]:
            self._refuse(408, f"The head of the request did not arrive within {self.head_seconds:g} s")
        self.transport.close()
        self._abort_if_unread()

    def _abort_if_unread(self) -> None:
        # Closing waits for the reader, who has had all this time.
        if self.transport.get_write_buffer_size() > 0:
            self.transport.abort()

    def _refuse(self, status: int, message: str) -> None:
        if self.conn.our_state in {h11.IDLE, h11.SEND_RESPONSE}:
            body = json.dumps({"status": status, "message": message}).encode("ascii")
            headers = [
                ("content-type", "application/json"),
                ("content-length", str(len(body))),
                ("connection", "close"),
            ]
            for event in (
                h11.Response(status_code=status, headers=headers),
                h11.Data(data=body),
                h11.EndOfMessage(),
            ):
                self.transport.write(self.conn.send(event) or b"")
        cycle: RequestResponseCycle | None = self.cycle  # None before the first request, whatever uvicorn declares
        if cycle is not None and not cycle.response_complete:
            # The application that works on this request learns that its caller is gone.
            cycle.disconnected = True
            cycle.message_event.set()
        self.transport.close()


class ReadyServer(uvicorn.Server):
    """uvicorn, which calls ``ready`` as soon as it answers."""

    def __init__(self, config: uvicorn.Config, ready: Callable[[], object]) -> None:
        super().__init__(config)
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen, and say so."""
        await super().startup(sockets)
        if self.started:
            self._ready()


class ServiceServer(ReadyServer):
    """The server of the service: it listens on while it stops, and a second signal ends it at once."""

    def __init__(self, app: ServiceMiddleware, limits: Limits, ready: Callable[[], object], grace_seconds: int) -> None:
        deadlines = {"head_seconds": limits.head_seconds, "linger_seconds": limits.linger_seconds}
        config = uvicorn.Config(
            app,
            http=type("Connection", (_Connection,), deadlines),
            ws="none",
            lifespan="on",
            log_config=None,  # logging belongs to the program; we only write to it
            access_log=False,
            server_header=False,
            timeout_keep_alive=_KEEP_ALIVE_SECONDS,
            timeout_graceful_shutdown=grace_seconds,
        )
        super().__init__(config, ready)
        self._app = app
        self._grace = grace_seconds
        self._stop_by: float | None = None

    async def on_tick(self, counter: int) -> bool:
        """Look, ten times a second, whether the service is to stop and its requests have ended."""
        if self._stop_by is not None:
            left = self._stop_by - time.monotonic()
            if left <= 0 or not self._app.active:
                self.config.timeout_graceful_shutdown = max(0, math.ceil(left))
                self.should_exit = True
        return await super().on_tick(counter)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:  # noqa: ARG002 - as uvicorn has it
        """Begin to stop at the first signal; stop at once at the second."""
        if self._stop_by is not None:
            # From Python 3.12.1 on, a server that is forced to end still waits for its connections, for this long.
            self.config.timeout_graceful_shutdown = 0
            self.should_exit = self.force_exit = True
            return
        # uvicorn would stop listening now; a caller who is refused cannot know that it should come back.
        self._stop_by = time.monotonic() + self._grace
        self._app.stop()
