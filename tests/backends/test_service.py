from __future__ import annotations

import asyncio
import json
import logging
import pickle
import signal
import ssl
import threading
import time
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import voicelab as vl
from tests.backends.conftest import RECORD, REQUEST, Script, chunked, hang_up, reply
from tests.served import until
from tests.service.conftest import Start
from tests.tones import ToneBackend
from voicelab.audio.encoders import wav_header
from voicelab.audio.formats import encode
from voicelab.backends.caller import BlockingTransport, Caller, RetryPolicy
from voicelab.backends.service import ServiceBackend
from voicelab.call import Call, call_of, call_record
from voicelab.errors import Cancelled, RequestInvalid, ServiceError, StreamTruncated, VoicelabError

Connect = Callable[..., Any]
Serve = Callable[[ToneBackend], Any]


@pytest.fixture
def served(start: Start, connect: Connect) -> Serve:
    """Serve a voice, and return a client of it with a key."""

    def serve(voice: ToneBackend) -> Any:
        service = start(voice)
        return connect(service.url, service.secret)

    return serve


@pytest.mark.parametrize("notes", [0, 1], ids=["an answer", "audio"])
def test_stream_can_be_closed_from_another_thread(served: Serve, notes: int) -> None:
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
def test_interrupt_while_waiting_for_headers(served: Serve) -> None:
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


def test_closing_the_backend_cancels_its_streams(served: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_blocking_calls_under_a_running_event_loop(script: Script) -> None:
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
def test_base_url_is_normalized(given: str, used: str, connect: Connect) -> None:
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
def test_invalid_address_or_upload_is_rejected(url: str, connect: Connect) -> None:
    with pytest.raises(RequestInvalid, match="base_url"):
        connect(url)
    with pytest.raises(RequestInvalid, match="upload: must be 'msgpack' or 'multipart', got "):
        connect("http://127.0.0.1:9", upload="carrier pigeon")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("ALL_PROXY", "socks://user:secret@127.0.0.1:1080/"),
        ("ALL_PROXY", "socks5://user:secret@127.0.0.1:1080"),
        ("NO_PROXY", "localhost,fd00::/8"),
        ("SSL_CERT_FILE", "/nowhere/secret.pem"),
    ],
)
def test_unusable_environment_variables_are_named(
    name: str, value: str, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv(name, value)
    with pytest.raises(RequestInvalid, match=f"base_url: .*{name}") as caught:
        connect("https://voice.example")
    assert "secret" not in str(caught.value)


def test_certificates_are_verified() -> None:
    # With no authority loaded, nobody would be believed.
    for url, wanted in (("https://voice.example", True), ("http://voice.example", ssl.CERT_REQUIRED)):
        verify = Caller(url).http["verify"]
        assert (verify if verify is True else verify.verify_mode) == wanted
        assert verify is True or verify.check_hostname


@pytest.mark.parametrize("key", ["", " ", "a b", "a\nb", "clé", "a\x00"])
def test_invalid_key_is_rejected_without_showing_it(key: str, connect: Connect) -> None:
    with pytest.raises(RequestInvalid) as caught:
        connect("http://127.0.0.1:9", key + "-secret" if key.strip() else key)
    assert "-secret" not in f"{caught.value!r} {caught.value}"


def test_key_is_in_no_repr(script: Script, caplog: pytest.LogCaptureFixture, connect: Connect) -> None:
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
    assert script.probes
    assert canary.encode() not in b"".join(script.probes)  # everybody may ask that
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


def body(asked: bytes) -> dict[str, Any]:
    parsed: dict[str, Any] = json.loads(asked.partition(b"\r\n\r\n")[2])
    return parsed


def test_the_service_judges_model_names_and_extra_fields(script: Script) -> None:
    wav = encode(np.zeros(800, np.float32), "wav", 44_100, 44_100)
    script.acts = [reply(200, wav, content_type="audio/wav")] * 8
    with vl.connect(script.url, api_key="k", model="s2.1-pro-free", extra={"features": ["quality-guard"]}) as lab:
        take = lab.speak("Hello.", extra={"opus_bitrate": 24_000, "reference_id": ["a", "b"], "latency": None}).take
        asked = script.asked[-1]
        assert b"model: s2.1-pro-free\r\n" in asked
        sent = body(asked)
        assert (sent["features"], sent["opus_bitrate"], sent["reference_id"]) == (["quality-guard"], 24_000, ["a", "b"])
        assert "latency" not in sent
        assert take.notes[:3] == (  # type: ignore[union-attr]
            "The service decides on model 's2.1-pro-free', which is not one of s1, s2-pro.",
            "Sent unchecked, and possibly ignored by the service: features, opus_bitrate, reference_id.",
            "Not sent: latency.",
        )
        assert call_of(json.loads(json.dumps(call_record(take.call))), bytes) == take.call  # type: ignore[arg-type, union-attr]
        call = take.call  # type: ignore[union-attr]
        assert eval(call.code(), {"lab": lab}).take.call == call  # noqa: S307 - the code of the call
        lab.sweep("Hello.", **{"extra.normalize_loudness": [True, False]}).run(concurrency=1)  # type: ignore[arg-type]
        assert sorted(body(asked)["normalize_loudness"] for asked in script.asked[-2:]) == [False, True]
        script.acts = [reply(422, b'[{"loc":["body","features"],"type":"enum","msg":"no such feature"}]')]
        with pytest.raises(RequestInvalid, match=r"^features: no such feature$"):
            lab.speak("Hello.")


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        ({"text": "x"}, "extra.text: must be passed as text=, got it in extra"),
        (["a"], "extra: must be a mapping from names to values"),
        ({"a": b"x"}, "extra: must have JSON values"),
        ({"a": float("nan")}, "extra: must have JSON values"),
    ],
)
def test_invalid_extra_fields(script: Script, extra: Any, message: str) -> None:
    with vl.connect(script.url) as lab, pytest.raises(RequestInvalid, match=message):
        lab.speak("Hello.", extra=extra)


