"""Tables of text normalization rules, Unicode cleaning, punctuation cleanup, and a check that a text can be spoken.

Rules are regular expressions with verbalizations, applied in order. Cleaning does not depend on the field `normalize`:
typographic quotes, dashes and full-width characters become ASCII, and accents on Latin letters are folded. Control characters
are removed, and so are emoji and unsupported scripts, with a note.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cached_property, lru_cache
from importlib.resources import files
from typing import Any, Final, TypeAlias

from voicelab.errors import RequestInvalid

Match: TypeAlias = re.Match[str]
Verbalizer: TypeAlias = Callable[[Match], str]
_DIGIT = re.compile(r"\d")
_FRAGMENT = re.compile(r"\{([a-z_]+)\}")
_ESCAPES: Final = {"\\n": "\n", "\\t": "\t"}


def alternation(words: Iterable[str]) -> str:
    """Return a pattern that matches any of `words`, longer ones first."""
    return "|".join(re.escape(word) for word in sorted(words, key=lambda word: (-len(word), word)))


def named(namespace: Mapping[str, Any]) -> dict[str, Verbalizer]:
    """Map the names of a module's rules to its private functions: "month and day" to `_month_and_day`."""
    return {
        name[1:].replace("_", " "): value for name, value in namespace.items() if name[0] == "_" and callable(value)
    }


@dataclass(frozen=True)
class Rule:
    """A normalization rule with an example and its normalized text."""

    name: str
    needs_digit: bool
    """Whether the rule applies only to texts with a digit."""
    example: str
    normalized: str
    verbalizer: Verbalizer | str
    """Replacement of a match: a function, or a template of `re.sub`."""
    regex: str

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        """Regular expression, compiled on first use because most texts need only a few of the rules."""
        return re.compile(self.regex)

    def verbalize(self, match: Match) -> str:
        """Return the replacement of a match."""
        return match.expand(self.verbalizer) if isinstance(self.verbalizer, str) else self.verbalizer(match)


class Rules:
    """A table of rules.

    Args:
        name: Table name, see `rows`. The columns are those of `Rule`; the verbalizer ``@`` represents the function with the
            name of the rule. A row of two columns, ``{name}`` and a pattern, defines a fragment for the patterns below it.
        verbalizers: Functions by rule name.
        fragments: Further fragments of patterns, by name.
    """

    def __init__(self, name: str, verbalizers: Mapping[str, Verbalizer], fragments: Mapping[str, str]) -> None:
        self.fragments = dict(fragments)
        self._rules: dict[str, Rule] = {}
        for row in rows(name):
            pattern = _FRAGMENT.sub(lambda m: self.fragments[m[1]], row[-1])
            if len(row) == 2:
                self.fragments[row[0].strip("{}")] = pattern
                continue
            rule, needs, example, normalized, template, _ = row
            for escape, char in _ESCAPES.items():
                example = example.replace(escape, char)
            verbalizer = verbalizers[rule] if template == "@" else template
            self._rules[rule] = Rule(rule, needs == "digits", example, normalized, verbalizer, pattern)

    def __iter__(self) -> Iterator[Rule]:
        return iter(self._rules.values())

    def __getitem__(self, name: str) -> Rule:
        return self._rules[name]

    def apply(self, text: str, without: str = "") -> str:
        """Apply each rule except `without` once, in order, to all its matches."""
        has_digit, changes = _DIGIT.search(text) is not None, _CHANGES.get()
        for rule in self._rules.values():
            if (has_digit or not rule.needs_digit) and rule.name != without:
                if changes is not None:
                    changes += (
                        (m.group(), rule.name) for m in rule.pattern.finditer(text) if rule.verbalize(m) != m.group()
                    )
                text = rule.pattern.sub(rule.verbalizer, text)
        return text


_CHANGES: Final = ContextVar[list[tuple[str, str]] | None]("changes", default=None)


@contextmanager
def recorded_changes() -> Iterator[list[tuple[str, str]]]:
    """Record the passages that rules rewrite, each with the name of the rule, in the order of the rules."""
    changes = list[tuple[str, str]]()
    token = _CHANGES.set(changes)
    try:
        yield changes
    finally:
        _CHANGES.reset(token)


