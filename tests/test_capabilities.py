"""Declared fields, knobs, models and prices of a backend, and validation of calls."""

from __future__ import annotations

import json
import pickle
from dataclasses import replace
from typing import Any

import pytest

from tests.tones import ToneBackend, there
from voicelab.call import Call, Knob, VoicePreset, call_of, call_record, parse_value
from voicelab.capabilities import Capabilities, FieldSupport, Price, check_call, speech_cost
from voicelab.clip import Take, take_key
from voicelab.errors import ArgumentError, RequestInvalid, StoreError
from voicelab.lab import Lab
from voicelab.schema import TTSRequest

WARMTH = Knob("warmth", "float", 0.5, "How warm it sounds.", (0.0, 1.0))
STYLE = Knob("style", "str", "plain", choices=("plain", "sung"))
CAPABILITIES = Capabilities(
    "own",
    ("big", "small"),
    "cpu",
    "none",
    "own-1",
    fields=(
        FieldSupport("top_p", ignored="the model has no sampling"),
        FieldSupport("prosody.speed", bounds=(0.8, 1.25)),
        FieldSupport("format", values=("wav", "mp3")),
    ),
    knobs=(WARMTH, STYLE),
)


def test_key_and_record_of_a_call_without_knobs_are_stable() -> None:
    # A change of this value invalidates all caches and recordings.
    call = Call(TTSRequest(text="Hello.", format="wav"), "s1", 3)
    assert take_key(call, "f", 1) == "0c5a22525131b5e980d89b11eddffcccc09147de37426429a1354be3c34c8726"
    assert list(call_record(call)) == ["request", "model", "seed"]


def test_knobs_are_in_key_record_and_pickle_of_a_call() -> None:
    call = Call.of("Hello.", {"warmth": 0.9}, (WARMTH, STYLE), style="sung")
    assert call.knobs == (("style", "sung"), ("warmth", 0.9))
    plain = Call.of("Hello.")
    assert take_key(call, "f") != take_key(plain, "f")
    assert pickle.loads(pickle.dumps(call)) == call  # noqa: S301 - created above
    assert call_of(json.loads(json.dumps(call_record(call))), lambda _: b"") == call
    take = Take(call, b"")
    assert Take.of_record(json.loads(json.dumps(take.record())), b"", lambda _: b"").key == take.key
    assert Call.of("Hello.", {"warmth": 0.9}, (WARMTH,), warmth=0.5) == plain, "knobs at their default are omitted"
    assert call.replace((WARMTH, STYLE), style=None, warmth=0.1).knobs == (("warmth", 0.1),)
    assert CAPABILITIES.knob_values(call.replace((STYLE,), style="plain")) == {"warmth": 0.9, "style": "plain"}


@pytest.mark.parametrize(
    ("value", "message"),
    [(1.5, "between 0 and 1, got 1.5"), ("much", "a number"), (True, "a number"), (float("nan"), "a number")],
)
def test_invalid_knob_values_are_rejected_by_name(value: Any, message: str) -> None:
    with pytest.raises(RequestInvalid, match=f"warmth: .*{message}"):
        Call.of("Hello.", {}, (WARMTH,), warmth=value)


