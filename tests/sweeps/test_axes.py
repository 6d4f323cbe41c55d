from __future__ import annotations

import itertools
from functools import partial

import hypothesis.strategies as st
import pytest
from hypothesis import given

from tests.tones import there
from voicelab.call import Call, VoicePreset
from voicelab.capabilities import Capabilities, Price
from voicelab.errors import RequestInvalid
from voicelab.schema import LATENCIES, ProsodyControl, ReferenceAudio, TTSRequest
from voicelab.sweeps.axes import MAX_VALUES, Axis, Grid, parse_values, varied, written
from voicelab.sweeps.run import Budget, SweepEstimate, estimate


@pytest.mark.parametrize(
    ("name", "text", "values"),
    [
        ("temperature", "0.2..1.0 step 0.2", (0.2, 0.4, 0.6, 0.8, 1.0)),
        ("temperature", "0..1 step 0.1", tuple(place / 10 for place in range(11))),
        ("temperature", "1..0.5 step -0.25", (1.0, 0.75, 0.5)),
        ("chunk_length", "100..300 step 100", (100, 200, 300)),
        ("chunk_length", "3..5", (3, 4, 5)),
        ("seed", "5..3", (5, 4, 3)),
        ("temperature", "0.5..0.9 step 0.3", (0.5, 0.8)),
        ("temperature", "0.2, 0.7,1", (0.2, 0.7, 1.0)),
        ("speed", "1, 1.5", (1.0, 1.5)),
        ("latency", "low, normal", ("low", "normal")),
        ("normalize", "true,false", (True, False)),
        ("normalize", "on, Off", (True, False)),
        ("voice", "null, ada, 7", (None, "ada", "7")),
        ("voice", '"null", "low, very", 2..4', ("null", "low, very", "2..4")),
        ("voice", '"', ('"',)),
        ("sample_rate", "none, 8000", (None, 8000)),
        ("mp3_bitrate", "64, 128", (64, 128)),
        ("model", "s1, s2-pro", ("s1", "s2-pro")),
        ("temperature", "", ()),
        ("temperature", "0.2..0.4 step 0.1, 0.9", (0.2, 0.3, 0.4, 0.9)),
    ],
)
def test_values_as_people_write_them(name: str, text: str, values: tuple[object, ...]) -> None:
    found = parse_values(name, text)
    assert found == values
    assert [type(value) for value in found] == [type(value) for value in values]


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [("seed", "7.5", "a whole number"), ("speed", "fast", "a number"), ("mp3_bitrate", "many", "a whole number")],
)
def test_a_word_that_is_no_number_names_its_field(name: str, text: str, message: str) -> None:
    with pytest.raises(RequestInvalid, match=f"must be {message}, got '{text}'") as caught:
        parse_values(name, f"1, {text}")
    assert caught.value.errors[0].field == {"speed": "prosody.speed"}.get(name, name)


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
    with pytest.raises(RequestInvalid, match=r"^temperature: "):
        parse_values("temperature", text)


@given(st.integers(0, 50), st.integers(1, 40), st.integers(1, 60))
def test_a_range_has_no_rounding(first: int, step: int, count: int) -> None:
    text = f"{first / 10}..{(first + step * count) / 10} step {step / 10}"
    assert parse_values("temperature", text) == tuple((first + step * place) / 10 for place in range(count + 1))


def test_numbers_words_voices_and_labels() -> None:
    assert Axis.of("temperature", [0.2, 1]).labels == ("0.2", "1")
    assert Axis.of("latency", LATENCIES).values == LATENCIES
    assert Axis.of("voice", [VoicePreset("ada", "Ada"), "ben", None]).labels == ("ada", "ben", "default")
    assert Axis.of("voice", ["ada"]).name == "reference_id"
    assert Axis.of("voice", ["ada", {"ada": 0.6, "ben": 0.4}]).values == ("ada", "ada(0.6)+ben(0.4)")
    assert Axis.of("voice", {"mixed": {"ada": 1, "ben": 2}}).values == ("ada(1)+ben(2)",)
    assert varied("voice", {"a": "ada"})
    assert not varied("voice", {"ada": 0.6, "ben": 0.4})
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
        ("model", [" "], "model"),
        ("seed", [-1], "seed"),
        ("seed", [True], "seed"),
        ("backend", [1], "backend"),
        ("text", ["  "], "text"),
        ("sample_rate", [11_025], "sample_rate"),
        ("temperature", range(MAX_VALUES + 1), "temperature"),
    ],
)
def test_what_no_axis_can_be(name: str, values: object, field: str) -> None:
    with pytest.raises(RequestInvalid, match=f"^{field}: "):
        Axis.of(name, values)


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


