"""English text normalization: what is written becomes what is said, in words.

``normalize`` reads numbers, dates, money and abbreviations as a person would; ``as_written`` is for requests
with ``normalize=false``: the text is taken as written, except that digits are still read one by one, since
leaving them out would pass silence off as speech. Both return ASCII letters, spaces and ``, . ? ! ; : — - '``
only, never raise, and give their own output back unchanged. ``speakable`` decides whether a text can be
spoken at all.

Conventions for the next stage: words in capitals (NASA, IBM) are left for the lexicon to say or spell, except plain
words capitalised for emphasis ("NOT", or a text that is shouted throughout), which become lower case; initialisms
written with periods come as single capitals ("U.S." is "U S"), with the letter A written "ay" so that it is not
taken for the article.
"""

from __future__ import annotations

import re
from typing import Final

from voicelab.engine.text.normalize.clean import clean
from voicelab.engine.text.normalize.dates import PLAIN_YEARS
from voicelab.engine.text.normalize.dates import RULES as DATES
from voicelab.engine.text.normalize.numbers import digits
from voicelab.engine.text.normalize.quantities import EARLY, LATE, NUMBERS
from voicelab.engine.text.normalize.speakable import speakable
from voicelab.engine.text.normalize.symbols import SYMBOLS, tidy
from voicelab.engine.text.normalize.values import Normalized, Rules, apply
from voicelab.engine.text.normalize.written import ABBREVIATED, ADDRESSES, CAPITALS, NUMERALS

__all__ = ["Normalized", "as_written", "clean", "normalize", "speakable"]

_LAYOUT: Final[Rules] = (
    (re.compile(r"</?[A-Za-z][^<>\n]{0,200}>"), " "),
    # A blank line ends a sentence even where the author left the period out; so does a list item.
    (re.compile(r"(?<=[\w)\"'])[ \t]*\n\s*\n\s*"), ". "),
    (re.compile(r"(?<=[\w)\"'])[ \t]*\n(?=\s*(?:[-*]|\d+[.)]) )"), ". "),
    (re.compile(r"(?m)^\s*[-*] +"), ""),
    (re.compile(r"(?m)^\s*#{1,6} +"), ""),
    (re.compile(r"(?m)^(\s*\d{1,3})[.)] +(?=[A-Za-z])"), r"\1, "),
    (re.compile(r"\s+"), " "),
)
_SPLIT: Final[Rules] = (
    # "COVID-19", "MP3", "5G", "A4": letters and digits are separate words.
    (re.compile(r"(?<![A-Za-z'])A-?(?=\d)"), " ay "),
    (re.compile(r"(?<=[A-Za-z])-?(?=\d)|(?<=\d)(?=[A-Za-z])"), " "),
)
_RULES: Final[Rules] = (
    *_LAYOUT,
    *ADDRESSES,
    *EARLY,
    *DATES,
    *LATE,
    *ABBREVIATED,
    *NUMERALS,
    *CAPITALS,
    *PLAIN_YEARS,
    *_SPLIT,
    *NUMBERS[:-1],
    *SYMBOLS,
    *NUMBERS[-1:],
)
_DIGITS = re.compile(r"\d+")
_POINT = re.compile(r"(?<=\d)\.(?=\d)")
_IN_NUMBER = re.compile(r"(?<=\d)[,:–-](?=\d)")
_UNREAD = re.compile(r"[^\w\s,.?!;:—'\"()\[\]-]|_")
_MAX_PASSES: Final = 6


def normalize(text: str) -> Normalized:
    """Return `text` in words, with notes on what was left out.

    The text is "" when nothing in it can be said; `speakable` tells beforehand, with the reason. One line of
    output: paragraphs end with a period.
    """
    cleaned = clean(text)
    spoken = tidy(apply(_RULES, cleaned.text))
    # Dropping a mark can leave behind what a rule would have read ("Dr#."), so the rules run until nothing changes.
    for _ in range(_MAX_PASSES):
        again = tidy(apply(_RULES, spoken))
        if again == spoken:
            break
        spoken = again
    # Markup and bare address schemes are dropped, but never so that nothing is left to say.
    return Normalized(spoken or _plain(cleaned.text), cleaned.notes)


def as_written(text: str) -> Normalized:
    """Return `text` as it stands, for ``normalize=false``: no expansion, digits one by one, symbols left out.

    "Dr. Lee paid $3.50" becomes "Dr. Lee paid three point five zero", and a note says that $ was left out.
    """
    cleaned = clean(text)
    body = cleaned.text
    unread = "".join(dict.fromkeys(_UNREAD.findall(body)))
    notes = cleaned.notes + ((f"symbols left out because normalize is off: {unread}",) if unread else ())
    return Normalized(_plain(body), notes)


def _plain(text: str) -> str:
    text = _IN_NUMBER.sub(" ", _POINT.sub(" point ", text))
    spoken = tidy(_DIGITS.sub(lambda m: f" {digits(m.group())} ", text))
    for _ in range(_MAX_PASSES):
        again = tidy(spoken)
        if again == spoken:
            break
        spoken = again
    return spoken
