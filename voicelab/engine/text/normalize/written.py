"""What is written differently from how it is said: addresses, abbreviations, initials, Roman numerals."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final

from voicelab.engine.text.abbreviations import (
    ABBREVIATIONS,
    BEFORE_NUMBER,
    CAPITALISED_ONLY,
    INITIALISM,
    LOWERCASE_ONLY,
    MONTHS,
    STARTERS,
    TITLES,
    ends_sentence,
)
from voicelab.engine.text.normalize.numbers import cardinal, decimal, ordinal, roman
from voicelab.engine.text.normalize.values import Rules

__all__ = ["ABBREVIATED", "ADDRESSES", "CUES", "EMAIL", "IN_ADDRESS", "NUMERALS", "REGNAL", "URL", "address"]

_TLD: Final = (
    "com|org|net|edu|gov|mil|int|info|biz|io|ai|app|dev|co|me|tv|uk|us|de|fr|es|nl|eu|ca|au|jp|cn|ch|se|"
    "fi|dk|pl|ru|br|ie|nz|xyz|tech|online|site|blog|news"
)
_TLD_WORDS: Final = frozenset(
    ("com", "org", "net", "gov", "info", "biz", "app", "dev", "co", "me", "tech", "online", "site", "blog", "news")
)
"""Ends of a domain that are said as words; the others (io, uk, de) are spelled."""
_SPELLED: Final = frozenset(_TLD.split("|")) - _TLD_WORDS
EMAIL: Final = re.compile(r"(?<![\w.+%-])(?:mailto:)?([\w.+%-]+@[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)+)")
URL: Final = re.compile(
    r"(?<![\w@.-])(?:(?:https?|ftp)://[^\s<>\"'()\[\]{}]+|www\.[^\s<>\"'()\[\]{}]+|"
    rf"[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)*\.(?:{_TLD})\b(?:/[^\s<>\"'()\[\]{{}}]*)?(?![\w.@][A-Za-z0-9]))"
)
IN_ADDRESS: Final = {
    ".": "dot",
    "/": "slash",
    "-": "dash",
    "_": "underscore",
    "@": "at",
    ":": "colon",
    "?": "question mark",
    "=": "equals",
    "&": "and",
    "#": "hash",
    "%": "percent",
    "+": "plus",
    "~": "tilde",
}
_ADDRESS_PART = re.compile(r"[A-Za-z]+|\d+|.")

_SAINT_STREET = re.compile(r"\b(?P<word>St|Dr)\.?(?= (?P<next>[A-Z])|(?P<end>[\s,;:!?)]|$))")
_ORDINAL_WORD: Final = (
    "first|second|third|fourth|fifth|sixth|seventh|eighth|ninth|tenth|eleventh|twelfth|[a-z]+teenth|[a-z]+tieth"
)
_PLACE: Final = {
    "Ave": "Avenue",
    "Blvd": "Boulevard",
    "Hwy": "Highway",
    "Pkwy": "Parkway",
    "Apt": "Apartment",
    "Ste": "Suite",
}
_IN_STREET = re.compile(rf"\b(?P<place>{'|'.join(_PLACE)})\b\.?(?= #?\d)|\b(?P<bare>{'|'.join(_PLACE)})\b(?!\.)")
_HOUSE_NUMBER = re.compile(
    r"(?<![\w.,$£€-])(?<!\b[Ii]n )(?!(?:19|20)\d\d )\d{1,5}[A-Z]?(?: [NSEW]\.?)?"
    r"(?: (?!Dr\b|Call\b|Meet\b|Ask\b|See\b|Visit\b)"
    rf"(?:[A-Z][a-z]+|\d{{1,3}}(?:st|nd|rd|th)|(?:[a-z]+-)?(?:{_ORDINAL_WORD}))){{1,3}}\Z"
)
_STREETS: Final = frozenset(
    "Wall Main Elm High Broad Market Oak Maple Pine Cedar Bourbon Fleet Baker Bond Oxford State Front Lombard Canal Beale "
    "Sesame Walnut Chestnut Regent Downing".split()
)
_AFTER_STREET: Final = frozenset({"Apt", "Apartment", "Suite", "Ste", "Unit", "Floor", "Room", "N", "S", "E", "W"})
_WAY = re.compile(r"\b(?P<way>[NSEW])\.? (?=\d+(?:st|nd|rd|th)\b)")
_WAYS: Final = {"N": "North", "S": "South", "E": "East", "W": "West"}
_PATH = re.compile(r"(?<![^\s(\"'])(?:~|\.{1,2})?/[A-Za-z_.][\w.-]*(?:/[\w.-]+)*/?(?<=[\w/])(?![^\s,;:!?.)\"'])")
_WORLD_WAR = re.compile(r"\bWW ?(?P<number>II|I|2|1)(?!\w)")
_BIBLE: Final = (
    "Genesis|Exodus|Leviticus|Deuteronomy|Joshua|Psalms?|Proverbs|Isaiah|Jeremiah|Ezekiel|Daniel|Matthew|Mark|Luke|John|Acts|"
    "Romans|Corinthians|Galatians|Ephesians|Philippians|Timothy|Hebrews|James|Peter|Revelation"
)
_VERSE = re.compile(
    rf"(?<!\w)(?:(?P<which>[123]) )?(?P<book>{_BIBLE}) (?P<chapter>\d{{1,3}}):(?P<verse>\d{{1,3}})"
    r"(?![\d:]|[-–]\d| ?[ap]\.?m)"
)
_LIFE = re.compile(r"(?<=\()(?P<what>[bd])\. ?(?=\d{4})")
_SHORT: Final = {
    "aka": "ay K ay",
    "c/o": "care of",
    "b/c": "because",
    "he/she": "he or she",
    "she/he": "she or he",
    "his/her": "his or her",
    "him/her": "him or her",
    "s/he": "she or he",
}
_SHORTENED = re.compile(rf"(?<![\w/.-])(?:{'|'.join(_SHORT)})(?![\w/])")
_FUNCTION = re.compile(r"(?<![A-Za-z])(?P<name>[fgh]|sin|cos|tan|log|ln|exp)\((?P<of>[^()]{1,20})\)")
_TITLE = re.compile(
    rf"\b(?P<title>{'|'.join(t for t in TITLES if t not in ('St', 'Dr'))})\.(?= ?[A-Z])|"
    r"\b(?P<bare>Mrs?|Ms)(?:\.|(?= [A-Z]))"
)
_ABBREVIATION = re.compile(
    rf"(?<![\w.'@/-])(?P<word>{'|'.join(re.escape(a) for a in sorted(ABBREVIATIONS, key=len, reverse=True))})\."
    r"(?![A-Za-z\d])",
    re.IGNORECASE,
)
_MONTH_ALONE = re.compile(
    rf"\b(?P<month>{'|'.join(m for m in MONTHS if m not in ('May', 'Mar', 'Jun', 'Jan'))})\.|"
    r"\b(?P<rare>Jan|Mar|Jun)\.(?= of| and| to|,|$)"
)
_BEFORE_NUMBER = re.compile(rf"(?<![\w.'-])(?P<word>{'|'.join(BEFORE_NUMBER)})\. ?(?=\d)", re.IGNORECASE)
_WITH = re.compile(r"(?<![\w/])w/(?:(?P<out>o\b)| ?(?=[A-Za-z]))")
_INITIAL = re.compile(
    r"(?<![\w.'&-])(?<!\bay )(?<!\bP )(?P<letter>[A-Z])\.(?P<joined>(?=[A-Z][a-z]))?(?=\s?[A-Z][a-z']|\s[A-Z]\.)"
)
# "E. coli", "Mr. T. is": the sentence goes on in lower case; "option B. then" begins one, by a writer without capitals.
_GOES_ON = re.compile(
    r"(?<![\w.'&-])(?<!\b[Pp]lan )(?<!\b[Pp]art )(?<!\b[Tt]ype )(?<!\b[Tt]eam )(?<!\b[Gg]roup )(?<!\b[Pp]oint )"
    r"(?<!\b[Oo]ption )(?<!\b[Vv]itamin )(?P<letter>[B-HJ-Z])\.(?= [a-z])"
)

_NUMERAL: Final = r"[IVXLC]+"
REGNAL: Final = (
    "Henry|Louis|Charles|George|Edward|William|James|Elizabeth|Richard|John|Paul|Pius|Benedict|Leo|Gregory|Innocent|"
    "Napoleon|Philip|Alexander|Nicholas|Catherine|Mary|Ferdinand|Francis|Frederick|Friedrich|Otto|Peter|Ivan|Alfonso|"
    "Carlos|Christian|Gustav|Ramses|Ramesses|Ptolemy|Darius|Xerxes|Urban|Clement|Sixtus|Boniface|Robert|Stephen|"
    "Haakon|Olaf|Harald|Leopold|Wilhelm|Maximilian|Joseph|Rudolf|Constantine|Justinian|Theodosius|Albert|Margaret|"
    "Edmund|Emmanuel|Umberto|Juan|Philippe|Felipe|Harold|David|Michael|Victor|Anne|Martin|Julius|Adrian"
)
_KING: Final = "King|Queen|Pope|Emperor|Empress|Tsar|Czar|Pharaoh|Sultan|Prince|Princess|Duke|Archduke"
_REGNAL_NUMERAL = re.compile(
    rf"\b(?P<before>(?:(?:{_KING}) [A-Z][a-z]+) )(?P<first>{_NUMERAL})\b|"
    rf"\b(?P<name>(?:{REGNAL}) )(?P<more>{_NUMERAL})\b"
)
_SURE_CUE: Final = (
    "Chapter|Volume|Vol|Act|Scene|Phase|Appendix|World War|Figure|Table|Article|Title|Canto|Lemma|Theorem|Stage"
)
_CUE: Final = (
    "Part|Section|Book|Type|Class|Grade|Level|Version|Mark|Mk|Round|Episode|Season|Super Bowl|Apollo|Rocky|Star Wars|"
    "Fantasy|Factor|Symphony|Sonata|Number"
)
CUES: Final = f"{_SURE_CUE}|{_CUE}|{_KING}"
_LOWER_CUE: Final = (
    "chapter|section|part|volume|act|scene|article|phase|type|stage|class|grade|level|book|appendix|figure|table"
)
_CUED_NUMERAL = re.compile(
    rf"\b(?P<cue>{_SURE_CUE}|{_CUE}|{_SURE_CUE.upper()}|{_CUE.upper()}|{_LOWER_CUE})"
    rf"(?P<gap>\.? )(?P<num>{_NUMERAL})\b(?!\.[A-Z])(?!')"
)
_CENTURY_NUMERAL = re.compile(rf"\b(?P<num>{_NUMERAL})(?: ?th)? (?=[Cc]entur(?:y|ies)\b|[Oo]lympi|[Dd]ynast)")
_LISTED_NUMERAL = re.compile(
    r"(?<![\w'.-])(?P<list>[IVX]+(?:, [IVX]+){0,9},? (?:and|or|to|&) )(?P<num>[IVX]{2,})(?![\w'-])|"
    r"(?<![\w'.-])(?P<list2>[IVX]{2,}(?:, [IVX]+){0,9},? (?:and|or|to|&) )(?P<num2>[VX])(?![\w'-])"
)
_NAMED_NUMERAL = re.compile(r"(?<!\band )(?<!\bor )(?<!\bto )(?<=[a-z] )(?P<num>II|III|IV)(?=[,.;:!?)]|'s|$)")
_LONG_NUMERAL = re.compile(r"(?<![\w'.-])(?P<num>[IVX]{3,})(?![\w'-])")


def address(text: str, names: Mapping[str, str] = IN_ADDRESS, number: Callable[[str], str] = decimal) -> str:
    """An address read aloud: letters as words where they are, punctuation by its name in `names`."""
    stripped = text.rstrip(".,;:!?")
    tail = text[len(stripped) :]
    body = re.sub(r"^(?:https?|ftp)://|^mailto:", "", stripped).rstrip("/")
    words: list[str] = []
    for part in _ADDRESS_PART.findall(body):
        if part.isdigit():
            words.append(number(part))
        elif part.isalpha():
            spelled = len(part) == 1 or (words[-1:] == [names["."]] and part in _SPELLED)
            words.append(_spell(part.upper()) if spelled or part.lower() == "www" else part)
        elif part in names:
            words.append(names[part])
    return " ".join(words) + tail


def _spell(letters: str) -> str:
    # A single capital is read as the letter, but "A" is also the article: its name is written out.
    return " ".join("ay" if letter in "Aa" else letter.upper() for letter in letters)


def _stop(match: re.Match[str]) -> str:
    return "." if match.group().endswith(".") and ends_sentence(match.string, match.end()) else ""


def _is_street(before: str, word: str) -> bool:
    """Whether a house number, or the name of a known street, stands before "St." or "Dr.": "123 Main St. Springfield"."""
    return _HOUSE_NUMBER.search(before) is not None or (word == "St" and before.rpartition(" ")[2] in _STREETS)


def _saint_or_street(match: re.Match[str]) -> str:
    """Expand "Dr. Smith", "St. John" before a name; "Main St.", "Elm Dr." after one."""
    before = match.string[max(0, match.start() - 40) : match.start()].rstrip(" ")
    previous = re.search(r"([A-Za-z'.]+|\d+(?:st|nd|rd|th))$", before)
    named = previous is not None and (
        previous.group()[0].isupper()
        or previous.group()[0].isdigit()
        or re.fullmatch(_ORDINAL_WORD, previous.group()) is not None
    )
    named = named and previous is not None and previous.group().rstrip(".") not in STARTERS | {"Mr", "Mrs", "Prof"}
    period = match.group().endswith(".")
    if match["next"] and not (named and not before.endswith(".") and not period):
        following = re.match(r" ([A-Z][a-z']*)", match.string[match.end() : match.end() + 40])
        street = _is_street(before, match["word"]) or (following and following.group(1) in STARTERS | _AFTER_STREET)
        if not (named and street):
            return TITLES[match["word"]]
    if not period and not named:
        return match.group()
    word = ("Street" if match["word"] == "St" else "Drive") if named else TITLES[match["word"]]
    return word + _stop(match)


def _abbreviation(match: re.Match[str]) -> str:
    word = match["word"]
    key = word.lower()
    if (key in CAPITALISED_ONLY and not word[0].isupper()) or (key in LOWERCASE_ONLY and word[0].isupper()):
        return match.group()
    spoken = ABBREVIATIONS[key]
    if word[0].isupper() and match.start() == 0:
        spoken = spoken[0].upper() + spoken[1:]
    return spoken + _stop(match)


def _initialism(match: re.Match[str]) -> str:
    word = match.group()
    key = word.rstrip(".").lower()
    if key in ABBREVIATIONS:
        spoken = ABBREVIATIONS[key]
        return (spoken[0].upper() + spoken[1:] if word[0].isupper() and match.start() == 0 else spoken) + _stop(match)
    return _spell(word.replace(".", "")) + _stop(match)


def _initial(match: re.Match[str]) -> str:
    before = match.string[: match.start()].rstrip()
    follows = re.match(r"\s([A-Z][a-z']*)", match.string[match.end() :])
    # "option B. Then we left" ends a sentence; "Samuel L. Jackson" and "J. K. Rowling" do not.
    if follows and follows.group(1) in STARTERS and before:
        return match.group()
    return _spell(match["letter"]) + (" " if match["joined"] is not None else "")


def _regnal(match: re.Match[str]) -> str:
    number = roman(match["first"] or match["more"])
    if number is None or number > 40 or (match["more"] == "I") or (match["more"] in ("X", "C", "L")):
        return match.group()
    return f"{match['before'] or match['name']}the {ordinal(number)}"


def _cued(match: re.Match[str]) -> str:
    number = roman(match["num"])
    if number is None:
        return match.group()
    if match["num"] == "I" and match["cue"] not in _SURE_CUE.split("|"):
        following = re.match(r"\s+(?!(?:and|or|to) )[a-z]", match.string[match.end() :])
        if following:  # "the part I liked"
            return match.group()
    return f"{match['cue']} {cardinal(number)}"


def _listed(match: re.Match[str]) -> str:
    """Numerals in a row are all numbers: "I, II and III"."""

    def number(found: re.Match[str]) -> str:
        value = roman(found.group())
        return found.group() if value is None else cardinal(value)

    return re.sub(r"[IVX]+", number, match.group())


def _as(match: re.Match[str], *, ordered: bool) -> str:
    number = roman(match["num"])
    if number is None or number > 39:
        return match.group()
    return f"{ordinal(number)} " if ordered else cardinal(number)


def _verse(match: re.Match[str]) -> str:
    which = f"{('First', 'Second', 'Third')[int(match['which']) - 1]} " if match["which"] else ""
    return f"{which}{match['book']} {cardinal(int(match['chapter']))}, {cardinal(int(match['verse']))}"


ADDRESSES: Final[Rules] = (
    (EMAIL, lambda m: address(m.group())),
    (URL, lambda m: address(m.group())),
    (_PATH, lambda m: address(m.group())),
    (_WAY, lambda m: f"{_WAYS[m['way']]} "),
    (_WORLD_WAR, lambda m: f"World War {'two' if m['number'] in ('II', '2') else 'one'}"),
    (_VERSE, _verse),
    (_LIFE, lambda m: "born " if m["what"] == "b" else "died "),
    (_FUNCTION, lambda m: f"{m['name']} of {m['of']}"),
    (re.compile(r"(?<=\w)\(\)"), ""),
)
"""First of all: nothing inside an address may be taken for something else."""

ABBREVIATED: Final[Rules] = (
    (_SHORTENED, lambda m: _SHORT[m.group()]),
    (_IN_STREET, lambda m: _PLACE[m["place"] or m["bare"]]),
    (_WITH, lambda m: "without" if m["out"] else "with "),
    (_BEFORE_NUMBER, lambda m: f"{BEFORE_NUMBER[m['word'].lower()]} "),
    (_TITLE, lambda m: TITLES[m["title"] or m["bare"]]),
    (_SAINT_STREET, _saint_or_street),
    (re.compile(r"(?<=[A-Z]\.)(?=[A-Z][a-z])"), " "),
    (re.compile(r"(?<![\w.'])[A-Z](?:\.[A-Z])+(?![\w.])"), lambda m: _spell(m.group().replace(".", ""))),
    (INITIALISM, _initialism),
    (_ABBREVIATION, _abbreviation),
    (_MONTH_ALONE, lambda m: MONTHS[m["month"] or m["rare"]] + _stop(m)),
    (_INITIAL, _initial),
    (_GOES_ON, r"\g<letter>"),
)
NUMERALS: Final[Rules] = (
    (_LISTED_NUMERAL, _listed),
    (_CENTURY_NUMERAL, lambda m: _as(m, ordered=True)),
    (_REGNAL_NUMERAL, _regnal),
    (_CUED_NUMERAL, _cued),
    (_NAMED_NUMERAL, lambda m: f"the {_as(m, ordered=True)}".rstrip()),
    (_LONG_NUMERAL, lambda m: _as(m, ordered=False)),
)
"""Roman numerals where a king, a chapter or their length says that they are no letters."""
