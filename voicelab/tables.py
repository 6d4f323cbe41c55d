"""Tables in files: read CSV with any separator and encoding, JSON and Excel; write CSV that is safe in spreadsheets.

Text that a spreadsheet would run as a formula is prefixed with a single quote (OWASP, "CSV Injection"). Numbers, including
negative numbers, are unchanged. Machine-readable formats (``metadata.csv`` of audiofolder and LJSpeech, Kaldi's lists) are
written without these quotes, which would change the transcripts.
"""

from __future__ import annotations

import codecs
import csv
import io
import json
import os
import re
import zipfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, Final

from voicelab.errors import MissingExtra, StoreError, some

if TYPE_CHECKING:
    import pandas as pd

JSON_SUFFIXES: Final = (".json", ".jsonl")
SUFFIXES: Final = (".csv", ".tsv", ".xlsx", ".xlsm", *JSON_SUFFIXES)
"""Suffixes of tables, in lower case."""

# Spreadsheets also interpret full-width signs. Leading quotes are matched so that every text is restored exactly.
_FORMULA: Final = re.compile(r"'*[=+\-@\t\r\n＝＋－＠]")
_NUMBER: Final = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?", re.ASCII)
_BOMS: Final = {
    codecs.BOM_UTF8: "utf-8-sig", codecs.BOM_UTF32_LE: "utf-32", codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16",
}  # fmt: skip
# In Western texts, non-ASCII letters are isolated and too few for detection; in other scripts they form words.
_HIGH_BYTES: Final = re.compile(rb"[\x80-\xff]+")
_MIN_RUN: Final = 1.6
_ENCODINGS: Final = [
    "gb18030", "big5", "cp932", "cp949", "cp1251", "koi8_r", "cp1253", "cp1255", "cp1256", "cp874", "cp1252"
]  # fmt: skip
_SEPARATORS: Final = "\t;|,"
_DECIMAL: Final = re.compile(r"[+-]?\d+(,\d+)?", re.ASCII)
_MAX_LISTED: Final = 20
_MAX_TITLES: Final = 10
_ZIP: Final = b"PK\3\4"
_ARCHIVE: Final = re.compile(r"\.ark:\d+$")
_ADDRESS: Final = re.compile(r"(\w[\w+.-]+):/(?=[^/])")  # Path removes the second slash; not a drive of Windows


@dataclass(slots=True)
class Cells:
    """Cells of a table as text in rows of equal length, the header row first; ``notes`` describe how they were read.

    ``numbers`` are the numbers of the rows in the file, from 1, as in a spreadsheet.
    """

    rows: list[list[str]]
    numbers: list[int]
    separator: str = ""
    notes: list[str] = field(default_factory=list)


def read_table(path: str | Path, names: Iterable[str] = ()) -> pd.DataFrame:
    """Read a table from a CSV, Excel or JSON file.

    CSV: the separator (comma, semicolon, tab or vertical bar) is the one that gives rows of equal length; quotes follow
    RFC 4180, or belong to the text if they are unbalanced. The encoding is UTF-8 or UTF-16, else detected. Excel: the
    first sheet with a known column is read, or else the first sheet; rows above its header are skipped, and merged
    cells have the same value. JSON: a list of objects, or an object per line.
    Empty rows are skipped.

    Args:
        path: the file; CSV and Excel are distinguished by content, JSON by the suffix.
        names: column names that the caller knows. A column name that differs from a known name only in case, spaces, hyphens
            and underscores is renamed: "File Name" to ``file_name``. Others are unchanged.

    Returns:
        A table of strings, "" for an empty cell (values of JSON keep their types). In files that are not separated by commas,
        decimal commas become points. The index has the numbers of the rows as a spreadsheet shows them, of a JSON file those
        of its items or lines. ``attrs["notes"]`` lists, as sentences, the guesses and changes made.

    Raises:
        StoreError: the file cannot be read or is not a table, rows have more cells than the header row, or rows are
            not JSON objects; the message names the first of these rows.
        MissingExtra: the file is an Excel file, and openpyxl is not installed.
    """
    import pandas as pd

    path = Path(path)
    if path.suffix.lower() in JSON_SUFFIXES:
        records = _json_rows(path)
        table = pd.DataFrame([*records.values()], index=[*records])
        return table.rename(columns=known_names(table.columns, names))
    return table_of(read_cells(path, names), names, path.name)


