"""A scripted server: what a service might do that ours does not."""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Self

import pytest
from anyio.from_thread import BlockingPortal, start_blocking_portal

from tests.interface.foreign import record
from tests.kept import cache, tones  # noqa: F401 - fixtures
from tests.served import accepting, reset_when_closed
from tests.service.conftest import closers, start  # noqa: F401 - fixtures of ours too
from voicelab.backends.caller import RetryPolicy
from voicelab.backends.service import AsyncServiceBackend, AsyncSpeechStream, ServiceBackend
from voicelab.call import Call
from voicelab.capabilities import Capabilities
from voicelab.schema import TTSRequest, VoiceCreate

REQUEST = TTSRequest(text="hello", format="pcm", sample_rate=24000)
QUICK = RetryPolicy(attempts=3, base_s=0.001)
CREATE = VoiceCreate(title="Ada", voices=(b"RIFF",), visibility="private")
RECORD = json.dumps(record(_id="v1", visibility="private")).encode()

Act = Callable[[socket.socket], None]


@dataclass
class Script:
    """Answers ``/health`` with 404 and each other request with the next act; keeps what was asked."""

    acts: list[Act] = field(default_factory=list)
    asked: list[bytes] = field(default_factory=list)
    probes: list[bytes] = field(default_factory=list)
    connections: int = 0
    url: str = ""
    health: bytes = b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"

    def serve(self, connection: socket.socket) -> None:
        self.connections += 1
        while connection.fileno() >= 0 and (request := message(connection)) is not None:
            if request.startswith(b"GET /health"):
                self.probes.append(request)
                connection.sendall(self.health)
                continue
            self.asked.append(request)
            act = self.acts.pop(0) if self.acts else hang_up
            act(connection)


def message(connection: socket.socket) -> bytes | None:
    """Read a request whose length is in its head; None when there is none, or not all of it."""
    got, length = b"", None
    while length is None or len(got) < length:
        try:
            part = connection.recv(65536)
        except OSError:
            return None
        if not part:
            return None
        got += part
        if length is None and b"\r\n\r\n" in got:
            head = got.index(b"\r\n\r\n") + 4
            told = re.search(rb"(?i)\r\ncontent-length: *(\d+)", got[:head])
            length = head + (int(told[1]) if told else 0)
    return got


def reply(status: int, body: bytes = b"", **headers: str) -> Act:
    lines = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
    message = f"HTTP/1.1 {status} X\r\nContent-Length: {len(body)}\r\n{lines}\r\n".encode() + body
    return lambda connection: connection.sendall(message)


def says(answer: bytes, then: Act | None = None) -> Act:
    """Send some bytes, and hang up or do what is given."""

    def act(connection: socket.socket) -> None:
        connection.sendall(answer)
        (then or hang_up)(connection)

    return act


def silent(connection: socket.socket) -> None:
    connection.recv(1)  # until the client has had enough


def chunked(*chunks: bytes, end: bool = True, kind: str = "audio/pcm") -> Act:
    """Send audio in chunks; without ``end`` the connection closes in the middle of the body."""
    head = f"HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nTransfer-Encoding: chunked\r\n\r\n".encode()
    body = b"".join(b"%x\r\n%b\r\n" % (len(chunk), chunk) for chunk in chunks)
    return (lambda connection: connection.sendall(head + body + b"0\r\n\r\n")) if end else says(head + body)


def hang_up(connection: socket.socket) -> None:
    connection.shutdown(socket.SHUT_RDWR)
    connection.close()


def reset(connection: socket.socket) -> None:
    reset_when_closed(connection)
    connection.close()


@pytest.fixture
def script() -> Iterator[Script]:
    made = Script()
    with accepting(lambda connection: made.serve(connection)) as made.url:  # noqa: PLW0108 - tests put in another
        yield made


class OnLoop:
    """AsyncServiceBackend with the face of ServiceBackend: what it awaits, a loop in another thread runs."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        with ExitStack() as stack:
            self._portal = stack.enter_context(start_blocking_portal())
            self._backend = AsyncServiceBackend(*arguments, **options)
            stack.callback(self.close)
            self._stack = stack.pop_all()
        self.base_url = self._backend.base_url

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def __repr__(self) -> str:
        return repr(self._backend)

    def close(self) -> None:
        self._portal.call(self._backend.aclose)

    @property
    def capabilities(self) -> Capabilities:
        return self._portal.call(self._backend.capabilities)

    def synthesize(self, call: Call) -> StreamOnLoop:
        return StreamOnLoop(self._portal, self._portal.call(self._backend.synthesize, call))

    def __getattr__(self, name: str) -> Any:
        return partial(self._portal.call, getattr(self._backend, name))


@dataclass
class StreamOnLoop:
    portal: BlockingPortal
    stream: AsyncSpeechStream

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        try:
            got: bytes = self.portal.call(anext, self.stream)
            return got
        except StopAsyncIteration:
            raise StopIteration from None

    def close(self) -> None:
        self.portal.call(self.stream.aclose)

    def clip(self) -> Any:
        return self.portal.call(self.stream.clip)


WAYS: dict[str, Callable[..., Any]] = {"blocking": ServiceBackend, "event loop": OnLoop}
"""The two ways to call a service; what holds for one holds for the other."""


@pytest.fixture(params=WAYS)
def connect(request: pytest.FixtureRequest) -> Callable[..., Any]:
    return WAYS[request.param]
