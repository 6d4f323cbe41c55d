from __future__ import annotations

import json
import socket
import time
from datetime import timedelta
from typing import Any

import httpx
import msgpack  # type: ignore[import-untyped]  # it publishes no types
import pytest

from tests.service.conftest import Service, Start
from tests.tones import VOICES, ToneBackend
from voicelab.audio.formats import decode
from voicelab.errors import RequestInvalid
from voicelab.schema import FORMATS, MEDIA_TYPES, RATES


def fields(answer: httpx.Response) -> list[str]:
    """Check that an answer is a 422 to the letter of part 7, and return the fields that it names."""
    assert answer.status_code == 422
    assert answer.headers["content-type"] == "application/json"
    items = answer.json()
    assert isinstance(items, list)
    assert items
    for item in items:
        assert set(item) <= {"loc", "type", "msg", "ctx", "in"}
        assert isinstance(item["loc"], list)
        assert all(isinstance(part, str) for part in item["loc"])
        assert isinstance(item["type"], str)
        assert isinstance(item["msg"], str)
        assert isinstance(item.get("ctx", ""), str)
        assert item.get("in", "body") in {"path", "query", "header", "cookie", "body"}
    return [".".join(item["loc"]) for item in items]


def message(answer: httpx.Response, status: int) -> str:
    """Check that an answer is ``{status, message}``, and return the message."""
    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/json"
    body = answer.json()
    assert set(body) == {"status", "message"}
    assert body["status"] == status
    assert isinstance(body["message"], str)
    return str(body["message"])


@pytest.mark.parametrize("format", FORMATS)
def test_audio_is_chunked_and_of_its_media_type(service: Service, format: Any) -> None:
    for rate in RATES[format]:
        answer = service.http.post("/v1/tts", json={"text": "hello", "format": format, "sample_rate": rate})
        assert answer.status_code == 200
        assert answer.headers["transfer-encoding"] == "chunked"
        assert "content-length" not in answer.headers
        assert answer.headers["content-type"] == MEDIA_TYPES[format]
        if format == "pcm":
            assert len(answer.content) == 2 * rate * 5 // 20
        else:
            samples, found = decode(answer.content, format)
            assert found == rate
            assert abs(len(samples) / rate - 0.25) < 0.05


def test_mp3_is_the_default_format(service: Service) -> None:
    answer = service.http.post("/v1/tts", json={"text": "hello"})
    assert answer.headers["content-type"] == "audio/mpeg"


def test_msgpack_says_the_same_as_json(service: Service) -> None:
    request = {"text": "hello", "format": "wav", "temperature": 0.25, "prosody": {"speed": 1, "volume": -3.5}}
    by_json = service.http.post("/v1/tts", json=request)
    by_msgpack = service.http.post(
        "/v1/tts", content=msgpack.packb(request), headers={"content-type": "application/msgpack"}
    )
    assert by_json.content == by_msgpack.content
    assert by_json.status_code == by_msgpack.status_code == 200


def test_references_arrive_as_they_were_sent(start: Start) -> None:
    service = start()
    references = [{"audio": bytes(range(256)), "text": "a"}, {"audio": b"RIFF", "text": "b", "name": "unlisted"}]
    body = msgpack.packb({"text": "hello", "references": references, "unlisted": {"a": [1]}})
    answer = service.http.post("/v1/tts", content=body, headers={"content-type": "application/msgpack"})
    assert answer.status_code == 200
    ((request, _, _),) = service.backend.asked
    assert request.references is not None
    assert [item.audio for item in request.references] == [bytes(range(256)), b"RIFF"]


def test_references_beside_a_reference_id_are_not_looked_at(service: Service) -> None:
    body = msgpack.packb({"text": "hello", "references": [{"audio": 7}], "reference_id": "ada"})
    answer = service.http.post("/v1/tts", content=body, headers={"content-type": "application/msgpack"})
    assert answer.status_code == 200


def test_references_need_msgpack(service: Service) -> None:
    nothing: list[object] | None
    for nothing in (None, []):
        answer = service.http.post("/v1/tts", json={"text": "hello", "references": nothing})
        assert answer.status_code == 200
    answer = service.http.post("/v1/tts", json={"text": "hello", "references": [{"audio": "UklGRg==", "text": "a"}]})
    assert fields(answer) == ["body.references"]


