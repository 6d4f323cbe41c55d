"""Cutting a text into the segments that are synthesized one after another.

Runs on the text as the user wrote it, before normalization, so that offsets point into the user's own text.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from voicelab.text.clean import HAN, rows, word_lists


def _abbreviations() -> dict[str, dict[str, str]]:
    kinds: dict[str, dict[str, str]] = {}
    for short, words, kind in rows("english/abbreviations"):
        kinds.setdefault(kind, {})[short] = words
    return kinds


WRITTEN_SHORT: Final = _abbreviations()
"""Kind → abbreviation without its last period → its words; the table says what the kinds are."""
TITLES: Final = WRITTEN_SHORT["title"]
"""Written before a name, so their period never ends a sentence."""
ABBREVIATIONS: Final = WRITTEN_SHORT["any"] | WRITTEN_SHORT["capital"] | WRITTEN_SHORT["small"]
"""Lower case without the last period; their period ends a sentence only where one plainly ends."""
BEFORE_NUMBER: Final = WRITTEN_SHORT["number"]
"""Abbreviations only in front of a number: "no. 5", but not "No. Five left."."""
MONTHS: Final = WRITTEN_SHORT["month"]
WEEKDAYS: Final = WRITTEN_SHORT["weekday"]
LISTS: Final = word_lists("english/lists")
INITIALISM: Final = re.compile(r"(?<![A-Za-z.'])(?:[A-Za-z]\.){2,}(?![A-Za-z])")
"""U.S., a.m., D.C., e.g. — letters, each with its period."""

_NEXT_WORD = re.compile(r"[\"')\]]*\s+[\"'(\[]*([A-Z][a-z]*)(?![A-Za-z])")
# "At 5 p.m. Anna left": the sentence began with its time.
_TIME_BEFORE = re.compile(
    r"(?P<opening>\b(?:At|By|Around|About|Until|Till|Since|Before|After|From) )?"
    r"(?<![\d:.])\d{1,2}(?:[:.]\d\d)? ?[apAP]\.[mM]\.\Z"
)
_AFTER_TIME = re.compile(r"[A-Za-z]+\.?(?: [Tt]ime\b)?")
_REST = re.compile(r"[\"')\]\s]*\Z")

Boundary: TypeAlias = Literal["paragraph", "sentence", "clause", "word"]
Point: TypeAlias = tuple[int, Boundary]

_PARAGRAPH = re.compile(r"(?<!\s)\s*\n[^\S\n]*\n\s*")
_CLOSING = "\"')\\]}”’»」』）》】〉"
# Chinese is written without spaces: its own marks end a sentence by themselves, and so do ! and ? before a character.
_SENTENCE = re.compile(
    rf"(?:(?<![.!?])[.!?]+|(?<!…)…+)[{_CLOSING}]*(?=\s)|[。！？｡]+[。！？｡!?…]*[{_CLOSING}]*|(?<![!?])[!?]+[{_CLOSING}]*(?=[{HAN}])"
)
_LIST_ITEM = re.compile(r"(?<=\S)(?=[^\S\n]*\n[ \t]*(?:[-*•]|\d{1,3}[.)])[ \t])")
_CLAUSE = re.compile(
    # Not in "March 5, 2024".
    rf"(?:[;:]|,(?!(?<=\d,)\s\d{{4}}\b))[{_CLOSING}]*(?=\s)|\s--?(?=\s)|\s[–—](?=\s)|—+|(?<=[{HAN}])…+|"
    rf"(?:(?<!\d)[，、；：]|[，、；：](?!\d))[{_CLOSING}]*|(?<=[{HAN}])[,;:](?=[{HAN}])"
)
_SPACE = re.compile(r"\s+")
_BETWEEN = re.compile(rf"(?<=[{HAN}])(?=[{HAN}])")
_NUMERAL = "零一二三四五六七八九十百千万亿两第"
_WORD_BEFORE = re.compile(r"[A-Za-z](?:[A-Za-z.]*[A-Za-z])?\Z")
_LOWER_NEXT = re.compile(rf"[\s{_CLOSING}]*[a-z]")
_INITIAL = re.compile(r"(?<![A-Za-z])[A-Z]\Z")
_DIGIT_NEXT = re.compile(r"\s*\d")


def ends_sentence(text: str, end: int) -> bool:
    """Whether the abbreviation whose period stands at ``text[end - 1]`` ends its sentence too.

    True at the end of the text and before a word that typically starts a sentence ; after a time of day
    before any word with a capital but a day, a month, a time zone or a title.
    """
    if _REST.match(text, end):
        return True
    follows = _NEXT_WORD.match(text, end)
    if follows is None:
        return False
    if follows.group(1) in LISTS["starters"]:
        return True
    time = _TIME_BEFORE.search(text, max(0, end - 24), end)
    if time is None or time["opening"]:
        return False
    word = follows.group(1)
    after = _AFTER_TIME.match(text, follows.start(1))
    dated = word[:3] in MONTHS or word[:3] in WEEKDAYS or word in TITLES or word in LISTS["of_time"]
    return len(word) > 1 and not dated and not (after and after.group().lower().endswith(" time"))


def fits_case(word: str) -> bool:
    """Whether an abbreviation is written so: "Co." but not "co.", part of a word; "ed." but not "Ed.", a name."""
    return word.lower() not in WRITTEN_SHORT["small" if word[0].isupper() else "capital"]


@dataclass(frozen=True, slots=True)
class TextSegment:
    """A piece of the text.

    `text` is ``original[start:end]`` without white space at either end; `ends_with` says what kind of boundary
    follows it, from which the pause after it is chosen. The last segment of a text ends a paragraph.
    """

    text: str
    start: int
    end: int
    ends_with: Boundary


def _is_abbreviation(text: str, period: int) -> bool:
    """Whether the period at ``text[period]`` belongs to an abbreviation and ends no sentence."""
    match = _WORD_BEFORE.search(text, max(0, period - 24), period)
    if match is None:
        # "3." followed by a word in lower case, or "1. Item": a number of a list, not a sentence.
        return bool(re.search(r"(?:^|\n)[ \t]*\d{1,3}\Z", text[max(0, period - 8) : period]))
    word = match.group()
    if word in TITLES:
        return word != "St" or not ends_sentence(text, period + 1)
    key = word.lower()
    if key in BEFORE_NUMBER and _DIGIT_NEXT.match(text, period + 1):
        return True
    listed = (key in ABBREVIATIONS or word in MONTHS) and fits_case(word) and word != "May"
    initial = word != "I" and _INITIAL.search(word)
    return bool(listed or INITIALISM.fullmatch(f"{word}.") or initial) and not ends_sentence(text, period + 1)


def _sentence_ends(text: str) -> Iterator[int]:
    for match in _SENTENCE.finditer(text):
        mark = match.group()
        if mark.startswith(".") and not mark.startswith("..") and _is_abbreviation(text, match.start()):
            continue
        # "Wait... what", "“Really?” she asked": the sentence goes on in lower case.
        if (mark[0] in ".…" or mark[-1] in _CLOSING) and _LOWER_NEXT.match(text, match.end()):
            continue
        yield match.end()


def _boundaries(text: str) -> list[Point]:
    """Every place where the text may be cut, in order, each with its strongest kind."""
    places: dict[int, Boundary] = {m.start(): "word" for m in _BETWEEN.finditer(text)}
    places.update((m.start(), "word") for m in _SPACE.finditer(text))
    places.update((m.end(), "clause") for m in _CLAUSE.finditer(text))
    places.update((end, "sentence") for end in _sentence_ends(text))
    places.update((m.start(), "sentence") for m in _LIST_ITEM.finditer(text))
    places.update((m.start(), "paragraph") for m in _PARAGRAPH.finditer(text))
    places.pop(0, None)
    places[len(text)] = "paragraph"
    return sorted(places.items())


def _glued(text: str, at: int) -> bool:
    """Whether what lies on both sides of `at` is read as one: "Dr. Smith", "5 km", "March 5", "Henry VIII", 第三章."""
    before, after = text[max(0, at - 12) : at], text[at : at + 12].lstrip()
    if re.search(r"\d\S*\Z", before) or re.match(r"\S?\d|[IVX]+\b|[ap]\.?m\b", after):
        return True
    if before[-1:] in _NUMERAL or (before[-1:] == "点" and after[:1] in _NUMERAL):
        return True
    return before.endswith(".") and _is_abbreviation(text, at - 1)


def _choose(text: str, window: Sequence[Point], start: int, shortest: int) -> Point | None:
    """The best place within reach: see `segment` for the order of preference."""
    long_enough = [point for point in window if point[0] - start >= shortest]
    sentences = [point for point in window if point[1] in ("sentence", "paragraph")]
    for point in sentences:
        if point[0] - start >= shortest:
            return point
    # A short sentence before an endless one: better alone than the long one torn at any word.
    clauses = [point for point in long_enough if point[1] == "clause"]
    if clauses or sentences:
        return (clauses or sentences)[-1]
    # Too short a segment is heard less than "Dr." in one and "Smith" in the next.
    free = [[point for point in some if not _glued(text, point[0])] for some in (long_enough, window)]
    choices = free[0] or free[1] or long_enough or window
    return choices[-1] if choices else None


def _skip_space(text: str, at: int) -> int:
    match = _SPACE.match(text, at)
    return match.end() if match else at


def segment(text: str, chunk_length: int = 300, min_chunk_length: int = 50) -> tuple[TextSegment, ...]:
    """Split `text` into segments of at most `chunk_length` characters.

    A segment ends at the first sentence or paragraph end that leaves it at least `min_chunk_length` characters
    long, so that short sentences are joined with their neighbours and long ones stand alone. Where no sentence
    end is within reach it ends at the last clause end (``; : , —``), and only where there is none at the last
    space or between Chinese characters, if possible not inside a number, a date or a name with its title. A single
    word longer than `chunk_length` stays whole. Every character except white space is in exactly one segment, in order; blank
    text has no segments.
    """
    points = _boundaries(text)
    segments: list[TextSegment] = []
    start, first = _skip_space(text, 0), 0
    end_of_text = len(text.rstrip())
    while start < end_of_text:
        while first < len(points) and points[first][0] <= start:
            first += 1
        window = points[first : bisect_right(points, start + chunk_length, lo=first, key=lambda point: point[0])]
        end, kind = _choose(text, window, start, min_chunk_length) or points[first]
        if end_of_text - end < min_chunk_length and end_of_text - start <= chunk_length:
            end, kind = points[-1]  # what is left is too short to stand alone
        piece = text[start:end].rstrip()
        segments.append(TextSegment(piece, start, start + len(piece), kind))
        start = _skip_space(text, end)
    return tuple(segments)
