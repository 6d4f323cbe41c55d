"""The client against a service that does what it likes."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.client.conftest import CREATE, QUICK, RECORD, REQUEST, Script, chunked, hang_up, reply, reset, says, silent
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


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait 0.3 s for what a service says of itself, not 3."""
    short = Timeouts(connect=0.3, send=0.3, first_audio=0.3, stall=0.3)
    monkeypatch.setattr("voicelab.client.caller._SHORT", short)


@pytest.fixture
def deaf() -> Iterator[str]:
    """An address that takes no more calls, and says nothing to those who try."""
    with socket.create_server(("127.0.0.1", 0), backlog=0) as listener, contextlib.ExitStack() as waiting:
        for _ in range(4):  # Linux drops what comes when the queue is full
            one = waiting.enter_context(socket.socket())
            one.setblocking(False)
            one.connect_ex(listener.getsockname())
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"


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
    with connect(script.url, "key-1") as backend:
        assert backend.capabilities.seed == "none"
    assert script.probes
    assert b"key-1" not in b"".join(script.probes)


def test_a_seed_that_the_service_drew_is_kept(script: Script, connect: Connect) -> None:
    seeds = ["123", "x", "-1", "9" * 50]
    for seed in seeds:
        script.acts.append(reply(200, b"ab", x_voicelab_seed=seed))
    with connect(script.url) as backend:
        found = [backend.synthesize(Call(REQUEST)).clip().take for _ in seeds]
    assert [take.seed for take in found if take is not None] == [123, None, None, None]


@pytest.mark.parametrize("status", [None, 429, 502, 503, 504])
def test_a_service_that_could_not_say_what_it_is_is_asked_again(
    script: Script, connect: Connect, status: int | None
) -> None:
    healthy = b'{"backend":{"seed":"exact"}}'
    serve = script.serve
    if status is None:
        script.serve = lambda connection: connection.close()  # type: ignore[method-assign]
    else:
        script.health = b"HTTP/1.1 %d X\r\nContent-Length: 0\r\n\r\n" % status
    with connect(script.url) as backend:
        assert backend.capabilities.seed == "unknown"
        script.serve = serve  # type: ignore[method-assign]
        script.health = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(healthy), healthy)
        assert backend.capabilities.seed == "exact"


@pytest.mark.usefixtures("impatient")
def test_a_health_page_that_hangs_is_waited_for_once(script: Script, connect: Connect) -> None:
    script.health = b""  # no answer, and no end
    script.acts = [chunked(b"ab"), chunked(b"cd")]
    with connect(script.url) as backend:
        assert b"".join(backend.synthesize(Call(REQUEST))) == b"ab"
        assert b"".join(backend.synthesize(Call(REQUEST))) == b"cd"
    assert len(script.probes) == 1


@pytest.mark.usefixtures("impatient")
def test_an_address_that_swallows_calls_is_not_waited_for_at_each_look(connect: Connect, deaf: str) -> None:
    with connect(deaf) as backend:
        before = time.monotonic()
        assert backend.capabilities.seed == "unknown"
        first = time.monotonic() - before
        assert backend.capabilities.seed == "unknown"
        assert time.monotonic() - before - first < 0.1 < first


@pytest.mark.usefixtures("impatient")
def test_a_seed_for_a_service_that_could_not_be_asked_is_sent_and_not_taken_for_used(
    script: Script, connect: Connect
) -> None:
    script.health = b""  # no answer, and no end
    script.acts = [reply(200, b"ab"), reply(200, b"ab", x_voicelab_seed="7")]
    with connect(script.url) as backend:
        silent, told = (backend.synthesize(Call(REQUEST, seed=7)).clip() for _ in range(2))
    assert all(b"x-voicelab-seed: 7" in head.lower() for head in script.asked)
    assert silent.take.seed is None
    assert any("whether it takes a seed" in note for note in silent.notes)
    assert (told.take.seed, any("seed" in note for note in told.notes)) == (7, False)


@pytest.mark.parametrize(
    "ask",
    [
        lambda backend: list(backend.synthesize(Call(REQUEST))),
        lambda backend: backend.synthesize(Call(REQUEST, seed=1)).clip(),
        lambda backend: backend.create_voice(CREATE),
    ],
    ids=["speech", "speech with a seed", "a voice"],
)
def test_a_refused_connection_is_unavailability(connect: Connect, ask: Callable[[Any], object]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        nobody = f"http://127.0.0.1:{free.getsockname()[1]}"
    with connect(nobody, retry=QUICK) as backend, pytest.raises(ServiceUnavailable, match="cannot be reached"):
        ask(backend)


def test_an_answer_without_an_end_is_said_to_be_so(script: Script, connect: Connect) -> None:
    script.acts = [says(b"HTTP/1.1 200 OK\r\n\r\nabcd"), chunked(b"abcd")]
    with connect(script.url) as backend:
        unframed, framed = backend.synthesize(Call(REQUEST)).clip(), backend.synthesize(Call(REQUEST)).clip()
    assert framed.notes == ()
    (note,) = unframed.notes
    assert "where the audio ends" in note


def test_a_body_shorter_than_its_length_is_truncated(script: Script, speak: Speak) -> None:
    script.acts = [says(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nabc")]
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


def test_no_answer_in_time_is_a_timeout_and_not_tried_again(script: Script, speak: Speak) -> None:
    script.acts = [silent, chunked(b"ab")]
    with pytest.raises(ServiceTimeout):
        speak(timeout=Timeouts(first_audio=0.2))
    assert len(script.asked) == 1


def test_a_stall_in_mid_audio_is_a_timeout(script: Script, connect: Connect) -> None:
    def act(connection: socket.socket) -> None:
        time.sleep(0.5)  # longer than the stall: the first audio may take its time
        says(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n", silent)(connection)

    script.acts = [act]
    with connect(script.url, timeout=Timeouts(first_audio=10, stall=0.2)) as backend:
        stream = backend.synthesize(Call(REQUEST))
        assert next(stream) == b"abc"
        before = time.monotonic()
        with pytest.raises(ServiceTimeout, match=r"0\.2 s"):
            next(stream)
        assert time.monotonic() - before < 5


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
    script.acts = [says(b"\x00\xff rubbish\r\n\r\n")] * 3
    with pytest.raises(ServiceUnavailable):
        speak()


def test_the_connection_is_used_again(script: Script, connect: Connect) -> None:
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
    assert script.connections == 1


def test_an_address_where_nobody_answers_is_given_up_in_time(connect: Connect, deaf: str) -> None:
    before = time.monotonic()
    with (
        connect(deaf, timeout=Timeouts(connect=0.3), retry=RetryPolicy(attempts=1)) as backend,
        pytest.raises(ServiceTimeout, match="cannot be reached in time"),
    ):
        backend.get_voice("v1")
    assert time.monotonic() - before < 5


def test_an_idle_connection_that_the_service_closed_is_replaced(script: Script, connect: Connect) -> None:
    last = b"HTTP/1.1 200 OK\r\nContent-Type: audio/pcm\r\nContent-Length: 2\r\n\r\nab"
    script.acts = [says(last), chunked(b"cd")]
    with connect(script.url, retry=QUICK) as backend:
        assert b"".join(backend.synthesize(Call(REQUEST))) == b"ab"
        assert b"".join(backend.synthesize(Call(REQUEST))) == b"cd"
