"""Static outputs of a Sweep and a TakeTable: tables for a notebook, and one self-contained HTML page.

Tables for notebooks omit timing (real-time factor, first audio, cached takes). Timing differs between runs, and committed
notebooks are compared with new runs.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Iterable, Iterator, Sequence
from html import escape
from pathlib import Path
from typing import Final, Literal
from urllib.parse import quote

from voicelab.call import short_name
from voicelab.clip import Clip
from voicelab.errors import ArgumentError, VoicelabError, shortened
from voicelab.metrics import METRICS, Metric, listener_note, measure_rows
from voicelab.metrics.measure import resolve
from voicelab.runs.failures import error_message
from voicelab.stats.effects import format_difference, format_p
from voicelab.storage import check_writable, on_disk, open_atomic, write_atomic
from voicelab.sweeps.run import estimate
from voicelab.sweeps.sweep import Sweep
from voicelab.takes.table import TakeTable
from voicelab.views.bundles import (
    BUDGET,
    TableCell,
    audio_element,
    embedded_audios,
    error_html,
    format_figure,
    metric_label,
    small_print,
    table,
    table_row,
)

SHOWN: Final = ("duration", "loudness", "word_rate")
"""Default metrics below each take."""

_MAX_ROWS: Final = 60
# Maximum number of recordings that are measured for display, and rows shown if there are more.
_MAX_MEASURED: Final = 300
_MAX_UNMEASURED_ROWS: Final = 12
_MAX_VALUES: Final = 8
_MAX_LABEL: Final = 60
_PAGE_BITRATE: Final = 64
_PAGE: Final = Path(__file__).parent / "static" / "page"


def sweep_bundle(sweep: Sweep) -> dict[str, str]:
    """Return the static output of a sweep that has not run: its axes, the number of takes, and the estimate."""
    jobs = sweep.jobs()
    needed = estimate(jobs, {name: backend.capabilities for name, backend in sweep.backends.items()})
    rows = [(short_name(axis.name), len(axis), _some(axis.labels)) for axis in sweep.axes]
    if sweep.repeats > 1:
        rows.append(("repeats", sweep.repeats, f"seeds drawn from {sweep.seed}"))
    axes = table(("axis", "values", ""), rows)
    html = f"<div>{escape(repr(sweep))}</div>{axes}<div>In all: {escape(str(needed))}.</div>"
    note = '<div style="opacity:0.75">Not run yet; start it with <code>run()</code> or <code>panel()</code>.</div>'
    return {"text/html": small_print(html + note), "text/plain": f"{sweep!r}\nIn all: {needed}."}


def table_bundle(takes: TakeTable) -> dict[str, str]:
    """Return the static output of a table: the summary of a comparison of systems, or players and measurements.

    The audio of all players together stays within ``BUDGET``; a note states the number of takes without audio. If many
    recordings are not measured yet, only the first rows are shown.
    """
    unmeasured = len(takes) > _MAX_MEASURED and not takes.is_measured
    if takes.matched and takes.metrics and not unmeasured:
        return _summary_bundle(takes)
    complete = [row for row in takes.rows if row.state != "waiting"]
    rows = complete[: _MAX_UNMEASURED_ROWS if takes.matched else _MAX_ROWS]
    clips: dict[int, Clip] = {}
    problems: dict[int, Exception] = {}
    for index, row in enumerate(rows):
        try:
            if row.take is not None:
                clips[index] = row.take.clip()
            elif row.error is not None:
                problems[index] = row.error
        except VoicelabError as error:
            problems[index] = error
    sounds, note = embedded_audios(list(clips.values()), BUDGET)
    audio = dict(zip(clips, sounds, strict=True))
    figures = dict(zip(clips, measure_rows(clips.values(), SHOWN), strict=True)) if clips else {}
    columns, units = takes.shown_columns, {name: METRICS[name].unit for name in SHOWN}
    heads = [
        *(column.title for column in columns),
        "",
        *(f"{name}, {unit}".rstrip(", ") for name, unit in units.items()),
    ]
    body = []
    for index, row in enumerate(rows):
        cells: list[object] = [shortened(row.labels[column.name], _MAX_LABEL) for column in columns]
        if index in clips:
            data = audio[index]
            cells.append(TableCell(audio_element(data, "height:30px;width:220px", preload="metadata") if data else ""))
            cells += [format_figure(figures[index][name], unit) for name, unit in units.items()]
        else:
            cells.append(TableCell(error_html(problems[index])))
        body.append(cells)
    if len(complete) > len(rows):
        note += f"; {len(complete) - len(rows)} more takes are not shown: panel() shows all, export() writes them"
    if takes.matched:
        note += (
            f". summary() measures all {len(takes)} takes and compares the systems; "
            "here, takes play at their original level"
        )
    note = ". ".join((note, *takes.notes))
    html = f'<div>{escape(repr(takes))}</div>{table(heads, body)}<div role="note" style="opacity:0.75">'
    return {"text/html": small_print(f"{html}{escape(note)}</div>"), "text/plain": repr(takes)}


def _summary_bundle(takes: TakeTable) -> dict[str, str]:
    summary, rows = takes.summary(), []
    for name, row in summary.iterrows():
        largest = row.abs().max()
        cells = (format_p(x) if column == "p" else format_difference(x, largest, ".4g") for column, x in row.items())
        rows.append((name, *cells))
    level = f"{takes.loudness_note}; differences from {takes.systems[0]} with their intervals"
    if "p" not in summary:
        level = f"{takes.loudness_note}; differences and their intervals need more texts, or repeats"
    notes = [*takes.notes, *filter(None, [summary.attrs.get("note")])]
    lines = "".join(f"<div>{escape(line)}</div>" for line in (level, *notes))
    html = small_print(table(("metric", *summary.columns), rows) + lines)
    text = (repr(takes), summary.round(4).to_string(), *([level] if "except" in level else []), *notes)
    return {"text/html": html, "text/plain": "\n".join(text)}


def _some(labels: Sequence[str]) -> str:
    listed = " · ".join(shortened(label, _MAX_LABEL) for label in labels[:_MAX_VALUES])
    return listed if len(labels) <= _MAX_VALUES else f"{listed} · … · {shortened(labels[-1], _MAX_LABEL)}"


def check_page(path: str | Path) -> Path:
    """Check that the path of a page ends in .html and can be written, before takes are measured."""
    path = Path(path)
    if path.suffix.lower() not in {".html", ".htm"}:
        raise ArgumentError.of("path", f"must end in .html, got {str(path)!r}")
    check_writable(path)
    return path


def write_page(
    takes: TakeTable,
    path: str | Path,
    metrics: Iterable[str | Metric] = (),
    sounds: Literal["inside", "beside"] = "inside",
) -> Path:
    """Write a page: see ``TakeTable.page``."""
    path, chosen = check_page(path), tuple(metrics) or takes.metrics or SHOWN
    resolve(chosen)
    folder = {"inside": None, "beside": path.with_name(f"{path.stem}-sounds")}.get(sounds, path)
    if folder == path:
        raise ArgumentError.of("sounds", f"must be 'inside' or 'beside', got {sounds!r}")
    summary = _summary_bundle(takes)["text/html"] if takes.matched and takes.metrics else ""
    with on_disk(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        with open_atomic(path, sync=False) as file:
            file.writelines(text.encode() for text in _page(takes, chosen, summary, folder))
    return path


def _heading(metric: Metric) -> str:
    """Name a metric with its unit, or with the ASR model that it needs."""
    return metric_label(metric.name) if "recognizer" in metric.needs else f"{metric.name} {metric.unit}".strip()


def _page(takes: TakeTable, chosen: Sequence[str | Metric], summary: str, folder: Path | None) -> Iterator[str]:
    columns, metrics = takes.shown_columns, resolve(chosen)
    heads = [*(column.title for column in columns), "", *map(_heading, metrics)]
    note = listener_note(metrics)
    notes = f"<p>{escape(note)}</p>" if note not in summary else ""
    head_cells = "".join(
        f'<th scope="col"><button>{escape(head)}</button></th>' if head else '<th scope="col">sound</th>'
        for head in heads
    )
    title = escape(repr(takes))
    yield f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
    yield f"<style>{_PAGE.with_suffix('.css').read_text(encoding='utf-8')}</style></head><body><h1>{title}</h1>"
    where = f" in {escape(folder.name)}, which must stay next to this page" if folder else ""
    sound = f"Sound: mp3, {_PAGE_BITRATE} kbit/s{where}, {escape(takes.loudness_note)}. Click a column header to sort."
    yield f"{summary}{notes}<p>{sound}</p>"
    yield f"<table><thead><tr>{head_cells}</tr></thead><tbody>\n"
    figures = takes.frame(*chosen).to_dict("records")
    # Rows are written one by one, since a page of thousands of takes may exceed the memory.
    for number, (row, measured) in enumerate(
        zip((row for row in takes.rows if row.state != "waiting"), figures, strict=True)
    ):
        cells = [_sortable(row.labels[column.name], row.labels[column.name]) for column in columns]
        if row.error is not None:
            cells.append(TableCell(escape(error_message(row.error)), 'class="trouble"'))
        else:
            encoded = takes.clip_of(row).to_bytes("mp3", bitrate=_PAGE_BITRATE)
            if folder is None:
                data, preload = base64.b64encode(encoded).decode("ascii"), "metadata"
            else:
                data, preload = f"{quote(folder.name)}/{number:05d}.mp3", "none"
                write_atomic(folder / f"{number:05d}.mp3", encoded, sync=False)
            cells.append(TableCell(audio_element(data, "height:32px;width:230px", preload=preload), ""))
            for metric in metrics:
                value = measured[metric.name]
                text = format_figure(value, metric.unit)
                cells.append(_sortable(text, repr(value) if math.isfinite(value) else "", "number"))
        yield table_row(cells, len(heads)) + "\n"
    yield f"</tbody></table><script>{_PAGE.with_suffix('.js').read_text(encoding='utf-8')}</script></body></html>\n"


def _sortable(text: str, value: str, kind: str = "") -> TableCell:
    return TableCell(escape(text), f'class="{kind}" data-value="{escape(value)}"')
