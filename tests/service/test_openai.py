"""The official openai package, unmodified, over a real socket; and what it does not show, by bare HTTP."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Iterator
from typing import Any

import httpx
import openai
import pytest

from tests.served import Service, breaks, until
from tests.service.conftest import Start
from tests.tones import ToneBackend
from voicelab.audio.formats import read
from voicelab.call import Call, Knob
from voicelab.engine.local import LocalBackend


@pytest.fixture(scope="module")
def service(start_shared: Start) -> Service:
    knob = Knob("brightness", "float", 0.5, bounds=(0.0, 1.0))
    return start_shared(ToneBackend(knobs=(knob,), models=("s1", "s2-pro")), openai=True)


@pytest.fixture
def client(service: Service) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(api_key=service.secret, base_url=service.url + "/v1", max_retries=0) as client:
        yield client


def test_the_embedded_voice_speaks_to_the_official_package(start_shared: Start) -> None:
    backend = LocalBackend("cpu")
    service = start_shared(backend, openai=True)
    text = "The birch canoe slid on the smooth planks."
    with openai.OpenAI(api_key=service.secret, base_url=service.url + "/v1") as client:
        voices = [voice["id"] for voice in service.http.get("/v1/audio/voices").json()["voices"]]
        assert voices == [voice.id for voice in backend.capabilities.voices]
        with client.audio.speech.with_streaming_response.create(
            model="s2-pro", voice=voices[1], input=text, response_format="pcm", speed=1.25, extra_body={"seed": 7}
        ) as answer:
            assert answer.headers["content-type"] == "audio/pcm"
            chunks = list(answer.iter_bytes())
    call = Call.of(text, voice=voices[1], speed=1.25, seed=7, format="pcm", sample_rate=24000)
    assert b"".join(chunks) == backend.synthesize(call).take().audio
    assert len(chunks) > 1
    backend.close()


@pytest.mark.parametrize(("wanted", "rate"), [("mp3", 44100), ("opus", 48000), ("wav", 44100)])
def test_formats(client: openai.OpenAI, wanted: str, rate: int) -> None:
    answer = client.audio.speech.create(model="s1", voice="ben", input="Hello.", response_format=wanted)  # type: ignore[arg-type]
    samples, read_rate = read(answer.content)
    assert read_rate == rate
    assert samples.size / rate == pytest.approx(6 * 0.05, abs=0.06)


def test_fields_reach_the_backend(service: Service, client: openai.OpenAI) -> None:
    client.audio.speech.create(
        model="s1", voice={"id": "ben"}, input="Hi", speed=0.5, extra_body={"temperature": 0.1, "brightness": 0.9}
    )
    request, model, _ = service.backend.asked[-1]
    assert (request.text, request.reference_id, request.format, model) == ("Hi", "ben", "mp3", "s1")
    assert (request.prosody.speed, request.temperature) == (0.5, 0.1)


def test_models_and_voices_are_listed(client: openai.OpenAI, service: Service) -> None:
    assert [model.id for model in client.models.list()] == ["s1", "s2-pro"]
    assert client.models.retrieve("s1").owned_by == "tones"
    with pytest.raises(openai.NotFoundError, match="Unknown model"):
        client.models.retrieve("gpt/4")
    voices = service.http.get("/v1/audio/voices").json()["voices"]
    assert voices[0] == {"id": "ada", "name": "Ada", "description": "low and calm"}


@pytest.mark.parametrize(
    ("changes", "parameter", "message"),
    [
        ({"input": ""}, "input", "empty or blank"),
        ({"input": "x" * 30_000}, "input", "at most 20000"),
        ({"model": "tts-1"}, "model", "s1"),
        ({"voice": "alloy"}, "voice", "no such voice"),
        ({"voice": {}}, "voice", "voice"),
        ({"speed": 3.0}, "speed", "must be between"),
        ({"response_format": "flac"}, "response_format", "mp3"),
        ({"stream_format": "base64"}, "stream_format", "audio or sse"),
        ({"instructions": "Whisper."}, "instructions", "Unknown field"),
        ({"extra_body": {"brightness": 7}}, "brightness", "must be between 0 and 1, got 7"),
        ({"extra_body": {"text": "Hi"}}, "text", "Unknown field"),
        ({"extra_body": {"defaults": {}}}, "defaults", "Unknown field"),
        ({"extra_body": {"seed": -1}}, "seed", "whole number"),
    ],
)
def test_invalid_fields_have_openai_names(
    client: openai.OpenAI, changes: dict[str, object], parameter: str, message: str
) -> None:
    with pytest.raises(openai.BadRequestError) as raised:
        client.audio.speech.create(**{"model": "s1", "voice": "ada", "input": "Hi", **changes})  # type: ignore[arg-type]
    assert raised.value.param == parameter
    assert raised.value.type == "invalid_request_error"
    assert message.lower() in str(raised.value).lower()


def test_server_sent_events_carry_the_same_audio_as_it_is_made(start: Start) -> None:
    service = start(ToneBackend(lambda _: time.sleep(0.02)), openai=True)
    client = openai.OpenAI(api_key=service.secret, base_url=service.url + "/v1", max_retries=0)
    said = {"model": "s1", "voice": "ada", "input": "Hello there.", "response_format": "wav"}
    plain = client.audio.speech.create(**said).content  # type: ignore[arg-type]
    with client.audio.speech.with_streaming_response.create(**said, stream_format="sse") as answer:  # type: ignore[arg-type]
        assert answer.headers["content-type"] == "text/event-stream"
        lines = [line for line in answer.iter_lines() if line]
    assert all(line.startswith("data: {") for line in lines)
    # And by the package's own reader of events.
    events = client.post(
        "/audio/speech",
        cast_to=object,
        body={**said, "stream_format": "sse"},
        stream=True,
        stream_cls=openai.Stream[Any],
    )
    for *deltas, done in ([json.loads(line[6:]) for line in lines], list(events)):
        assert len(deltas) > 3
        assert {event["type"] for event in deltas} == {"speech.audio.delta"}
        assert b"".join(base64.b64decode(event["audio"]) for event in deltas) == plain
        usage = {"input_tokens": 12, "output_tokens": 0, "total_tokens": 12}
        assert done == {"type": "speech.audio.done", "usage": usage}


def test_truncated_events_have_no_done_event(start: Start) -> None:
    broken = start(ToneBackend(breaks(3, RuntimeError)), openai=True, credit=100)
    body = {"model": "s1", "voice": "ada", "input": "Hello there.", "stream_format": "sse", "response_format": "pcm"}
    came: list[bytes] = []
    with broken.http.stream("POST", "/v1/audio/speech", json=body) as answer, pytest.raises(httpx.RemoteProtocolError):
        came.extend(answer.iter_bytes())  # which keeps what comes before it breaks off
    assert b"speech.audio.delta" in b"".join(came)
    assert b"speech.audio.done" not in b"".join(came)
    until(lambda: broken.credit < 100)
    assert 95 < broken.credit < 100, "what was heard is paid for"


def test_errors_raise_openai_exceptions(start: Start, service: Service) -> None:
    with (
        openai.OpenAI(api_key="vl_wrong", base_url=service.url + "/v1", max_retries=0) as stranger,
        pytest.raises(openai.AuthenticationError) as raised,
    ):
        stranger.models.list()
    assert raised.value.code == "invalid_api_key"
    poor, broken = start(credit=8, openai=True), start(ToneBackend(breaks(error=RuntimeError)), openai=True)
    body = {"model": "s1", "voice": "ada", "input": "Hello"}
    assert poor.http.post("/v1/audio/speech", json=body).status_code == 200  # which costs 5 of 8
    for one, status, code in ((poor, 402, "insufficient_quota"), (broken, 500, None)):
        with (
            openai.OpenAI(api_key=one.secret, base_url=one.url + "/v1", max_retries=0) as client,
            pytest.raises(openai.APIStatusError) as failed,
        ):
            client.audio.speech.create(model="s1", voice="ada", input="Hello")
        assert (failed.value.status_code, failed.value.code) == (status, code)
    assert poor.credit == 3


def test_routes_are_404_without_the_option(start: Start, service: Service) -> None:
    plain = start()
    for path in ("/v1/models", "/v1/audio/voices"):
        assert plain.http.get(path).json() == {"status": 404, "message": "Not Found"}
    assert isinstance(service.speak("").json(), list)
    answer = service.http.get("/v1/audio/speech")
    assert (answer.status_code, answer.json()["error"]["message"]) == (405, "Method Not Allowed")
    assert httpx.codes.is_success(service.http.post("/v1/tts", json={"text": "Hi"}).status_code)
