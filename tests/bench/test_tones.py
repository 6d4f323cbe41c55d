"""Tones are told by pitch, and only by pitch."""

from __future__ import annotations

import numpy as np
import pytest
from tones import LETTERS, POINTS, Said, nearest, summary, syllables, texts

from voicelab.audio.clip import Clip
from voicelab.engine.pointer.mandarin import Syllable, read

RATE, LENGTH, GAP = 16_000, 0.3, 0.1


def _spoken(levels: list[tuple[float, ...]], low: float = 120.0, semitones: float = 9.0) -> Clip:
    """Syllables whose pitch goes through five levels each, with silences between."""
    parts = []
    for letters in levels:
        count = round(LENGTH * RATE)
        level = np.interp(np.linspace(0, 1, count), (0, *POINTS, 1), (letters[0], *letters, letters[-1]))
        phase = 2 * np.pi * np.cumsum(low * 2 ** ((level - 1) / 4 * semitones / 12)) / RATE
        parts += [0.1 * sum(np.sin(k * phase) / k for k in range(1, 9)), np.zeros(round(GAP * RATE))]
    return Clip(samples=np.concatenate(parts).astype(np.float32), rate=RATE)


SPANS = [(i * (LENGTH + GAP), i * (LENGTH + GAP) + LENGTH) for i in range(4)]


def test_letters_are_nearest_to_themselves() -> None:
    for tone, every in LETTERS.items():
        assert [nearest(letters) for letters in every] == [tone] * len(every)


@pytest.mark.parametrize("low", [80.0, 220.0])
def test_glides_are_told(low: float) -> None:
    order = (4, 1, 3, 2)
    found = syllables(_spoken([LETTERS[t][0] for t in order], low), SPANS, order)
    assert [s.told for s in found] == list(order)
    assert summary(found)["right"] == 1.0
    contour = summary(found)["contours"][4]
    assert contour[0] - contour[-1] == pytest.approx(9.0, abs=1.5)


def test_a_monotone_is_not() -> None:
    found = syllables(_spoken([(3.0,) * 5] * 4), SPANS, (1, 2, 3, 4))
    assert summary(found)["right"] <= 0.25


def test_silence_has_no_tone() -> None:
    quiet = Clip(samples=np.zeros(2 * RATE, np.float32), rate=RATE)
    found = syllables(quiet, SPANS, (1, 2, 3, 4))
    assert found == [Said(t, (), ()) for t in (1, 2, 3, 4)]
    assert summary(found)["without_pitch"] == 4


def test_the_texts_are_read_as_the_tones_that_they_are_counted_as() -> None:
    for text, tones in texts():
        assert tuple(s.tone for s in read(text) if isinstance(s, Syllable)) == tones
