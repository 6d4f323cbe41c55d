"""Numbers as American English words: no "and" inside a number, hyphens in twenty-one; foreign figures, ranges and codes.

The package inflect is not used because its import takes 1.3 s, longer than the first audio; num2words is LGPL.
"""

from __future__ import annotations

import re
from typing import Final

from voicelab.text.clean import Match, Verbalizers, pairs

_UP_TO_NINETEEN = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen "
    "seventeen eighteen nineteen"
)
_ONES = tuple(_UP_TO_NINETEEN.split())
_TENS = ("zero", "ten", "twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")
_SCALES = ("", "thousand", "million", "billion", "trillion")
_IRREGULAR = dict(
    zip(
        "one two three five eight nine twelve".split(),
        "first second third fifth eighth ninth twelfth".split(),
        strict=True,
    )
)
_ROMAN = {
    hundreds + tens + ones: 100 * h + 10 * t + o
    for h, hundreds in enumerate(("", "C", "CC", "CCC"))
    for t, tens in enumerate(("", "X", "XX", "XXX", "XL", "L", "LX", "LXX", "LXXX", "XC"))
    for o, ones in enumerate(("", "I", "II", "III", "IV", "V", "VI", "VII", "VIII", "IX"))
    if h or t or o
}

MAX_CARDINAL = 10**15
"""Numbers from this one on (quadrillions) are read digit by digit."""


def digits(text: str) -> str:
    """Spell the decimal digits of `text`, without other characters: "40-7" is "four zero seven"."""
    return " ".join(_ONES[int(c)] for c in text if c.isdecimal())


