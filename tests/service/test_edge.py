"""What every answer has in common: a name, the shape of part 7, and a connection that goes on."""

from __future__ import annotations

import logging
import re

import httpx
import msgpack  # type: ignore[import-untyped]  # it publishes no types
import pytest

from tests.service.conftest import Service, Start
from tests.service.test_deadlines import connect, head
from tests.service.test_speech import read, until
from tests.tones import ToneBackend
from voicelab.errors import EngineError

NAME = re.compile("[0-9a-f]{16}")


def shape(answer: httpx.Response) -> None:
    assert NAME.fullmatch(answer.headers["x-request-id"])
    if answer.status_code >= 400 and answer.request.method != "HEAD":
        assert answer.headers["content-type"] == "application/json"
        body = answer.json()
        if answer.status_code == 422:
            assert all({"loc", "type", "msg"} <= set(item) <= {"loc", "type", "msg", "ctx", "in"} for item in body)
        else:
            assert body == {"status": answer.status_code, "message": body["message"]}


@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE", "TRACE", "BREW"])
@pytest.mark.parametrize(
    ("path", "allowed"),
    [
        ("/v1/tts", {"POST"}),
        ("/model", {"POST"}),
        ("/model/x", {"GET", "HEAD"}),
        ("/model/x/cover", {"GET", "HEAD"}),
        ("/model/x/samples/0", {"GET", "HEAD"}),
        ("/health", {"GET", "HEAD"}),
        ("/openapi.json", {"GET", "HEAD"}),
        ("/", set()),
        ("/v1", set()),
        ("/v1/tts/", set()),
        ("/docs", set()),
    ],
)
def test_every_method_of_every_path_is_answered_in_shape(
    service: Service, method: str, path: str, allowed: set[str]
) -> None:
    answer = service.http.request(method, path)
    shape(answer)
    if not allowed:
        assert answer.status_code == 404
    elif method not in allowed:
        assert answer.status_code == 405
        assert set(answer.headers["allow"].split(", ")) == allowed
    else:
        assert answer.status_code in {200, 404, 415}
    if method == "HEAD":
        assert answer.content == b""


def test_names_differ_and_are_on_failures_too(start: Start) -> None:
    class Broken(ToneBackend):
        def synthesize(self, *_: object, **__: object) -> object:  # type: ignore[override]
            raise ZeroDivisionError

        def get_voice(self, id: str) -> object:  # type: ignore[override]
            raise ZeroDivisionError

    service = start(Broken())
    answers = [
        service.http.post("/v1/tts", json={"text": "a"}),
        service.http.get("/model/x"),
        service.http.get("/health"),
        service.http.get("/nothing"),
        service.http.post("/v1/tts", json={}),
        httpx.post(service.url + "/v1/tts", trust_env=False),
    ]
    assert [answer.status_code for answer in answers] == [500, 500, 200, 404, 422, 401]
    for answer in answers:
        shape(answer)
    assert len({answer.headers["x-request-id"] for answer in answers}) == len(answers)


def test_the_log_names_requests_and_tells_no_secret(start: Start, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)

    def step(number: int) -> None:
        if number == 2:
            raise EngineError("broke")

    service = start(ToneBackend(step))
    fine = service.http.post("/v1/tts", json={"text": "a"}).headers["x-request-id"]
    with service.http.stream("POST", "/v1/tts", json={"text": "hello", "format": "pcm"}) as broken:
        name = broken.headers["x-request-id"]
        with pytest.raises(httpx.RemoteProtocolError):
            broken.read()
    strange = service.http.get(f"/model/{service.secret}%0Aforged line", params={"key": service.secret})

    def lines() -> list[str]:
        return [record.getMessage() for record in list(caplog.records) if record.name == "voicelab.service"]

    # A request's line is written after its answer has left, so it may be awaited.
    until(lambda: any(f"request {fine} ended: POST /v1/tts, status 200" in line for line in lines()))
    until(lambda: any(f"request {name} broke off: POST /v1/tts, status 200" in line for line in lines()))
    until(lambda: any(strange.headers["x-request-id"] in line and "status 404" in line for line in lines()))
    assert not any("\n" in line for line in lines())
    assert f"in request {name}" in caplog.text  # beside the traceback
    ours = [record for record in caplog.records if not record.name.startswith("http")]  # the client tells its own log
    assert "uvicorn.error" in {record.name for record in ours}
    assert service.secret[11:] not in "".join(map(logging.Formatter().format, ours))


def test_a_failure_before_any_audio_is_named_in_the_log(start: Start, caplog: pytest.LogCaptureFixture) -> None:
    def step(_: int) -> None:
        raise EngineError("broke")

    answer = start(ToneBackend(step)).http.post("/v1/tts", json={"text": "a"})
    assert answer.status_code == 500
    assert f"request {answer.headers['x-request-id']}: the backend failed" in caplog.text


def test_a_connection_goes_on_after_errors(service: Service) -> None:
    with connect(service) as raw:
        for length, body, status in ((2, b"{}", 422), (1, b"{", 422), (2, b"{}", 422), (13, b'{"text": "a"}', 200)):
            raw.sendall(head(service, length) + body)
            answer = read(raw, 12)
            assert answer.startswith(f"HTTP/1.1 {status} ".encode())
            while not answer.endswith((b"}]", b"\r\n0\r\n\r\n")):  # a head may end in "0\r\n\r\n" as well
                answer += raw.recv(65536)


def test_two_requests_sent_at_once_are_answered_in_order(service: Service) -> None:
    with connect(service) as raw:
        raw.sendall(head(service, 2) + b"{}" + head(service, 13) + b'{"text": "a"}')
        answer = b""
        while not answer.endswith(b"\r\n0\r\n\r\n"):
            answer += read(raw, 1)
        assert answer.startswith(b"HTTP/1.1 422 ")
        assert b"HTTP/1.1 200 " in answer


def test_who_expects_to_be_told_to_continue_is(service: Service) -> None:
    with connect(service) as raw:
        body = b'{"text": "a"}'
        raw.sendall(head(service, len(body)).replace(b"\r\n\r\n", b"\r\nExpect: 100-continue\r\n\r\n"))
        assert read(raw, 1).startswith(b"HTTP/1.1 100 ")
        raw.sendall(body)
        assert b"HTTP/1.1 200 " in read(raw, 20)


def test_who_expects_that_and_is_refused_sends_no_body(service: Service) -> None:
    with connect(service) as raw:
        begin = head(service, 10**9).replace(b"\r\n\r\n", b"\r\nExpect: 100-continue\r\n\r\n")
        raw.sendall(begin)
        assert read(raw, 1).startswith(b"HTTP/1.1 413 ")


def test_an_upgrade_is_not_taken(service: Service) -> None:
    with connect(service) as raw:
        raw.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
        assert read(raw, 12).startswith(b"HTTP/1.1 200")


def test_a_wrong_field_of_references_is_named_by_its_position(service: Service) -> None:
    body = msgpack.packb({"text": "a", "references": [{"audio": b"x", "text": "a"}, {"audio": "text", "text": 1}]})
    answer = service.http.post("/v1/tts", content=body, headers={"content-type": "application/msgpack"})
    shape(answer)
    assert [item["loc"] for item in answer.json()] == [
        ["body", "references", "1", "audio"],
        ["body", "references", "1", "text"],
    ]
