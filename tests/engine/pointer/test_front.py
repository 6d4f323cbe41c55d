"""Normalized text to phones, flags and words."""

from __future__ import annotations

import sys
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from voicelab.engine.pointer.config import ALL_PHONES, PAUSES, Phonemes
from voicelab.engine.pointer.english import Lexicon
from voicelab.engine.pointer.front import FrontEnd, flags_of
from voicelab.errors import MissingExtra
from voicelab.text import as_written, normalize


def _stub(word: str) -> tuple[str, ...]:
    return ("z", "oy1", "b") if word != "nothing'" else ()


FRONT = FrontEnd(Lexicon(_stub))


def _names(read: Phonemes) -> list[str]:
    return [ALL_PHONES[i] for i in read.phones]


def _said(text: str) -> str:
    return " ".join(_names(FRONT.read(text)))


def _whole(read: Phonemes) -> None:
    """Check the invariants of any output."""
    names = _names(read)
    assert len(read.flags) == len(names)
    assert all(0 < i < len(ALL_PHONES) for i in read.phones)
    assert set(read.flags) <= {0, 1, 2, 3}
    covered: set[int] = set()
    end = 0
    for word, first, after in read.words:
        assert word
        assert end <= first < after <= len(names)
        assert not set(names[first:after]) & set(PAUSES)
        inside = read.flags[first:after]
        assert inside == ((3,) if after - first == 1 else (1, *[0] * (after - first - 2), 2))
        covered |= set(range(first, after))
        end = after
    for i, name in enumerate(names):
        assert (name in PAUSES) != (i in covered)
    if names:
        assert names[0] == "^"
        assert names[-1] in ",.?!"
        assert read.words
        for before, here in pairwise(names):
            assert (here == "^") == (before in ".?!")
            assert not (before in PAUSES and here in ",.?!")
    else:
        assert read == Phonemes((), (), ())


def test_a_sentence_begins_with_silence_and_ends_with_a_pause() -> None:
    assert _said("Dogs bark") == "^ d ao1 g z b aa1 r k ."
    assert _said("Dogs bark?") == "^ d ao1 g z b aa1 r k ?"


def test_inner_sentence_begins_with_silence() -> None:
    assert _said("Dogs! Cats, dogs.") == "^ d ao1 g z ! ^ k ae1 t s , d ao1 g z ."


@pytest.mark.parametrize(
    ("marks", "pause"),
    [
        *((mark, ",") for mark in (",", ";", ":", " —", " -", " --", ", —")),
        *((mark, ".") for mark in (".", "...", ",.", ".,")),
        *((mark, "?") for mark in ("?", "?!", ",?")),
        *((mark, "!") for mark in ("!!", "; !")),
    ],
)
def test_strongest_punctuation_sets_the_pause(marks: str, pause: str) -> None:
    begin = "^ " if pause != "," else ""
    assert _said(f"dogs{marks} cats") == f"^ d ao1 g z {pause} {begin}k ae1 t s ."


@pytest.mark.parametrize("text", [", dogs", "... dogs", "— ?! dogs", "' dogs", "'dogs'"])
def test_no_pause_comes_before_the_first_word(text: str) -> None:
    assert _said(text) == "^ d ao1 g z ."


@pytest.mark.parametrize("text", ["", " ", "...", "?!", "— ,", "'", "123", "é"])
def test_text_without_words_is_empty(text: str) -> None:
    assert FRONT.read(text) == Phonemes((), (), ())


def test_a_hyphen_inside_a_word_is_no_pause() -> None:
    assert _said("dog-cats") == _said("dog cats")


def test_words_have_their_phone_ranges() -> None:
    read = FRONT.read("The UK's dogs, zorbing.")
    assert [word for word, _, _ in read.words] == ["The", "UK's", "dogs", "zorbing"]
    _, first, after = read.words[3]
    assert _names(read)[first:after] == ["z", "oy1", "b"]
    _whole(read)


