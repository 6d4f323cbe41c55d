from __future__ import annotations

import logging
import pickle
import socket
import threading
import time
import traceback
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.client.conftest import Script, chunked, hang_up, reply, reset
from tests.tones import ToneBackend
from voicelab.backend import Backend
from voicelab.client import RetryPolicy, ServiceBackend, Timeouts
from voicelab.errors import (
    AuthenticationError,
    Cancelled,
    EngineError,
    NotFound,
    PaymentRequired,
    RequestInvalid,
    ServiceError,
    ServiceTimeout,
    ServiceUnavailable,
    StreamTruncated,
    VoicelabError,
)
from voicelab.schema import TTSRequest, VoiceCreate
from voicelab.service.keys import KeyStore
from voicelab.service.run import running

REQUEST = TTSRequest(text="hello", format="pcm", sample_rate=24000)
QUICK = RetryPolicy(attempts=3, base_s=0.001)
CREATE = VoiceCreate(title="Ada", voices=(b"RIFF",), visibility="private")
RECORD = (
    b'{"_id":"v1","type":"tts","title":"Ada","state":"trained","created_at":"2026-01-01T00:00:00Z",'
    b'"updated_at":"2026-01-01T00:00:00Z","visibility":"private","author":{"_id":"a"}}'
)


@contextmanager
def served(folder: Path, voice: ToneBackend) -> Iterator[ServiceBackend]:
    """A service in which ``voice`` speaks, and a client of it with a key."""
    with (
        KeyStore(folder / "k") as keys,
        running(voice, keys=keys) as url,
        ServiceBackend(url, keys.create("a").secret) as backend,
    ):
        yield backend


def speak(script: Script, retry: RetryPolicy = QUICK, timeout: Timeouts | float | None = 5.0) -> bytes:
    with ServiceBackend(script.url, "key-1", retry=retry, timeout=timeout) as backend:
        return b"".join(backend.synthesize(REQUEST))


# Against our own service


def test_it_is_a_backend(script: Script) -> None:
    with ServiceBackend(script.url) as backend:
        assert isinstance(backend, Backend)


def test_audio_arrives_as_it_is_made(tmp_path: Path) -> None:
    go = threading.Event()
    voice = ToneBackend(lambda number: number < 2 or go.wait(10))
    with served(tmp_path, voice) as backend:
        stream = backend.synthesize(REQUEST, seed=5)
        first = next(stream)
        got = len(first)
        while got < 2 * 2400:
            got += len(next(stream))
        assert got == 2 * 2400
        go.set()
        got += sum(map(len, stream))
        assert got == 5 * 2400
        assert stream.arrivals[0][0] < stream.arrivals[-1][0]
        assert voice.asked == [(REQUEST, "s2-pro", 5)]


def test_a_clip_knows_where_it_comes_from(tmp_path: Path) -> None:
    with served(tmp_path, ToneBackend()) as backend:
        assert backend.capabilities.seed == "exact"
        assert backend.capabilities.device == "remote"
        assert [voice.id for voice in backend.capabilities.voices] == ["ada", "ben"]
        clip = backend.synthesize(REQUEST, model="s1", seed=5).clip()
    assert clip.rate == 24000
    assert len(clip) == 6000
    assert clip.provenance is not None
    assert (clip.provenance.model, clip.provenance.seed, clip.provenance.fingerprint) == ("s1", 5, "tones-1")


def test_closing_the_stream_cancels_the_work(tmp_path: Path) -> None:
    voice = ToneBackend(lambda _: time.sleep(0.005))
    with served(tmp_path, voice) as backend:
        with backend.synthesize(TTSRequest(text="x" * 5000, format="pcm")) as stream:
            next(stream)
        _until(lambda: voice.open == 0)
        assert len(voice.asked) == 1


def test_another_thread_can_close_a_stream_that_waits_for_audio(tmp_path: Path) -> None:
    go = threading.Event()
    voice = ToneBackend(lambda number: number < 1 or go.wait(10))
    with served(tmp_path, voice) as backend:
        stream = backend.synthesize(REQUEST)
        next(stream)
        threading.Timer(0.1, stream.close).start()
        before = time.monotonic()
        with pytest.raises(Cancelled):
            list(stream)
        assert time.monotonic() - before < 2
        go.set()
        # The pool is none the worse for it.
        assert len(b"".join(backend.synthesize(REQUEST))) == 5 * 2400


