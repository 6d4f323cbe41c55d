"""What is sent to harm: huge texts, hostile forms, addresses where files belong; and a busy store."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import msgpack  # type: ignore[import-untyped]  # it publishes no types
import pytest

from tests.served import PLAIN, Service, accepting, fields, locked, message
from tests.service.conftest import Start
from tests.service.host import ToneHost
from tests.speechlike import speech_file
from tests.tones import ToneBackend
from voicelab.backend import SpeechStream
from voicelab.call import Call

WAV = speech_file(1.2)
PACKED = {"content-type": "application/msgpack"}
JSON = {"content-type": "application/json"}
FIELDS: dict[str, Any] = {"type": "tts", "title": "Ada", "train_mode": "fast", "visibility": "private", "texts": "said"}


@contextmanager
def watched(service: Service) -> Iterator[list[float]]:
    """Ask for ``/health`` all the time, and keep how long each took: the event loop's longest stall, and more."""
    over, took = threading.Event(), [0.0]

    def watch() -> None:
        with httpx.Client(base_url=service.url, **PLAIN, timeout=20) as http:
            http.get("/health")
            while not over.is_set():
                began = time.perf_counter()
                http.get("/health")
                took.append(time.perf_counter() - began)

    with ThreadPoolExecutor(1) as pool:
        watching = pool.submit(watch)
        try:
            yield took
        finally:
            over.set()
        watching.result()


# Texts


@pytest.mark.parametrize("kind", ["json", "msgpack"])
@pytest.mark.parametrize("size", [20_001, 2_000_000, pytest.param(50_000_000, marks=pytest.mark.thorough)])
def test_a_text_too_long_is_422_and_never_reaches_the_voice(start: Start, kind: str, size: int) -> None:
    class Unchecked(ToneBackend):
        def synthesize(self, call: Call) -> SpeechStream:
            pytest.fail("it was asked")

    body = (json.dumps if kind == "json" else msgpack.packb)({"text": "a" * size})
    answer = start(Unchecked()).http.post("/v1/tts", content=body, headers=JSON if kind == "json" else PACKED)
    assert fields(answer) == ["body.text"]
    assert "20000" in answer.text
    assert len(answer.content) < 500


# Floods


def _part(name: str, data: bytes) -> bytes:
    return b'--x\r\nContent-Disposition: form-data; name="%s"\r\n\r\n%s\r\n' % (name.encode(), data)


FORMS = {
    "parts": _part("tags", b"") * 100_000 + b"--x--\r\n",
    "empty parts": b"--x\r\n\r\n\r\n" * 100_000 + b"--x--\r\n",
    "nearly boundaries": _part("voices", b"\r\n--y" * 400_000) + b"--x--\r\n",
    "line ends": _part("voices", b"\r\n" * 1_000_000) + b"--x--\r\n",
    "dashes": _part("voices", b"-" * 2_000_000) + b"--x--\r\n",
    "preamble": b"preamble\r\n" * 200_000 + _part("title", b"a") + b"--x--\r\n",
    "epilogue": _part("title", b"a") + b"--x--\r\n" + b"epilogue\r\n" * 200_000,
    "headers": b"--x\r\n" + b"A: b\r\n" * 300_000 + b"\r\n\r\n--x--\r\n",
    "never ends": _part("title", b"a") * 3,
    "names": b"".join(_part(f"n{number}", b"") for number in range(100)) + b"--x--\r\n",
}


@pytest.mark.parametrize("name", FORMS)
def test_a_hostile_form_is_refused_soon_and_holds_up_nobody(start: Start, tmp_path: Path, name: str) -> None:
    service = start(ToneHost(tmp_path / "voices"))
    kind = {"content-type": "multipart/form-data; boundary=x"}
    with watched(service) as waits:
        began = time.perf_counter()
        answer = service.http.post("/model", content=FORMS[name], headers=kind)
        took = time.perf_counter() - began
    assert 400 <= answer.status_code < 500, answer.text
    # A second and a tenth on a quiet machine; this one may be busy.
    assert took < 3
    assert max(waits) < 0.5
    assert not (tmp_path / "voices" / "files").exists()


# Addresses where files belong


def _lists(address: str) -> list[bytes]:
    return [
        address.encode(),
        f"#EXTM3U\n#EXT-X-TARGETDURATION:1\n#EXTINF:1,\n{address}\n#EXT-X-ENDLIST\n".encode(),
        f"ffconcat version 1.0\nfile '{address}'\n".encode(),
        f"[playlist]\nFile1={address}\n".encode(),
        f"<asx><entry><ref href='{address}'/></entry></asx>".encode(),
        f"v=0\no=- 0 0 IN IP4 127.0.0.1\ns=x\nm=audio 1 RTP/AVP 0\na=control:{address}\n".encode(),
        f"<svg xmlns:xlink='x'><image xlink:href='{address}'/></svg>".encode(),
    ]


def test_an_address_where_a_file_belongs_is_never_fetched(host: Service) -> None:
    heard: list[bytes] = []
    with accepting(lambda connection: heard.append(connection.recv(1000))) as url:  # that nobody should call
        with pytest.raises(httpx.RemoteProtocolError):
            httpx.get(url, **PLAIN)  # it would hear
        for data in _lists(f"{url}/secret.wav"):
            for files in ({"voices": data}, {"voices": WAV, "cover_image": data}):
                fields(host.http.post("/model", content=msgpack.packb({**FIELDS, **files}), headers=PACKED))
        assert len(heard) == 1


# A busy store


def test_a_store_that_another_program_holds_is_503_after_a_bounded_wait(start: Start, tmp_path: Path) -> None:
    backend = ToneHost(tmp_path / "voices", busy_s=0.3)
    service = start(backend, credit=100, busy_s=0.3)

    def create() -> httpx.Response:
        return service.http.post("/model", content=msgpack.packb({**FIELDS, "voices": [WAV]}), headers=PACKED)

    def get() -> httpx.Response:
        return service.http.get(f"/model/{made.json()['_id']}")

    made = create()
    assert made.status_code == 201, made.text
    for path, calls in (
        (service.keys.path, [service.speak] * 8),
        (tmp_path / "voices" / "voices.sqlite3", [get, get, create]),
    ):
        with locked(path), ThreadPoolExecutor(20) as pool:
            began = time.monotonic()
            answers = list(pool.map(lambda each: each(), calls))
            took = time.monotonic() - began
        assert [answer.status_code for answer in answers] == [503] * len(calls)
        for answer in answers:
            message(answer, 503)
            assert int(answer.headers["retry-after"]) > 0
        assert took < 4
    assert service.speak().status_code == 200
    assert get().status_code == 200
