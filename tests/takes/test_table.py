from __future__ import annotations

import json
import math
import threading
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tests.sweeps.test_sweep import sweep
from tests.tones import DECLARED, ToneBackend, there
from voicelab.call import Call
from voicelab.clip import Clip
from voicelab.errors import ArgumentError, NotFound, RequestInvalid
from voicelab.listening.design import REFERENCE, Trial
from voicelab.listening.results import analyse
from voicelab.listening.votes import Ballot
from voicelab.metrics import BASIC, METRICS, measure, measure_rows
from voicelab.runs.cache import Cache
from voicelab.runs.run import load
from voicelab.schema import TTSRequest
from voicelab.sweeps.result import (
    Row,
    SweepResult,
    comparison_of,
    matching,
    odd_one_out,
    ordered,
    row_of,
    waiting_rows,
)


@pytest.fixture
def made(tmp_path: Path) -> SweepResult:
    axes: dict[str, object] = {"temperature": [0, 0.5, 1], "text": ["Hello there.", "Good evening."]}
    base = Call(TTSRequest(text="axis", format="wav", sample_rate=24_000))
    return sweep(ToneBackend(), axes, base=base, repeats=2, cache=Cache(tmp_path / "cache")).run()


def test_metrics_are_named_and_measured_take_by_take(made: SweepResult) -> None:
    clips = [take.clip() for take in made.takes]
    table = made.frame("duration", METRICS["level"])
    plain = measure(clips, ["duration", "level"])
    pd.testing.assert_frame_equal(table[["duration", "level", "undefined"]], plain)
    assert list(table.columns[:3]) == ["temperature", "text", "repeat"]
    # A function that takes all clips at once is one of the metrics too.
    both = made.frame("duration", lambda clips: [{"samples": len(clip)} for clip in clips])
    assert both.samples.tolist() == [len(clip) for clip in clips]
    assert both.duration.tolist() == plain.duration.tolist()
    pd.testing.assert_frame_equal(made.frame(measure_rows), made.frame(*BASIC))
    nearness = made.frame("spectral_similarity", reference=clips[0]).spectral_similarity
    assert nearness[0] == pytest.approx(1.0)
    assert (nearness[1:] < 1.0).all()
    with pytest.raises(ArgumentError, match="there is no metric 'loud'"):
        made.frame("loud")


def test_the_table_of_a_run_is_in_the_order_of_the_grid(tmp_path: Path) -> None:
    def late(_: int) -> None:
        # The first take of the grid ends last.
        if not others.is_set() and threading.current_thread().name.endswith("_0"):
            others.wait(20)

    others = threading.Event()
    path = tmp_path / "run"
    work = sweep(ToneBackend(late), repeats=2).start(
        path, concurrency=2, listener=lambda _: others.set() if len(work.outcomes) >= 5 else None
    )
    assert work.wait(30)
    lines = [json.loads(line) for line in (path / "run.jsonl").read_text().splitlines()[1:]]
    written = [(line["labels"]["cell"], line["take"]["repeat"]) for line in lines]
    assert written != sorted(written)
    run = load(path)
    table = run.frame("duration", "level")
    made = sweep(ToneBackend(), repeats=2).result(work)
    pd.testing.assert_frame_equal(
        table[["temperature", "latency", "repeat", "key"]], made.frame()[["temperature", "latency", "repeat", "key"]]
    )
    assert [take.key for take in run] == table.key.tolist()
    assert table.temperature.dtype == float
    assert table.duration.tolist() == [take.clip().duration for take in run]
    assert table.columns[-1] == "undefined"


@pytest.mark.parametrize("then", [[0.5, 0.9, 1], [0.7, 1], [0.5, 0.7]])
@pytest.mark.parametrize("repeats", [1, 2, 3])
def test_a_cell_of_a_sweep_that_was_changed_has_a_number_of_its_own(
    then: list[float], repeats: int, tmp_path: Path
) -> None:
    path = tmp_path / "run"
    sweep(ToneBackend(), {"temperature": [0.5, 1]}, repeats=2).run(path)
    sweep(ToneBackend(), {"temperature": then}, repeats=repeats).run(path)
    run = load(path)
    table = run.frame()
    assert len(table) == sum(max(2 * (value in (0.5, 1)), repeats * (value in then)) for value in {0.5, 1, *then})
    assert (table.groupby("cell").temperature.nunique() == 1).all()
    assert (table.groupby("temperature").cell.nunique() == 1).all()
    assert table.cell.is_monotonic_increasing
    assert [labels["cell"] for labels in run.labels] == table.cell.tolist()
    if then == [0.5, 0.9, 1]:  # grown: the numbers and the order are those of the last sweep
        assert table.temperature.drop_duplicates().tolist() == then
    written = (path / "run.jsonl").read_bytes()
    sweep(ToneBackend(), {"temperature": then}, repeats=repeats).run(path)
    assert (path / "run.jsonl").read_bytes() == written
    pd.testing.assert_frame_equal(load(path).frame(), table)


