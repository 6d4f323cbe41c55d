"""Tone identification of bench/tones.py, on synthetic contours."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tones import ORDERS, POINTS, WORDS, Syllable, classify_tones, load_recordings, summary, syllables, texts

from voicelab.clip import Clip
from voicelab.engine.pointer.mandarin import Syllable as TextSyllable
from voicelab.engine.pointer.mandarin import read

RATE, LENGTH, GAP = 16_000, 0.3, 0.1
LETTERS = {1: (5, 5, 5, 5, 5), 2: (3, 3, 3.5, 4.2, 5), 3: (2, 1.4, 1, 1.8, 3), 4: (5, 4.5, 3.5, 2.2, 1)}
"""Levels of the tones at `POINTS` (Chao, 1930)."""
SPANS = [(i * (LENGTH + GAP), i * (LENGTH + GAP) + LENGTH) for i in range(4)]


def _syllable(levels: tuple[float, ...], low: float = 120.0, semitones: float = 9.0) -> Clip:
    """Synthesize a syllable with F0 through five levels."""
    count = round(LENGTH * RATE)
    level = np.interp(np.linspace(0, 1, count), (0, *POINTS, 1), (levels[0], *levels, levels[-1]))
    phase = 2 * np.pi * np.cumsum(low * 2 ** ((level - 1) / 4 * semitones / 12)) / RATE
    return Clip(
        samples=np.sum([0.1 * np.sin(k * phase) / k for k in range(1, 9)], axis=0).astype(np.float32), rate=RATE
    )


def _spoken(order: tuple[int, ...], of: str = "ma", low: float = 120.0, flat: bool = False) -> list[Syllable]:
    quiet = np.zeros(round(GAP * RATE), np.float32)
    parts = [part for t in order for part in (_syllable((3.0,) * 5 if flat else LETTERS[t], low).samples, quiet)]
    return syllables(Clip(samples=np.concatenate(parts), rate=RATE), SPANS, of, order)


KNOWN = [*_spoken((1, 2, 3, 4), "ba"), *_spoken((3, 1, 4, 2), "yi", 150.0)]


@pytest.mark.parametrize("low", [80.0, 220.0])
def test_tone_contours_are_identified(low: float) -> None:
    order = (4, 1, 3, 2)
    rendered = _spoken(order, low=low)
    assert classify_tones(rendered, KNOWN) == list(order)
    figures = summary(rendered, KNOWN)
    assert (figures["right"], figures["heard_as"][4]) == (1.0, {"1": 0, "2": 0, "3": 0, "4": 1})
    contour = figures["contours"][4]
    assert contour[0] - contour[-1] == pytest.approx(9.0, abs=1.5)


def test_monotone_is_at_chance_level() -> None:
    assert summary(_spoken((1, 2, 3, 4), flat=True), KNOWN)["right"] <= 0.25


def test_syllable_is_not_compared_with_itself() -> None:
    swapped = [Syllable("ma", {1: 4, 4: 1}.get(s.tone, s.tone), s.contour, s.semitones) for s in _spoken((1, 2, 3, 4))]
    assert classify_tones(swapped, [*KNOWN, *swapped * 9]) == [1, 2, 3, 4]


def test_silence_has_no_tone() -> None:
    quiet = Clip(samples=np.zeros(2 * RATE, np.float32), rate=RATE)
    rendered = syllables(quiet, SPANS, "ma", (1, 2, 3, 4))
    assert rendered == [Syllable("ma", t) for t in (1, 2, 3, 4)]
    assert summary(rendered, KNOWN)["without_pitch"] == 4


def test_texts_have_the_stated_tones() -> None:
    for letters, text, tones in texts():
        final_syllables = [s for s in read(text) if isinstance(s, TextSyllable)][WORDS - 1 :: WORDS]
        assert tuple(s.tone for s in final_syllables) == tones
        assert {s.character for s in final_syllables} == set(letters)


def test_recordings_with_four_tones_are_loaded(tmp_path: Path) -> None:
    for name, tones in {"ㄇㄚ": (1, 2, 3, 4), "ㄅㄞ": (1, 2, 4)}.items():
        for tone in tones:
            folder = tmp_path / f"{name}{'' if tone == 1 else tone}"
            folder.mkdir()
            _syllable(LETTERS[tone]).save(folder / "5.ogg")
    ((clip, spans, of, order),) = load_recordings(tmp_path)
    assert of == "ㄇㄚ"
    assert order == tuple(i + 1 for i in ORDERS[1])
    assert classify_tones(syllables(clip, spans, of, order), KNOWN) == list(order)
