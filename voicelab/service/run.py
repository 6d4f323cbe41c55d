"""Running the service: in the foreground until a signal ends it, or beside other work in one program."""

from __future__ import annotations

import logging
import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from ipaddress import ip_address

from voicelab.backend import Backend
from voicelab.errors import EngineError, RequestInvalid
from voicelab.service.app import create_app
from voicelab.service.keys import KeyStore
from voicelab.service.requests import Limits
from voicelab.service.server import ReadyServer, ServiceServer

__all__ = ["LOOPBACK", "PORT", "in_thread", "listen", "running", "serve"]

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
    address = _address_of(listener)

    def ready() -> None:
        say(f"voicelab: {backend.capabilities.name} is ready at {address}")
        if backend.capabilities.notice:
            say(f"voicelab: {backend.capabilities.notice}")
        if openai:
            say(f"voicelab: OpenAI's clients call it with base_url={address}/v1")
        if not keys.usable():
            say("voicelab: no key can call it yet; make one with: voicelab keys create NAME")
        if not _is_loopback(host):
            say("voicelab: this address can be reached from other machines, and keys travel unencrypted")

    limits = limits or Limits()
    server = ServiceServer(create_app(backend, keys, limits=limits, openai=openai), limits, ready, grace_seconds)
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
        raise RequestInvalid.of(
            "address", f"cannot listen at {host} port {port}: {error}; another port, or 0 for a free one, may do"
        ) from error
    return listener


def _address_of(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
