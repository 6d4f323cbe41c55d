"""Parts 2.4, 3, 4.2 and 4.3: making voice models of recordings, and their records."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest

from tests.interface import tables
from tests.interface.conftest import Voice
from tests.interface.rules import each, proves
from tests.interface.sound import pitch
from tests.interface.uploads import COVER, SAID, body, both, parts
from tests.interface.wire import BOUNDARY, JSON, File, encode, fields, form, refusal

FORM = tables.VOICE_FORM
TYPES: dict[str, type] = {
    "string": str,
    "integer": int,
    "boolean": bool,
    "object": dict,
    "date-time": str,
    "array of string": list,
    "array of SampleEntity": list,
}


@pytest.fixture(scope="session")
def made(voice: Voice, speech: bytes) -> dict[str, Any]:
    """A record as POST /model answered it, with everything given."""
    given = {"title": "Ada of the tests", "description": "Clear.", "visibility": "public", "tags": "calm"}
    answer = voice.caller.create(parts(speech, cover_image=COVER, **given))
    assert answer.status == 201, answer.body
    record: dict[str, Any] = answer.json()
    return record


@pytest.fixture(scope="session")
def got(voice: Voice, made: dict[str, Any]) -> dict[str, Any]:
    answer = voice.caller.get(made["_id"])
    assert answer.status == 200
    record: dict[str, Any] = answer.json()
    return record


@each("2.4/{}:type", tables.VOICE_MODEL)
def test_type_of_record(made: dict[str, Any], got: dict[str, Any], row: str) -> None:
    field = tables.VOICE_MODEL[row]
    for record in (made, got):
        value: Any = record[row]
        kind = type(value)
        assert kind is TYPES[field.type]
        if field.type == "date-time":
            assert datetime.fromisoformat(value).tzinfo is not None
            assert "T" in value
        if field.type == "array of string":
            assert all(isinstance(one, str) for one in value)
        if field.values:
            assert value in field.values


@each("2.4/{}:required", tables.VOICE_MODEL)
def test_field_of_record_is_there(made: dict[str, Any], got: dict[str, Any], row: str) -> None:
    assert row in made.keys() & got.keys()  # also those that need not be


@proves("2.4/author:_id", "2.4/author:nickname", "2.4/author:avatar")
def test_the_author_has_an_id_a_nickname_and_an_avatar(made: dict[str, Any], got: dict[str, Any]) -> None:
    for record in (made, got):
        assert set(record["author"]) >= set(tables.AUTHOR)
        assert all(isinstance(record["author"][name], str) for name in tables.AUTHOR)


@proves("2.4/_id:meaning", "1-8", "4.3-1", "4.3-5")
def test_get_returns_the_record_by_its_identifier(voice: Voice, made: dict[str, Any]) -> None:
    answer = voice.caller.get(made["_id"])
    assert answer.status == 200
    assert answer.headers["content-type"].split(";")[0] == JSON
    assert answer.json() == made


@proves("4.3-2")
def test_the_path_needs_an_id(voice: Voice) -> None:
    for path in ("/model/", "/model/a/b", "/model//"):
        assert voice.caller.call("GET", path).status in {404, 405}
    for strange in ("%00", "..%2f..%2fetc", "%F0%9F%8E%88", "x" * 5000, "a%20b", "%ff"):
        refusal(voice.caller.get(strange), 404)


@proves("4.3-4")
def test_get_takes_no_body(voice: Voice, made: dict[str, Any]) -> None:
    """Without one it answers; one that is sent all the same changes nothing."""
    assert voice.caller.get(made["_id"]).status == 200
    answer = voice.caller.call("GET", f"/model/{made['_id']}", b'{"title": "x"}', Content_Type=JSON)
    assert answer.status == 200
    assert answer.json() == made


@proves("4.2-6", "D-11")
def test_post_answers_201_and_the_record(voice: Voice, made: dict[str, Any]) -> None:
    assert (made["title"], made["description"], made["visibility"]) == ("Ada of the tests", "Clear.", "public")
    assert (made["type"], made["train_mode"], made["tags"]) == ("tts", "fast", ["calm"])
    assert made["_id"]


@proves("D-17")
def test_a_record_has_all_fields_also_when_little_was_given(voice: Voice, speech: bytes) -> None:
    answer = voice.caller.create(parts(speech, texts=None))
    assert answer.status == 201
    record = answer.json()
    assert set(record) >= set(tables.VOICE_MODEL)
    assert record["description"] == record["cover_image"] == ""
    assert record["tags"] == []
    assert len(record["samples"]) == 1
    assert set(record["samples"][0]) == {"title", "text", "task_id", "audio"}
    assert all(isinstance(value, str) for value in record["samples"][0].values())


@each("2.4/{}:default", ["train_mode", "lock_visibility", "unliked", "liked", "marked"])
def test_default_of_record(made: dict[str, Any], row: str) -> None:
    # A model made here is fast; the default of a record that does not say is the client's (test_client).
    assert made[row] == ("fast" if row == "train_mode" else tables.VOICE_MODEL[row].default)


@proves("1-6", "4.2-1")
def test_a_voice_model_is_made_of_uploaded_audio(voice: Voice, other_speech: bytes) -> None:
    record = voice.caller.create(parts(other_speech, texts=SAID + " " + SAID)).json()
    said = voice.say(reference_id=record["_id"])
    assert said != voice.say()
    assert pitch(said) == pytest.approx(pitch(voice.say(reference_id="clara")), rel=0.25)


@proves("1-7", "3-2", "1-4", "2.1/reference_id:own")
def test_a_fast_model_speaks_at_once(voice: Voice, speech: bytes) -> None:
    record = voice.caller.create(parts(speech)).json()
    assert record["state"] == "trained"
    answer = voice.caller.tts({"text": "Yes.", "format": "pcm", "reference_id": record["_id"]})
    assert answer.status == 200
    assert len(answer.body) > 10_000


@proves("4.2-3")
def test_a_form_is_taken(voice: Voice, speech: bytes) -> None:
    assert voice.caller.create(parts(speech)).status == 201
    content = f'multipart/form-data; boundary="{BOUNDARY}"'
    assert voice.caller.call("POST", "/model", form(parts(speech)), Content_Type=content).status == 201


@proves("4.2-4")
def test_messagepack_is_taken(voice: Voice, speech: bytes) -> None:
    for voices in (speech, [speech]):
        answer = voice.caller.create({**body(speech), "voices": voices})
        assert answer.status == 201, answer.body
        assert answer.json()["samples"][0]["text"] == SAID


@proves("4.2-5")
def test_json_is_not_accepted(voice: Voice) -> None:
    value = {**body(b""), "voices": ["UklGRg=="]}
    refusal(voice.caller.call("POST", "/model", encode(value, JSON), Content_Type=JSON), 415)


@each("4.2/{}:required", FORM)
def test_required_in_form(voice: Voice, speech: bytes, row: str) -> None:
    for answer in both(voice.caller, speech, **{"cover_image": COVER if row == "visibility" else None, row: None}):
        if FORM[row].required:
            assert fields(answer) == [["body", row]]
        else:
            assert answer.status == 201, answer.body


WRONG: dict[str, list[Any]] = {
    "string": [1, True, ["x"], {}, b"x"],
    "files": ["text", 1, {}, [], ["text"], [1], [b""], b""],
    "file": ["text", 1, {}, ["x"]],
    "strings": [1, True, {}, [1], [None], [b"x"]],
    "boolean": ["maybe", 2, [], {}],
}


@each("4.2/{}:type", FORM)
def test_type_in_form(voice: Voice, speech: bytes, row: str) -> None:
    field = FORM[row]
    for wrong in WRONG[field.type]:
        locs = fields(voice.caller.create(body(speech, **{row: wrong})))
        assert all(loc[:2] == ["body", row] for loc in locs), (wrong, locs)
    if field.type in {"file", "files"}:  # a field that is text is no file
        assert fields(voice.caller.create([*parts(speech, **{row: None}), (row, "text")]))[0][:2] == ["body", row]
    if field.type == "boolean":
        assert fields(voice.caller.create(parts(speech, **{row: "maybe"}))) == [["body", row]]
    if field.null:
        assert voice.caller.create({**body(speech), row: None}).status == 201


@each("4.2/{}", ["type=tts", "train_mode=fast", "visibility=public", "visibility=unlist", "visibility=private"])
def test_value_in_form(voice: Voice, speech: bytes, row: str) -> None:
    name, _, value = row.partition("=")
    given = {name: value, "cover_image": COVER if value == "public" else None}
    for answer in both(voice.caller, speech, **given):
        assert answer.status == 201, answer.body
        assert answer.json()[name] == value


def test_no_other_value_in_form(voice: Voice, speech: bytes) -> None:
    wrong = {"type": ("svc", "TTS", ""), "train_mode": ("full", "Fast", ""), "visibility": ("x", "Public", "unlisted")}
    for name, value in ((name, value) for name, values in wrong.items() for value in values):
        for answer in both(voice.caller, speech, **{name: value}):
            assert fields(answer) == [["body", name]]


@proves("4.2/visibility:default", "4.2/cover_image:conditional")
def test_a_public_model_needs_a_cover_and_public_is_the_default(voice: Voice, speech: bytes) -> None:
    for visibility in (None, "public"):
        for answer in both(voice.caller, speech, visibility=visibility):
            assert fields(answer) == [["body", "cover_image"]]
        for answer in both(voice.caller, speech, visibility=visibility, cover_image=COVER):
            assert answer.json()["visibility"] == "public"


@each("4.2/{}:default", ["description", "cover_image", "enhance_audio_quality"])
def test_default_in_form(voice: Voice, speech: bytes, row: str) -> None:
    spelled = {"description": "", "cover_image": "", "enhance_audio_quality": "false"}[row]
    given = voice.caller.create(parts(speech, **{} if row == "cover_image" else {row: spelled})).json()
    left_out = voice.caller.create(parts(speech)).json()
    varying = {name: given[name] for name in ("_id", "created_at", "updated_at", "samples", "author")}
    assert {**left_out, **varying} == given
    if row != "enhance_audio_quality":
        assert left_out[row] == ""


@proves("D-15")
def test_the_cover_is_an_address_that_the_service_answers(voice: Voice, made: dict[str, Any], speech: bytes) -> None:
    address = made["cover_image"]
    assert address.startswith(voice.caller.url + "/")
    answer = voice.caller.call("GET", address.removeprefix(voice.caller.url))
    assert answer.status == 200
    assert answer.headers["content-type"].startswith("image/")
    assert answer.body == COVER.data
    assert fields(voice.caller.create(parts(speech, cover_image=File(b"no picture")))) == [["body", "cover_image"]]
