"""Running the service: in the foreground until a signal ends it, or beside other work in one program.

The only module that builds on parts of uvicorn which are not documented. uvicorn waits without end for the head of a
request, for the rest of a body after the answer was sent, and for a reader who does not read the end of an answer
when a connection is closed; it answers what is no HTTP with text rather than ``{status, message}``; and it stops
listening before its requests have ended. No setting of it changes any of these, and other servers have the same
gaps, so its protocol and its server are subclassed here. ``.ci/next`` runs the tests of this package against
uvicorn's next version.
"""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import math
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from ipaddress import ip_address
from types import FrameType
from typing import Any

import h11
import uvicorn
from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from voicelab.backend import Backend
from voicelab.errors import EngineError, RequestInvalid
from voicelab.service.app import ServiceMiddleware, create_app
from voicelab.service.keys import KeyStore
from voicelab.service.limits import Limits
from voicelab.service.record import serving_metrics

LOOPBACK = "127.0.0.1"
"""Where the service listens by default: only this machine can call it."""
PORT = 8707

_LOG = logging.getLogger("voicelab.service")

_START_SECONDS = 30.0
_BACKLOG = 1024
# What the kernel holds back of an answer. With its own choice, minutes of audio would count as delivered to a
# caller who reads nothing.
_SEND_BUFFER = 64 * 1024


def serve(
    backend: Backend,
    host: str = LOOPBACK,
    port: int = PORT,
    *,
    keys: KeyStore,
    limits: Limits | None = None,
    openai: bool = False,
    metrics: int | None = None,
    say: Callable[[str], object] = _LOG.info,
    grace_seconds: int = 30,
) -> None:
    """Serve until SIGTERM or Ctrl-C, then let running requests finish for at most ``grace_seconds``.

    New ones are answered 503 meanwhile. A second signal ends at once; audio then breaks off and its callers
    know it. ``port`` 0 takes any free one; at ``metrics``, a port of this machine alone, Prometheus finds what is
    counted. ``say`` is given each line for the operator, the one with the address once the service answers. The
    caller closes ``backend`` and ``keys``. To be called on the main thread.

    Raises RequestInvalid when an address cannot be used, MissingExtra for metrics without prometheus-client.
    """
    listener = listen(host, port)
    address = _address_of(listener)
    counted = ""

    def ready() -> None:
        say(f"voicelab: {backend.capabilities.name} is ready at {address}")
        if backend.capabilities.notice:
            say(f"voicelab: {backend.capabilities.notice}")
        if counted:
            say(f"voicelab: metrics are at {counted}")
        if openai:
            say(f"voicelab: OpenAI's clients call it with base_url={address}/v1")
        if not keys.usable():
            say("voicelab: no key can call it yet; make one with: voicelab keys create NAME")
        if not ip_address(listener.getsockname()[0]).is_loopback:
            say("voicelab: this address can be reached from other machines, and keys travel unencrypted")

    limits = limits or Limits()
    app = create_app(backend, keys, limits=limits, openai=openai)
    server = ServiceServer(app, limits, ready, grace_seconds)
    with listener, _quiet_signals(), ExitStack() as stack:
        if metrics is not None:
            counted, app.observe = stack.enter_context(serving_metrics(metrics, app.queue, LOOPBACK))
        # What is there now stays: looking through it for garbage would stop the event loop for tens of milliseconds.
        gc.freeze()
        server.run(sockets=[listener])


@contextmanager
def running(
    backend: Backend,
    *,
    keys: KeyStore,
    host: str = LOOPBACK,
    port: int = 0,
    limits: Limits | None = None,
    openai: bool = False,
    grace_seconds: int = 5,
) -> Iterator[str]:
    """Serve in a thread for the length of a ``with`` block, which gets the base address.

    Raises RequestInvalid when the address cannot be used, EngineError when the service does not start.
    """
    limits = limits or Limits()
    app = create_app(backend, keys, limits=limits, openai=openai)
    listener = listen(host, port)
    with in_thread(lambda ready: ServiceServer(app, limits, ready, grace_seconds), listener, "voicelab-service") as url:
        yield url


@contextmanager
def in_thread(make: Callable[[Callable[[], object]], ReadyServer], listener: socket.socket, name: str) -> Iterator[str]:
    """Run a server in a thread for the length of a ``with`` block, which gets its address.

    ``make`` is given what the server is to call when it is ready. Raises EngineError when it does not start. The
    listening socket is closed at the end.
    """
    started = threading.Event()
    server = make(started.set)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, name=name, daemon=True)
    with listener:
        thread.start()
        try:
            if not started.wait(_START_SECONDS):
                raise EngineError("the service did not start")
            yield _address_of(listener)
        finally:
            server.should_exit = True
            thread.join()


@contextmanager
def _quiet_signals() -> Iterator[None]:
    # uvicorn raises the signal again when it is done; asked to stop, we have stopped: that is success.
    before = {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens there; port 0 takes any free one. Raises RequestInvalid when it cannot."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # The protocol is named because asyncio turns Nagle's algorithm off only where it is, and accepted
    # sockets take it from this one; without that, each small answer waits 40 ms for an acknowledgement.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        if os.name == "posix":
            # Elsewhere this would let a second service take the same port.
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER)
        listener.bind((host, port))
        listener.listen(_BACKLOG)
    except (OSError, OverflowError, UnicodeError) as error:
        listener.close()
        message = f"cannot listen at {host} port {port}: {error}; another port, or 0 for a free one, may do"
        raise RequestInvalid.of("address", message) from error
    return listener


def _address_of(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


# Longer than clients keep an idle connection, so that it is they who close it: a request sent while
# the server closes is lost.
_KEEP_ALIVE_SECONDS = 75


class _Connection(H11Protocol):
    """A connection with deadlines."""

    head_seconds: float  # for the head of a request to arrive, or what is left of a body after its answer
    linger_seconds: float  # that the end of a broken-off answer waits for its reader

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
        # uvicorn lets its own go on after a reset, and with it all of the connection, for 75 s.
        self._unset_keepalive_if_required()
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
            about = {"content-type": "application/json", "content-length": str(len(body)), "connection": "close"}
            head = h11.Response(status_code=status, headers=list(about.items()))
            for event in (head, h11.Data(data=body), h11.EndOfMessage()):
                self.transport.write(self.conn.send(event) or b"")
        cycle: RequestResponseCycle | None = self.cycle  # None before the first request, whatever uvicorn declares
        if cycle is not None and not cycle.response_complete:
            # The application that works on this request learns that its caller is gone.
            cycle.disconnected = True
            cycle.message_event.set()
        self.transport.close()


def connections(limits: Limits) -> type[H11Protocol]:
    """Return the protocol of connections with the deadlines of these limits, for uvicorn's ``http``."""
    deadlines = {"head_seconds": limits.head_seconds, "linger_seconds": limits.linger_seconds}
    return type("Connection", (_Connection,), deadlines)


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
        config = uvicorn.Config(
            app,
            http=connections(limits),
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
