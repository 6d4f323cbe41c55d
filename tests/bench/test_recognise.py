"""The recognizer hears what a teacher says, nothing in silence, and does not depend on what came before."""

from __future__ import annotations

import shutil

import numpy as np
import pytest
import systems
from recognise import recognise, score_sentence, words

needs_flite = pytest.mark.skipif(shutil.which("flite") is None, reason="flite is not installed")


def test_words_are_compared_as_they_sound() -> None:
    assert (
        words("The well-known candidate's 3 cats, Dr. Lee!")
        == "the well known candidates three cats doctor lee".split()
    )


def test_silence_says_nothing() -> None:
    assert recognise(np.zeros(16_000, np.float32), 16_000) == ""
    assert recognise(np.zeros(0, np.float32), 44_100) == ""


@needs_flite
def test_a_teacher_is_understood_at_any_rate_and_level() -> None:
    text = "the structure consisted of a series of buildings"
    samples, rate = systems.teacher("rms", text)
    assert rate == 16_000
    assert words(recognise(samples, rate)) == words(text)
    assert words(recognise(samples[: samples.size // 2], rate)) != words(text)
    assert recognise(samples * np.float32(0.1), rate) == recognise(samples, rate)


@needs_flite
def test_what_is_heard_does_not_depend_on_the_sentence_before() -> None:
    one, rate = systems.teacher("rms", "the muscles and nerves of his body")
    two, _ = systems.teacher("slt", "we agreed on a dinner date")
    heard = recognise(one, rate)
    recognise(two, rate)
    assert recognise(one, rate) == heard


@needs_flite
def test_a_sentence_is_scored() -> None:
    found = score_sentence("rms", "we were struck dumb.")
    assert found.words == 4
    assert found.errors <= 2
    assert 0.5 < found.seconds < 3.0


def test_an_unknown_system_is_named() -> None:
    with pytest.raises(SystemExit, match="nobody"):
        systems.speak("nobody", "hello")


def test_there_are_three_hundred_sentences_to_judge_on() -> None:
    texts = systems.sentences(300)
    assert len(texts) == len(set(texts)) == 300
