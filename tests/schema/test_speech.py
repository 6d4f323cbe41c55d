from __future__ import annotations

import copy
import json
import math
import pickle
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import msgpack  # type: ignore[import-untyped]
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pydantic import ValidationError

from voicelab.errors import RequestInvalid
from voicelab.schema import (
    DEFAULT_RATES,
    FORMATS,
    LATENCIES,
    MEDIA_TYPES,
    MODELS,
    MP3_BITRATES,
    OPUS_BITRATES,
    RATES,
    ProsodyControl,
    ReferenceAudio,
    TTSRequest,
    check_model,
)

# Field, lowest and highest value of the interface's section 8 (and what we add where it is silent).
NUMBERS = [
    ("temperature", 0, 1),
    ("top_p", 0, 1),
    ("early_stop_threshold", 0, 1),
    ("repetition_penalty", math.nextafter(0, 1), 100),
]
WHOLES = [("chunk_length", 100, 300), ("min_chunk_length", 0, 100), ("max_new_tokens", 1, 2**63 - 1)]
SEGMENTED = [("speed", 0.5, 2), ("volume", -100, 100)]
NO_NUMBERS: list[Any] = [True, False, None, "0.5", "1", b"1", [], {}, math.nan, math.inf, -math.inf, 10**400, 2**63]


def problems(**fields: Any) -> list[dict[str, object]]:
    with pytest.raises(RequestInvalid) as caught:
        TTSRequest.build(**{"text": "hello", **fields})
    return [error.to_wire() for error in caught.value.errors]


def wire_problems(wire: Any, *, binary: bool = True) -> list[dict[str, object]]:
    with pytest.raises(RequestInvalid) as caught:
        TTSRequest.from_wire(wire, binary=binary)
    return [error.to_wire() for error in caught.value.errors]


def only_at(items: list[dict[str, object]], *loc: str) -> None:
    assert [item["loc"] for item in items] == [["body", *loc]]
    for item in items:
        assert item["in"] == "body"
        assert item["msg"]
        assert item["type"]
        assert isinstance(item.get("ctx", ""), str)
        json.dumps(item, allow_nan=False)


def test_defaults_are_those_of_the_interface() -> None:
    assert TTSRequest(text="hello").to_wire() == {
        "text": "hello",
        "temperature": 0.7,
        "top_p": 0.7,
        "references": None,
        "reference_id": None,
        "prosody": None,
        "chunk_length": 300,
        "normalize": True,
        "format": "mp3",
        "sample_rate": None,
        "mp3_bitrate": 128,
        "opus_bitrate": -1000,
        "latency": "normal",
        "max_new_tokens": 1024,
        "repetition_penalty": 1.2,
        "min_chunk_length": 50,
        "condition_on_previous_chunks": True,
        "early_stop_threshold": 1.0,
    }
    assert ProsodyControl().model_dump() == {"speed": 1.0, "volume": 0.0}


def test_every_field_is_described() -> None:
    for model in (TTSRequest, ReferenceAudio, ProsodyControl):
        for name, field in model.model_fields.items():
            assert field.description, name


@pytest.mark.parametrize(("field", "low", "high"), NUMBERS)
def test_numbers_are_taken_up_to_both_bounds_and_no_further(field: str, low: float, high: float) -> None:
    for value in (low, high, (low + high) / 2):
        assert getattr(TTSRequest.build(text="a", **{field: value}), field) == value
    for value in (math.nextafter(low, -math.inf), math.nextafter(high, math.inf), -1, 2**63, -(2**63), 1e308):
        only_at(problems(**{field: value}), field)


@pytest.mark.parametrize(("field", "low", "high"), WHOLES)
def test_whole_numbers_are_taken_up_to_both_bounds_and_no_further(field: str, low: int, high: int) -> None:
    for value in (low, high):
        assert getattr(TTSRequest.build(text="a", **{field: value}), field) == value
    for wrong in (low - 1, high + 1, -1, 2**63, 10**30, float(low), low + 0.5):
        only_at(problems(**{field: wrong}), field)


@pytest.mark.parametrize(("field", "low", "high"), SEGMENTED)
def test_prosody_is_bounded_and_names_the_whole_path(field: str, low: float, high: float) -> None:
    for value in (low, high):
        request = TTSRequest.build(text="a", prosody={field: value})
        assert request.prosody == ProsodyControl(**{field: value})
    for wrong in (math.nextafter(low, -math.inf), math.nextafter(high, math.inf), math.nan, True, "1"):
        only_at(problems(prosody={field: wrong}), "prosody", field)


