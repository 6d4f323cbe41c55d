from __future__ import annotations

from pathlib import Path

import pytest

from tests.experiments.sweeps.test_sweep import sweep
from tests.tones import ToneBackend
from voicelab.errors import RequestInvalid
from voicelab.experiments.cache import Cache
from voicelab.experiments.listening.design import REFERENCE, Trial
from voicelab.experiments.listening.results import analyse
from voicelab.experiments.listening.votes import Ballot
from voicelab.experiments.sweeps.result import SweepResult
from voicelab.schema import TTSRequest


@pytest.fixture
def made(tmp_path: Path) -> SweepResult:
    axes: dict[str, object] = {"temperature": [0, 0.5, 1], "text": ["Hello there.", "Good evening."]}
    base = TTSRequest(text="axis", format="wav", sample_rate=24_000)
    return sweep(ToneBackend(), axes, base=base, repeats=2, cache=Cache(tmp_path / "cache")).run()


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
    with pytest.raises(RequestInvalid, match="no axis 'top_p'"):
        made.listening_test("AB", "top_p")
    with pytest.raises(RequestInvalid, match="no combination"):
        made.select(temperature=0.3).listening_test("AB", "temperature")
    with pytest.raises(RequestInvalid, match="has no 7"):
        made.listening_test("MUSHRA", "temperature", reference=7)
