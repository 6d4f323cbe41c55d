from __future__ import annotations

import json
from importlib.resources import files
from itertools import product

import pytest

from training import mandarin_ipa
from training.ipa import arpabet, initials_and_finals
from training.kokoro import Phone, timed_phones
from training.mandarin_ipa import phonemes, syllables, written
from voicelab.engine.pointer.config import ALL_PHONES, MANDARIN_PHONES
from voicelab.engine.pointer.mandarin import Syllable, read


def _ids(symbols: str) -> list[str]:
    """Names of the phones, as training reads them of what the teacher said."""
    timed = timed_phones(symbols, [3] * (len(symbols) + 2))
    return [p.name for p in arpabet(initials_and_finals(timed))]


@pytest.mark.parametrize(
    ("text", "symbols"),
    [
        ("你好。", "ni↗xau↓."),  # sandhi is told
        ("我不去，因为下雨。", "wo↓ pu↗ ʨʰy↘, i→nwei↘ ɕja↘y↓."),
        ("玩儿吗？", "wa↗nɚ ma?"),
        ("档案！", "ta↘ŋa↘n!"),
        ("方法。", "fa→ŋfa↓."),
        ("可爱的女儿", "kʰɤ↓ai↘ tɤ ny↓ɚ↗"),
        ("e-mail给你", ""),
    ],
)
def test_the_teacher_is_told_what_the_front_end_reads(text: str, symbols: str) -> None:
    assert phonemes(text) == symbols
    wanted = [name for part in read(text) if isinstance(part, Syllable) for name in part.phones]
    if symbols:
        assert [name for name in _ids(symbols) if name.startswith("zh_")] == wanted


def test_every_phone_of_the_inventory_comes_back_and_has_a_token() -> None:
    initials = {name[3:] for name in MANDARIN_PHONES if name[-1].isalpha() and name != "zh_rr"} | {""}
    finals = {name[3:-1] for name in MANDARIN_PHONES if name[-1].isdigit()}
    tokens = set(json.loads((files("voicelab.onnx") / "kokoro_voices" / "symbols.json").read_text(encoding="utf-8")))
    for initial, final, tone, erhua in product(initials, finals, range(1, 6), (False, True)):
        alike = final in ("ng", "o", "uo", "ir", "iz") or (final == "er" and initial)
        if alike:
            continue
        syllable = Syllable("", initial, final, tone, erhua)
        said = written(syllable)
        assert [names for names, _ in syllables(said)] == [syllable.phones]
        assert set(said) <= tokens


@pytest.mark.parametrize(
    ("initial", "final"), [("b", "o"), ("d", "uo"), ("zh", "ir"), ("s", "iz"), ("", "uo"), ("", "ng")]
)
def test_finals_that_are_written_alike_are_told_apart_by_the_initial(initial: str, final: str) -> None:
    syllable = Syllable("", initial, final, 4)
    assert [names for names, _ in syllables(written(syllable))] == [syllable.phones]


def test_syllables_that_would_run_together_stand_apart() -> None:
    assert phonemes("方案。").count(" ") == 0  # ŋ begins nothing
    said = phonemes("恩爱平安。")
    assert _ids(said)[1:-1] == "zh_en1 zh_ai4 zh_p zh_ing2 zh_an1".split()
    assert mandarin_ipa.phonemes("大年夜。") != mandarin_ipa.phonemes("单眼。")


def test_phones_keep_the_times_of_the_symbols_and_each_syllable_is_a_word() -> None:
    phones = [
        Phone("tʰ", 0.3, 0.35, True),
        Phone("j", 0.35, 0.375, False),
        Phone("ɛ→", 0.375, 0.45, False),
        Phone("n", 0.45, 0.5, False),
        Phone("ʨʰ", 0.5, 0.6, False),
        Phone("i↘", 0.6, 0.7, False),
        Phone(".", 0.7, 1.0, False),
    ]
    named = arpabet(initials_and_finals(phones))
    assert [(p.name, p.start, p.end, p.first) for p in named] == [
        ("^", 0.0, 0.3, True),
        ("zh_t", 0.3, 0.35, True),
        ("zh_ian1", 0.35, 0.5, False),
        ("zh_q", 0.5, 0.6, True),
        ("zh_i4", 0.6, 0.7, False),
        (".", 0.7, 1.0, True),
    ]
    assert all(p.name in ALL_PHONES for p in named)


def test_another_language_is_no_mandarin() -> None:
    with pytest.raises(KeyError):
        syllables("kwˈɪk")
