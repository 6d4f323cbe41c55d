"""Whatever a service does, both ways to call it come to the same: bytes, errors, and what was asked how often."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest

import voicelab as vl
from tests.backends.conftest import (
    QUICK,
    RECORD,
    REQUEST,
    WAYS,
    Act,
    Script,
    chunked,
    hang_up,
    reply,
    reset,
    says,
    silent,
)
from voicelab.backend import SpeechStream
from voicelab.backends.caller import Timeouts
from voicelab.backends.service import AsyncServiceBackend, AsyncSpeechStream, ServiceBackend
from voicelab.call import Call
from voicelab.schema import ReferenceAudio, VoiceCreate

CREATE = VoiceCreate(title="Ada", voices=(b"RIFF", b"fLaC"), texts=("one", "two"), visibility="private")
CLONE = REQUEST.replace(references=(ReferenceAudio(audio=b"\x00\xff", text="said"),))
FIELDS = b'[{"loc":["body","text"],"type":"t","msg":"m","in":"body"}]'


def _speak(backend: Any) -> bytes:
    return b"".join(backend.synthesize(Call(REQUEST)))


def _clip(backend: Any) -> Any:
    clip = backend.synthesize(Call(REQUEST, model="s1")).clip()
    return clip.samples.tobytes(), clip.rate, clip.notes, clip.take.seed, clip.take.fingerprint


CALLS: dict[str, Callable[[Any], Any]] = {
    "speak": _speak,
    "clip": _clip,
    "clone": lambda backend: b"".join(backend.synthesize(Call(CLONE))),
    "seed": lambda backend: b"".join(backend.synthesize(Call(REQUEST, seed=7))),
    "create": lambda backend: backend.create_voice(CREATE),
    "get": lambda backend: backend.get_voice("v/1 ż"),
    "get nothing": lambda backend: backend.get_voice(""),
}


def _slices(connection: Any) -> None:
    message = CHUNKS + b"4\r\nabcd\r\n2\r\nef\r\n0\r\n\r\n"
    for number in range(len(message)):
        connection.sendall(message[number : number + 1])


OK = b"HTTP/1.1 200 OK\r\n"
CHUNKS = OK + b"Transfer-Encoding: chunked\r\n\r\n"
AUDIO = chunked(b"abcd", b"ef")
# What a service does, and what then becomes of speech: its audio or the error, and how often it was asked.
ANSWERS: dict[str, tuple[list[Act], bytes | type, int]] = {
    "audio": ([AUDIO], b"abcdef", 1),
    "audio of one byte a packet": ([_slices], b"abcdef", 1),
    "audio with a seed": ([reply(200, b"abcd", x_voicelab_seed="9")], b"abcd", 1),
    "audio without an end": ([says(OK + b"\r\nabcd")], b"abcd", 1),
    "cut in mid-chunk": ([chunked(b"abcd", end=False), AUDIO], vl.StreamTruncated, 1),
    "shorter than its length": ([says(OK + b"Content-Length: 100\r\n\r\nabcd"), AUDIO], vl.StreamTruncated, 1),
    "cut before audio": ([chunked(end=False), AUDIO], b"abcdef", 2),
    "no audio": ([chunked(), AUDIO], vl.ServiceError, 1),
    "nothing": ([reply(200), AUDIO], vl.ServiceError, 1),
    "a page": ([reply(200, b"<html>", content_type="text/html"), AUDIO], vl.ServiceError, 1),
    "a record": ([reply(201, RECORD)], vl.ServiceError, 1),
    "half a record": ([reply(200, RECORD[:50])], vl.ServiceError, 1),
    "400": ([reply(400), AUDIO], vl.ServiceError, 1),
    "401": ([reply(401, b'{"status":401,"message":"no key-1"}', x_request_id="r1"), AUDIO], vl.AuthenticationError, 1),
    "402": ([reply(402, b'{"status":402,"message":"pay"}', cf_ray="r2"), AUDIO], vl.PaymentRequired, 1),
    "404": ([reply(404, b"nothing here"), AUDIO], vl.NotFound, 1),
    "413": ([reply(413), AUDIO], vl.ServiceError, 1),
    "415": ([reply(415), AUDIO], vl.ServiceError, 1),
    "422": ([reply(422, FIELDS, X_Request_Id="r3"), AUDIO], vl.RequestInvalid, 1),
    "422 in words": ([reply(422, b"<h1>no</h1>"), AUDIO], vl.RequestInvalid, 1),
    "500": ([reply(500, b"oh"), AUDIO], vl.ServiceUnavailable, 1),
    "502, then 504": ([reply(502), reply(504), AUDIO], b"abcdef", 3),
    "503 twice": ([reply(503), reply(503, Retry_After="0"), AUDIO], b"abcdef", 3),
    "503 for ever": ([reply(503)] * 5, vl.ServiceUnavailable, 3),
    "503 for an hour": ([reply(503, Retry_After="3600"), AUDIO], vl.ServiceUnavailable, 1),
    "429, then gone": ([reply(429), hang_up, reply(201, RECORD)], vl.ServiceError, 3),
    "gone": ([hang_up, AUDIO], b"abcdef", 2),
    "reset": ([reset, AUDIO], b"abcdef", 2),
    "redirected": ([reply(307, Location="/elsewhere"), AUDIO], vl.ServiceError, 1),
    "rubbish": ([says(b"\x00\xff rubbish\r\n\r\n")] * 3, vl.ServiceUnavailable, 3),
    "silence": ([silent, AUDIO], vl.ServiceTimeout, 1),
    "silence after the head": ([says(CHUNKS, silent)], vl.ServiceTimeout, 1),
    "a stall": ([says(CHUNKS + b"4\r\nabcd\r\n", silent)], vl.ServiceTimeout, 1),
}
WAITED_FOR = {"silence", "silence after the head", "a stall"}


def _outcome(script: Script, way: str, call: str, answers: str) -> tuple[Any, list[bytes]]:
    script.acts, script.asked = list(ANSWERS[answers][0]), []
    timeout = Timeouts(first_audio=0.15, stall=0.15) if answers in WAITED_FOR else 5.0
    with WAYS[way](script.url, "key-1", retry=QUICK, timeout=timeout) as backend:
        try:
            came: Any = CALLS[call](backend)
        except vl.VoicelabError as error:
            came = (type(error), str(error), error.args if isinstance(error, vl.RequestInvalid) else None)
            if isinstance(error, vl.RequestInvalid | vl.ServiceError):
                came += (error.status, error.body, error.request_id, getattr(error, "partial", None))
    return came, list(script.asked)


@pytest.mark.parametrize("answers", ANSWERS)
@pytest.mark.parametrize("call", ["speak", "clip", "create", "get"])
def test_both_clients_have_the_same_results(script: Script, call: str, answers: str) -> None:
    blocking, looped = (_outcome(script, way, call, answers) for way in WAYS)
    assert looped == blocking
    came, asked = blocking
    _, outcome, tries = ANSWERS[answers]
    assert asked == asked[:1] * len(asked)
    if call == "create":  # whatever came back, or did not: no voice is made twice
        tries = 1
    if call == "get":  # half a record is asked for again, and half a clip is not
        assert len(asked) >= tries
    else:
        assert len(asked) == tries
    if call == "speak":
        assert outcome in (came, came[0])
        assert outcome is not vl.StreamTruncated or came[-1] == b"abcd"
    if call == "clip" and isinstance(came[0], bytes):
        assert ("truncation cannot be detected" in str(came[2])) == (answers == "audio without an end")


@pytest.mark.parametrize("call", ["clone", "seed", "get nothing"])
def test_both_clients_send_the_same_requests(script: Script, call: str) -> None:
    blocking, looped = (_outcome(script, way, call, "audio") for way in WAYS)
    assert looped == blocking


@pytest.mark.parametrize(("one", "other"), [(ServiceBackend, AsyncServiceBackend), (SpeechStream, AsyncSpeechStream)])
def test_both_clients_have_the_same_methods(one: type, other: type) -> None:
    renamed = {"close": "aclose", "aclose": "aclose"}

    def names(of: type) -> set[str]:
        return {renamed.get(name, name) for name in dir(of) if not name.startswith("_")}

    # Caches and recordings, which have a copy handed on, stand before backends of threads.
    assert names(one) - {"keep"} == names(other)
    mine, theirs = (inspect.signature(of).parameters for of in (one, other))
    # Another thread may close a SpeechStream, whose reader has to be woken; a task is woken by its loop.
    assert [name for name in mine if name != "on_close"] == list(theirs)
    for name in ("synthesize", "create_voice", "get_voice"):
        if hasattr(one, name):
            mine, theirs = (inspect.signature(getattr(of, name)).parameters for of in (one, other))
            assert mine == theirs
