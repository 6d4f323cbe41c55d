"""The client against a service that does what it likes."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from tests.backends.conftest import CREATE, QUICK, RECORD, REQUEST, Script, chunked, reply, reset, says, silent
from tests.served import accepting
from voicelab.backends.caller import RetryPolicy, Timeouts
from voicelab.call import Call
from voicelab.errors import Cancelled, RequestInvalid, ServiceTimeout, ServiceUnavailable

Connect = Callable[..., Any]


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait 0.3 s for what a service says of itself, not 3."""
    short = Timeouts(connect=0.3, send=0.3, first_audio=0.3, stall=0.3)
    monkeypatch.setattr("voicelab.backends.caller._PROBE_TIMEOUTS", short)


def test_seed_drawn_by_the_service_is_recorded(script: Script, connect: Connect) -> None:
    seeds = ["123", "x", "-1", "9" * 50]
    for seed in seeds:
        script.acts.append(reply(200, b"ab", x_voicelab_seed=seed))
    with connect(script.url) as backend:
        found = [backend.synthesize(Call(REQUEST)).clip().take for _ in seeds]
    assert [take.seed for take in found if take is not None] == [123, None, None, None]


HOSTILE_NOTES = {
    '["a\\u001b[2Jb\\u0000\\u202ec\\ud800d", "", 7, null, ["x"]]': ("a [2Jb c d",),
    '["the key sk-secret-key, sk-secret\\u002dkey"]': ("the key ***, ***",),
    "no JSON": (),
    '{"a": 1}': (),
    '"text"': (),
    "[" * 2000: (),
    "[" + "9" * 4000 + "]": (),
    '["' + "x" * 5000 + '"]': (),
    "[" + ",".join('"n"' for _ in range(500)) + "]": ("n",) * 32,
    "%5B%22a%22%5D": (),
}


def test_hostile_notes_header_is_sanitized(script: Script, connect: Connect) -> None:
    script.acts += [reply(200, b"ab", x_voicelab_notes=value) for value in HOSTILE_NOTES]
    with connect(script.url, "sk-secret-key") as backend:
        takes = [backend.synthesize(Call(REQUEST)).clip().take for _ in HOSTILE_NOTES]
    assert [take.notes for take in takes] == list(HOSTILE_NOTES.values())
    assert all("".join(take.notes).isprintable() for take in takes)


@pytest.mark.parametrize("status", [None, 429, 502, 503, 504])
def test_unreachable_service_is_probed_again(script: Script, connect: Connect, status: int | None) -> None:
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
def test_unconfirmed_seed_is_sent_but_not_recorded(script: Script, connect: Connect) -> None:
    script.health = b""  # no answer, and no end
    script.acts = [reply(200, b"ab"), reply(200, b"ab", x_voicelab_seed="7")]
    with connect(script.url) as backend:
        silent, told = (backend.synthesize(Call(REQUEST, seed=7)).clip() for _ in range(2))
    assert len(script.probes) == 1
    assert all(b"x-voicelab-seed: 7" in head.lower() for head in script.asked)
    assert silent.take.seed is None
    assert any("does not confirm seed 7" in note for note in silent.notes)
    assert (told.take.seed, any("seed" in note for note in told.notes)) == (7, False)


@pytest.mark.usefixtures("impatient")
def test_connect_timeout_and_pause_between_probes(connect: Connect) -> None:
    def waited(look: Callable[[], object]) -> float:
        before = time.monotonic()
        look()
        return time.monotonic() - before

    with socket.create_server(("127.0.0.1", 0), backlog=0) as listener, contextlib.ExitStack() as waiting:
        for _ in range(4):  # Linux drops what comes when the queue is full
            one = waiting.enter_context(socket.socket())
            one.setblocking(False)
            one.connect_ex(listener.getsockname())
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        with connect(url, timeout=Timeouts(connect=0.3), retry=RetryPolicy(attempts=1)) as backend:
            first, second = (waited(lambda: backend.capabilities) for _ in range(2))
            assert second < 0.1 < first
            assert backend.capabilities.seed == "unknown"
            with pytest.raises(ServiceTimeout, match=r"connecting to .* timed out"):
                backend.get_voice("v1")


