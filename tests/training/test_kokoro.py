from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from training import kokoro
from training.kokoro import FRAME, RATE, blend, style_row, timed_phones


def merged(symbols: str, frames: list[int]) -> list[tuple[str, int, int]]:
    """Phones with times in frames after the leading pad, the late boundaries made good."""
    pad = 10
    lead = pad * FRAME / RATE - 0.05
    return [
        (p.name, round((p.start - lead) * 40), round((p.end - lead) * 40))
        for p in timed_phones(symbols, [pad, *frames, 1])
    ]


def test_boundaries_are_moved_fifty_milliseconds_back() -> None:
    (phone,) = timed_phones("a", [12, 4, 1])
    assert (phone.name, phone.first) == ("a", True)
    assert [phone.start, phone.end] == pytest.approx([0.25, 0.35])


def test_stress_gives_its_time_to_the_vowel_behind_it() -> None:
    assert merged("bˈɜd", [1, 2, 3, 1]) == [("b", 0, 1), ("ˈɜ", 1, 6), ("d", 6, 7)]


def test_tones_and_aspiration_belong_to_the_sound_before_them() -> None:
    assert merged("tʰi↘n", [2, 1, 3, 1, 2]) == [("tʰ", 0, 3), ("i↘", 3, 7), ("n", 7, 9)]


def test_a_short_space_lengthens_the_phone_before_it_and_a_longer_one_is_a_pause() -> None:
    assert merged("a b c", [2, 2, 1, 3, 1]) == [("a", 0, 4), ("b", 4, 5), (" ", 5, 8), ("c", 8, 9)]
    assert [p.first for p in timed_phones("ab c", [9, 2, 2, 1, 1, 1])] == [True, False, True]


def test_spaces_and_quotation_marks_around_punctuation_are_one_pause() -> None:
    assert merged("a,” “b?!", [2, 5, 1, 3, 4, 1, 6, 2]) == [("a", 0, 2), (",", 2, 15), ("b", 15, 16), ("?", 16, 24)]


def test_the_phones_leave_no_gap_and_last_as_long_as_their_symbols() -> None:
    rng = np.random.default_rng(0)
    symbols = "“wˌɛɹ ɪz ɪt?” ʃi ˈæskt, lˈʊkɪŋ æt mˈɑɹlO."
    durations = rng.integers(1, 9, len(symbols) + 2).tolist()
    phones = timed_phones(symbols, durations)
    assert all(a.end == b.start for a, b in pairwise(phones))
    assert phones[-1].end - phones[0].start == pytest.approx(sum(durations[1:-1]) * FRAME / RATE)
    with pytest.raises(ValueError, match="durations"):
        timed_phones("ab", [1, 1, 1])


def test_blends_are_made_row_by_row_and_only_inside_the_hull() -> None:
    rows = np.arange(510, dtype=np.float32)[:, None] * np.ones((1, 256), np.float32)
    voices = {"a": rows, "b": rows * 3}
    assert np.allclose(blend(voices, [("a", 0.25), ("b", 0.75)]), rows * 2.5)
    for weights in ((1.2, -0.2), (0.5, 0.4)):
        with pytest.raises(ValueError, match="hull"):
            blend(voices, list(zip("ab", weights, strict=True)))


def test_durations_and_melody_can_be_those_of_another_mixture() -> None:
    voices = {name: np.full((510, 256), value, np.float32) for name, value in (("a", 1), ("b", 3), ("c", 9))}
    half = [("a", 0.5), ("b", 0.5)]
    assert kokoro.style_of(voices, 20, half).tolist() == [2] * 256
    assert kokoro.style_of(voices, 20, half, [("c", 1.0)]).tolist() == [2] * 128 + [9] * 128


def test_a_mood_stays_in_the_table_and_out_of_single_words_rows() -> None:
    assert style_row(42, 0) == 41
    assert style_row(42, -20) == 21
    assert style_row(30, -20) == 15
    assert style_row(8, -20) == 7
    assert style_row(8, 20) == 27
    assert style_row(509, 20) == 509


def test_an_appended_output_is_a_field_of_a_protocol_buffer() -> None:
    # ModelProto.graph (7) { output (12) { name (1): "x" … } }, lengths in base 128.
    assert kokoro._field(1, b"x") == b"\x0a\x01x"
    assert kokoro._field(12, b"") == b"\x62\x00"
    assert kokoro._field(7, b"y" * 300)[:3] == b"\x3a\xac\x02"
    assert kokoro._value_info("x") == b"\x0a\x01x\x12\x04\x0a\x02\x08\x01"


def test_the_silence_in_the_last_phone_is_the_pauses() -> None:
    phones = timed_phones("a b.", [8, 4, 4, 20, 8, 1])  # a .15–.25, pause –.35, b –.85, "." –1.05
    rng = np.random.default_rng(0)
    audio = 1e-5 * rng.standard_normal(round(1.1 * RATE)).astype(np.float32)
    audio[round(0.15 * RATE) : round(0.5 * RATE)] += 0.1 * rng.standard_normal(round(0.35 * RATE)).astype(np.float32)
    rumble = (0.02 * np.sin(2 * np.pi * 20 * np.arange(audio.size) / RATE)).astype(np.float32)
    for heard in (audio, audio + rumble):
        found = kokoro.end_in_sound(phones, heard)
        assert [p.name for p in found] == [p.name for p in phones]
        assert found[:2] == phones[:2]
        assert found[2].end == found[3].start == pytest.approx(0.5, abs=0.006)
        assert found[3].end == phones[3].end
    silent = kokoro.end_in_sound(phones, 1e-5 * rng.standard_normal(audio.size).astype(np.float32))
    assert all(p.end - p.start >= FRAME / RATE - 1e-9 for p in silent)
