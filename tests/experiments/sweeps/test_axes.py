from __future__ import annotations

import hypothesis.strategies as st
import pytest
from hypothesis import given

from voicelab.backend import VoicePreset
from voicelab.errors import RequestInvalid
from voicelab.experiments.sweeps.axes import MAX_VALUES, Axis, parse_values, varied, written
from voicelab.schema import LATENCIES, ReferenceAudio


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("0.2..1.0 step 0.2", (0.2, 0.4, 0.6, 0.8, 1.0)),
        ("0..1 step 0.1", tuple(place / 10 for place in range(11))),
        ("1..0.5 step -0.25", (1.0, 0.75, 0.5)),
        ("100..300 step 100", (100, 200, 300)),
        ("3..5", (3, 4, 5)),
        ("5..3", (5, 4, 3)),
        ("0.5..0.9 step 0.3", (0.5, 0.8)),
        ("0.2, 0.7,1", (0.2, 0.7, 1)),
        ("low, normal", ("low", "normal")),
        ("true,false", (True, False)),
        ("null, ada", (None, "ada")),
        ("", ()),
        ("0.2..0.4 step 0.1, 0.9", (0.2, 0.3, 0.4, 0.9)),
        ("on, off", (True, False)),
        ('"low, very", 2', ("low, very", 2)),
        ('"', ('"',)),
    ],
)
def test_values_as_people_write_them(text: str, values: tuple[object, ...]) -> None:
    found = parse_values("temperature", text)
    assert found == values
    assert [type(value) for value in found] == [type(value) for value in values]


@pytest.mark.parametrize(
    "text",
    [
        "0..1",
        "0..x step 1",
        "0..1 step 0",
        "0..1 step -0.1",
        "0..inf step 1",
        "nan..1 step 1",
        "0..1 step 1e-9",
        "1..1e20",
        "1..1e5000",
        "1..1e999999999",
        "0..1 step 1e-999999999",
        "0.5..1",
    ],
)
def test_ranges_that_lead_nowhere(text: str) -> None:
    if text == "0..1":
        assert parse_values("temperature", text) == (0, 1)
        return
    with pytest.raises(RequestInvalid) as caught:
        parse_values("temperature", text)
    assert caught.value.errors[0].field == "temperature"


@given(st.integers(0, 50), st.integers(1, 40), st.integers(1, 60))
def test_a_range_has_no_rounding(first: int, step: int, count: int) -> None:
    text = f"{first / 10}..{(first + step * count) / 10} step {step / 10}"
    assert parse_values("temperature", text) == tuple((first + step * place) / 10 for place in range(count + 1))


def test_numbers_words_voices_and_labels() -> None:
    assert Axis.of("temperature", [0.2, 1]).labels == ("0.2", "1")
    assert Axis.of("latency", LATENCIES).values == LATENCIES
    assert Axis.of("voice", [VoicePreset("ada", "Ada"), "ben", None]).labels == ("ada", "ben", "default")
    assert Axis.of("voice", ["ada"]).name == "reference_id"
    assert Axis.of("normalize", [True, False]).labels == ("on", "off")
    assert Axis.of("speed", "0.5..2 step 0.5") == Axis.of("prosody.speed", [0.5, 1.0, 1.5, 2.0])
    assert Axis.of("text", "one, two").values == ("one, two",)
    assert Axis.of("temperature", {"cold": 0, "hot": 1}).labels == ("cold", "hot")
    assert Axis.of("model", "s1, s2-pro").values == ("s1", "s2-pro")
    one, two = ReferenceAudio(audio=b"1", text=""), ReferenceAudio(audio=b"2", text="")
    assert Axis.of("references", [[one], [one, two]]).labels == ("references 1", "references 2")
    assert Axis.of("sample_rate", [16_000, 48_000, None]).labels == ("16000", "48000", "default")


@pytest.mark.parametrize(
    ("name", "values", "field"),
    [
        ("temprature", [0.5], "temprature"),
        ("temperature", [], "temperature"),
        ("temperature", [0.5, 1.2], "temperature"),
        ("temperature", [0.5, True], "temperature"),
        ("temperature", [0.5, 0.5], "temperature"),
        ("temperature", ["warm"], "temperature"),
        ("latency", "low, quick", "latency"),
        ("prosody.speed", [3], "prosody.speed"),
        ("prosody.pitch", [1], "prosody.pitch"),
        ("speed", [0], "prosody.speed"),
        ("model", ["s3"], "model"),
        ("seed", [-1], "seed"),
        ("seed", [True], "seed"),
        ("backend", [1], "backend"),
        ("text", ["  "], "text"),
        ("sample_rate", [11_025], "sample_rate"),
        ("temperature", range(MAX_VALUES + 1), "temperature"),
    ],
)
def test_what_no_axis_can_be(name: str, values: object, field: str) -> None:
    with pytest.raises(RequestInvalid) as caught:
        Axis.of(name, values)
    assert caught.value.errors[0].field == field


def test_an_unknown_axis_is_told_its_likely_name() -> None:
    with pytest.raises(RequestInvalid, match="did you mean temperature"):
        Axis.of("temprature", [0.5])


def test_an_id_that_looks_like_a_number_or_a_range_is_an_id() -> None:
    assert Axis.of("voice", "123, a..b, null").values == ("123", "a..b", None)
    assert not varied("voice", "a..b")
    assert varied("temperature", "0..0.2 step 0.1, 0.9")


@pytest.mark.parametrize(
    ("name", "values", "text"),
    [
        ("temperature", [0, 0.5, 1], "0..1 step 0.5"),
        ("temperature", [0.1, 0.7], "0.1, 0.7"),
        ("max_new_tokens", [1000, 900, 800], "1000..800 step -100"),
        ("voice", ["ada", "7", None, "null", "x, y"], 'ada, 7, null, "null", "x, y"'),
        ("normalize", [True, False], "on, off"),
        ("text", ["One, two."], '"One, two."'),
    ],
)
def test_an_axis_is_written_as_people_write_it(name: str, values: list[object], text: str) -> None:
    assert written(Axis.of(name, values)) == text


def test_audio_is_not_written() -> None:
    assert written(Axis.of("references", [[ReferenceAudio(audio=b"1", text="")]])) is None


@given(st.lists(st.floats(0, 1), min_size=1, max_size=6, unique_by=lambda value: f"{value:g}"))
def test_what_is_written_is_read_as_the_same_numbers(values: list[float]) -> None:
    axis = Axis.of("temperature", values)
    text = written(axis)
    assert text is not None
    assert Axis.of("temperature", text) == axis


@given(st.lists(st.text(min_size=1), min_size=1, max_size=4, unique=True))
def test_what_is_written_is_read_as_the_same_words(values: list[str]) -> None:
    axis = Axis.of("voice", values)
    text = written(axis)
    assert text is not None
    assert Axis.of("voice", text) == axis