def rows(name: str) -> tuple[tuple[str, ...], ...]:
    """Read ``voicelab/text/tables/<name>.tsv`` as rows of cells; lines that begin with ``# `` are comments."""
    text = files(__package__).joinpath("tables", f"{name}.tsv").read_text(encoding="utf-8")
    return tuple(tuple(line.split("\t")) for line in text.split("\n") if line and not line.startswith("# "))


def pairs(name: str) -> dict[str, str]:
    """Read a table of two columns as a dict."""
    return {row[0]: row[1] for row in rows(name)}


def word_lists(name: str) -> dict[str, frozenset[str]]:
    """Read a table of named word lists: name, words separated by spaces."""
    return {key: frozenset(words.split(" ")) for key, words in rows(name)}


HAN: Final = "\u3005\u3007\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U000323af"
"""Chinese characters, as ranges for a character class of a regular expression."""

_SCRIPTS: Final = {
    **dict.fromkeys(("CJK", "KANGXI"), "Chinese"),
    **dict.fromkeys(("HIRAGANA", "KATAKANA"), "Japanese"),
    "HANGUL": "Korean",
    "UNKNOWN": "unknown",
}
SPEAKABLE_SYMBOLS: Final = frozenset("£€¥₹₩₽₺₫₪₱₴₦฿¢°−×÷±≤≥≠≈√µΩ§—∞‰")
"""Symbols outside ASCII for which the normalizer has words."""

_PLAIN: Final = {char: plain for plain, chars in rows("characters") for char in chars} | {
    "\u2028": "\n",
    "\u2029": "\n",
}
_SUPERSCRIPT: Final = {**dict(zip("⁰¹²³⁴⁵⁶⁷⁸⁹", "0123456789", strict=True)), "⁻": "-", "⁺": "+"}
GREEK: Final = pairs("english/greek")
# Letters such as "LATIN SMALL LETTER L WITH STROKE" have no decomposition; the name has the base letter.
_LATIN_NAME = re.compile(r"LATIN (SMALL|CAPITAL) (?:LETTER|LIGATURE) (?:DOTLESS |LONG )?([A-Z]{1,2})(?: WITH .*)?\Z")
_SUPERSCRIPTS = re.compile(f"[{''.join(_SUPERSCRIPT)}]+")
_LONE_GREEK = re.compile(r"(?<![\u0370-\u03ff\u1f00-\u1fff])[\u0391-\u03c9](?![\u0370-\u03ff\u1f00-\u1fff])")
_STEPS: Final = tuple((re.compile(pattern), template) for pattern, template in rows("cleaning"))
_LEFT_OUT = re.compile(r"(?!μΩ)[\u0370-\u03ff\u1f00-\u1fff]{2,}|→(?=[^\w\n]{0,20}(?:\n|\Z))")
"""Characters that are not spoken: those of a Greek word, and an arrow at the end of a line."""
_NUMERAL = re.compile(r"(?<![\wⅠ-ⅿ])(?P<name>[A-Z][a-z]+ )?(?P<numeral>[Ⅰ-Ⅻⅰ-ⅻ])(?![\wⅠ-ⅿ])")
_NUMERALS: Final = str.maketrans(
    {"〇": "零", "→": "到", "⌀": "直径"} | {chr(base + i): f" {i + 1} " for base in (0x2160, 0x2170) for i in range(12)}
)
_NAME_DOT = re.compile(f"(?<=[{HAN}])[·・‧•](?=[{HAN}])")
_HAN = re.compile(f"[{HAN}]")
_EMOJI = re.compile(
    "[\u200d\u20e3\u231a\u231b\u2328\u23cf\u23e9-\u23fa\u2600-\u27bf\u2b00-\u2bff\ufe0e\ufe0f\U0001f000-\U0001faff\U000e0020-\U000e007f]"
)
_MAX_LISTED = 24
"""Maximum number of removed characters that a note quotes."""


@dataclass(frozen=True, slots=True)
class Normalized:
    """Normalized text, with notes for the user on removed characters."""

    text: str
    notes: tuple[str, ...] = ()