def _json_rows(path: Path) -> dict[int, dict[str, Any]]:
    """Return the objects of a JSON file by the numbers of items or lines."""
    text = read_text(path)
    try:
        whole = json.loads(text)
        kind, rows = "item", list(enumerate(whole if isinstance(whole, list) else [whole], start=1))
    except ValueError:
        kind, rows = "line", [(n, _parsed(line)) for n, line in enumerate(text.split("\n"), start=1) if line.strip()]
    if others := [f"{kind} {number} is {str(row)[:40]!r}" for number, row in rows if not isinstance(row, dict)]:
        message = f"{path} must be a list of JSON objects, or have a JSON object per line"
        raise StoreError(f"{message}: {some(others, _MAX_LISTED, '; ')}")
    return {number: row for number, row in rows if row}


def _parsed(line: str) -> Any:
    try:
        return json.loads(line)
    except ValueError:
        return line.strip()


def table_of(cells: Cells, names: Iterable[str] = (), title: str = "the table") -> pd.DataFrame:
    """Convert cells, the first row of which is the header, to a table as returned by ``read_table``."""
    import pandas as pd

    headings: list[str] = []
    for number, cell in enumerate(cells.rows[0], start=1):
        name = " ".join(cell.split()) or f"column_{number}"
        if name in headings:
            cells.notes.append(f"{title} has two columns {name!r}; column {number} is renamed {name}_{number}.")
            name = f"{name}_{number}"
        headings.append(name)
    table = pd.DataFrame(cells.rows[1:], index=cells.numbers[1:], columns=headings, dtype=str)
    empty = [name for name in headings if name.startswith("column_") and not table[name].any()]
    table = table.drop(columns=empty).rename(columns=known_names(headings, names))
    if cells.separator != ",":
        decimal = [name for name in map(str, table) if _has_decimal_commas(table[name])]
        table[decimal] = table[decimal].replace(",", ".", regex=True)
        if decimal:
            cells.notes.append(f"{title}: commas are read as decimal points in {', '.join(decimal)}.")
    table.attrs["notes"] = tuple(cells.notes)
    return table


def _has_decimal_commas(column: pd.Series[str]) -> bool:
    filled = [cell.strip() for cell in column if cell.strip()]
    return any("," in cell for cell in filled) and all(_DECIMAL.fullmatch(cell) for cell in filled)


def known_names(headings: Iterable[object], names: Iterable[str]) -> dict[str, str]:
    """Map column names to the known names from which they differ only in case, spaces, hyphens and underscores."""
    typed = [str(heading) for heading in headings]
    by_folded = {folded(name): name for name in names}
    renamed: dict[str, str] = {}
    for heading in typed:
        name = by_folded.get(folded(heading), heading)
        if name != heading and name not in typed and name not in renamed.values():
            renamed[heading] = name
    return renamed


def folded(name: str) -> str:
    """Return a name in lower case, with spaces, hyphens and underscores removed."""
    return re.sub(r"[\s_-]+", "", name).casefold()


