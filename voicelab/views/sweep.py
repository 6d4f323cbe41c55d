"""What a Sweep and its result show as a cell's last value: static, the same every time, playable without a kernel.

Figures of time (real-time factor, first audio) and whether a take was kept are not in them: they differ from one run
to the next, and a committed notebook is compared with a new one.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Iterable, Sequence
from html import escape
from typing import Any, Final

from voicelab.audio.clip import Clip
from voicelab.errors import VoicelabError
from voicelab.experiments.metrics import METRICS, measure_rows
from voicelab.experiments.sweeps.axes import short_name
from voicelab.experiments.sweeps.budget import estimate
from voicelab.experiments.sweeps.result import SweepResult
from voicelab.experiments.sweeps.run import Outcome
from voicelab.experiments.sweeps.sweep import Sweep
from voicelab.experiments.telling import told
from voicelab.views.display import BUDGET, INK

__all__ = ["SHOWN", "figure", "result_bundle", "sounds", "sweep_bundle"]

SHOWN: Final = ("duration", "loudness", "word_rate")
"""Metrics under each take, when nobody says which."""

_ROWS: Final = 60
_VALUES: Final = 8
# kbit/s of mp3, best first.
_BITRATES: Final = (128, 64)
_LEFT: Final = "text-align:left;vertical-align:middle"


def sweep_bundle(sweep: Sweep) -> dict[str, str]:
    """Return what a sweep will do: its axes, how many takes, and what all of them need. Nothing runs."""
    jobs = sweep.jobs()
    needed = estimate(jobs, {name: backend.capabilities for name, backend in sweep.backends.items()})
    rows = [(short_name(axis.name), str(len(axis)), _some(axis.labels)) for axis in sweep.axes]
    if sweep.repeats > 1:
        rows.append(("takes of each", str(sweep.repeats), f"seeds drawn from {sweep.seed}"))
    table = _table(("axis", "values", ""), [[escape(cell) for cell in row] for row in rows])
    html = f"<div>{escape(repr(sweep))}</div>{table}<div>In all: {escape(str(needed))}.</div>"
    note = f'<div style="color:{INK}">Nothing has run: <code>run()</code> does, <code>panel()</code> shows it.</div>'
    return {"text/html": _page(html + note), "text/plain": f"{sweep!r}\nIn all: {needed}."}


def result_bundle(result: SweepResult) -> dict[str, str]:
    """Return a table of the takes: a player and a few figures for each, errors where they happened.

    The sound of all players together stays within ``BUDGET``; where it bites, the table says for how many.
    """
    outcomes = result.outcomes[:_ROWS]
    clips, troubles = _clips(outcomes)
    heard, told = sounds(list(clips.values()), BUDGET)
    audio = dict(zip(clips, heard, strict=True))
    figures = dict(zip(clips, measure_rows(clips.values(), SHOWN), strict=True)) if clips else {}
    axes = [axis.name for axis in result.grid.axes]
    several = result.grid.repeats > 1
    heads = [*map(short_name, axes), *(("take",) if several else ()), "", *(_head(name) for name in SHOWN)]
    rows = []
    for place, outcome in enumerate(outcomes):
        row = [escape(_short(outcome.job.cell.labels[name])) for name in axes]
        row += [str(outcome.job.repeat + 1)] if several else []
        if place in clips:
            row += [_player(audio[place]), *(figure(figures[place][name], METRICS[name].unit) for name in SHOWN)]
        else:
            row += [f'<span role="alert" style="color:var(--jp-error-color1,#c62828)">{escape(troubles[place])}</span>']
        rows.append(row)
    left = len(result.outcomes) - len(outcomes)
    if left > 0:
        told += f"; {left} more takes are not shown: panel() shows all, export() writes them"
    html = f'<div>{escape(repr(result))}</div>{_table(heads, rows)}<div role="note" style="color:{INK}">'
    return {"text/html": _page(f"{html}{escape(told)}</div>"), "text/plain": repr(result)}


def sounds(clips: Sequence[Clip], budget: int) -> tuple[list[str | None], str]:
    """Return the clips as base64 mp3 whose sum stays within ``budget`` bytes, and a sentence on what they are.

    All have the same bitrate, the better of 128 and 64 kbit/s that lets all in; where neither does, the first that
    fit are whole and of the others there is None.
    """
    seconds = sum(clip.duration for clip in clips)
    # 4/3 for base64; a frame or two of each file, and its header, are not sound.
    need = {rate: (seconds * rate * 125 + 1500 * len(clips)) * 4 / 3 for rate in _BITRATES}
    bitrate = next((rate for rate in _BITRATES if need[rate] <= budget), _BITRATES[-1])
    made: list[str | None] = []
    spent = 0
    for clip in clips:
        data = base64.b64encode(clip.to_bytes("mp3", bitrate=bitrate)).decode("ascii") if spent < budget else ""
        fits = bool(data) and spent + len(data) <= budget
        made.append(data if fits else None)
        # The first that does not fit ends it, or short takes would be heard and long ones not.
        spent = spent + len(data) if fits else budget
    heard = sum(data is not None for data in made)
    used = sum(len(data) for data in made if data is not None)
    told = f"mp3, {bitrate} kbit/s, {used / 1024:.0f} of {budget / 1024:.0f} KiB"
    if heard < len(made):
        told += f"; only the first {heard} of {len(made)} takes fit: panel() plays all, export() writes them"
    return made, told


def figure(value: float, unit: str) -> str:
    """Return a measurement for people; a dash where it is not defined."""
    if not math.isfinite(value):
        return "–"
    whole = unit == "Hz" or (not unit and value == int(value))
    return f"{value:.0f}" if whole else f"{value:.2f}" if abs(value) < 10 else f"{value:.1f}"


def _clips(outcomes: Iterable[Outcome]) -> tuple[dict[int, Clip], dict[int, str]]:
    """Return the clips by their places, and what is to be said in the other places."""
    clips, troubles = {}, {}
    for place, outcome in enumerate(outcomes):
        error = outcome.error
        if outcome.take is not None:
            try:
                clips[place] = outcome.take.clip()
            except VoicelabError as gone:
                error = gone
        if error is not None:
            troubles[place] = told(error)
    return clips, troubles


def _head(name: str) -> str:
    unit = METRICS[name].unit
    return f"{name}, {unit}" if unit else name


def _player(audio: str | None) -> str:
    if audio is None:
        return ""
    return f'<audio controls preload="metadata" src="data:audio/mpeg;base64,{audio}" style="height:30px;width:220px"></audio>'


def _some(labels: Sequence[str]) -> str:
    shown = " · ".join(_short(label) for label in labels[:_VALUES])
    return shown if len(labels) <= _VALUES else f"{shown} · … · {_short(labels[-1])}"


def _short(text: str) -> str:
    return text if len(text) <= 60 else text[:59] + "…"


def _page(html: str) -> str:
    return f'<div style="font-size:12px">{html}</div>'


def _table(heads: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Return a table of cells that are HTML already; the last cell of a short row spans what is left."""
    head = "".join(f'<th scope="col" style="{_LEFT}">{escape(text)}</th>' for text in heads)
    body = ""
    for row in rows:
        last = len(heads) - len(row) + 1
        cells = [f'<td style="{_LEFT}">{cell}</td>' for cell in row[:-1]]
        cells.append(f'<td style="{_LEFT}"{f" colspan={last}" if last > 1 else ""}>{row[-1]}</td>')
        body += f"<tr>{''.join(cells)}</tr>"
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
