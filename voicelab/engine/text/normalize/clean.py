"""The cleaning that every text gets, with `normalize` on or off: one spelling for each character.

Typographic quotes, dashes and widths become plain ones, accents on Latin letters are folded, emoji, controls and
scripts that the voice cannot speak are dropped, and the notes say which.
"""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache
from typing import Final

from voicelab.engine.text.normalize.hanzi import HAN
from voicelab.engine.text.normalize.values import Normalized

__all__ = ["GREEK", "KEPT_SYMBOLS", "clean", "fold", "is_emoji", "is_han", "script"]

KEPT_SYMBOLS: Final = frozenset("£€¥₹¢°×÷±≤≥≠≈√µΩ§—∞")
"""Symbols outside ASCII that pass the cleaning because the normalizer has words for them."""

_PLAIN: Final = {
    **dict.fromkeys("‘’‚‛′ʼʹ＇‹›´", "'"),
    **dict.fromkeys("“”„‟″«»「」『』《》〈〉", '"'),
    **dict.fromkeys("【〔〖", " ["),
    **dict.fromkeys("】〕〗", "] "),
    **dict.fromkeys("（", " ("),
    **dict.fromkeys("）", ") "),
    **dict.fromkeys("‐‑⁃−﹣－", "-"),
    **dict.fromkeys("–‒", "–"),
    **dict.fromkeys("—―⸺⸻﹘", "—"),
    **dict.fromkeys("•‣▪◦●·∙", "; "),
    **dict.fromkeys("。｡", ". "),
    **dict.fromkeys("、，", ", "),
    **dict.fromkeys("！", "! "),
    **dict.fromkeys("？", "? "),
    **dict.fromkeys("；", "; "),
    **dict.fromkeys("：", ": "),
    **dict.fromkeys("\u2028\u2029", "\n"),
    **dict.fromkeys("™®©℠", " "),
    "…": "...",
    "¿": "",
    "¡": "",
    "⁄": "/",
    "∕": "/",
    "∗": "*",
    "⋅": "×",
    "∶": ":",
    "\u03bc": "µ",
    "\u2126": "Ω",
    "Ω": "Ω",
    "℃": "°C",
    "℉": "°F",
    "№": "No. ",
    "→": " to ",
    "ß": "ss",
    "ẞ": "SS",
    "þ": "th",
    "Þ": "Th",
    "ð": "th",
    "Ð": "Th",
    "ŋ": "ng",
    "Ŋ": "Ng",
    "ə": "e",
    "Ə": "E",
}
_SUPERSCRIPT: Final = {**dict(zip("⁰¹²³⁴⁵⁶⁷⁸⁹", "0123456789", strict=True)), "⁻": "-", "⁺": "+"}
_GREEK_NAMES: Final = (
    "alpha beta gamma delta epsilon zeta eta theta iota kappa lambda nu xi omicron pi rho sigma tau upsilon phi chi "
    "psi omega"
)
GREEK: Final = dict(zip("αβγδεζηθικλνξοπρστυφχψω", _GREEK_NAMES.split(), strict=True))
# "LATIN SMALL LETTER L WITH STROKE" has no decomposition, but its name says which letter it is built on.
_LATIN_NAME = re.compile(r"LATIN (SMALL|CAPITAL) (?:LETTER|LIGATURE) (?:DOTLESS |LONG )?([A-Z]{1,2})(?: WITH .*)?\Z")
_SUPERSCRIPTS = re.compile(f"[{''.join(_SUPERSCRIPT)}]+")
_LONE_GREEK = re.compile(r"(?<![\u0370-\u03ff\u1f00-\u1fff])[\u0391-\u03c9](?![\u0370-\u03ff\u1f00-\u1fff])")
_VULGAR = re.compile(r"(?<=\d)(?=[¼-¾⅐-⅞])")
_BETWEEN_DIGITS = re.compile(r"(?<=\d)(?:(?P<colon>：)|[~～〜∼])(?=\d)")
_SQUARE: Final = str.maketrans({"㎡": "m²", "㎥": "m³", "㎢": "km²", "㎠": "cm²", "㎤": "cm³", "〜": "~", "∼": "~"})
_NUMERALS: Final = str.maketrans(
    {"〇": "零", **{chr(first + i): f" {i + 1} " for first in (0x2160, 0x2170) for i in range(12)}}
)
_NAME_DOT = re.compile(f"(?<=[{HAN}])[·・‧•](?=[{HAN}])")
_HAN = re.compile(f"[{HAN}]")
_MAX_LISTED = 24
"""Characters of left-out text that a note quotes before it is cut."""


def is_emoji(char: str) -> bool:
    """Whether `char` is a pictograph, or one of the invisible characters that join pictographs."""
    code = ord(char)
    return (
        0x1F000 <= code <= 0x1FAFF
        or 0x2600 <= code <= 0x27BF
        or 0x2B00 <= code <= 0x2BFF
        or 0x2300 <= code <= 0x23FF
        or 0xE0020 <= code <= 0xE007F
        or code in (0x200D, 0x20E3, 0xFE0F, 0xFE0E)
    )