def test_refused_connection_is_service_unavailable(connect: Connect) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        nobody = f"http://127.0.0.1:{free.getsockname()[1]}"
    with connect(nobody, retry=QUICK) as backend:
        for ask in (
            lambda: list(backend.synthesize(Call(REQUEST))),
            lambda: backend.synthesize(Call(REQUEST, seed=1)).clip(),
            lambda: backend.create_voice(CREATE),
        ):
            with pytest.raises(ServiceUnavailable, match="cannot be reached"):
                ask()


def test_retry_after_header_is_respected(script: Script, connect: Connect) -> None:
    script.acts = [reply(503, Retry_After="1"), chunked(b"ab")]
    before = time.monotonic()
    with connect(script.url, retry=QUICK) as backend:
        assert b"".join(backend.synthesize(Call(REQUEST))) == b"ab"
    assert 1.0 <= time.monotonic() - before < 4


def test_closed_stream_is_not_retried(script: Script, connect: Connect) -> None:
    script.acts = [reply(503, Retry_After="10"), chunked(b"ab")]
    with connect(script.url, retry=RetryPolicy(max_wait_s=20)) as backend:
        stream = backend.synthesize(Call(REQUEST))
        threading.Timer(0.2, stream.close).start()
        before = time.monotonic()
        with pytest.raises(Cancelled):
            list(stream)
    assert time.monotonic() - before < 3
    assert len(script.asked) == 1


def test_stalled_audio_is_a_timeout(script: Script, connect: Connect) -> None:
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


def test_connection_is_reused(script: Script, connect: Connect) -> None:
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


def test_closed_idle_connection_is_replaced(script: Script, connect: Connect) -> None:
    last = b"HTTP/1.1 200 OK\r\nContent-Type: audio/pcm\r\nContent-Length: 2\r\n\r\nab"
    script.acts = [says(last), chunked(b"cd")]
    with connect(script.url, retry=QUICK) as backend:
        assert b"".join(backend.synthesize(Call(REQUEST))) == b"ab"
        assert b"".join(backend.synthesize(Call(REQUEST))) == b"cd"


# Voices are made once, whatever a service does


@pytest.mark.parametrize("upload", ["msgpack", "multipart"])
def test_interrupted_upload_is_not_retried(connect: Connect, upload: str) -> None:
    large = CREATE.replace(voices=(bytes(8_000_000),))
    got: list[int] = []

    def serve(connection: socket.socket) -> None:
        got.append(len(connection.recv(100_000)))
        reset(connection)

    with (
        accepting(serve) as url,
        connect(url, retry=QUICK, upload=upload) as backend,
        pytest.raises(ServiceUnavailable),
    ):
        backend.create_voice(large)
    assert len(got) == 1
    assert got[0] > 0


def test_unsent_upload_is_retried(script: Script, connect: Connect) -> None:
    # Bound, but not listening yet: connections are refused.
    later = socket.socket()
    later.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    later.bind(("127.0.0.1", 0))
    script.acts = [reply(201, RECORD), reply(201, RECORD)]

    def serve() -> None:
        with later:
            later.listen()
            connection, _ = later.accept()
            with connection:
                script.serve(connection)

    opening = threading.Timer(0.3, serve)
    opening.start()
    url = f"http://127.0.0.1:{later.getsockname()[1]}"
    with connect(url, retry=RetryPolicy(attempts=40, base_s=0.1, max_wait_s=0.1)) as backend:
        assert backend.create_voice(CREATE).id == "v1"
    opening.join(5)
    assert len(script.asked) == 1


def test_send_timeout(connect: Connect) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        large = CREATE.replace(voices=(bytes(30_000_000),))
        backend = connect(url, timeout=Timeouts(send=0.3), retry=QUICK)
        with backend, pytest.raises(ServiceTimeout, match="did not answer in time"):
            backend.create_voice(large)
        listener.setblocking(False)
        connection, _ = listener.accept()
        connection.close()
        with pytest.raises(BlockingIOError):
            listener.accept()
