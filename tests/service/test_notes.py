"""Notes over HTTP: a take of a service has those that the same call has on the spot, by every route and client."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

import voicelab as vl
from tests.served import Service, serving, tiny_engine
from tests.service.conftest import Start
from tests.tones import ToneBackend
from voicelab.backend import Backend
from voicelab.backends.openai import OpenAIBackend
from voicelab.backends.runs import RecordingBackend, ReplayBackend
from voicelab.backends.service import AsyncServiceBackend, ServiceBackend
from voicelab.call import Call
from voicelab.engine.local import LocalBackend
from voicelab.schema import ReferenceAudio
from voicelab.service.openapi import MAX_NOTES_BYTES
from voicelab.service.speech import header_of_notes

TEXT = "She said привет and [laughs] left <b>now</b> 😀."
NOTES = (
    "Cyrillic characters cannot be spoken and were left out: привет",
    "emoji left out: 😀",
    "text in angle brackets left out: <b>, </b>",
    "[laughs] had no effect: this voice supports only pauses, phoneme spans, emphasis",
)
HEADER = "x-voicelab-notes"


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalBackend]:
    with tiny_engine(tmp_path_factory.mktemp("engine")) as engine:
        yield engine


@pytest.fixture(scope="module")
def service(engine: LocalBackend, start_shared: Start) -> Service:
    return start_shared(engine, openai=True)


def _call(text: str = TEXT, **fields: Any) -> Call:
    return Call.of(text, format="pcm", **{"max_new_tokens": 8, "seed": 1, **fields})


async def _async_notes(service: Service, call: Call) -> tuple[str, ...]:
    async with AsyncServiceBackend(service.url, service.secret) as backend:
        return (await (await backend.synthesize(call)).take()).notes


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"normalize": False},
        {"chunk_length": 100, "text": f"{TEXT} " * 20, "early_stop_threshold": 0.5},
        {"condition_on_previous_chunks": False, "early_stop_threshold": 0.5},
        {"text": "<speak>Press <Enter> (happy) [1] un[angry]done 你好</speak>"},
        {"text": "Plain words."},
    ],
)
def test_a_service_gives_the_notes_of_the_backend(
    engine: LocalBackend, service: Service, fields: dict[str, Any]
) -> None:
    call = _call(**fields)
    known = [note for note in engine.synthesize(call).take().notes if "cut off" not in note]
    assert known or call.request.text == "Plain words."
    with ServiceBackend(service.url, service.secret) as backend:
        stream = backend.synthesize(call)
        assert {*stream.notes} <= {*known}
        next(stream)
        early = stream.notes
        list(stream)
    for notes in (early, stream.notes, asyncio.run(_async_notes(service, call))):
        assert [note for note in notes if "cut off" not in note] == known
    assert not known or {*NOTES} & {*known} or fields


def test_the_sentence_of_the_issue(engine: LocalBackend, service: Service) -> None:
    with vl.connect(service.url, api_key=service.secret) as lab:
        notes = lab.speak(TEXT, seed=1).notes
    assert notes == NOTES == engine.synthesize(Call.of(TEXT, seed=1)).take().notes


def test_ignored_fields_of_a_body_are_noted(service: Service) -> None:
    body: dict[str, Any] = {
        "text": "Plain words.",
        "seed": 3,
        "temprature": 0.1,
        "prosody": {"speed": 1.1, "pitch": 2},
        "é\n": 1,
    }
    answer = service.speak(**body, max_new_tokens=60)
    note = "Ignored, because the interface has no such fields: seed, temprature, \\xe9\\n, prosody.pitch"
    assert json.loads(answer.headers[HEADER]) == [f"{note}; a seed is sent in the header x-voicelab-seed."]
    assert HEADER not in service.speak("Plain words.", max_new_tokens=60).headers


def test_notes_on_references_in_messagepack(engine: LocalBackend, service: Service) -> None:
    sound = engine.synthesize(_call("One two three four five six seven.", max_new_tokens=60)).clip().to_bytes("wav")
    call = _call("Hello there.", references=[ReferenceAudio(audio=sound, text="One two three.")], max_new_tokens=40)
    direct = [note for note in engine.synthesize(call).take().notes if "cut off" not in note]
    assert any(note.startswith("reference 1") for note in direct)
    with ServiceBackend(service.url, service.secret) as backend:
        notes = backend.synthesize(call).take().notes
    assert [note for note in notes if "cut off" not in note] == direct


@pytest.mark.parametrize("stream_format", ["audio", "sse"])
def test_notes_by_the_route_of_openai(service: Service, stream_format: str) -> None:
    with OpenAIBackend(service.url, service.secret, stream_format=stream_format) as backend:  # type: ignore[arg-type]
        take = backend.synthesize(Call.of(TEXT, knobs=backend.capabilities.knobs)).take()
    assert set(NOTES) <= set(take.notes)


def test_a_recording_a_replay_and_a_service_of_a_service_have_them(service: Service, tmp_path: Path) -> None:
    with ServiceBackend(service.url, service.secret) as remote:
        first = RecordingBackend(remote, tmp_path / "run").synthesize(_call()).take().notes
        assert set(NOTES) <= set(first)
        backends: dict[str, Backend] = {"replay": ReplayBackend(tmp_path / "run", "at once"), "service": remote}
        for name, backend in backends.items():
            with serving(tmp_path / name, backend) as again, ServiceBackend(again.url, again.secret) as other:
                notes = other.synthesize(_call()).take().notes
            assert notes[: len(first)] == first
            assert len(notes) - len(first) == (name == "replay")  # which says so


def test_the_header_is_ascii_of_bounded_length(service: Service) -> None:
    text = (
        "Go " + " ".join(f"[tag {chr(97 + n % 26)}{n} привет]" for n in range(150)) + " you [1] " + "(happy) <b>" * 50
    )
    for answer in (service.speak(text, format="pcm"), service.speak("Plain words.", format="pcm")):
        assert answer.status_code == 200
        value = answer.headers.get(HEADER, "[]")
        assert len(value) <= MAX_NOTES_BYTES
        assert value.isascii()
        assert value.isprintable()
        assert bool(json.loads(value)) == ("Go" in str(answer.request.content))


def test_a_body_has_no_notes_in_it(start: Start) -> None:
    service = start(ToneBackend())
    answers: list[httpx.Response] = [
        service.speak(text, format="pcm", sample_rate=24000) for text in ("ab [1]", "abcdef")
    ]
    assert HEADER in answers[0].headers
    assert HEADER not in answers[1].headers
    assert len({len(answer.content) for answer in answers}) == 1


@pytest.mark.parametrize(
    ("notes", "listed"),
    [
        (["a\x7f\x1b\r\n\ud800é"], ["a\x7f\x1b\r\n\ud800é"]),
        (["x" * 5000], ["and 1 more"]),
        (["n"] * 40, [*["n"] * 16, "and 24 more"]),
        (["я" * 300] * 3, ["я" * 300, "and 2 more"]),
    ],
)
def test_a_header_of_notes(notes: list[str], listed: list[str]) -> None:
    value = header_of_notes(notes)
    assert json.loads(value) == listed
    assert len(value) <= MAX_NOTES_BYTES
    assert value.decode("ascii").isprintable()