def read_cells(path: Path, names: Iterable[str] = ()) -> Cells:
    """Read the cells of a CSV or Excel file. Raises the errors of ``read_table``."""
    data = bytes_of(path)
    if data.startswith(_ZIP):
        return _excel_cells(path, data, names)
    text, notes = _decode(path, data)
    if re.match(r"\s*<(!doctype|html)", text, re.IGNORECASE):
        raise StoreError(f"{path} must be a table, got an HTML page")
    separators = _SEPARATORS
    if text.startswith("sep=") and len(first := text.partition("\n")[0].strip()) == 5:  # written by Excel
        text, separators = text.partition("\n")[2], first[4:]
    line = next((line for line in text.splitlines() if line.strip()), "")
    present = [separator for separator in separators if separator in line] or [","]
    parsed = [
        Cells([*rows.values()], [*rows], separator, notes)
        for quoting in (csv.QUOTE_MINIMAL, csv.QUOTE_NONE)
        for separator in present
        if (rows := _parse(text, separator, quoting))
    ]
    if not parsed:
        raise StoreError(f"{path} must be a table with a header row, got an empty file")
    cells = max(parsed, key=lambda cells: (_regularity(cells.rows), len(cells.rows[0])))
    width = len(cells.rows[0])
    problems = []
    for number, row in zip(cells.numbers, cells.rows, strict=True):
        while len(row) > width and not row[-1].strip():
            row.pop()
        if len(row) > width:
            problems.append(f"row {number} has {len(row)} cells instead of {width}: {', '.join(row)[:80]}")
        row.extend([""] * (width - len(row)))
    if problems:
        listed = some(problems, _MAX_LISTED, "; ")
        raise StoreError(
            f"{path} must have a cell for every column in every row; {listed}; quote cells with {cells.separator!r}"
        )
    return cells


def _parse(text: str, separator: str, quoting: Any) -> dict[int, list[str]]:
    """Parse CSV; return the rows that are not empty by number, {} if quotes are unbalanced."""
    try:
        reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator, quoting=quoting, strict=True)
        return {number: row for number, row in enumerate(reader, start=1) if any(map(str.strip, row))}
    except csv.Error:
        return {}


def _regularity(rows: Sequence[Sequence[str]]) -> float:
    """Compute the proportion of rows that are as long as the first."""
    return sum(len(row) == len(rows[0]) for row in rows) / len(rows)


def _excel_cells(path: Path, data: bytes, names: Iterable[str]) -> Cells:
    import pandas as pd

    with MissingExtra.where("excel", f"reading {path.name}, an Excel file,"):
        import openpyxl  # noqa: F401
    try:
        # Openpyxl reads merged cells only without this mode.
        with pd.ExcelFile(io.BytesIO(data), engine="openpyxl", engine_kwargs={"read_only": False}) as book:
            tables = pd.read_excel(book, sheet_name=None, header=None, dtype=str, keep_default_na=False)
            arrays = {str(name): table.fillna("").to_numpy() for name, table in tables.items()}
            for name, array in arrays.items():
                for cells in book.book[name].merged_cells.ranges:
                    merged = array[cells.min_row - 1 : cells.max_row, cells.min_col - 1 : cells.max_col]
                    merged[:] = merged[:1, :1]
    except (OSError, ValueError, KeyError, zipfile.BadZipFile) as error:
        raise StoreError(f"{path} cannot be read as an Excel file: {error}") from error
    sheets = {
        name: {number: row for number, row in enumerate(array.tolist(), start=1) if any(map(str.strip, row))}
        for name, array in arrays.items()
    }
    columns = {folded(name) for name in names}
    matches = {
        name: [len(columns & set(map(folded, row))) for row in islice(rows.values(), _MAX_TITLES)]
        for name, rows in sheets.items()
    }
    headed = [name for name, counts in matches.items() if any(counts[:1])] or [
        name for name in matches if any(matches[name])
    ]
    chosen = next(iter(headed or sheets))
    if not sheets[chosen]:
        raise StoreError(f"{path} must be a table with a header row, got an empty sheet {chosen!r}")
    ignored = ", ".join(repr(name) for name in sheets if name != chosen)
    notes = [f"{path.name}: sheet {chosen!r} is read, not {ignored}."] if ignored else []
    counts = matches[chosen]
    titles = 0 if counts[0] else counts.index(max(counts))  # rows above the header
    rows, numbers = list(sheets[chosen].values())[titles:], list(sheets[chosen])[titles:]
    if titles:
        notes.append(f"{path.name}: the header is {', '.join(rows[0])}; rows above it are not read.")
    return Cells(rows, numbers, notes=notes)


