"""What every reading of text begins with: tables of rules, and the cleaning, which gives each character one spelling.

Rules are patterns and what is said for them, applied in their order. Cleaning is done with `normalize` on or off: typographic
quotes, dashes and widths become plain ones, accents on Latin letters are folded, emoji, controls and scripts that the voice
cannot speak are dropped, and the notes say which.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from typing import Final, TypeAlias

from voicelab.errors import RequestInvalid

Match: TypeAlias = re.Match[str]
Says: TypeAlias = Callable[[Match], str]
_DIGIT = re.compile(r"\d")
_PART = re.compile(r"\{([a-z_]+)\}")
_ESCAPES: Final = {"\\n": "\n", "\\t": "\t"}


def any_of(words: Iterable[str]) -> str:
    """A pattern for one of `words`, the longest first."""
    return "|".join(re.escape(word) for word in sorted(words, key=lambda word: (-len(word), word)))


class Functions(dict[str, Says]):
    """Name of a rule → the function that says its matches."""

    def says(self, function: Says) -> Says:
        """The decorated function is that of the rule of its name."""
        self[function.__name__.strip("_").replace("_", " ")] = function
        return function


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule, with a text that it changes and how that text is said in the end; a test tries every example."""

    name: str
    digits: bool
    """Whether it is tried only in texts that hold a digit."""
    example: str
    spoken: str
    said: Says | str
    """What to write for a match: a function of it, or a template of `re.sub`."""
    pattern: re.Pattern[str]


class Rules:
    """A table of rules.

    Args:
        name: of the table, see `rows`. Its columns are those of `Rule`; what is said is ``@`` where a function says it. A row
            of two columns, ``{name}`` and a pattern, defines a part for the patterns below it.
        functions: name of the rule → its function.
        parts: further parts of patterns.
    """

    def __init__(self, name: str, functions: Mapping[str, Says], parts: Mapping[str, str]) -> None:
        self.parts = dict(parts)
        self._rules: dict[str, Rule] = {}
        for row in rows(name):
            pattern = _PART.sub(lambda m: self.parts[m[1]], row[-1])
            if len(row) == 2:
                self.parts[row[0].strip("{}")] = pattern
                continue
            rule, needs, example, spoken, said, _ = row
            for escape, char in _ESCAPES.items():
                example = example.replace(escape, char)
            says = functions[rule] if said == "@" else said
            self._rules[rule] = Rule(rule, needs == "digits", example, spoken, says, re.compile(pattern))

    def __iter__(self) -> Iterator[Rule]:
        return iter(self._rules.values())

    def __getitem__(self, name: str) -> Rule:
        return self._rules[name]

    def apply(self, text: str, without: str = "") -> str:
        """`text` with each rule but `without` applied once, everywhere, in order."""
        digits = _DIGIT.search(text) is not None
        for rule in self._rules.values():
            if (digits or not rule.digits) and rule.name != without:
                text = rule.pattern.sub(rule.said, text)
        return text


def rows(name: str) -> tuple[tuple[str, ...], ...]:
    """The rows of ``voicelab/text/tables/<name>.tsv``, split at tabs; lines that begin with ``# `` are comments."""
    text = files(__package__).joinpath("tables", f"{name}.tsv").read_text(encoding="utf-8")
    return tuple(tuple(line.split("\t")) for line in text.split("\n") if line and not line.startswith("# "))


def pairs(name: str) -> dict[str, str]:
    """A table of two columns."""
    return {row[0]: row[1] for row in rows(name)}


def word_lists(name: str) -> dict[str, frozenset[str]]:
    """A table of named lists: name, words with spaces between."""
    return {key: frozenset(words.split(" ")) for key, words in rows(name)}


HAN: Final = "\u3005\u3007\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U000323af"
"""Chinese characters, as the inside of a character class."""

