"""What every answer has in common: a name, the shape of part 7, a connection that goes on; keys, sizes and credit."""

from __future__ import annotations

import logging
import re

import httpx
import msgpack  # type: ignore[import-untyped]  # it publishes no types
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.served import PLAIN, Service, breaks, fields, head, message, read, until
from tests.service.conftest import Start
from tests.tones import VOICES, ToneBackend

NAME = re.compile("[0-9a-f]{16}")


def shape(answer: httpx.Response) -> None:
    assert NAME.fullmatch(answer.headers["x-request-id"])
    if answer.status_code >= 400 and answer.request.method != "HEAD":
        if answer.status_code == 422:
            fields(answer)
        else:
            message(answer, answer.status_code)


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
        ("/", {"GET", "HEAD"}),
        ("/v1", set()),
        ("/v1/tts/", set()),
        ("//v1/tts", set()),
        ("/docs", {"GET", "HEAD"}),
    ],
)
def test_methods_and_paths(service: Service, path: str, allowed: set[str]) -> None:
    for method in ("GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE", "TRACE", "BREW"):
        answer = service.http.request(method, service.url + path)
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


def test_request_ids(start: Start, caplog: pytest.LogCaptureFixture) -> None:
    class Broken(ToneBackend):
        def synthesize(self, *_: object, **__: object) -> object:  # type: ignore[override]
            raise ZeroDivisionError

        def get_voice(self, id: str) -> object:  # type: ignore[override]
            raise ZeroDivisionError

    service = start(Broken())
    answers = [
        service.speak(),
        service.http.get("/model/x"),
        service.http.get("/health"),
        service.http.get("/nothing"),
        service.http.post("/v1/tts", json={}),
        httpx.post(service.url + "/v1/tts", **PLAIN),
    ]
    assert [answer.status_code for answer in answers] == [500, 500, 200, 404, 422, 401]
    for answer in answers:
        shape(answer)
    assert len({answer.headers["x-request-id"] for answer in answers}) == len(answers)
    for failed in answers[:2]:
        assert f"request {failed.headers['x-request-id']}: the backend failed" in caplog.text


def test_log_has_request_ids_and_no_secrets(start: Start, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    service = start(ToneBackend(breaks(2)))
    fine = service.speak().headers["x-request-id"]
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


@pytest.mark.parametrize("at_once", [False, True])
def test_a_connection_goes_on_after_errors_and_answers_in_order(service: Service, at_once: bool) -> None:
    asked = {b"{}": b"422", b"{": b"422", b'{"text": "a"}': b"200"}
    with service.connect() as raw:
        if at_once:
            raw.sendall(b"".join(head(service, len(body)) + body for body in asked))
        for body, status in asked.items():
            if not at_once:
                raw.sendall(head(service, len(body)) + body)
            answer = b""
            while not answer.endswith((b"}]", b"\r\n0\r\n\r\n")):  # a head may end in "0\r\n\r\n" as well
                answer += raw.recv(1)
            assert answer.startswith(b"HTTP/1.1 " + status)


def test_expect_continue(service: Service) -> None:
    with service.connect() as raw:
        body = b'{"text": "a"}'
        raw.sendall(head(service, len(body)).replace(b"\r\n\r\n", b"\r\nExpect: 100-continue\r\n\r\n"))
        assert read(raw, 1).startswith(b"HTTP/1.1 100 ")
        raw.sendall(body)
        assert b"HTTP/1.1 200 " in read(raw, 20)


@pytest.mark.parametrize(
    ("length", "secret", "status"), [(10**9, None, b"413"), (1000, "wrong", b"401")], ids=["large", "stranger"]
)
def test_expect_continue_of_a_rejected_request(
    service: Service, length: int, secret: str | None, status: bytes
) -> None:
    with service.connect() as raw:
        begin = head(service, length, secret=secret)
        raw.sendall(begin.replace(b"\r\n\r\n", b"\r\nExpect: 100-continue\r\n\r\n"))
        assert read(raw, 1).startswith(b"HTTP/1.1 " + status)


def test_upgrade_is_ignored(service: Service) -> None:
    with service.connect() as raw:
        raw.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
        assert read(raw, 12).startswith(b"HTTP/1.1 200")


def test_all_errors_are_in_one_response(service: Service) -> None:
    answer = service.http.post(
        "/v1/tts",
        json={"text": "", "top_p": 2},
        headers={"model": "s3", "x-voicelab-seed": "-1"},
    )
    assert fields(answer) == ["header.model", "header.x-voicelab-seed", "body.text", "body.top_p"]
    assert [item["in"] for item in answer.json()] == ["header", "header", "body", "body"]


def test_unknown_model_is_rejected(start: Start) -> None:
    service = start(ToneBackend(models=("s1",)))
    assert fields(service.speak()) == ["header.model"]
    assert service.http.post("/v1/tts", json={"text": "a"}, headers={"model": "s1"}).status_code == 200


def test_seed_header(start: Start) -> None:
    service = start()
    headers = {"x-voicelab-seed": str(2**63 - 1)}
    answer = service.http.post("/v1/tts", json={"text": "a"}, headers=headers)
    assert answer.headers["x-voicelab-seed"] == str(2**63 - 1)
    assert service.backend.asked[0][2] == 2**63 - 1
    plain = service.speak()
    assert "x-voicelab-seed" not in plain.headers
    for wrong in ("1_000", "0x10"):  # which Python would read
        answer = service.http.post("/v1/tts", json={"text": "a"}, headers={"x-voicelab-seed": wrong})
        assert fields(answer) == ["header.x-voicelab-seed"]


HEADER_VALUES = st.text(st.characters(min_codepoint=0x20, max_codepoint=0xFF, exclude_characters="\x7f"), max_size=12)


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.dictionaries(st.sampled_from(["model", "x-voicelab-seed", "content-type", "content-encoding"]), HEADER_VALUES)
)
def test_no_header_is_a_failure(service: Service, headers: dict[str, str]) -> None:
    # Blanks at the ends are no part of a header, and are the client's affair.
    sent = {b"content-type": b"application/json"}
    sent |= {name.encode(): value.strip().encode("latin-1") for name, value in headers.items()}
    answer = service.http.post("/v1/tts", content=b'{"text": "a", "format": "pcm"}', headers=sent)
    assert answer.status_code in {200, 415, 422}
    shape(answer)