def is_emoji(char: str) -> bool:
    """Return whether a character is an emoji or part of an emoji, such as a zero-width joiner or a variation selector."""
    return _EMOJI.match(char) is not None


def is_han(char: str) -> bool:
    """Return whether a character is Chinese."""
    return _HAN.match(char) is not None


@lru_cache(maxsize=4096)
def script(char: str) -> str:
    """Return the script of a letter from its Unicode name: "Cyrillic", "Chinese", "Arabic", "Latin"."""
    prefix = unicodedata.name(char, "UNKNOWN").split()[0].split("-")[0]
    return _SCRIPTS.get(prefix, prefix.capitalize())


@lru_cache(maxsize=4096)
def fold(char: str) -> str | None:
    """Fold `char` to ASCII or `SPEAKABLE_SYMBOLS` ("é" to "e", "ﬁ" to "fi"); return None if it has no equivalent."""
    if char.isascii():
        return char if char.isprintable() or char == "\n" else " "
    if char in _PLAIN:
        return _PLAIN[char]
    if char in SPEAKABLE_SYMBOLS:
        return char
    category = unicodedata.category(char)
    if category in ("Mn", "Mc", "Me", "Cf"):
        return ""
    if category in ("Zs", "Cc"):
        return "\n" if char == "\x85" else " "
    if category == "Nd":
        return str(unicodedata.decimal(char))
    if is_emoji(char):
        return str(int(unicodedata.numeric(char))) if category == "No" else None
    plain = "".join(_PLAIN.get(c, c) for c in unicodedata.normalize("NFKD", char) if unicodedata.category(c) != "Mn")
    if plain and all(c in SPEAKABLE_SYMBOLS or (c.isascii() and c.isprintable()) for c in plain):
        return plain
    if match := _LATIN_NAME.match(unicodedata.name(char, "")):
        return match[2].lower() if match[1] == "SMALL" else match[2].capitalize()
    return None


def _name_greek(match: re.Match[str]) -> str:
    char = match.group().lower()
    char = "σ" if char == "ς" else char
    # µ and Ω are more often units than Greek letters.
    if char not in GREEK or match.group() == "Ω":
        return match.group()
    # No space before "^": the power rule needs its base next to it.
    return f" {GREEK[char]}" if match.string[match.end() : match.end() + 1] == "^" else f" {GREEK[char]} "


def _numeral(match: re.Match[str]) -> str:
    """Convert a numeral such as Ⅳ to digits, or to letters after the name of a king or pope."""
    if (match["name"] or "").rstrip() in _REGNAL:
        return match.group()
    return f"{match['name'] or ''}{int(unicodedata.numeric(match['numeral']))}"


_REGNAL: Final = word_lists("english/lists")["regnal"]
_LOAN_WORDS: Final = pairs("english/accented")
_ACCENTED_WORD: Final = re.compile(r"(?:[^\W\d_]['’])?[^\W\d_]*[À-ɏḀ-ỿ][^\W\d_]*")


