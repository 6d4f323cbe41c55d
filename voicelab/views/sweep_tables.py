"""A Sweep and its result without widgets: tables for a notebook, and one HTML page that needs nothing else.

In a notebook's tables there are no figures of time (real-time factor, first audio), nor whether a take came from the
cache: they differ from one run to the next, and a committed notebook is compared with a new one.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from html import escape
from pathlib import Path
from typing import Final

from voicelab.call import short_name
from voicelab.clip import Clip
from voicelab.errors import ArgumentError, VoicelabError, shortened
from voicelab.metrics import METRICS, Metric, listener_note, measure_rows
from voicelab.metrics.measure import resolve
from voicelab.storage import check_writable, on_disk, open_atomic
from voicelab.sweeps.result import SweepResult, row_of
from voicelab.sweeps.run import Outcome, estimate
from voicelab.sweeps.sweep import Sweep
from voicelab.sweeps.systems import SystemComparison
from voicelab.views.bundles import (
    BUDGET,
    TableCell,
    audio_element,
    embedded_audios,
    error_html,
    format_figure,
    metric_label,
    small_print,
    systems_bundle,
    table,
    table_row,
)

SHOWN: Final = ("duration", "loudness", "word_rate")
"""Metrics under each take, when none are named."""

_ROWS: Final = 60
_VALUES: Final = 8
_LONGEST: Final = 60
_PAGE_BITRATE: Final = 64
_PAGE: Final = Path(__file__).parent / "static" / "page"


def sweep_bundle(sweep: Sweep) -> dict[str, str]:
    """Return what a sweep will do: its axes, how many takes, and what all of them need. Nothing runs."""
    jobs = sweep.jobs()
    needed = estimate(jobs, {name: backend.capabilities for name, backend in sweep.backends.items()})
    rows = [(short_name(axis.name), len(axis), _some(axis.labels)) for axis in sweep.axes]
    if sweep.repeats > 1:
        rows.append(("takes of each", sweep.repeats, f"seeds drawn from {sweep.seed}"))
    axes = table(("axis", "values", ""), rows)
    html = f"<div>{escape(repr(sweep))}</div>{axes}<div>In all: {escape(str(needed))}.</div>"
    note = '<div style="opacity:0.75">Nothing has run: <code>run()</code> does, <code>panel()</code> shows it.</div>'
    return {"text/html": small_print(html + note), "text/plain": f"{sweep!r}\nIn all: {needed}."}


def result_bundle(result: SweepResult) -> dict[str, str]:
    """Return a table of the takes: a player and a few figures for each, errors where they happened.

    The sound of all players together stays within ``BUDGET``; where it bites, the table says for how many.
    """
    outcomes = result.outcomes[:_ROWS]
    clips: dict[int, Clip] = {}
    problems: dict[int, Exception] = {}
    for place, outcome in enumerate(outcomes):
        try:
            if outcome.take is not None:
                clips[place] = outcome.take.clip()
            elif outcome.error is not None:
                problems[place] = outcome.error
        except VoicelabError as error:
            problems[place] = error
    sounds, note = embedded_audios(list(clips.values()), BUDGET)
    audio = dict(zip(clips, sounds, strict=True))
    figures = dict(zip(clips, measure_rows(clips.values(), SHOWN), strict=True)) if clips else {}
    axes = [axis.name for axis in result.grid.axes]
    several = result.grid.repeats > 1
    units = {name: METRICS[name].unit for name in SHOWN}
    heads = [*map(short_name, axes), *(("take",) if several else ()), ""]
    heads += [f"{name}, {unit}".rstrip(", ") for name, unit in units.items()]
    rows = []
    for place, outcome in enumerate(outcomes):
        row: list[object] = [shortened(outcome.job.cell.labels[name], _LONGEST) for name in axes]
        row += [outcome.job.repeat + 1] if several else []
        if place in clips:
            data = audio[place]
            row.append(TableCell(audio_element(data, "height:30px;width:220px", preload="metadata") if data else ""))
            row += [format_figure(figures[place][name], unit) for name, unit in units.items()]
        else:
            row.append(TableCell(error_html(problems[place])))
        rows.append(row)
    left = len(result.outcomes) - len(outcomes)
    if left > 0:
        note += f"; {left} more takes are not shown: panel() shows all, export() writes them"
    note = ". ".join((note, *result.notes))
    html = f'<div>{escape(repr(result))}</div>{table(heads, rows)}<div role="note" style="opacity:0.75">'
    return {"text/html": small_print(f"{html}{escape(note)}</div>"), "text/plain": repr(result)}


def _some(labels: Sequence[str]) -> str:
    shown = " · ".join(shortened(label, _LONGEST) for label in labels[:_VALUES])
    return shown if len(labels) <= _VALUES else f"{shown} · … · {shortened(labels[-1], _LONGEST)}"


def check_page(path: str | Path) -> Path:
    """Return the path of a page after checking, before takes are measured, that it ends in .html and can be written."""
    path = Path(path)
    if path.suffix.lower() not in {".html", ".htm"}:
        raise ArgumentError.of("path", f"must end in .html, got {str(path)!r}")
    check_writable(path)
    return path


def write_systems_page(systems: SystemComparison, path: str | Path, metrics: Iterable[str | Metric] = ()) -> Path:
    """Write the table of systems above all their takes at one loudness into one HTML file; see ``write_page``."""
    chosen = tuple(metrics) or systems.metrics
    check_page(path)
    above = systems_bundle(systems)["text/html"]
    return write_page(systems.result, path, chosen, above=above, heard=systems.heard, level=systems.loudness_note)


def write_page(
    result: SweepResult,
    path: str | Path,
    metrics: Iterable[str | Metric] = SHOWN,
    *,
    above: str = "",
    heard: Callable[[Outcome], Clip] | None = None,
    level: str = "as loud as it was made",
) -> Path:
    """Write all takes of a result, with their sound, axes and measurements, into one HTML file; return its path.

    The sound is mp3 of 64 kbit/s, so that a page of a hundred sentences is some 4 MB; ``export`` has the originals.
    ``above`` is what stands over the takes; ``heard`` gives the clips that play, where they are not as loud as they were
    made, and ``level`` says how loud they are. Raises StoreError when it cannot be written, ArgumentError for another suffix
    than .html and for an unknown metric.
    """
    path, chosen = check_page(path), resolve(metrics)
    with on_disk(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        with open_atomic(path, sync=False) as file:
            file.writelines(part.encode() for part in _page(result, chosen, above, heard, level))
    return path


def _heading(metric: Metric) -> str:
    """Return a metric's name with its unit, or with the ASR model that it needs."""
    return metric_label(metric.name) if "recognizer" in metric.needs else f"{metric.name} {metric.unit}".strip()