@pytest.mark.parametrize("field", [name for name, *_ in NUMBERS + WHOLES])
@pytest.mark.parametrize("value", NO_NUMBERS, ids=lambda value: repr(value)[:20])
def test_what_is_no_number_is_refused_by_field(field: str, value: Any) -> None:
    if value == 2**63 and field == "repetition_penalty":
        value = 2.0**63
    only_at(problems(**{field: value}), field)


@pytest.mark.parametrize("field", ["normalize", "condition_on_previous_chunks"])
def test_only_booleans_are_booleans(field: str) -> None:
    assert getattr(TTSRequest.build(text="a", **{field: False}), field) is False
    for value in (0, 1, "true", None, 0.0):
        only_at(problems(**{field: value}), field)


@pytest.mark.parametrize(
    ("field", "values"),
    [("format", FORMATS), ("latency", LATENCIES), ("mp3_bitrate", MP3_BITRATES), ("opus_bitrate", OPUS_BITRATES)],
)
def test_enumerations_take_their_members_only(field: str, values: tuple[Any, ...]) -> None:
    for value in values:
        assert getattr(TTSRequest.build(text="a", **{field: value}), field) == value
    for value in ("flac", "", "MP3", 0, 96, 64.0, True, None, [], "\ud800", str(values[0]) + " ", 2**64):
        only_at(problems(**{field: value}), field)


def test_each_format_takes_its_rates_and_no_other() -> None:
    everything = sorted({rate for rates in RATES.values() for rate in rates} | {0, -1, 1, 22050, 96000, 2**70})
    for kind in FORMATS:
        assert TTSRequest(text="a", format=kind).rate == DEFAULT_RATES[kind]
        for rate in everything:
            if rate in RATES[kind]:
                assert TTSRequest(text="a", format=kind, sample_rate=rate).rate == rate
            else:
                only_at(problems(format=kind, sample_rate=rate), "sample_rate")
    assert {kind: DEFAULT_RATES[kind] in RATES[kind] for kind in FORMATS} == dict.fromkeys(FORMATS, True)
    assert set(MEDIA_TYPES) == set(FORMATS)


def test_a_rate_of_many_digits_is_refused_without_printing_it() -> None:
    items = problems(sample_rate=10**6000)
    only_at(items, "sample_rate")
    assert len(json.dumps(items)) < 500


def test_a_wrong_format_does_not_blame_the_rate_as_well() -> None:
    only_at(problems(format="flac", sample_rate=12345), "format")


@pytest.mark.parametrize(
    "text", ["", " ", "\n\t ", "\u3000\u2003", None, 5, b"hello", ["hello"], "half \ud83d", "\udc00"]
)
def test_text_must_say_something_in_unicode(text: Any) -> None:
    only_at(problems(text=text), "text")


@pytest.mark.parametrize("text", ["a", "\x00", "🦆", "e\u0301", "x" * 100_000, "\U0010ffff"])
def test_any_other_text_is_kept_as_it_is(text: str) -> None:
    assert TTSRequest(text=text).text == text


def test_a_missing_text_is_named() -> None:
    only_at(wire_problems({}), "text")


def test_every_wrong_field_is_named_at_once() -> None:
    error = problems(temperature=2, top_p=-1, format="x", prosody={"speed": 9}, reference_id=5)
    assert [item["loc"] for item in error] == [
        ["body", "temperature"],
        ["body", "top_p"],
        ["body", "reference_id"],
        ["body", "prosody", "speed"],
        ["body", "format"],
    ]


@pytest.mark.parametrize(
    ("wrong", "meant"),
    [
        ("temp", "temperature"),
        ("temprature", "temperature"),
        ("top_P", "top_p"),
        ("reference", "references"),
        ("sampling_rate", "sample_rate"),
        ("chunk_len", "chunk_length"),
        ("speed", "prosody"),
        ("volume", "prosody"),
        ("voice", "reference_id"),
        ("bitrate", "mp3_bitrate"),
        ("seed", "seed="),
        ("model", "header"),
    ],
)
def test_an_unknown_keyword_says_what_was_meant(wrong: str, meant: str) -> None:
    (item,) = problems(**{wrong: 1})
    assert item["loc"] == ["body", wrong]
    assert "did you mean" in str(item["msg"])
    assert meant in str(item["msg"]).partition("did you mean")[2]


def test_an_unknown_keyword_of_a_part_is_hinted_too() -> None:
    (item,) = problems(prosody={"sped": 1})
    assert item["loc"] == ["body", "prosody", "sped"]
    assert "speed" in str(item["msg"])
    (item,) = problems(references=[{"audio": b"x", "text": "x", "txt": "y"}])
    assert item["loc"] == ["body", "references", "0", "txt"]
    assert "text" in str(item["msg"])


