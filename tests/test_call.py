from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from voicelab.call import MAX_SEED, Call, Knob, VoicePreset, field_name, short_name, value_kind
from voicelab.errors import RequestInvalid
from voicelab.schema import ProsodyControl, ReferenceAudio, TTSRequest

REQUEST = TTSRequest(text="a")
REFERENCE = ReferenceAudio(audio=b"RIFF", text="a")


@pytest.mark.parametrize("seed", [None, 0, 7, MAX_SEED])
def test_a_seed_within_its_bounds_is_taken(seed: int | None) -> None:
    assert Call(REQUEST, seed=seed).seed == seed
    assert Call(REQUEST, seed=1).replace(seed=seed).seed == seed


@pytest.mark.parametrize("seed", [-1, MAX_SEED + 1, True, 1.0, "7"])
def test_a_seed_beyond_them_is_refused_wherever_a_call_is_made(seed: Any) -> None:
    makers: tuple[Callable[[], Call], ...] = (
        lambda: Call(REQUEST, seed=seed),
        lambda: Call.of("a", seed=seed),
        lambda: Call(REQUEST).replace(seed=seed),
    )
    for make in makers:
        with pytest.raises(RequestInvalid, match="from 0 to 9223372036854775807") as caught:
            make()
        (item,) = caught.value.errors
        assert item.to_wire()["loc"] == ["header", "seed"]


def test_a_blend_is_a_voice() -> None:
    call = Call.of("a", voice={"ada": 0.6, VoicePreset("ben", "Ben"): 0.4})
    assert call.request.reference_id == "ada(0.6)+ben(0.4)"


@pytest.mark.parametrize(
    "voice", [{}, {"ada": 0}, {"ada": -1.0, "ben": 2.0}, {"ada": True}, {"ada": "x"}, {"": 1}, {3: 1}]
)
def test_a_blend_of_no_weights_or_no_voices_is_refused(voice: object) -> None:
    with pytest.raises(RequestInvalid, match="voice"):
        Call.of("a", voice=voice)


@pytest.mark.parametrize("model", ["", " ", 3])
def test_what_is_no_name_of_a_model_is_refused(model: object) -> None:
    with pytest.raises(RequestInvalid, match="model"):
        Call.of("a", model=model)


def test_a_change_of_a_call_takes_the_same_names() -> None:
    call = Call(REQUEST.replace(references=(REFERENCE,), prosody=ProsodyControl(speed=2)))
    assert call.replace(voice="ada").request.references is None
    assert call.replace(voice="ada").replace(references=[REFERENCE]).request.reference_id is None
    assert call.replace(**{"prosody.volume": 3}).request.prosody == ProsodyControl(speed=2, volume=3)
    assert call.replace(seed=3, model="s1") == Call(call.request, "s1", 3)
    assert call.replace() == call


@pytest.mark.parametrize(
    ("short", "field"), [("voice", "reference_id"), ("speed", "prosody.speed"), ("top_p", "top_p")]
)
def test_names_that_people_have_and_fields(short: str, field: str) -> None:
    assert (field_name(short), field_name(field), short_name(field)) == (field, field, short)


def test_how_long_it_will_take_counts_chinese_by_its_syllables_and_the_speed() -> None:
    assert Call.of("x" * 29).expected_seconds == pytest.approx(2.0)
    assert Call.of("今天天气很好").expected_seconds == pytest.approx(6 / 3.5)
    assert Call.of("x" * 29, speed=2).expected_seconds == pytest.approx(1.0)


def test_the_kind_of_a_value_is_that_of_the_knob_of_its_name() -> None:
    knobs = (Knob("mood", "str", ""), Knob("breath", "float", 0.0))
    assert [value_kind(name, knobs) for name in ("mood", "breath")] == [(str, False), (float, False)]
