"""Grid of takes: players with measurements, and controls to filter, sort, select and compare.

A page gets messages only about the takes that it shows, at most ten per second, so that the number of messages does not
depend on the size of the grid. Measurements and waveforms are computed outside the kernel's main thread.
"""

from __future__ import annotations

import itertools
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from html import escape
from typing import Any, Final, NamedTuple

import ipywidgets as w
import numpy as np
import traitlets

from voicelab.call import short_name
from voicelab.clip import Clip
from voicelab.errors import RequestInvalid, VoicelabError
from voicelab.metrics import Metric, measure_rows
from voicelab.metrics.measure import resolve
from voicelab.recordings import REPEAT
from voicelab.runs.failures import error_message
from voicelab.takes.cards import CardState, TakeCard, compare_cards, filter_cards, find_outlier, sort_cards
from voicelab.takes.comparison import with_words
from voicelab.takes.rows import Column
from voicelab.views.background import Task
from voicelab.views.bundles import format_figure, metric_label, with_unit
from voicelab.views.comparison_panel import ComparePanel
from voicelab.views.panel import (
    Ending,
    Panel,
    button,
    close_widgets,
    control,
    fold,
    hide,
    html,
    line,
    mark_wrong,
    problem_html,
    stack,
)
from voicelab.views.player import Player, pcm_bytes, playable
from voicelab.views.scripts import PageWidget
from voicelab.views.sweep_tables import SHOWN

COLUMNS: Final = 160
"""Columns of the small waveform of a take."""

Send = Callable[[dict[str, Any], list[bytes]], object]
"""Sends a message with its buffers to the page."""

_INTERVAL_S: Final = 0.1
# Interval of sorting while takes are measured.
_ORDER_S: Final = 0.5
_GRID_ORDER: Final = "Grid order"
# A file is sent to the page in pieces of this size in bytes, at this interval in seconds.
_PIECE, _PIECE_S = 2**18, 0.35


def take_labels(labels: Mapping[str, str]) -> dict[str, str]:
    """Replace the label of the repeat, counted from 0, by the number of the take, counted from 1, as on its button."""
    return {
        "take" if name == REPEAT else name: str(int(label) + 1) if name == REPEAT and label.isdecimal() else label
        for name, label in labels.items()
    }


def outline(clip: Clip) -> bytes:
    """Compute minimum and maximum of the samples in ``COLUMNS`` equal intervals, as signed bytes (127 is full scale)."""
    if not len(clip):
        return bytes(2 * COLUMNS)
    edges = np.linspace(0, len(clip), COLUMNS, endpoint=False).astype(int)
    low, high = np.minimum.reduceat(clip.samples, edges), np.maximum.reduceat(clip.samples, edges)
    # Rounded away from zero, so that quiet audio is visible.
    columns = np.stack((np.floor(low * 127.0), np.ceil(high * 127.0)), axis=1)
    return bytes(np.clip(columns, -127, 127).astype(np.int8))


class _Drawn(NamedTuple):
    """Waveform of a take for drawing, and the digest of its samples."""

    outline: bytes
    seconds: float
    sha256: str


