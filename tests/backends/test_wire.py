from __future__ import annotations

import json
from typing import Any

import pytest

from voicelab.backends import wire
from voicelab.backends.wire import Answer
from voicelab.call import VoicePreset
from voicelab.capabilities import Capabilities, FieldSupport, Price
from voicelab.errors import RequestInvalid, ServiceError


def answer(status: int, body: object, **headers: str) -> Answer:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    return Answer(status, {name.replace("_", "-"): value for name, value in headers.items()}, content)


@pytest.mark.parametrize("body", [b"", b"\xff", b"[]", b'{"_id": 1}', b"<html>", b"[" * 100_000])
def test_malformed_voice_record_is_an_error(body: bytes) -> None:
    with pytest.raises(ServiceError) as caught:
        wire.voice_of(answer(200, body, x_request_id="r1"))
    assert (caught.value.status, caught.value.body, caught.value.request_id) == (200, body, "r1")


def test_errors_state_the_time_of_a_retry() -> None:
    error = wire.failure(answer(429, {"message": "at most 2/min"}, retry_after="58"))
    assert str(error) == "the service answered 429 (Retry-After: 58 s): at most 2/min"


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"status": 422, "message": "no such voice"}, "no such voice"),
        ({"detail": [{"loc": ["body"]}]}, "loc"),
        ([], ""),
        ([{"loc": "body"}, 1], "loc"),
        (b"", ""),
        (b"\xff\xfe", ""),
        (b"<!doctype html><h1>Unprocessable</h1>", "Unprocessable"),
        (b'"a string"', "a string"),
        ([{"loc": []}, []], "loc"),
        ([{"loc": ["body", "text"]}, "x"], "loc"),
        ({"message": {"text": "deep"}}, "deep"),
        (b"[" * 50_000, "["),
        (b'{"loc": NaN', "NaN"),
    ],
)
def test_422_in_another_format_applies_to_the_body(body: object, said: str) -> None:
    error = wire.failure(answer(422, body))
    assert isinstance(error, RequestInvalid)
    (item,) = error.errors
    assert item.loc == ("body",)
    assert said in item.msg
    assert error.status == 422
    assert error.body is not None


@pytest.mark.parametrize(
    "item",
    [
        {"loc": ["body", "text"], "in": "elsewhere"},
        {"loc": ["body", 3, None, True, ["x"]], "type": 7, "msg": None, "ctx": [1], "in": ["body"]},
        {"loc": ["text"], "type": "t", "msg": "m", "ctx": {"a": {"b": 1}}, "in": {}},
    ],
)
def test_422_with_unusual_values_has_its_fields(item: dict[str, Any]) -> None:
    error = wire.failure(answer(422, [item]))
    assert isinstance(error, RequestInvalid)
    (found,) = error.errors
    assert found.loc == tuple(map(str, item["loc"]))
    assert isinstance(found.msg, str)
    assert isinstance(found.type, str)
    assert found.ctx == (json.dumps(item["ctx"]) if "ctx" in item else None)
    assert found.in_ is None


@pytest.mark.parametrize(
    "name", ["x-request-id", "request-id", "x-correlation-id", "x-amzn-requestid", "x-amz-request-id", "cf-ray"]
)
@pytest.mark.parametrize("status", [401, 422, 503])
def test_request_id(name: str, status: int) -> None:
    error = wire.failure(Answer(status, {name: "r7"}, b""))
    assert isinstance(error, RequestInvalid | ServiceError)
    assert error.request_id == "r7"
    assert wire.Answer(status, {}, b"").request_id is None


@pytest.mark.parametrize(
    "body", [b"<html>\x1b[31mbad\x00 gateway</html>", b"x" * 100_000, b'{"message": 7}', b"\xff" * 50]
)
def test_messages_are_truncated_and_sanitized(body: bytes) -> None:
    error = wire.failure(answer(502, body))
    assert str(error).isprintable()
    assert len(str(error)) < 400


@pytest.mark.parametrize("kind", ["text/html; charset=utf-8", "application/json; charset=utf-8", "TEXT/plain"])
def test_text_and_json_are_not_audio(kind: str) -> None:
    page = answer(200, b"<html>", content_type=kind, x_request_id="r1")
    assert not wire.is_audio(page)
    error = wire.no_audio(page)
    assert "instead of audio" in str(error)
    assert (error.status, error.body, error.request_id) == (200, b"<html>", "r1")


def test_declared_capabilities() -> None:
    told = {
        "name": "local", "models": ["s2-pro", "s9"], "device": "cuda:0", "seed": "exact", "fingerprint": "sha256:1",
        "languages": ["en"], "voices": [{"id": "ada", "title": "Ada"}, {"id": ""}, 3], "max_text": 20000, "one_model": False,
        "prices": [{"amount": 15, "currency": "", "unit": "bytes", "per": 1000000, "model": ""}], "later": "fields",
        "fields": [{"field": "temperature", "ignored": "", "bounds": [0, 0.5], "values": []}, {"field": "no such"}, 3],
    }  # fmt: skip
    assert wire.capabilities_of(answer(200, {"status": "ready", "backend": told}), "http://h") == Capabilities(
        "local", ("s2-pro",), "remote", "exact", "sha256:1", languages=("en",), voices=(VoicePreset("ada", "Ada"),),
        max_text=20000, prices=(Price(15.0),), one_model=False,
        fields=(FieldSupport("temperature", bounds=(0.0, 0.5)),), open_ended=True,
    )  # fmt: skip


RUBBISH: list[Any] = [None, 7, "x", [], {}, [[]], {"a": 1}, True, -1, 1.5]


@pytest.mark.parametrize("value", RUBBISH)
def test_malformed_health_gives_default_capabilities(value: object) -> None:
    names = "name models seed fingerprint languages voices max_text prices fields one_model".split()
    for body in (value, {"backend": value}, *({"backend": {name: value}} for name in names)):
        found = wire.capabilities_of(answer(200, body), "http://h")
        assert found.device == "remote"
        assert found.seed == "none"
    assert wire.capabilities_of(answer(404, {"backend": {"seed": "exact"}}), "http://h").seed == "none"
