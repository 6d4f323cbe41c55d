"""Dashes and signs of comparison: what they say depends on what stands on both sides of them."""

from __future__ import annotations

import re
from typing import Final

from voicelab.engine.text.abbreviations import MONTHS
from voicelab.engine.text.normalize.dates import WEEKDAYS
from voicelab.engine.text.normalize.values import Rules

__all__ = ["PAUSES", "RANGES", "SIGNS"]

_COMPARED: Final = {
    "<": "less than",
    ">": "greater than",
    "<=": "less than or equal to",
    ">=": "greater than or equal to",
}
# Not an arrow, nor a heart ("I <3 you").
_COMPARISON = re.compile(
    r"(?<![<>=-])(?!(?<!\S)<3[.!?]?(?:\s|\Z))(?P<sign>[<>]=?) ?(?=-?[$£€]?\.?\d)|"
    r"(?<![\w<>=-])(?P<left>[A-Za-z])(?P<between>[<>]=?)(?=[A-Za-z](?!\w))"
)
_TERM: Final = r"\({0,2}(?:[$£€]?\d[\d,.]*|[A-Za-z](?![\w']))\){0,2}"
_SUM = re.compile(
    rf"(?<![\w.,])(?P<asked>(?:[Ww]hat(?:'s| is)|[Cc]alculate|[Cc]ompute) )?{_TERM}"
    rf"(?: ?[-–+*/×÷=^] ?-?{_TERM})+"
)
_OPERATOR = re.compile(r"[+*×÷=^]|(?<![A-Za-z])[b-hj-z](?![A-Za-z])")
_MINUS = re.compile(r" [-–] ")

_DAY: Final = "|".join(dict.fromkeys((*WEEKDAYS, *WEEKDAYS.values())))
_MONTH: Final = "|".join(dict.fromkeys((*MONTHS, *MONTHS.values())))
_DAYS = re.compile(rf"(?<![\w-])(?P<first>{_DAY})\.?\s?[-–]\s?(?P<last>{_DAY})\b(?!-)")
_MONTHS = re.compile(rf"(?<![\w-])(?P<first>{_MONTH})\.?\s?[-–]\s?(?P<last>{_MONTH})\b(?!-)")
_DATES = re.compile(
    rf"(?P<first>\b(?:{_MONTH})\.? \d{{1,2}}(?:st|nd|rd|th)?(?:,? \d{{4}})?|"
    rf"(?<![\w.,])\d{{1,2}} (?:{_MONTH})(?: \d{{4}})?|\b(?:{_MONTH})\.? \d{{4}})"
    rf"\s?[-–]\s?(?=(?:{_MONTH})\b\.? \d|\d{{1,2}} (?:{_MONTH})\b)"
)
_LOWER = re.compile(" [a-z]")
_TO = re.compile(
    r"(?<![\w.,])(?P<first>(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?) [-–] "
    r"(?=(?P<last>[1-9][\d,]*(?:\.\d+)?|0(?:\.\d+)?)(?![\d/:]))"
)


def _sum(match: re.Match[str]) -> str:
    """Only in a sum is a spaced dash a minus: it has another sign, a variable, or was asked for."""
    found = match.group()
    return _MINUS.sub(" minus ", found) if match["asked"] or _OPERATOR.search(found) else found


def _compared(match: re.Match[str]) -> str:
    return f"{match['left'] or ''} {_COMPARED[match['sign'] or match['between']]} "


def _full(name: str) -> str:
    return WEEKDAYS.get(name) or MONTHS.get(name, name)


def _to(match: re.Match[str]) -> str:
    """A year and then a number that is none is no range: "In 2024 - 5 years later"."""
    first, last = match["first"], match["last"]
    year = re.fullmatch(r"1[5-9]\d\d|20\d\d", first) is not None
    # "iPhone 15 - 3 colors" is no range either: a name with its number, then fewer of something.
    named = not match.string[max(0, match.start() - 20) : match.start()].rpartition(" ")[0].rpartition(" ")[2].islower()
    fewer = float(last.replace(",", "")) < float(first.replace(",", "")) and _LOWER.match(
        match.string, match.end("last")
    )
    return match.group() if (year and len(last) < 3) or (named and fewer) else f"{first} to "


SIGNS: Final[Rules] = (
    (re.compile(r"(?<=\d)\*\*(?=\d)"), "^"),
    (_COMPARISON, _compared),
    (_SUM, _sum),
    (_DAYS, lambda m: f"{_full(m['first'])} to {_full(m['last'])}"),
    (_MONTHS, lambda m: f"{_full(m['first'])} to {_full(m['last'])}"),
    (_DATES, r"\g<first> to "),
)
"""Before amounts and dates, which would take the numbers on either side away."""

RANGES: Final[Rules] = ((_TO, _to),)
"""After the dates, which read their own ranges."""

PAUSES: Final[Rules] = ((re.compile(r" [-–] (?=[$£€]?\.?\d)"), " — "),)
"""After the measures, which read theirs: what is left is no range."""
