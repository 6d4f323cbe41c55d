"""Tables of metrics that print a note on the ASR model below their rows."""

from __future__ import annotations

from html import escape
from typing import Any

import pandas as pd

from voicelab.display import note_on


class NotedTable(pd.DataFrame):
    """DataFrame that prints ``attrs["note"]`` below its rows while it has a column that the note names.

    The note begins with the names of the metrics: ``wer, cer: ASR model pocketsphinx. …``
    """

    @property
    def _constructor(self) -> Any:
        return NotedTable

    def __repr__(self) -> str:
        return "\n".join(filter(None, (super().__repr__(), note_on(self, (*self.columns, *self.index[:1000])))))

    def _repr_html_(self) -> str | None:
        html = pd.DataFrame._repr_html_(self)  # type: ignore[attr-defined]
        note = note_on(self, (*self.columns, *self.index[:1000]))
        return f"{html}\n<p>{escape(note)}</p>" if html and note else html


def noted(table: pd.DataFrame, note: str) -> pd.DataFrame:
    """Attach a note to a table, unless it is empty."""
    if not note:
        return table
    table = NotedTable(table)
    table.attrs["note"] = note
    return table
