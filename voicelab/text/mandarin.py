"""What is written in Chinese to what is said in Mandarin: one table of rules, in the order in which they apply.

Symbols are written out first with their digits still in place ("3:05" is 3点05分, "30%" is 百分之30), then the last rule
reads every number that is left, with 两 before what is counted and 二 in ordinals. English sentences inside the text,
numbers and all, are read by the English rules, and so is an English text with a few Chinese words in it, but for the
numbers that touch these (第3章). A name with a number (iPhone 15) keeps its letters and gets a Chinese number. Lines are
kept apart.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from voicelab.text.clean import FREQUENT, HAN, Functions, Match, Rules, any_of, rows, tidy
from voicelab.text.english import ADDRESS, LAYOUT, address, english, english_plain

_SAYS: Final = Functions()
_NAMES: Final = {
    kind: {symbol: name for symbol, name, of in rows("mandarin/units") if of == kind}
    for kind in ("unit", "sign", "code")
}
_UNITS, _MONEY, _CODES = _NAMES["unit"], _NAMES["sign"], _NAMES["code"]
_IN_ADDRESS: Final = {sign: name for sign, _, _, name in rows("english/symbols") if name != "-"}
_MEASURES: Final = f"(?:{any_of(word for (word,) in rows('mandarin/measures'))})|次(?![方元函])|代(?=人)"
"""What makes a 2 before it 两; 月, 日, 号, 楼, 级 and their like are counted with 二."""

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


@_SAYS.says
def _telephone(m: Match) -> str:
    if m["abroad"]:
        return "加" + telephone(*re.findall(r"\d+", m["abroad"]))
    groups = telephone(*(m[i] for i in (2, 3, 4, 5, 6, 7, 8, 10, 11, 12)))
    extension = f"转{telephone(m['extension'])}" if m["extension"] else ""
    return (f"加{telephone(m['land'])}, " if m["land"] else "") + groups + extension


@_SAYS.says
def _date(m: Match) -> str:
    month, day = int(m["m"]), int(m["d"])
    if not (1 <= month <= 12 and 1 <= day <= 31):
        return m.group()
    return f"{digits(m['y'])}年{month}月{day}日 "


@_SAYS.says
def _year(m: Match) -> str:
    if m["y"] == "1000" or (m["ago"] is not None and m["y"].endswith("00")):
        return m["y"]
    return digits(m["y"] or m["short"] or m["of"] or m["born"]) + (f"到{digits(m['next'])}" if m["next"] else "")


@_SAYS.says
def _time(m: Match) -> str:
    half = m["half"] or m["half_day"]
    part_of_day = re.search(r"[早上下午晚凌晨中]\s?\Z", m.string[max(0, m.start() - 2) : m.start()])
    spoken = "" if part_of_day or not half else "上午" if half in "aA" else "下午"
    if m["hour"]:
        return f"{spoken}{int(m['hour'])}点"
    minutes = f"{m['m']}分" if m["m"] != "00" or m["s"] else ""
    return f"{spoken}{int(m['h'])}点{minutes}" + (f"{m['s']}秒" if m["s"] else "")


_COMPARED: Final = {sign: said for sign, _, said in rows("comparisons") if said != "-"}
_SCALES: Final = {"k": 10**3, "m": 10**6, "mn": 10**6, "b": 10**9, "bn": 10**9}


def _trimmed(number: str) -> str:
    return number.rstrip("0").rstrip(".") if "." in number else number


def _amount(m: Match) -> str:
    """The number of an amount, with its scale: 3.5M is 3500000, 3.5亿 stays."""
    factor = _SCALES.get((m["scale"] or "").lower())
    number = _trimmed(m["num"])
    if factor is None:
        return number + (m["scale"] or "")
    whole, _, part = number.replace(",", "").partition(".")
    if len(whole) > 6 or len(part) > 6:
        return f"{number} {m['scale']}"
    scaled = int(whole + part) * factor
    return str(scaled // 10 ** len(part)) if scaled % 10 ** len(part) == 0 else f"{number} {m['scale']}"


@_SAYS.says
def _money(m: Match) -> str:
    name = m["unit"] or _CODES.get(m["sign"]) or _MONEY[m["sign"]]
    if not m["last"]:
        return _amount(m) + name
    return f"{_trimmed(m['num'])}到{_trimmed(m['last'])}{m['scale'] or ''}{name}"


@_SAYS.says
def _temperature(m: Match) -> str:
    scale = {"C": "摄氏度", "F": "华氏度", None: "度"}[m["scale"]]
    first = f"{'零下' if m['minus'] else ''}{m['first']}到" if m["first"] else ""
    return f"{first}{'零下' if m['minus2'] else ''}{m['num']}{scale}"


@_SAYS.says
def _percent(m: Match) -> str:
    first = f"百分之{'负' if m['minus'] else ''}{m['first']}到" if m["first"] else ""
    return f"{first}百分之{'负' if m['minus2'] else ''}{m['num']}"


_RAISED: Final = {"2": "平方", "3": "立方", None: ""}


@_SAYS.says
def _measure(m: Match) -> str:
    per = f"每{_RAISED[m['power2']]}{_UNITS[m['per']]}" if m["per"] else ""
    return f"{m['num']}{_RAISED[m['power']]}{_UNITS[m['unit']]}{per}"


@_SAYS.says
def _dotted(m: Match) -> str:
    return "点".join(digits(part) if len(part) > 2 else decimal(part) for part in m.group().split("."))


@_SAYS.says
def _fraction(m: Match) -> str:
    named = {("9", "11"): "九幺幺", ("24", "7"): "七乘二十四"}.get((m["top"], m["bottom"]))
    if m["whole"] is None and named:
        return named
    parts = (decimal(m[part], ordered=True) for part in ("bottom", "top"))
    return (f"{m['whole']}又" if m["whole"] else "") + "分之".join(parts)


@_SAYS.says
def _power(m: Match) -> str:
    return f"的{_RAISED.get(m['power']) or m['power'].replace('-', '负') + '次方'}"


_OPERAND: Final = r"[\dA-Za-z)百千万亿零一二三四五六七八九十方]"
_OPERATORS: Final = tuple(
    (pattern.replace("{operand}", _OPERAND).replace("{han}", HAN), said) for said, pattern in rows("mandarin/operators")
)


@_SAYS.says
def _number(m: Match) -> str:
    before = m.string[max(0, m.start() - 1) : m.start()]
    nth = "第" if m["nth"] else ""
    if before.isascii() and before.isalpha():
        return f" {nth}{decimal(m['num'], ordered=True)}"
    if m["counted"] is not None and m["num"] == "2" and not nth:
        return "两"
    return nth + decimal(m["num"], ordered=bool(nth))


# English inside Chinese, and the other way round.
_ASCII = re.compile(r"[!-~]+")
_FOREIGN = re.compile(rf"[^{HAN}]+")
_PHRASE = re.compile(
    r"(?:(?:\A|(?<=[.!?,;:] ))[\d.,]*\d%?\s)?[A-Za-z].*[A-Za-z]['.!?+#)]*"
    r"(?:[\s-]?[$£€]?\d[\d.,:/-]*%?(?=\s*(?:[.!?,;:](?!\d)|\Z)))?",
    re.DOTALL,
)
_LETTERS = re.compile(r"[A-Za-z](?:.*[A-Za-z])?['.!?+#]*", re.DOTALL)
_LATIN_WORD = re.compile(r"(?<![A-Za-z])(?:I|[A-Za-z][a-z']+|a)(?![A-Za-z])")
_HAN = re.compile(f"[{HAN}]")
_COUNTS = re.compile(rf"{_MEASURES}|[年月日号號]")
_FIGURES: Final = "0123456789.,:%-¥$€£"
_OPENING: Final = ' ,.?!;:—()[]"'
_SAYS.update(
    {
        "from year to year": lambda m: f"{digits(m['a'])}到{digits(m['b'])}",
        "era": lambda m: m["era"] + digits(m["y"]),
        "train": lambda m: f"{m['kind']} {telephone(m['num'])}",
        "number by its name": lambda m: f"{m['cue']}{m['gap']}{telephone(m['num'])}",
        "name of digits": lambda m: telephone(*m.group().split(" ")),
        "part number": lambda m: f"{m['a']} {telephone(m['b'])}",
        "comparison": lambda m: _COMPARED[m["sign"] or m["equals"]],
        "money after": lambda m: _amount(m) + (_CODES.get(m["sign"]) or _MONEY[m["sign"]]),
        "scale": _amount,
        "cents": lambda m: m["whole"] + (f".{m['part']}" if m["part"] else ""),
        "per": lambda m: "每秒" if m["second"] else "每",
        "model": lambda m: f" {telephone(m['num'])}",
        "operator": lambda m: _OPERATORS[(m.lastindex or 1) - 1][1],
        "chain": lambda m: ", ".join(digits(part) for part in m.group().split("-")),
        "slash": lambda m: ", " if m["or"] is None else "",
    }
)
LINES: Final = Rules("mandarin/layout", {}, {"han": HAN})
"""Lines of a list are sentences, others clauses unless they were wrapped; before the layout of both languages."""
RULES: Final = Rules(
    "mandarin/rules",
    _SAYS,
    {
        "code": any_of(_CODES),
        "han": HAN,
        "measures": _MEASURES,
        "operators": "|".join(f"({pattern})" for pattern, _ in _OPERATORS),
        "unit": any_of(_UNITS),
    },
)


def mandarin(text: str) -> str:
    """Clean `text` with Chinese in it as it is said: Chinese characters, Latin letters and marks, no digit."""
    text = LAYOUT.apply(LINES.apply(text))
    if not _is_english(text):
        text = _ASCII.sub(lambda m: ADDRESS.sub(lambda a: address(a.group(), _IN_ADDRESS, digits), m.group()), text)
    return _tidy(_FOREIGN.sub(_latin, RULES.apply(_foreign(text, english))))


def mandarin_plain(text: str) -> str:
    """Clean `text` as it stands, digits one by one, for ``normalize=false``."""
    text = _foreign(LINES["line"].pattern.sub(",\n", text), english_plain)
    text = re.sub(r"\d+", lambda m: digits(m.group()), re.sub(r"(?<=\d)\.(?=\d)", "点", text))
    return _tidy(text)


def _is_english(text: str) -> bool:
    """Whether `text` is an English one with Chinese words in it."""
    return _is_phrase(text) and len(_LATIN_WORD.findall(text)) > len(_HAN.findall(text))


def _foreign(text: str, read: Callable[[str], str]) -> str:
    """`text` with what is English in it read by `read`."""
    if _is_english(text):
        return _FOREIGN.sub(lambda m: _part(m, read), text)
    return _FOREIGN.sub(lambda m: _phrases(m.group(), read), text)


def _part(match: Match, read: Callable[[str], str]) -> str:
    """What lies between the Chinese words of an English text; a number that touches them, or counts one, is Chinese."""
    stretch = match.group()
    if not _LETTERS.search(stretch):
        return stretch
    said = stretch.lstrip(_FIGURES) if match.start() else stretch
    head, tail = stretch[: len(stretch) - len(said)], ""
    if stretch[-1].isdigit() or _COUNTS.match(match.string, match.end()):
        figures = said.rstrip()
        said = figures.rstrip(_FIGURES) if figures[-1:].isdigit() else figures
        tail = figures[len(said) :].lstrip("-")
    begin = said.lstrip(_OPENING)
    return f"{head}{said[: len(said) - len(begin)]} {read(begin)} {tail}"


def _phrases(stretch: str, read: Callable[[str], str]) -> str:
    """`stretch`, text between Chinese characters, with its numbers read if it is an English sentence."""
    phrase = _PHRASE.search(stretch)
    if phrase is None or not _is_phrase(phrase.group()):
        return stretch
    return f"{stretch[: phrase.start()]} {read(phrase.group())} {stretch[phrase.end() :]}"


def _is_phrase(text: str) -> bool:
    words = _LATIN_WORD.findall(text)
    return len(words) > 2 and any(word.lower() in FREQUENT["English"] for word in words)


def _latin(match: Match) -> str:
    """Abbreviations and capitals of a name, once its numbers are read; a letter alone is no article."""
    letters_match = _LETTERS.search(match.group())
    if letters_match is None:
        return match.group()
    letters = letters_match.group()
    plain = letters.isalpha() and letters.islower() and len(letters) > 1
    said = letters if plain else "ay" if letters in ("A", "a") else english(letters)
    return f"{match.group()[: letters_match.start()]} {said} {match.group()[letters_match.end() :]}"


def _tidy(text: str) -> str:
    """Tidied, without spaces between Chinese characters and with one between these and letters."""
    text = re.sub(rf"(?<=[{HAN}])\s+(?=[{HAN}])", "", tidy(text))
    return re.sub(rf"(?<=[{HAN}])(?=[A-Za-z'])|(?<=[A-Za-z'])(?=[{HAN}])", " ", text)
