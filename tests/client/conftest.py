"""A scripted server: what a service might do that ours does not."""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass, field
from typing import Any, Self

import pytest

from tests.service.conftest import closers, start  # noqa: F401 - fixtures of ours too
from voicelab.call import Call
from voicelab.capabilities import Capabilities
from voicelab.client import AsyncServiceBackend, AsyncSpeechStream, RetryPolicy, ServiceBackend
from voicelab.schema import TTSRequest, VoiceCreate

REQUEST = TTSRequest(text="hello", format="pcm", sample_rate=24000)
QUICK = RetryPolicy(attempts=3, base_s=0.001)
CREATE = VoiceCreate(title="Ada", voices=(b"RIFF",), visibility="private")
RECORD = (
    b'{"_id":"v1","type":"tts","title":"Ada","state":"trained","created_at":"2026-01-01T00:00:00Z",'
    b'"updated_at":"2026-01-01T00:00:00Z","visibility":"private","author":{"_id":"a"}}'
)

Act = Callable[[socket.socket], None]


@dataclass
class Script:
    """Answers ``/health`` with 404 and each other request with the next act; keeps what was asked."""

    acts: list[Act] = field(default_factory=list)
    asked: list[bytes] = field(default_factory=list)
    probes: int = 0
    url: str = ""
    health: bytes = b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"

    def serve(self, connection: socket.socket) -> None:
        with connection:
            while True:
                request = _request(connection)
                if request is None:
                    return
                if request.startswith(b"GET /health"):
                    self.probes += 1
                    connection.sendall(self.health)
                    continue
                self.asked.append(request)
                act = self.acts.pop(0) if self.acts else hang_up
                act(connection)
                if connection.fileno() < 0:
                    return


def _request(connection: socket.socket) -> bytes | None:
    got = b""
    while b"\r\n\r\n" not in got:
        try:
            part = connection.recv(65536)
        except OSError:
            return None
        if not part:
            return None
        got += part
    head, _, body = got.partition(b"\r\n\r\n")
    for line in head.split(b"\r\n"):
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            while len(body) < int(value):
                body += connection.recv(65536)
    return head + b"\r\n\r\n" + body


def reply(status: int, body: bytes = b"", **headers: str) -> Act:
    lines = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
    message = f"HTTP/1.1 {status} X\r\nContent-Length: {len(body)}\r\n{lines}\r\n".encode() + body
    return lambda connection: connection.sendall(message)


def chunked(*chunks: bytes, end: bool = True, kind: str = "audio/pcm") -> Act:
    """Send audio in chunks; without ``end`` the connection closes in the middle of the body."""

    def act(connection: socket.socket) -> None:
        connection.sendall(f"HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nTransfer-Encoding: chunked\r\n\r\n".encode())
        for chunk in chunks:
            connection.sendall(f"{len(chunk):x}\r\n".encode() + chunk + b"\r\n")
        if end:
            connection.sendall(b"0\r\n\r\n")
        else:
            hang_up(connection)

    return act


def hang_up(connection: socket.socket) -> None:
    connection.shutdown(socket.SHUT_RDWR)
    connection.close()


def reset(connection: socket.socket) -> None:
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


@pytest.fixture
def script() -> Iterator[Script]:
    made = Script()
    listener = socket.create_server(("127.0.0.1", 0))
    made.url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    threads: list[threading.Thread] = []

    def accept() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            thread = threading.Thread(target=made.serve, args=(connection,), daemon=True)
            thread.start()
            threads.append(thread)

    accepting = threading.Thread(target=accept, daemon=True)
    accepting.start()
    yield made
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    accepting.join(5)
    for thread in threads:
        thread.join(5)


class OnLoop:
    """AsyncServiceBackend with the face of ServiceBackend: what it awaits, a loop in another thread runs."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        try:
            self._backend = AsyncServiceBackend(*arguments, **options)
        except BaseException:
            self._stop()
            raise
        self.base_url = self._backend.base_url

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
        self._stop()

    def __repr__(self) -> str:
        return repr(self._backend)

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(60)

    def _stop(self) -> None:
        if self._loop.is_running():
            self.run(self._loop.shutdown_asyncgens())
            self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    def close(self) -> None:
        self.run(self._backend.aclose())

    @property
    def capabilities(self) -> Capabilities:
        return self.run(self._backend.capabilities())  # type: ignore[no-any-return]

    def synthesize(self, call: Call) -> StreamOnLoop:
        return StreamOnLoop(self, self.run(self._backend.synthesize(call)))

    def create_voice(self, request: VoiceCreate) -> Any:
        return self.run(self._backend.create_voice(request))

    def get_voice(self, id: str) -> Any:
        return self.run(self._backend.get_voice(id))


class StreamOnLoop:
    def __init__(self, owner: OnLoop, stream: AsyncSpeechStream) -> None:
        self._owner = owner
        self.stream = stream

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> bytes:
        async def chunk() -> bytes | None:
            return await anext(self.stream, None)

        got: bytes | None = self._owner.run(chunk())
        if got is None:
            raise StopIteration
        return got

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)

    def close(self) -> None:
        self._owner.run(self.stream.aclose())

    def clip(self) -> Any:
        return self._owner.run(self.stream.clip())


WAYS: dict[str, Callable[..., Any]] = {"blocking": ServiceBackend, "event loop": OnLoop}
"""The two ways to call a service; what holds for one holds for the other."""


@pytest.fixture(params=WAYS)
def connect(request: pytest.FixtureRequest) -> Callable[..., Any]:
    return WAYS[request.param]
