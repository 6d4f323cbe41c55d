from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from tests.speechlike import RATE, speechlike
from voicelab.audio.clip import Clip
from voicelab.errors import RequestInvalid
from voicelab.experiments.comparison.comparison import Comparison, compare
from voicelab.experiments.metrics.level import loudness
from voicelab.experiments.metrics.metric import Subject
from voicelab.lab import Lab, connect

TEXT = "Glue the sheet."


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    with connect() as lab:
        yield lab


@pytest.fixture(scope="module")
def comparison(lab: Lab) -> Comparison:
    return compare(
        lab.speak(TEXT, seed=1),
        lab.speak(TEXT, seed=1, temperature=1.0, prosody={"volume": 6}),
        hot=lab.speak(TEXT, seed=2),
    )


def test_names_differences_and_figures(comparison: Comparison) -> None:
    assert comparison.names == ("A", "B", "hot")
    assert comparison.same_text
    table = comparison.differences()
    assert set(table.index) == {"temperature", "prosody.volume", "seed"}
    assert list(table.loc["seed"]) == [1, 1, 2]
    figures = comparison.metrics()
    assert list(figures.index) == ["A", "B", "hot"]
    assert figures["duration"].to_list() == pytest.approx([clip.duration for clip in comparison.clips.values()])
    assert repr(comparison).startswith("Comparison(A ")


def test_distances_are_from_the_first() -> None:
    # Two semitones higher, and five.
    voices = [Clip(speechlike(2.0, pitch=140 * 2 ** (up / 12)), RATE) for up in (0, 2, 5)]
    table = compare(*voices).metrics("log_f0_rmse", "mcd", "duration")
    assert table["log_f0_rmse"].tolist() == pytest.approx([0.0, 2.0, 5.0], abs=0.25)
    assert table["mcd"]["A"] == 0.0
    assert (table["mcd"][["B", "C"]] > 0.0).all()
    assert (table["undefined"] == "").all()


def test_one_loudness_and_the_same_words(comparison: Comparison) -> None:
    levels = [loudness(Subject(clip)) for clip in comparison.matched.clips.values()]
    assert np.ptp(levels) < 0.05
    assert comparison.matched.gains["A"] - comparison.matched.gains["B"] > 3
    assert {name: found.method for name, found in comparison.alignments.items()} == {"B": "words", "hot": "words"}


def test_what_stays_without_a_kernel(comparison: Comparison) -> None:
    bundle = comparison._repr_mimebundle_()
    assert set(bundle) == {"text/html", "image/png", "text/plain"}
    assert bundle["text/html"].count("<audio controls src=") == 3
    assert "temperature" in bundle["text/html"]
    assert "loudness, LUFS" in bundle["text/html"]
    assert bundle["text/plain"] == repr(comparison)
    assert comparison._repr_mimebundle_() == bundle


def test_a_blind_test_of_it(comparison: Comparison) -> None:
    test = comparison.listening_test("AB", seed=1)
    assert test.systems == comparison.names
    assert len(test.trials(0)) == 3


def test_what_cannot_be_compared(lab: Lab) -> None:
    clip = Clip(np.zeros(100, np.float32), 24_000)
    for clips in ((clip,), (clip,) * 9):
        with pytest.raises(RequestInvalid, match="2 to 8"):
            compare(*clips)
    with pytest.raises(RequestInvalid, match="has the name"):
        compare(clip, clip, A=clip)
    with pytest.raises(RequestInvalid, match="not of str"):
        compare(clip, b="text")  # type: ignore[arg-type]
    assert compare(clip, clip).differences().empty
