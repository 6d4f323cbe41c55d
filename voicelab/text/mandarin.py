"""Verbalization of written Chinese in Mandarin: functions for the rules of ``tables/mandarin/rules.tsv``.

Symbols are verbalized first, leaving digits unchanged ("3:05" is 3点05分, "30%" is 百分之30); the last rule verbalizes all
remaining numbers, with 两 before counted nouns and 二 in ordinals. English sentences with their numbers follow the English
rules, as does an English text with a few Chinese words, except for numbers next to these (第3章). A name with a number
(iPhone 15) is read with its letters in English and its number in Mandarin. Line breaks are kept.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import Final

from voicelab.text.clean import FREQUENT, HAN, UNREAD, Match, Rules, Verbalizer, alternation, named, rows, tidy
from voicelab.text.english import ADDRESS, LAYOUT, address, english, english_plain

_NAMES: Final = {
    kind: {symbol: name for symbol, name, of in rows("mandarin/units") if of == kind}
    for kind in ("unit", "sign", "code")
}
_UNITS, _MONEY, _CODES = _NAMES["unit"], _NAMES["sign"], _NAMES["code"]
_ADDRESS_SYMBOLS: Final = {sign: name for sign, _, _, name, _ in rows("english/symbols") if name != "-"}
_SIGNS: Final = {sign: word for sign, *_, word in rows("english/symbols") if word != "-"}
_MEASURES: Final = f"(?:{alternation(word for (word,) in rows('mandarin/measures'))})|次(?![方元函])|代(?=人)"
"""Measure words before which 2 is read 两. Before others, for example 月, 日, 号, 楼 and 级, it is read 二."""

_DIGITS: Final = "零一二三四五六七八九"
_MAX_DIGITS: Final = 16
"""Maximum digits of a cardinal; longer numbers are read digit by digit. int() rejects strings of thousands of digits."""


def digits(text: str) -> str:
    """Spell the decimal digits of `text`, without other characters: "2024" is 二零二四."""
    return "".join(_DIGITS[int(c)] for c in text if c.isdecimal())


def telephone(*groups: str | None) -> str:
    """Spell groups of digits with 幺 for 1: "138", "1234" is 幺三八, 幺二三四."""
    return ", ".join(digits(group).replace("一", "幺") for group in groups if group)


def _below_ten_thousand(n: int) -> str:
    out, gap = "", False
    for power, name in ((1000, "千"), (100, "百"), (10, "十"), (1, "")):
        digit = n // power % 10
        if digit:
            out += ("零" if gap and out else "") + _DIGITS[digit] + name
        gap = not digit
    return out


def _integer(n: int) -> str:
    for power, name in ((10**8, "亿"), (10**4, "万")):
        if n >= power:
            head, rest = divmod(n, power)
            gap = "零" if 0 < rest < power // 10 else ""
            return _integer(head) + name + gap + (_integer(rest) if rest else "")
    return _below_ten_thousand(n)


def cardinal(n: int, *, ordinal: bool = False) -> str:
    """Verbalize an integer from 0 to below 10**16, with initial 两 before 百, 千, 万 and 亿 unless `ordinal` (第二百)."""
    if n == 0:
        return "零"
    words = _integer(n)
    if words.startswith("一十"):
        words = words[1:]
    return f"两{words[1:]}" if not ordinal and words[0] == "二" and words[1:2] in tuple("百千万亿") else words


def decimal(text: str, *, ordinal: bool = False) -> str:
    """Verbalize a number; its decimals, or an integer with a leading zero, are read digit by digit."""
    integer, point, fraction = text.replace(",", "").partition(".")
    if (len(integer) > 1 and integer.startswith("0")) or len(integer) > _MAX_DIGITS:
        words = digits(integer)
    else:
        words = cardinal(int(integer or "0"), ordinal=ordinal)
    return f"{words}点{digits(fraction)}" if point and fraction else words


def _telephone(m: Match) -> str:
    if m["abroad"]:
        return ("加" if m["prefix"] == "+" else "零零, ") + telephone(*re.findall(r"\d+", m["abroad"]))
    groups = telephone(*(m[i] for i in (2, 3, 4, 5, 6, 7, 8, 10, 11, 12)))
    extension = f"转{telephone(m['extension'])}" if m["extension"] else ""
    return (f"加{telephone(m['land'])}, " if m["land"] else "") + groups + extension


def _date(m: Match) -> str:
    month, day = int(m["m"]), int(m["d"])
    if not (1 <= month <= 12 and 1 <= day <= 31):
        return m.group()
    return f"{digits(m['y'])}年{month}月{day}日 "


def _year(m: Match) -> str:
    if m["y"] == "1000" or (m["ago"] is not None and m["y"].endswith("00")):
        return m["y"]
    return digits(m["y"] or m["short"] or m["of"] or m["born"]) + (f"到{digits(m['next'])}" if m["next"] else "")


def _time(m: Match) -> str:
    half = m["half"] or m["half_day"]
    has_day_part = re.search(r"[早上下午晚凌晨中]\s?\Z", m.string[max(0, m.start() - 2) : m.start()])
    day_part = "" if has_day_part or not half else "上午" if half in "aA" else "下午"
    if m["hour"]:
        return f"{day_part}{int(m['hour'])}点"
    minutes = f"{m['m']}分" if m["m"] != "00" or m["s"] else ""
    return f"{day_part}{int(m['h'])}点{minutes}" + (f"{m['s']}秒" if m["s"] else "")


_COMPARISONS: Final = {sign: words for sign, _, words in rows("comparisons") if words != "-"}
_SCALES: Final = {"w": 10**4, "k": 10**3, "m": 10**6, "mn": 10**6, "b": 10**9, "bn": 10**9}


def _angle(m: Match) -> str:
    """Verbalize an angle (39°54'26"), a height (5'10"), a duration (1'30"), or 27" or 90' if no quotation ends there."""
    if m["only"]:
        before = re.findall(rf"(?<!\d){m['mark']}", m.string[max(0, m.start() - 200) : m.start()])
        return m.group() if len(before) % 2 else m["only"] + ("英寸" if m["mark"] == '"' else "分")
    if m["degrees"]:
        return f"{m['degrees']}度{m['minutes']}分" + (f"{m['seconds']}秒" if m["seconds"] else "")
    is_pace = re.search(r"[速时時绩]\W?\Z", m.string[max(0, m.start() - 2) : m.start()])
    is_height = 4 <= int(m["a"]) <= 7 and float(m["b"]) < 12 and not is_pace
    return f"{m['a']}英尺{m['b']}英寸" if is_height else f"{m['a']}分{m['b']}秒"