def test_unlisted_keys_and_explicit_nulls_are_fine(service: Service) -> None:
    body = {"text": "hello", "unlisted": [1], "sample_rate": None, "reference_id": None, "prosody": None}
    assert service.http.post("/v1/tts", json=body).status_code == 200


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "body.text"),
        ({"text": ""}, "body.text"),
        ({"text": " \n"}, "body.text"),
        ({"text": 3}, "body.text"),
        ({"text": "x" * 20_001}, "body.text"),
        ({"text": "a", "temperature": 1.01}, "body.temperature"),
        ({"text": "a", "temperature": True}, "body.temperature"),
        ({"text": "a", "temperature": "0.5"}, "body.temperature"),
        ({"text": "a", "top_p": -0.1}, "body.top_p"),
        ({"text": "a", "format": "flac"}, "body.format"),
        ({"text": "a", "sample_rate": 22050}, "body.sample_rate"),
        ({"text": "a", "format": "opus", "sample_rate": 44100}, "body.sample_rate"),
        ({"text": "a", "chunk_length": 99}, "body.chunk_length"),
        ({"text": "a", "prosody": {"speed": 2.1}}, "body.prosody.speed"),
        ({"text": "a", "mp3_bitrate": 65}, "body.mp3_bitrate"),
        ({"text": "a", "latency": "fast"}, "body.latency"),
        ({"text": "a", "reference_id": "nobody"}, "body.reference_id"),
        ([], "body"),
        (None, "body"),
        ("text", "body"),
    ],
)
def test_a_wrong_body_is_answered_with_the_field(service: Service, body: object, field: str) -> None:
    headers = {"content-type": "application/json"}
    assert fields(service.http.post("/v1/tts", content=json.dumps(body), headers=headers)) == [field]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b'{"text": "a", "temperature": NaN}',
        b'{"text": "a", "temperature": 1e999}',
        b'{"text": "\\ud800"}',
        b'{"text": "a", "reference_id": "\\udfff"}',
        b'{"text": "a", "text": "b"}',
        b'{"\\ud800": 1}',
        b'{"text": ' + b"[" * 50_000 + b"}",
    ],
)
def test_syntax_that_no_request_can_be_is_422(service: Service, body: bytes) -> None:
    answer = service.http.post("/v1/tts", content=body, headers={"content-type": "application/json"})
    assert fields(answer)[0].startswith("body")


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999", "-1e999"])
def test_what_is_no_finite_number_is_told_with_its_field(service: Service, number: str) -> None:
    body = f'{{"text": "a", "temperature": {number}, "prosody": {{"speed": {number}}}, "chunk_length": {number}}}'
    answer = service.http.post("/v1/tts", content=body, headers={"content-type": "application/json"})
    assert sorted(fields(answer)) == ["body.chunk_length", "body.prosody.speed", "body.temperature"]


def test_one_answer_names_all_that_is_wrong(service: Service) -> None:
    answer = service.http.post(
        "/v1/tts",
        json={"text": "", "top_p": 2},
        headers={"model": "s3", "x-voicelab-seed": "-1"},
    )
    assert fields(answer) == ["header.model", "header.x-voicelab-seed", "body.text", "body.top_p"]
    assert [item["in"] for item in answer.json()] == ["header", "header", "body", "body"]


def test_the_model_header_selects_and_s2_pro_is_the_default(start: Start) -> None:
    service = start()
    for headers in ({}, {"model": "s1"}, {"model": "s2-pro"}):
        assert service.http.post("/v1/tts", json={"text": "a"}, headers=headers).status_code == 200
    assert [model for _, model, _ in service.backend.asked] == ["s2-pro", "s1", "s2-pro"]
    for wrong in ("", "S1", "s1 s2-pro", "s3"):
        assert fields(service.http.post("/v1/tts", json={"text": "a"}, headers={"model": wrong})) == ["header.model"]


def test_a_model_that_the_voice_has_not_is_refused(start: Start) -> None:
    service = start(ToneBackend(models=("s1",)))
    assert fields(service.http.post("/v1/tts", json={"text": "a"})) == ["header.model"]
    assert service.http.post("/v1/tts", json={"text": "a"}, headers={"model": "s1"}).status_code == 200


