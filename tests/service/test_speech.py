"""What happens to a speech in mid-stream, seen from the socket."""

from __future__ import annotations

import random
import socket
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from tests.served import NOTE_BYTES, Held, breaks, call, fields, message, read, reset_when_closed, until
from tests.service.conftest import Start, filled
from tests.tones import ToneBackend
from voicelab.errors import (
    AudioError,
    AuthenticationError,
    EngineError,
    EngineUnavailable,
    RequestInvalid,
    ServiceTimeout,
    ServiceUnavailable,
)


def test_the_status_waits_for_the_first_audio(start: Start) -> None:
    held = Held(0)
    service = start(ToneBackend(held))
    with call(service) as raw:
        raw.settimeout(0.2)
        with pytest.raises(TimeoutError):
            raw.recv(1)
        raw.settimeout(10)
        held.release()
        assert read(raw, 12).startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (lambda: RequestInvalid.of("text", "no"), 422),
        (lambda: AudioError("the reference is no audio"), 422),
        (lambda: EngineError("secret of our insides"), 500),
        (lambda: ZeroDivisionError("secret of our insides"), 500),
        (MemoryError, 503),
        (lambda: EngineUnavailable("secret of our insides"), 503),
        (lambda: ServiceUnavailable("secret of our insides"), 503),
        (lambda: ServiceTimeout("secret of our insides"), 504),
        (lambda: AuthenticationError("secret of our insides", status=401), 500),
    ],
)
def test_an_error_before_any_audio_has_its_status(start: Start, error: Callable[[], Exception], status: int) -> None:
    service = start(ToneBackend(breaks(error=error)))
    answer = service.speak("hello")
    assert answer.status_code == status
    assert "insides" not in answer.text
    if status == 422:
        fields(answer)
    else:
        message(answer, status)
    assert ("retry-after" in answer.headers) == (status == 503)
    until(lambda: service.backend.open == 0)


def test_empty_audio_is_an_error(start: Start) -> None:
    class Mute(ToneBackend):
        def _notes(self, *_: object) -> object:  # type: ignore[override]
            return iter(())

    service = start(Mute())
    assert service.speak("hello").status_code == 500


@pytest.mark.parametrize("note", [1, 4])
def test_an_error_in_mid_audio_ends_without_the_final_chunk(start: Start, note: int) -> None:
    service = start(ToneBackend(breaks(note)))
    with call(service) as raw:
        got = read(raw)
    assert got.startswith(b"HTTP/1.1 200 ")
    assert len(got) > note * NOTE_BYTES
    assert not got.endswith(b"0\r\n\r\n")
    with pytest.raises(httpx.RemoteProtocolError):
        service.http.post("/v1/tts", json={"text": "hello", "format": "wav"})
    until(lambda: service.backend.open == 0)


def test_failure_does_not_affect_other_requests(start: Start) -> None:
    service = start(ToneBackend(breaks(7)))
    whole = service.http.post("/v1/tts", json={"text": "hello", "format": "wav"}).content

    def one(number: int) -> bytes | None:
        text = "much too long" if number % 3 == 0 else "hello"
        try:
            return service.http.post("/v1/tts", json={"text": text, "format": "wav"}).content
        except httpx.RemoteProtocolError:
            return None

    with ThreadPoolExecutor(6) as pool:
        results = list(pool.map(one, range(24)))
    assert [result is None for result in results] == [number % 3 == 0 for number in range(24)]
    assert {result for result in results if result is not None} == {whole}


def test_a_caller_that_leaves_cancels_the_work_and_pays_no_more_than_was_sent(start: Start) -> None:
    held = Held(20)
    service = start(ToneBackend(held), credit=2000)
    with call(service, "x" * 1000) as raw:
        read(raw, 20 * NOTE_BYTES)
        assert service.credit == 1000  # all is reserved, so that nobody spends it twice
        reset_when_closed(raw)
    held.seconds = 0.005
    held.release()
    until(lambda: service.backend.open == 0)
    said = held.said
    assert said < 900
    time.sleep(0.1)
    assert held.said <= said + 1  # the note that was in its mouth
    until(lambda: service.credit > 1000)
    assert 2000 - 30 <= service.credit <= 2000 - 12  # a second was sent, and some notes until the leaving was seen


def test_a_caller_that_leaves_before_the_first_audio_cancels_the_work(start: Start) -> None:
    held = Held(0)
    service = start(ToneBackend(held), active=1, credit=10)
    with call(service):
        until(lambda: service.backend.open == 1)
    # The voice is in the middle of its first note. It ends there, and its place is free again.
    time.sleep(0.05)
    held.release()
    until(lambda: service.backend.open == 0)
    assert held.said <= 1
    until(lambda: service.credit == 10)
    assert service.speak("hi").status_code == 200


def test_a_caller_that_leaves_while_queued_is_never_begun(start: Start) -> None:
    held = Held(0)
    service = start(ToneBackend(held), active=1)
    with call(service, "first") as first:
        until(lambda: service.backend.open == 1)
        with call(service, "second"):
            time.sleep(0.1)
        time.sleep(0.1)
        held.release()
        read(first, 100)
    assert service.speak("third").status_code == 200
    assert [request.text for request, _, _ in service.backend.asked] == ["first", "third"]


@pytest.mark.parametrize("resets", [60, pytest.param(1000, marks=pytest.mark.thorough)])
def test_resets_at_any_moment_leave_no_work_behind_and_disturb_nobody(start: Start, resets: int) -> None:
    service = start(ToneBackend(lambda _: time.sleep(0.0005)), active=8, waiting=200, credit=10**7)
    draw, over = random.Random(1), threading.Event()

    def whole() -> bytes:
        return service.http.post("/v1/tts", json={"text": "hello there", "format": "wav"}).content

    def stay() -> set[bytes]:
        said = {whole()}
        while not over.is_set():
            said.add(whole())
        return said

    def leave(after: int) -> None:
        with call(service, "x" * 100) as raw:
            if after:
                read(raw, after)
            reset_when_closed(raw)

    with ThreadPoolExecutor(8) as pool:
        staying = [pool.submit(stay) for _ in range(2)]
        list(pool.map(leave, [draw.choice([0, draw.randrange(1, 230_000)]) for _ in range(resets)]))
        over.set()
        assert set.union(*(done.result() for done in staying)) == {whole()}
    until(lambda: service.backend.open == 0)
    assert len(whole()) > 1000


def test_slow_reader_delays_only_its_own_stream(start: Start) -> None:
    held = Held(10**9)
    service = start(ToneBackend(held), buffer=20_000)
    # 48 MB of audio: more than the sockets on both sides hold.
    with call(service, "x" * 20_000) as raw:
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        read(raw, 1000)
        last = -1
        while held.said != last:
            last = held.said
            time.sleep(0.2)
        assert held.said < 15_000
        assert service.speak("hello").status_code == 200
    until(lambda: service.backend.open == 0)


def test_queue_timeout(start: Start) -> None:
    with filled(start, 1, active=1, waiting=5, waiting_seconds=0.1) as (service, _, _):
        assert service.speak("hi").status_code == 503


def test_flood_of_a_key_does_not_block_another(start: Start) -> None:
    with (
        filled(start, 11, active=1, waiting=10) as (service, held, _),
        call(service, "other", service.keys.create("other").secret) as raw,
    ):
        time.sleep(0.2)
        held.release()
        assert read(raw, 12).startswith(b"HTTP/1.1 200")
    assert [request.text for request, _, _ in service.backend.asked].index("other") <= 2