NUMBERS = st.lists(st.floats(0, 1), min_size=1, max_size=6, unique_by=lambda value: f"{value:g}")
WORDS = st.lists(st.text(min_size=1), min_size=1, max_size=4, unique=True)


@given(st.one_of(NUMBERS.map(partial(Axis.of, "temperature")), WORDS.map(partial(Axis.of, "voice"))))
def test_what_is_written_is_read_as_the_same(axis: Axis) -> None:
    assert Axis.of(axis.name, there(written(axis))) == axis


BASE = TTSRequest(text="One.", format="wav", prosody=ProsodyControl(volume=-3))


def grid(repeats: int = 1, seed: int = 0, base: TTSRequest = BASE, **axes: object) -> Grid:
    named = {name.replace("__", "."): values for name, values in axes.items()}
    return Grid.of(Call(base), [Axis.of(name, values) for name, values in named.items()], repeats=repeats, seed=seed)


def test_every_combination_in_the_axes_order() -> None:
    made = grid(temperature=[0, 1], top_p=[0.5, 0.9], repeats=3)
    assert [dict(cell.labels) for cell in made.cells] == [
        {"temperature": t, "top_p": p} for t in ("0", "1") for p in ("0.5", "0.9")
    ]
    assert [(cell.call.request.temperature, cell.call.request.top_p) for cell in made.cells] == [
        (0, 0.5),
        (0, 0.9),
        (1, 0.5),
        (1, 0.9),
    ]
    assert len(made) == 12 == len(made.jobs())


def test_no_axes_is_one_cell() -> None:
    made = grid(repeats=2)
    assert [cell.call.request for cell in made.cells] == [BASE]
    assert len(made.jobs()) == 2


def test_a_part_of_prosody_leaves_the_other() -> None:
    (cell,) = grid(speed=[1.5]).cells
    assert cell.call.request.prosody == ProsodyControl(speed=1.5, volume=-3)


def test_a_voice_replaces_references_and_they_it() -> None:
    cloned = BASE.replace(references=[ReferenceAudio(audio=b"x", text="")])
    (cell,) = grid(base=cloned, voice=["ada"]).cells
    assert (cell.call.request.reference_id, cell.call.request.references) == ("ada", None)
    (cell,) = grid(base=BASE.replace(reference_id="ada"), references=[cloned.references]).cells
    assert (cell.call.request.reference_id, cell.call.request.references) == (None, cloned.references)


def test_dear_changes_are_outermost() -> None:
    made = grid(temperature=[0, 1], voice=["ada", "ben"], model=["s1", "s2-pro"], text=["One.", "Two."])
    jobs = made.jobs()
    for dear in ("model", "reference_id", "text"):
        seen = [job.cell.labels[dear] for job in jobs]
        changes = sum(one != two for one, two in itertools.pairwise(seen))
        assert changes == {"model": 1, "reference_id": 3, "text": 7}[dear]
    assert {job.cell.index for job in jobs} == set(range(16))


def test_the_repeats_have_the_same_seeds_in_every_cell() -> None:
    made = grid(temperature=[0, 0.5, 1], repeats=4)
    by_cell = {
        cell.index: tuple(job.seed for job in made.jobs() if job.cell is cell or job.cell == cell)
        for cell in made.cells
    }
    assert set(by_cell.values()) == {made.seeds}
    assert len(set(made.seeds)) == 4
    assert all(0 <= seed < 2**63 for seed in made.seeds)
    assert grid(repeats=4, seed=1).seeds != made.seeds
    # A sweep with more repeats begins with the same takes, so that they are not made again.
    assert grid(repeats=6).seeds[:4] == made.seeds


def test_an_axis_of_seeds() -> None:
    made = Grid.of(Call(BASE), [Axis.of("seed", [3, 5])])
    assert [job.seed for job in made.jobs()] == [3, 5]
    with pytest.raises(RequestInvalid, match="axis of seeds"):
        Grid.of(Call(BASE), [Axis.of("seed", [3, 5])], repeats=2)


