"""Mask the values of voicelab's timing columns in tables, which differ in every run. Missing values (NaN) are not masked.

Columns and rows are identified by name, in text and HTML by pandas and in voicelab's tables.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import unescape
from typing import Final

TIMINGS: Final = ("first_audio_s", "total_s", "rtf", "underruns", "stalled_s", "buffer_needed_s")
"""Names of columns with times, or values computed from times."""

_TIME: Final = "TIME"
_NUMBER: Final = r"[-+−]?\d[\d.,]*(?:e[-+]?\d+)?%?"
_VALUE: Final = re.compile(rf"(?<![\w.]){_NUMBER}")
_BLOCK: Final = re.compile(r"(?:[^\n]*\S[^\n]*(?:\n|$))+")
_NAME: Final = re.compile(rf"(?<!\S)(?:{'|'.join(TIMINGS)})(?!\S)")
_SERIES: Final = re.compile(rf"^Name: (?:{'|'.join(TIMINGS)}),", re.MULTILINE)
# A row label, optionally after an index, followed by numbers only.
_ROW: Final = re.compile(rf"^(\s*(?:\d+\s+)?(?:{'|'.join(TIMINGS)}))((?:\s+(?:{_NUMBER}|NaN|None))+)\s*$")
_LABELS: Final = {re.sub(r"[^a-z]", "", name.removesuffix("_s")) for name in TIMINGS}
_TABLE: Final = re.compile(r"<table\b.*?</table>", re.DOTALL)
_TR: Final = re.compile(r"<tr\b.*?</tr>", re.DOTALL)
_CELL: Final = re.compile(r"(<(t[hd])\b([^>]*)>)(.*?)(</\2>)", re.DOTALL)
_SPAN: Final = re.compile(r"colspan=[\"']?(\d+)")


def mask_timings(mime: str, text: str) -> str:
    """Replace each number of a timing column or row by TIME, in the tables of an output's text."""
    if mime == "text/html":
        return _TABLE.sub(lambda table: _html(table.group()), text)
    if _NAME.search(text) is None and _SERIES.search(text) is None:
        return text
    return _BLOCK.sub(lambda block: "\n".join(_lines(block.group().split("\n"))), text)


def _lines(lines: list[str]) -> Iterator[str]:
    """Yield the masked lines of a block of text; a table starts at the line with its column names."""
    if any(map(_SERIES.match, lines)):
        lines = [re.sub(rf"(?<=\s){_NUMBER}$", _TIME, line) for line in lines]
    elif not any(map(_NAME.search, lines)):
        yield from lines
        return
    ends: list[int] = []
    mixed = any(map(_ROW.match, lines))
    for line in lines:
        if row := _ROW.match(line):
            masked = f"{row[1]} {_VALUE.sub(_TIME, row[2])}"
        elif _NAME.search(line):
            ends, masked = [name.end() for name in _NAME.finditer(line)], line
        else:
            masked = _trim_zeros(_mask_columns(line, ends)) if mixed else _mask_columns(line, ends)
        yield " ".join(masked.split())  # column widths depend on the masked numbers


def _mask_columns(line: str, ends: list[int]) -> str:
    """Mask the numbers of a line that are right-aligned with the names of timing columns."""
    for end in reversed(ends):
        value = re.search(rf"(?<!\S){_NUMBER}$", line[:end])
        if value and not line[end : end + 1].strip():
            line = f"{line[: value.start()]}{_TIME}{line[end:]}"
    return line


def _trim_zeros(text: str) -> str:
    """Remove trailing zeros: pandas formats a column with the same number of digits, which depends on the times in it."""
    return _VALUE.sub(lambda figure: re.sub(r"(\.\d*?)0+$", r"\1", figure.group()).rstrip("."), text)


def _html(table: str) -> str:
    """Mask the timings of an HTML table; columns are counted from the right, because row labels may have a rowspan."""
    rows = [list(_CELL.finditer(row)) for row in _TR.findall(table)]
    headers = [cells for cells in rows if not any(cell[2] == "td" for cell in cells)]
    columns = {column for cells in headers for column in _columns(cells)}
    mixed = any(_is_timing(cell[4]) for cells in rows if cells not in headers for cell in cells)

    def replace_row(match: re.Match[str]) -> str:
        cells = list(_CELL.finditer(match.group()))
        timing_row = any(_is_timing(cell[4]) for cell in cells)
        numbers = {cell.start(): len(cells) - index for index, cell in enumerate(cells, start=1)}

        def replace(cell: re.Match[str]) -> str:
            if cell[2] == "th":
                return cell.group()
            content = _trim_zeros(cell[4]) if mixed else cell[4]
            if timing_row or numbers[cell.start()] in columns:
                content = _VALUE.sub(_TIME, content)
            return cell[1] + content + cell[5]

        return _CELL.sub(replace, match.group())

    return _TR.sub(replace_row, table) if columns or mixed else table


def _columns(cells: list[re.Match[str]]) -> Iterator[int]:
    """Yield the indices of timing columns of a header row, counted from the right (0)."""
    index = 0
    for cell in reversed(cells):
        span = _SPAN.search(cell[3])
        width = int(span[1]) if span else 1
        if _is_timing(cell[4]):
            yield from range(index, index + width)
        index += width


def _is_timing(html: str) -> bool:
    """Return True for the name of a timing column of ``frame()`` or its display label ("First audio s, s", "total, s")."""
    label = unescape(re.sub(r"<[^>]*>", " ", html)).strip().lower()
    return re.sub(r"[^a-z]", "", re.sub(r"(?:[_ ]s)?(?:, s)?$", "", label)) in _LABELS
