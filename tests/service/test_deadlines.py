"""Nobody holds the service by being slow: heads, bodies, readers, and what is left when a connection is closed."""

from __future__ import annotations

import gc
import logging
import select
import socket
import time
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest

from tests.served import Service, call, head, message, read, reset_when_closed, until
from tests.service.conftest import Start, filled
from tests.service.host import ToneHost
from tests.tones import ToneBackend
from voicelab.service.run import _Connection


def drip(raw: socket.socket, data: bytes, pause: float = 0.02) -> tuple[float, bytes]:
    """Send byte by byte until the service answers or closes; return how long that took, and its answer."""
    began = time.monotonic()
    for byte in data:
        try:
            raw.sendall(bytes([byte]))
        except OSError:
            break
        if select.select([raw], [], [], pause)[0]:
            break
    took = time.monotonic() - began
    try:
        return took, read(raw)
    except ConnectionError:
        return took, b""


def refusal(answer: bytes, status: int) -> None:
    """Check that an answer is ``{status, message}``."""
    begin, _, body = answer.decode("latin-1").partition("\r\n\r\n")
    line, *lines = begin.split("\r\n")
    headers = dict(one.split(": ", 1) for one in lines)
    message(httpx.Response(int(line.split()[1]), headers=headers, content=body.encode()), status)


@pytest.mark.parametrize("before", [0, 1])
def test_a_head_that_is_dripped_is_408_at_the_deadline(start: Start, before: int) -> None:
    service = start(head_seconds=0.5)
    with service.connect() as raw:
        for _ in range(before):
            raw.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
            assert read(raw, 10).startswith(b"HTTP/1.1 200")
            time.sleep(0.8)  # between requests a connection may rest
            while select.select([raw], [], [], 0)[0]:
                assert raw.recv(65_536)  # what was left of the answer, which may come in several pieces
        took, answer = drip(raw, b"GET /health HTTP/1.1\r\nHost: " + b"x" * 1000)
        assert 0.4 < took < 3
        refusal(answer, 408)
    assert service.speak().status_code == 200


def test_idle_connection_is_closed(start: Start) -> None:
    service = start(head_seconds=0.3)
    with service.connect() as raw:
        assert read(raw) == b""  # not an answer to what was never asked


@pytest.mark.parametrize("path", ["/v1/tts", "/model"])
def test_a_body_that_is_dripped_is_408_at_the_deadline(start: Start, tmp_path: Path, path: str) -> None:
    service = start(ToneHost(tmp_path / "voices"), body_seconds=0.5, upload_seconds=0.5)
    with service.connect() as raw:
        raw.sendall(head(service, 10_000, path))
        took, answer = drip(raw, b"\x81" + b" " * 9999)
        assert 0.4 < took < 3
        refusal(answer, 408)
    assert service.speak().status_code == 200


def test_the_rest_of_a_refused_body_is_not_waited_for_without_end(start: Start) -> None:
    service = start(head_seconds=0.5)
    with service.connect() as raw:
        raw.sendall(head(service, 10_000).replace(service.secret.encode(), b"wrong"))
        assert read(raw, 10).startswith(b"HTTP/1.1 401")
        took, _ = drip(raw, b" " * 500)
        assert took < 5


def test_a_refused_body_can_be_sent_to_its_end_and_the_connection_used_again(service: Service) -> None:
    with service.connect() as raw:
        body = b" " * 200_000
        raw.sendall(head(service, len(body)).replace(service.secret.encode(), b"wrong") + body)
        answer = read(raw, 10)
        while not answer.endswith(b"}"):
            answer += raw.recv(65536)
        refusal(answer, 401)
        raw.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
        assert read(raw, 10).startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize("rubbish", [b"\x16\x03\x01\x02\x00", b"GET\r\n\r\n", b"GET / HTTP/1.1\r\nA: " + b"x" * 70_000])
