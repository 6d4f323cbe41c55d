from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from voicelab.errors import RequestInvalid, ServiceError
from voicelab.schema import Author, SampleEntity, VoiceCreate, VoiceModel

RECORD: dict[str, Any] = {
    "_id": "abc",
    "type": "tts",
    "title": "Ada",
    "description": "",
    "cover_image": "",
    "state": "trained",
    "tags": ["clear"],
    "created_at": "2026-01-02T03:04:05Z",
    "updated_at": "2026-01-02T03:04:05.678+02:00",
    "visibility": "private",
    "like_count": 0,
    "mark_count": 1,
    "shared_count": 2,
    "task_count": 3,
    "author": {"_id": "me", "nickname": "Me", "avatar": ""},
}


def refused(**fields: Any) -> list[str]:
    with pytest.raises(RequestInvalid) as caught:
        VoiceCreate.build(**{"title": "Ada", "voices": [b"x"], "visibility": "private", **fields})
    return [error.field for error in caught.value.errors]


def refused_wire(wire: Any, *, form: bool = False) -> list[str]:
    with pytest.raises(RequestInvalid) as caught:
        VoiceCreate.from_wire(wire, form=form)
    return [error.field for error in caught.value.errors]


def test_a_record_is_read_and_written_with_every_field() -> None:
    model = VoiceModel.from_wire(RECORD)
    assert model.id == "abc"
    assert model.author == Author(id="me", nickname="Me")
    assert model.created_at == datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    wire = model.to_wire()
    assert {key: wire[key] for key in RECORD if not key.endswith("_at")} == {
        key: value for key, value in RECORD.items() if not key.endswith("_at")
    }
    optional = {"train_mode": "full", "samples": [], "languages": [], "lock_visibility": False}
    optional |= {"unliked": False, "liked": False, "marked": False}
    assert {key: wire[key] for key in optional} == optional
    assert set(wire) == set(RECORD) | set(optional)
    assert VoiceModel.from_wire(json.loads(json.dumps(wire))) == model


def test_a_record_may_have_more_fields_and_null_ones() -> None:
    model = VoiceModel.from_wire({**RECORD, "novelty": 1, "samples": None, "languages": None, "description": None})
    assert model.samples == ()
    assert model.description == ""


def test_samples_of_a_record() -> None:
    sample = {"title": "t", "text": "say", "task_id": "1", "audio": "https://voice.example/a.mp3"}
    model = VoiceModel.from_wire({**RECORD, "samples": [sample, {"title": None}]})
    assert model.samples == (SampleEntity(**sample), SampleEntity())
    assert model.to_wire()["samples"][0] == sample


@pytest.mark.parametrize("missing", ["_id", "title", "state", "created_at", "updated_at", "visibility", "author"])
def test_a_record_without_a_needed_field_is_a_service_error(missing: str) -> None:
    with pytest.raises(ServiceError, match=missing):
        VoiceModel.from_wire({key: value for key, value in RECORD.items() if key != missing})


@pytest.mark.parametrize(
    "record",
    [
        None,
        [],
        "x",
        {},
        {**RECORD, "state": "new"},
        {**RECORD, "visibility": "secret"},
        {**RECORD, "created_at": "soon"},
    ],
)
def test_another_answer_is_a_service_error(record: Any) -> None:
    with pytest.raises(ServiceError, match="not a voice model record"):
        VoiceModel.from_wire(record)


def test_creation_has_the_defaults_of_the_interface() -> None:
    request = VoiceCreate(title="Ada", voices=(b"x",), cover_image=b"png")
    assert request.to_wire() == {
        "title": "Ada",
        "voices": [b"x"],
        "texts": [],
        "visibility": "public",
        "description": None,
        "cover_image": b"png",
        "tags": [],
        "enhance_audio_quality": False,
        "train_mode": "fast",
        "type": "tts",
    }


def test_a_public_voice_needs_a_cover() -> None:
    assert refused(visibility="public") == ["cover_image"]
    assert refused(visibility="public", cover_image=b"") == ["cover_image"]
    for visibility in ("unlist", "private"):
        VoiceCreate.build(title="Ada", voices=[b"x"], visibility=visibility)