_SCRIPTS: Final = {
    **dict.fromkeys(("CJK", "KANGXI"), "Chinese"),
    **dict.fromkeys(("HIRAGANA", "KATAKANA"), "Japanese"),
    "HANGUL": "Korean",
    "UNKNOWN": "unknown",
}
KEPT_SYMBOLS: Final = frozenset("£€¥₹¢°×÷±≤≥≠≈√µΩ§—∞")
"""Symbols outside ASCII that pass the cleaning because the normalizer has words for them."""

_PLAIN: Final = {char: plain for plain, chars in rows("characters") for char in chars} | {
    "\u2028": "\n",
    "\u2029": "\n",
}
_SUPERSCRIPT: Final = {**dict(zip("⁰¹²³⁴⁵⁶⁷⁸⁹", "0123456789", strict=True)), "⁻": "-", "⁺": "+"}
GREEK: Final = pairs("english/greek")
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
_EMOJI = re.compile(
    "[\u200d\u20e3\u2300-\u23ff\u2600-\u27bf\u2b00-\u2bff\ufe0e\ufe0f\U0001f000-\U0001faff\U000e0020-\U000e007f]"
)
_MAX_LISTED = 24
"""Characters of left-out text that a note quotes before it is cut."""


@dataclass(frozen=True, slots=True)
class Normalized:
    """Text ready for the next stage, and what was done to it that the user should know."""

    text: str
    notes: tuple[str, ...] = ()


def is_emoji(char: str) -> bool:
    """Whether `char` is a pictograph, or one of the invisible characters that join pictographs."""
    return _EMOJI.match(char) is not None


def is_han(char: str) -> bool:
    """Whether `char` is a Chinese character."""
    return _HAN.match(char) is not None


@lru_cache(maxsize=4096)
def script(char: str) -> str:
    """The script of a letter as Unicode names it, for people: "Cyrillic", "Chinese", "Arabic", "Latin"."""
    first = unicodedata.name(char, "UNKNOWN").split()[0].split("-")[0]
    return _SCRIPTS.get(first, first.capitalize())


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


def _quote(chars: Iterable[str]) -> str:
    text = re.sub(r"\s+", " ", "".join(chars)).strip()
    return text if len(text) <= _MAX_LISTED else f"{text[:_MAX_LISTED]}…"


def _notes(dropped: dict[str, list[str]]) -> tuple[str, ...]:
    return tuple(
        f"{kind} left out: {_quote(dict.fromkeys(chars))}"
        if kind in ("emoji", "symbols")
        else f"{kind} characters cannot be spoken and were left out: {_quote(chars)}"
        for kind, chars in dropped.items()
    )


