"""A sweep's result as one HTML page that needs nothing else: every take plays, every column sorts."""

from __future__ import annotations

import base64
from collections.abc import Iterable
from html import escape
from pathlib import Path
from typing import Final, TextIO

from voicelab.errors import StoreError, VoicelabError
from voicelab.experiments.metrics import Metric, measure_rows
from voicelab.experiments.metrics.measure import resolve
from voicelab.experiments.sweeps.axes import short_name
from voicelab.experiments.sweeps.result import SweepResult
from voicelab.experiments.sweeps.rows import row_of
from voicelab.views.sweep import SHOWN, figure

__all__ = ["write_page"]

_BITRATE: Final = 64
_STYLE: Final = """
:root { color-scheme: light dark; }
body { font: 14px system-ui, sans-serif; margin: 1.5rem; }
table { border-collapse: collapse; }
th, td { padding: 4px 10px; text-align: left; border-bottom: 1px solid #8886; }
th { position: sticky; top: 0; background: Canvas; }
th button { all: unset; cursor: pointer; font-weight: 600; }
th button:focus-visible { outline: 2px solid #d55e00; }
td.number { font-variant-numeric: tabular-nums; text-align: right; }
audio { height: 32px; width: 230px; }
.trouble { color: light-dark(#b71c1c, #ff8a80); }
"""
# By numbers where both cells have one; what has no value goes last either way.
_SCRIPT: Final = """
for (const [column, head] of document.querySelectorAll("th").entries()) {
  const button = head.querySelector("button");
  if (button) button.onclick = () => {
    const down = head.getAttribute("aria-sort") === "ascending";
    for (const other of document.querySelectorAll("th")) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", down ? "descending" : "ascending");
    const body = document.querySelector("tbody");
    const key = (row) => row.cells[column]?.dataset.value ?? "";
    const rows = [...body.rows].sort((a, b) => {
      const [x, y] = [key(a), key(b)];
      if (x === "" || y === "") return (x === "") - (y === "");
      const order = isNaN(x) || isNaN(y) ? x.localeCompare(y) : x - y;
      return down ? -order : order;
    });
    body.append(...rows);
  };
}
"""


def write_page(result: SweepResult, path: str | Path, metrics: Iterable[str | Metric] = SHOWN) -> Path:
    """Write all takes of a result, with their sound, axes and measurements, into one HTML file; return its path.

    The sound is mp3 of 64 kbit/s, so that a page of a hundred sentences is some 4 MB; ``export`` has the originals.
    Raises StoreError when it cannot be written, RequestInvalid for an unknown metric.
    """
    path, chosen = Path(path), resolve(metrics)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("w", encoding="utf-8") as file:
            _write(result, file, chosen)
    except OSError as error:
        if isinstance(error, VoicelabError):
            raise
        raise StoreError(f"{path} cannot be written: {error.strerror or error}") from error
    return path


def _write(result: SweepResult, file: TextIO, metrics: tuple[Metric, ...]) -> None:
    axes = [axis.name for axis in result.grid.axes]
    heads = [*map(short_name, axes), "take", "", *(f"{metric.name} {metric.unit}".strip() for metric in metrics)]
    cells = "".join(
        f'<th scope="col"><button>{escape(head)}</button></th>' if head else '<th scope="col">sound</th>'
        for head in heads
    )
    title = escape(repr(result))
    file.write(
        f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        f"<style>{_STYLE}</style></head><body><h1>{title}</h1>"
        f"<p>Sound: mp3, {_BITRATE} kbit/s, as loud as it was made. A click on a heading sorts.</p>"
        f"<table><thead><tr>{cells}</tr></thead><tbody>\n"
    )
    for outcome in result.outcomes:
        row = row_of(outcome, result.grid)
        labels = [row.labels[name] for name in axes] + [str(outcome.job.repeat + 1)]
        parts = [_cell(label, label) for label in labels]
        if row.hear is None:
            parts.append(f'<td class="trouble" colspan="{len(metrics) + 1}">{escape(row.error)}</td>')
        else:
            clip = row.hear()
            (measured,) = measure_rows((clip,), metrics)
            audio = base64.b64encode(clip.to_bytes("mp3", bitrate=_BITRATE)).decode("ascii")
            source = f"data:audio/mpeg;base64,{audio}"
            parts.append(f'<td><audio controls preload="metadata" src="{source}"></audio></td>')
            parts += [_figure(measured[metric.name], metric) for metric in metrics]
        file.write(f"<tr>{''.join(parts)}</tr>\n")
    file.write(f"</tbody></table><script>{_SCRIPT}</script></body></html>\n")


def _cell(text: str, value: str, kind: str = "") -> str:
    return f'<td class="{kind}" data-value="{escape(value)}">{escape(text)}</td>'


def _figure(value: float, metric: Metric) -> str:
    text = figure(value, metric.unit)
    return _cell(text, "" if text == "–" else repr(value), "number")