def test_an_unknown_keyword_like_nothing_lists_the_fields() -> None:
    (item,) = problems(zzzzzz=1)
    assert "early_stop_threshold" in str(item["msg"])


def test_values_do_not_appear_in_errors() -> None:
    assert "hunter2" not in json.dumps(problems(format="hunter2", reference_id=["hunter2"], temperature="hunter2"))


def test_constructors_of_parts_raise_request_invalid() -> None:
    with pytest.raises(RequestInvalid, match="speed"):
        ProsodyControl(speed=9)
    with pytest.raises(RequestInvalid, match="audio"):
        ReferenceAudio(audio=b"", text="x")
    for audio in ("text", bytearray(b"x"), None):
        with pytest.raises(RequestInvalid, match="audio"):
            ReferenceAudio.build(audio=audio, text="x")


def test_numpy_and_other_numbers_are_numbers() -> None:
    request = TTSRequest.build(
        text="a",
        temperature=np.float32(0.5),
        chunk_length=np.int64(200),
        top_p=Fraction(1, 4),
        sample_rate=np.int32(32000),
    )
    assert (request.temperature, request.chunk_length, request.top_p, request.rate) == (0.5, 200, 0.25, 32000)
    assert type(request.chunk_length) is int
    only_at(problems(temperature=np.bool_(True)), "temperature")


def test_zero_has_one_form() -> None:
    request = TTSRequest.build(text="a", temperature=-0.0, prosody={"volume": -0.0})
    assert json.dumps(request.canonical()) == json.dumps(TTSRequest.build(text="a", temperature=0).canonical())


def test_values_are_frozen_and_a_change_is_validated() -> None:
    request = TTSRequest(text="a", format="opus")
    with pytest.raises(ValidationError):
        request.temperature = 0.1
    assert request.replace(format="wav", sample_rate=8000).rate == 8000
    assert request.format == "opus"
    with pytest.raises(RequestInvalid, match="sample_rate"):
        request.replace(sample_rate=8000)
    with pytest.raises(RequestInvalid, match="temperature"):
        request.replace(temprature=1)


def test_requests_compare_hash_copy_and_pickle_by_value() -> None:
    request = TTSRequest(text="a", references=(ReferenceAudio(audio=b"x", text="y"),))
    twin = TTSRequest.build(text="a", references=[{"audio": b"x", "text": "y"}])
    assert request == twin
    assert hash(request) == hash(twin)
    assert copy.deepcopy(request) == request
    assert pickle.loads(pickle.dumps(request)) == request  # noqa: S301 - our own bytes, made one call before


def test_reference_audio_stays_out_of_reprs() -> None:
    assert "SECRET" not in repr(TTSRequest(text="a", references=(ReferenceAudio(audio=b"SECRET", text="y"),)))


# --- the wire


def test_unknown_keys_of_the_wire_are_ignored_at_every_depth() -> None:
    wire = {
        "text": "a",
        "zz": 1,
        5: 6,
        b"x": None,
        "prosody": {"speed": 2, "pitch": 3},
        "references": [{"audio": b"x", "text": "t", "more": 1}],
    }
    request = TTSRequest.from_wire(wire, binary=True)
    assert request.prosody == ProsodyControl(speed=2)
    assert request.references == (ReferenceAudio(audio=b"x", text="t"),)


@pytest.mark.parametrize("body", [None, [], "text", 5, b"", True, [{"text": "a"}]])
def test_a_body_that_is_no_object_is_refused(body: Any) -> None:
    only_at(wire_problems(body))


def test_json_takes_no_references_but_null_and_empty() -> None:
    empty: list[Any] = [None, []]
    for references in empty:
        assert not TTSRequest.from_wire({"text": "a", "references": references}, binary=False).references
    full: list[Any] = [[{"audio": "YQ==", "text": "b"}], {}, "", 0, False, [None]]
    for wrong in full:
        items = wire_problems({"text": "a", "references": wrong}, binary=False)
        only_at(items, "references")
        assert "msgpack" in str(items[0]["msg"])


def test_references_in_json_do_not_hide_other_errors() -> None:
    items = wire_problems({"references": [1]}, binary=False)
    assert [item["loc"] for item in items] == [["body", "text"], ["body", "references"]]


@pytest.mark.parametrize("binary", [True, False])
@pytest.mark.parametrize("references", [[{"audio": 5}], "nonsense", 7, [{}], {"a": 1}])
def test_references_beside_a_reference_id_are_not_looked_at(references: Any, binary: bool) -> None:
    request = TTSRequest.from_wire({"text": "a", "reference_id": "ada", "references": references}, binary=binary)
    assert request.reference_id == "ada"
    assert request.references is None


