from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import msgpack  # type: ignore[import-untyped]
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from voicelab.errors import RequestInvalid
from voicelab.schema import (
    FORMATS,
    LATENCIES,
    MODELS,
    MP3_BITRATES,
    OPUS_BITRATES,
    RATES,
    ProsodyControl,
    ReferenceAudio,
    TTSRequest,
    check_model,
)


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


def test_a_missing_text_is_named() -> None:
    only_at(wire_problems({}), "text")


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
