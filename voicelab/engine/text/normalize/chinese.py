"""Chinese text in Mandarin words: digits and symbols become the characters that a reader says.

Symbols are written out first with their digits still in place ("3:05" is 3点05分, "30%" is 百分之30), then one rule reads
every number that is left, with 两 before what is counted and 二 in ordinals. English sentences inside the text, numbers
and all, are read by the English rules, and so is an English text with a few Chinese words in it, but for the numbers that
touch these (第3章). A name with a number (iPhone 15) keeps its letters and gets a Chinese number. Lines are kept apart.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from voicelab.engine.text.normalize.english import LAYOUT, english, english_plain, settle
from voicelab.engine.text.normalize.frequent import ENGLISH
from voicelab.engine.text.normalize.hanzi import HAN, decimal, digits
from voicelab.engine.text.normalize.hanzi_measures import MEASURES
from voicelab.engine.text.normalize.hanzi_rules import DATES, LABELS, MATHS, MEASURED, NUM, RANGES, TELEPHONE
from voicelab.engine.text.normalize.symbols import tidy
from voicelab.engine.text.normalize.values import Rules, apply
from voicelab.engine.text.normalize.written import EMAIL, URL, address

__all__ = ["chinese", "chinese_plain"]

_IN_ADDRESS: Final = {
    ".": "点",
    "/": "斜杠",
    "-": "杠",
    "_": "下划线",
    "@": "艾特",
    ":": "冒号",
    "?": "问号",
    "=": "等于",
    "&": "和",
    "#": "井号",
    "%": "百分号",
    "+": "加",
    "~": "波浪号",
}
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
_ITEM: Final = r"(?:\d{1,3}[.)]|(?:\d|[一二三四五六七八九十]){1,3}, )"
_LINES: Final[Rules] = (
    # Lines of a list are sentences, other lines clauses; one as long as this was wrapped.
    (re.compile(rf"(?<!\n)\n(?={_ITEM}\s*[{HAN}]|[-*] )"), ".\n"),
    (re.compile(rf"(?m)^(\d{{1,3}})[.)] *(?=[{HAN}])"), r"\1, "),
    (re.compile(rf"(?<![^\n]{{30}})(?:(?<=[{HAN}])\n(?=\S)|(?<=\S)\n(?=[{HAN}]))"), ",\n"),
)
"""Before the layout that both languages share."""
_COUNTS = re.compile(rf"{MEASURES}|[年月日号號]")
_FIGURES: Final = "0123456789.,:%-¥$€£"
_OPENING: Final = ' ,.?!;:—()[]"'
_COUNTED = rf"\s?(?:到[\d.]+\s?)?(?:{MEASURES})"
_NUMBER = re.compile(rf"(?P<nth>第\s?)?(?<!\d)(?P<num>{NUM})(?P<counted>(?={_COUNTED}))?")
_POINT = re.compile(r"(?<=\d)\.(?=\d)")
_SPACES: Final[Rules] = (
    (re.compile(rf"(?<=[{HAN}])\s+(?=[{HAN}])"), ""),
    (re.compile(rf"(?<=[{HAN}])(?=[A-Za-z'])|(?<=[A-Za-z'])(?=[{HAN}])"), " "),
)


def chinese(text: str) -> str:
    """Clean `text` with Chinese in it as it is said: Chinese characters, Latin letters and marks, no digit."""
    return settle(_once, text)


def chinese_plain(text: str) -> str:
    """Clean `text` as it stands, digits one by one, for ``normalize=false``."""
    text = _foreign(apply(_LINES[-1:], text), english_plain)
    text = re.sub(r"\d+", lambda m: digits(m.group()), _POINT.sub("点", text))
    return settle(_tidy, text)


def _once(text: str) -> str:
    text = apply(LAYOUT, apply(_LINES, text))
    if not _is_english(text):
        text = _ASCII.sub(lambda m: _addresses(m.group()), text)
    text = apply(_RULES, _foreign(text, english))
    return _tidy(_FOREIGN.sub(_latin, text))


def _is_english(text: str) -> bool:
    """Whether `text` is an English one with Chinese words in it."""
    return _is_phrase(text) and len(_LATIN_WORD.findall(text)) > len(_HAN.findall(text))


def _foreign(text: str, read: Callable[[str], str]) -> str:
    """`text` with what is English in it read by `read`."""
    if _is_english(text):
        return _FOREIGN.sub(lambda m: _part(m, read), text)
    return _FOREIGN.sub(lambda m: _phrases(m.group(), read), text)


def _part(match: re.Match[str], read: Callable[[str], str]) -> str:
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


def _addresses(run: str) -> str:
    for pattern in (EMAIL, URL):
        run = pattern.sub(lambda m: address(m.group(), _IN_ADDRESS, digits), run)
    return run


def _phrases(stretch: str, read: Callable[[str], str]) -> str:
    """`stretch`, text between Chinese characters, with its numbers read if it is an English sentence."""
    found = _PHRASE.search(stretch)
    if found is None or not _is_phrase(found.group()):
        return stretch
    return f"{stretch[: found.start()]} {read(found.group())} {stretch[found.end() :]}"


def _is_phrase(text: str) -> bool:
    words = _LATIN_WORD.findall(text)
    return len(words) > 2 and any(word.lower() in ENGLISH for word in words)


def _latin(match: re.Match[str]) -> str:
    """Abbreviations and capitals of a name, once its numbers are read; a letter alone is no article."""
    found = _LETTERS.search(match.group())
    if found is None:
        return match.group()
    letters = found.group()
    plain = letters.isalpha() and letters.islower() and len(letters) > 1
    said = letters if plain else "ay" if letters in ("A", "a") else english(letters)
    return f"{match.group()[: found.start()]} {said} {match.group()[found.end() :]}"


def _number(match: re.Match[str]) -> str:
    before = match.string[max(0, match.start() - 1) : match.start()]
    if before.isascii() and before.isalpha():
        return f" {'第' if match['nth'] else ''}{decimal(match['num'], ordered=True)}"
    if match["counted"] is not None and match["num"] == "2" and not match["nth"]:
        return "两"
    return f"{'第' if match['nth'] else ''}{decimal(match['num'], ordered=bool(match['nth']))}"


def _tidy(text: str) -> str:
    return apply(_SPACES, tidy(text))


_RULES: Final[Rules] = (
    *TELEPHONE,
    *DATES,
    *LABELS,
    *MEASURED,
    *MATHS,
    *RANGES,
    (_NUMBER, _number),
)
