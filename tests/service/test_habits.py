"""What clients of the public service are used to send, beyond what the interface's document shows, is taken by ours."""

from __future__ import annotations

from typing import Any

import httpx
import msgpack  # type: ignore[import-untyped]  # it publishes no types
import pytest

from tests.interface import tables
from tests.served import Service
from tests.speechlike import speech_file
from tests.voices.test_cover import picture

ONE, TWO = speech_file(1.2), speech_file(1.4, 200)
OCTETS = "application/octet-stream"
Parts = list[tuple[str, tuple[str | None, Any] | tuple[str | None, Any, str]]]


def field(name: str, *values: str) -> Parts:
    return [(name, (None, value)) for value in values]


def upload(name: str, *values: bytes, file: str = "upload", kind: str = OCTETS) -> Parts:
    return [(name, (file, value, kind)) for value in values]


BASE = [*field("type", "tts"), *field("train_mode", "fast"), *field("title", "Ada"), *field("visibility", "private")]

FORMS: dict[str, Parts] = {
    "every part a file named upload, files first": [
        *upload("voices", ONE, TWO), *upload("texts", b"one", b"two"), *upload("visibility", b"private"),
        *upload("type", b"tts"), *upload("title", b"Ada"), *upload("train_mode", b"fast"),
        *upload("enhance_audio_quality", b"false"),
    ],
    "indexed parts in any order": [
        *upload("voices[1]", TWO), *field("texts[1]", "two"), *BASE, *upload("voices[0]", ONE), *field("texts[0]", "one"),
    ],
    "a boolean in words": [*BASE, *upload("voices", ONE), *field("enhance_audio_quality", "False")],
    "keys that are not listed": [*BASE, *upload("voices", ONE), *field("lock_visibility", "true"), *field("a", "b", "b")],
    "empty fields for what is left out": [
        *BASE, *upload("voices", ONE), *field("description", ""), *field("texts", ""), *field("tags", ""),
        *upload("cover_image", b"", file=""),
    ],
    "names and types that lie": [*BASE, *upload("voices", ONE, file="../../x.exe", kind="image/png")],
}  # fmt: skip
PACKED: dict[str, dict[str, Any]] = {
    "explicit nulls": {
        "texts": None, "tags": None, "description": None, "cover_image": None, "enhance_audio_quality": None,
    },
    "empty lists": {"texts": [], "tags": []},
    "keys that are not listed": {"generate_sample": False, "lock_visibility": True, "a": {"b": [1]}},
    "no visibility, so public with a cover": {"visibility": None, "cover_image": picture("png")},
}  # fmt: skip


def whole(answer: httpx.Response) -> Any:
    """Check that an answer has a record with every field there is, and return it."""
    assert answer.status_code == 201, answer.text
    assert set(answer.json()) == set(tables.VOICE_MODEL)
    return answer.json()


@pytest.mark.parametrize("name", FORMS)
def test_forms(host: Service, name: str) -> None:
    record = whole(host.http.post("/model", files=FORMS[name]))
    if any(part.startswith("texts") and text != "" for part, (_, text, *_) in FORMS[name]):
        assert [sample["text"] for sample in record["samples"]] == ["one", "two"]


@pytest.mark.parametrize("name", PACKED)
def test_messagepack(host: Service, name: str) -> None:
    base = {"type": "tts", "train_mode": "fast", "title": "Ada", "visibility": "private", "voices": [ONE]}
    body = msgpack.packb({**base, **PACKED[name]})
    whole(host.http.post("/model", content=body, headers={"content-type": "application/msgpack"}))


def test_a_file_read_in_pieces_of_unknown_length_is_taken(host: Service) -> None:
    request = httpx.Request("POST", host.url + "/model", files=[*BASE, *upload("voices", ONE, file="a.wav")])
    body = request.read()
    pieces = (body[start : start + 10_000] for start in range(0, len(body), 10_000))
    whole(host.http.post("/model", content=pieces, headers={"content-type": request.headers["content-type"]}))
