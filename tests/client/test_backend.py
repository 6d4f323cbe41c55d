from __future__ import annotations

import asyncio
import logging
import pickle
import signal
import ssl
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import pytest

from tests.client.conftest import QUICK, REQUEST, Script, chunked, hang_up, reply
from tests.served import breaks, until
from tests.service.conftest import Start
from tests.tones import ToneBackend
from voicelab.backend import Backend
from voicelab.call import Call
from voicelab.client import RetryPolicy, ServiceBackend
from voicelab.client.caller import Caller
from voicelab.client.transport import BlockingTransport
from voicelab.errors import (
    AuthenticationError,
    Cancelled,
    NotFound,
    PaymentRequired,
    RequestInvalid,
    ServiceError,
    StreamTruncated,
    VoicelabError,
)
from voicelab.schema import TTSRequest

Connect = Callable[..., Any]
Serve = Callable[[ToneBackend], AbstractContextManager[Any]]


@pytest.fixture
def served(start: Start, connect: Connect) -> Serve:
    """A service in which a voice speaks, and a client of it with a key."""

    @contextmanager
    def serve(voice: ToneBackend) -> Iterator[Any]:
        service = start(voice)
        with connect(service.url, service.secret) as backend:
            yield backend

    return serve


# Against our own service


def test_it_is_a_backend(script: Script) -> None:
    with ServiceBackend(script.url) as backend:
        assert isinstance(backend, Backend)


def test_audio_arrives_as_it_is_made(served: Serve) -> None:
    go = threading.Event()
    voice = ToneBackend(lambda number: number < 2 or go.wait(10))
    with served(voice) as backend:
        stream = backend.synthesize(Call(REQUEST, seed=5))
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


def test_a_clip_knows_where_it_comes_from(served: Serve) -> None:
    with served(ToneBackend()) as backend:
        assert backend.capabilities.seed == "exact"
        assert backend.capabilities.device == "remote"
        assert [voice.id for voice in backend.capabilities.voices] == ["ada", "ben"]
        clip = backend.synthesize(Call(REQUEST, model="s1", seed=5)).clip()
    assert clip.rate == 24000
    assert len(clip) == 6000
    assert clip.take is not None
    assert (clip.take.model, clip.take.seed, clip.take.fingerprint) == ("s1", 5, "tones-1")


def test_closing_the_stream_cancels_the_work(served: Serve) -> None:
    voice = ToneBackend(lambda _: time.sleep(0.005))
    with served(voice) as backend:
        with backend.synthesize(Call(TTSRequest(text="x" * 5000, format="pcm"))) as stream:
            next(stream)
        until(lambda: voice.open == 0)
        assert len(voice.asked) == 1


@pytest.mark.parametrize("notes", [0, 1], ids=["an answer", "audio"])
def test_another_thread_can_close_a_stream_that_waits_for(served: Serve, notes: int) -> None:
    go = threading.Event()
    voice = ToneBackend(lambda number: number < notes or go.wait(10))
    with served(voice) as backend, ThreadPoolExecutor(1) as pool:
        stream = backend.synthesize(Call(REQUEST))  # the connection is that of the first question, and no new one
        for _ in range(notes):
            next(stream)
        reading = pool.submit(list, stream)
        until(lambda: voice.open == 1)
        time.sleep(0.1 * notes)
        before = time.monotonic()
        stream.close()
        with pytest.raises(Cancelled):
            reading.result(20)
        assert time.monotonic() - before < 2
        go.set()
        # The pool is none the worse for it.
        assert len(b"".join(backend.synthesize(Call(REQUEST)))) == 5 * 2400
        until(lambda: voice.open == 0)
        until(lambda: not any(thread.name == "voicelab-head" for thread in threading.enumerate()))


@pytest.mark.skipif(not hasattr(signal, "pthread_kill"), reason="no signal can be sent to a thread here")
@pytest.mark.parametrize("connect", [ServiceBackend], ids=["blocking"])  # on a loop an interrupt cancels the task
def test_an_interrupt_while_waiting_for_an_answer_ends_the_work_at_once(served: Serve) -> None:
    go = threading.Event()
    voice = ToneBackend(lambda _: go.wait(10))
    with served(voice) as backend:
        main = threading.get_ident()
        timer = threading.Timer(0.5, lambda: signal.pthread_kill(main, signal.SIGINT))
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            list(backend.synthesize(Call(REQUEST)))
        timer.join()
        until(lambda: voice.open == 0)
        go.set()


