"""What is charged: the characters of a text, and of a speech that was cut short no more than was delivered."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.served import NOTE_BYTES, Held, breaks, call, locked, read, until
from tests.service.conftest import Start
from tests.tones import ToneBackend
from voicelab.schema import TTSRequest
from voicelab.service.speech import cost, delivered_cost, played_seconds


@pytest.mark.parametrize(
    ("wire", "characters"),
    [
        ({"text": "żółw"}, 4),
        ({"text": "👩‍🚀"}, 3),
        ({"text": 5}, 0),
        ({}, 0),
        ([1], 0),
        (None, 0),
        ({"text": ["a"]}, 0),
    ],
)
def test_a_text_costs_its_characters(wire: object, characters: int) -> None:
    assert cost(wire) == characters


@pytest.mark.parametrize(
    ("fields", "sent", "characters", "seconds"),
    [
        ({"format": "pcm"}, 0, 0, 0.0),
        ({"format": "pcm"}, 88_200, 12, 1.0),
        ({"format": "wav", "sample_rate": 8000}, 16_000, 12, 1.0),
        ({"format": "mp3", "mp3_bitrate": 64}, 8_000, 12, 1.0),
        ({"format": "opus", "opus_bitrate": 24}, 3_000, 12, 2.0),  # which may be half of what was asked for
        ({"format": "opus", "opus_bitrate": 32}, 4_000, 12, 2.0),
        ({"format": "opus"}, 3_000, 6, 2.0),
        ({"format": "pcm", "prosody": {"speed": 2.0}}, 88_200, 24, 1.0),
        ({"format": "pcm"}, 882_000, 100, 10.0),
    ],
)
def test_what_was_delivered_costs_the_characters_that_fit_its_time(
    fields: dict[str, Any], sent: int, characters: int, seconds: float
) -> None:
    asked = TTSRequest.build(text="x" * 100, **fields)
    assert delivered_cost(asked, sent) == characters
    assert played_seconds(asked, sent) == pytest.approx(seconds)


@pytest.mark.parametrize("notes", [0, 1, 40, 99])
def test_a_synthesis_that_fails_costs_what_was_delivered(start: Start, notes: int) -> None:
    service = start(ToneBackend(breaks(notes)), credit=1000)
    with call(service, "x" * 100) as raw:
        got = read(raw, None if notes else 12)  # a 500 leaves the connection open
    assert got.startswith(b"HTTP/1.1 500 " if notes == 0 else b"HTTP/1.1 200 ")
    # A note is 50 ms, for which 0.6 characters are due, and all notes before the failure were sent.
    until(lambda: service.credit == 1000 - -(-notes * 6 // 10))


def test_one_credit_is_never_spent_twice(start: Start) -> None:
    held = Held(0)
    service = start(ToneBackend(held), credit=50)
    threading.Timer(0.5, held.release).start()
    with ThreadPoolExecutor(12) as pool:
        answers = list(pool.map(lambda _: service.http.post("/v1/tts", json={"text": "x" * 10}), range(12)))
    assert sorted(answer.status_code for answer in answers) == [200] * 5 + [402] * 7
    for answer in answers:
        if answer.status_code == 402:
            assert set(answer.json()) == {"status", "message"}
    assert service.credit == 0
    assert len(service.backend.asked) == 5


def test_concurrent_failures_are_refunded(start: Start) -> None:
    service = start(ToneBackend(breaks()), credit=50)
    with ThreadPoolExecutor(8) as pool:
        codes = set(pool.map(lambda _: service.http.post("/v1/tts", json={"text": "x" * 10}).status_code, range(24)))
    assert codes <= {500, 402}
    assert service.credit == 50


@pytest.mark.parametrize("how", ["queue", "invalid", "voice"])
def test_requests_that_never_started_are_free(start: Start, how: str) -> None:
    held = Held(0)
    service = start(ToneBackend(held), credit=100, active=1, waiting=0)
    other = service.keys.create("other").secret
    with call(service, "x", other):
        until(lambda: service.backend.open == 1)
        wrongs: dict[str, dict[str, object]] = {"invalid": {"top_p": 2}, "voice": {"reference_id": "nobody"}}
        if how != "queue":
            held.release()
            until(lambda: service.backend.open == 0)
        answer = service.http.post("/v1/tts", json={"text": "hello", **wrongs.get(how, {})})
        assert answer.status_code == (503 if how == "queue" else 422)
        assert service.credit == 100
        held.release()


def test_refund_with_a_busy_store(start: Start) -> None:
    held = Held(1)

    def step(number: int) -> None:
        held(number)
        breaks(1)(number)

    service = start(ToneBackend(step), credit=100, busy_s=0.5)
    with call(service, "x" * 50) as raw:
        read(raw, NOTE_BYTES)
        with locked(service.keys.path):
            held.release()
            time.sleep(0.8)  # the first attempt has failed
        read(raw)
    until(lambda: service.credit == 99)
