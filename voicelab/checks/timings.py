"""Replace the figures of voicelab's timing columns in tables: they differ at every run, and only have to be there.

Columns and rows are known by their names, in pandas' text and HTML and in voicelab's own tables. What is missing (NaN) stays.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import unescape
from typing import Final

TIMINGS: Final = ("first_audio_s", "total_s", "rtf", "underruns", "stalled_s", "buffer_needed_s")
"""Names of columns that hold times, or are computed from times."""

_TIME: Final = "TIME"
_NUMBER: Final = r"[-+−]?\d[\d.,]*(?:e[-+]?\d+)?%?"
_FIGURE: Final = re.compile(rf"(?<![\w.]){_NUMBER}")
_BLOCK: Final = re.compile(r"(?:[^\n]*\S[^\n]*(?:\n|$))+")
_NAME: Final = re.compile(rf"(?<!\S)(?:{'|'.join(TIMINGS)})(?!\S)")
_SERIES: Final = re.compile(rf"^Name: (?:{'|'.join(TIMINGS)}),", re.MULTILINE)
# A label of a row, after a table's own numbering, and nothing but figures.
_ROW: Final = re.compile(rf"^(\s*(?:\d+\s+)?(?:{'|'.join(TIMINGS)}))((?:\s+(?:{_NUMBER}|NaN|None))+)\s*$")
_LABELS: Final = {re.sub(r"[^a-z]", "", name.removesuffix("_s")) for name in TIMINGS}
_TABLE: Final = re.compile(r"<table\b.*?</table>", re.DOTALL)
_TR: Final = re.compile(r"<tr\b.*?</tr>", re.DOTALL)
_CELL: Final = re.compile(r"(<(t[hd])\b([^>]*)>)(.*?)(</\2>)", re.DOTALL)
_SPAN: Final = re.compile(r"colspan=[\"']?(\d+)")


def without_timings(mime: str, text: str) -> str:
    """Return an output's text with TIME for each figure of a timing column or row of a table."""
    if mime == "text/html":
        return _TABLE.sub(lambda table: _html(table.group()), text)
    if _NAME.search(text) is None and _SERIES.search(text) is None:
        return text
    return _BLOCK.sub(lambda block: "\n".join(_lines(block.group().split("\n"))), text)


def _lines(lines: list[str]) -> Iterator[str]:
    """Yield the lines of a block of text; a table begins at the line that names its columns."""
    if any(map(_SERIES.match, lines)):
        lines = [re.sub(rf"(?<=\s){_NUMBER}$", _TIME, line) for line in lines]
    elif not any(map(_NAME.search, lines)):
        yield from lines
        return
    ends: list[int] = []
    mixed = any(map(_ROW.match, lines))
    for line in lines:
        if row := _ROW.match(line):
            masked = f"{row[1]} {_FIGURE.sub(_TIME, row[2])}"
        elif _NAME.search(line):
            ends, masked = [name.end() for name in _NAME.finditer(line)], line
        else:
            masked = _short_figures(_in_columns(line, ends)) if mixed else _in_columns(line, ends)
        yield " ".join(masked.split())  # columns are as wide as their figures


def _in_columns(line: str, ends: list[int]) -> str:
    """Replace the figures of a line that end where the names of timing columns do."""
    for end in reversed(ends):
        value = re.search(rf"(?<!\S){_NUMBER}$", line[:end])
        if value and not line[end : end + 1].strip():
            line = f"{line[: value.start()]}{_TIME}{line[end:]}"
    return line


def _short_figures(text: str) -> str:
    """Drop zeros at the end: pandas writes all figures of a column with as many digits, those beside a time too."""
    return _FIGURE.sub(lambda figure: re.sub(r"(\.\d*?)0+$", r"\1", figure.group()).rstrip("."), text)


def _html(table: str) -> str:
    """Return a table with its timings replaced; columns count from the right, where labels that span rows are not."""
    rows = [list(_CELL.finditer(row)) for row in _TR.findall(table)]
    heads = [cells for cells in rows if not any(cell[2] == "td" for cell in cells)]
    columns = {column for cells in heads for column in _columns(cells)}
    mixed = any(_is_timing(cell[4]) for cells in rows if cells not in heads for cell in cells)

    def replace_row(match: re.Match[str]) -> str:
        cells = list(_CELL.finditer(match.group()))
        whole = any(_is_timing(cell[4]) for cell in cells)
        numbers = {cell.start(): len(cells) - place for place, cell in enumerate(cells, start=1)}

        def replace(cell: re.Match[str]) -> str:
            if cell[2] == "th":
                return cell.group()
            content = _short_figures(cell[4]) if mixed else cell[4]
            if whole or numbers[cell.start()] in columns:
                content = _FIGURE.sub(_TIME, content)
            return cell[1] + content + cell[5]

        return _CELL.sub(replace, match.group())

    return _TR.sub(replace_row, table) if columns or mixed else table


def _columns(cells: list[re.Match[str]]) -> Iterator[int]:
    """Yield the columns that the cells of a head name as timings, from the right, which is 0."""
    right = 0
    for cell in reversed(cells):
        span = _SPAN.search(cell[3])
        wide = int(span[1]) if span else 1
        if _is_timing(cell[4]):
            yield from range(right, right + wide)
        right += wide


def _is_timing(html: str) -> bool:
    """Whether a cell names a timing: a column of ``frame()``, or its label for people ("First audio s, s", "total, s")."""
    words = unescape(re.sub(r"<[^>]*>", " ", html)).strip().lower()
    return re.sub(r"[^a-z]", "", re.sub(r"(?:[_ ]s)?(?:, s)?$", "", words)) in _LABELS
