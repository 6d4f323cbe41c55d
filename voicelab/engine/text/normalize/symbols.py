"""The last stage: symbols become words, and punctuation is reduced to what the voice knows."""

from __future__ import annotations

import re
from typing import Final

from voicelab.engine.text.normalize.hanzi import HAN
from voicelab.engine.text.normalize.values import Rules

__all__ = ["NAMES", "SYMBOLS", "tidy"]

NAMES: Final = {
    "&": "and",
    "+": "plus",
    "=": "equals",
    "%": "percent",
    "$": "dollar",
    "£": "pound",
    "€": "euro",
    "¥": "yen",
    "₹": "rupee",
    "¢": "cent",
    "°": "degrees",
    "×": "times",
    "÷": "divided by",
    "±": "plus or minus",
    "≤": "less than or equal to",
    "≥": "greater than or equal to",
    "≠": "not equal to",
    "≈": "about",
    "√": "square root of",
    "µ": "mu",
    "Ω": "ohms",
    "§": "section",
    "∞": "infinity",
    "@": "at",
    "\\": "backslash",
}
_STRENGTH: Final = "?!.;:—,"
"""Of punctuation marks side by side the first of these is kept."""

_LEADING: Final = "'(?:tis|twas|twere|em|til|cause|bout|round)"
_DROPPED_G: Final = (
    "goin|doin|nothin|somethin|anythin|everythin|comin|lookin|talkin|gettin|havin|makin|livin|lovin|workin|walkin|"
    "runnin|singin|playin|tryin|sayin|bein|thinkin|mornin|evenin|darlin|rockin|ol"
)
_RUN = re.compile(r"[\s,.?!;:—]*[,.?!;:—][\s,.?!;:—]*")
_APOSTROPHE = re.compile(
    rf"(?<=[A-Za-z])'(?=[A-Za-z])|(?<![A-Za-z]){_LEADING}(?![A-Za-z])|(?<![A-Za-z])(?:{_DROPPED_G})'(?![A-Za-z])",
    re.IGNORECASE,
)
_STRANGE = re.compile(rf"[^A-Za-z{HAN},.?!;:—'\s-]")
_LETTER = re.compile(f"[A-Za-z{HAN}]")
_BEFORE_WORD = re.compile(rf"\A[^A-Za-z{HAN}']+")
_HYPHEN = re.compile(r"(?<![A-Za-z])-|-(?![A-Za-z])")


def _name(match: re.Match[str]) -> str:
    return f" {NAMES[match.group()]} "


def _company(match: re.Match[str]) -> str:
    """AT&T, R&D: the letters one by one."""
    letters = match.group().rstrip("s").rstrip("'")
    said = " ".join({"&": "and", "A": "ay"}.get(letter, letter) for letter in letters)
    return f"{said}'s" if match.group().endswith("s") else said


SYMBOLS: Final[Rules] = (
    (re.compile(r"(?<![\w'])'n'(?![\w'])"), "and"),
    (re.compile(r"(?<=[a-z])'n'(?=[a-z])"), " and "),
    (re.compile(r"(?<![^\s])(?:[:;=]-?[()DPp]|XD|<3)(?=[.!?]?(?:\s|\Z))"), ""),
    (re.compile(r"(?<=\d)/(?=[a-z](?![a-z]))"), " over "),
    (re.compile(r"(?<![\w&])[A-Z]{1,3}(?:&[A-Z]{1,3})+(?:'?s)?(?![\w&])"), _company),
    (re.compile(r"\b([CFJ])#"), r"\1 sharp"),
    (re.compile(r"\b([A-Za-z])\+\+"), r"\1 plus plus"),
    (re.compile(r"#(?=\s?\d)"), " number "),
    (re.compile(r"#(?=[A-Za-z])"), " hashtag "),
    (re.compile(r"~(?=\s?[\d$£€])|(?<!\w)~(?=\w)"), " about "),
    (re.compile(r"(?<=[\w)])\s?\*\s?(?=\d)"), " times "),
    (re.compile(r"(?<=\d)\s?/\s?(?=\d)"), " over "),
    (re.compile(r"(?<=\w) ?<= ?(?=\w)"), " less than or equal to "),
    (re.compile(r"(?<=\w) ?>= ?(?=\w)"), " greater than or equal to "),
    (re.compile(r"(?<=\w) ?!= ?(?=\w)"), " not equal to "),
    (re.compile(r"(?<=[\w)]) ?[=-]> ?(?=\w)"), " to "),
    (re.compile(r"(?<=\w) < ?(?=\w)"), " less than "),
    (re.compile(r"(?<=\w) > ?(?=\w)"), " greater than "),
    (re.compile(f"[{re.escape(''.join(NAMES))}]"), _name),
)
"""Before the numbers are read, so that the digits around a symbol can decide."""

_LATE_MARKS: Final[Rules] = (
    # "..." goes on when the next word is lower case, otherwise it ends the sentence.
    (re.compile(r"(?<!\.)\.{2,}(?=[\s\"']*[a-z])|(?<=\s)\.{2,}"), ","),
    (re.compile(r"(?:\s*\. ){2,}\."), "."),
    (re.compile(rf"\.{{2,}}(?=\s?[{HAN}])"), ","),
    (re.compile(r"\.{2,}"), "."),
    (re.compile(r"(?<=[a-z])\.(?=[A-Z][a-z])"), ". "),
    (re.compile(r"(?<=[A-Za-z])\.(?=[A-Za-z])"), " dot "),
    (re.compile(r"(?<!\S)\.(?=[A-Za-z])"), "dot "),
    (re.compile(r"\bthe the\b"), "the"),
    (re.compile(r"(?<=[\w,.?!;:)\"'])\s*-{2,}\s*|\s+(?:-{1,2}|–)\s+|\s–(?=\w)|(?<=\w)–\s"), " — "),
    # A bracket that closes the text is no pause before anything.
    (re.compile(r"(?<![)\]}])[)\]}]+(?=[\s\"']*\Z)"), ""),
    (re.compile(r"[()\[\]{}|]"), ", "),
    (re.compile(r"[\"`*_~^<>#/\\\n\t]"), " "),
)


def _strongest(match: re.Match[str]) -> str:
    mark = min((c for c in match.group() if c in _STRENGTH), key=_STRENGTH.index)
    return " — " if mark == "—" else f"{mark} "


def _keep_apostrophes(text: str) -> str:
    """Apostrophes inside words stay, quotation marks go."""
    kept = {position for m in _APOSTROPHE.finditer(text) for position in range(m.start(), m.end())}
    return "".join(" " if c == "'" and i not in kept else c for i, c in enumerate(text))


def tidy(text: str) -> str:
    """Reduce `text` without digits to Latin letters, Chinese characters, single spaces and ``, . ? ! ; : — - '``."""
    for pattern, replacement in _LATE_MARKS:
        text = pattern.sub(replacement, text)
    text = _STRANGE.sub(" ", text)
    text = _HYPHEN.sub(" ", _keep_apostrophes(text))
    text = re.sub(r"\s+", " ", text)
    text = _RUN.sub(_strongest, text).strip()
    # A mark before the first word marks nothing.
    return _BEFORE_WORD.sub("", text) if _LETTER.search(text) else ""
