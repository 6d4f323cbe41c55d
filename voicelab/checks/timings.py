"""Mask the values of timing columns in tables, which differ in every run. Missing values (NaN) are not masked.

Columns and rows are identified by name, in text and HTML by pandas and in voicelab's tables.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from html import unescape
from typing import Final

TIMINGS: Final = ("first_audio_s", "total_s", "rtf", "underruns", "stalled_s", "buffer_needed_s")
"""Names of columns with times, or values computed from times."""

_TIME: Final = "TIME"
_NUMBER: Final = r"[-+−]?\d[\d.,]*(?:e[-+]?\d+)?%?"
_VALUE: Final = re.compile(rf"(?<![\w.]){_NUMBER}")
_BLOCK: Final = re.compile(r"(?:[^\n]*\S[^\n]*(?:\n|$))+")
_TABLE: Final = re.compile(r"<table\b.*?</table>", re.DOTALL)
_TR: Final = re.compile(r"<tr\b.*?</tr>", re.DOTALL)
_CELL: Final = re.compile(r"(<(t[hd])\b([^>]*)>)(.*?)(</\2>)", re.DOTALL)
_SPAN: Final = re.compile(r"colspan=[\"']?(\d+)")


class TimingMask:
    """Mask of the timing columns and rows with the given names."""

    def __init__(self, names: Iterable[str] = TIMINGS) -> None:
        any_name = "|".join(map(re.escape, names))
        self._name = re.compile(rf"(?<!\S)(?:{any_name})(?!\S)")
        self._series = re.compile(rf"^Name: (?:{any_name}),", re.MULTILINE)
        # A row label, optionally after an index, followed by numbers only.
        self._row = re.compile(rf"^(\s*(?:\d+\s+)?(?:{any_name}))((?:\s+(?:{_NUMBER}|NaN|None))+)\s*$")
        self._labels = {_label(name) for name in names}

    def __call__(self, mime: str, text: str) -> str:
        """Replace the numbers in timing rows and columns of an output's tables with TIME."""
        if mime == "text/html":
            return _TABLE.sub(lambda table: self._html(table.group()), text)
        if self._name.search(text) is None and self._series.search(text) is None:
            return text
        return _BLOCK.sub(lambda block: "\n".join(self._lines(block.group().split("\n"))), text)

    def _lines(self, lines: list[str]) -> Iterator[str]:
        """Yield the masked lines of a block of text; a table starts at the line with its column names."""
        if any(map(self._series.match, lines)):
            lines = [re.sub(rf"(?<=\s){_NUMBER}$", _TIME, line) for line in lines]
        elif not any(map(self._name.search, lines)):
            yield from lines
            return
        ends: list[int] = []
        mixed = any(map(self._row.match, lines))
        for line in lines:
            if row := self._row.match(line):
                masked = f"{row[1]} {_VALUE.sub(_TIME, row[2])}"
            elif self._name.search(line):
                ends, masked = [name.end() for name in self._name.finditer(line)], line
            else:
                masked = _trim_zeros(_mask_columns(line, ends)) if mixed else _mask_columns(line, ends)
            yield " ".join(masked.split())  # column widths depend on the masked numbers

    def _html(self, table: str) -> str:
        """Mask the timings of an HTML table; columns are counted from the right, because row labels may have a rowspan."""
        rows = [list(_CELL.finditer(row)) for row in _TR.findall(table)]
        headers = [cells for cells in rows if not any(cell[2] == "td" for cell in cells)]
        columns = {column for cells in headers for column in self._columns(cells)}
        mixed = any(self._is_timing(cell[4]) for cells in rows if cells not in headers for cell in cells)

        def replace_row(match: re.Match[str]) -> str:
            cells = list(_CELL.finditer(match.group()))
            timing_row = any(self._is_timing(cell[4]) for cell in cells)
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

    def _columns(self, cells: list[re.Match[str]]) -> Iterator[int]:
        """Yield the indices of timing columns of a header row, counted from the right (0)."""
        index = 0
        for cell in reversed(cells):
            span = _SPAN.search(cell[3])
            width = int(span[1]) if span else 1
            if self._is_timing(cell[4]):
                yield from range(index, index + width)
            index += width

    def _is_timing(self, html: str) -> bool:
        """Return True for the name of a timing column or its display label ("First audio s, s", "total, s")."""
        return _label(unescape(re.sub(r"<[^>]*>", " ", html)).strip()) in self._labels


def _mask_columns(line: str, ends: list[int]) -> str:
    """Mask the numbers of a line that are right-aligned with the names of timing columns."""
    for end in reversed(ends):
        value = re.search(rf"(?<!\S){_NUMBER}$", line[:end])
        if value and not line[end : end + 1].strip():
            line = f"{line[: value.start()]}{_TIME}{line[end:]}"
    return line


def _trim_zeros(text: str) -> str:
    """Remove trailing zeros.

    pandas formats all numbers of a column with the same number of digits, so that the digits of other numbers depend on
    the times in the column.
    """
    return _VALUE.sub(lambda figure: re.sub(r"(\.\d*?)0+$", r"\1", figure.group()).rstrip("."), text)


def _label(name: str) -> str:
    """Return the letters and digits of a column name or display label, without its unit."""
    return re.sub(r"[\W_]", "", re.sub(r"(?:[_ ]s)?(?:, s)?$", "", name.lower()))
