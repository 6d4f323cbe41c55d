"""Where a text is cut, and what never happens to it."""

from __future__ import annotations

import re
import time
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from voicelab.text.clean import HAN
from voicelab.text.segments import segment

STORY = (
    "Dr. Smith paid $3.50 for it. He left the U.S. in May. Yes. It was 3.5 miles, e.g. from St. Louis to Main St. "
    'and then some; "Really?" she asked. Wait... what?\n\nThe second paragraph is rather long and, although it has '
    "commas, it goes on and on without a period — until it ends."
)


def _texts(text: str, chunk_length: int = 300, min_chunk_length: int = 50) -> list[str]:
    return [s.text for s in segment(text, chunk_length, min_chunk_length)]


def test_sentences_are_not_merged_without_a_minimum() -> None:
    assert [(s.text, s.ends_with) for s in segment(STORY, 300, 0)] == [
        ("Dr. Smith paid $3.50 for it.", "sentence"),
        ("He left the U.S. in May.", "sentence"),
        ("Yes.", "sentence"),
        (
            'It was 3.5 miles, e.g. from St. Louis to Main St. and then some; "Really?" she asked.',
            "sentence",
        ),
        ("Wait... what?", "paragraph"),
        (
            STORY.partition("\n\n")[2],
            "paragraph",
        ),
    ]


def test_short_sentences_are_merged_up_to_the_minimum() -> None:
    assert _texts("One. Two. Three. " * 6, 300, 50) == ["One. Two. Three. One. Two. Three. One. Two. Three."] * 2
    assert _texts("One. Two. Three.", 300, 0) == ["One.", "Two.", "Three."]


def test_short_rest_is_merged_with_the_previous_segment() -> None:
    assert _texts("This sentence is certainly longer than fifty characters. Ok.") == [
        "This sentence is certainly longer than fifty characters. Ok."
    ]


def test_long_sentence_is_split_at_the_last_clause_in_range() -> None:
    text = "We walked along the river, past the old mill, and over the bridge until the rain began to fall on us"
    assert _texts(text, 60, 20) == [
        "We walked along the river, past the old mill,",
        "and over the bridge until the rain began to fall on us",
    ]
    assert segment(text, 60, 20)[0].ends_with == "clause"


def test_long_clause_is_split_between_words_outside_names_and_measures() -> None:
    text = "the committee asked Dr. Smith to walk 5 km on Jan. 5, 2024 with no. 7 of King Henry VIII and a flag"
    for chunk_length in range(12, 60):
        for piece in segment(text, chunk_length, 0)[:-1]:
            assert piece.ends_with == "word"
            assert not re.search(r"(?:Dr\.|\b5,?|Jan\.|no\.|Henry)\Z", piece.text), (chunk_length, piece.text)
            assert piece.end - piece.start <= chunk_length


def test_word_longer_than_the_limit_is_not_split() -> None:
    assert _texts("a " + "x" * 150 + " b", 100, 0) == ["a", "x" * 150, "b"]


@pytest.mark.parametrize(
    "text",
    [
        "Mr. Jones and Mrs. Lee met Prof. Kay at the station",
        "It rose by 3.5 to 1,000.75 at 10.30 in the U.K. market, i.e. abroad",
        "J. K. Rowling and J. R. R. Tolkien wrote it",
        "See fig. 3, vol. 2, no. 5 and pp. 10 of the book by Smith et al. for more",
        "At 5 p.m. on Jan. 5 they left",
        "“Are you sure?” asked the man",
        "Wait... what",
        "He works at example.com or www.example.org these days",
    ],
)
def test_no_split_inside_a_sentence(text: str) -> None:
    assert _texts(text, 300, 0) == [text]


@pytest.mark.parametrize(
    ("text", "first"),
    [
        ("He left the U.S. She stayed.", "He left the U.S."),
        ("They met at 5 p.m. Then it rained.", "They met at 5 p.m."),
        ("We had tea, cake, etc. It was fun.", "We had tea, cake, etc."),
        ("“Go!” He went.", "“Go!”"),
        ("No. Five of them came.", "No."),
        ("It was I. Then it ended.", "It was I."),
    ],
)
def test_an_abbreviation_may_end_a_sentence(text: str, first: str) -> None:
    assert _texts(text, 300, 0)[0] == first


