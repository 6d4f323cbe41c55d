"""Run the service in the foreground until a signal, or in a thread.

This is the only module that uses undocumented parts of uvicorn. uvicorn has no time limits for receiving request headers,
for receiving the rest of a body after the response, or for sending the rest of a response on a closing connection. It
answers malformed HTTP with text instead of ``{status, message}``, and it stops listening before its requests have ended. No
setting changes this, and other servers have the same gaps. Therefore this module subclasses uvicorn's protocol and server.
``.ci/next`` tests this package with uvicorn's next version.
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
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from ipaddress import ip_address
from types import FrameType
from typing import Any

import h11
import uvicorn
from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from voicelab.backend import Backend
from voicelab.errors import Cancelled, EngineError, RequestInvalid
from voicelab.service.app import ServiceMiddleware, create_app
from voicelab.service.keys import KeyStore
from voicelab.service.limits import Limits
from voicelab.service.record import serving_metrics

LOOPBACK = "127.0.0.1"
"""Default address, which accepts connections from this machine only."""
PORT = 8707

_LOG = logging.getLogger("voicelab.service")

_START_TIMEOUT_S = 30.0
_BACKLOG = 1024
# With the kernel's default buffer size, minutes of audio that the caller has not read would count as delivered.
_SEND_BUFFER_BYTES = 64 * 1024
_MAX_DESCRIPTORS = 65_536
_OPEN_MAX = 10_240
# Descriptors kept free for databases, logs, and the pipes of sandboxed decoders.
_RESERVED_DESCRIPTORS = 64
_REFUSALS_LOGGED_EVERY_S = 60.0
_OVERLOADED = json.dumps({"status": 503, "message": "The service has too many connections"}).encode()
_OVERLOADED = (
    b"HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\nretry-after: 5\r\nconnection: close\r\n"
    b"content-length: %d\r\n\r\n%s" % (len(_OVERLOADED), _OVERLOADED)
)


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
    """Serve until SIGTERM or Ctrl-C, then finish active requests and answer new ones with 503.

    A second signal ends the service at once and truncates active responses. Must run in the main thread.

    Args:
        backend: backend to serve; the caller closes it.
        host: address to bind.
        port: port; 0 selects a free port.
        keys: API keys; the caller closes the store.
        limits: limits of the service; defaults if None.
        openai: also serve OpenAI's speech API.
        metrics: port of 127.0.0.1 at which Prometheus reads metrics; 0 selects a free port. None for no metrics.
        say: callback for messages to the operator, such as the address when the service is ready.
        grace_seconds: time limit for active requests after the signal.

    Raises RequestInvalid if an address is not available, MissingExtra if metrics are requested and prometheus-client is not
    installed.
    """
    raise_descriptor_limit()
    listener = listen(host, port)
    address = _address_of(listener)
    metrics_address = ""

    def ready() -> None:
        say(f"voicelab: {backend.capabilities.name} is ready at {address}")
        say(f"voicelab: documentation: {address}/docs")
        if backend.capabilities.notice:
            say(f"voicelab: {backend.capabilities.notice}")
        if metrics_address:
            say(f"voicelab: metrics are at {metrics_address}")
        if openai:
            say(f"voicelab: for OpenAI's clients, base_url={address}/v1")
        if not keys.usable():
            say("voicelab: no active API key; create one with: voicelab keys create NAME")
        if not ip_address(listener.getsockname()[0]).is_loopback:
            say("voicelab: other machines can reach this address, and API keys are sent to it unencrypted")

    limits = limits or Limits()
    app = create_app(backend, keys, limits=limits, openai=openai)
    server = ServiceServer(app, limits, ready, grace_seconds)
    with listener, _quiet_signals(), ExitStack() as stack:
        if metrics is not None:
            metrics_address, app.observe = stack.enter_context(serving_metrics(metrics, app.queue, LOOPBACK))
        # Collecting the objects created at startup would block the event loop for tens of milliseconds.
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
    """Serve in a thread during a ``with`` block; yield the base URL.

    Raises RequestInvalid if the address is not available, EngineError if the service does not start.
    """
    limits = limits or Limits()
    app = create_app(backend, keys, limits=limits, openai=openai)
    listener = listen(host, port)
    with in_thread(lambda ready: ServiceServer(app, limits, ready, grace_seconds), listener, "voicelab-service") as url:
        yield url


@contextmanager
def in_thread(make: Callable[[Callable[[], object]], ReadyServer], listener: socket.socket, name: str) -> Iterator[str]:
    """Run a server in a thread during a ``with`` block; yield its URL. The listening socket is closed at the end.

    ``make`` creates the server; its argument is the callback that the server calls when it has started. Raises EngineError
    if the server does not start.
    """
    started = threading.Event()
    server = make(started.set)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, name=name, daemon=True)
    with listener:
        thread.start()
        try:
            if not started.wait(_START_TIMEOUT_S):
                raise EngineError("the service did not start")
            yield _address_of(listener)
        finally:
            server.should_exit = True
            thread.join()


@contextmanager
def _quiet_signals() -> Iterator[None]:
    # After shutdown, uvicorn raises the signal again, and this would end the program with an error status.
    before = {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def raise_descriptor_limit() -> None:
    """Raise the limit of open files and connections of this process to 65,536, or as far as the system permits."""
    if sys.platform != "win32":
        import resource

        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        limit = _MAX_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, _MAX_DESCRIPTORS)
        if soft != resource.RLIM_INFINITY and soft < limit:
            try:
                resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
            except (OSError, ValueError):  # macOS reports no hard limit and rejects more than OPEN_MAX
                resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, _OPEN_MAX), hard))


def _descriptor_limit() -> int:
    if sys.platform == "win32":
        return sys.maxsize
    import resource

    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return sys.maxsize if soft == resource.RLIM_INFINITY else soft


class _Listener(socket.socket):
    """Listening socket that rejects connections with 503 before the process runs out of descriptors.

    When no descriptor is left, asyncio tries to accept 1,024 connections every second and logs a traceback for each.
    """

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._limit = _descriptor_limit()
        self._rejected = 0
        self._logged_at = -math.inf

    def accept(self) -> tuple[socket.socket, Any]:
        connection, address = super().accept()
        # POSIX assigns the lowest free descriptor, so its number counts the open files of the whole process.
        if connection.fileno() < self._limit - min(_RESERVED_DESCRIPTORS, self._limit // 4):
            return connection, address
        with connection, suppress(OSError):
            connection.setblocking(False)
            connection.send(_OVERLOADED)
        self._rejected += 1
        if time.monotonic() - self._logged_at >= _REFUSALS_LOGGED_EVERY_S:
            message = "%d connections rejected with 503: this process may open %d files and connections (ulimit -n)"
            _LOG.warning(message, self._rejected, self._limit)
            self._rejected, self._logged_at = 0, time.monotonic()
        raise ConnectionAbortedError  # asyncio accepts the next one


def listen(host: str, port: int) -> socket.socket:
    """Open a listening socket; port 0 selects a free port. Raises RequestInvalid."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # With an explicit protocol, asyncio disables Nagle's algorithm, which would delay small responses by 40 ms.
    listener = _Listener(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        if os.name == "posix":
            # On Windows, this option would let a second service bind the same port.
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER_BYTES)
        listener.bind((host, port))
        listener.listen(_BACKLOG)
    except (OSError, OverflowError, UnicodeError) as error:
        listener.close()
        message = f"cannot listen on {host} port {port}: {error}; try another port, or 0 for a free one"
        raise RequestInvalid.of("address", message) from error
    return listener