def test_a_compressed_body_is_415(service: Service) -> None:
    headers = {"content-type": "application/json", "content-encoding": "gzip"}
    message(service.http.post("/v1/tts", content=b"x", headers=headers), 415)


def test_health(service: Service) -> None:
    answer = httpx.get(service.url + "/health", **PLAIN)
    assert answer.status_code == 200
    assert answer.json()["status"] == "ready"
    told = answer.json()["backend"]
    assert told["name"] == "tones"
    assert told["seed"] == "exact"
    assert [voice["id"] for voice in told["voices"]] == [voice.id for voice in VOICES]


# Authentication


def test_duplicate_credentials_are_rejected(service: Service) -> None:
    headers = [("authorization", f"Bearer {service.secret}")] * 2
    answer = httpx.post(service.url + "/v1/tts", json={"text": "a"}, headers=headers, **PLAIN)
    message(answer, 401)
    assert answer.headers["www-authenticate"] == "Bearer"


# Sizes


def test_a_body_too_large_is_413(start: Start) -> None:
    service = start(body=5000)
    assert service.speak().status_code == 200
    message(service.http.post("/v1/tts", json={"text": "a" * 5000}), 413)
    packed = msgpack.packb({"text": "a", "references": [{"audio": bytes(1500), "text": ""}]})
    headers = {"content-type": "application/msgpack"}
    assert service.http.post("/v1/tts", content=packed, headers=headers).status_code == 200
    message(service.http.post("/v1/tts", content=packed * 4, headers=headers), 413)


def test_a_chunked_body_too_large_is_413(start: Start) -> None:
    parts = (b" " * 100 for _ in range(100))
    headers = {"content-type": "application/json"}
    message(start(body=1000).http.post("/v1/tts", content=parts, headers=headers), 413)


def test_a_body_of_two_lengths_is_400_and_ends_the_connection(service: Service) -> None:
    following = b"GET /health HTTP/1.1\r\nhost: x\r\n\r\n"
    with service.connect() as raw:
        raw.sendall(head(service, 5)[:-2] + b"transfer-encoding: chunked\r\n\r\n0\r\n\r\n" + following)
        received = b"".join(iter(lambda: raw.recv(65536), b""))
    assert received.startswith(b"HTTP/1.1 400 ")
    assert received.count(b"HTTP/1.1") == 1


def test_the_page_documents_the_service_and_loads_nothing(service: Service) -> None:
    page, other = (service.http.get(path, headers={"authorization": ""}) for path in ("/", "/docs"))
    assert page.status_code == other.status_code == 200
    assert page.text == other.text
    for text in ("POST /v1/tts", "temperature", "number from 0 to 1", "x-voicelab-seed", "wav, pcm, mp3, opus", "429"):
        assert text in page.text, text
    assert not re.search(r"(src|href)=\"(https?:)?//", page.text)


@pytest.mark.parametrize(
    ("length", "status"), [(10**12, b"413 "), *((wrong, b"4") for wrong in ("-1", "x", "1e3", "+5"))]
)
def test_a_length_that_cannot_be_is_refused_before_the_body_comes(
    service: Service, length: object, status: bytes
) -> None:
    with service.connect() as raw:
        raw.sendall(head(service, length))
        assert raw.recv(65536).startswith(b"HTTP/1.1 " + status)
