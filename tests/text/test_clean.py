"""Which texts are refused, why, and what the notes say of the others."""

from __future__ import annotations

import pytest

from voicelab.errors import RequestInvalid
from voicelab.text.clean import speakable


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "blank"),
        (" \n\t", "blank"),
        ("\u200b\u200d", "invisible"),
        ("!!! … ???", "only symbols"),
        ("$%&", "only symbols"),
        ("😀🎉", "only emoji"),
        ("👩‍👩‍👧", "only emoji"),
        ("Привет, мир", "Cyrillic"),
        ("你好世界", "Chinese"),
        ("こんにちは", "Japanese"),
        ("مرحبا بالعالم", "Arabic"),
        ("नमस्ते दुनिया", "Devanagari"),
        ("안녕하세요", "Korean"),
        ("Γειά σου Κόσμε", "Greek"),
        ("OK Привет всем", "Cyrillic"),
        ("第3章 第4章", "Chinese"),
    ],
)
def test_unspeakable_text_is_rejected_with_a_reason(text: str, reason: str) -> None:
    with pytest.raises(RequestInvalid, match=reason) as caught:
        speakable(text)
    (error,) = caught.value.errors
    assert error.loc == ("body", "text")


@pytest.mark.parametrize("text", ["Hello.", "42", "a", "x²", "Ｆｕｌｌ ｗｉｄｔｈ", "naïve café", "٣", "①", "don’t"])
def test_accepted_without_notes(text: str) -> None:
    assert speakable(text) == ()


def test_foreign_words_are_noted() -> None:
    (note,) = speakable("The Russian word for hello is привет.")
    assert "Cyrillic" in note
    assert "привет" in note


def test_emoji_in_a_sentence_are_noted() -> None:
    assert speakable("Great 👍") == ("emoji left out: 👍",)


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("Le chat est dans la maison avec les enfants.", "French"),
        ("Der Hund ist nicht in dem Haus und die Katze auch nicht.", "German"),
        ("El perro está en la casa con los niños.", "Spanish"),
        ("Sehr geehrte Damen und Herren, anbei finden Sie unsere Preisliste.", "German"),
        ("Ich habe heute keine Zeit.", "German"),
        ("Madame, Monsieur, veuillez trouver notre facture.", "French"),
    ],
)
def test_other_languages_in_latin_letters_are_noted(text: str, language: str) -> None:
    assert any(language in note for note in speakable(text))


@pytest.mark.parametrize(
    "text",
    [
        "The birch canoe slid on the smooth planks.",
        "We met in Las Vegas, in de la Cruz, and on El Camino Real.",
        "I was on a bus to die for, so come on, son.",
        "1. e4 e5 2. Nf3 Nc6 3. Bb5 a6 4. O-O",
    ],
)
def test_english_is_not_mistaken_for_another_language(text: str) -> None:
    assert speakable(text) == ()


def test_text_with_half_foreign_letters_is_accepted() -> None:
    assert speakable("abcd абвг")