def test_errors_of_the_service_arrive_as_what_they_are(tmp_path: Path) -> None:
    voice = ToneBackend()
    with KeyStore(tmp_path / "k") as keys, running(voice, keys=keys) as url:
        with ServiceBackend(url, "vl_wrong") as backend, pytest.raises(AuthenticationError) as refused:
            list(backend.synthesize(REQUEST))
        assert refused.value.status == 401
        assert refused.value.request_id
        with ServiceBackend(url) as backend, pytest.raises(AuthenticationError):
            list(backend.synthesize(REQUEST))
        with ServiceBackend(url, keys.create("poor", credit=2).secret) as backend, pytest.raises(PaymentRequired):
            list(backend.synthesize(REQUEST))
        with ServiceBackend(url, keys.create("a").secret, retry=QUICK) as backend:
            with pytest.raises(RequestInvalid) as invalid:
                list(backend.synthesize(REQUEST.replace(reference_id="nobody")))
            assert invalid.value.errors[0].loc == ("body", "reference_id")
            with pytest.raises(NotFound):
                backend.get_voice("ada")


def test_an_engine_that_breaks_in_mid_audio_is_a_truncation(tmp_path: Path) -> None:
    def step(number: int) -> None:
        if number == 3:
            raise EngineError("broke")

    with served(tmp_path, ToneBackend(step)) as backend:
        with pytest.raises(StreamTruncated) as caught:
            backend.synthesize(REQUEST).clip()
        assert len(caught.value.partial) == 3 * 2400
        assert caught.value.status == 200
        assert caught.value.request_id


def test_many_threads_share_one_backend(tmp_path: Path) -> None:
    with served(tmp_path, ToneBackend()) as backend, ThreadPoolExecutor(8) as pool:
        texts = [f"text {number}" for number in range(40)]
        alone = [b"".join(ToneBackend().synthesize(TTSRequest(text=text))) for text in texts]
        together = list(pool.map(lambda text: b"".join(backend.synthesize(TTSRequest(text=text))), texts))
    assert together == alone


# Against a service that does what it likes


def test_any_service_of_the_interface_will_do(script: Script) -> None:
    script.acts = [chunked(b"ab", b"cd")]
    assert speak(script) == b"abcd"
    head = script.asked[0].split(b"\r\n\r\n")[0].lower()
    assert b"authorization: bearer key-1" in head
    assert b"model: s2-pro" in head
    assert b"x-voicelab" not in head


def test_a_service_that_declares_nothing_takes_no_seed(script: Script) -> None:
    with ServiceBackend(script.url) as backend:
        assert backend.capabilities.seed == "none"
        assert backend.capabilities.fingerprint == script.url
        with pytest.raises(RequestInvalid, match="seed"):
            backend.synthesize(REQUEST, seed=1)
    assert script.asked == []


def test_the_key_is_not_sent_where_it_is_not_needed(script: Script) -> None:
    seen: list[bytes] = []
    serve = script.serve

    def listen(connection: socket.socket) -> None:
        seen.append(connection.recv(65536, socket.MSG_PEEK))
        serve(connection)

    script.serve = listen  # type: ignore[method-assign]
    with ServiceBackend(script.url, "key-1") as backend:
        assert backend.capabilities.seed == "none"
    assert seen
    assert b"key-1" not in b"".join(seen)


def test_a_seed_that_the_service_drew_is_kept(script: Script) -> None:
    seeds = ["123", "x", "-1", "9" * 50]
    for seed in seeds:
        script.acts.append(reply(200, b"ab", x_voicelab_seed=seed))
    with ServiceBackend(script.url) as backend:
        found = [backend.synthesize(REQUEST).clip().provenance for _ in seeds]
    assert [provenance.seed for provenance in found if provenance is not None] == [123, None, None, None]


def test_a_service_that_is_not_there_yet_is_asked_again(script: Script) -> None:
    healthy = b'{"backend":{"seed":"exact"}}'
    with ServiceBackend(script.url) as backend:
        script.health = b""  # no answer: the connection is closed
        script.serve, serve = (lambda connection: connection.close()), script.serve  # type: ignore[method-assign]
        first = backend.capabilities
        assert first.seed == "none"
        script.serve = serve  # type: ignore[method-assign]
        script.health = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(healthy), healthy)
        assert backend.capabilities.seed == "exact"


def test_audio_that_breaks_off_is_an_error_with_what_arrived(script: Script) -> None:
    script.acts = [chunked(b"ab", b"cd", end=False), chunked(b"never asked")]
    with pytest.raises(StreamTruncated) as caught:
        speak(script)
    assert caught.value.partial == b"abcd"
    assert len(script.asked) == 1


def test_a_body_shorter_than_its_length_is_truncated(script: Script) -> None:
    def act(connection: socket.socket) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nabc")
        hang_up(connection)

    script.acts = [act]
    with pytest.raises(StreamTruncated) as caught:
        speak(script)
    assert caught.value.partial == b"abc"


