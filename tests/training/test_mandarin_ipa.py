from __future__ import annotations

import json
from importlib.resources import files
from itertools import product

import pytest

from training import mandarin_ipa
from training.ipa import arpabet, initials_and_finals
from training.kokoro import Phone, timed_phones
from training.mandarin_ipa import phonemes, syllables, to_ipa
from voicelab.engine.pointer.config import ALL_PHONES, MANDARIN_PHONES
from voicelab.engine.pointer.mandarin import Syllable, read


def _ids(symbols: str) -> list[str]:
    """Return the phones that training reads from the teacher's symbols."""
    timed = timed_phones(symbols, [3] * (len(symbols) + 2))
    return [p.name for p in arpabet(initials_and_finals(timed))]


@pytest.mark.parametrize(
    ("text", "symbols"),
    [
        ("你好。", "ni↗xau↓."),  # tone sandhi
        ("我不去，因为下雨。", "wo↓ pu↗ ʨʰy↘, i→nwei↘ ɕja↘y↓."),
        ("玩儿吗？", "wa↗nɚ ma?"),
        ("档案！", "ta↘ŋa↘n!"),
        ("方法。", "fa→ŋfa↓."),
        ("可爱的女儿", "kʰɤ↓ai↘ tɤ ny↓ɚ↗"),
        ("e-mail给你", ""),
    ],
)
def test_phonemes_equal_those_of_the_front_end(text: str, symbols: str) -> None:
    assert phonemes(text) == symbols
    expected = [name for item in read(text) if isinstance(item, Syllable) for name in item.phones]
    if symbols:
        assert [name for name in _ids(symbols) if name.startswith("zh_")] == expected


def test_round_trip_of_the_inventory() -> None:
    initials = {name[3:] for name in MANDARIN_PHONES if name[-1].isalpha() and name != "zh_rr"} | {""}
    finals = {name[3:-1] for name in MANDARIN_PHONES if name[-1].isdigit()}
    tokens = set(
        json.loads((files("voicelab.backends") / "kokoro_voices" / "symbols.json").read_text(encoding="utf-8"))
    )
    for initial, final, tone, erhua in product(initials, finals, range(1, 6), (False, True)):
        ambiguous = final in ("ng", "o", "uo", "ir", "iz") or (final == "er" and initial)
        if ambiguous:
            continue
        syllable = Syllable("", initial, final, tone, erhua)
        ipa = to_ipa(syllable)
        assert [names for names, _ in syllables(ipa)] == [syllable.phones]
        assert set(ipa) <= tokens


@pytest.mark.parametrize(
    ("initial", "final"), [("b", "o"), ("d", "uo"), ("zh", "ir"), ("s", "iz"), ("", "uo"), ("", "ng")]
)
def test_ambiguous_finals_are_resolved_by_the_initial(initial: str, final: str) -> None:
    syllable = Syllable("", initial, final, 4)
    assert [names for names, _ in syllables(to_ipa(syllable))] == [syllable.phones]


def test_ambiguous_syllable_boundaries_are_separated() -> None:
    assert phonemes("方案。").count(" ") == 0  # ŋ never begins a syllable
    symbols = phonemes("恩爱平安。")
    assert _ids(symbols)[1:-1] == "zh_en1 zh_ai4 zh_p zh_ing2 zh_an1".split()
    assert mandarin_ipa.phonemes("大年夜。") != mandarin_ipa.phonemes("单眼。")


def test_phone_times_and_word_starts() -> None:
    phones = [
        Phone("tʰ", 0.3, 0.35, True),
        Phone("j", 0.35, 0.375, False),
        Phone("ɛ→", 0.375, 0.45, False),
        Phone("n", 0.45, 0.5, False),
        Phone("ʨʰ", 0.5, 0.6, False),
        Phone("i↘", 0.6, 0.7, False),
        Phone(".", 0.7, 1.0, False),
    ]
    converted = arpabet(initials_and_finals(phones))
    assert [(p.name, p.start, p.end, p.first) for p in converted] == [
        ("^", 0.0, 0.3, True),
        ("zh_t", 0.3, 0.35, True),
        ("zh_ian1", 0.35, 0.5, False),
        ("zh_q", 0.5, 0.6, True),
        ("zh_i4", 0.6, 0.7, False),
        (".", 0.7, 1.0, True),
    ]
    assert all(p.name in ALL_PHONES for p in converted)


def test_foreign_symbols_raise() -> None:
    with pytest.raises(KeyError):
        syllables("kwˈɪk")
