from __future__ import annotations

import copy
import json
import math
import pickle
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from voicelab.errors import RequestInvalid
from voicelab.schema import (
    DEFAULT_RATES,
    FORMATS,
    LATENCIES,
    MEDIA_TYPES,
    MP3_BITRATES,
    OPUS_BITRATES,
    RATES,
    ProsodyControl,
    ReferenceAudio,
    TTSRequest,
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


def test_errors_state_the_bounds_and_a_short_value() -> None:
    errors = problems(temperature=1.5, format="flac", reference_id=["hunter2"], chunk_length="long " * 50)
    assert {error["msg"] for error in errors} == {
        "must be a string, got list",
        "must be 'wav', 'pcm', 'mp3' or 'opus', got 'flac'",
        "must be between 0 and 1, got 1.5",
        "must be a whole number, got str",
    }


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
    assert request.model_copy() == request
    assert request.model_copy(update={"format": "pcm"}).format == "pcm"
    with pytest.raises(RequestInvalid, match="top_p"):
        request.model_copy(update={"top_p": 7})


def test_requests_compare_hash_copy_and_pickle_by_value() -> None:
    request = TTSRequest(text="a", references=(ReferenceAudio(audio=b"x", text="y"),))
    twin = TTSRequest.build(text="a", references=[{"audio": b"x", "text": "y"}])
    assert request == twin
    assert hash(request) == hash(twin)
    assert copy.deepcopy(request) == request
    assert pickle.loads(pickle.dumps(request)) == request  # noqa: S301 - our own bytes, made one call before


def test_reference_audio_stays_out_of_reprs() -> None:
    assert "SECRET" not in repr(TTSRequest(text="a", references=(ReferenceAudio(audio=b"SECRET", text="y"),)))