def test_the_depends_on_the_next_word_within_a_clause() -> None:
    assert _said("the apple").startswith("^ dh iy0 ae1")
    assert _said("the dog").startswith("^ dh ax0 d")
    assert _said("the, apple").startswith("^ dh ax0 ,")
    assert _said("vitamin A.").endswith("ey1 .")
    assert _said("A dog").startswith("^ ax0 d")


@pytest.mark.parametrize(
    ("names", "first", "flags"),
    [
        (["^", "d", "aa1", "g", "."], [True, True, False, False, True], [3, 1, 0, 2, 3]),
        (["^", "ax0", "d", "aa1", "."], [True, True, True, False, True], [3, 3, 1, 2, 3]),
        (["ax0"], [True], [3]),
        (["d", "aa1"], [True, False], [1, 2]),
        (["d", ",", "b"], [True, False, True], [3, 3, 3]),
        ([], [], []),
    ],
)
def test_flags(names: list[str], first: list[bool], flags: list[int]) -> None:
    assert flags_of(names, first) == flags


def test_word_without_phones_is_omitted() -> None:
    silent = FrontEnd(Lexicon(lambda _: ()))
    assert silent.read("zorbing") == Phonemes((), (), ())
    read = silent.read("Dogs zorbing. Cats")
    assert [word for word, _, _ in read.words] == ["Dogs", "Cats"]
    _whole(read)


@settings(max_examples=150, deadline=None)
@given(
    st.lists(
        st.sampled_from(
            "the a A dogs I'm UK's NASA x zorbing boys' , . ? ! ; : — - ' -- ... ?! 'tis O'Brien rock'n'roll".split()
        ),
        max_size=14,
    )
)
def test_output_is_well_formed(tokens: list[str]) -> None:
    _whole(FRONT.read(" ".join(tokens)))


@settings(max_examples=60, deadline=None)
@given(st.text(max_size=60))
def test_normalized_text_can_be_read(text: str) -> None:
    for written in (normalize(text), as_written(text)):
        _whole(FRONT.read(written.text))


BOTH = FrontEnd(Lexicon(_stub), ("en", "zh"))


def _both(text: str) -> Phonemes:
    read = BOTH.read(normalize(text, BOTH.languages).text)
    _whole(read)
    return read


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("你好。", "^ zh_n zh_i2 zh_h zh_ao3 ."),
        ("妈妈？", "^ zh_m zh_a1 zh_m zh_a5 ?"),
        ("花儿！", "^ zh_h zh_ua1 zh_rr !"),
        ("鱼、肉，饭", "^ zh_v2 , zh_r zh_ou4 , zh_f zh_an4 ."),
        ("去。来：好；", "^ zh_q zh_v4 . ^ zh_l zh_ai2 , zh_h zh_ao3 ,"),
        ("我dog了", "^ zh_uo3 d ao1 g zh_l zh_e5 ."),
        ("The 饭, dog", "^ dh ax0 zh_f zh_an4 , d ao1 g ."),
        ("5", "^ f ay1 v ."),
        ("5个", "^ zh_u3 zh_g zh_e4 ."),
    ],
)
def test_chinese_phones(text: str, said: str) -> None:
    assert " ".join(_names(_both(text))) == said


def test_a_chinese_character_is_a_word_and_carries_its_erhua() -> None:
    words = _both("这儿有dogs。").words
    assert [word for word, _, _ in words] == ["这儿", "有", "dogs"]
    assert words[0][1:] == (1, 4)


@given(st.text("好不一儿得你 ab,，。？!'-1", max_size=30))
@settings(max_examples=150, deadline=None)
def test_mixed_text_is_read_completely(text: str) -> None:
    _both(text)


def test_english_voice_skips_chinese() -> None:
    assert FRONT.read("dogs 你好") == FRONT.read("dogs")
    FRONT.check("你好")


def test_missing_pypinyin_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pypinyin", None)
    BOTH.check("hello")
    for read in (BOTH.check, BOTH.read):
        with pytest.raises(MissingExtra, match=r"pip install .*\[mandarin\]") as error:
            read("hello 你好")
        assert error.value.extra == "mandarin"
