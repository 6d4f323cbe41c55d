"""Numbers as Mandarin words, written in simplified characters."""

from __future__ import annotations

from typing import Final

__all__ = ["HAN", "cardinal", "decimal", "digits", "telephone"]

HAN: Final = "\u3005\u3007\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U000323af"
"""Chinese characters, as the inside of a character class."""

_DIGITS: Final = "零一二三四五六七八九"
_MAX_DIGITS: Final = 16
"""Longer numbers are read digit by digit: nobody follows them as words, and int() refuses thousands of digits."""


def digits(text: str) -> str:
    """Every decimal digit by its name, everything else dropped: "2024" is 二零二四."""
    return "".join(_DIGITS[int(c)] for c in text if c.isdecimal())


def telephone(*groups: str | None) -> str:
    """Digits in groups, a one as 幺: "138", "1234" is 幺三八, 幺二三四."""
    return ", ".join(digits(group).replace("一", "幺") for group in groups if group)


def _below_ten_thousand(n: int) -> str:
    out, gap = "", False
    for power, name in ((1000, "千"), (100, "百"), (10, "十"), (1, "")):
        digit = n // power % 10
        if digit:
            out += ("零" if gap and out else "") + _DIGITS[digit] + name
        gap = not digit
    return out


def _whole(n: int) -> str:
    for power, name in ((10**8, "亿"), (10**4, "万")):
        if n >= power:
            head, rest = divmod(n, power)
            gap = "零" if 0 < rest < power // 10 else ""
            return _whole(head) + name + gap + (_whole(rest) if rest else "")
    return _below_ten_thousand(n)


def cardinal(n: int, *, ordered: bool = False) -> str:
    """A number from 0 to below 10**16 in words, 两 at its head before 百, 千, 万 and 亿 unless it is `ordered` (第二百)."""
    if n == 0:
        return "零"
    words = _whole(n)
    if words.startswith("一十"):
        words = words[1:]
    return f"两{words[1:]}" if not ordered and words[0] == "二" and words[1:2] in tuple("百千万亿") else words


def decimal(text: str, *, ordered: bool = False) -> str:
    """A written number in words: commas are separators, what follows the point and what has a leading zero is digits."""
    whole, point, fraction = text.replace(",", "").partition(".")
    if (len(whole) > 1 and whole.startswith("0")) or len(whole) > _MAX_DIGITS:
        words = digits(whole)
    else:
        words = cardinal(int(whole or "0"), ordered=ordered)
    return f"{words}点{digits(fraction)}" if point and fraction else words