def clean(text: str, *, chinese: bool = False) -> Normalized:
    """Reduce `text` to ASCII, `KEPT_SYMBOLS`, newlines and, if they can be spoken, Chinese characters; never raises.

    White space is single spaces and at most two newlines in a row; no other control characters remain. Notes name
    the emoji, symbols and foreign words that were left out; folding an accent is not noted.
    """
    text = _VULGAR.sub(" ", unicodedata.normalize("NFC", text).replace("\r\n", "\n").replace("\r", "\n"))
    text = _BETWEEN_DIGITS.sub(lambda m: ":" if m["colon"] else "–", text).translate(_SQUARE)
    if chinese and _HAN.search(text):
        text = _NAME_DOT.sub("", text).translate(_NUMERALS)
    text = _SUPERSCRIPTS.sub(lambda m: "^" + "".join(_SUPERSCRIPT[c] for c in m.group()), text)
    text = _LONE_GREEK.sub(_name_greek, text)
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
_MARKS: Final = (
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


def tidy(text: str) -> str:
    """Reduce `text` without digits to Latin letters, Chinese characters, single spaces and ``, . ? ! ; : — - '``."""
    for pattern, replacement in _MARKS:
        text = pattern.sub(replacement, text)
    text = _STRANGE.sub(" ", text)
    # Apostrophes inside words stay, quotation marks go.
    kept = {position for m in _APOSTROPHE.finditer(text) for position in range(m.start(), m.end())}
    text = _HYPHEN.sub(" ", "".join(" " if c == "'" and i not in kept else c for i, c in enumerate(text)))
    text = re.sub(r"\s+", " ", text)
    text = _RUN.sub(_strongest, text).strip()
    # A mark before the first word marks nothing.
    return _BEFORE_WORD.sub("", text) if _LETTER.search(text) else ""


LANGUAGES: Final = {"en": "English", "zh": "Mandarin"}
"""What the front end can normalize: code → name."""

FREQUENT: Final = word_lists("languages")
"""Frequent short words by language, enough to notice that a Latin-letter text is not English."""

_WORDS = re.compile(r"[^\W\d_]+")
_MIN_WORDS: Final = 5


def _language(text: str) -> str | None:
    """The name of the language if `text` is plainly one of `FREQUENT` and not English."""
    words = [word.lower() for word in _WORDS.findall(unicodedata.normalize("NFC", text))]
    if len(words) < _MIN_WORDS:
        return None
    english = sum(word in FREQUENT["English"] for word in words)
    scores = {name: sum(word in frequent for word in words) for name, frequent in FREQUENT.items() if name != "English"}
    best = max(scores, key=scores.__getitem__)
    return best if scores[best] >= max(2, 0.2 * len(words)) and scores[best] > 2 * english else None


def _count(text: str, chinese: bool) -> tuple[int, int, Counter[str]]:
    """Letters that can be spoken, digits, and letters per script that cannot."""
    spoken = figures = 0
    foreign: Counter[str] = Counter()
    for char in unicodedata.normalize("NFC", text):
        if char.isascii():
            spoken += char.isalpha()
            figures += char.isdigit()
        elif is_emoji(char):
            continue
        elif chinese and is_han(char):
            spoken += 1
        else:
            plain = fold(char) or ""
            if any(c.isascii() and c.isalpha() for c in plain) and unicodedata.category(char)[0] in "LN":
                spoken += 1
            elif any(c.isascii() and c.isdigit() for c in plain):
                figures += 1
            elif unicodedata.category(char).startswith("L"):
                foreign[script(char)] += 1
    return spoken, figures, foreign


def _refusal(text: str, spoken: int, figures: int, foreign: Counter[str], languages: Collection[str]) -> str | None:
    if not text.strip():
        return "the text is blank"
    strange = foreign.total()
    if strange > spoken and (strange or not figures):
        names = " and ".join(name for name, _ in foreign.most_common(2))
        reads = " and ".join(LANGUAGES.get(language, language) for language in languages)
        return f"the text is mostly in {names} characters, which this voice cannot speak; it reads {reads}"
    if spoken or figures:
        return None
    visible = [c for c in text if not c.isspace() and unicodedata.category(c) not in ("Cc", "Cf", "Mn")]
    if not visible:
        return "the text holds only invisible characters"
    kind = "emoji" if all(is_emoji(c) for c in visible) else "symbols and punctuation"
    return f"the text holds only {kind}: there is no letter or digit to speak"


def speakable(text: str, languages: Collection[str] = ("en",)) -> tuple[str, ...]:
    """Return notes on what of `text` (the whole request, as the user wrote it) will be left out or misread.

    Raises RequestInvalid at ``body.text`` when nothing in it can be spoken (blank, only symbols, only emoji), or
    when more than half of its letters are in a script that a voice of these `languages` cannot speak, which the
    message names.
    """
    chinese = "zh" in languages
    spoken, figures, foreign = _count(text, chinese)
    if reason := _refusal(text, spoken, figures, foreign, languages):
        raise RequestInvalid.of("text", reason)
    language = _language(text)
    looks = (f"the text looks like {language}; it is read as if it were English",) if language else ()
    return (*clean(text, chinese=chinese).notes, *looks)
