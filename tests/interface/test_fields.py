"""Parts 2.1, 2.2, 2.3 and 8, cell by cell: what a body may say, and what it says when it says nothing."""

from __future__ import annotations

import math
from typing import Any

import pytest

from tests.interface import tables
from tests.interface.conftest import Wire
from tests.interface.rules import each, proves
from tests.interface.wire import JSON, KINDS, MSGPACK, fields

REQUEST = tables.TTS_REQUEST
REFERENCE = {"audio": b"anything", "text": "A transcript."}
# A value of each type that is not the default, and what it is once it has arrived.
OF_TYPE: dict[str, Any] = {
    "text": "Köln 東京 🎈",
    "temperature": 0.25,
    "top_p": 0.25,
    "references": [REFERENCE],
    "reference_id": "ada",
    "prosody": {"speed": 1.5},
    "chunk_length": 120,
    "normalize": False,
    "format": "wav",
    "sample_rate": 16000,
    "mp3_bitrate": 64,
    "opus_bitrate": 24,
    "latency": "low",
    "max_new_tokens": 7,
    "repetition_penalty": 1.75,
    "min_chunk_length": 3,
    "condition_on_previous_chunks": False,
    "early_stop_threshold": 0.25,
}
WRONG: dict[str, list[Any]] = {
    "string": [1, 1.5, True, ["x"], {"x": 1}],
    "number": ["0.5", True, False, [0.5], {}, math.nan, math.inf, -math.inf],
    "integer": ["120", True, 120.5, [120], {}, math.nan, math.inf],
    "boolean": [0, 1, "true", "false", [], {}],
    "array of ReferenceAudio": [1, "x", True, [1], ["x"], [None], [[]]],
    "ProsodyControl": [1, "x", True, [], [1]],
}
BOUNDED = [name for name, field in REQUEST.items() if field.low is not None]
ENUMS = [f"{name}={value}" for name, field in REQUEST.items() for value in field.values]


@each("2.1/{}:type", REQUEST)
def test_type(wire: Wire, row: str) -> None:
    field = REQUEST[row]
    for kind in (MSGPACK,) if row == "references" else KINDS:
        got = getattr(wire.arrived(kind, **{row: OF_TYPE[row]}), row)
        if row == "references":
            assert [(one.audio, one.text) for one in got] == [(b"anything", "A transcript.")]
        elif row == "prosody":
            assert (got.speed, got.volume) == (1.5, 0)
        else:
            assert got == OF_TYPE[row]
            assert type(got) is type(OF_TYPE[row])
    for kind in KINDS:
        for wrong in WRONG[field.type]:
            locs = fields(wire.refused(kind, **{row: wrong}))
            assert all(loc[:2] == ["body", row] for loc in locs), (wrong, locs)
        if field.null:
            assert getattr(wire.arrived(kind, **{row: None}), row) is None
        else:
            assert fields(wire.refused(kind, **{row: None})) == [["body", row]]


@each("2.1/{}:required", REQUEST)
def test_required(wire: Wire, row: str) -> None:
    for kind in KINDS:
        left_out = {"references", row, *(["sample_rate"] if row == "format" else [])}
        answer = wire.caller.tts({name: OF_TYPE[name] for name in OF_TYPE.keys() - left_out}, kind)
        if REQUEST[row].required:
            assert fields(answer) == [["body", row]]
        else:
            assert answer.status == 200


@each("2.1/{}:default", [name for name, field in REQUEST.items() if field.default is not tables.MISSING])
def test_default(wire: Wire, row: str) -> None:
    for kind in KINDS:
        assert wire.caller.tts({"text": "Hi"}, kind).status == 200
        got = getattr(wire.backend.asked[-1][0], row)
        assert got == REQUEST[row].default
        assert isinstance(got, bool) == isinstance(REQUEST[row].default, bool)