def test_a_selection_is_a_result(made: SweepResult) -> None:
    assert len(made.select(temperature=[0, 1], repeat=0)) == 4
    assert len(made.select(temperature=0).select(text="Hello there.").frame()) == 2
    assert len(made.select(temperature=0.3)) == 0


def test_an_axis_answers_to_the_name_it_was_asked_by(tmp_path: Path) -> None:
    made = sweep(ToneBackend(), {"voice": ["ada", "ben"], "speed": [1, 2]}, cache=Cache(tmp_path)).run()
    assert made.clip(voice="ada", speed=2) == made.clip(reference_id="ada", prosody__speed=2)
    assert made.listening_test("AB", "voice", lufs=None).systems == ("ada", "ben")


def test_from_a_selection_to_a_blind_test_and_back(made: SweepResult, tmp_path: Path) -> None:
    test = made.select(temperature=[0, 1]).listening_test("AB", "temperature", seed=3)
    assert test.systems == ("0", "1")
    assert len(test.items) == 4
    heard = {stimulus.item for stimulus in test.sounds}
    assert heard == {f"text={text}, take {take}" for text in ("Hello there.", "Good evening.") for take in (1, 2)}

    def colder(trial: Trial) -> str:
        return next(letter for letter in "AB" if trial.slots[letter].system == "0")

    with Ballot(test, tmp_path / "votes") as ballot:
        for name in ("Ada", "Ben"):
            number = ballot.join(name)
            while (trial := ballot.next_trial(number)) is not None:
                ballot.vote(number, trial.id, {"choice": colder(trial)})
        found = analyse(test, ballot)
    assert found.tests["0", "1"].estimate.value == 1.0


def test_the_reference_of_a_mushra_test_is_a_value(made: SweepResult) -> None:
    test = made.listening_test("MUSHRA", "temperature", reference=0)
    assert test.systems == ("0.5", "1")
    (stimulus, *_) = (sound for sound in test.sounds if sound.system == REFERENCE)
    assert stimulus.clip.duration == made.clip(temperature=0, text="Hello there.").duration


def test_what_cannot_be_heard(made: SweepResult) -> None:
    with pytest.raises(RequestInvalid, match=r"has no 0\.5; it has 0, 1"):
        made.select(temperature=[0, 1]).listening_test("MUSHRA", "temperature", reference=0.5)
    with pytest.raises(RequestInvalid, match="no axis 'top_p'"):
        made.listening_test("AB", "top_p")
    with pytest.raises(RequestInvalid, match="no combination"):
        made.select(temperature=0.3).listening_test("AB", "temperature")
    with pytest.raises(RequestInvalid, match="has no 7"):
        made.listening_test("MUSHRA", "temperature", reference=7)


VALUES = ((0.5, 2.0), (0.25, math.nan), (1.0, 1.0), (0.75, 3.0))
ROWS = [
    Row(
        number,
        {"temperature": f"{heat:g}", "voice": "Ada" if number % 2 else "Ben"},
        {"temperature": heat},
        "done",
        {"duration": seconds},
    )
    for number, (heat, seconds) in enumerate(VALUES)
]


def ids(rows: list[Row]) -> list[int]:
    return [row.id for row in rows]


