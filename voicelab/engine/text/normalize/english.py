"""English text in words: the rules in their order, and the text taken as written."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from voicelab.engine.text.normalize.capitals import EMPHASIS, LETTER_A, SHOUTED
from voicelab.engine.text.normalize.dates import PLAIN_YEARS
from voicelab.engine.text.normalize.dates import RULES as DATES
from voicelab.engine.text.normalize.labels import CODES, PLURALS
from voicelab.engine.text.normalize.numbers import digits
from voicelab.engine.text.normalize.quantities import EARLY, LATE, NUMBERS
from voicelab.engine.text.normalize.signs import PAUSES, RANGES, SIGNS
from voicelab.engine.text.normalize.symbols import SYMBOLS, tidy
from voicelab.engine.text.normalize.values import Rules, apply
from voicelab.engine.text.normalize.written import ABBREVIATED, ADDRESSES, NUMERALS

__all__ = ["LAYOUT", "english", "english_plain", "settle"]

LAYOUT: Final[Rules] = (
    (re.compile(r"</?[A-Za-z](?!\w* (?:and|or) )[^<>\n]{0,200}>"), " "),
    (re.compile(r"(?m)^[ \t]*(?:>[ \t]?){1,9}(?=[A-Za-z\"'(*])"), ""),
    # A blank line ends a sentence even where the author left the period out; so does a list item.
    (re.compile(r"(?<=[\w)\"'])[ \t]*\n\s*\n\s*"), ".\n"),
    (re.compile(r"(?<=[\w)\"'])[ \t]*\n(?=\s*(?:[-*]|\d+[.)]) )"), ".\n"),
    (re.compile(r"(?m)^\s*[-*] +"), ""),
    (re.compile(r"(?m)^\s*#{1,6} +"), ""),
    (re.compile(r"(?m)^(\s*\d{1,3})[.)] +(?=[^\W\d_])"), r"\1, "),
    (re.compile(r"\s+"), " "),
)
"""What is laid out rather than said: markup, paragraphs, lists."""

_SPLIT: Final[Rules] = (
    # "COVID-19", "MP3", "5G", "A4": letters and digits are separate words.
    (re.compile(r"(?<![A-Za-z'])A-?(?=\d)"), " ay "),
    (re.compile(r"(?<=[A-Za-z])-?(?=\d)|(?<=\d)(?=[A-Za-z])"), " "),
)
_RULES: Final[Rules] = (
    *LAYOUT,
    *ADDRESSES,
    *SHOUTED,
    *SIGNS,
    *CODES,
    *EARLY,
    *DATES,
    *PLURALS,
    *RANGES,
    *LATE,
    *PAUSES,
    *ABBREVIATED,
    *NUMERALS,
    *EMPHASIS,
    *LETTER_A,
    *PLAIN_YEARS,
    *_SPLIT,
    *NUMBERS[:-1],
    *SYMBOLS,
    *NUMBERS[-1:],
)
_OF_DIGITS: Final = frozenset((*CODES, *PLURALS, *RANGES, *LATE, *PAUSES, *PLAIN_YEARS, *_SPLIT))
_WITHOUT_DIGITS: Final[Rules] = tuple(rule for rule in _RULES if rule not in _OF_DIGITS)
"""The same for a text without a digit, such as what the rules have written: half of them would look in vain."""
_DIGITS = re.compile(r"\d+")
_POINT = re.compile(r"(?<=\d)\.(?=\d)")
_IN_NUMBER = re.compile(r"(?<=\d)[,:–-](?=\d)")
_MAX_PASSES: Final = 6


def settle(stage: Callable[[str], str], text: str) -> str:
    """`stage` applied until nothing changes: dropping a mark can leave behind what a rule would have read ("Dr#.")."""
    spoken = stage(text)
    for _ in range(_MAX_PASSES):
        again = stage(spoken)
        if again == spoken:
            break
        spoken = again
    return spoken


def english(text: str) -> str:
    """Clean `text` as it is said; what would leave nothing (markup, a bare address scheme) is taken as written."""
    return settle(_once, text) or english_plain(text)


def _once(text: str) -> str:
    return tidy(apply(_RULES if _DIGITS.search(text) else _WITHOUT_DIGITS, text))


def english_plain(text: str) -> str:
    """Clean `text` as it stands, digits one by one, for ``normalize=false``."""
    text = _IN_NUMBER.sub(" ", _POINT.sub(" point ", text))
    return settle(tidy, _DIGITS.sub(lambda m: f" {digits(m.group())} ", text))
