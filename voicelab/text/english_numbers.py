"""Numbers as American English words: no "and" inside a number, hyphens in twenty-one.

Not inflect, whose import takes 1.3 s, longer than the first audio; not num2words, which is LGPL.
"""

from __future__ import annotations

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
"""Numbers from here on (quadrillions) are read digit by digit."""


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
    """Verbalize a number in pairs, as of rooms, roads and planes: 747 is seven forty-seven, 1204 twelve oh four."""
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