def test_knob_values_are_parsed_by_type() -> None:
    assert parse_value("warmth", "0.25", (WARMTH,)) == 0.25
    assert parse_value("style", "1", (STYLE,)) == "1"
    with pytest.raises(RequestInvalid, match="warmth: must be a number"):
        parse_value("warmth", "hot", (WARMTH,))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Knob("temperature", "float", 0.5), "is a field or argument of every backend"),
        (lambda: Knob("speed", "float", 0.5), "is a field or argument of every backend"),
        (lambda: Knob("two words", "float", 0.5), "must be letters, digits and underscores"),
        (lambda: Knob("warmth", "number", 0.5), "type must be bool, int, float or str"),  # type: ignore[arg-type]
        (lambda: Knob("warmth", "float", 2.0, bounds=(0, 1)), "the default of warmth"),
        (lambda: FieldSupport("temprature"), "got 'temprature'"),
        (lambda: Capabilities("a", (), "cpu", "none", "a", knobs=(WARMTH, WARMTH)), "'warmth' is declared twice"),
    ],
)
def test_invalid_declarations_are_rejected(make: Any, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        make()


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"model": "s1"}, "model: the backend 'own' has no model 's1'; available: big, small"),
        ({"speed": 1.5}, r"prosody\.speed: must be 0\.8 to 1\.25, got 1\.5 \(the backend 'own'\)"),
        ({"format": "pcm"}, "format: must be wav or mp3, got pcm"),
        ({"seed": 1}, "seed: .* does not support seeds; omit seed$"),
    ],
)
def test_unsupported_values_are_rejected_by_name(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(RequestInvalid, match=message):
        check_call(Call.of("Hello.", **fields), CAPABILITIES)


def test_unknown_knob_is_rejected_by_name() -> None:
    call = Call(TTSRequest(text="Hello."), knobs=(("pep", 1),))
    with pytest.raises(RequestInvalid, match="pep: the backend 'own' has no knob 'pep'; available: warmth, style"):
        check_call(call, CAPABILITIES)


def test_default_model_of_the_interface_is_resolved() -> None:
    assert check_call(Call.of("Hello."), CAPABILITIES).model == "big"
    assert check_call(Call.of("Hello.", model="small"), CAPABILITIES).model == "small"
    assert CAPABILITIES.wire_models == ("s2-pro",)
    assert ToneBackend().capabilities.wire_models == ("s1", "s2-pro")


def test_ignored_fields_are_noted() -> None:
    warmth: dict[str, Any] = {"warmth": 0.75}
    with Lab(ToneBackend(fields=CAPABILITIES.fields, knobs=CAPABILITIES.knobs)) as lab:
        clip = lab.speak("Hello.", top_p=0.2, temperature=0.2, **warmth)
        assert clip.notes == ("top_p had no effect: the model has no sampling.",)
        assert there(clip.take).call.knobs == (("warmth", 0.75),)
        assert lab.with_defaults(**dict[str, Any](style="sung")).call("Hello.").knobs == (("style", "sung"),)
        both = lab.speak("Hello.", voice="ada", references=clip)
        assert both.notes == ("references had no effect: the call also has a voice, which takes precedence.",)
        with pytest.raises(RequestInvalid, match="unknown field 'pep'"):
            lab.speak("Hello.", pep=1)  # type: ignore[call-arg]


def test_capabilities_record_round_trip() -> None:
    priced = replace(CAPABILITIES, prices=(Price(15.0),), voices=(VoicePreset("ada", "Ada"),))
    for capabilities in (CAPABILITIES, priced):
        record = json.loads(json.dumps(capabilities.record()))
        assert Capabilities.of_record(record) == capabilities
    invalid_records: list[Any] = [
        None,
        [],
        {},
        {**record, "pep": 1},
        {**record, "prices": [{"pep": 1}]},
        {**record, "knobs": [3]},
    ]
    for invalid in invalid_records:
        with pytest.raises(StoreError, match="invalid record"):
            Capabilities.of_record(invalid)


def test_speech_cost() -> None:
    call = Call.of("Grüße", model="big")
    table = (
        Price(15, "USD", "characters", 1_000_000, "big"),
        Price(0.6, "USD", "seconds", 60),
        Price(1, "EUR", "requests", 1),
    )
    assert speech_cost(call, 3.0, table) == pytest.approx({"USD": 5 * 15e-6 + 0.03, "EUR": 1.0})
    assert speech_cost(call, 3.0, (Price(15),)) == pytest.approx({"": 7 * 15e-6}), "two letters have two bytes each"
    assert speech_cost(call, 3.0, ()) == {}
    assert speech_cost(call, 3.0, None) is speech_cost(call, 3.0, (Price(1, model="small"),)) is None
    assert [str(price) for price in table] == [
        "15 USD per million characters (big)",
        "0.6 USD per 60 seconds of audio",
        "1 EUR per request",
    ]
    assert str(Price(2, unit="seconds", per=1)) == "2 per second of audio"
    assert str(Price(2, unit="bytes", per=1000)) == "2 per 1000 bytes of text"
