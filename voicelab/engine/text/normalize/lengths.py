"""Feet and inches by their marks, told from quotation marks: 6'2", a 27" monitor, a 10' x 12' room."""

from __future__ import annotations

import re
from typing import Final

from voicelab.engine.text.normalize.nouns import before_noun
from voicelab.engine.text.normalize.numbers import cardinal
from voicelab.engine.text.normalize.values import Rules

__all__ = ["LENGTHS"]

_FEET = re.compile(r"""(?<![\w.,])(?P<feet>\d{1,2})' ?(?P<inches>\d{1,2})(?:"|''|(?![\w']))""")
_FEET_INCHES = re.compile(r"(?<![\w.,])(?P<feet>\d{1,2}) ?ft\.? ?(?P<inches>\d{1,2}) ?in\b\.?")
_BY = re.compile(r"""(?<=\d)(?P<mark>["']) ?[x×] ?(?=[\d./ ]{1,8}(?P=mark))""")
_TWO_PRIMES = re.compile(r"(?<=\d)''(?![\w'])")
_INCHED = re.compile(r'\A[^"]*".*\Z', re.DOTALL)
_FOOTED = re.compile(r"\A[^']*'.*\Z", re.DOTALL)
_INCH_MARK = re.compile(r'(?P<num>(?<![\w.,])(?:\d{1,4}[ -])?\d{1,4}(?:\.\d{1,3}|/\d{1,2})?)?"(?P<after>\w)?')
_FOOT_MARK = re.compile(
    r"(?<![\w.,'])(?P<num>\d{1,4}(?:\.\d{1,3})?)'(?![\w'])|(?<!\w)(?P<open>')(?=[A-Za-z(-])|(?<=\S)'(?!\w)"
)


def _feet(match: re.Match[str]) -> str:
    feet, inches = int(match["feet"]), int(match["inches"])
    return f"{cardinal(feet)} {'foot' if feet == 1 else 'feet'} {cardinal(inches)} inch{'' if inches == 1 else 'es'}"


def _measured(match: re.Match[str], one: str, many: str) -> str:
    """The number with its unit, in the singular before a noun and for one or less."""
    number = match["num"]
    single = number == "1" or ("/" in number and not re.search("[ -]", number))
    return f"{number} {one if single or before_noun(match.string, match.end()) else many}"


def _inches(match: re.Match[str]) -> str:
    """A mark after a number is inches while no quotation is open."""
    is_open = False

    def mark(found: re.Match[str]) -> str:
        nonlocal is_open
        if found["num"] and not is_open and not found["after"]:
            return _measured(found, "inch", "inches")
        is_open = not is_open
        return found.group()

    return _INCH_MARK.sub(mark, match.group())


def _foot(match: re.Match[str]) -> str:
    is_open = False

    def mark(found: re.Match[str]) -> str:
        nonlocal is_open
        if found["num"] and not is_open:
            return _measured(found, "foot", "feet")
        is_open = found["open"] is not None
        return found.group()

    return _FOOT_MARK.sub(mark, match.group())


LENGTHS: Final[Rules] = (
    (_FEET_INCHES, _feet),
    (_FEET, _feet),
    (_TWO_PRIMES, '"'),
    (_BY, " by "),
    (_INCHED, _inches),
    (_FOOTED, _foot),
)
"""What a mark says depends on the quotations before it, so these two look at a text as a whole, once."""
