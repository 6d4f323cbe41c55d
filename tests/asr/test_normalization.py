"""Text normalization for word error rates."""

from __future__ import annotations

import pytest

from voicelab.asr.normalization import has_digits, normalized_words, split_words


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("The birch canoe, slid!", "the birch canoe slid"),
        ("Don't — it\u2019s well-made", "dont its well made"),
        ("STRASSE straße", "strasse strasse"),
        ("caf\u00e9 cafe\u0301 na\u00efve \u00c5", "cafe cafe naive a"),
        ("\u0439 \u0915\u093f \ud55c", "\u0439 \u0915\u093f \ud55c"),
        ("'quoted' words'", "quoted words"),
        ("Voice 今天 天气, very好。", "voice 今 天 天 气 very 好"),
        ("", ""),
    ],
)
def test_normalization_removes_punctuation_case_and_diacritics(text: str, words: str) -> None:
    assert split_words(text) == words.split()


@pytest.mark.parametrize(
    ("text", "expected"), [("in 1984", True), ("H\u2082O", True), ("a \u0663", True), ("nine", False)]
)
def test_digits_of_every_script_are_detected(text: str, expected: bool) -> None:
    assert has_digits(split_words(text)) is expected


@pytest.mark.parametrize(
    ("text", "language", "words"),
    [
        (
            "Don't (\u201cstop\u201d) — it\u2019s 5\u20ac, \u00abwell-made\u00bb.",
            "en",
            "don't stop its 5\u20ac \u00abwellmade\u00bb",
        ),
        ("Caf\u00e9\u2026  No. 1", "", "caf\u00e9 no 1"),
        ("\u4f60\u597d，A B\u3002\u2460", "zh", "\u4f60 \u597d A B \u2460"),
        ("\u862d\u83cd", "zh", "\u862d \u83cd"),  # traditional: only the transcript is converted
    ],
)
def test_rules_of_seed_tts_eval(text: str, language: str, words: str) -> None:
    assert normalized_words(text, "seed-tts-eval", language) == words.split()


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("A 50-50 chance.", "A fifty-fifty chance."),
        ("50\u201350", "fifty fifty"),
        ("E-mail me.", "email me"),
        ("two e-mails, an e-book", "2 emails an ebook"),
        ("Wi-Fi", "wifi"),
        ("OK, then.", "Okay then"),
        ("He is O.K.", "he is okay"),
        ("in E-flat", "in E flat"),
    ],
)
def test_spelling_variants_are_equal(one: str, other: str) -> None:
    assert normalized_words(one) == normalized_words(other)
    assert normalized_words("from 10-15", "voicelab") == normalized_words("from ten to fifteen")
