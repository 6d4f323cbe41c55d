from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from voicelab.audio.clip import Clip, WordTime
from voicelab.experiments.metrics.tempo import _syllables

Figure = Callable[..., tuple[float, str]]


@pytest.fixture(scope="module")
def spoken(sounds: Any) -> Clip:
    """Silence 0.3, speech 1.0, pause 0.5, speech 0.6, gap 0.15, speech 0.75, pause 0.8, speech 0.4, silence 0.2."""
    parts = [(0.3, 0), (1.0, 1), (0.5, 0), (0.6, 1), (0.15, 0), (0.75, 1), (0.8, 0), (0.4, 1), (0.2, 0)]
    clip: Clip = sounds.join(
        *(sounds.noise(seconds, 0.1 if loud else 0.0001, seed=n) for n, (seconds, loud) in enumerate(parts))
    )
    return clip


@pytest.mark.parametrize(
    ("metric", "expected"), [("pauses", 2), ("pause_time", 1.3), ("longest_pause", 0.8), ("speech_time", 4.2)]
)
def test_pauses_are_counted(metric: str, expected: float, spoken: Clip, figure: Figure) -> None:
    assert figure(spoken, metric)[0] == pytest.approx(expected, abs=0.05)


@pytest.mark.parametrize("gain", [1.0, 0.01])
@pytest.mark.parametrize("noise_db", [-60, -20])
def test_neither_level_nor_noise_moves_the_pauses(
    gain: float, noise_db: float, spoken: Clip, sounds: Any, figure: Figure
) -> None:
    noise = sounds.noise(spoken.duration, 0.1 * 10 ** (noise_db / 20), seed=99)
    clip = sounds.clip(gain * (spoken.samples + noise.samples))
    assert figure(clip, "pauses")[0] == 2
    assert figure(clip, "pause_time")[0] == pytest.approx(1.3, abs=0.08)


def test_a_click_is_no_speech(spoken: Clip, sounds: Any, figure: Figure) -> None:
    samples = np.array(spoken.samples)
    samples[round(1.55 * 48_000) :][:200] = 0.3  # 4 ms in the middle of the first pause
    assert figure(sounds.clip(samples), "pause_time")[0] == pytest.approx(1.3, abs=0.05)


def test_the_rate_is_of_words_over_the_time_of_speech(spoken: Clip, figure: Figure) -> None:
    text = "Don't stop: the birch canoe slid on the smooth-planed planks, twelve."
    assert figure(spoken, "word_rate", text=text)[0] == pytest.approx(12 / 4.2, rel=0.02)
    timed = Clip(spoken.samples, spoken.rate, words=(WordTime("one", 0.3, 1.0), WordTime("two", 2.0, 3.0)))
    assert figure(timed, "word_rate")[0] == pytest.approx(2 / 4.2, rel=0.02)


def test_the_articulation_rate_leaves_pauses_out(spoken: Clip, figure: Figure) -> None:
    # Seven words of one syllable each, and one of three.
    text = "The birch bark slid on the lake yesterday"
    assert figure(spoken, "syllable_rate", text=text)[0] == pytest.approx(10 / 2.9, rel=0.03)
    assert figure(spoken, "syllable_rate", text="今天天气很好。")[0] == pytest.approx(6 / 2.9, rel=0.03)


@pytest.mark.parametrize(
    ("word", "count"),
    [
        *[("the", 1), ("planks", 1), ("canoe", 2), ("smooth", 1), ("table", 2), ("wanted", 2), ("walked", 1)],
        *[("rhythm", 1), ("boxes", 2), ("makes", 1), ("syllable", 3), ("b", 1), ("yesterday", 3), ("sunset", 2)],
    ],
)
def test_syllables_of_english_spelling(word: str, count: int) -> None:
    assert _syllables(word) == count


def test_what_is_not_known_says_so(spoken: Clip, sounds: Any, figure: Figure) -> None:
    assert "what words" in figure(spoken, "word_rate")[1]
    assert "text is" in figure(spoken, "syllable_rate")[1]
    assert "figures" in figure(spoken, "syllable_rate", text="In 1984")[1]
    value, reason = figure(sounds.clip(np.zeros(48_000)), "pauses")
    assert math.isnan(value)
    assert reason == "pauses: the clip is silent"
