"""The engine behind the service: a caller that leaves frees its place in the batch, and disturbs nobody."""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.engine.tiny import make_codec, make_lm, speaker
from voicelab.backend import VoicePreset
from voicelab.client import ServiceBackend
from voicelab.engine.checkpoint import save
from voicelab.engine.local import LocalBackend
from voicelab.errors import Cancelled
from voicelab.schema import TTSRequest
from voicelab.service.keys import KeyStore
from voicelab.service.run import running

REQUEST = TTSRequest(text="The birch canoe slid on the smooth planks.", format="pcm", sample_rate=8000)
LONG = "Glue the sheet to the dark blue background. " * 100


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[LocalBackend]:
    weights = tmp_path / "tiny.safetensors"
    save(weights, make_codec(), make_lm(), {VoicePreset("ada", "Ada"): speaker()}, {})
    made = LocalBackend(device="cpu", weights=weights)
    yield made
    made.close()


def _idle(engine: LocalBackend) -> None:
    end = time.monotonic() + 20
    while engine._scheduler.load != (0, 0):
        assert time.monotonic() < end, engine._scheduler.load
        time.sleep(0.01)


def _leave_early(url: str, secret: str, after: int) -> None:
    host, _, port = url.removeprefix("http://").partition(":")
    body = f'{{"text": "{LONG}", "format": "pcm"}}'
    with socket.create_connection((host, int(port)), timeout=20) as raw:
        raw.sendall(
            f"POST /v1/tts HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {secret}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode()
        )
        got = 0
        while got < after:
            got += len(raw.recv(65536))
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def test_callers_that_leave_free_their_places_and_change_nobodys_bytes(engine: LocalBackend, tmp_path: Path) -> None:
    alone = b"".join(engine.synthesize(REQUEST, seed=1))
    with KeyStore(tmp_path / "k") as keys, running(engine, keys=keys) as url:
        secret = keys.create("a").secret
        with ServiceBackend(url, secret) as backend, ThreadPoolExecutor(6) as pool:
            leaving = [pool.submit(_leave_early, url, secret, 1 + 3000 * number) for number in range(12)]
            staying = [pool.submit(lambda: b"".join(backend.synthesize(REQUEST, seed=1))) for _ in range(6)]
            for done in leaving:
                done.result()
            assert [done.result() for done in staying] == [alone] * 6
            _idle(engine)
            assert b"".join(backend.synthesize(REQUEST, seed=1)) == alone


def test_a_client_that_closes_its_stream_stops_the_engine(engine: LocalBackend, tmp_path: Path) -> None:
    with (
        KeyStore(tmp_path / "k") as keys,
        running(engine, keys=keys) as url,
        ServiceBackend(url, keys.create("a").secret) as backend,
    ):
        stream = backend.synthesize(TTSRequest(text=LONG, format="pcm"))
        next(stream)
        threading.Timer(0.05, stream.close).start()
        with pytest.raises(Cancelled):
            list(stream)
        _idle(engine)
