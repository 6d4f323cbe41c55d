from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jiwer
import numpy as np
import pytest

import voicelab as vl
from voicelab.audio.samples import Samples
from voicelab.experiments.metrics import Tools, measure
from voicelab.experiments.metrics.words import split_words
from voicelab.voices.transcripts import PocketRecognizer

Figure = Callable[..., tuple[float, str]]


class Hears:
    """A recognizer of one recording: it has heard it before."""

    def __init__(self, said: str) -> None:
        self.said, self.times = said, 0

    def recognise(self, samples: Samples, rate: int) -> str:
        self.times += 1
        return self.said


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("The birch canoe, slid!", "the birch canoe slid"),
        ("Don't — it\u2019s well-made", "dont its well made"),
        ("STRASSE straße", "strasse strasse"),
        ("caf\u00e9 cafe\u0301", "caf\u00e9 caf\u00e9"),
        ("'quoted' words'", "quoted words"),
        ("Voice 今天 天气, very好。", "voice 今 天 天 气 very 好"),
        ("", ""),
    ],
)
def test_words_are_compared_without_what_nobody_hears(text: str, words: str) -> None:
    assert split_words(text, None) == words.split()


def test_errors_are_counted_by_word_and_by_letter(sounds: Any) -> None:
    clip = sounds.noise(1.0, 0.1)
    # Two words substituted and one put in, of six.
    hears = Hears("the bird canoe slid the smooth planks")
    row = measure([clip], ["wer", "cer", "words"], text="The birch canoe slid on smooth", tools=Tools(hears)).iloc[0]
    assert row.wer == pytest.approx(3 / 6)
    assert row.words == 6
    assert row.cer == pytest.approx(jiwer.cer("the birch canoe slid on smooth", hears.said))
    assert hears.times == 1


def test_more_errors_than_words_are_more_than_one(sounds: Any, figure: Figure) -> None:
    assert figure(sounds.noise(1, 0.1), "wer", text="One", tools=Tools(Hears("two three four")))[0] == 3.0
    assert figure(sounds.noise(1, 0.1), "wer", text="One two", tools=Tools(Hears("")))[0] == 1.0


def test_figures_must_be_read_out(sounds: Any, figure: Figure) -> None:
    clip, hears = sounds.noise(1, 0.1), Hears("nineteen eighty four was")
    value, reason = figure(clip, "wer", text="1984 was", tools=Tools(hears))
    assert math.isnan(value)
    assert "Tools(spoken=" in reason

    def spoken(text: str) -> str:
        return text.replace("1984", "nineteen eighty-four")

    assert figure(clip, "wer", text="1984 was", tools=Tools(hears, spoken=spoken))[0] == 0.0


def test_chinese_is_counted_by_its_characters(sounds: Any, figure: Figure) -> None:
    clip, tools = sounds.noise(2, 0.1), Tools(Hears("今天天七很好"))
    row = measure([clip], ["wer", "cer", "words"], text="今天天气很好。", tools=tools).iloc[0]
    assert (row.words, row.wer, row.cer) == (6, pytest.approx(1 / 6), pytest.approx(1 / 6))
    assert "pocketsphinx hears English alone" in figure(clip, "wer", text="今天", tools=Tools(PocketRecognizer()))[1]


def test_without_a_text_there_is_no_error(sounds: Any, figure: Figure) -> None:
    tools = Tools(Hears("one"))
    assert "nobody says" in figure(sounds.noise(1, 0.1), "wer", tools=tools)[1]
    assert "no word" in figure(sounds.noise(1, 0.1), "wer", text="?!", tools=tools)[1]


def test_the_embedded_voice_is_understood() -> None:
    text = "The birch canoe slid on the smooth planks."
    with vl.connect() as lab:
        clip = lab.speak(text, seed=3)
    right = measure([clip], ["wer", "cer"]).iloc[0]
    wrong = measure([clip], ["wer"], text="Glue the sheet to the dark blue background.").iloc[0]
    assert right.wer < 0.7 < wrong.wer
    assert right.cer < right.wer + 0.2
    assert np.isfinite(right.cer)
