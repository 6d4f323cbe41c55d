"""Running the service: in the foreground until a signal ends it, or beside other work in one program."""

from __future__ import annotations

import logging
import math
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from ipaddress import ip_address
from types import FrameType

import uvicorn

from voicelab.backend import Backend
from voicelab.errors import EngineError, RequestInvalid
from voicelab.service.app import Limits, create_app
from voicelab.service.connection import connections
from voicelab.service.edge import Edge
from voicelab.service.keys import KeyStore

__all__ = ["LOOPBACK", "PORT", "address_of", "listen", "running", "serve"]

LOOPBACK = "127.0.0.1"
"""Where the service listens unless it is told otherwise: nobody but this machine can call it."""
PORT = 8707

_LOG = logging.getLogger("voicelab.service")

# Longer than clients keep an idle connection, so that it is they who close it: a request sent while
# the server closes is lost.
_KEEP_ALIVE_SECONDS = 75
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
    say: Callable[[str], object] = _LOG.info,
    grace_seconds: int = 30,
) -> None:
    """Serve until SIGTERM or Ctrl-C, then let running requests finish for at most ``grace_seconds``.

    New ones are answered 503 meanwhile. A second signal ends at once; audio then breaks off and its callers
    know it. ``port`` 0 takes any free one. ``say`` is given each line for the operator, the one with the
    address once the service answers. The caller closes ``backend`` and ``keys``. To be called on the main
    thread.

    Raises RequestInvalid when the address cannot be used.
    """
    listener = listen(host, port)
    address = address_of(listener)

    def ready() -> None:
        say(f"voicelab: {backend.capabilities.name} is ready at {address}")
        if not keys.usable():
            say("voicelab: no key can call it yet; make one with: voicelab keys create NAME")
        if not _is_loopback(host):
            say("voicelab: this address can be reached from other machines, and keys travel unencrypted")

    limits = limits or Limits()
    server = _Server(create_app(backend, keys, limits=limits), limits, ready, grace_seconds)
    with listener, _quiet_signals():
        server.run(sockets=[listener])


@contextmanager
def running(
    backend: Backend,
    *,
    keys: KeyStore,
    host: str = LOOPBACK,
    port: int = 0,
    limits: Limits | None = None,
    grace_seconds: int = 5,
) -> Iterator[str]:
    """Serve in a thread for the length of a ``with`` block, which gets the base address.

    Raises RequestInvalid when the address cannot be used, EngineError when the service does not start.
    """
    listener = listen(host, port)
    started = threading.Event()
    limits = limits or Limits()
    server = _Server(create_app(backend, keys, limits=limits), limits, started.set, grace_seconds)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, name="voicelab-service", daemon=True)
    with listener:
        thread.start()
        try:
            if not started.wait(_START_SECONDS):
                raise EngineError("the service did not start")
            yield address_of(listener)
        finally:
            server.should_exit = True
            thread.join()


class _Server(uvicorn.Server):
    """uvicorn, saying when it is ready, listening on while it stops, and giving in to any second signal."""

    def __init__(self, app: Edge, limits: Limits, ready: Callable[[], object], grace_seconds: int) -> None:
        config = uvicorn.Config(
            app,
            http=connections(head_seconds=limits.head_seconds, linger_seconds=limits.linger_seconds),
            ws="none",
            lifespan="on",
            log_config=None,  # logging belongs to the program; we only write to it
            access_log=False,
            server_header=False,
            timeout_keep_alive=_KEEP_ALIVE_SECONDS,
            timeout_graceful_shutdown=grace_seconds,
        )
        super().__init__(config)
        self._edge = app
        self._ready = ready
        self._grace = grace_seconds
        self._stop_by: float | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._ready()

    async def on_tick(self, counter: int) -> bool:
        if self._stop_by is not None:
            left = self._stop_by - time.monotonic()
            if left <= 0 or not self._edge.inside:
                self.config.timeout_graceful_shutdown = max(0, math.ceil(left))
                self.should_exit = True
        return await super().on_tick(counter)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:  # noqa: ARG002 - as uvicorn has it
        if self._stop_by is not None:
            # From Python 3.12.1 on, a server that is forced to end still waits for its connections, for this long.
            self.config.timeout_graceful_shutdown = 0
            self.should_exit = self.force_exit = True
            return
        # uvicorn would stop listening now; a caller who is refused cannot know that it should come back.
        self._stop_by = time.monotonic() + self._grace
        self._edge.stop()


@contextmanager
def _quiet_signals() -> Iterator[None]:
    # uvicorn raises the signal again when it is done; asked to stop, we have stopped: that is success.
    before = {number: signal.signal(number, _ignore) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _ignore(_: int, __: FrameType | None) -> None:
    return


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
        raise RequestInvalid.of(
            "address", f"cannot listen at {host} port {port}: {error}; another port, or 0 for a free one, may do"
        ) from error
    return listener


def address_of(listener: socket.socket) -> str:
    """Return the address at which a listening socket answers."""
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
