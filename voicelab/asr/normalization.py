"""Text normalization for word and character error rates, and the percentage of correct words in transcriptions."""

from __future__ import annotations

import re
import string
import unicodedata
import warnings
from collections.abc import Callable
from functools import cache, lru_cache
from typing import Any, Final

from voicelab.errors import ArgumentError, MissingExtra
from voicelab.text import normalize

Normalizer = str | Callable[[str], str] | None

NORMALIZERS: Final = ("voicelab", "whisper", "seed-tts-eval")
"""Named normalizers of WER and CER."""

HAN = re.compile("[\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]")
# string.punctuation and zhon.hanzi.punctuation (zhon 2.1.1), which run_wer.py of Seed-TTS-eval removes.
_SEED_TTS_PUNCTUATION = re.compile(
    "["
    + re.escape(string.punctuation.replace("'", ""))
    + "\u00b7\u2013\u2014\u2018\u2019\u201b-\u201f\u2026\u2027\u3000-\u3003"
    "\u3008-\u3011\u3014-\u301f\u3030\u303e\u303f\ufe4f\ufe51\ufe54\uff01-\uff0f\uff1a-\uff20\uff3b-\uff40\uff5b-\uff64]"
)
_APOSTROPHES = re.compile(r"(?<=\w)['\u2019\u02bc](?=\w)")
# Only combining marks of Latin and Greek letters: in other scripts, marks make different letters.
_DIACRITICS = re.compile(r"(?<=[^\W\u0400-\u04ff])[\u0300-\u036f]+")
# The front end makes "U.S." into "U S" and keeps "US"; single "a" and "I" are words.
_INITIALS = re.compile(r"(?<![\w'])(?:[a-z] )+[a-z](?![\w'])", re.IGNORECASE)
_LETTER_A = re.compile(r"\bay\b")
# Spellings of the same spoken words, which neither the front end nor Whisper's rules unify.
_VARIANTS: Final = (
    (re.compile(r"\b(e(?=-(?:mail|book|commerce))|wi(?=-fi\b))-", re.IGNORECASE), r"\1"),
    (re.compile(r"\b50[-\u2010\u2011\u2013]50\b"), "fifty fifty"),
    (re.compile(r"\bO\.\s?K\b\.?|\bOK\b", re.IGNORECASE), "okay"),
)
_WORDS_OF_ONE_LETTER = re.compile(r"[ai](?: [ai])*", re.IGNORECASE)


def split_words(text: str) -> list[str]:
    """Split a text into lowercase words without punctuation; numbers and abbreviations are not spelled out.

    Applies Unicode NFKC and case folding, and removes diacritics ("café" becomes "cafe", since recognizers write either; tone
    errors in Vietnamese are therefore not counted) and apostrophes inside words ("don't" becomes "dont"). All characters
    except letters, marks and digits separate words, including hyphens. A Chinese character is a word, as in the mixed error
    rate of Mandarin-English texts.
    """
    plain = unicodedata.normalize("NFKC", text).casefold()
    plain = unicodedata.normalize("NFC", _DIACRITICS.sub("", unicodedata.normalize("NFD", plain)))
    plain = _APOSTROPHES.sub("", plain)
    plain = "".join(char if unicodedata.category(char)[0] in "LMN" else " " for char in plain)
    return HAN.sub(r" \g<0> ", plain).split()


def has_digits(words: list[str]) -> bool:
    """Return whether any of the words contains a digit, of any script."""
    return any(unicodedata.category(char)[0] == "N" for word in words for char in word)


def language_of(text: str) -> str:
    """Return the language whose rules apply: "zh" if there is a Chinese character, "en" if all letters are ASCII, else ""."""
    text = unicodedata.normalize("NFKC", text)
    if HAN.search(text):
        return "zh"
    return "en" if all(char.isascii() for char in text if char.isalpha()) else ""


def spelled(text: str, language: str) -> str:
    """Spell out numbers, currency, times and abbreviations; texts in languages without rules are returned unchanged."""
    if language == "zh":
        return normalize(simplified(unicodedata.normalize("NFKC", text)), ("zh",)).text
    # The front end spells the letter A as "ay".
    return _LETTER_A.sub("a", normalize(text).text) if language == "en" else text


