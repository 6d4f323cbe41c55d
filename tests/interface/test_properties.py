"""Any value that the document allows is taken, and any other is a 422 that names its field: never a 500."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.interface import tables
from tests.interface.conftest import Wire
from tests.interface.wire import JSON, MSGPACK, fields

REQUEST = tables.TTS_REQUEST
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12).map(lambda text: f"a{text}")
# Of numbers without bounds in the document, what has a meaning: a ratio, and decibels that can be heard.
UNBOUNDED = {"repetition_penalty": (0.5, 10.0), "volume": (-40.0, 40.0), "max_new_tokens": (1, 2**63 - 1)}
SURROGATE = "\ud83c"
INTEGERS = st.integers(-(2**63), 2**64 - 1)  # all that MessagePack can carry


def _number(low: float, high: float) -> st.SearchStrategy[Any]:
    return st.floats(low, high) | st.sampled_from([low, high]) | st.integers(math.ceil(low), math.floor(high))


def _valid_of(name: str, field: tables.Field) -> st.SearchStrategy[Any]:
    if field.values:
        return st.sampled_from(field.values)
    low, high = (field.low, field.high or 0) if field.low is not None else UNBOUNDED.get(name, (0, 1))
    return {
        "string": TEXTS,
        "boolean": st.booleans(),
        "integer": st.integers(int(low), int(high)),
        "number": _number(low, high),
    }[field.type]


PROSODY = st.fixed_dictionaries(
    {}, optional={name: _valid_of(name, field) for name, field in tables.PROSODY_CONTROL.items()}
)
REFERENCES = st.lists(st.fixed_dictionaries({"audio": st.binary(min_size=1, max_size=30), "text": TEXTS}), max_size=3)
PLAIN = {"string", "boolean", "integer", "number"}
VALID: dict[str, st.SearchStrategy[Any]] = {
    **{name: _valid_of(name, field) for name, field in REQUEST.items() if field.type in PLAIN},
    "reference_id": st.sampled_from(["ada", "ben", None]),
    "prosody": st.none() | PROSODY,
    "references": st.none() | REFERENCES,
}
del VALID["sample_rate"]

# What is no number at all, whatever the bounds are.
NO_NUMBER: st.SearchStrategy[Any] = st.one_of(
    st.sampled_from([math.nan, math.inf, -math.inf, True, False, "0.5", "1", "", "NaN", None]),
    st.text(max_size=5),
    st.lists(INTEGERS, max_size=2),
    st.dictionaries(st.text(max_size=3), st.integers(0, 9), max_size=2),
)
NO_STRING: st.SearchStrategy[Any] = st.one_of(
    st.integers(-5, 5),
    st.floats(0, 1),
    st.booleans(),
    st.lists(TEXTS, max_size=2),
    st.sampled_from([SURROGATE, f"a{SURROGATE}b", {}]),
)


def _outside(low: float, high: float, whole: bool) -> st.SearchStrategy[Any]:
    below, above = st.integers(-(2**63), math.ceil(low) - 1), st.integers(math.floor(high) + 1, 2**64 - 1)
    if whole:
        fraction = st.floats(low, high).filter(lambda number: not number.is_integer())
        return below | above | fraction
    small = st.floats(max_value=low, exclude_max=True, allow_infinity=False)
    large = st.floats(min_value=high, exclude_min=True, allow_infinity=False)
    return below | above | small | large


def _invalid_of(name: str, field: tables.Field) -> st.SearchStrategy[Any]:
    if field.type == "string":
        wrong = NO_STRING | (st.none() if not field.null else st.nothing())
        return wrong | (TEXTS if field.values else st.nothing())
    if field.type == "boolean":
        return INTEGERS | st.floats() | st.text(max_size=5) | st.none() | st.lists(st.booleans(), max_size=1)
    wrong = NO_NUMBER.filter(lambda value: value is not None) if field.null else NO_NUMBER
    if field.values:
        wrong |= INTEGERS.filter(lambda number: number not in field.values)
    elif field.low is not None and field.high is not None:
        wrong |= _outside(field.low, field.high, field.type == "integer")
    elif field.type == "integer":
        wrong |= st.integers(-(2**63), 0) | st.sampled_from([0.5, 1.5e5 + 0.5])
    else:
        wrong |= st.sampled_from([-0.5, -1, 0] if name == "repetition_penalty" else [1e300, -1e300])
    return wrong


INVALID: dict[str, st.SearchStrategy[Any]] = {
    **{name: _invalid_of(name, field) for name, field in REQUEST.items() if name not in {"references", "prosody"}},
    "prosody": INTEGERS | st.text(max_size=5) | st.booleans() | st.lists(INTEGERS, max_size=2),
    "prosody.speed": _invalid_of("speed", tables.PROSODY_CONTROL["speed"]),
    "prosody.volume": _invalid_of("volume", tables.PROSODY_CONTROL["volume"]),
    "references": INTEGERS | TEXTS | st.booleans() | st.lists(INTEGERS | st.text(max_size=3), min_size=1, max_size=2),
}


def _several(examples: int, **more: Any) -> settings:
    """Servers are slow beside what hypothesis counts on, and their fixture lasts for all examples."""
    checks = [HealthCheck.too_slow, HealthCheck.function_scoped_fixture, HealthCheck.filter_too_much]
    return settings(max_examples=examples, deadline=None, suppress_health_check=checks, **more)


def _takes(wire: Wire, value: dict[str, Any], kind: str) -> None:
    value = {"text": "Hi", **value}
    if kind == JSON:
        value.pop("references", None)
    answer = wire.caller.tts(value, kind)
    assert answer.status == 200, answer.body
    request, _, _ = wire.backend.asked[-1]
    for name, sent in value.items():
        got = getattr(request, name)
        if name == "prosody":
            assert (got is None) == (sent is None)
            assert all(getattr(got, part) == number for part, number in (sent or {}).items())
        elif name == "references":
            assert value.get("reference_id") or [{"audio": r.audio, "text": r.text} for r in got or ()] == (sent or [])
        else:
            assert got == sent
    wire.backend.asked.clear()


def _refuses(wire: Wire, name: str, wrong: Any, kind: str) -> None:
    path = name.split(".")
    value = {path[0]: {path[1]: wrong}} if len(path) > 1 else {name: wrong}
    answer = wire.caller.tts({"text": "Hi", **value}, kind)
    locs = fields(answer)
    # Of bytes that are no UTF-8 the whole body cannot be read.
    named = 0 if kind == MSGPACK and isinstance(wrong, str) and SURROGATE in wrong else len(path)
    assert all(loc[: 1 + named] == ["body", *path[:named]] for loc in locs), locs


@_several(60)
@given(value=st.fixed_dictionaries({}, optional=VALID))
def test_what_the_document_allows_is_taken(wire: Wire, kind: str, value: dict[str, Any]) -> None:
    _takes(wire, value, kind)


@pytest.mark.parametrize("name", INVALID)
def test_what_it_does_not_allow_is_a_422_of_that_field(wire: Wire, name: str, kind: str) -> None:
    @_several(15, phases=(Phase.explicit, Phase.generate, Phase.shrink))
    @given(INVALID[name] if name != "sample_rate" else INVALID[name] | st.sampled_from([0, -1, 22050, 48000]))
    def check(wrong: Any) -> None:
        _refuses(wire, name, wrong, kind)

    check()


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.floats() | st.text(max_size=8) | st.just(SURROGATE),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=8,
)
ANY_BODY = st.dictionaries(st.sampled_from(list(REQUEST)) | st.text(max_size=6), ANYTHING, max_size=5) | ANYTHING


def _answers(wire: Wire, value: Any, kind: str) -> None:
    answer = wire.caller.tts(value, kind)
    assert answer.status == 200 or fields(answer)


@_several(100)
@given(value=ANY_BODY, some_bytes=st.binary(max_size=60))
def test_no_body_at_all_is_a_500(wire: Wire, kind: str, value: Any, some_bytes: bytes) -> None:
    _answers(wire, value, kind)
    _answers(wire, some_bytes, kind)


@pytest.mark.thorough
@pytest.mark.timeout(600)
@_several(1000)
@given(name=st.sampled_from(list(INVALID)), data=st.data())
def test_thousands_of_bodies(wire: Wire, kind: str, name: str, data: st.DataObject) -> None:
    _takes(wire, data.draw(st.fixed_dictionaries({}, optional=VALID)), kind)
    _refuses(wire, name, data.draw(INVALID[name]), kind)
    _answers(wire, data.draw(ANY_BODY), kind)
