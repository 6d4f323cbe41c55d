"""CSV files that a spreadsheet opens safely: text that would run as a formula gets a single quote before it.

Source: OWASP, "CSV Injection". Numbers stay numbers, also negative ones. Files of formats for machines (``metadata.csv`` of
audiofolder and LJSpeech, Kaldi's) have no such quotes, which would change the transcripts there.
"""

from __future__ import annotations

import csv
import re
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import pandas as pd

# Spreadsheets take full-width signs too. Leading quotes are matched so that every text is restored exactly.
_FORMULA: Final = re.compile(r"'*[=+\-@\t\r\n＝＋－＠]")
_NUMBER: Final = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?", re.ASCII)


def csv_bytes(table: pd.DataFrame) -> bytes:
    """Encode a table without its index as CSV in UTF-8, its texts and column names safe for spreadsheets."""
    safe = table.map(_escape).rename(columns=_escape)
    # Minimal quoting leaves a carriage return bare, where readers end the row.
    bare = safe.map(lambda value: isinstance(value, str) and "\r" in value).any(axis=None)
    text: str = safe.to_csv(
        index=False, lineterminator="\n", quoting=csv.QUOTE_NONNUMERIC if bare else csv.QUOTE_MINIMAL
    )
    return text.encode()


def restore_texts(table: pd.DataFrame) -> pd.DataFrame:
    """Return a table read from a file of ``csv_bytes`` with its texts and column names as they were."""
    return table.map(_restore).rename(columns=_restore)


def _escape(value: Any) -> Any:
    text = str(value) if isinstance(value, str | PurePath) else ""
    return f"'{text}" if _FORMULA.match(text) and not _NUMBER.fullmatch(text) else value


def _restore(value: Any) -> Any:
    return value[1:] if isinstance(value, str) and value[:1] == "'" and _FORMULA.match(value) else value