def test_malformed_http(service: Service, rubbish: bytes) -> None:
    with service.connect() as raw:
        raw.sendall(rubbish + b"\r\n\r\n")
        refusal(read(raw), 400)


def test_a_body_whose_chunks_are_none_ends_the_request(start: Start) -> None:
    service = start()
    with service.connect() as raw:
        chunked = head(service, 0).replace(b"Content-Length: 0", b"Transfer-Encoding: chunked")
        raw.sendall(chunked + b'5\r\n{"tex\r\nnonsense\r\n')
        refusal(read(raw), 400)
    assert service.speak().status_code == 200


# Readers


def test_readers_who_take_nothing_do_not_keep_the_others_waiting(start: Start) -> None:
    service = start(ToneBackend(), credit=200_000, active=8, buffer=20_000, lag_seconds=1, linger_seconds=0.2)
    with ExitStack() as stack:
        for _ in range(8):
            stack.enter_context(call(service, "x" * 20_000, rate=None, kind="wav", small=True))
        until(lambda: service.backend.open == 8)
        began = time.monotonic()
        assert service.speak("hello").status_code == 200
        assert time.monotonic() - began < 8
        until(lambda: service.backend.open == 0)
    # At 88 kB a second: the kernel's and the server's buffers hold a few seconds, of 1000 that were asked for.
    until(lambda: 200_000 - service.credit < 8 * 12 * 10)


def test_slow_reader_is_disconnected_and_logged_as_such(start: Start, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    service = start(ToneBackend(), buffer=20_000, lag_seconds=1, linger_seconds=0.2)
    with call(service, "x" * 20_000, rate=None, kind="wav", small=True) as raw:
        until(lambda: service.backend.open == 1)
        began = time.monotonic()
        while service.backend.open:
            assert raw.recv(1)
            time.sleep(0.1)
            assert time.monotonic() - began < 12
        # What was on its way is not waited for either, and the end of the body never comes.
        time.sleep(1)
        assert not read(raw).endswith(b"0\r\n\r\n")
    assert any("was read too slowly: POST /v1/tts, status 200" in line for line in caplog.messages)
    assert not [record for record in caplog.records if record.levelno > logging.INFO]


def test_real_time_reader_is_not_disconnected(start: Start) -> None:
    service = start(ToneBackend(), buffer=4_000, lag_seconds=0.5)
    seconds = 2
    with call(service, "x" * (20 * seconds), rate=None, small=True) as raw:
        got, began = b"", time.monotonic()
        while not got.endswith(b"\r\n0\r\n\r\n"):
            # Half a second of audio, when it is due.
            time.sleep(max(0.0, began + len(got) / 88_200 - time.monotonic()))
            part = raw.recv(44_100)
            assert part, "it was given up"
            got += part
        assert len(got) > seconds * 88_200
        assert time.monotonic() - began > seconds - 1


# Overload


def test_eightfold_overload_is_answered_at_once(start: Start) -> None:
    with filled(start, 4, active=2, waiting=2) as (service, held, inside):
        took = []
        for _ in range(28):
            began = time.perf_counter()
            answer = service.speak("more")
            took.append(time.perf_counter() - began)
            assert answer.status_code == 503
            assert int(answer.headers["retry-after"]) > 0
        assert service.backend.open == 2
        assert sorted(took)[len(took) // 2] < 0.05, took
        held.release()
        for raw in inside:
            assert read(raw, 12).startswith(b"HTTP/1.1 200")


def test_a_connection_that_is_reset_after_its_answer_is_let_go(start: Start) -> None:
    def kept() -> int:
        gc.collect()
        return sum(issubclass(type(one), _Connection) for one in gc.get_objects())

    service, before = start(), kept()
    for _ in range(20):
        with call(service, "a") as raw:
            while not read(raw, 1).endswith(b"0\r\n\r\n"):
                pass
            reset_when_closed(raw)
    until(lambda: kept() <= before + 1)
