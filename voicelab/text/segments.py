"""Segmentation of a text for synthesis, before normalization, so that offsets refer to the original text."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from voicelab.text.clean import HAN, rows, word_lists


def _abbreviations() -> dict[str, dict[str, str]]:
    kinds: dict[str, dict[str, str]] = {}
    for abbreviation, words, kind in rows("english/abbreviations"):
        kinds.setdefault(kind, {})[abbreviation] = words
    return kinds


SHORT_FORMS: Final = _abbreviations()
"""Kind (see the table) → abbreviation without its final period → its words."""
TITLES: Final = SHORT_FORMS["title"]
"""Titles before a name: their period never ends a sentence."""
ABBREVIATIONS: Final = SHORT_FORMS["any"] | SHORT_FORMS["capital"] | SHORT_FORMS["small"]
"""Abbreviations in lower case, without the final period. See `ends_sentence`."""
BEFORE_NUMBER: Final = SHORT_FORMS["number"]
"""Words that are abbreviations only before a number: "no. 5", but not "No. Five remain."."""
MONTHS: Final = SHORT_FORMS["month"]
WEEKDAYS: Final = SHORT_FORMS["weekday"]
LISTS: Final = word_lists("english/lists")
INITIALISM: Final = re.compile(r"(?<![A-Za-z.'])(?:[A-Za-z]\.){2,}(?![A-Za-z])")
"""Letters with periods: U.S., a.m., D.C., e.g."""

_NEXT_WORD = re.compile(r"[\"')\]]*\s+[\"'(\[]*([A-Z][a-z]*)(?![A-Za-z])")
# "At 5 p.m. Anna left": a time at the start of a sentence does not end it.
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
# Chinese has no spaces: its punctuation ends a sentence, as do ! and ? before a Chinese character.
_SENTENCE = re.compile(
    rf"(?:(?<![.!?])[.!?]+|(?<!…)…+)[{_CLOSING}]*(?=\s)|[。！？｡]+[。！？｡!?…]*[{_CLOSING}]*|(?<![!?])[!?]+[{_CLOSING}]*(?=[{HAN}])"
)
_LIST_ITEM = re.compile(r"(?<=\S)(?=[^\S\n]*\n[ \t]*(?:[-*•]|\d{1,3}[.)])[ \t])")
_CLAUSE = re.compile(
    # Except the comma in "March 5, 2024".
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
    """Test whether the abbreviation with its period at ``text[end - 1]`` also ends its sentence.

    The sentence ends at the end of the text, and before a word that typically starts a sentence. After an abbreviation in a
    time of day, it also ends before any other capitalized word except a day, a month, a time zone or a title.
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


def has_valid_case(word: str) -> bool:
    """Test whether an abbreviation has its usual case: "Co." but not "co."; "ed." but not "Ed.", which is a name."""
    return word.lower() not in SHORT_FORMS["small" if word[0].isupper() else "capital"]


@dataclass(frozen=True, slots=True)
class TextSegment:
    """A segment of a text: ``original[start:end]`` without surrounding white space.

    `ends_with` is the boundary after the segment, which determines the pause; for the final segment it is "paragraph".
    """

    text: str
    start: int
    end: int
    ends_with: Boundary


def _is_abbreviation(text: str, period: int) -> bool:
    """Test whether the period at ``text[period]`` belongs to an abbreviation and does not end a sentence."""
    match = _WORD_BEFORE.search(text, max(0, period - 24), period)
    if match is None:
        # "1. Item": a list number.
        return bool(re.search(r"(?:^|\n)[ \t]*\d{1,3}\Z", text[max(0, period - 8) : period]))
    word = match.group()
    if word in TITLES:
        return word != "St" or not ends_sentence(text, period + 1)
    key = word.lower()
    if key in BEFORE_NUMBER and _DIGIT_NEXT.match(text, period + 1):
        return True
    listed = (key in ABBREVIATIONS or word in MONTHS) and has_valid_case(word) and word != "May"
    initial = word != "I" and _INITIAL.search(word)
    return bool(listed or INITIALISM.fullmatch(f"{word}.") or initial) and not ends_sentence(text, period + 1)


