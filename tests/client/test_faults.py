"""The client against a service that does what it likes."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from tests.client.conftest import CREATE, QUICK, RECORD, REQUEST, Script, chunked, hang_up, reply, reset
from voicelab.call import Call
from voicelab.client import RetryPolicy, ServiceBackend, Timeouts
from voicelab.errors import (
    Cancelled,
    RequestInvalid,
    ServiceError,
    ServiceTimeout,
    ServiceUnavailable,
    StreamTruncated,
    VoicelabError,
)

Connect = Callable[..., Any]
Speak = Callable[..., bytes]


@pytest.fixture
def speak(script: Script) -> Speak:
    """Speak by the blocking client; test_parity shows that both come to the same."""

    def call(retry: RetryPolicy = QUICK, timeout: Timeouts | float | None = 5.0) -> bytes:
        with ServiceBackend(script.url, "key-1", retry=retry, timeout=timeout) as backend:
            return b"".join(backend.synthesize(Call(REQUEST)))

    return call


def test_any_service_of_the_interface_will_do(script: Script, speak: Speak) -> None:
    script.acts = [chunked(b"ab", b"cd")]
    assert speak() == b"abcd"
    head = script.asked[0].split(b"\r\n\r\n")[0].lower()
    assert b"authorization: bearer key-1" in head
    assert b"model: s2-pro" in head
    assert b"x-voicelab" not in head


def test_a_service_that_declares_nothing_takes_no_seed(script: Script, connect: Connect) -> None:
    with connect(script.url) as backend:
        assert backend.capabilities.seed == "none"
        assert backend.capabilities.fingerprint == script.url
        with pytest.raises(RequestInvalid, match="seed"):
            backend.synthesize(Call(REQUEST, seed=1))
    assert script.asked == []


def test_the_key_is_not_sent_where_it_is_not_needed(script: Script, connect: Connect) -> None:
    seen: list[bytes] = []
    serve = script.serve

    def listen(connection: socket.socket) -> None:
        seen.append(connection.recv(65536, socket.MSG_PEEK))
        serve(connection)

    script.serve = listen  # type: ignore[method-assign]
    with connect(script.url, "key-1") as backend:
        assert backend.capabilities.seed == "none"
    assert seen
    assert b"key-1" not in b"".join(seen)


def test_a_seed_that_the_service_drew_is_kept(script: Script, connect: Connect) -> None:
    seeds = ["123", "x", "-1", "9" * 50]
    for seed in seeds:
        script.acts.append(reply(200, b"ab", x_voicelab_seed=seed))
    with connect(script.url) as backend:
        found = [backend.synthesize(Call(REQUEST)).clip().take for _ in seeds]
    assert [take.seed for take in found if take is not None] == [123, None, None, None]


def test_a_service_that_is_not_there_yet_is_asked_again(script: Script, connect: Connect) -> None:
    healthy = b'{"backend":{"seed":"exact"}}'
    with connect(script.url) as backend:
        script.health = b""  # no answer: the connection is closed
        script.serve, serve = (lambda connection: connection.close()), script.serve  # type: ignore[method-assign]
        first = backend.capabilities
        assert first.seed == "unknown"
        script.serve = serve  # type: ignore[method-assign]
        script.health = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(healthy), healthy)
        assert backend.capabilities.seed == "exact"


def test_a_health_page_that_hangs_is_waited_for_once(
    script: Script, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("voicelab.client.caller._PROBE_SECONDS", 0.3)
    script.health = b""  # no answer, and no end
    script.acts = [chunked(b"ab"), chunked(b"cd")]
    with connect(script.url) as backend:
        assert b"".join(backend.synthesize(Call(REQUEST))) == b"ab"
        assert b"".join(backend.synthesize(Call(REQUEST))) == b"cd"
    assert script.probes == 1


def test_an_address_that_swallows_calls_is_not_waited_for_at_each_look(
    connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("voicelab.client.caller._PROBE_SECONDS", 0.3)
    with socket.socket() as deaf, contextlib.ExitStack() as waiting:
        deaf.bind(("127.0.0.1", 0))
        deaf.listen(0)
        for _ in range(4):  # Linux drops what comes when the queue is full
            one = waiting.enter_context(socket.socket())
            one.setblocking(False)
            one.connect_ex(deaf.getsockname())
        with connect(f"http://127.0.0.1:{deaf.getsockname()[1]}") as backend:
            before = time.monotonic()
            assert backend.capabilities.seed == "unknown"
            first = time.monotonic() - before
            assert backend.capabilities.seed == "unknown"
            assert time.monotonic() - before - first < 0.1 < first


def test_a_seed_for_a_service_that_could_not_be_asked_is_sent_and_not_taken_for_used(
    script: Script, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("voicelab.client.caller._PROBE_SECONDS", 0.3)
    script.health = b""  # no answer, and no end
    script.acts = [reply(200, b"ab"), reply(200, b"ab", x_voicelab_seed="7")]
    with connect(script.url) as backend:
        silent, told = (backend.synthesize(Call(REQUEST, seed=7)).clip() for _ in range(2))
    assert all(b"x-voicelab-seed: 7" in head.lower() for head in script.asked)
    assert silent.take.seed is None
    assert any("whether it takes a seed" in note for note in silent.notes)
    assert (told.take.seed, any("seed" in note for note in told.notes)) == (7, False)


def test_a_seed_does_not_hide_that_a_service_is_not_there(connect: Connect) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        nobody = f"http://127.0.0.1:{free.getsockname()[1]}"
    with connect(nobody) as backend, pytest.raises(ServiceUnavailable, match="cannot be reached"):
        backend.synthesize(Call(REQUEST, seed=1)).clip()


@pytest.mark.parametrize("status", [429, 502, 503, 504])
def test_a_service_that_is_busy_is_asked_what_it_is_the_next_time(
    script: Script, connect: Connect, status: int
) -> None:
    script.health = b"HTTP/1.1 %d X\r\nContent-Length: 0\r\n\r\n" % status
    told = b'{"backend":{"seed":"exact"}}'
    with connect(script.url) as backend:
        assert backend.capabilities.seed == "unknown"
        script.health = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(told), told)
        assert backend.capabilities.seed == "exact"


def test_an_answer_without_an_end_is_said_to_be_so(script: Script, connect: Connect) -> None:
    def act(connection: socket.socket) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\n\r\nabcd")
        hang_up(connection)

    script.acts = [act, chunked(b"abcd")]
    with connect(script.url) as backend:
        unframed, framed = backend.synthesize(Call(REQUEST)).clip(), backend.synthesize(Call(REQUEST)).clip()
    assert framed.notes == ()
    (note,) = unframed.notes
    assert "where the audio ends" in note


def test_a_body_shorter_than_its_length_is_truncated(script: Script, speak: Speak) -> None:
    def act(connection: socket.socket) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nabc")
        hang_up(connection)

    script.acts = [act]
    with pytest.raises(StreamTruncated) as caught:
        speak()
    assert caught.value.partial == b"abc"


@pytest.mark.parametrize(
    "failure", [reply(503), reply(429), reply(502), reply(504), hang_up, reset, chunked(end=False)]
)
def test_what_delivered_nothing_is_tried_again(script: Script, failure: object, speak: Speak) -> None:
    script.acts = [failure, failure, chunked(b"ab")]  # type: ignore[list-item]
    assert speak() == b"ab"
    assert len(script.asked) == 3
    assert len(set(script.asked)) == 1


@pytest.mark.parametrize("status", [400, 401, 402, 404, 413, 415, 422, 500])
def test_what_will_not_change_is_not_tried_again(script: Script, status: int, speak: Speak) -> None:
    script.acts = [reply(status, b"{}"), chunked(b"ab")]
    with pytest.raises(VoicelabError):
        speak()
    assert len(script.asked) == 1


def test_the_service_says_when_to_come_back(script: Script, speak: Speak) -> None:
    script.acts = [reply(503, Retry_After="1"), chunked(b"ab")]
    before = time.monotonic()
    assert speak() == b"ab"
    assert 1.0 <= time.monotonic() - before < 4


def test_who_is_told_to_wait_too_long_gives_up_at_once(script: Script, speak: Speak) -> None:
    script.acts = [reply(503, Retry_After="3600"), chunked(b"ab")]
    before = time.monotonic()
    with pytest.raises(ServiceUnavailable):
        speak()
    assert time.monotonic() - before < 1


def test_a_closed_stream_does_not_try_again(script: Script, connect: Connect) -> None:
    script.acts = [reply(503, Retry_After="10"), chunked(b"ab")]
    with connect(script.url, retry=RetryPolicy(longest_s=20)) as backend:
        stream = backend.synthesize(Call(REQUEST))
        threading.Timer(0.2, stream.close).start()
        before = time.monotonic()
        with pytest.raises(Cancelled):
            list(stream)
    assert time.monotonic() - before < 3
    assert len(script.asked) == 1


def silent(connection: socket.socket) -> None:
    connection.recv(1)  # until the client has had enough


def test_no_answer_in_time_is_a_timeout_and_not_tried_again(script: Script, speak: Speak) -> None:
    script.acts = [silent, chunked(b"ab")]
    with pytest.raises(ServiceTimeout):
        speak(timeout=Timeouts(first_audio=0.2))
    assert len(script.asked) == 1


def test_a_stall_in_mid_audio_is_a_timeout(script: Script, connect: Connect) -> None:
    def act(connection: socket.socket) -> None:
        time.sleep(0.5)  # longer than the stall: the first audio may take its time
        connection.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n")
        connection.recv(1)  # until the client has had enough

    script.acts = [act]
    with connect(script.url, timeout=Timeouts(first_audio=10, stall=0.2)) as backend:
        stream = backend.synthesize(Call(REQUEST))
        assert next(stream) == b"abc"
        before = time.monotonic()
        with pytest.raises(ServiceTimeout, match=r"0\.2 s"):
            next(stream)
        assert time.monotonic() - before < 5


def test_a_refused_connection_is_unavailability(connect: Connect) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
    with connect(url, retry=QUICK) as backend, pytest.raises(ServiceUnavailable, match="cannot be reached"):
        list(backend.synthesize(Call(REQUEST)))


@pytest.mark.parametrize(
    "answer",
    [
        chunked(),
        reply(200, b""),
        reply(200, b"<html>", content_type="text/html"),
        reply(200, b"{}", content_type="application/json"),
    ],
)
def test_an_answer_without_audio_is_an_error(script: Script, answer: object, speak: Speak) -> None:
    script.acts = [answer]  # type: ignore[list-item]
    with pytest.raises(ServiceError):
        speak()


def test_rubbish_instead_of_http_is_an_error(script: Script, speak: Speak) -> None:
    def act(connection: socket.socket) -> None:
        connection.sendall(b"\x00\xff rubbish\r\n\r\n")
        hang_up(connection)

    script.acts = [act] * 3
    with pytest.raises(ServiceUnavailable):
        speak()


def test_the_connection_is_used_again(script: Script, connect: Connect) -> None:
    connections: list[socket.socket] = []
    serve = script.serve

    def count(connection: socket.socket) -> None:
        connections.append(connection)
        serve(connection)

    script.serve = count  # type: ignore[method-assign]
    script.acts = [chunked(b"ab"), reply(200, b"cd"), reply(404), reply(422, b"[]"), reply(200, RECORD), chunked(b"ef")]
    with connect(script.url, retry=RetryPolicy(attempts=1)) as backend:
        for expected in (b"ab", b"cd"):
            assert list(backend.synthesize(Call(REQUEST))) == [expected]
        with pytest.raises(LookupError):
            backend.get_voice("v")
        with pytest.raises(RequestInvalid):
            backend.create_voice(CREATE)
        backend.get_voice("v1")
        assert list(backend.synthesize(Call(REQUEST))) == [b"ef"]
    assert len(connections) == 1


def test_an_address_where_nobody_answers_is_given_up_in_time(connect: Connect) -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=0) as listener:
        # Whoever comes when the queue is full is not answered at all.
        waiting = [socket.socket() for _ in range(4)]
        for caller in waiting:
            caller.setblocking(False)
            caller.connect_ex(listener.getsockname())
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        before = time.monotonic()
        with (
            connect(url, timeout=Timeouts(connect=0.3), retry=RetryPolicy(attempts=1)) as backend,
            pytest.raises(ServiceTimeout, match="cannot be reached in time"),
        ):
            backend.get_voice("v1")
        assert time.monotonic() - before < 5
        for caller in waiting:
            caller.close()


def test_an_idle_connection_that_the_service_closed_is_replaced(script: Script, connect: Connect) -> None:
    def last(connection: socket.socket) -> None:
        chunked(b"ab")(connection)
        hang_up(connection)

    script.acts = [last, chunked(b"cd")]
    with connect(script.url, retry=QUICK) as backend:
        assert b"".join(backend.synthesize(Call(REQUEST))) == b"ab"
        assert b"".join(backend.synthesize(Call(REQUEST))) == b"cd"