def _bounds(wire: Wire, path: str) -> tuple[float, float]:
    """Try a number at its bounds and beyond them, and return them."""
    of, _, name = path.rpartition(".")
    field = tables.PROSODY_CONTROL[name] if of else REQUEST[name]
    low, high, whole = field.low or 0, field.high or 0, field.type == "integer"
    step, lowest, highest = (1, -(2**63), 2**63 - 1) if whole else (1e-6, -1e308, 1e308)
    for kind in KINDS:
        for number in (low, low + step, (low + high) // 2 if whole else (low + high) / 2, high - step, high):
            request: Any = wire.arrived(kind, **({of: {name: number}} if of else {name: number}))
            assert getattr(request.prosody if of else request, name) == number
        for number in (low - step, high + step, lowest, highest):
            answer = wire.refused(kind, **({of: {name: number}} if of else {name: number}))
            assert fields(answer) == [["body", *path.split(".")]]
    return low, high


@each("2.1/{}:bounds", BOUNDED)
def test_bounds(wire: Wire, row: str) -> None:
    _bounds(wire, row)


@each("8/{}", ["temperature", "top_p", "early_stop_threshold", "chunk_length", "min_chunk_length", "prosody.speed"])
def test_limits(wire: Wire, row: str) -> None:
    limits = {"chunk_length": (100, 300), "min_chunk_length": (0, 100), "prosody.speed": (0.5, 2.0)}
    assert _bounds(wire, row) == limits.get(row, (0, 1))


@each("2.1/{}", ENUMS)
def test_value(wire: Wire, row: str) -> None:
    name, _, text = row.partition("=")
    (value,) = (value for value in REQUEST[name].values if str(value) == text)
    for kind in KINDS:
        assert getattr(wire.arrived(kind, **{name: value}), name) == value


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        *(("format", wrong) for wrong in ("", "WAV", "flac", "wav ", "ogg")),
        *(("latency", wrong) for wrong in ("", "Low", "high")),
        *(("mp3_bitrate", wrong) for wrong in (0, 63, 96, 320, -1000, "128", 128.5, True, None)),
        *(("opus_bitrate", wrong) for wrong in (0, -1, 16, 96, 128, "24", 24.5, None)),
    ],
)
def test_no_other_value(wire: Wire, kind: str, name: str, wrong: Any) -> None:
    assert fields(wire.refused(kind, **{name: wrong})) == [["body", name]]


@proves("8/max_new_tokens:default")
def test_max_new_tokens_is_1024_when_not_given(wire: Wire, kind: str) -> None:
    assert wire.arrived(kind).max_new_tokens == 1024


@proves("8/max_new_tokens:maximum")
def test_max_new_tokens_has_no_maximum(wire: Wire, kind: str) -> None:
    for number in (1, 1025, 10**6, 2**31, 2**63 - 1):
        assert wire.arrived(kind, max_new_tokens=number).max_new_tokens == number
    # It counts tokens.
    for number in (0, -1):
        assert fields(wire.refused(kind, max_new_tokens=number)) == [["body", "max_new_tokens"]]


@each("2.2/{}:type", tables.REFERENCE_AUDIO)
def test_type_in_references(wire: Wire, row: str) -> None:
    for good in (b"\x00\xff", b"x" * 100_000) if row == "audio" else ("Grüße, 東京", "It's."):
        (got,) = wire.arrived(MSGPACK, references=[{**REFERENCE, row: good}]).references or ()
        assert getattr(got, row) == good
    wrong: Any
    for wrong in ("text" if row == "audio" else b"raw", 1, None, True, [], {}):
        answer = wire.refused(MSGPACK, references=[REFERENCE, {**REFERENCE, row: wrong}])
        assert fields(answer) == [["body", "references", "1", row]]


@each("2.2/{}:required", tables.REFERENCE_AUDIO)
def test_required_in_references(wire: Wire, row: str) -> None:
    partial = {name: value for name, value in REFERENCE.items() if name != row}
    assert fields(wire.refused(MSGPACK, references=[partial])) == [["body", "references", "0", row]]


@proves("2.1/references:msgpack", "4.1-5", "D-6")
def test_references_need_messagepack(wire: Wire) -> None:
    value: Any
    for value in ([{"audio": "UklGRg==", "text": "x"}], [{}], [1]):
        assert all(loc[:2] == ["body", "references"] for loc in fields(wire.refused(JSON, references=value)))
    assert not wire.arrived(JSON, references=None).references
    assert not wire.arrived(JSON, references=[]).references
    assert wire.arrived(MSGPACK, references=[REFERENCE]).references


@each("2.3/{}:type", tables.PROSODY_CONTROL)
def test_type_in_prosody(wire: Wire, row: str) -> None:
    for kind in KINDS:
        for number in (1, 1.25, *((-40, -0.5, 0, 20) if row == "volume" else ())):
            assert getattr(wire.arrived(kind, prosody={row: number}).prosody, row) == number
        for wrong in [*WRONG["number"], None]:
            assert fields(wire.refused(kind, prosody={row: wrong})) == [["body", "prosody", row]]


@each("2.3/{}:default", tables.PROSODY_CONTROL)
def test_default_in_prosody(wire: Wire, row: str) -> None:
    for kind in KINDS:
        assert getattr(wire.arrived(kind, prosody={}).prosody, row) == tables.PROSODY_CONTROL[row].default


@proves("2.3/speed:bounds")
def test_speed_is_0_5_to_2(wire: Wire) -> None:
    assert _bounds(wire, "prosody.speed") == (0.5, 2.0)
