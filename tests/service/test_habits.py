"""Clients of the public service work against ours when they change their base URL: what they are used to send, and expect."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import httpx
import msgpack  # type: ignore[import-untyped]  # it publishes no types
import pytest

from tests.served import Service
from tests.speechlike import speech_file
from tests.voices.test_cover import picture

ONE, TWO = speech_file(1.2), speech_file(1.4, 200)
PNG = picture("png")
OCTETS = "application/octet-stream"

# Section 2.4, all of it: a client that has a class for the record may ask for any field.
RECORD = {
    "_id": str, "type": str, "title": str, "description": str, "cover_image": str, "state": str, "tags": list,
    "created_at": str, "updated_at": str, "visibility": str, "like_count": int, "mark_count": int,
    "shared_count": int, "task_count": int, "author": dict, "train_mode": str, "samples": list, "languages": list,
    "lock_visibility": bool, "unliked": bool, "liked": bool, "marked": bool,
}  # fmt: skip


Parts = list[tuple[str, tuple[str | None, Any] | tuple[str | None, Any, str]]]


def field(name: str, *values: str) -> Parts:
    return [(name, (None, value)) for value in values]


def upload(name: str, *values: bytes, file: str = "upload", kind: str = OCTETS) -> Parts:
    return [(name, (file, value, kind)) for value in values]


BASE = [*field("type", "tts"), *field("train_mode", "fast"), *field("title", "Ada"), *field("visibility", "private")]

FORMS: dict[str, Parts] = {
    "as the document has it": [*BASE, *upload("voices", ONE, file="a.wav", kind="audio/wav")],
    "every part a file named upload": [
        *upload("visibility", b"private"), *upload("type", b"tts"), *upload("title", b"Ada"),
        *upload("train_mode", b"fast"), *upload("voices", ONE), *upload("texts", b"said"),
        *upload("enhance_audio_quality", b"false"),
    ],
    "files first": [*upload("voices", ONE), *BASE],
    "indexed parts in any order": [
        *upload("voices[1]", TWO), *field("texts[1]", "two"), *BASE, *upload("voices[0]", ONE), *field("texts[0]", "one"),
    ],
    "empty brackets": [*BASE, *upload("voices[]", ONE, TWO), *field("texts[]", "one", "two"), *field("tags[]", "a", "b")],
    "repeated texts and tags": [*BASE, *upload("voices", ONE, TWO), *field("texts", "one", "two"), *field("tags", "a", "b")],
    "a boolean in words": [*BASE, *upload("voices", ONE), *field("enhance_audio_quality", "False")],
    "keys that are not listed": [*BASE, *upload("voices", ONE), *field("lock_visibility", "true"), *field("a", "b", "b")],
    "empty fields for what is left out": [
        *BASE, *upload("voices", ONE), *field("description", ""), *field("texts", ""), *field("tags", ""),
        *upload("cover_image", b"", file=""),
    ],
    "names and types that lie": [*BASE, *upload("voices", ONE, file="../../x.exe", kind="image/png")],
    "no visibility, so public with a cover": [*BASE[:3], *upload("voices", ONE), *upload("cover_image", PNG)],
    "a quoted title in another script": [*BASE[:2], *field("title", 'Ada "七" Ł'), BASE[3], *upload("voices", ONE)],
}  # fmt: skip


@pytest.mark.parametrize("name", FORMS)
def test_forms(host: Service, name: str) -> None:
    answer = host.http.post("/model", files=FORMS[name])
    assert answer.status_code == 201, answer.text
    whole(host, answer.json())
    given = [part for part, *_ in FORMS[name]]
    if "texts[1]" in given or given.count("texts") == 2 or "texts[]" in given:
        assert [sample["text"] for sample in answer.json()["samples"]] == ["one", "two"]
    if given.count("tags") == 2 or "tags[]" in given:
        assert answer.json()["tags"] == ["a", "b"]


def whole(host: Service, record: dict[str, Any]) -> None:
    """Check that a record is one to the letter, and that what it names can be fetched."""
    assert {name: type(value) for name, value in record.items()} == RECORD
    assert record["type"] in {"svc", "tts"}
    assert record["state"] in {"created", "training", "trained", "failed"}
    assert record["visibility"] in {"public", "unlist", "private"}
    assert record["train_mode"] in {"fast", "full"}
    assert {name: type(value) for name, value in record["author"].items()} == dict.fromkeys(
        ("_id", "nickname", "avatar"), str
    )
    for moment in ("created_at", "updated_at"):
        assert datetime.fromisoformat(record[moment]).tzinfo is not None
    assert record["samples"]
    for sample in record["samples"]:
        assert {name: type(value) for name, value in sample.items()} == dict.fromkeys(
            ("title", "text", "task_id", "audio"), str
        )
        assert host.http.get(sample["audio"]).content[:4] == b"RIFF"
    if record["cover_image"]:
        assert host.http.get(record["cover_image"]).content == PNG
    assert host.http.get(f"/model/{record['_id']}").json() == record


PACKED: dict[str, dict[str, Any]] = {
    "lists": {"voices": [ONE, TWO], "texts": ["one", "two"], "tags": ["a"]},
    "one value for a list": {"voices": ONE, "texts": "said", "tags": "calm"},
    "explicit nulls": {
        "voices": [ONE], "texts": None, "tags": None, "description": None, "cover_image": None,
        "enhance_audio_quality": None,
    },
    "empty lists": {"voices": [ONE], "texts": [], "tags": []},
    "keys that are not listed": {"voices": [ONE], "generate_sample": False, "lock_visibility": True, "a": {"b": [1]}},
    "no visibility, so public with a cover": {"voices": [ONE], "visibility": None, "cover_image": PNG},
}  # fmt: skip


@pytest.mark.parametrize("name", PACKED)
def test_messagepack(host: Service, name: str) -> None:
    base = {"type": "tts", "train_mode": "fast", "title": "Ada", "visibility": "private"}
    body = msgpack.packb({**base, **PACKED[name]})
    answer = host.http.post("/model", content=body, headers={"content-type": "application/msgpack"})
    assert answer.status_code == 201, answer.text
    whole(host, answer.json())


# The order and the keys in which the public service's own clients write a speech request.
SPEECH: dict[str, dict[str, Any]] = {
    "the least": {"text": "hi"},
    "keys that are not listed": {"text": "hi", "backend": "s1", "seed": 3, "top_k": 30, "streaming": True, "x": None},
    "explicit nulls": {"text": "hi", "references": None, "reference_id": None, "prosody": None, "sample_rate": None},
    "an empty list of references": {"text": "hi", "references": []},
    "the defaults of a client's class": {
        "text": "hi", "chunk_length": 200, "format": "mp3", "sample_rate": None, "mp3_bitrate": 64, "opus_bitrate": 32,
        "references": [], "reference_id": None, "normalize": True, "latency": "balanced", "prosody": None,
        "top_p": 0.7, "temperature": 0.7,
    },
    "a part of the prosody": {"text": "hi", "prosody": {"speed": 1}},
    "more in the prosody": {"text": "hi", "prosody": {"speed": 1.5, "volume": 3, "normalize_loudness": True}},
    "whole numbers where numbers belong": {"text": "hi", "temperature": 1, "top_p": 1, "early_stop_threshold": 1},
    "bitrates that the format does not have": {"text": "hi", "format": "wav", "mp3_bitrate": 64, "opus_bitrate": 24},
}  # fmt: skip


@pytest.mark.parametrize("kind", ["json", "msgpack"])
@pytest.mark.parametrize("name", SPEECH)
def test_speech(host: Service, name: str, kind: str) -> None:
    # Some clients name the model in a header that they always send, others in another case or not at all.
    for headers in ({}, {"model": "s1"}, {"Model": "s2-pro", "developer-id": "x", "accept": "*/*"}):
        wire = SPEECH[name]
        if kind == "json":
            answer = host.http.post("/v1/tts", json=wire, headers=headers)
        else:
            packed = {"content-type": "application/msgpack", **headers}
            answer = host.http.post("/v1/tts", content=msgpack.packb(wire), headers=packed)
        assert answer.status_code == 200, answer.text
        assert answer.headers["transfer-encoding"] == "chunked"
        assert answer.content


def test_a_file_read_in_pieces_of_unknown_length_is_taken(host: Service) -> None:
    request = httpx.Request("POST", host.url + "/model", files=FORMS["as the document has it"])
    body = request.read()
    pieces = (body[start : start + 10_000] for start in range(0, len(body), 10_000))
    headers = {"content-type": request.headers["content-type"]}
    answer = host.http.post("/model", content=pieces, headers=headers)
    assert answer.status_code == 201, answer.text
