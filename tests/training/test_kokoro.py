from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from training import kokoro
from training.kokoro import FRAME, RATE, blend, style_row, timed_phones


def merged(symbols: str, frames: list[int]) -> list[tuple[str, int, int]]:
    """Return phones with times in frames after the leading pad, with corrected boundaries."""
    pad = 10
    lead = pad * FRAME / RATE - 0.05
    return [
        (p.name, round((p.start - lead) * 40), round((p.end - lead) * 40))
        for p in timed_phones(symbols, [pad, *frames, 1])
    ]


def test_boundaries_are_corrected_by_50_ms() -> None:
    (phone,) = timed_phones("a", [12, 4, 1])
    assert (phone.name, phone.first) == ("a", True)
    assert [phone.start, phone.end] == pytest.approx([0.25, 0.35])


def test_stress_is_merged_with_the_following_vowel() -> None:
    assert merged("bˈɜd", [1, 2, 3, 1]) == [("b", 0, 1), ("ˈɜ", 1, 6), ("d", 6, 7)]


def test_tones_and_aspiration_are_merged_with_the_previous_phone() -> None:
    assert merged("tʰi↘n", [2, 1, 3, 1, 2]) == [("tʰ", 0, 3), ("i↘", 3, 7), ("n", 7, 9)]


def test_short_spaces_are_merged_and_long_ones_are_pauses() -> None:
    assert merged("a b c", [2, 2, 1, 3, 1]) == [("a", 0, 4), ("b", 4, 5), (" ", 5, 8), ("c", 8, 9)]
    assert [p.first for p in timed_phones("ab c", [9, 2, 2, 1, 1, 1])] == [True, False, True]


def test_punctuation_with_spaces_is_one_pause() -> None:
    assert merged("a,” “b?!", [2, 5, 1, 3, 4, 1, 6, 2]) == [("a", 0, 2), (",", 2, 15), ("b", 15, 16), ("?", 16, 24)]


def test_phones_have_no_gaps_and_the_duration_of_their_symbols() -> None:
    rng = np.random.default_rng(0)
    symbols = "“wˌɛɹ ɪz ɪt?” ʃi ˈæskt, lˈʊkɪŋ æt mˈɑɹlO."
    durations = rng.integers(1, 9, len(symbols) + 2).tolist()
    phones = timed_phones(symbols, durations)
    assert all(a.end == b.start for a, b in pairwise(phones))
    assert phones[-1].end - phones[0].start == pytest.approx(sum(durations[1:-1]) * FRAME / RATE)
    with pytest.raises(ValueError, match="durations"):
        timed_phones("ab", [1, 1, 1])


def test_blends_are_convex() -> None:
    rows = np.arange(510, dtype=np.float32)[:, None] * np.ones((1, 256), np.float32)
    voices = {"a": rows, "b": rows * 3}
    assert np.allclose(blend(voices, [("a", 0.25), ("b", 0.75)]), rows * 2.5)
    for weights in ((1.2, -0.2), (0.5, 0.4)):
        with pytest.raises(ValueError, match="positive and sum to 1"):
            blend(voices, list(zip("ab", weights, strict=True)))


def test_prosody_of_another_blend() -> None:
    voices = {name: np.full((510, 256), value, np.float32) for name, value in (("a", 1), ("b", 3), ("c", 9))}
    half = [("a", 0.5), ("b", 0.5)]
    assert kokoro.style_of(voices, 20, half).tolist() == [2] * 256
    assert kokoro.style_of(voices, 20, half, [("c", 1.0)]).tolist() == [2] * 128 + [9] * 128


def test_style_row_bounds() -> None:
    assert style_row(42, 0) == 41
    assert style_row(42, -20) == 21
    assert style_row(30, -20) == 15
    assert style_row(8, -20) == 7
    assert style_row(8, 20) == 27
    assert style_row(509, 20) == 509


def test_protocol_buffer_fields() -> None:
    # ModelProto.graph (7) { output (12) { name (1): "x" … } }, lengths in base 128.
    assert kokoro._field(1, b"x") == b"\x0a\x01x"
    assert kokoro._field(12, b"") == b"\x62\x00"
    assert kokoro._field(7, b"y" * 300)[:3] == b"\x3a\xac\x02"
    assert kokoro._value_info("x") == b"\x0a\x01x\x12\x04\x0a\x02\x08\x01"


def test_silence_of_the_last_phone_is_moved_to_the_pause() -> None:
    phones = timed_phones("a b.", [8, 4, 4, 20, 8, 1])  # a .15–.25, pause –.35, b –.85, "." –1.05
    rng = np.random.default_rng(0)
    audio = 1e-5 * rng.standard_normal(round(1.1 * RATE)).astype(np.float32)
    audio[round(0.15 * RATE) : round(0.5 * RATE)] += 0.1 * rng.standard_normal(round(0.35 * RATE)).astype(np.float32)
    rumble = (0.02 * np.sin(2 * np.pi * 20 * np.arange(audio.size) / RATE)).astype(np.float32)
    for signal in (audio, audio + rumble):
        moved = kokoro.end_in_sound(phones, signal)
        assert [p.name for p in moved] == [p.name for p in phones]
        assert moved[:2] == phones[:2]
        assert moved[2].end == moved[3].start == pytest.approx(0.5, abs=0.006)
        assert moved[3].end == phones[3].end
    silent = kokoro.end_in_sound(phones, 1e-5 * rng.standard_normal(audio.size).astype(np.float32))
    assert all(p.end - p.start >= FRAME / RATE - 1e-9 for p in silent)