def _trimmed(number: str) -> str:
    return number.rstrip("0").rstrip(".") if "." in number else number


def _amount(m: Match) -> str:
    """Return the number of an amount, scaled: 3.5M is 3500000; 3.5亿 is unchanged."""
    factor = _SCALES.get((m["scale"] or "").lower())
    number = _trimmed(m["num"])
    if factor is None:
        return number + (m["scale"] or "")
    integer, _, fraction = number.replace(",", "").partition(".")
    if len(integer) > 6 or len(fraction) > 6:
        return f"{number} {m['scale']}"
    scaled = int(integer + fraction) * factor
    return str(scaled // 10 ** len(fraction)) if scaled % 10 ** len(fraction) == 0 else f"{number} {m['scale']}"


def _money(m: Match) -> str:
    name = m["unit"] or _CODES.get(m["sign"]) or _MONEY[m["sign"]]
    if not m["last"]:
        return _amount(m) + name
    return f"{_trimmed(m['num'])}到{_trimmed(m['last'])}{m['scale'] or ''}{name}"


_RAISED: Final = {"2": "平方", "3": "立方", None: ""}


def _fraction(m: Match) -> str:
    idiom = {("9", "11"): "九幺幺", ("24", "7"): "七乘二十四"}.get((m["top"], m["bottom"]))
    if m["whole"] is None and idiom:
        return idiom
    numbers = (decimal(m[name], ordinal=True) for name in ("bottom", "top"))
    return (f"{m['whole']}又" if m["whole"] else "") + "分之".join(numbers)


_OPERAND: Final = r"[\dA-Za-z)百千万亿零一二三四五六七八九十方]"
_OPERATORS: Final = tuple(
    (pattern.replace("{operand}", _OPERAND).replace("{han}", HAN), words)
    for words, pattern in rows("mandarin/operators")
)


def _number(m: Match) -> str:
    before = m.string[max(0, m.start() - 1) : m.start()]
    nth = "第" if m["nth"] else ""
    if before.isascii() and before.isalpha():
        return f" {nth}{decimal(m['num'], ordinal=True)}"
    if m["counted"] is not None and m["num"] == "2" and not nth:
        return "两"
    return nth + decimal(m["num"], ordinal=bool(nth))


# English in Chinese text, and Chinese in English text.
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
_VERBALIZERS: Final[dict[str, Verbalizer]] = named(globals()) | {
    "from year to year": lambda m: f"{digits(m['a'])}到{digits(m['b'])}",
    "era": lambda m: m["era"] + digits(m["y"]),
    "temperature": lambda m: (
        (f"{'零下' if m['minus'] else ''}{m['first']}到" if m["first"] else "")
        + f"{'零下' if m['minus2'] else ''}{m['num']}{ {'C': '摄氏度', 'F': '华氏度', None: '度'}[m['scale']] }"
    ),
    "percent": lambda m: (
        (f"百分之{'负' if m['minus'] else ''}{m['first']}到" if m["first"] else "")
        + f"百分之{'负' if m['minus2'] else ''}{m['num']}"
    ),
    "measure": lambda m: (
        f"{m['num']}{_RAISED[m['power']]}{_UNITS[m['unit']]}"
        + (f"每{_RAISED[m['power2']]}{_UNITS[m['per']]}" if m["per"] else "")
    ),
    "dotted": lambda m: "点".join(digits(n) if len(n) > 2 else decimal(n) for n in m.group().split(".")),
    "power": lambda m: f"的{_RAISED.get(m['power']) or m['power'].replace('-', '负') + '次方'}",
    "train": lambda m: f"{m['kind']} {telephone(m['num'])}",
    "number by its name": lambda m: f"{m['cue']}{m['gap']}{telephone(m['num'])}",
    "name of digits": lambda m: telephone(*m.group().split(" ")),
    "part number": lambda m: f"{m['a']} {telephone(m['b'])}",
    "comparison": lambda m: _COMPARISONS[m["sign"] or m["equals"]],
    "money after": lambda m: _amount(m) + (_CODES.get(m["sign"]) or _MONEY[m["sign"]]),
    "scale": _amount,
    "cents": lambda m: m["whole"] + (f".{m['part']}" if m["part"] else ""),
    "per": lambda m: f"每{_RAISED[m['power']]}{_UNITS[m['unit']]}" if m["unit"] else "每秒" if m["second"] else "每",
    "model": lambda m: f" {telephone(*re.findall('[0-9]+', m['groups'] or m['num']))}",
    "operator": lambda m: _OPERATORS[(m.lastindex or 1) - 1][1],
    "code": lambda m: re.sub("[0-9]+|[A-Z](?!$)", lambda part: f"{telephone(part[0]) or part[0]} ", m.group()),
    "chain": lambda m: ", ".join(digits(group) for group in m.group().split("-")),
    "sign by name": lambda m: _SIGNS[m["sign"]],
    "slash": lambda m: ", " if m["or"] is None else "",
}
LINES: Final = Rules("mandarin/layout", {}, {"han": HAN})
"""Layout rules, applied before `LAYOUT`: lines of a list end sentences, other lines that are not wrapped end clauses."""
RULES: Final = Rules(
    "mandarin/rules",
    _VERBALIZERS,
    {
        "code": alternation(_CODES),
        "han": HAN,
        "measures": _MEASURES,
        "signs": re.escape("".join(_SIGNS)),
        "operators": "|".join(f"({pattern})" for pattern, _ in _OPERATORS),
        "unit": alternation(_UNITS),
    },
)


def mandarin(text: str, unread: list[str] | None = None) -> str:
    """Normalize cleaned Chinese `text` to Chinese characters, Latin letters and punctuation, without digits.

    An emoticon alone is prepared as for ``normalize=false``. Symbols that are not read are appended to `unread`.
    """
    read_english, original = partial(english, unread=unread), text
    text = LAYOUT.apply(LINES.apply(text))
    if not _is_english(text):
        text = _ASCII.sub(
            lambda m: ADDRESS.sub(lambda a: address(a.group(), _ADDRESS_SYMBOLS, digits), m.group()), text
        )
    text = _FOREIGN.sub(partial(_latin, read_english), RULES.apply(_foreign(text, read_english)))
    if unread is not None:
        unread += UNREAD.findall(text)
    return _tidy(text) or mandarin_plain(original)


def mandarin_plain(text: str) -> str:
    """Prepare cleaned `text` for ``normalize=false``, with digits one by one."""
    text = _foreign(LINES["line"].pattern.sub(",\n", text), english_plain)
    text = re.sub(r"\d+", lambda m: digits(m.group()), re.sub(r"(?<=\d)\.(?=\d)", "点", text))
    return _tidy(text)


def _is_english(text: str) -> bool:
    """Test whether a text is English with some Chinese words."""
    return _is_phrase(text) and len(_LATIN_WORD.findall(text)) > len(_HAN.findall(text))


def _foreign(text: str, verbalize: Callable[[str], str]) -> str:
    """Verbalize the English in `text` with `verbalize`."""
    if _is_english(text):
        return _FOREIGN.sub(lambda m: _span(m, verbalize), text)
    return _FOREIGN.sub(lambda m: _phrase(m.group(), verbalize), text)


def _span(match: Match, verbalize: Callable[[str], str]) -> str:
    """Verbalize a span between Chinese words of an English text, except numbers next to a Chinese word."""
    span = match.group()
    if not _LETTERS.search(span):
        return span
    body = span.lstrip(_FIGURES) if match.start() else span
    head, tail = span[: len(span) - len(body)], ""
    if span[-1].isdigit() or _COUNTS.match(match.string, match.end()):
        stripped = body.rstrip()
        body = stripped.rstrip(_FIGURES) if stripped[-1:].isdigit() else stripped
        tail = stripped[len(body) :].lstrip("-")
    words = body.lstrip(_OPENING)
    return f"{head}{body[: len(body) - len(words)]} {verbalize(words)} {tail}"


def _phrase(span: str, verbalize: Callable[[str], str]) -> str:
    """Verbalize an English sentence, with its numbers, between Chinese characters."""
    phrase = _PHRASE.search(span)
    if phrase is None or not _is_phrase(phrase.group()):
        return span
    return f"{span[: phrase.start()]} {verbalize(phrase.group())} {span[phrase.end() :]}"


def _is_phrase(text: str) -> bool:
    words = _LATIN_WORD.findall(text)
    return len(words) > 2 and any(word.lower() in FREQUENT["English"] for word in words)


def _latin(verbalize: Callable[[str], str], match: Match) -> str:
    """Verbalize the letters of a name whose numbers are already verbalized; a single A is the letter, not the article."""
    letters_match = _LETTERS.search(match.group())
    if letters_match is None:
        return match.group()
    letters = letters_match.group()
    plain = letters.isalpha() and letters.islower() and len(letters) > 1
    words = letters if plain else "ay" if letters in ("A", "a") else verbalize(letters)
    return f"{match.group()[: letters_match.start()]} {words} {match.group()[letters_match.end() :]}"


def _tidy(text: str) -> str:
    """Apply `tidy`, and remove spaces between Chinese characters but insert them next to Latin letters."""
    text = re.sub(rf"(?<=[{HAN}])\s+(?=[{HAN}])", "", tidy(text))
    return re.sub(rf"(?<=[{HAN}])(?=[A-Za-z'])|(?<=[A-Za-z'])(?=[{HAN}])", " ", text)