def _below_thousand(n: int) -> list[str]:
    words = [_ONES[n // 100], "hundred"] if n >= 100 else []
    n %= 100
    if n >= 20:
        words.append(_TENS[n // 10] + (f"-{_ONES[n % 10]}" if n % 10 else ""))
    elif n:
        words.append(_ONES[n])
    return words


def cardinal(n: int) -> str:
    """Verbalize an integer; digit by digit from `MAX_CARDINAL` on."""
    if n < 0:
        return f"minus {cardinal(-n)}"
    if n == 0:
        return "zero"
    if n >= MAX_CARDINAL:
        return digits(str(n))
    words: list[str] = []
    for power in range(len(_SCALES) - 1, -1, -1):
        group = n // 1000**power % 1000
        if group:
            words += _below_thousand(group)
            if power:
                words.append(_SCALES[power])
    return " ".join(words)


def ordinal(n: int) -> str:
    """Verbalize an ordinal: 22 is "twenty-second"."""
    head, space, tail = cardinal(n).rpartition(" ")
    tens, hyphen, unit = tail.rpartition("-")
    unit = _IRREGULAR.get(unit) or (f"{unit[:-1]}ieth" if unit.endswith("y") else f"{unit}th")
    return f"{head}{space}{tens}{hyphen}{unit}"


def ordinal_plural(n: int) -> str:
    """Verbalize a plural denominator: 2 "halves", 4 "quarters", 8 "eighths"."""
    return {2: "halves", 4: "quarters"}.get(n) or f"{ordinal(n)}s"


def decimal(text: str) -> str:
    """Verbalize a number that matches ``[-+]?[0-9,]*(.[0-9]+)?``, with decimals digit by digit.

    Numbers with a leading zero are identifiers: "007" is read digit by digit.
    """
    sign = {"-": "minus ", "+": "plus "}.get(text[:1], "")
    integer, point, fraction = text.lstrip("+-").replace(",", "").partition(".")
    if not integer:
        words = ""
    elif (len(integer) > 1 and integer.startswith("0")) or len(integer) > 15:
        # int() rejects strings of thousands of digits.
        words = digits(integer)
    else:
        words = cardinal(int(integer))
    if point and fraction:
        words = f"{words} point {digits(fraction)}".strip()
    return sign + words


def year(n: int) -> str:
    """Verbalize a year: 1066 "ten sixty-six", 1905 "nineteen oh five", 2005 "two thousand five"."""
    if not 1010 <= n <= 2099 or 2000 <= n <= 2009:
        return cardinal(n)
    return f"{cardinal(n // 100)} {_last_two(n % 100)}"


def _last_two(n: int) -> str:
    return "hundred" if n == 0 else f"oh {cardinal(n)}" if n < 10 else cardinal(n)


def paired(number: str) -> str:
    """Verbalize a number in pairs of digits (rooms, roads, planes): 747 is seven forty-seven, 1204 twelve oh four."""
    head, tail = number[:-2], int(number[-2:])
    if head.startswith("0") or len(number) > 4 or (tail == 0 and head.endswith("0")):
        return digits(number) if number.startswith("0") else cardinal(int(number))
    return f"{cardinal(int(head))} {_last_two(tail)}"


def plural(words: str) -> str:
    """Form the plural of a number in words: "tens", "sixes", "seven forties"."""
    if words.endswith("y"):
        return f"{words[:-1]}ies"
    return f"{words}es" if words.endswith("x") else f"{words}s"


def roman(text: str) -> int | None:
    """Parse a well-formed Roman numeral below 400: "XIV" is 14, "IIX" is None."""
    return _ROMAN.get(text)


FIGURES: Final = Verbalizers()
"""Verbalizers of the first rules of ``tables/english/rules.tsv``: American grouping and decimals, ranges, spelled codes."""
BOOKS: Final = pairs("english/books")
"""Abbreviations and names of books with chapters and verses."""


def spelled(code: str) -> str:
    """Spell the letters and digits of `code`, "A" as "ay"."""
    return " ".join(digits(c) if c.isdigit() else "ay" if c in "Aa" else c.upper() for c in code if c.isalnum())


def grouped(figures: str) -> str:
    """Read groups of digits one by one, with a pause between them."""
    return ", ".join(digits(group) for group in re.findall(r"\d+", figures))


@FIGURES.register
def _grouping(m: Match) -> str:
    """Write the digits with American grouping, and a decimal comma as a point."""
    integer = int(re.sub(r"\D", "", m["integer"]))
    mark = m["fraction"]
    return f"{integer:,}" + (f".{mark[1:]}" if mark else "")


@FIGURES.register
def _decimal_comma(m: Match) -> str:
    return f"{m['sign'] or ''}{m['integer']}.{m['fraction']}"


@FIGURES.register
def _verse(m: Match) -> str:
    chapter, verse = int(m["chapter"]), int(m["verse"])
    number = {"1": "First ", "2": "Second ", "3": "Third ", None: ""}[m["number"]]
    between = " " if chapter < 100 and verse > 9 and not m["last"] else " verse "
    last = f" to {cardinal(int(m['last']))}" if m["last"] else ""
    return f"{number}{BOOKS.get(m['book'], m['book'])} {cardinal(chapter)}{between}{cardinal(verse)}{last}"


@FIGURES.register
def _fahrenheit(m: Match) -> str:
    scale = "Fahrenheit" if m["scale"] == "F" else "Celsius"
    start = f"{decimal(m['first'])} to " if m["first"] else ""
    return f"{'minus ' if m['minus'] else ''}{start}{decimal(m['num'])} degrees {scale}"


@FIGURES.register
def _identifier(m: Match) -> str:
    if m["ip"]:
        return " ".join(" colon " if group == ":" else spelled(group) for group in re.findall(r"\w+|:", m["ip"]))
    return ", ".join(spelled(group) for group in re.split(r"[-: ]", m.group()) if group)


FIGURES.update(
    {
        "scaled range": lambda m: f"{m['start']} to {m['sign'] if m['same'] is not None else ''}",
        "figure range": lambda m: f"'{m['short']}s to '" if m["short"] else f"{m['first'] or ''} to ",
        "standard": lambda m: f"{m['name'].replace('-', ' part ')}, {year(int(m['year']))}",
        "ratio": lambda m: f"{cardinal(int(m['one']))} to ",
        "port": lambda m: f"{m['address']} {'colon' if m['mark'] == ':' else 'slash'} ",
        "color": lambda m: f"hash {spelled(m['color'])}",
        "foreign telephone": lambda m: ("plus " if m.group().startswith("+") else "") + grouped(m.group()),
        "plain telephone": lambda m: grouped(f"{m.group()[:-7]} {m.group()[-7:-4]} {m.group()[-4:]}"),
    }
)