def test_a_reset_in_mid_audio_is_truncated(script: Script) -> None:
    def act(connection: socket.socket) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n")
        time.sleep(0.2)
        reset(connection)

    script.acts = [act]
    with pytest.raises(StreamTruncated) as caught:
        speak(script)
    assert caught.value.partial == b"abc"


@pytest.mark.parametrize(
    "failure", [reply(503), reply(429), reply(502), reply(504), hang_up, reset, chunked(end=False)]
)
def test_what_delivered_nothing_is_tried_again(script: Script, failure: object) -> None:
    script.acts = [failure, failure, chunked(b"ab")]  # type: ignore[list-item]
    assert speak(script) == b"ab"
    assert len(script.asked) == 3
    assert len(set(script.asked)) == 1


@pytest.mark.parametrize(
    ("failure", "kind"),
    [
        (reply(503), ServiceUnavailable),
        (hang_up, ServiceUnavailable),
        (chunked(end=False), StreamTruncated),
    ],
)
def test_trying_has_an_end(script: Script, failure: object, kind: type[Exception]) -> None:
    script.acts = [failure] * 5  # type: ignore[list-item]
    with pytest.raises(kind):
        speak(script)
    assert len(script.asked) == 3


@pytest.mark.parametrize("status", [400, 401, 402, 404, 413, 415, 422, 500])
def test_what_will_not_change_is_not_tried_again(script: Script, status: int) -> None:
    script.acts = [reply(status, b"{}"), chunked(b"ab")]
    with pytest.raises(VoicelabError):
        speak(script)
    assert len(script.asked) == 1


def test_the_service_says_when_to_come_back(script: Script) -> None:
    script.acts = [reply(503, Retry_After="1"), chunked(b"ab")]
    before = time.monotonic()
    assert speak(script) == b"ab"
    assert 1.0 <= time.monotonic() - before < 3


def test_who_is_told_to_wait_too_long_gives_up_at_once(script: Script) -> None:
    script.acts = [reply(503, Retry_After="3600"), chunked(b"ab")]
    before = time.monotonic()
    with pytest.raises(ServiceUnavailable):
        speak(script)
    assert time.monotonic() - before < 1


def test_a_closed_stream_does_not_try_again(script: Script) -> None:
    script.acts = [reply(503, Retry_After="10"), chunked(b"ab")]
    with ServiceBackend(script.url, retry=RetryPolicy(longest_s=20)) as backend:
        stream = backend.synthesize(REQUEST)
        threading.Timer(0.2, stream.close).start()
        before = time.monotonic()
        with pytest.raises(Cancelled):
            list(stream)
    assert time.monotonic() - before < 3
    assert len(script.asked) == 1


def test_no_answer_in_time_is_a_timeout_and_not_tried_again(script: Script) -> None:
    script.acts = [lambda _: time.sleep(1.0), chunked(b"ab")]
    with pytest.raises(ServiceTimeout):
        speak(script, timeout=Timeouts(first_audio=0.2))
    assert len(script.asked) == 1


def test_a_stall_in_mid_audio_is_a_timeout(script: Script) -> None:
    def act(connection: socket.socket) -> None:
        time.sleep(0.5)  # longer than the stall: the first audio may take its time
        connection.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n")
        time.sleep(1.0)

    script.acts = [act]
    with ServiceBackend(script.url, timeout=Timeouts(first_audio=5, stall=0.2)) as backend:
        stream = backend.synthesize(REQUEST)
        assert next(stream) == b"abc"
        with pytest.raises(ServiceTimeout, match=r"0\.2 s"):
            next(stream)


def test_a_refused_connection_is_unavailability() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
    with ServiceBackend(url, retry=QUICK) as backend, pytest.raises(ServiceUnavailable, match="cannot be reached"):
        list(backend.synthesize(REQUEST))


@pytest.mark.parametrize(
    "answer",
    [
        chunked(),
        reply(200, b""),
        reply(200, b"<html>", content_type="text/html"),
        reply(200, b"{}", content_type="application/json"),
    ],
)
def test_an_answer_without_audio_is_an_error(script: Script, answer: object) -> None:
    script.acts = [answer]  # type: ignore[list-item]
    with pytest.raises(ServiceError):
        speak(script)


def test_rubbish_instead_of_http_is_an_error(script: Script) -> None:
    def act(connection: socket.socket) -> None:
        connection.sendall(b"\x00\xff rubbish\r\n\r\n")
        hang_up(connection)

    script.acts = [act] * 3
    with pytest.raises(ServiceUnavailable):
        speak(script)


