"""What a backend declares of its fields, knobs, models and prices, and what that makes of a call."""

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
OWN = Capabilities(
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


def test_a_call_without_knobs_has_the_key_and_the_record_that_it_had_before_there_were_any() -> None:
    # A change of this value makes every cache and recording of before worthless: raise _KEY_VERSION knowingly.
    call = Call(TTSRequest(text="Hello.", format="wav"), "s1", 3)
    assert take_key(call, "f", 1) == "0c5a22525131b5e980d89b11eddffcccc09147de37426429a1354be3c34c8726"
    assert list(call_record(call)) == ["request", "model", "seed"]


def test_a_knob_is_part_of_the_key_the_record_and_the_pickle_of_a_call() -> None:
    call = Call.of("Hello.", {"warmth": 0.9}, (WARMTH, STYLE), style="sung")
    assert call.knobs == (("style", "sung"), ("warmth", 0.9))
    plain = Call.of("Hello.")
    assert take_key(call, "f") != take_key(plain, "f")
    assert pickle.loads(pickle.dumps(call)) == call  # noqa: S301 - our own
    assert call_of(json.loads(json.dumps(call_record(call))), lambda _: b"") == call
    take = Take(call, b"")
    assert Take.of_record(json.loads(json.dumps(take.record())), b"", lambda _: b"").key == take.key
    assert Call.of("Hello.", {"warmth": 0.9}, (WARMTH,), warmth=0.5) == plain, "what is at its default is not said"
    assert call.replace((WARMTH, STYLE), style=None, warmth=0.1).knobs == (("warmth", 0.1),)
    assert OWN.knob_values(call.replace((STYLE,), style="plain")) == {"warmth": 0.9, "style": "plain"}


@pytest.mark.parametrize(
    ("value", "message"),
    [(1.5, "0 to 1"), ("much", "a number"), (True, "a number"), (float("nan"), "a number")],
)
def test_a_value_that_a_knob_does_not_take_is_refused_by_its_name(value: Any, message: str) -> None:
    with pytest.raises(RequestInvalid, match=f"warmth: .*{message}"):
        Call.of("Hello.", {}, (WARMTH,), warmth=value)


def test_what_is_typed_for_a_knob_is_of_its_type() -> None:
    assert parse_value("warmth", "0.25", (WARMTH,)) == 0.25
    assert parse_value("style", "1", (STYLE,)) == "1"
    with pytest.raises(RequestInvalid, match="warmth: should be a number"):
        parse_value("warmth", "hot", (WARMTH,))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Knob("temperature", "float", 0.5), "already names a field"),
        (lambda: Knob("speed", "float", 0.5), "already names a field"),
        (lambda: Knob("two words", "float", 0.5), "cannot be a keyword"),
        (lambda: Knob("warmth", "number", 0.5), "the type is bool, int, float or str"),  # type: ignore[arg-type]
        (lambda: Knob("warmth", "float", 2.0, bounds=(0, 1)), "the default of warmth"),
        (lambda: FieldSupport("temprature"), "no field 'temprature'"),
        (lambda: Capabilities("a", (), "cpu", "none", "a", knobs=(WARMTH, WARMTH)), "'warmth' is declared twice"),
    ],
)
def test_a_declaration_that_means_something_else_is_refused(make: Any, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        make()


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"model": "s1"}, "model: the backend 'own' has no model 's1'; it has big, small"),
        ({"speed": 1.5}, r"prosody\.speed: the backend 'own': it takes 0\.8 to 1\.25"),
        ({"format": "pcm"}, "format: the backend 'own': it takes wav or mp3"),
        ({"seed": 1}, "seed: .* takes no seed"),
    ],
)
def test_what_the_backend_does_not_take_is_refused_by_name(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(RequestInvalid, match=message):
        check_call(Call.of("Hello.", **fields), OWN)


def test_a_knob_of_another_backend_is_refused_by_name() -> None:
    call = Call(TTSRequest(text="Hello."), knobs=(("pep", 1),))
    with pytest.raises(
        RequestInvalid, match="pep: the backend 'own' has no knob 'pep'; its own knobs are warmth, style"
    ):
        check_call(call, OWN)


def test_the_interface_s_default_model_is_the_backend_s_own() -> None:
    assert check_call(Call.of("Hello."), OWN).model == "big"
    assert check_call(Call.of("Hello.", model="small"), OWN).model == "small"
    assert OWN.wire_models == ("s2-pro",)
    assert ToneBackend().capabilities.wire_models == ("s1", "s2-pro")


def test_a_take_says_which_of_its_fields_did_nothing() -> None:
    with Lab(ToneBackend(fields=OWN.fields, knobs=OWN.knobs)) as lab:
        clip = lab.speak("Hello.", top_p=0.2, temperature=0.2, warmth=0.75)
        assert clip.notes == ("top_p did nothing: the model has no sampling.",)
        assert there(clip.take).call.knobs == (("warmth", 0.75),)
        assert lab.with_defaults(style="sung").call("Hello.").knobs == (("style", "sung"),)
        with pytest.raises(RequestInvalid, match="there is no field 'pep'"):
            lab.speak("Hello.", pep=1)


def test_capabilities_are_recorded_whole() -> None:
    priced = replace(OWN, prices=(Price(15.0),), voices=(VoicePreset("ada", "Ada"),))
    for one in (OWN, priced):
        record = json.loads(json.dumps(one.record()))
        assert Capabilities.of_record(record) == one
    wrongs: list[Any] = [
        None,
        [],
        {},
        {**record, "pep": 1},
        {**record, "prices": [{"pep": 1}]},
        {**record, "knobs": [3]},
    ]
    for wrong in wrongs:
        with pytest.raises(StoreError, match="no record"):
            Capabilities.of_record(wrong)


def test_speech_costs_what_the_table_of_prices_says() -> None:
    call = Call.of("Grüße", model="big")
    table = (
        Price(15, "USD", "characters", 1_000_000, "big"),
        Price(0.6, "USD", "seconds", 60),
        Price(1, "EUR", "requests", 1),
    )
    assert speech_cost(call, 3.0, table) == pytest.approx({"USD": 5 * 15e-6 + 0.03, "EUR": 1.0})
    assert speech_cost(call, 3.0, (Price(15),)) == pytest.approx({"": 7 * 15e-6}), "two letters of two bytes"
    assert speech_cost(call, 3.0, ()) == {}
    assert speech_cost(call, 3.0, None) is speech_cost(call, 3.0, (Price(1, model="small"),)) is None
    assert [str(price) for price in table] == [
        "15 USD per million characters (big)",
        "0.6 USD per 60 seconds of audio",
        "1 EUR per request",
    ]
    assert str(Price(2, unit="seconds", per=1)) == "2 per second of audio"
    assert str(Price(2, unit="bytes", per=1000)) == "2 per 1000 bytes of text"