@pytest.mark.parametrize("repeats", [0, -1, True, 1.0, "2"])
def test_repeats_are_counted(repeats: int) -> None:
    with pytest.raises(RequestInvalid, match=r"^repeats: "):
        grid(repeats=repeats)


def test_what_no_request_can_have_is_told_at_once() -> None:
    with pytest.raises(RequestInvalid) as caught:
        grid(format=["wav", "opus", "mp3"], sample_rate=[8000, 48_000])
    assert len(caught.value.errors) == 4
    assert {error.field for error in caught.value.errors} == {"sample_rate"}


def test_two_axes_of_one_name() -> None:
    axes = [Axis.of("voice", ["ada"]), Axis.of("reference_id", ["ben"])]
    with pytest.raises(RequestInvalid, match="axes must have unique names"):
        Grid.of(Call(BASE), axes)


def test_too_many_takes() -> None:
    with pytest.raises(RequestInvalid, match="at most 1000000"):
        grid(seed=0, top_p=[place / 9999 for place in range(10_000)], repeats=101)


PRICED = Capabilities("r", ("s2-pro",), "remote", "none", "https://r", prices=(Price(15.0),))
FREE = Capabilities("r", ("s2-pro",), "remote", "none", "https://r")


def test_an_estimate_counts_what_can_be_counted() -> None:
    jobs = grid(base=BASE.replace(text="é" * 145), speed=[0.5, 1], repeats=2).jobs()
    found = estimate(jobs, {"": PRICED}, cached=3, rtf=0.2)
    assert (found.requests, found.characters, found.text_bytes, found.cached) == (4, 580, 1160, 3)
    assert found.audio_s == pytest.approx(2 * (20 + 10))
    assert found.compute_s == pytest.approx(0.2 * 60)
    assert found.cost == pytest.approx(1160 * 15e-6)
    assert str(found) == (
        "4 requests, 580 characters, about 60 s of audio, about 12 s of work, costs 0.0174, 3 takes cached"
    )
    # A Chinese character is a syllable, and takes several times as long as a letter.
    chinese = Grid.of(Call(TTSRequest(text="今天天气很好。")), ()).jobs()
    assert estimate(chinese, {"": FREE}).audio_s == pytest.approx(6 / 3.5 + 1 / 14.5)
    assert str(estimate(chinese, {"": FREE}, cached=1)) == "1 request, 7 characters, about 2 s of audio, 1 take cached"
    assert estimate(jobs, {"": FREE}).cost is None
    assert estimate(jobs, {"": FREE}).compute_s is None


NEEDED = SweepEstimate(10, 0, 100, 120, 7.0, 1.4, 0.5)


@pytest.mark.parametrize(
    ("budget", "fields"),
    [
        (Budget(), []),
        (Budget(requests=10, characters=100, audio_s=7, compute_s=1.4, cost=0.5), []),
        (Budget(requests=9), ["budget.requests"]),
        (Budget(characters=99, cost=0.4), ["budget.characters", "budget.cost"]),
        (Budget(audio_s=6.9, compute_s=1), ["budget.audio_s", "budget.compute_s"]),
    ],
)
def test_a_budget_names_each_cap(budget: Budget, fields: list[str]) -> None:
    if not fields:
        budget.check(NEEDED)
        return
    with pytest.raises(RequestInvalid) as caught:
        budget.check(NEEDED)
    assert [error.field for error in caught.value.errors] == fields


def test_a_cap_on_money_needs_a_price() -> None:
    with pytest.raises(RequestInvalid, match="declares no price"):
        Budget(cost=1).check(SweepEstimate(1, 0, 1, 1, 1.0, None, None))
    # Seconds of work cannot be told before the first take; the cap then acts while running.
    Budget(compute_s=1).check(SweepEstimate(1, 0, 1, 1, 1.0, None, None))


@pytest.mark.parametrize("value", [-1, True, "1", float("nan")])
def test_a_cap_is_a_number(value: float) -> None:
    with pytest.raises(RequestInvalid, match=r"budget\.requests"):
        Budget(requests=value)  # type: ignore[arg-type]