def test_the_seed_is_taken_and_told(start: Start) -> None:
    service = start()
    headers = {"x-voicelab-seed": str(2**63 - 1)}
    answer = service.http.post("/v1/tts", json={"text": "a"}, headers=headers)
    assert answer.headers["x-voicelab-seed"] == str(2**63 - 1)
    assert service.backend.asked[0][2] == 2**63 - 1
    plain = service.http.post("/v1/tts", json={"text": "a"})
    assert "x-voicelab-seed" not in plain.headers
    for wrong in ("", "x", "-1", "1.5", "1_000", "0x10", str(2**63), "9" * 400):
        answer = service.http.post("/v1/tts", json={"text": "a"}, headers={"x-voicelab-seed": wrong})
        assert fields(answer) == ["header.x-voicelab-seed"]


def test_a_voice_without_seeds_refuses_one(start: Start) -> None:
    service = start(ToneBackend(seed="none"))
    answer = service.http.post("/v1/tts", json={"text": "a"}, headers={"x-voicelab-seed": "1"})
    assert fields(answer) == ["header.x-voicelab-seed"]


@pytest.mark.parametrize(
    "kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "", "json"]
)
def test_a_wrong_content_type_is_415(service: Service, kind: str) -> None:
    message(service.http.post("/v1/tts", content=b'{"text": "a"}', headers={"content-type": kind}), 415)


def test_a_missing_content_type_is_415(service: Service) -> None:
    message(service.http.post("/v1/tts", content=b'{"text": "a"}'), 415)


def test_a_compressed_body_is_415(service: Service) -> None:
    headers = {"content-type": "application/json", "content-encoding": "gzip"}
    message(service.http.post("/v1/tts", content=b"x", headers=headers), 415)


@pytest.mark.parametrize("kind", ["application/json", "Application/JSON; charset=utf-8", "application/json;"])
def test_a_content_type_may_have_parameters(service: Service, kind: str) -> None:
    answer = service.http.post("/v1/tts", content=b'{"text": "a"}', headers={"content-type": kind})
    assert answer.status_code == 200


def test_unknown_paths_and_methods_are_answered_in_the_same_shape(service: Service) -> None:
    message(service.http.get("/nothing"), 404)
    message(service.http.post("/v1/tts/"), 404)
    message(service.http.post(service.url + "//v1/tts"), 404)
    answer = service.http.get("/v1/tts")
    message(answer, 405)
    assert answer.headers["allow"] == "POST"


def test_health_needs_no_key_and_says_what_speaks(service: Service) -> None:
    answer = httpx.get(service.url + "/health", trust_env=False)
    assert answer.status_code == 200
    assert answer.json()["status"] == "ready"
    told = answer.json()["backend"]
    assert told["name"] == "tones"
    assert told["seed"] == "exact"
    assert [voice["id"] for voice in told["voices"]] == [voice.id for voice in VOICES]


# Authentication


@pytest.mark.parametrize(
    "header",
    [None, "", "Bearer", "Basic dXNlcjpwYXNz", "Bearer vl_wrong", "vl_wrong", "Bearer  a b", "Bearer \xff"],
)
def test_without_a_good_key_the_answer_is_401(service: Service, header: str | None) -> None:
    headers = {} if header is None else {"authorization": header.encode("latin-1")}
    answer = httpx.post(service.url + "/v1/tts", json={"text": "a"}, headers=headers, trust_env=False)  # type: ignore[arg-type]
    message(answer, 401)
    assert answer.headers["www-authenticate"] == "Bearer"


def test_the_scheme_is_read_in_any_case(service: Service) -> None:
    headers = {"authorization": f"bearer  {service.secret}"}
    answer = httpx.post(service.url + "/v1/tts", json={"text": "a"}, headers=headers, trust_env=False)
    assert answer.status_code == 200


def test_two_credentials_are_refused(service: Service) -> None:
    headers = [("authorization", f"Bearer {service.secret}")] * 2
    message(httpx.post(service.url + "/v1/tts", json={"text": "a"}, headers=headers, trust_env=False), 401)


