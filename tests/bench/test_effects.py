"""Prosody metrics of bench/effects.py, on synthetic takes with known pitch and rate."""

from __future__ import annotations

import effects
import numpy as np
import pandas as pd
import pytest

from voicelab.audio.words import Words, WordTime
from voicelab.clip import Clip

RATE = 16_000


def _take(hertz: tuple[float, float], seconds: tuple[float, float]) -> Clip:
    """Synthesize two words of given pitches and durations."""
    parts, words, start_s = [], [], 0.0
    for number, (pitch, length) in enumerate(zip(hertz, seconds, strict=True)):
        phase = 2 * np.pi * pitch * np.arange(round(length * RATE)) / RATE
        parts.append(0.1 * sum(np.sin(k * phase) / k for k in range(1, 9)))
        words.append(WordTime(f"w{number}", start_s, start_s + length))
        start_s += length
    return Clip(samples=np.concatenate(parts).astype(np.float32), rate=RATE, words=Words(words))


def test_range_is_in_semitones() -> None:
    assert effects.f0_range(_take((100, 200), (0.5, 0.5))) == pytest.approx(12, abs=0.3)


def test_deviations_are_from_the_median_of_the_cell() -> None:
    same, different = _take((100, 120), (0.5, 0.5)), _take((200, 240), (1.0, 1.0))
    rows = effects.cell([same, same, different])
    assert [row["pace"] for row in rows] == pytest.approx([0, 0, np.log(2)])
    assert [row["contour"] for row in rows] == pytest.approx([0, 0, 12], abs=0.3)
    assert rows[0]["spectrum"] == pytest.approx(0, abs=1e-6)
    assert rows[2]["spectrum"] > 1


def test_median_deviation_is_robust_to_octave_errors() -> None:
    contours = [np.zeros(20), np.zeros(20), np.array([12.0] + 19 * [0.5])]
    assert effects.deviations(contours, np.median) == [0, 0, 0.5]
    assert effects.deviations(contours)[2] > 2


def test_change_is_lower_for_repetition() -> None:
    monotone, varied = _take((100, 100), (0.5, 0.5)), _take((100, 170), (0.5, 0.5))
    steps = _take((100, 170), (0.05, 0.05))
    assert 1.2 * effects.change(monotone) < effects.change(varied) < 0.5 * effects.change(steps)


def test_takes_with_skipped_words_are_excluded() -> None:
    complete, cut = _take((100, 120), (0.5, 0.5)), _take((100, 120), (0.5, 0.5))
    cut = Clip(samples=cut.samples, rate=RATE, words=Words(cut.words[:1]))
    assert len(effects.cell([complete, cut, complete])) == 2


def test_p_of_an_effect_and_of_no_effect() -> None:
    rng = np.random.default_rng(0)
    rows = [
        {"text": f"t{text}", "temperature": level, "range": 5 + rng.normal(), "contour": level + 0.1 * rng.normal()}
        for text in range(8)
        for level in effects.LEVELS["temperature"]
        for _ in range(4)
    ]
    frame = pd.DataFrame(rows)
    frame["pace"], frame["spectrum"], frame["change"] = frame["range"], frame["contour"], frame["range"]
    rows_of = {row["metric"]: row for row in effects.analyze("temperature", frame)}
    assert rows_of["contour"]["p"] < 1e-4
    assert rows_of["range"]["p"] > 0.01
    assert rows_of["contour"]["at_each"] == pytest.approx([0.2, 0.6, 1.0], abs=0.1)