def test_every_take_of_the_grid_has_a_row_before_it_is_made(tmp_path: Path) -> None:
    axes = {"temperature": [0, 1], "voice": ["ada", "nobody"]}
    made = sweep(ToneBackend(voices=DECLARED), axes, repeats=2, cache=Cache(tmp_path)).run()
    waiting = waiting_rows(made.grid)
    assert ids(waiting) == list(range(8))
    done = [row_of(outcome, made.grid) for outcome in made.outcomes]
    assert [(row.id, row.labels) for row in done] == [(row.id, row.labels) for row in waiting]
    assert [row.values for row in waiting] == [{k: v for k, v in row.values.items() if k != "seed"} for row in done]
    assert done[0].name == "temperature=0, voice=ada, take=1"
    assert [row.state for row in done] == ["done", "done", "failed", "failed"] * 2
    assert done[0].clip() == made.takes[0].clip()
    assert done[2].error == "reference_id: There is no such voice"
    with pytest.raises(NotFound, match="no sound of temperature=0, voice=nobody, take=1"):
        done[2].clip()


@pytest.mark.parametrize(
    ("where", "found"),
    [
        ("", [0, 1, 2, 3]),
        ("temperature>=0.75", [2, 3]),
        ("temperature>0.3, voice=ada", [3]),
        ("temperature=0.50", [0]),
        ("voice!=ada", [0, 2]),
        ("duration<2.5", [0, 2]),
        ("state=done", [0, 1, 2, 3]),
        ("be", [0, 2]),
        ("temperature=1", [2]),
        ("voice=nobody", []),
    ],
)
def test_a_filter_finds(where: str, found: list[int]) -> None:
    assert ids(matching(ROWS, where)) == found


def test_a_filter_knows_the_short_names() -> None:
    rows = [
        Row(number, {"reference_id": name}, {"prosody.speed": number}) for number, name in enumerate(("ada", "ben"))
    ]
    assert ids(matching(rows, "voice=ben")) == [1]
    assert ids(matching(rows, "speed<1")) == [0]


def test_a_filter_of_what_is_not_there_names_what_is() -> None:
    with pytest.raises(RequestInvalid, match=r"'loudness'; there are temperature, voice, duration, state") as caught:
        matching(ROWS, "loudness>3")
    assert caught.value.errors[0].field == "filter"


def test_rows_are_sorted_by_numbers_with_the_undefined_last_and_pins_first() -> None:
    assert ids(ordered(reversed(ROWS))) == [0, 1, 2, 3]
    assert ids(ordered(ROWS, "temperature")) == [1, 0, 3, 2]
    assert ids(ordered(ROWS, "duration")) == [2, 0, 3, 1]
    assert ids(ordered(ROWS, "duration", descending=True)) == [3, 0, 2, 1]
    assert ids(ordered(ROWS, "voice")) == [1, 3, 0, 2]
    assert ids(ordered(ROWS, "temperature", pinned=[3, 2])) == [3, 2, 1, 0]


def test_the_odd_one_out_is_the_farthest_from_the_median() -> None:
    rows = [Row(number, {}, figures={"f0": value}) for number, value in enumerate([100.0, 102, 98, 101, 150, math.nan])]
    found = there(odd_one_out(rows, "f0"))
    # The median is 101, the deviations are 1, 1, 3, 0 and 49, their median is 1.
    assert found[0].id == 4
    assert found[1] == pytest.approx(0.6745 * 49 / 1.0)
    assert odd_one_out(rows[:2], "f0") is None
    assert odd_one_out([Row(number, {}, figures={"f0": 1.0}) for number in range(5)], "f0") is None
    most_equal = [Row(number, {}, figures={"f0": value}) for number, value in enumerate([1.0, 1, 1, 1, 0.5])]
    found = there(odd_one_out(most_equal, "f0"))
    assert (found[0].id, found[1] < 0) == (4, True)


def test_a_comparison_is_named_by_what_differs() -> None:
    clip = Clip(np.zeros(100, np.float32), 8000)
    rows = [Row(number, row.labels, hear=lambda: clip) for number, row in enumerate(ROWS)]
    assert comparison_of([rows[0], rows[2]]).names == ("temperature=0.5", "temperature=1")
    assert comparison_of(rows[:2]).names == ("temperature=0.5, voice=Ben", "temperature=0.25, voice=Ada")
    assert comparison_of([rows[0], rows[0]]).names == ("take 1", "take 2")
    with pytest.raises(ArgumentError, match="2 to 8"):
        comparison_of([*rows, *rows, *rows])


def test_a_filter_takes_a_switch_for_the_word_it_is_shown_as() -> None:
    row = Row(0, {"normalize": "on"}, {"normalize": True})
    assert [bool(matching([row], where)) for where in ("normalize=on", "normalize=1")] == [True, False]