def test_revoked_and_expired_keys_are_401_at_once(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    service = start()
    assert service.http.post("/v1/tts", json={"text": "a"}).status_code == 200
    service.keys.revoke("test")
    assert "revoked" in message(service.http.post("/v1/tts", json={"text": "a"}), 401)
    short = service.keys.create("short", expires_in=timedelta(seconds=1))
    headers = {"authorization": f"Bearer {short.secret}"}
    time.sleep(2.1)  # times are kept in whole seconds
    assert "expired" in message(service.http.post("/v1/tts", json={"text": "a"}, headers=headers), 401)


def test_authentication_comes_before_everything(service: Service) -> None:
    answer = httpx.post(
        service.url + "/v1/tts", content=b"rubbish", headers={"model": "s9", "content-type": "x/y"}, trust_env=False
    )
    message(answer, 401)


def test_authentication_comes_before_the_body_is_read(service: Service) -> None:
    # A body that never comes: the answer cannot have waited for it.
    with socket.create_connection(("127.0.0.1", service.port), timeout=10) as raw:
        raw.sendall(
            b"POST /v1/tts HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n"
            b"Expect: 100-continue\r\n\r\n"
        )
        assert raw.recv(65536).startswith(b"HTTP/1.1 401 ")


# Sizes


def test_a_body_too_large_is_413(start: Start) -> None:
    service = start(body=5000)
    assert service.http.post("/v1/tts", json={"text": "a"}).status_code == 200
    message(service.http.post("/v1/tts", json={"text": "a" * 5000}), 413)
    packed = msgpack.packb({"text": "a", "references": [{"audio": bytes(1500), "text": ""}]})
    headers = {"content-type": "application/msgpack"}
    assert service.http.post("/v1/tts", content=packed, headers=headers).status_code == 200
    message(service.http.post("/v1/tts", content=packed * 4, headers=headers), 413)


def test_a_chunked_body_too_large_is_413(start: Start) -> None:
    service = start(body=1000)

    def parts() -> Any:
        for _ in range(100):
            yield b" " * 100

    headers = {"content-type": "application/json"}
    message(service.http.post("/v1/tts", content=parts(), headers=headers), 413)


def test_a_length_too_large_is_refused_before_the_body_comes(service: Service) -> None:
    with socket.create_connection(("127.0.0.1", service.port), timeout=10) as raw:
        raw.sendall(_head(service, 10**12))
        assert raw.recv(65536).startswith(b"HTTP/1.1 413 ")


@pytest.mark.parametrize("length", ["-1", "x", "1e3", "+5"])
def test_a_length_that_is_no_number_is_refused(service: Service, length: str) -> None:
    with socket.create_connection(("127.0.0.1", service.port), timeout=10) as raw:
        raw.sendall(_head(service, length))
        assert raw.recv(65536).startswith(b"HTTP/1.1 4")


def test_a_body_that_does_not_come_is_408_and_the_connection_closed(start: Start) -> None:
    service = start(body_seconds=0.2)
    with socket.create_connection(("127.0.0.1", service.port), timeout=10) as raw:
        raw.sendall(_head(service, 100) + b'{"text"')
        answer = b""
        while part := raw.recv(65536):
            answer += part
        assert answer.startswith(b"HTTP/1.1 408 ")
    assert service.http.post("/v1/tts", json={"text": "a"}).status_code == 200


def _head(service: Service, length: object) -> bytes:
    return (
        f"POST /v1/tts HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {service.secret}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n"
    ).encode()


# Credit


def test_credit_is_charged_in_characters(start: Start) -> None:
    service = start(credit=12)
    assert service.http.post("/v1/tts", json={"text": "hello"}).status_code == 200
    assert service.keys.list()[0].credit == 7
    message(service.http.post("/v1/tts", json={"text": "too long a text"}), 402)
    assert service.keys.list()[0].credit == 7
    assert service.http.post("/v1/tts", json={"text": "żółwika"}).status_code == 200
    assert service.keys.list()[0].credit == 0
    message(service.http.post("/v1/tts", json={"text": "a"}), 402)


def test_credit_comes_after_authentication_and_before_validation(start: Start) -> None:
    service = start(credit=3)
    message(service.http.post("/v1/tts", json={"text": "hello", "temperature": 7}), 402)
    assert fields(service.http.post("/v1/tts", json={"text": "hey", "temperature": 7})) == ["body.temperature"]
    assert service.keys.list()[0].credit == 3
    service.keys.reserve(service.keys.list()[0], 3)
    message(service.http.post("/v1/tts", content=b"rubbish", headers={"content-type": "text/plain"}), 402)
    message(service.http.post("/v1/tts", json={"text": "hey"}, headers={"authorization": "Bearer x"}), 401)


def test_a_request_that_fails_before_any_audio_costs_nothing(start: Start) -> None:
    def step(_: int) -> None:
        raise RequestInvalid.of("text", "nothing of this can be spoken")

    service = start(ToneBackend(step), credit=10)
    assert fields(service.http.post("/v1/tts", json={"text": "hello"})) == ["body.text"]
    assert service.keys.list()[0].credit == 10
