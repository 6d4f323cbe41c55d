"""Who may come in: a key's own limits are 429, a full service is 503, both decided before a body is read."""

from __future__ import annotations

import json
import socket
import time
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.served import Held, Service, call, head, locked, message, read, until
from tests.service.conftest import Start, filled
from tests.service.host import ToneHost
from tests.service.test_models import FIELDS
from tests.speechlike import speech_file
from tests.tones import ToneBackend
from voicelab.service.keys import KeyStore
from voicelab.service.limits import KeyLimits


def ask(service: Service, secret: str, text: str = "a", path: str = "/v1/tts") -> httpx.Response:
    body = {"text": text} if path == "/v1/tts" else {"input": text, "model": "s1", "voice": None}
    return service.http.post(path, json=body, headers={"authorization": f"Bearer {secret}"})


def test_rate_limit_and_its_headers(start: Start) -> None:
    service = start()
    secret = service.keys.create("ada", limits=KeyLimits(rate="3/h")).secret
    answers = [ask(service, secret) for _ in range(4)]
    assert [answer.status_code for answer in answers] == [200, 200, 200, 429]
    assert [answer.headers["ratelimit"].partition(";t=")[0] for answer in answers] == [
        f'"requests";r={left}' for left in (2, 1, 0, 0)
    ]
    assert {answer.headers["ratelimit-policy"] for answer in answers} == {'"requests";q=3;w=3600'}
    assert "3/h" in message(answers[3], 429)
    assert 3590 < int(answers[3].headers["retry-after"]) <= 3600
    assert service.speak().status_code == 200  # another key
    assert "ratelimit" not in service.speak().headers


def test_rate_limit_resets_with_the_window(start: Start) -> None:
    service = start(key_rate="1/s")  # for keys that have none of their own
    wait = 0
    for expected in (200, 429, 200):
        time.sleep(wait)
        answer = service.speak()
        assert answer.status_code == expected
        wait = int(answer.headers.get("retry-after", "0"))
    other = service.keys.create("ada", limits=KeyLimits(rate="9/h")).secret
    assert [ask(service, other).status_code for _ in range(3)] == [200] * 3


def test_rate_limit_counts_creation_of_voices_but_not_reading(start: Start) -> None:
    service = start(key_rate="2/h")
    for _ in range(4):
        assert service.http.get("/model/nobody").status_code == 404
    codes = [
        service.http.post("/model", content=b"", headers={"content-type": "text/plain"}).status_code for _ in "abc"
    ]
    assert codes == [415, 415, 429]


def test_concurrency_limit_of_a_key(start: Start) -> None:
    held = Held(0)
    service = start(ToneBackend(held), active=4)
    secret = service.keys.create("ada", limits=KeyLimits(active=2)).secret
    with ExitStack() as stack:
        inside = [stack.enter_context(call(service, "hello", secret)) for _ in range(2)]
        until(lambda: service.backend.open == 2)
        answer = ask(service, secret)
        assert "2 concurrent requests" in message(answer, 429)
        assert answer.headers["retry-after"] == "1"
        other = stack.enter_context(call(service))
        until(lambda: service.backend.open == 3)
        held.release()
        for raw in (*inside, other):
            assert read(raw, 12).startswith(b"HTTP/1.1 200")
    until(lambda: ask(service, secret).status_code == 200)


def test_stored_voices_and_their_bytes_are_limited(start: Start, tmp_path: Path) -> None:
    with closing(ToneHost(tmp_path / "voices")) as host:
        service = start(host, key_voices=2)
        few = service.keys.create("ada", limits=KeyLimits(voice_bytes=1000)).secret
        answers = [create(service, secret) for secret in (service.secret,) * 3 + (few,) * 2]
    assert [answer.status_code for answer in answers] == [201, 201, 429, 201, 429]
    assert "limited to 2 stored voices, and has 2; ask the operator" in answers[2].text
    assert "limited to 1000 stored bytes of recordings, and has " in answers[4].text


def create(service: Service, secret: str) -> httpx.Response:
    files = [("voices", ("a.wav", speech_file(2), "audio/wav"))]
    return service.http.post("/model", data=FIELDS, files=files, headers={"authorization": f"Bearer {secret}"})


