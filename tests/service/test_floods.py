"""What is sent to harm: huge texts, floods of values and parts, addresses where files belong; and a busy store."""

from __future__ import annotations

import json
import random
import socket
import threading
import time
import tracemalloc
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import msgpack  # type: ignore[import-untyped]  # it publishes no types
import pytest

from tests.served import PLAIN, Service, accepting, call, fields, locked, message, read, reset_when_closed, until
from tests.service.conftest import Start
from tests.service.host import ToneHost
from tests.speechlike import speech_file
from tests.tones import ToneBackend
from voicelab.backend import SpeechStream
from voicelab.call import Call
from voicelab.service.requests import decode

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
@pytest.mark.parametrize(
    "size", [1, 20_000, 20_001, 200_000, 2_000_000, pytest.param(50_000_000, marks=pytest.mark.thorough)]
)
def test_a_text_too_long_is_422_and_never_reaches_the_voice(start: Start, kind: str, size: int) -> None:
    class Unchecked(ToneBackend):
        def synthesize(self, call: Call) -> SpeechStream:
            assert len(call.request.text) <= 20_000
            return super().synthesize(call)

    service = start(Unchecked())
    wire = {"text": "a" * size if size > 20_000 else "a", "format": "pcm", "sample_rate": 8000}
    body = json.dumps(wire).encode() if kind == "json" else msgpack.packb(wire)
    answer = service.http.post("/v1/tts", content=body, headers=JSON if kind == "json" else PACKED)
    if size <= 20_000:
        assert answer.status_code == 200
        return
    assert fields(answer) == ["body.text"]
    assert "20000" in answer.text
    assert len(answer.content) < 500
    assert service.backend.asked == []


@pytest.mark.thorough
def test_only_what_no_request_can_be_is_413(start: Start) -> None:
    service = start()
    body = b'{"text": "' + b"a" * (64 * 1024 * 1024) + b'"}'
    assert "larger" in message(service.http.post("/v1/tts", content=body, headers=JSON), 413)


# Floods


@pytest.mark.parametrize(
    "body",
    [
        b"[" + b"[]," * 3_000_000 + b"0]",
        b'{"text": [' + b"0.1," * 2_000_000 + b"0]}",
        b'{"a":' * 300_000 + b"1" + b"}" * 300_000,
        b"[" + b'"a",' * 2_000_000 + b"0]",
        b"{" + b",".join(b'"%d":1' % number for number in range(300_000)) + b"}",
    ],
    ids=["arrays", "numbers", "depth", "strings", "keys"],
)
def test_a_flood_of_json_values_takes_no_memory(body: bytes) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match=r"more values|too deeply"):
            decode(body, "json")
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 4 * len(body)


def test_marks_inside_a_text_are_no_values(service: Service) -> None:
    wire = {"text": "[{,:" * 5_000, "temperature": 7}
    assert fields(service.http.post("/v1/tts", json=wire)) == ["body.temperature"]


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
        f"#EXTM3U\n#EXTINF:1,\n{address}\n".encode(),
        f"#EXTM3U\n#EXT-X-TARGETDURATION:1\n#EXTINF:1,\n{address}\n#EXT-X-ENDLIST\n".encode(),
        f"ffconcat version 1.0\nfile '{address}'\n".encode(),
        f"[playlist]\nFile1={address}\n".encode(),
        f"<asx><entry><ref href='{address}'/></entry></asx>".encode(),
        f"v=0\no=- 0 0 IN IP4 127.0.0.1\ns=x\nm=audio 1 RTP/AVP 0\na=control:{address}\n".encode(),
        f"<svg xmlns:xlink='x'><image xlink:href='{address}'/></svg>".encode(),
    ]


def test_an_address_where_a_file_belongs_is_never_fetched(start: Start, tmp_path: Path) -> None:
    service = start(ToneHost(tmp_path / "voices"))
    heard: list[bytes] = []
    with accepting(lambda connection: heard.append(connection.recv(1000))) as url:  # that nobody should call
        address = f"{url}/secret.wav"
        with socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2]))) as raw:
            raw.sendall(b"it hears")
        until(lambda: heard == [b"it hears"])  # the canary lives
        for data in _lists(address):
            for voice, cover in ((data, None), (WAV, data)):
                files = {"voices": voice, **({"cover_image": cover} if cover else {})}
                form = {**FIELDS, "visibility": "public" if cover else "private"}
                fields(service.http.post("/model", content=msgpack.packb({**form, **files}), headers=PACKED))
                fields(service.http.post("/model", data=form, files=files))
        assert heard == [b"it hears"]


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


# Callers who leave, very often


@pytest.mark.thorough
def test_a_thousand_resets_at_any_byte_disturb_nobody(start: Start) -> None:
    service = start(ToneBackend(lambda _: time.sleep(0.0005)), active=8, waiting=200, credit=10**7)
    draw = random.Random(1)
    wanted = {"text": "hello there", "format": "wav"}
    whole = service.http.post("/v1/tts", json=wanted).content
    over = threading.Event()
    different: list[bytes] = []

    def stay() -> int:
        count = 0
        while not over.is_set():
            got = service.http.post("/v1/tts", json=wanted).content
            count += 1
            if got != whole:
                different.append(got)
        return count

    def leave(after: int) -> None:
        with call(service, "x" * 100) as raw:
            if after:
                read(raw, after)
            reset_when_closed(raw)

    with ThreadPoolExecutor(8) as pool:
        staying = [pool.submit(stay) for _ in range(2)]
        list(pool.map(leave, [draw.choice([0, draw.randrange(1, 230_000)]) for _ in range(1000)]))
        over.set()
        assert sum(done.result() for done in staying) > 20
    assert different == []
    until(lambda: service.backend.open == 0)
    assert service.http.post("/v1/tts", json=wanted).content == whole
