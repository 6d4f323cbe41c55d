"""Finding: one thing that is wrong with a notebook; and how cells and outputs are read."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

__all__ = ["Finding", "asks", "code_cells", "mime_texts", "outputs_of"]

_COMMENTS: Final = {
    "NBVAL_IGNORE_OUTPUT": "nbval-ignore-output",
    "NBVAL_SKIP": "nbval-skip",
    "NBVAL_RAISES_EXCEPTION": "nbval-raises-exception",
}


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong: in which notebook, in which cell (from 1, as they stand; None: the whole), and what.

    ``kind`` is one of not-a-notebook, size, secret, stale, times, path, widget, preview, kernel, error, timeout, memory,
    processor, difference. ``detail`` is what a reader may want to see besides, in lines: the traceback of an error.
    """

    notebook: Path
    cell: int | None
    kind: str
    message: str
    detail: str = ""

    def __str__(self) -> str:
        place = f"{self.notebook}:{self.cell}" if self.cell is not None else str(self.notebook)
        return f"{place}: {self.kind}: {self.message}"


def code_cells(notebook: Any) -> Iterator[tuple[int, Any]]:
    """Yield the code cells that say something, each with its place among all cells, from 1."""
    for number, cell in enumerate(notebook.cells, start=1):
        if cell.cell_type == "code" and cell.source.strip():
            yield number, cell


def asks(cell: Any, *wishes: str) -> bool:
    """Say whether a cell has one of these tags, or the comment that nbval takes for it ("nbval-skip": # NBVAL_SKIP)."""
    found = {str(tag).lower().replace("_", "-") for tag in cell.metadata.get("tags", ())}
    for line in cell.source.splitlines():
        if line.lstrip().startswith("#"):
            found.add(_COMMENTS.get(line.strip().lstrip("#").strip(), ""))
    return not found.isdisjoint(wishes)


def outputs_of(cell: Any) -> list[Any]:
    """Return a cell's outputs; those of other cells than code are none."""
    return list(cell.get("outputs", ()))


def mime_texts(output: Any) -> Iterator[tuple[str, str]]:
    """Yield what an output shows as (media type, text); a stream and an error are text/plain."""
    if output.output_type == "stream":
        yield "text/plain", output.text
    elif output.output_type == "error":
        yield "text/plain", "\n".join([f"{output.ename}: {output.evalue}", *output.traceback])
    else:
        for mime, value in output.get("data", {}).items():
            yield mime, value if isinstance(value, str) else repr(value)