def test_daily_limit_counts_delivered_characters(start: Start) -> None:
    service = start(ToneBackend(), key_daily=10)
    assert service.speak("x" * 6).status_code == 200
    answer = service.speak("x" * 5)
    assert "10 characters per day" in message(answer, 429)
    assert answer.headers["ratelimit-policy"] == '"characters";q=10;w=86400'
    assert 0 < int(answer.headers["retry-after"]) <= 86_400
    assert service.speak("x" * 4, temperature=7).status_code == 422
    assert service.speak("x" * 4).status_code == 200
    assert service.speak("x").status_code == 429
    own = service.keys.create("ada", limits=KeyLimits(daily=20)).secret
    assert ask(service, own, "x" * 20).status_code == 200


def test_limits_in_openai_format(start: Start) -> None:
    service = start(openai=True)
    secret = service.keys.create("ada", limits=KeyLimits(rate="1/h")).secret
    assert ask(service, secret, path="/v1/audio/speech").status_code == 200
    answer = ask(service, secret, path="/v1/audio/speech")
    assert answer.status_code == 429
    assert answer.json()["error"]["code"] == "rate_limit_exceeded"
    assert {"retry-after", "ratelimit", "ratelimit-policy"} <= set(answer.headers)


def test_full_service_rejects_on_headers(start: Start) -> None:
    with (
        filled(start, 2, active=1, waiting=1) as (service, _, _),
        locked(service.keys.path),  # whoever looks at the store now waits for two seconds
        service.connect() as raw,
    ):
        began = time.monotonic()
        raw.sendall(head(service, 10_000_000))  # and none of the body
        assert read(raw, 12).startswith(b"HTTP/1.1 503 ")
        assert time.monotonic() - began < 1


def test_full_service_admits_other_keys_and_rejects_invalid_ones(start: Start) -> None:
    with filled(start, 4, active=1, waiting=3) as (service, held, waiting):
        message(service.speak(), 503)
        wrong = service.keys.create("gone").secret
        service.keys.revoke("gone")
        assert ask(service, wrong).status_code == 401
        with call(service, "hello", service.keys.create("other").secret) as fair:
            # The last of those who fill the queue gives way.
            until(lambda: any(_refused(raw) for raw in waiting))
            held.release()
            assert read(fair, 12).startswith(b"HTTP/1.1 200")


def _refused(raw: socket.socket) -> bool:
    raw.settimeout(0.05)
    try:
        return raw.recv(12, socket.MSG_PEEK).startswith(b"HTTP/1.1 503")
    except TimeoutError:
        return False


def test_slow_bodies_lose_their_reserved_place(start: Start) -> None:
    service = start(ToneBackend(), active=2, waiting=6)
    other = service.keys.create("other").secret
    with ExitStack() as stack:
        slow = [stack.enter_context(service.connect()) for _ in range(40)]
        for raw in slow:
            raw.sendall(head(service, 13))
        until(lambda: sum(map(_refused, slow)) == 32)
        # A caller with another key comes in at once, and with the same one a second later at the latest.
        assert ask(service, other).status_code == 200
        time.sleep(1.1)
        assert service.speak().status_code == 200
        # Those who were let in are still answered when their bodies come.
        for raw in slow:
            if not _refused(raw):
                raw.sendall(b'{"text": "a"}')
                raw.settimeout(20)
                assert read(raw, 12).startswith(b"HTTP/1.1 200")


def test_concurrent_requests_share_the_lookup_of_a_key(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    held = Held(0)
    service = start(ToneBackend(held), active=1, waiting=1)
    looks: list[str] = []
    look = KeyStore.authenticate

    def counted(store: KeyStore, secret: str) -> Any:
        looks.append(secret)
        return look(store, secret)

    monkeypatch.setattr(KeyStore, "authenticate", counted)
    body = json.dumps({"text": "hello", "format": "pcm"}).encode()
    with ExitStack() as stack:
        callers = [stack.enter_context(service.connect()) for _ in range(40)]
        for raw in callers:
            raw.sendall(head(service, len(body)) + body)
        until(lambda: sum(map(_refused, callers)) == 38)
        assert len(looks) <= 3  # whose it is, and again for each that has a place
        held.release()