@pytest.mark.parametrize(
    "references", [[{"audio": 5, "text": "b"}], [{"text": "b"}], [{"audio": b"x"}], ["x"], 7, "xy", {}]
)
def test_malformed_references_are_named(references: Any) -> None:
    items = wire_problems({"text": "a", "references": references})
    assert items
    for item in items:
        loc = item["loc"]
        assert isinstance(loc, list)
        assert loc[:2] == ["body", "references"]


def test_canonical_form_is_the_meaning() -> None:
    def form(**fields: Any) -> Mapping[str, Any]:
        return TTSRequest.build(**{"text": "a", **fields}).canonical()

    assert (
        form() == form(sample_rate=44100) == form(references=[]) == form(prosody={}) == form(prosody=ProsodyControl())
    )
    assert form(reference_id="x") == form(reference_id="x", references=[{"audio": b"1", "text": "t"}])
    first, second = ({"audio": audio, "text": "t"} for audio in (b"1", b"2"))
    assert form(references=[first]) != form(references=[second]) != form()
    json.dumps(form(references=[first, second]), allow_nan=False)


def test_the_model_header() -> None:
    assert check_model(None) == "s2-pro"
    for model in MODELS:
        assert check_model(model) == model
    for wrong in ("", "S1", "s2", "s2-pro ", 1, b"s1"):
        with pytest.raises(RequestInvalid) as caught:
            check_model(wrong)
        (error,) = caught.value.errors
        assert error.to_wire()["loc"] == ["header", "model"]
        assert error.to_wire()["in"] == "header"


texts = st.text(min_size=1).filter(lambda text: text.strip() and text.isprintable())
numbers = st.floats(0, 1)
samples = st.fixed_dictionaries({"audio": st.binary(min_size=1, max_size=20), "text": texts})
references = st.lists(samples, max_size=3)


@st.composite
def bodies(draw: st.DrawFn) -> dict[str, Any]:
    kind = draw(st.sampled_from(FORMATS))
    required = {
        "text": draw(texts),
        "format": kind,
        "sample_rate": draw(st.none() | st.sampled_from(RATES[kind])),
    }
    optional = st.fixed_dictionaries(
        {},
        optional={
            "temperature": numbers,
            "top_p": numbers,
            "references": st.none() | references,
            "reference_id": st.none() | texts,
            "prosody": st.none() | st.fixed_dictionaries({}, optional={"speed": st.floats(0.5, 2), "volume": numbers}),
            "chunk_length": st.integers(100, 300),
            "normalize": st.booleans(),
            "mp3_bitrate": st.sampled_from(MP3_BITRATES),
            "opus_bitrate": st.sampled_from(OPUS_BITRATES),
            "latency": st.sampled_from(LATENCIES),
            "max_new_tokens": st.integers(1, 2**63 - 1),
            "repetition_penalty": st.floats(0, 100, exclude_min=True),
            "min_chunk_length": st.integers(0, 100),
            "condition_on_previous_chunks": st.booleans(),
            "early_stop_threshold": numbers,
        },
    )
    return {**required, **draw(optional)}


@given(bodies())
def test_a_request_goes_over_both_wires_unchanged(body: dict[str, Any]) -> None:
    request = TTSRequest.build(**body)
    packed = msgpack.unpackb(msgpack.packb(request.to_wire()))
    again = TTSRequest.from_wire(packed, binary=True)
    assert again.canonical() == request.canonical()
    if not request.references:
        textual = TTSRequest.from_wire(json.loads(json.dumps(request.to_wire())), binary=False)
        assert textual.canonical() == request.canonical()


anything = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters(categories=None), max_size=8)
    | st.binary(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.sampled_from([*TTSRequest.model_fields, "zz"]), anything), st.booleans())
@example({"text": "\ud800"}, True)
@example({"text": "a", "temperature": 1e999}, False)
def test_any_body_is_a_request_or_a_422(body: dict[str, Any], binary: bool) -> None:
    try:
        request = TTSRequest.from_wire(body, binary=binary)
    except RequestInvalid as error:
        # What is answered must itself be sendable, and name at least one field.
        answer = json.dumps([item.to_wire() for item in error.errors], allow_nan=False)
        named = str(error)
    else:
        msgpack.packb(request.to_wire())
        answer = json.dumps(request.canonical(), allow_nan=False)
        named = request.text
    assert answer.encode() != b"[]"
    assert named.strip()