def normalized_words(text: str, normalizer: Normalizer = "voicelab", language: str = "en") -> list[str]:
    """Normalize a text for WER and split it into words.

    Args:
        text: reference text or transcript.
        normalizer: "voicelab": the front end of the embedded voice spells out numbers, currency, times and
            abbreviations; in Chinese, it also converts full-width forms, and traditional characters to simplified ones.
            English is then normalized by the rules of "whisper", which write a number as one word; "OK" becomes "okay",
            and "e-mail" "email". "whisper": the published rules of A. Radford et al., "Robust speech recognition via
            large-scale weak supervision" (2023), appendix C, by the package whisper-normalizer: contractions, number words,
            spelling variants; in languages other than English, only case and punctuation. "seed-tts-eval": the rules of
            that benchmark's ``run_wer.py``. They remove a list of punctuation, which does not include the apostrophe ',
            convert English to lower case, and split Chinese into characters; ``wer`` also converts the transcript, but
            not the text, to simplified characters. None: ``split_words``. A function from text to text: ``split_words``
            is applied to its result.
        language: language of the reference text, see ``language_of``.

    Raises ArgumentError for an unknown name, MissingExtra if the extra ``metrics`` is not installed.
    """
    if callable(normalizer):
        return split_words(normalizer(text))
    if normalizer is None:
        return split_words(text)
    if normalizer == "whisper":
        return HAN.sub(r" \g<0> ", _whisper_rules(language == "en")(text)).split()
    if normalizer == "seed-tts-eval":
        plain = _SEED_TTS_PUNCTUATION.sub("", text)
        return list("".join(plain.split())) if language == "zh" else plain.lower().split()
    if normalizer != "voicelab":
        allowed = f"must be {', '.join(NORMALIZERS)}, None or a function"
        raise ArgumentError.of("normalizer", f"{allowed}, got {normalizer!r}")
    for pattern, spelling in _VARIANTS if language == "en" else ():
        text = pattern.sub(spelling, text)
    plain = spelled(text, language)
    if language != "en":
        return split_words(plain)
    joined = _INITIALS.sub(
        lambda match: match[0] if _WORDS_OF_ONE_LETTER.fullmatch(match[0]) else match[0].replace(" ", ""), plain
    )
    words: list[str] = _whisper_rules(english=True)(joined).split()
    return words


def simplified(text: str) -> str:
    """Convert traditional Chinese characters to simplified ones."""
    return str(_traditional_to_simplified().convert(text))


@cache
def _traditional_to_simplified() -> Any:
    with MissingExtra.where("metrics", "WER and CER of Chinese texts"):
        from opencc import OpenCC
    return OpenCC("t2s")


@cache
def _whisper_rules(english: bool) -> Any:
    with MissingExtra.where("metrics", "WER and CER"), warnings.catch_warnings():
        # Compiling the package's docstrings emits a DeprecationWarning, since Python 3.12 a SyntaxWarning.
        warnings.filterwarnings("ignore", "invalid escape sequence")
        from whisper_normalizer.basic import BasicTextNormalizer
        from whisper_normalizer.english import EnglishTextNormalizer
    return EnglishTextNormalizer() if english else BasicTextNormalizer()


@lru_cache(maxsize=4096)
def words_correct(text: str, answer: str) -> float:
    """Return the percentage of a text's words that are correct in a transcription; NaN for a text without words.

    The text and the transcription are normalized as for WER (``voicelab.asr.normalization.normalized_words``) and
    aligned by jiwer. Inserted words are ignored. Raises MissingExtra if the extra ``metrics`` is not installed.
    """
    reference, transcript = (
        " ".join(normalized_words(string, language=language_of(text))) for string in (text, answer)
    )
    with MissingExtra.where("metrics", "counting words"):
        import jiwer
    if not reference:
        return float("nan")
    return 100.0 * float(jiwer.process_words(reference, transcript).hits) / len(reference.split())
