"""What tests of servers share: a service that runs, raw calls over its socket, and waiting for what happens."""

from __future__ import annotations

import asyncio
import functools
import json
import re
import socket
import sqlite3
import ssl
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, ParamSpec

import httpx

from tests.engine.tiny import make_codec, make_lm, speaker
from tests.interface import wire
from tests.tones import ToneBackend
from tests.tones import until as until  # noqa: PLC0414 (tests of servers have it from here)
from voicelab.backend import Backend
from voicelab.call import VoicePreset
from voicelab.engine.local import LocalBackend
from voicelab.engine.pointer.checkpoint import save
from voicelab.errors import EngineError
from voicelab.service.keys import KeyStore
from voicelab.service.limits import Limits
from voicelab.service.run import running
from voicelab.voices.store import VoiceStore

P = ParamSpec("P")

VOICELAB: Final = str(Path(sys.executable).with_name("voicelab"))

NOTE_BYTES: Final = 2400
"""Of a note of ToneBackend as pcm of 24 kHz, which ``call`` asks for."""
PLAIN: Final[dict[str, Any]] = {"trust_env": False, "verify": ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)}
"""For httpx: no proxy, and no certificates, which take 60 ms to load."""


async def until_async(true: Callable[[], object], seconds: float = 10) -> None:
    """Wait on the event loop for something to become true."""
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "it never came"
        await asyncio.sleep(0.001)


def on_loop(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """Run a test on an event loop of its own, for half a minute at most."""

    @functools.wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        asyncio.run(asyncio.wait_for(test(*args, **kwargs), 30))

    return run


@dataclass(frozen=True)
class Service:
    """A service that runs, a key to it, and a client with the key."""

    url: str
    secret: str
    backend: Any
    keys: KeyStore
    http: httpx.Client

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    @property
    def credit(self) -> int:
        left = self.keys.list()[0].credit
        assert left is not None
        return left

    def speak(self, text: str = "a", **fields: object) -> httpx.Response:
        return self.http.post("/v1/tts", json={"text": text, **fields})

    @contextmanager
    def connect(self) -> Iterator[socket.socket]:
        with socket.create_connection(("127.0.0.1", self.port), timeout=10) as raw:
            yield raw


def fields(answer: httpx.Response) -> list[str]:
    """Check that an answer is a 422 to the letter of part 7, and return the fields that it names."""
    assert answer.status_code == 422, answer.text
    assert answer.headers["content-type"] == "application/json"
    named = wire.fields(wire.Answer(answer.status_code, dict(answer.headers), answer.content))
    return [".".join(loc) for loc in named]


def message(answer: httpx.Response, status: int) -> str:
    """Check that an answer is ``{status, message}``, and return the message."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/json"
    assert answer.json() == {"status": status, "message": answer.json()["message"]}
    return str(answer.json()["message"])


@contextmanager
def serving(
    folder: Path,
    backend: Backend | None = None,
    *,
    credit: int | None = None,
    busy_s: float = 2.0,
    openai: bool = False,
    **limits: float,
) -> Iterator[Service]:
    backend = backend or ToneBackend()
    with (
        KeyStore(folder / "keys.sqlite3", busy_s=busy_s) as keys,
        running(backend, keys=keys, limits=Limits(**limits), openai=openai) as url,  # type: ignore[arg-type]
    ):
        services = len(keys.list())
        secret = keys.create(f"test {services}" if services else "test", credit=credit).secret
        headers = {"authorization": f"Bearer {secret}"}
        with httpx.Client(base_url=url, headers=headers, timeout=60, **PLAIN) as http:
            yield Service(url, secret, backend, keys, http)


@contextmanager
def tiny_engine(folder: Path) -> Iterator[LocalBackend]:
    """Open the engine with weights drawn at random, which keeps voices in ``folder / "voices"``."""
    weights = folder / "tiny.safetensors"
    save(weights, make_codec(), make_lm(), {VoicePreset("ada", "Ada"): speaker()}, {})
    with VoiceStore(folder / "voices", exclusive=True) as store:
        engine = LocalBackend("cpu", weights=weights, voices=store)
        try:
            yield engine
        finally:
            engine.close()


def head(
    service: Service, length: object, path: str = "/v1/tts", secret: str | None = None, kind: str | None = None
) -> bytes:
    """Return the head of a request, of JSON for speech and else of MessagePack."""
    kind = kind or ("application/json" if path == "/v1/tts" else "application/msgpack")
    return (
        f"POST {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {secret or service.secret}\r\n"
        f"Content-Type: {kind}\r\nContent-Length: {length}\r\n\r\n"
    ).encode()


def call(
    service: Service,
    text: str = "hello",
    secret: str | None = None,
    rate: int | None = 24_000,
    *,
    kind: str = "pcm",
    small: bool = False,
) -> socket.socket:
    """Send a request for pcm of 24 kHz (2400 bytes a character) and return the raw connection.

    With ``small`` the connection holds little that was not read yet.
    """
    body = json.dumps({"text": text, "format": kind, "sample_rate": rate}).encode()
    raw = socket.socket()
    raw.settimeout(20)
    if small:
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    raw.connect(("127.0.0.1", service.port))
    raw.sendall(head(service, len(body), secret=secret) + body)
    return raw


def reset_when_closed(raw: socket.socket) -> None:
    """Let a connection end with a reset, not politely."""
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


@contextmanager
def accepting(serve: Callable[[socket.socket], object]) -> Iterator[str]:
    """Listen on loopback; every connection is served in a thread of its own, and closed after it."""
    threads: list[threading.Thread] = []

    def one(connection: socket.socket) -> None:
        with connection:
            serve(connection)

    def accept() -> None:
        with suppress(OSError):  # when the listener is shut down
            while True:
                threads.append(threading.Thread(target=one, args=listener.accept()[:1], daemon=True))
                threads[-1].start()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        accepter = threading.Thread(target=accept, daemon=True)
        accepter.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            for thread in (accepter, *threads):
                thread.join(5)


@contextmanager
def locked(database: Path) -> Iterator[None]:
    """Hold a database as another program may: nobody can read it."""
    with closing(sqlite3.connect(database, isolation_level=None)) as holder:
        holder.execute("BEGIN EXCLUSIVE")
        yield
        holder.execute("ROLLBACK")


def read(raw: socket.socket, size: int | None = None) -> bytes:
    """Read at least ``size`` bytes, or until the service closes."""
    got = b""
    while size is None or len(got) < size:
        part = raw.recv(65536)
        if not part:
            break
        got += part
    return got


@contextmanager
def program(*arguments: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Run a command of voicelab that serves, and give the program and its address; it is killed in the end."""
    with subprocess.Popen([VOICELAB, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            addresses = (re.search(r"http://127\.0\.0\.1:\d+", line) for line in process.stderr)
            yield process, next(match[0] for match in addresses if match)
        finally:
            process.kill()


def breaks(
    note: int | None = None, error: Callable[[], BaseException] = lambda: EngineError("broke")
) -> Callable[[int], None]:
    """Return a step that fails at a note, or at every one."""

    def step(number: int) -> None:
        if note in {None, number}:
            raise error()

    return step


class Held:
    """A step that lets only so many notes out, each after some seconds."""

    def __init__(self, notes: int, seconds: float = 0.0) -> None:
        self.notes = notes
        self.seconds = seconds
        self.said = 0
        self._go = threading.Event()

    def __call__(self, number: int) -> None:
        time.sleep(self.seconds)
        if number >= self.notes:
            assert self._go.wait(20)
        self.said += 1

    def release(self) -> None:
        self._go.set()
