"""The rules by their examples, and what holds for every text."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from voicelab import text
from voicelab.errors import RequestInvalid
from voicelab.text import as_written, left_out, normalize
from voicelab.text.clean import HAN, Rule, Rules, fold, speakable
from voicelab.text.english import LAYOUT
from voicelab.text.english import RULES as ENGLISH
from voicelab.text.mandarin import LINES
from voicelab.text.mandarin import RULES as MANDARIN

BOTH = ("en", "zh")
_MARKS = " ,.?!;:—'-"
ALPHABET: dict[tuple[str, ...], re.Pattern[str]] = {
    languages: re.compile(rf"[A-Za-z{HAN if 'zh' in languages else ''}{_MARKS}]*\Z")
    for languages in (("en",), ("zh",), BOTH)
}
LETTER = re.compile(f"[A-Za-z{HAN}]")
EXAMPLES = [
    pytest.param(rules, languages, rule, id=f"{name}-{rule.name}")
    for name, rules, languages in (
        ("layout", LAYOUT, ("en",)),
        ("english", ENGLISH, ("en",)),
        ("mandarin layout", LINES, ("zh",)),
        ("mandarin", MANDARIN, ("zh",)),
    )
    for rule in rules
]


@pytest.mark.parametrize(("rules", "languages", "rule"), EXAMPLES)
def test_each_rule_is_needed_for_its_example(
    rules: Rules, languages: tuple[str, ...], rule: Rule, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert normalize(rule.example, languages).text == rule.normalized
    if languages == ("en",) or re.search(f"[{HAN}]", rule.example):  # figures alone are English to a voice of both
        assert normalize(rule.example, BOTH).text == rule.normalized
    assert languages == ("zh",) or normalize(rule.normalized).text == rule.normalized, (
        "what is said is its own normal form"
    )
    apply = Rules.apply
    monkeypatch.setattr(Rules, "apply", lambda self, text: apply(self, text, rule.name if self is rules else ""))
    assert normalize(rule.example, languages).text != rule.normalized


@pytest.mark.parametrize("path", sorted(Path(text.__file__).parent.rglob("*.tsv")), ids=lambda path: path.stem)
def test_each_table_has_source_and_license(path: Path) -> None:
    lines = path.read_text("utf-8").splitlines()
    comment = [line for line in lines if line.startswith("# ")]
    assert comment == lines[: len(comment)]
    assert "voicelab, Apache-2.0" in " ".join(comment)
    assert len({len(line.split("\t")) for line in lines[len(comment) :]} - {2}) <= 1


def test_omissions_are_noted() -> None:
    result = normalize("Hi 😀🎉 Привет мир there ¶ 你好")
    assert result.text == "Hi there"
    assert result.notes == (
        "emoji left out: 😀🎉",
        "Cyrillic characters cannot be spoken and were left out: Привет мир",
        "symbols left out: ¶",
        "Chinese characters cannot be spoken and were left out: 你好",
    )
    assert normalize("← back | next →").notes == ("symbols left out: ← →",)
    assert normalize("|").notes == ("symbols left out: |",)
    assert normalize("नमस्ते दुनिया Ωμέγα a").notes == (
        "Devanagari characters cannot be spoken and were left out: नमस्ते दुनिया",
        "Greek characters cannot be spoken and were left out: Ωμέγα",
    )


@pytest.mark.parametrize(
    ("text", "notes"),
    [
        ("Write to Ann <ann@example.org>, press <Enter>; a List<String> holds; if a <b then c> d.", ()),
        ("See [this](https://a.org/b).", ("addresses of links left out: https://a.org/b",)),
        (
            "<speak>Hi <say-as>you</say-as></speak>",
            ("text in angle brackets left out: <speak>, <say-as>, </say-as>, </speak>",),
        ),
        ("See ＜Enter＞.", ()),
        ("你好<b>世界</b>", ("text in angle brackets left out: <b>, </b>",)),
        ("a <3 you :)", ("emoticons left out: <3, :)",)),
        ("A ~ B ^ C and *D*", ("Markdown marks left out: *", "symbols left out: ~^")),
        ("<!-- a --> 5 > 3", ("text in angle brackets left out: <!-- a -->",)),
        ("x < y and y > z, ~5 km, 2*3, x^2, C#, #1, b <c and d> e", ()),
        ("x < y and y > z, ~5 km, 2*3, x^2, C#, #1", ()),
        ("# A title\n\n* an item\n> a quotation", ()),
        ("你好~我有#和*", ("symbols left out: ~#*",)),
        ("1 + 1，R&D，5€ 和 §", ()),
        ("`a`\\\n1", ("Markdown marks left out: `, \\",)),
        ("Fill in ____ but snake_case", ("symbols left out: _",)),
        (
            r"Not \*bold\*, $x^2$",
            (r"LaTeX read in words: $x^2$", r"Markdown marks left out: \*", "symbols left out: *"),
        ),
    ],
)
def test_dropped_markup_and_symbols_are_noted(text: str, notes: tuple[str, ...]) -> None:
    assert normalize(text, ("en", "zh")).notes == notes
    assert left_out(text, ("en", "zh")) == notes


def test_symbols_far_into_a_text_are_noted() -> None:
    assert left_out("x < y. " * 400 + "Then a ~ b ^ c.") == ("symbols left out: ~^",)


def test_long_notes_are_abbreviated() -> None:
    (note,) = normalize("Go " + " ".join(f"<tag{number} x='{'x' * 150}'>" for number in range(40))).notes
    assert note.endswith(", and 32 more")
    assert len(note) < 600


def test_plain_english_has_no_notes() -> None:
    assert normalize("The birch canoe, naïve as it was, slid on.").notes == ()


def test_as_written_reads_digits_and_expands_nothing() -> None:
    result = as_written("Dr. Lee paid $3.50 on 2024-03-05, not 1,000.")
    assert result.text == (
        "Dr. Lee paid three point five zero on two zero two four zero three zero five, not one zero zero zero."
    )
    assert result.notes == ("symbols left out because normalize is off: $",)


def test_as_written_does_not_change_words() -> None:
    assert as_written("Well-known, isn't it?").text == "Well-known, isn't it?"


_ENGLISH = (
    "Dr. St. Mr U.S. a.m. p.m. $ £ € % & + = @ # / - -- — ... ' \" ( ) 1 22 3.5 1,000 1/2 10-20 2024 3:45 th km °C x "
    "^ ~ < > <b> * _ II XIV Henry Chapter No. http:// www. a@b.c é 😀 Ж \n , ; : ? ! A I the word Then etc e.g n' 'n "
    "'em .com 0 007 I. Σ ² ½ \ud800"
)
_CHINESE = (
    "第 2 个 年 月 日 点 元 块 ¥ $ % ℃ 度 3.5 1,000 2024 3:05 10-20 "
    "1/2 138 1234 5678 + - × = > ^ ~ ～ — …… 。 ， 、 ； ： ？ ！ （ "
    "） 《 》 · 〇 Ⅲ ① km /h iPhone 15 A B2B the I have Dr. www. "
    "a@b.c 你好 我们 萬 兩 號 Q1 次 室 电话 比分 𠮷 ぁ 한 😀 é Ж \n \ud800 〜 ㎡ No. "
    "# / . , :"
)


def _texts(fragments: str, letters: str) -> st.SearchStrategy[str]:
    pieces = st.one_of(st.sampled_from((*fragments.split(" "), " ")), st.text(letters, max_size=4))
    return st.one_of(st.text(max_size=60), st.lists(pieces, max_size=20).map("".join))


_CHINESE_TEXTS = _texts(_CHINESE, "的2a1 .年-点")
_READ = st.one_of(
    st.tuples(_texts(_ENGLISH, "abAB1 .'-"), st.just(("en",))),
    st.tuples(_CHINESE_TEXTS, st.sampled_from((BOTH, ("zh",)))),
)
"""A text, and the languages of the voice that reads it."""


@settings(max_examples=300, deadline=None)
@example((":O", ("zh",)))
@given(_READ)
def test_output_alphabet_and_speakable_text_is_never_silent(read: tuple[str, tuple[str, ...]]) -> None:
    text, languages = read
    try:
        speakable(text, languages)
        letters = 1
    except RequestInvalid:
        letters = 0
    for stage in (normalize, as_written):
        said = stage(text, languages).text
        assert ALPHABET[languages].match(said), said
        assert len(LETTER.findall(said)) >= letters


_STRUCTURE = re.compile(r"^[ \t]*[#+*-][#+*\s-]*", re.MULTILINE)
"""Marks of headings and items: not symbols. Underscores and angle brackets have tests of their own."""
_SYMBOLS = "*~^`|[]{}#=+&%$@\\/°−×±≤√µ§∞¶†★☺♭∈∂₩⁻₄"


def _is_pause_or_invisible(char: str) -> bool:
    plain = fold(char)
    return plain is not None and re.fullmatch(r"[\s,.?!;:—–'\"()\[\]{}|−-]*", plain) is not None


@settings(max_examples=250, deadline=None, derandomize=True)
@given(
    st.one_of(st.text(f"ab12 .,\n-é你个{_SYMBOLS}", max_size=8), st.text(max_size=8)),
    st.sampled_from((("en",), BOTH, ("zh",))),
)
def test_no_visible_character_vanishes_without_a_note(text: str, languages: tuple[str, ...]) -> None:
    text = _STRUCTURE.sub(" ", re.sub("[<>_]", " ", text))
    result = normalize(text, languages)
    for char in dict.fromkeys(text):
        noted = any(form in "".join(result.notes) for form in (char, fold(char) or char))
        if not char.isalnum() and not _is_pause_or_invisible(char) and not noted:
            assert all(normalize(text.replace(char, other), languages).text != result.text for other in ("", " ")), char


@pytest.mark.parametrize("operator", "−/·×÷+=")
@settings(max_examples=40, deadline=None, derandomize=True)
@given(*[st.sampled_from("bcdfhjknpqstuvwxzσθ1290")] * 2)
def test_operator_between_operands_is_read(operator: str, left: str, right: str) -> None:
    formula = normalize(f"{left}{operator}{right}").text
    assert formula not in {normalize(f"{left}{between}{right}").text for between in ("", " ", ", ", "; ")}


@settings(max_examples=80, deadline=None)
@given(_CHINESE_TEXTS)
def test_bilingual_voice_reads_other_text_as_english(text: str) -> None:
    latin = re.sub(f"[{HAN}]", "", text)
    if not re.search(f"[{HAN}]", normalize(latin, BOTH).text):
        assert normalize(latin, BOTH) == normalize(latin)
        assert as_written(latin, BOTH) == as_written(latin)


_HOSTILE = (
    *"a|1|1,|1-|1.|1/|$|a.b-|a@|http://| |\n|<a|é|I, |1 000 |f(|/a".split("|"),
    *"$x|\\(|\\[a|$a_{|\\frac{|1:|::|US |IT |WHO a |~ ".split("|"),
    *")|x - |Jan 5 - |<1|\n> |a A |020 |code |F-1s|1\" |1' |1 m/m/|sq. |the $5 |1 A St. |5 p.m. A".split("|"),
    *"IV-|00 1 |567 |9/11–|€1,|R$1.|→ |x_{".split("|"),
)
_HOSTILE_BEFORE_CHINESE = (
    "你|你1|1你|第1-|你a |1:|2年|1-你|¥1|你。|。|1/你|a.b你-|1|111,|1,"
    "|1.|10|1>|<1|你=|the a 1,|the you 1-|你\n|1.你\n|一, \n"
)


@pytest.mark.parametrize(
    ("unit", "end"),
    [*((unit, "") for unit in _HOSTILE), *((unit, "你") for unit in _HOSTILE_BEFORE_CHINESE.split("|"))],
)
def test_hostile_repetition_takes_linear_time(unit: str, end: str) -> None:
    text = unit * (20_000 // len(unit)) + end
    started = time.process_time()
    normalize(text, BOTH if end else ("en",))
    # Quadratic patterns took 2 to 5 s here on two shared cores; linear ones stay under 1 s.
    assert time.process_time() - started < (4.0 if end else 3.0)