def bytes_of(path: Path) -> bytes:
    """Read a file. Raises StoreError, which names the file; addresses are not fetched, and commands (Kaldi) are not run."""
    try:
        return path.read_bytes()
    except OSError as error:
        name, reason = path_text(path), error.strerror or str(error)
        if "://" in name:
            reason = "it is an address, not a file; download it"
        elif name.endswith("|"):
            reason = "it is a command, which is not run; save its output as a file"
        elif _ARCHIVE.search(name):
            reason = "it is in a Kaldi archive, which is not read; save it as a file"
        raise StoreError(f"{name} cannot be read: {reason}") from error


def path_text(path: str | Path) -> str:
    """Return a path as text that can be printed and stored: bytes that are not UTF-8 are escaped."""
    return _ADDRESS.sub(r"\1://", os.fsencode(path).decode("utf-8", "backslashreplace"))


def read_text(path: Path) -> str:
    """Read a text file: UTF-8 or UTF-16, else in the detected encoding. Raises StoreError, which names the file."""
    return _decode(path, bytes_of(path))[0]


def _decode(path: Path, data: bytes) -> tuple[str, list[str]]:
    """Decode a text file; return the text and notes on a detected encoding."""
    for bom, encoding in _BOMS.items():
        if data.startswith(bom):
            return data.decode(encoding, "replace"), []
    zeros = data[:4096].count(0)
    if 3 * zeros > len(data[:4096]) * 2 or 0 < 3 * zeros < len(data[:4096]):
        raise StoreError(f"{path} must be text, got binary data")
    if zeros:
        encodings = ["utf-16-be" if data[:1] == b"\0" else "utf-16-le"]
    else:
        try:
            return data.decode("utf-8"), []
        except UnicodeDecodeError:
            encodings = [_detected(data), "latin-1"]
    for encoding in encodings:
        try:
            text = data.decode(encoding)
        except UnicodeDecodeError:
            continue
        note = f"{path.name} is read in the encoding {encoding}, which was detected: save it in UTF-8 if letters are wrong."
        return text, [note]
    raise StoreError(f"{path} must be text in UTF-8 or UTF-16")


def csv_bytes(table: pd.DataFrame) -> bytes:
    """Encode a table, excluding its index, as UTF-8 CSV; escape texts and column names for spreadsheets."""
    safe = table.map(_escape).rename(columns=_escape)
    # Minimal quoting leaves a carriage return unquoted, and readers would end the row there.
    bare = safe.map(lambda value: isinstance(value, str) and "\r" in value).any(axis=None)
    text: str = safe.to_csv(
        index=False, lineterminator="\n", quoting=csv.QUOTE_NONNUMERIC if bare else csv.QUOTE_MINIMAL
    )
    return text.encode()


def restore_texts(table: pd.DataFrame) -> pd.DataFrame:
    """Undo the escaping of ``csv_bytes`` in the texts and column names of a table."""
    return table.map(_restore).rename(columns=_restore)


def _escape(value: Any) -> Any:
    text = str(value) if isinstance(value, str | PurePath) else ""
    return f"'{text}" if _FORMULA.match(text) and not _NUMBER.fullmatch(text) else value


def _restore(value: Any) -> Any:
    return value[1:] if isinstance(value, str) and value[:1] == "'" and _FORMULA.match(value) else value


def _detected(data: bytes) -> str:
    from charset_normalizer import from_bytes

    runs = _HIGH_BYTES.findall(data)
    if sum(map(len, runs)) < _MIN_RUN * len(runs):
        return "cp1252"
    best = from_bytes(data, cp_isolation=_ENCODINGS).best()
    return "cp1252" if best is None else best.encoding