def test_an_idle_connection_that_the_service_closed_is_replaced(script: Script) -> None:
    def last(connection: socket.socket) -> None:
        chunked(b"ab")(connection)
        hang_up(connection)

    script.acts = [last, chunked(b"cd")]
    with ServiceBackend(script.url, retry=QUICK) as backend:
        assert b"".join(backend.synthesize(REQUEST)) == b"ab"
        assert b"".join(backend.synthesize(REQUEST)) == b"cd"


# Voices


def test_voices_are_made_and_found(script: Script) -> None:
    script.acts = [reply(201, RECORD), reply(200, RECORD)]
    with ServiceBackend(script.url, "key-1") as backend:
        assert backend.create_voice(CREATE).id == "v1"
        assert backend.get_voice("a/b").title == "Ada"
    assert script.asked[0].startswith(b"POST /model HTTP/1.1")
    assert script.asked[1].startswith(b"GET /model/a%2Fb HTTP/1.1")


@pytest.mark.parametrize("failure", [reply(503), reply(502), hang_up, reset, reply(429)])
def test_a_voice_is_never_made_twice(script: Script, failure: object) -> None:
    script.acts = [failure, reply(201, RECORD)]  # type: ignore[list-item]
    with ServiceBackend(script.url, retry=QUICK) as backend, pytest.raises(ServiceUnavailable):
        backend.create_voice(CREATE)
    assert len(script.asked) == 1


def test_a_voice_is_looked_up_again(script: Script) -> None:
    script.acts = [reply(503), hang_up, reply(200, RECORD)]
    with ServiceBackend(script.url, retry=QUICK) as backend:
        assert backend.get_voice("v1").id == "v1"


# Addresses and secrets


@pytest.mark.parametrize(
    ("given", "used"),
    [
        ("http://127.0.0.1:9/", "http://127.0.0.1:9"),
        (" https://voice.example/base/ ", "https://voice.example/base"),
        ("http://[::1]:9", "http://[::1]:9"),
    ],
)
def test_an_address_is_tidied(given: str, used: str) -> None:
    with ServiceBackend(given) as backend:
        assert backend.base_url == used
        assert repr(backend) == f"ServiceBackend('{used}')"


@pytest.mark.parametrize(
    "url",
    [
        "",
        "voice.example",
        "ftp://voice.example",
        "http://",
        "https://u:p@h",
        "https://h?key=1",
        "http://h:x",
        "http://h#f",
    ],
)
def test_what_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(RequestInvalid, match="base_url"):
        ServiceBackend(url)


@pytest.mark.parametrize("key", ["", " ", "a b", "a\nb", "clé", "a\x00"])
def test_a_key_that_no_header_can_carry_is_refused_without_repeating_it(key: str) -> None:
    with pytest.raises(RequestInvalid) as caught:
        ServiceBackend("http://127.0.0.1:9", key + "-secret" if key.strip() else key)
    assert "-secret" not in f"{caught.value!r} {caught.value}"


def test_a_closed_backend_says_so(script: Script) -> None:
    backend = ServiceBackend(script.url)
    backend.close()
    backend.close()
    with pytest.raises(ServiceError, match="closed"):
        list(backend.synthesize(REQUEST))


def test_the_key_is_shown_nowhere(script: Script, caplog: pytest.LogCaptureFixture) -> None:
    canary = "vl_canary0123456789"
    caplog.set_level(logging.DEBUG)
    shown: list[str] = []
    script.acts = [
        chunked(b"ab"),
        chunked(b"ab", end=False),
        reply(401, b'{"status":401,"message":"bad key vl_canary0123456789"}'),
        reply(500, b"vl_canary0123456789"),
        hang_up,
    ]
    with ServiceBackend(script.url, canary, retry=RetryPolicy(attempts=1)) as backend:
        shown.append(f"{backend!r} {backend.capabilities!r} {vars(backend)!r}")
        for _ in range(5):
            shown.extend(_all_that_shows(backend))
    assert len(shown) > 15
    assert any("truncat" in text.lower() for text in shown)
    assert b"Bearer " + canary.encode() in script.asked[0]
    for text in (*shown, caplog.text):
        assert canary not in text


def _all_that_shows(backend: ServiceBackend) -> list[str]:
    # In a function of its own, because local variables are shown too, and the test knows the key.
    try:
        return [repr(backend.synthesize(REQUEST).clip())]
    except VoicelabError as error:
        captured = traceback.TracebackException.from_exception(error, capture_locals=True)
        args = repr(pickle.dumps(error.args))
        return [repr(error), str(error), repr(vars(error)), args, "".join(captured.format())]


def _until(true: object) -> None:
    assert callable(true)
    end = time.monotonic() + 5
    while not true():
        assert time.monotonic() < end
        time.sleep(0.005)