class TakeRows:
    """Cards and their order, with a thread that runs while takes are measured or sent.

    All methods are thread-safe. ``metrics`` are measured for each new take, visible ones first. Raises ArgumentError for an
    unknown metric, MissingExtra for one that is not installed.
    """

    def __init__(self, send: Send, metrics: Iterable[str | Metric]) -> None:
        self.metrics = resolve(metrics)
        self._send = send
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._rows: dict[int, TakeCard] = {}
        self._look: tuple[str, str, bool] = ("", "", False)
        self._pinned: frozenset[int] = frozenset()
        self._order: list[int] = []
        self._stale, self._sorted, self._last = True, 0.0, 0.0
        self._drawn: dict[int, _Drawn] = {}
        self._color_metric, self._cells, self._repeats = "", 0, 1
        self._unmeasured: deque[int] = deque()
        self._shown: tuple[int, ...] = ()
        self._sent: dict[int, tuple[TakeCard, bool]] = {}
        self._counts: tuple[int, int] | None = None
        self._pending = self._closed = False
        self._task: Task | None = None

    @property
    def rows(self) -> tuple[TakeCard, ...]:
        """All cards, with the measurements made so far."""
        with self._lock:
            return tuple(self._rows.values())

    @property
    def shown(self) -> tuple[TakeCard, ...]:
        """Cards that match the filter, in their order on the page."""
        with self._lock:
            return tuple(self._arranged())

    def row(self, id: int) -> TakeCard | None:
        """Look up a card by id."""
        return self._rows.get(id)

    @contextmanager
    def _change(self, *, order: bool = True, at_once: bool = False) -> Iterator[None]:
        """Hold the lock during a change, then wake the thread; ``order`` states that the change may affect the order."""
        with self._changed:
            yield
            self._stale = self._stale or order
            if at_once:
                self._sorted = 0.0
            self._wake()

    def put(self, rows: Iterable[TakeCard]) -> None:
        """Add or replace cards, by id."""
        with self._change():
            for row in rows:
                self._rows[row.id] = row
                self._drawn.pop(row.id, None)
                if row.fetch is not None:
                    self._unmeasured.append(row.id)

    def mark(self, rows: Iterable[TakeCard], state: CardState) -> None:
        """Change the state of cards, except those that were replaced in the meantime."""
        with self._change(order=False):
            self._rows |= {row.id: replace(row, state=state) for row in rows if self._rows.get(row.id) is row}

    def drop(self, ids: Iterable[int]) -> None:
        """Remove cards."""
        with self._change():
            for key in ids:
                self._rows.pop(key, None)

    def clear(self) -> None:
        """Remove all cards."""
        with self._change():
            for collection in (self._rows, self._drawn, self._unmeasured, self._sent):
                collection.clear()

    def arrange(self, where: str = "", by: str = "", *, descending: bool = False) -> None:
        """Filter and sort the cards. Raises RequestInvalid for an invalid filter; the previous one then stays in effect."""
        with self._change(at_once=True):
            filter_cards(self._rows.values(), where)
            self._look = (where, by, descending)

    def facet(self, cells: int, repeats: int, metric: str) -> None:
        """Send the mean of a metric in each cell to the page; the takes of a cell have consecutive ids."""
        with self._change():
            self._cells, self._repeats, self._color_metric = cells, repeats, metric

    def pin(self, ids: Iterable[int]) -> None:
        """Show these cards first."""
        with self._change(at_once=True):
            self._pinned = frozenset(ids)

    def measure(self, metrics: Iterable[str | Metric]) -> None:
        """Replace the metrics, and measure all takes again. Raises the errors of the constructor."""
        chosen = resolve(metrics)
        with self._change():
            self.metrics = chosen
            rows = [row for row in self._rows.values() if row.fetch is not None]
            cleared = {row.id: replace(row, figures={}, error="") for row in rows}
            self._rows |= cleared
            self._unmeasured = deque(cleared)

    def show(self, ids: Sequence[int]) -> None:
        """Set the visible cards, and send their missing data."""
        with self._change(order=False):
            self._shown = tuple(ids)

    def again(self) -> None:
        """Send everything again, for a new page."""
        with self._change():
            self._sent.clear()
            self._counts = None

    def finish(self) -> None:
        """Measure the remaining cards from the last to the first, while the panel's thread measures from the first."""
        for key in reversed(tuple(self._rows)):
            while (row := self._rows.get(key)) is not None and self._audible(row) and not row.figures:
                self._prepare(row)

    def settled(self, timeout: float) -> bool:
        """Wait at most ``timeout`` seconds until all takes are measured and sent; return False on timeout."""
        task = self._task
        return task is None or task.wait(timeout)

    def close(self) -> None:
        """Stop the thread."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _wake(self) -> None:
        self._pending = True
        if self._closed:
            return
        if self._task is None or not self._task.running:
            self._task = Task(self._run, name="takes").start()
        self._changed.notify_all()

    def _run(self) -> None:
        while True:
            with self._changed:
                wait = self._last + _INTERVAL_S - time.monotonic()
                if self._closed:
                    return
                due = self._pending and wait <= 0
                row = None if due else self._next()
                if row is None and not due:
                    if not self._pending:
                        self._task = None
                        return
                    self._changed.wait(wait)
                    continue
                messages = self._messages() if due else []
                self._last = time.monotonic() if due else self._last
            for message in messages:
                self._send(*message)
            if row is not None:
                self._prepare(row)

    def _next(self) -> TakeCard | None:
        """Return the next card to draw or measure. Visible cards come first, and waveforms come before measurements."""
        visible = [row for key in self._shown if (row := self._rows.get(key)) is not None and self._audible(row)]
        for row in [row for row in visible if row.id not in self._drawn] or [row for row in visible if not row.figures]:
            return row
        while self._unmeasured:
            row = self._rows.get(self._unmeasured.popleft())
            if row is not None and self._audible(row) and not row.figures:
                return row
        return None

    @staticmethod
    def _audible(row: TakeCard) -> bool:
        """Check whether a card has audio and no error."""
        return row.fetch is not None and not row.error

    def _prepare(self, row: TakeCard) -> None:
        try:
            clip = row.clip()
            drawn, done = self._drawn.get(row.id) or _Drawn(outline(clip), clip.duration, clip.sha256), row
            # Visible waveforms are drawn before the slower measurements.
            if not row.figures and (row.id in self._drawn or row.id not in self._shown):
                (measured,) = measure_rows((clip,), self.metrics)
                done = replace(row, figures={metric.name: measured[metric.name] for metric in self.metrics})
        except Exception as error:  # noqa: BLE001 (missing audio or a user's metric: an error of this take only)
            drawn, done = None, replace(row, error=error_message(error))
        with self._changed:
            if self._rows.get(row.id) is not row:
                return  # replaced meanwhile
            self._rows[row.id] = done
            if drawn:
                self._drawn[row.id] = drawn
            self._stale = self._stale or bool(self._look[0] or self._look[1] or self._cells)
            self._pending = True

    def _arranged(self) -> list[TakeCard]:
        """Return the filtered and sorted cards; the caller holds the lock."""
        where, by, descending = self._look
        try:
            rows = filter_cards(self._rows.values(), where)
        except RequestInvalid:  # a filter by a metric that is not measured hides nothing
            rows = list(self._rows.values())
        return sort_cards(rows, by, descending=descending, pinned=self._pinned)

    def _messages(self) -> list[tuple[dict[str, Any], list[bytes]]]:
        """Build the messages with new data of visible cards, their order and cell means; the caller holds the lock."""
        clock, previous, sums = time.monotonic(), self._order, []
        if self._stale and clock >= self._sorted + _ORDER_S:
            self._order = [row.id for row in self._arranged()]
            self._stale, self._sorted = False, clock
            sums = [self._sums()] if self._cells else []
        self._pending = self._stale
        rows = [row for row in map(self._rows.get, self._shown) if row is not None]
        visible = {row.id: (row, row.id in self._drawn) for row in rows}
        new = {key: state for key, state in visible.items() if self._sent.get(key) != state}
        self._sent |= new
        counts = (len(self._rows), len(self._order))
        changed = previous != self._order or counts != self._counts
        if not (new or changed):
            return sums
        cards = [self._card(row) for row, _ in new.values()]
        message: dict[str, Any] = {"kind": "takes", "all": counts[0], "cards": cards}
        buffers = [b"".join(self._drawn[key].outline for key, (_, drawn) in new.items() if drawn)]
        if changed:
            message["ordered"] = True
            buffers.append(np.asarray(self._order, np.int32).tobytes())
        self._counts = counts
        return [(message, buffers), *sums]

    def _sums(self) -> tuple[dict[str, Any], list[bytes]]:
        """Compute mean, SD and number of takes of each cell, and the first cell with equal samples; requires the lock."""
        rows = [self._rows[key] for key in self._order if key in self._rows]
        metric = next((metric for metric in self.metrics if metric.name == self._color_metric), self.metrics[0])
        values = np.array([row.figures.get(metric.name, np.nan) for row in rows], np.float64)
        finite = np.isfinite(values)
        cells = np.array([row.id for row in rows], np.intp)[finite] // self._repeats
        values = values[finite]

        def total(weights: np.ndarray[Any, np.dtype[np.float64]]) -> np.ndarray[Any, np.dtype[np.float64]]:
            return np.bincount(cells, weights, minlength=self._cells).astype(np.float64)

        number = total(np.ones_like(values))
        with np.errstate(invalid="ignore", divide="ignore"):
            mean = total(values) / number
            sd = np.sqrt(total((values - mean[cells]) ** 2) / (number - 1))
        message = {
            "kind": "cells",
            "metric": metric_label(metric.name),
            "unit": metric.unit,
            "low": float(np.nanmin(mean)) if finite.any() else None,
            "high": float(np.nanmax(mean)) if finite.any() else None,
            "longest": max((drawn.seconds for drawn in self._drawn.values()), default=0.0),
        }
        return message, [np.stack((mean, sd, number, self._twins()), axis=1).astype("<f4").tobytes()]

    def _twins(self) -> list[int]:
        """Return for each cell the index of the first cell with equal samples; -1 if no earlier cell has equal samples."""
        originals: dict[tuple[str, ...], int] = {}
        twins = []
        for cell in range(self._cells):
            keys = range(cell * self._repeats, (cell + 1) * self._repeats)
            sounds = tuple(self._drawn[key].sha256 for key in keys if key in self._drawn)
            twin = originals.setdefault(sounds, cell) if len(sounds) == self._repeats else cell
            twins.append(twin if twin < cell else -1)
        return twins

    def _card(self, row: TakeCard) -> dict[str, Any]:
        drawn = self._drawn.get(row.id)
        figures = [
            (metric_label(metric.name), with_unit(format_figure(row.figures[metric.name], metric.unit), metric.unit))
            for metric in self.metrics
            if metric.name in row.figures
        ]
        seeds = [f"Seed {row.values['seed']}."] if row.values.get("seed") is not None else []
        return {
            "id": row.id,
            "labels": [(short_name(axis), label) for axis, label in row.labels.items()],
            "code": row.code,
            "state": row.state,
            "error": row.error,
            "notes": [*row.notes, *seeds],
            "figures": figures,
            "hear": row.fetch is not None,
            "seconds": drawn.seconds if drawn else 0.0,
            "drawn": drawn is not None,
        }


class TakeGrid(Ending, PageWidget):
    """Grid of takes. ``work`` holds its cards; ``selected`` and ``pinned`` are ids.

    With facets, the first axis varies over rows, the second over columns and the others over tabs, and a cell contains the
    takes of a combination. Without facets, the grid is a list with a card per take. Keys: arrows move, space plays and
    pauses, X selects, P pins, O opens. ``opened`` is called with the id of a take to show in a player.
    """

    script = "takes.js"
    styles = ("takes.css",)

    label = traitlets.Unicode("Takes").tag(sync=True)
    columns = traitlets.Int(1).tag(sync=True)
    """Preferred number of takes per row."""
    selected: traitlets.List[int] = traitlets.List(traitlets.Int()).tag(sync=True)
    pinned: traitlets.List[int] = traitlets.List(traitlets.Int()).tag(sync=True)
    view = traitlets.Enum(("facets", "list"), "list").tag(sync=True)
    facets: traitlets.Dict[str, Any] = traitlets.Dict().tag(sync=True)
    """``axes``, pairs of name and labels, and ``repeats``; no axes if the takes form no grid."""

    def __init__(self, metrics: Iterable[str | Metric], opened: Callable[[int], object]) -> None:
        self.work = TakeRows(self._post, metrics)
        self._opened = opened
        super().__init__()
        self.at_close(self.work.close)
        self.on_msg(self._on_message)
        self.observe(lambda change: self.work.pin(change["new"]), names="pinned")

    def reveal(self, id: int) -> None:
        """Scroll to a take and mark it."""
        self._post({"kind": "reveal", "id": id}, [])

    def show(self, part: str) -> None:
        """Scroll to the open "tab", and focus it, or to the "player" of the opened take."""
        self._post({"kind": part}, [])

    def send_file(self, name: str, media: str, data: bytes) -> None:
        """Send a file to the page for download, at a limited rate, since Jupyter drops messages beyond 1 MB/s."""
        for start in range(0, len(data), _PIECE):
            last = start + _PIECE >= len(data)
            about = {"kind": "file", "name": name, "media": media, "start": start, "last": last}
            self._post(about, [data[start : start + _PIECE]])
            time.sleep(0 if last else _PIECE_S)

    def clear(self) -> None:
        """Remove all takes."""
        self.selected, self.pinned = [], []
        self.work.clear()
        self._post({"kind": "clear"}, [])

    def __repr__(self) -> str:
        return f"TakeGrid({len(self.work.rows)} takes)"

    def _post(self, message: dict[str, Any], buffers: list[bytes]) -> None:
        if self.comm is not None:
            self.send(message, buffers)

    def _on_message(self, _: Any, message: dict[str, Any], __: Sequence[Any]) -> None:
        kind = message.get("kind")
        if kind == "ready":
            self.work.again()
        elif kind == "show":
            self.work.show([key for key in message.get("ids", ()) if isinstance(key, int)])
        elif kind == "sound":
            # The player comes before measurements, since the user waits for it.
            Task(lambda: self._sound(message.get("id")), name="sound").start()
        elif kind == "open" and isinstance(message.get("id"), int):
            self._opened(message["id"])

    def _sound(self, id: object) -> None:
        row = self.work.row(id) if isinstance(id, int) else None
        if row is None:
            return
        try:
            clip = playable(row.clip())
        except VoicelabError:
            return  # measuring the take shows the error on its card
        self._post({"kind": "sound", "id": id, "rate": clip.rate}, [pcm_bytes(clip.samples)])


class TakesView(Panel):
    """Tabs of takes: *Listen* has the grid, *Compare* the selected takes side by side.

    ``grid`` is the grid, and ``tools`` a row for further controls. Subclasses add tabs. The contents of a tab are created
    when it is opened.
    """

    def __init__(self, *, axes: Sequence[str] = (), metrics: Iterable[str | Metric] = SHOWN) -> None:
        self.grid = TakeGrid(metrics, self.open_take)
        self._axes = tuple(axes)
        self._cells: tuple[int, int] | None = None
        self._example = ""
        self._filled = ""
        self._makers: dict[str, Callable[[], object]] = {}
        self.where = control(w.Text, "Filter", "filter", width="260px")
        self.where_problem, self.measured_problem = (html("", "problem") for _ in range(2))
        self.sort = control(w.Dropdown, "Sort by", width="200px")
        self.descending = control(w.ToggleButton, "↓", "icon", help="Descending")
        self.measured = control(w.Text, "Metrics", width="320px", continuous_update=False)
        self.find = button("Find outlier", self.find_outlier, "outlier", help="Take farthest from the median")
        self.metric = control(w.Dropdown, "by", "outlier-metric", width="160px")
        limits = "Compare 2 to 8 selected takes"
        self.compare_button = button("Compare", self.compare, "compare-selected", help=limits)
        self.select_button = button("Select all shown", self.select_shown, "select-shown")
        self.clear_button = button("Select none", lambda: self.grid.set_trait("selected", []), "select-none")
        self.counted = control(w.Label, "", "selected")
        self.tools = line(name="buttons")
        self.view = control(w.Dropdown, "View", width="130px", options=[("Facets", "facets"), ("List", "list")])
        self.color = control(w.Dropdown, "Color", width="190px")
        self.player = stack(names=["opened"])
        finding = line(self.find, self.metric, name="buttons")
        measuring = fold("Measurements and outliers", line(self.measured, finding), self.measured_problem)
        self._by_list, self._by_facets = line(self.sort, self.descending, name="buttons"), self.color
        arranging = line(self.view, self._by_list, self._by_facets, self.where)
        selecting = line(self.select_button, self.clear_button, name="buttons")
        acting = line(selecting, line(self.compare_button, self.counted, name="buttons"), self.tools)
        listen = stack(arranging, self.where_problem, self.grid, self.player, acting, measuring)
        self.tabs = control(w.Tab, "", "tabs", children=[listen], titles=["Listen"])
        self._contents: dict[str, w.VBox] = {}
        self._offer()
        super().__init__("takes-view", [self.message, self.tabs])
        self.add_tab("Compare", make=self._compare_if_few)
        for widget in (self.where, self.sort, self.descending):
            widget.observe(self._arrange, names="value")
        self.measured.observe(self._measure, names="value")
        self.view.observe(self._show_view, names="value")
        self.color.observe(self._facet, names="value")
        self._show_view()
        self.grid.observe(self._count, names="selected")
        self.tabs.observe(lambda change: self._opened(self.tabs.titles[change["new"] or 0]), names="selected_index")
        self._count()

    @property
    def selected(self) -> tuple[TakeCard, ...]:
        """Selected cards, in the order of selection."""
        return tuple(row for key in self.grid.selected if (row := self.grid.work.row(key)) is not None)

    def add_tab(
        self, name: str, *children: w.Widget, index: int | None = None, make: Callable[[], object] | None = None
    ) -> None:
        """Add a tab, last or at ``index``; ``make`` fills the box below ``children`` when it is opened."""
        if make is not None:
            self._makers[name] = make
        content = self._contents[name] = stack()
        tabs = list(zip(self.tabs.titles, self.tabs.children, strict=True))
        tabs.insert(len(tabs) if index is None else index, (name, stack(*children, content) if children else content))
        titles, self.tabs.children = zip(*tabs, strict=True)
        self.tabs.titles = titles

    def content(self, tab: str) -> tuple[w.Widget, ...]:
        """Return the contents of a tab."""
        children: tuple[w.Widget, ...] = self._contents[tab].children
        return children

    def begin(self, cards: Sequence[TakeCard], columns: Sequence[Column]) -> None:
        """Show takes with these key columns, ``repeat`` last: facets if every combination has a take, otherwise a list."""
        *axes, repeat = columns
        repeats = len(repeat)
        self._axes = tuple(column.name for column in columns if column is not repeat or repeats > 1)
        self.grid.clear()
        self.close_take()
        self.grid.columns = (len(axes[-1]) if axes else 1) * repeats
        cells = math.prod(map(len, axes))
        shown = [[(column.name, label) for label in column.labels] for column in columns if column.name in self._axes]
        combinations = itertools.product(*shown) if len(cards) == cells * repeats else ()
        complete = bool(axes) and [card.labels for card in cards] == [
            take_labels(dict(pairs)) for pairs in combinations
        ]
        before, self._cells = self._cells, (cells, repeats) if complete else None
        self.grid.facets = {"axes": [(column.title, column.labels) for column in axes], "repeats": repeats}
        if (self._cells is None) != (before is None):  # else the chosen view remains
            self.view.value = "list" if self._cells is None else "facets"
        self._show_view()
        self.where.value = ""
        examples = (f"{axis.title}={axis.labels[-1]}" for axis in axes if len(axis) > 1 and "," not in axis.labels[-1])
        self._example = min(examples, key=len, default="")
        self._offer()
        self._facet()
        self.grid.work.put(cards)

    def open_take(self, id: int) -> Task:
        """Show a take, with its words, in a player below the grid; the take is loaded in a thread."""

        def show() -> None:
            row = self.grid.work.row(id)
            if row is None or row.fetch is None:
                return
            clip = row.clip()
            player = Player(clip, label=row.name)
            close_widgets(self.player.children)
            title = html(f'<div class="voicelab-heading">{escape(row.name)}</div>')
            closing = button("×", self.close_take, "close-take", "icon", help="Close the player")
            self.player.children = (line(title, closing), player)
            self.grid.show("player")
            player.end(with_words(clip).words)

        return self.in_background(show, "open")

    def close_take(self) -> None:
        """Close the player below the grid."""
        close_widgets(self.player.children)
        self.player.children = ()

    def _show_view(self, _: object = None) -> None:
        self.grid.view = self.view.value if self._cells is not None else "list"
        listed = self.grid.view == "list"
        hide(self._by_list, not listed)
        hide(self._by_facets, listed)
        hide(self.view, self._cells is None)

    def _facet(self, _: object = None) -> None:
        cells, repeats = self._cells or (0, 1)
        self.grid.work.facet(cells, repeats, self.color.value or "")

    def find_outlier(self) -> None:
        """Scroll to the take that is farthest from the median of the shown takes."""
        outlier = find_outlier(self.grid.work.shown, self.metric.value)
        if outlier is None:
            self.say(f"{self.metric.value} needs three takes or more with different values.")
            return
        row, score = outlier
        self.grid.reveal(row.id)
        verdict = "an outlier (beyond 3.5)" if abs(score) > 3.5 else "no outlier (within 3.5)"
        self.say(
            f"{row.name}: {self.metric.value} is {score:+.1f} robust standard deviations from the median, {verdict}."
        )

    def compare(self) -> None:
        """Compare the selected takes."""
        self.attempt(lambda: self.put("Compare", ComparePanel(compare_cards(self.selected))))

    def select_shown(self) -> None:
        """Select all takes that match the filter."""
        self.grid.selected = [row.id for row in self.grid.work.shown]

    def fill(self, tab: str, widget: w.Widget) -> None:
        """Show a widget in a tab, and close the previous one."""
        box = self._contents[tab]
        close_widgets(box.children)
        box.children = (widget,)

    def put(self, tab: str, widget: w.Widget) -> None:
        """Show a widget in a tab, and open the tab."""
        self.fill(tab, widget)
        self._filled = tab  # so that opening it does not create it again
        self.tabs.selected_index = self.tabs.titles.index(tab)
        self._filled = ""
        self.grid.show("tab")

    def fill_later(self, tab: str, make: Callable[[], w.Widget], words: str) -> Task:
        """Fill a tab with the result of ``make``, called in a thread; until then it shows ``words``, or finally the error."""

        def failed(error: Exception) -> None:
            self.fill(tab, html(problem_html(error)))

        self.fill(tab, html(f'<div class="voicelab-soft" role="status">{escape(words)}</div>'))
        return self.in_background(lambda: self.fill(tab, make()), "tab", failed)

    def _opened(self, tab: str) -> None:
        """Create the contents of a tab that the user opens."""
        if tab != self._filled:
            self._makers.get(tab, lambda: None)()
            self.grid.show("tab")

    def _compare_if_few(self) -> None:
        if 2 <= len(self.selected) <= 8:
            self.compare()
        elif not self.content("Compare"):
            self.fill("Compare", control(w.Label, value="Select 2 to 8 takes in Listen to compare them here."))

    def _offer(self) -> None:
        metrics, column = [metric.name for metric in self.grid.work.metrics], self.sort.value
        offered = (_GRID_ORDER, *self._axes, *metrics)
        named = {**{name: metric_label(name) for name in metrics}, REPEAT: "take"}
        self.sort.options = [(named.get(name) or short_name(name), name) for name in offered]
        self.sort.value = column if column in offered else _GRID_ORDER
        for choice in (self.metric, self.color):
            chosen = choice.value
            choice.options = [(metric_label(name), name) for name in metrics]
            choice.value = chosen if chosen in metrics else metrics[0]
        self.measured.value = ", ".join(metrics)
        # The example has values of the table itself, so that it can be used unchanged.
        self.where.placeholder = ", ".join(filter(None, [self._example, f"{metrics[0]}>1"]))

    def _try_at(self, field: w.DOMWidget, problem: w.HTML, action: Callable[[], object]) -> None:
        """Call ``action`` and show its error below a field."""
        error: VoicelabError | None = None
        try:
            action()
        except VoicelabError as raised:
            error = raised
        mark_wrong(field, error)
        problem.value = problem_html(error)

    def _arrange(self, _: object = None) -> None:
        by = "" if self.sort.value == _GRID_ORDER else self.sort.value
        arrange = self.grid.work.arrange
        self._try_at(
            self.where, self.where_problem, lambda: arrange(self.where.value, by, descending=self.descending.value)
        )

    def _measure(self, _: object = None) -> None:
        names = [name for name in map(str.strip, self.measured.value.split(",")) if name]
        if names == [metric.name for metric in self.grid.work.metrics]:
            return

        def measure() -> None:
            self.grid.work.measure(names)
            self._offer()

        self._try_at(self.measured, self.measured_problem, measure)

    def _count(self, _: object = None) -> None:
        count = len(self.grid.selected)
        self.counted.value = f"{count} selected" if count else "none selected"
        self.compare_button.disabled = not 2 <= count <= 8