def is_han(char: str) -> bool:
    """Whether `char` is a Chinese character."""
    return _HAN.match(char) is not None


@lru_cache(maxsize=4096)
def script(char: str) -> str:
    """The script of a letter as Unicode names it, for people: "Cyrillic", "Chinese", "Arabic", "Latin"."""
    first = unicodedata.name(char, "UNKNOWN").split()[0].split("-")[0]
    return {
        "CJK": "Chinese",
        "HIRAGANA": "Japanese",
        "KATAKANA": "Japanese",
        "HANGUL": "Korean",
        "UNKNOWN": "unknown",
        "KANGXI": "Chinese",
    }.get(first, first.capitalize())


@lru_cache(maxsize=4096)
def fold(char: str) -> str | None:
    """`char` in plain characters ("é" is "e", "ﬁ" is "fi", "Ａ" is "A"), or None when there are none."""
    if char.isascii():
        return char if char.isprintable() or char == "\n" else " "
    if char in _PLAIN:
        return _PLAIN[char]
    if char in KEPT_SYMBOLS:
        return char
    category = unicodedata.category(char)
    if category in ("Mn", "Mc", "Me", "Cf"):
        return ""
    if category in ("Zs", "Cc"):
        return "\n" if char == "\x85" else " "
    if category == "Nd":
        return str(unicodedata.decimal(char))
    if is_emoji(char):
        return None
    plain = "".join(_PLAIN.get(c, c) for c in unicodedata.normalize("NFKD", char) if unicodedata.category(c) != "Mn")
    if plain and all(c in KEPT_SYMBOLS or (c.isascii() and c.isprintable()) for c in plain):
        return plain
    if named := _LATIN_NAME.match(unicodedata.name(char, "")):
        return named.group(2).lower() if named.group(1) == "SMALL" else named.group(2).capitalize()
    return None


def _name_greek(match: re.Match[str]) -> str:
    char = match.group().lower()
    char = "σ" if char == "ς" else char
    # µ and Ω stay: they are units first.
    if char not in GREEK or match.group() == "Ω":
        return match.group()
    # A power is raised on the word before it.
    return f" {GREEK[char]}" if match.string[match.end() : match.end() + 1] == "^" else f" {GREEK[char]} "


def _raise(match: re.Match[str]) -> str:
    return "^" + "".join(_SUPERSCRIPT[c] for c in match.group())


def _quote(chars: list[str]) -> str:
    text = re.sub(r"\s+", " ", "".join(chars)).strip()
    return text if len(text) <= _MAX_LISTED else f"{text[:_MAX_LISTED]}…"


def _notes(dropped: dict[str, list[str]]) -> tuple[str, ...]:
    notes = []
    for kind, chars in dropped.items():
        if kind == "emoji":
            notes.append(f"emoji left out: {_quote(list(dict.fromkeys(chars)))}")
        elif kind == "symbols":
            notes.append(f"symbols left out: {_quote(list(dict.fromkeys(chars)))}")
        else:
            notes.append(f"{kind} characters cannot be spoken and were left out: {_quote(chars)}")
    return tuple(notes)


def clean(text: str, *, chinese: bool = False) -> Normalized:
    """Reduce `text` to ASCII, `KEPT_SYMBOLS`, newlines and, if they can be spoken, Chinese characters; never raises.

    White space is single spaces and at most two newlines in a row; no other control characters remain. Notes name
    the emoji, symbols and foreign words that were left out; folding an accent is not noted.
    """
    text = _VULGAR.sub(" ", unicodedata.normalize("NFC", text).replace("\r\n", "\n").replace("\r", "\n"))
    text = _BETWEEN_DIGITS.sub(lambda m: ":" if m["colon"] else "–", text).translate(_SQUARE)
    if chinese and _HAN.search(text):
        text = _NAME_DOT.sub("", text).translate(_NUMERALS)
    text = _LONE_GREEK.sub(_name_greek, _SUPERSCRIPTS.sub(_raise, text))
    kept: list[str] = []
    dropped: dict[str, list[str]] = {}
    foreign = ""
    for char in text:
        folded = char if chinese and is_han(char) else fold(char)
        if folded is not None:
            kept.append(folded)
            if foreign and folded.isspace():
                dropped[foreign].append(" ")
            elif folded.isalnum():
                foreign = ""
            continue
        kept.append(" ")
        if is_emoji(char):
            foreign = "emoji"
        elif unicodedata.category(char).startswith("L"):
            foreign = script(char)
        else:
            foreign = "symbols"
        # A lone surrogate cannot be written into a note: it is no character.
        dropped.setdefault(foreign, []).append("�" if unicodedata.category(char) == "Cs" else char)
    # Long runs of white space are bounded here, so that no later pattern can be made to scan them again and again.
    spaced = re.sub(r" ?\n ?", "\n", re.sub(r"[^\S\n]+", " ", "".join(kept)))
    return Normalized(re.sub(r"\n{3,}", "\n\n", spaced), _notes(dropped))