def replace_loan_words(text: str, encode: Callable[[str, str, str], str]) -> str:
    """Replace the loan words and names of the lexicon that are written with diacritics, such as "résumé".

    Args:
        text: request text.
        encode: encodes a word, given its letters without accents, its phones in Arpabet and its ending, "s" or "".
    """

    def replace(match: Match) -> str:
        word = match.group().lower().replace("’", "'")
        stem = word if word in _LOAN_WORDS else word.removesuffix("s")
        if stem not in _LOAN_WORDS:
            return match.group()
        letters = unicodedata.normalize("NFKD", match.group()).encode("ascii", "ignore").decode().replace("'", "")
        return encode(letters, _LOAN_WORDS[stem], word.removeprefix(stem))

    return text if text.isascii() else _ACCENTED_WORD.sub(replace, unicodedata.normalize("NFC", text))


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
    """Reduce `text` to ASCII, `SPEAKABLE_SYMBOLS`, newlines and, with `chinese`, Chinese characters. Never raises.

    White space becomes single spaces and at most two newlines in a row; other control characters are removed. Notes
    list removed emoji, symbols and foreign words, but not folded accents.
    """
    text = unicodedata.normalize("NFC", text).replace("\r\n", "\n").replace("\r", "\n")
    if not text.isascii():
        for pattern, template in _STEPS:
            text = pattern.sub(template, text)
        text = _NUMERAL.sub(_numeral, text)
    if chinese and _HAN.search(text):
        text = _NAME_DOT.sub("", text).translate(_NUMERALS)
    text = _SUPERSCRIPTS.sub(lambda m: "^" + "".join(_SUPERSCRIPT[c] for c in m.group()), text)
    text = _LONE_GREEK.sub(_name_greek, text)
    output: list[str] = []
    dropped: dict[str, list[str]] = {}
    foreign = ""
    left_out = {i for m in _LEFT_OUT.finditer(text) for i in range(*m.span())}
    for i, char in enumerate(text):
        folded = None if i in left_out else char if chinese and is_han(char) else fold(char)
        if folded is not None and char not in "™®©℠":
            output.append(folded)
            if foreign and (folded.isspace() or unicodedata.category(char)[0] == "M"):  # a vowel sign of Devanagari
                dropped[foreign].append(folded or char)
            elif folded.isalnum():
                foreign = ""
            continue
        output.append(" ")
        if is_emoji(char):
            foreign = "emoji"
        elif unicodedata.category(char).startswith("L"):
            foreign = script(char)
        else:
            foreign = "symbols"
        # A lone surrogate is replaced, because a note with one could not be encoded.
        dropped.setdefault(foreign, []).append("�" if unicodedata.category(char) == "Cs" else char)
    # Runs of white space are limited, so that hostile texts cannot make later patterns quadratic.
    spaced = re.sub(r" ?\n ?", "\n", re.sub(r"[^\S\n]+", " ", "".join(output)))
    return Normalized(re.sub(r"\n{3,}", "\n\n", spaced), _notes(dropped))


_STRENGTH: Final = "?!.;:—,"
"""Punctuation marks by precedence: adjacent marks are reduced to the strongest."""

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
UNREAD: Final = re.compile(r"[^\w\s,.?!;:—'\"()\[\]{}|–-]|(?<![A-Za-z\d])_|_(?![A-Za-z\d])")
"""A symbol that `tidy` removes. An underscore between letters or digits is not one, because it becomes a space."""
_LETTER = re.compile(f"[A-Za-z{HAN}]")
_BEFORE_WORD = re.compile(rf"\A[^A-Za-z{HAN}']+")
_HYPHEN = re.compile(r"(?<![A-Za-z])-|-(?![A-Za-z])")
_MARKS: Final = (
    # An ellipsis is a comma before a lower-case word, otherwise a period.
    (re.compile(r"(?<!\.)\.{2,}(?=[\s\"']*[a-z])|(?<=\s)\.{2,}"), ","),
    (re.compile(r"(?:\s*\. ){2,}\."), "."),
    (re.compile(rf"\.{{2,}}(?=\s?[{HAN}])"), ","),
    (re.compile(r"\.{2,}"), "."),
    (re.compile(r"(?<=[a-z])\.(?=[A-Z][a-z])"), ". "),
    (re.compile(r"(?<=[A-Za-z])\.(?=[A-Za-z])"), " dot "),
    (re.compile(r"(?<!\S)\.(?=[A-Za-z])"), "dot "),
    (re.compile(r"\bthe the\b"), "the"),
    (re.compile(r"(?<=[\w,.?!;:)\"'])\s*-{2,}\s*|\s+(?:-{1,2}|–)\s+|\s–(?=\w)|(?<=\w)–\s"), " — "),
    # A bracket at the end of the text makes no pause.
    (re.compile(r"(?<![)\]}])[)\]}]+(?=[\s\"']*\Z)"), ""),
    (re.compile(r"[()\[\]{}|]"), ", "),
    (re.compile(r"[\"`*_~^<>#/\\\n\t]"), " "),
)


def _strongest(match: re.Match[str]) -> str:
    mark = min((c for c in match.group() if c in _STRENGTH), key=_STRENGTH.index)
    return " — " if mark == "—" else f"{mark} "


