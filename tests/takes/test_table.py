"""TakeTable: selection, pairing, frames, comparisons, statistics and listening tests of takes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tests.sweeps.test_sweep import sweep
from tests.tones import ToneBackend
from voicelab.audio.samples import Samples
from voicelab.call import Call
from voicelab.errors import ArgumentError, NotFound
from voicelab.listening.design import REFERENCE, Trial
from voicelab.listening.results import analyze
from voicelab.listening.votes import Ballot
from voicelab.metrics import BASIC, METRICS, Tools, measure, measure_rows
from voicelab.runs.cache import Cache
from voicelab.schema import TTSRequest
from voicelab.takes.table import TakeTable


@pytest.fixture
def made(tmp_path: Path) -> TakeTable:
    axes: dict[str, object] = {"temperature": [0, 0.5, 1], "text": ["Hello there.", "Good evening."]}
    base = Call(TTSRequest(text="axis", format="wav", sample_rate=24_000))
    return sweep(ToneBackend(), axes, base=base, repeats=2, cache=Cache(tmp_path / "cache")).run()


def test_metrics_are_named_and_measured_take_by_take(made: TakeTable) -> None:
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
    with pytest.raises(ArgumentError, match="unknown metric 'loud'"):
        made.frame("loud")


class HalfHeard:
    """A recognizer that skips words of some takes."""

    def recognise(self, samples: Samples, rate: int) -> str:
        return "hello there" if np.abs(samples).sum() % 1.0 < 0.5 else ""


def test_effects_on_wer_are_pooled_over_words(made: TakeTable) -> None:
    table = replace(made, measuring={"tools": Tools(HalfHeard())})
    found = table.effects("temperature", "wer")
    assert "wer: texts are weighted by their words, as in a pooled rate." in found.notes
    assert found.frame.metric.tolist() == ["wer"]
    frame = table.frame("wer", "words")
    pooled = (frame.wer * frame.words).groupby(frame.temperature).sum() / frame.words.groupby(frame.temperature).sum()
    assert found.contrasts.estimate_texts.to_numpy() == pytest.approx(pooled.to_numpy()[1:] - pooled.to_numpy()[0])


def test_a_selection_is_a_result(made: TakeTable) -> None:
    assert len(made.select(temperature=[0, 1], repeat=0)) == 4
    assert len(made.select(temperature=0).select(text="Hello there.").frame()) == 2
    assert len(made.select(temperature=0.3)) == 0


def test_an_axis_answers_to_the_name_it_was_asked_by(tmp_path: Path) -> None:
    made = sweep(ToneBackend(), {"voice": ["ada", "ben"], "speed": [1, 2]}, cache=Cache(tmp_path)).run()
    assert made.clip(voice="ada", speed=2) == made.clip(reference_id="ada", prosody__speed=2)
    assert made.listening_test("AB", "voice", lufs=None).systems == ("ada", "ben")


def test_clips_of_a_pair_are_labelled_by_the_compared_column(tmp_path: Path) -> None:
    axes: dict[str, object] = {"voice": ["ada", "ben", None], "text": ["Oh.", "Hello."], "temperature": [0, 1]}
    table = sweep(ToneBackend(), axes, repeats=2, cache=Cache(tmp_path)).run()
    assert list(table.clips("Hello.", over="voice", temperature=1)) == ["ada", "ben", "default"]
    assert list(table.clips(1, over="voice", voice=["ada", "ben"], temperature=0, repeat=1)) == ["ada", "ben"]
    assert list(table.clips(over="temperature", voice=None)) == ["0", "1"]
    assert table.compare("Oh.", over="text", voice="ada", temperature=1).names == ("Oh.", "Hello.")
    assert table.clips("Hello.", over="voice", temperature=1)["ben"] == table.clip(
        voice="ben", text="Hello.", temperature=1
    )
    with pytest.raises(ArgumentError, match="where: must select one pair, got 2; also specify temperature"):
        table.clips("Oh.", over="voice")
    with pytest.raises(ArgumentError, match="over: must be the compared column, one of voice, temperature"):
        table.clips("Oh.")
    with pytest.raises(NotFound, match="no take of ada, ben, default has these values; the table has voice: ada, ben"):
        table.clips("Ah.", over="voice", temperature=1)


def test_default_axes_and_blocks_of_effects(made: TakeTable) -> None:
    assert made.factors() == (["temperature"], ["text"])
    found = made.effects(metrics="duration")
    assert found.frame["axis"].tolist() == ["temperature"]
    assert list(made.summary(metrics=["duration", "level"]).index) == ["duration", "level"]
    assert len(made.equivalence(100.0, metrics=["duration"]).frame) == 2
    assert made.df("duration").equals(made.frame("duration"))
    with pytest.raises(ArgumentError, match="over: a key column must have two values or more"):
        made.select(temperature=0).effects(metrics="duration")


def test_from_a_selection_to_a_blind_test_and_back(made: TakeTable, tmp_path: Path) -> None:
    test = made.select(temperature=[0, 1]).listening_test("AB", "temperature", seed=3)
    assert test.name == "Listening test"  # the title that listeners read
    assert test.systems == ("0", "1")
    assert len(test.items) == 4
    heard = {stimulus.item for stimulus in test.sounds}
    assert heard == {f"text={text}, repeat={repeat}" for text in ("Hello there.", "Good evening.") for repeat in (0, 1)}

    def colder(trial: Trial) -> str:
        return next(letter for letter in "AB" if trial.slots[letter].system == "0")

    with Ballot(test, tmp_path / "votes") as ballot:
        for name in ("Ada", "Ben"):
            number = ballot.join(name)
            while (trial := ballot.next_trial(number)) is not None:
                ballot.vote(number, trial.id, {"choice": colder(trial)})
        found = analyze(test, ballot)
    assert found.tests["0", "1"].estimate.value == 1.0


def test_the_reference_of_a_mushra_test_is_a_value(made: TakeTable) -> None:
    test = made.listening_test("MUSHRA", "temperature", reference=0)
    assert test.systems == ("0.5", "1")
    (stimulus, *_) = (sound for sound in test.sounds if sound.system == REFERENCE)
    assert stimulus.clip.duration == made.clip(temperature=0, text="Hello there.").duration


def test_what_cannot_be_heard(made: TakeTable) -> None:
    with pytest.raises(ArgumentError, match=r"reference: must be one of 0, 1, got 0\.5"):
        made.select(temperature=[0, 1]).listening_test("MUSHRA", "temperature", reference=0.5)
    with pytest.raises(ArgumentError, match="over: must be a key column, got 'top_p'"):
        made.listening_test("AB", "top_p")
    with pytest.raises(ArgumentError, match="over: must be a key column with two values or more"):
        made.select(temperature=0.3).listening_test("AB", "temperature")
    with pytest.raises(ArgumentError, match=r"must be one of 0, 0\.5, 1, got 7"):
        made.listening_test("MUSHRA", "temperature", reference=7)