def test_other_backends_take_no_extra_fields() -> None:
    with pytest.raises(RequestInvalid, match="extra: the backend 'tones' accepts no extra fields, got 'a'"):
        vl.Lab(ToneBackend()).speak("Hello.", extra={"a": 1})


def test_the_voices_of_the_caller_are_listed_where_the_service_has_a_list(script: Script) -> None:
    listed = json.dumps({"total": 2, "items": [json.loads(RECORD), {"title": "broken"}]}).encode()
    script.acts = [reply(200, listed, content_type="application/json"), reply(404), reply(405), reply(401)]
    with vl.connect(script.url, api_key="k") as lab:
        assert [(voice.id, voice.title) for voice in lab.voices] == [("v1", json.loads(RECORD)["title"])]
        assert script.asked[-1].startswith(b"GET /model?self=true")
        assert (len(lab.voices), len(lab.voices)) == (0, 0)
        with pytest.raises(vl.AuthenticationError):
            lab.voices  # noqa: B018 - the request is what is tested


@pytest.mark.parametrize(
    ("kind", "content", "message"),
    [
        ("application/json", b'{"error": "no credit"}', "sent application/json instead of audio"),
        ("text/html", b"<html>", "sent text/html instead of audio"),
        ("audio/wav", b"", "the service sent no audio"),
        ("audio/wav", wav_header(44_100, 0), "the service sent a WAV file without samples"),
        ("audio/wav", wav_header(44_100), "the service sent a WAV file without samples"),
    ],
)
def test_a_success_without_audio_is_an_error(script: Script, kind: str, content: bytes, message: str) -> None:
    script.acts = [reply(200, content, content_type=kind)]
    with vl.connect(script.url) as lab, pytest.raises(vl.ServiceError, match=message):
        lab.speak("Hello.")
