"""What tests of servers share: a service that runs, raw calls over its socket, and waiting for what happens."""

from __future__ import annotations

import asyncio
import functools
import socket
import ssl
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, ParamSpec

import httpx

from tests.engine.tiny import make_codec, make_lm, speaker
from tests.tones import ToneBackend
from tests.tones import until as until  # noqa: PLC0414 (tests of servers have it from here)
from voicelab.backend import Backend
from voicelab.call import VoicePreset
from voicelab.engine.local import LocalBackend
from voicelab.engine.pointer.checkpoint import save
from voicelab.service.keys import KeyStore
from voicelab.service.limits import Limits
from voicelab.service.run import running
from voicelab.voices.store import VoiceStore

P = ParamSpec("P")

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
    items = answer.json()
    assert isinstance(items, list)
    assert items
    for item in items:
        assert {"loc", "type", "msg"} <= set(item) <= {"loc", "type", "msg", "ctx", "in"}
        assert all(isinstance(part, str) for part in item["loc"])
        assert isinstance(item["type"], str)
        assert isinstance(item["msg"], str)
        assert isinstance(item.get("ctx", ""), str)
        assert item.get("in", "body") in {"path", "query", "header", "cookie", "body"}
    return [".".join(item["loc"]) for item in items]


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
        secret = keys.create("test", credit=credit).secret
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


def call(service: Service, text: str = "hello", secret: str | None = None, rate: int = 24_000) -> socket.socket:
    """Send a request for pcm of 24 kHz (2400 bytes a character) and return the raw connection."""
    body = f'{{"text": "{text}", "format": "pcm", "sample_rate": {rate}}}'.encode()
    raw = socket.create_connection(("127.0.0.1", service.port), timeout=20)
    raw.sendall(head(service, len(body), secret=secret) + body)
    return raw


def read(raw: socket.socket, size: int | None = None) -> bytes:
    """Read at least ``size`` bytes, or until the service closes."""
    got = b""
    while size is None or len(got) < size:
        part = raw.recv(65536)
        if not part:
            break
        got += part
    return got


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