def tidy(text: str) -> str:
    """Reduce `text`, which has no digits, to Latin letters, Chinese characters, single spaces and ``, . ? ! ; : — - '``."""
    for pattern, replacement in _MARKS:
        text = pattern.sub(replacement, text)
    text = _STRANGE.sub(" ", text)
    # Apostrophes that belong to words, as opposed to quotation marks.
    apostrophes = {index for m in _APOSTROPHE.finditer(text) for index in range(m.start(), m.end())}
    text = _HYPHEN.sub(" ", "".join(" " if c == "'" and i not in apostrophes else c for i, c in enumerate(text)))
    text = re.sub(r"\s+", " ", text)
    text = _RUN.sub(_strongest, text).strip()
    return _BEFORE_WORD.sub("", text) if _LETTER.search(text) else ""


LANGUAGES: Final = {"en": "English", "zh": "Mandarin"}
"""Supported languages: code → name."""

FREQUENT: Final = word_lists("languages")
"""Frequent short words by language, to detect texts in Latin letters that are not English."""

_WORDS = re.compile(r"(?<!\w)[^\W\d_]+(?!\w)")
_MIN_WORDS: Final = 5
_KANA: Final = re.compile("[\u3041-\u3096\u30a1-\u30fa]")


def _language(text: str) -> str | None:
    """Detect a language of `FREQUENT` other than English; return None if the evidence is weak."""
    words = [word.lower() for word in _WORDS.findall(unicodedata.normalize("NFC", text))]
    if len(words) < _MIN_WORDS:
        return None
    english = sum(word in FREQUENT["English"] for word in words)
    scores = {name: sum(word in frequent for word in words) for name, frequent in FREQUENT.items() if name != "English"}
    best = max(scores, key=scores.__getitem__)
    return best if scores[best] >= max(2, 0.2 * len(words)) and scores[best] > 2 * english else None


def _count(text: str, chinese: bool) -> tuple[int, int, Counter[str]]:
    """Count speakable letters, digits, and letters of unsupported scripts by script."""
    letters = digits = 0
    foreign: Counter[str] = Counter()
    for char in unicodedata.normalize("NFC", text):
        if char.isascii():
            letters += char.isalpha()
            digits += char.isdigit()
        elif is_emoji(char):
            continue
        elif chinese and is_han(char):
            letters += 1
        else:
            plain = fold(char) or ""
            if any(c.isascii() and c.isalpha() for c in plain) and unicodedata.category(char)[0] in "LN":
                letters += 1
            elif any(c.isascii() and c.isdigit() for c in plain):
                digits += 1
            elif unicodedata.category(char).startswith("L"):
                foreign[script(char)] += 1
    return letters, digits, foreign


def _problem(text: str, letters: int, digits: int, foreign: Counter[str], languages: Collection[str]) -> str | None:
    if not text.strip():
        return "the text is blank"
    if foreign.total() > letters:
        names = " and ".join(name for name, _ in foreign.most_common(2))
        reads = " and ".join(LANGUAGES.get(language, language) for language in languages)
        return f"the text is mostly in {names} characters, which this voice cannot speak; it reads {reads}"
    if letters or digits:
        return None
    visible = [c for c in text if not c.isspace() and unicodedata.category(c) not in ("Cc", "Cf", "Mn")]
    if not visible:
        return "the text has only invisible characters"
    kind = "emoji" if all(is_emoji(c) for c in visible) else "symbols and punctuation"
    return f"the text must have a letter or a digit, got only {kind}"


def speakable(text: str, languages: Collection[str] = ("en",)) -> tuple[str, ...]:
    """Check the complete text of a request, and return notes on text that will be left out or misread.

    Raises:
        RequestInvalid: At ``body.text``, if the text is blank or has only symbols or emoji, or if more than half of its
            letters are in a script that a voice of these `languages` cannot speak.
    """
    chinese = "zh" in languages
    if problem := _problem(text, *_count(text, chinese), languages):
        raise RequestInvalid.of("text", problem)
    language = _language(text)
    language_notes = (f"the text looks like {language}; it is read as English",) if language else ()
    if chinese and len(_KANA.findall(text)) >= 2 and _HAN.search(text):
        language_notes = ("the text looks like Japanese; its kanji are read as Mandarin",)
    return (*clean(text, chinese=chinese).notes, *language_notes)