def _sentence_ends(text: str) -> Iterator[int]:
    for match in _SENTENCE.finditer(text):
        mark = match.group()
        if mark.startswith(".") and not mark.startswith("..") and _is_abbreviation(text, match.start()):
            continue
        # "Wait... what", "“Really?” she asked": lower case continues the sentence.
        if (mark[0] in ".…" or mark[-1] in _CLOSING) and _LOWER_NEXT.match(text, match.end()):
            continue
        yield match.end()


def _boundaries(text: str) -> list[Point]:
    """Return all boundaries in order of offset, each with its strongest kind."""
    points: dict[int, Boundary] = {m.start(): "word" for m in _BETWEEN.finditer(text)}
    points.update((m.start(), "word") for m in _SPACE.finditer(text))
    points.update((m.end(), "clause") for m in _CLAUSE.finditer(text))
    points.update((end, "sentence") for end in _sentence_ends(text))
    points.update((m.start(), "sentence") for m in _LIST_ITEM.finditer(text))
    points.update((m.start(), "paragraph") for m in _PARAGRAPH.finditer(text))
    points.pop(0, None)
    points[len(text)] = "paragraph"
    return sorted(points.items())


def _is_inseparable(text: str, at: int) -> bool:
    """Test whether `at` is inside an expression such as "Dr. Smith", "5 km", "March 5", "Henry VIII" or 第三章."""
    before, after = text[max(0, at - 12) : at], text[at : at + 12].lstrip()
    if re.search(r"\d\S*\Z", before) or re.match(r"\S?\d|[IVX]+\b|[ap]\.?m\b", after):
        return True
    if before[-1:] in _NUMERAL or (before[-1:] == "点" and after[:1] in _NUMERAL):
        return True
    return before.endswith(".") and _is_abbreviation(text, at - 1)


def _choose(text: str, window: Sequence[Point], start: int, min_length: int) -> Point | None:
    """Choose the best boundary of a window, in the order of preference described in `segment`."""
    long_enough = [point for point in window if point[0] - start >= min_length]
    sentences = [point for point in window if point[1] in ("sentence", "paragraph")]
    for point in sentences:
        if point[0] - start >= min_length:
            return point
    # A short sentence alone is better than a cut at an arbitrary word of the next one.
    clauses = [point for point in long_enough if point[1] == "clause"]
    if clauses or sentences:
        return (clauses or sentences)[-1]
    # A segment below the minimum is less noticeable than a cut between "Dr." and "Smith".
    separable = [[point for point in points if not _is_inseparable(text, point[0])] for points in (long_enough, window)]
    choices = separable[0] or separable[1] or long_enough or window
    return choices[-1] if choices else None


def _skip_space(text: str, at: int) -> int:
    match = _SPACE.match(text, at)
    return match.end() if match else at


def segment(text: str, chunk_length: int = 300, min_chunk_length: int = 50) -> tuple[TextSegment, ...]:
    """Split `text` into segments of at most `chunk_length` characters.

    A segment ends at the first sentence or paragraph end after `min_chunk_length` characters, so short sentences are
    merged. If there is no sentence end in range, it ends at the last clause end (``; : , —``), otherwise at the last space or
    between Chinese characters, if possible not inside a number, a date or a name with its title. A word longer than
    `chunk_length` is not split. Every character except white space is in exactly one segment, in order; blank text
    has no segments.
    """
    points = _boundaries(text)
    segments: list[TextSegment] = []
    start, index = _skip_space(text, 0), 0
    end_of_text = len(text.rstrip())
    while start < end_of_text:
        while index < len(points) and points[index][0] <= start:
            index += 1
        window = points[index : bisect_right(points, start + chunk_length, lo=index, key=lambda point: point[0])]
        end, kind = _choose(text, window, start, min_chunk_length) or points[index]
        if end_of_text - end < min_chunk_length and end_of_text - start <= chunk_length:
            end, kind = points[-1]  # merge a remainder below the minimum
        content = text[start:end].rstrip()
        segments.append(TextSegment(content, start, start + len(content), kind))
        start = _skip_space(text, end)
    return tuple(segments)