def test_blank_line_ends_a_paragraph() -> None:
    found = segment("A title of the thing\n\nIts body.", 300, 0)
    assert [(s.text, s.ends_with) for s in found] == [
        ("A title of the thing", "paragraph"),
        ("Its body.", "paragraph"),
    ]


def test_blank_text_has_no_segments() -> None:
    assert segment("") == ()
    assert segment(" \n\n ") == ()


CHINESE = "今天天气很好，我们去公园吧！“真的吗？”她问。当然……走吧；2024年3月5日，气温3.5度、湿度1,000。没有标点"


def test_chinese_sentences_end_at_punctuation_without_spaces() -> None:
    assert _texts(CHINESE, 300, 0) == [
        "今天天气很好，我们去公园吧！",
        "“真的吗？”",
        "她问。",
        "当然……走吧；2024年3月5日，气温3.5度、湿度1,000。",
        "没有标点",
    ]
    assert _texts("好的!走吧?行", 300, 0) == ["好的!", "走吧?", "行"]


def test_long_chinese_sentence_is_split_at_the_last_clause_in_range() -> None:
    assert _texts("他说：我们先去学校，然后回家、吃饭；最后睡觉", 11, 4) == [
        "他说：我们先去学校，",
        "然后回家、吃饭；",
        "最后睡觉",
    ]


@pytest.mark.parametrize("number", ["3：05", "1，000", "12：30：15", "3.14", "10-20", "1/2", "２：３０"])
def test_no_split_inside_full_width_numbers(number: str) -> None:
    assert number in _texts(f"我们{number}的时候再说吧，好不好", 14, 2)[0]


def test_chinese_without_punctuation_is_split_outside_numbers() -> None:
    text = "我们大家一起去北京第三十五中学看第二百零一号展览馆里的一千二百三十四件展品"
    for chunk_length in range(10, 30):
        pieces = _texts(text, chunk_length, 0)
        assert "".join(pieces) == text
        assert all(len(piece) <= chunk_length for piece in pieces)
        for piece in pieces[:-1]:
            assert piece[-1] not in "第一二三五百零千十", (chunk_length, piece)


_SAMPLES = (
    'Dr. 3.5 U.S. e.g. word another, then; "Yes!" no? — - ... a.m. (so) x\n\ny \n 1. - , . 😀 你好。 好!你 '
    "3：05 他——说 It 5 km Henry VIII"
)
_TOKENS = st.lists(
    st.one_of(
        st.sampled_from(_SAMPLES.split(" ")),
        st.text(max_size=8),
        st.text(alphabet="ab ", min_size=1, max_size=40),
    ),
    max_size=60,
).map(" ".join)


@settings(max_examples=300, deadline=None)
@given(text=_TOKENS, chunk_length=st.integers(1, 120), min_chunk_length=st.integers(0, 100))
def test_segments_cover_the_text(text: str, chunk_length: int, min_chunk_length: int) -> None:
    found = segment(text, chunk_length, min_chunk_length)
    assert "".join("".join(s.text.split()) for s in found) == "".join(text.split())
    for before, after in pairwise(found):
        # Between words, or right after a mark that is written without a space.
        assert (
            after.start > before.end
            or re.search("[—…，、；：。！？｡,;:!?][\"')\\]}”’»」』）》】〉]*\\Z", before.text)
            or re.search(f"[{HAN}]\\Z", before.text)
        )
    position = 0
    for piece in found:
        assert piece.text == text[piece.start : piece.end]
        assert piece.text == piece.text.strip()
        assert piece.text
        assert piece.start >= position
        assert len(piece.text) <= chunk_length or not re.search(rf"\s|[{HAN}]{{2}}", piece.text)
        position = piece.end


@settings(max_examples=200, deadline=None)
@given(text=_TOKENS)
def test_minimum_length_of_segments(text: str) -> None:
    for piece in segment(text, 10_000, 50)[:-1]:
        assert piece.end - piece.start >= 50 or text[piece.end :].strip() == ""


@pytest.mark.parametrize(
    "unit", ["a", "a ", ". ", ".", " ", "\n", "\n ", "1 ", "Dr. ", ", ", "—", "(", "。", "你", "1你", "……", "一"]
)
def test_hostile_repetition_takes_linear_time(unit: str) -> None:
    started = time.process_time()
    segment(unit * (20_000 // len(unit)), 300, 50)
    assert time.process_time() - started < 2.0