def _address_of(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


# Longer than the time limit of clients, so that clients close idle connections. If the server closed one while a client
# sends a request on it, the request would be lost.
_KEEP_ALIVE_SECONDS = 75


class _Connection(H11Protocol):
    """HTTP connection with deadlines.

    ``head_seconds`` is the time limit for request headers, and for a body that is still arriving after the response;
    ``linger_seconds`` is the time limit for sending the rest of an aborted response.
    """

    head_seconds: float
    linger_seconds: float

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._inner: Any = self.app
        self.app = self._run_app
        self.access_log = False  # uvicorn's log would show keys in paths
        self._deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        super().connection_made(transport)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        self._unwatch()
        # uvicorn's own timer would keep a reset connection in memory for 75 s.
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
        """Answer malformed HTTP with an error in the format of the interface."""
        self._refuse(400, msg)

    async def _run_app(self, scope: Scope, receive: Receive, send: Send) -> None:
        cycle = self.cycle
        names = {name for name, _ in scope["headers"]}
        if {b"content-length", b"transfer-encoding"} <= names:
            # A proxy that uses the other header sees another end of the body, which permits request smuggling (RFC 9112,
            # section 6.1).
            self._refuse(400, "content-length and transfer-encoding must not both be sent")
            return
        try:
            await self._inner(scope, receive, send)
        except BaseException as error:
            if not cycle.response_complete:
                # Closing the connection would wait until the caller has read the buffered data.
                self.loop.call_later(self.linger_seconds, self.transport.abort)
            if not isinstance(error, Cancelled):
                raise
            # The caller reads too slowly. The request log reports this, and uvicorn would also log a traceback.
            cycle.disconnected = True
            self.transport.close()

    def _watch(self) -> None:
        """Set a deadline while the service waits for data from the caller; uvicorn's own timer covers idle connections."""
        rest_of_body = self.conn.our_state is h11.DONE and self.conn.their_state is h11.SEND_BODY
        receiving = self.conn.their_state is h11.IDLE or rest_of_body
        if not receiving or self.timeout_keep_alive_task is not None or self.transport.is_closing():
            self._unwatch()
        elif self._deadline is None:
            self._deadline = self.loop.call_later(self.head_seconds, self._time_out)

    def _unwatch(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _time_out(self) -> None:
        self._deadline = None
        if self.conn.their_state is h11.IDLE and self.conn.trailing_data[0]:
            self._refuse(408, f"The request headers did not arrive within {self.head_seconds:g} s")
        self.transport.close()
        self._abort_if_unread()

    def _abort_if_unread(self) -> None:
        # close() would wait until the caller has read the buffered data.
        if self.transport.get_write_buffer_size() > 0:
            self.transport.abort()

    def _refuse(self, status: int, message: str) -> None:
        if self.conn.our_state in {h11.IDLE, h11.SEND_RESPONSE}:
            body = json.dumps({"status": status, "message": message}).encode("ascii")
            headers = {"content-type": "application/json", "content-length": str(len(body)), "connection": "close"}
            response = h11.Response(status_code=status, headers=list(headers.items()))
            for event in (response, h11.Data(data=body), h11.EndOfMessage()):
                self.transport.write(self.conn.send(event) or b"")
        cycle: RequestResponseCycle | None = self.cycle  # None before the first request
        if cycle is not None and not cycle.response_complete:
            # Notify the application of the disconnection.
            cycle.disconnected = True
            cycle.message_event.set()
        self.transport.close()


def connections(limits: Limits) -> type[H11Protocol]:
    """Build the protocol class with the deadlines of ``limits``, for uvicorn's ``http``."""
    deadlines = {"head_seconds": limits.head_seconds, "linger_seconds": limits.linger_seconds}
    return type("Connection", (_Connection,), deadlines)


class ReadyServer(uvicorn.Server):
    """Uvicorn server that calls ``ready`` when it accepts connections."""

    def __init__(self, config: uvicorn.Config, ready: Callable[[], object]) -> None:
        super().__init__(config)
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start listening, then call ``ready``."""
        await super().startup(sockets)
        if self.started:
            self._ready()


class ServiceServer(ReadyServer):
    """Server that accepts connections during shutdown, and ends at once on a second signal."""

    def __init__(self, app: ServiceMiddleware, limits: Limits, ready: Callable[[], object], grace_seconds: int) -> None:
        config = uvicorn.Config(
            app,
            http=connections(limits),
            loop="asyncio",  # uvloop would not call the listener's accept()
            ws="none",
            lifespan="on",
            log_config=None,  # the program configures logging
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
        """Exit when the service is stopping and its requests have ended (called ten times a second)."""
        if self._stop_by is not None:
            remaining = self._stop_by - time.monotonic()
            if remaining <= 0 or not self._app.active:
                self.config.timeout_graceful_shutdown = max(0, math.ceil(remaining))
                self.should_exit = True
        return await super().on_tick(counter)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:  # noqa: ARG002 - as uvicorn has it
        """Start shutdown at the first signal; exit at the second."""
        if self._stop_by is not None:
            # From Python 3.12.1 on, even a forced exit waits for connections until this timeout.
            self.config.timeout_graceful_shutdown = 0
            self.should_exit = self.force_exit = True
            return
        # uvicorn would stop listening now. The service continues to listen, because status 503 tells callers to retry, and a
        # refused connection does not.
        self._stop_by = time.monotonic() + self._grace
        self._app.stop()