def test_transcripts_are_as_many_as_voices_or_none() -> None:
    assert VoiceCreate.build(title="a", voices=[b"x", b"y"], visibility="private").texts == ()
    assert VoiceCreate.build(title="a", voices=[b"x", b"y"], texts=["1", "2"], visibility="private").texts == ("1", "2")
    assert refused(texts=["1", "2"]) == ["texts"]
    assert refused(voices=[b"x", b"y"], texts=["1"]) == ["texts"]


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"title": " "}, "title"),
        ({"title": 5}, "title"),
        ({"voices": []}, "voices"),
        ({"voices": [b""]}, "voices.0"),
        ({"voices": [b"x", "y"]}, "voices.1"),
        ({"visibility": "open"}, "visibility"),
        ({"train_mode": "full"}, "train_mode"),
        ({"type": "svc"}, "type"),
        ({"enhance_audio_quality": "true"}, "enhance_audio_quality"),
        ({"enhance_audio_quality": 1}, "enhance_audio_quality"),
        ({"tags": [5]}, "tags.0"),
        ({"description": "\ud800"}, "description"),
        ({"cover_image": "http://x"}, "cover_image"),
        ({"titel": "x"}, "titel"),
    ],
)
def test_each_wrong_field_is_named(fields: dict[str, Any], named: str) -> None:
    assert refused(**fields) == [named]


def test_files_stay_out_of_reprs() -> None:
    request = VoiceCreate(title="a", voices=(b"SECRET",), cover_image=b"SECRET")
    assert "SECRET" not in repr(request)


def test_the_wire_needs_type_and_mode_and_takes_single_values() -> None:
    wire = {"title": "Ada", "voices": b"x", "texts": "hello", "tags": "clear", "visibility": "unlist"}
    assert refused_wire(wire) == ["type", "train_mode"]
    request = VoiceCreate.from_wire({**wire, "type": "tts", "train_mode": "fast", "novelty": 1})
    assert (request.voices, request.texts, request.tags) == ((b"x",), ("hello",), ("clear",))
    assert VoiceCreate.from_wire(request.to_wire()) == request
    assert refused_wire([]) == ["body"]


@pytest.mark.parametrize(
    ("written", "value"), [("true", True), ("True", True), ("1", True), ("false", False), ("0", False)]
)
def test_a_form_writes_booleans_out(written: str, value: bool) -> None:
    form = {"title": "A", "voices": [b"x"], "type": "tts", "train_mode": "fast", "visibility": "private"}
    assert VoiceCreate.from_wire({**form, "enhance_audio_quality": written}, form=True).enhance_audio_quality is value
    assert refused_wire({**form, "enhance_audio_quality": "perhaps"}, form=True) == ["enhance_audio_quality"]
    assert refused_wire({**form, "enhance_audio_quality": written}) == ["enhance_audio_quality"]


def test_an_empty_form_value_is_no_value() -> None:
    form = {
        "title": "A",
        "voices": [b"x"],
        "type": "tts",
        "train_mode": "fast",
        "visibility": "private",
        "description": "",
    }
    assert VoiceCreate.from_wire({**form, "texts": "", "tags": ""}, form=True).texts == ()
    assert refused_wire({**form, "title": ""}, form=True) == ["title"]


anything = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.text(st.characters(categories=None), max_size=5)
    | st.binary(max_size=5)
)


@given(
    st.dictionaries(st.sampled_from(list(VoiceCreate.model_fields)), anything | st.lists(anything, max_size=3)),
    st.booleans(),
)
def test_any_creation_is_valid_or_a_422(wire: dict[str, Any], form: bool) -> None:
    try:
        VoiceCreate.from_wire(wire, form=form)
    except RequestInvalid as error:
        json.dumps([item.to_wire() for item in error.errors], allow_nan=False).encode()


@given(st.dictionaries(st.sampled_from(list(RECORD)), anything))
def test_any_record_is_read_or_a_service_error(changes: dict[str, Any]) -> None:
    try:
        VoiceModel.from_wire({**RECORD, **changes})
    except ServiceError as error:
        str(error).encode()
