"""Text normalization for word and character error rates."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable

HAN = re.compile("[\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]")
_APOSTROPHES = re.compile(r"(?<=\w)['\u2019\u02bc](?=\w)")
# Combining marks of Latin and Greek letters only: in other scripts they make other letters.
_DIACRITICS = re.compile(r"(?<=[^\W\u0400-\u04ff])[\u0300-\u036f]+")


def split_words(text: str, spoken: Callable[[str], str] | None = None) -> list[str]:
    """Normalize a text and split it into words.

    Normalization applies ``spoken``, which spells out digits, if any; Unicode NFKC; case folding; and removes diacritics
    ("café" becomes "cafe", since recognizers write either; tone errors in Vietnamese are therefore not counted) and
    apostrophes inside words ("don't" becomes "dont"). All characters but letters, marks and digits separate words,
    hyphens too. A Chinese character is a word, as in the mixed error rate of Mandarin-English texts.
    """
    plain = unicodedata.normalize("NFKC", spoken(text) if spoken is not None else text).casefold()
    plain = unicodedata.normalize("NFC", _DIACRITICS.sub("", unicodedata.normalize("NFD", plain)))
    plain = _APOSTROPHES.sub("", plain)
    plain = "".join(char if unicodedata.category(char)[0] in "LMN" else " " for char in plain)
    return HAN.sub(r" \g<0> ", plain).split()


def has_digits(words: list[str]) -> bool:
    """Test for numerals of any script."""
    return any(unicodedata.category(char)[0] == "N" for word in words for char in word)
