from __future__ import annotations

import pytest

from tests.tones import ToneBackend
from voicelab.errors import RequestInvalid
from voicelab.views.form import call_code, expected_seconds, knob, parse_seed, voice_choices

SEEDED = ToneBackend().capabilities


def test_bounds_choices_and_texts_come_from_the_schema() -> None:
    temperature = knob("temperature")
    assert (temperature.low, temperature.high, temperature.default) == (0.0, 1.0, 0.7)
    assert "varied" in temperature.description
    assert knob("latency").choices == ("low", "normal", "balanced")
    assert knob("text").default is None
    assert knob("sample_rate").low is None


def test_an_unknown_field_is_named() -> None:
    with pytest.raises(RequestInvalid, match="temp"):
        knob("temp")


def test_the_voices_begin_with_the_default_speaker() -> None:
    assert voice_choices(SEEDED) == (
        ("Default speaker", None),
        ("Ada (low and calm)", "ada"),
        ("Ben", "ben"),
    )


def test_a_stored_voice_stays_selectable_and_a_preset_is_not_doubled() -> None:
    assert voice_choices(SEEDED, "0123abcd")[-1] == ("0123abcd", "0123abcd")
    assert voice_choices(SEEDED, "ada") == voice_choices(SEEDED)


@pytest.mark.parametrize(("typed", "seed"), [("", None), ("  ", None), ("7", 7), (" 0 ", 0)])
def test_a_seed_is_read(typed: str, seed: int | None) -> None:
    assert parse_seed(typed, SEEDED) == seed


@pytest.mark.parametrize("typed", ["seven", "1.5", "-1", str(2**63)])
def test_a_wrong_seed_is_named(typed: str) -> None:
    with pytest.raises(RequestInvalid, match="seed"):
        parse_seed(typed, SEEDED)


def test_a_seed_for_a_backend_without_is_refused() -> None:
    with pytest.raises(RequestInvalid, match="seed"):
        parse_seed("1", ToneBackend(seed="none").capabilities)


def test_the_code_is_the_call_without_what_is_there_anyway() -> None:
    base = {"temperature": 0.7, "voice": None, "seed": None}
    fields = {"temperature": 0.55, "voice": None, "seed": 7}
    code = call_code('She said "don\'t".', fields, base=base)
    said: list[tuple[str, dict[str, object]]] = []

    class Recorder:
        def speak(self, text: str, **given: object) -> None:
            said.append((text, given))

    exec(code, {"lab": Recorder()})  # noqa: S102 (the code is what is tested)
    assert said == [('She said "don\'t".', {"temperature": 0.55, "seed": 7})]


def test_no_seed_is_the_labs_own_and_not_written() -> None:
    assert call_code("Hi", {"seed": None}, base={"seed": 7}) == "lab.speak('Hi')"
    assert call_code("Hi", {"seed": 3}, base={"seed": 7}) == "lab.speak('Hi', seed=3)"


def test_the_expected_length_grows_with_the_text_and_is_never_nothing() -> None:
    assert expected_seconds("a" * 140) == pytest.approx(10.0)
    assert expected_seconds("") > 0