def test_closing_the_backend_ends_its_streams(served: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    go, cut = threading.Event(), BlockingTransport.cancel

    def linger(line: BlockingTransport) -> None:
        cut(line)
        if threading.current_thread() is not threading.main_thread():
            time.sleep(0.5)  # who was cut off asks again before all is closed

    monkeypatch.setattr(BlockingTransport, "cancel", linger)
    voice = ToneBackend(lambda number: number < 1 or go.wait(10))
    with served(voice) as backend:
        stream = backend.synthesize(Call(REQUEST))
        next(stream)
        threading.Timer(0.1, backend.close).start()
        before = time.monotonic()
        with pytest.raises(Cancelled):
            list(stream)
        assert time.monotonic() - before < 2
        go.set()
        with pytest.raises(ServiceError, match="closed"):
            list(backend.synthesize(Call(REQUEST)))


def test_errors_of_the_service_arrive_as_what_they_are(start: Start, connect: Connect) -> None:
    service = start()
    with connect(service.url, "vl_wrong") as backend, pytest.raises(AuthenticationError) as refused:
        list(backend.synthesize(Call(REQUEST)))
    assert refused.value.status == 401
    assert refused.value.request_id
    with connect(service.url) as backend, pytest.raises(AuthenticationError):
        list(backend.synthesize(Call(REQUEST)))
    with connect(service.url, service.keys.create("poor", credit=2).secret) as backend, pytest.raises(PaymentRequired):
        list(backend.synthesize(Call(REQUEST)))
    with connect(service.url, service.secret, retry=QUICK) as backend:
        with pytest.raises(RequestInvalid) as invalid:
            list(backend.synthesize(Call(REQUEST.replace(reference_id="nobody"))))
        assert invalid.value.errors[0].loc == ("body", "reference_id")
        with pytest.raises(NotFound):
            backend.get_voice("ada")


def test_an_engine_that_breaks_in_mid_audio_is_a_truncation(served: Serve) -> None:
    with served(ToneBackend(breaks(3))) as backend:
        with pytest.raises(StreamTruncated) as caught:
            backend.synthesize(Call(REQUEST)).clip()
        assert len(caught.value.partial) == 3 * 2400
        assert caught.value.status == 200
        assert caught.value.request_id


def test_many_threads_share_one_backend(served: Serve) -> None:
    with served(ToneBackend()) as backend, ThreadPoolExecutor(8) as pool:
        texts = [f"text {number}" for number in range(12)]
        alone = [b"".join(ToneBackend().synthesize(Call(TTSRequest(text=text)))) for text in texts]
        together = list(pool.map(lambda text: b"".join(backend.synthesize(Call(TTSRequest(text=text)))), texts))
    assert together == alone


def test_it_blocks_where_an_event_loop_runs_too(script: Script) -> None:
    # As in a notebook, whose cells run on a loop of their own.
    script.acts = [chunked(b"ab", b"cd"), chunked(b"ef", end=False)]

    async def cell() -> bytes:
        with ServiceBackend(script.url, retry=RetryPolicy(attempts=1)) as backend:
            whole = b"".join(backend.synthesize(Call(REQUEST)))
            with pytest.raises(StreamTruncated):
                backend.synthesize(Call(REQUEST)).clip()
            return whole

    assert asyncio.run(cell()) == b"abcd"


# Addresses and secrets


@pytest.mark.parametrize(
    ("given", "used"),
    [
        ("http://127.0.0.1:9/", "http://127.0.0.1:9"),
        (" https://voice.example/base/ ", "https://voice.example/base"),
        ("http://[::1]:9", "http://[::1]:9"),
    ],
)
def test_an_address_is_tidied(given: str, used: str, connect: Connect) -> None:
    with connect(given) as backend:
        assert backend.base_url == used
        assert repr(backend).endswith(f"ServiceBackend('{used}')")


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
def test_what_is_no_address_is_refused(url: str, connect: Connect) -> None:
    with pytest.raises(RequestInvalid, match="base_url"):
        connect(url)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("ALL_PROXY", "socks://user:secret@127.0.0.1:1080/"),
        ("ALL_PROXY", "socks5://user:secret@127.0.0.1:1080"),
        ("NO_PROXY", "localhost,fd00::/8"),
        ("SSL_CERT_FILE", "/nowhere/secret.pem"),
    ],
)
def test_an_environment_that_does_not_do_is_named(
    name: str, value: str, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv(name, value)
    with pytest.raises(RequestInvalid, match=f"base_url: .*{name}") as caught:
        connect("https://voice.example")
    assert "secret" not in str(caught.value)


def test_certificates_are_checked_wherever_there_are_any() -> None:
    # With no authority loaded, nobody would be believed.
    for url, wanted in (("https://voice.example", True), ("http://voice.example", ssl.CERT_REQUIRED)):
        verify = Caller(url).http["verify"]
        assert (verify if verify is True else verify.verify_mode) == wanted
        assert verify is True or verify.check_hostname


@pytest.mark.parametrize("key", ["", " ", "a b", "a\nb", "clé", "a\x00"])
def test_a_key_that_no_header_can_carry_is_refused_without_repeating_it(key: str, connect: Connect) -> None:
    with pytest.raises(RequestInvalid) as caught:
        connect("http://127.0.0.1:9", key + "-secret" if key.strip() else key)
    assert "-secret" not in f"{caught.value!r} {caught.value}"


def test_a_closed_backend_says_so(script: Script, connect: Connect) -> None:
    with connect(script.url) as backend:
        backend.close()
        backend.close()
        with pytest.raises(ServiceError, match="closed"):
            list(backend.synthesize(Call(REQUEST)))


def test_the_key_is_shown_nowhere(script: Script, caplog: pytest.LogCaptureFixture, connect: Connect) -> None:
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
    with connect(script.url, canary, retry=RetryPolicy(attempts=1)) as backend:
        shown.append(f"{backend!r} {backend.capabilities!r} {vars(backend)!r}")
        for _ in range(5):
            shown.extend(_all_that_shows(backend))
    assert len(shown) > 15
    assert any("truncat" in text.lower() for text in shown)
    assert b"Bearer " + canary.encode() in script.asked[0]
    for text in (*shown, caplog.text):
        assert canary not in text


def _all_that_shows(backend: Any) -> list[str]:
    # In a function of its own, because local variables are shown too, and the test knows the key.
    try:
        return [repr(backend.synthesize(Call(REQUEST)).clip())]
    except VoicelabError as error:
        captured = traceback.TracebackException.from_exception(error, capture_locals=True)
        args = repr(pickle.dumps(error.args))
        return [repr(error), str(error), repr(vars(error)), args, "".join(captured.format())]
