from __future__ import annotations

import json
import threading
from pathlib import Path

import pandas as pd
import pytest

from tests.experiments.sweeps.test_sweep import sweep
from tests.tones import ToneBackend
from voicelab.call import Call
from voicelab.errors import ArgumentError, RequestInvalid
from voicelab.experiments.cache import Cache
from voicelab.experiments.listening.design import REFERENCE, Trial
from voicelab.experiments.listening.results import analyse
from voicelab.experiments.listening.votes import Ballot
from voicelab.experiments.manifest import load
from voicelab.experiments.metrics import BASIC, METRICS, measure, measure_rows
from voicelab.experiments.sweeps.result import SweepResult
from voicelab.schema import TTSRequest


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


def test_the_table_of_a_manifest_is_in_the_order_of_the_grid(tmp_path: Path) -> None:
    def late(_: int) -> None:
        # The first take of the grid ends last.
        if not others.is_set() and threading.current_thread().name.endswith("_0"):
            others.wait(20)

    others = threading.Event()
    path = tmp_path / "run.jsonl"
    work = sweep(ToneBackend(late), repeats=2).start(
        manifest=path, concurrency=2, listener=lambda _: others.set() if len(work.outcomes) >= 5 else None
    )
    assert work.wait(30)
    lines = [json.loads(line) for line in path.read_text().splitlines()[1:]]
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
    path = tmp_path / "run.jsonl"
    sweep(ToneBackend(), {"temperature": [0.5, 1]}, repeats=2).run(manifest=path)
    sweep(ToneBackend(), {"temperature": then}, repeats=repeats).run(manifest=path)
    run = load(path)
    table = run.frame()
    assert len(table) == sum(max(2 * (value in (0.5, 1)), repeats * (value in then)) for value in {0.5, 1, *then})
    assert (table.groupby("cell").temperature.nunique() == 1).all()
    assert (table.groupby("temperature").cell.nunique() == 1).all()
    assert table.cell.is_monotonic_increasing
    assert [labels["cell"] for labels in run.labels] == table.cell.tolist()
    if then == [0.5, 0.9, 1]:  # grown: the numbers and the order are those of the last sweep
        assert table.temperature.drop_duplicates().tolist() == then
    written = path.read_bytes()
    sweep(ToneBackend(), {"temperature": then}, repeats=repeats).run(manifest=path)
    assert path.read_bytes() == written
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
