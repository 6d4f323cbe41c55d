"""The client against a service that does what it likes."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.client.conftest import CREATE, QUICK, RECORD, REQUEST, Script, chunked, reply, says, silent
from voicelab.call import Call
from voicelab.client import RetryPolicy, Timeouts
from voicelab.errors import (
    Cancelled,
    RequestInvalid,
    ServiceTimeout,
    ServiceUnavailable,
)

Connect = Callable[..., Any]
Speak = Callable[..., bytes]


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


def test_the_service_says_when_to_come_back(script: Script, speak: Speak) -> None:
    script.acts = [reply(503, Retry_After="1"), chunked(b"ab")]
    before = time.monotonic()
    assert speak() == b"ab"
    assert 1.0 <= time.monotonic() - before < 4


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