def _page(
    result: SweepResult, metrics: Sequence[Metric], above: str, heard: Callable[[Outcome], Clip] | None, level: str
) -> Iterator[str]:
    axes = [axis.name for axis in result.grid.axes]
    heads = [*map(short_name, axes), "take", "", *map(_heading, metrics)]
    note = listener_note(metrics)
    notes = f"<p>{escape(note)}</p>" if note not in above else ""
    head_cells = "".join(
        f'<th scope="col"><button>{escape(head)}</button></th>' if head else '<th scope="col">sound</th>'
        for head in heads
    )
    title = escape(repr(result))
    yield f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
    yield f"<style>{_PAGE.with_suffix('.css').read_text(encoding='utf-8')}</style></head><body><h1>{title}</h1>"
    yield f"{above}{notes}<p>Sound: mp3, {_PAGE_BITRATE} kbit/s, {escape(level)}. A click on a heading sorts.</p>"
    yield f"<table><thead><tr>{head_cells}</tr></thead><tbody>\n"
    # Row by row: a page of thousands of takes would not fit into memory.
    for outcome in result.outcomes:
        row = row_of(outcome, result.grid)
        labels = [row.labels[name] for name in axes] + [str(outcome.job.repeat + 1)]
        cells = [_sortable(label, label) for label in labels]
        if row.hear is None:
            cells.append(TableCell(escape(row.error), 'class="trouble"'))
        else:
            clip = row.hear() if heard is None else heard(outcome)
            (measured,) = measure_rows((clip,), metrics)
            data = base64.b64encode(clip.to_bytes("mp3", bitrate=_PAGE_BITRATE)).decode("ascii")
            cells.append(TableCell(audio_element(data, "height:32px;width:230px", preload="metadata"), ""))
            for metric in metrics:
                value = measured[metric.name]
                shown = format_figure(value, metric.unit)
                cells.append(_sortable(shown, repr(value) if math.isfinite(value) else "", "number"))
        yield table_row(cells, len(heads)) + "\n"
    yield f"</tbody></table><script>{_PAGE.with_suffix('.js').read_text(encoding='utf-8')}</script></body></html>\n"


def _sortable(text: str, value: str, kind: str = "") -> TableCell:
    return TableCell(escape(text), f'class="{kind}" data-value="{escape(value)}"')
