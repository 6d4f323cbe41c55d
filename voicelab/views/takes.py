"""Takes to look through: a grid of small players with their figures, and above it what one does to many of them.

A page is told only of the takes that it shows, at most ten times a second, so that a grid of a hundred thousand costs
it no more than one of a hundred. Figures and pictures are worked out off the kernel's main thread.
"""

from __future__ import annotations

import itertools
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from html import escape
from typing import Any, Final, NamedTuple

import anywidget
import ipywidgets as w
import numpy as np
import traitlets

from voicelab.call import short_name
from voicelab.clip import Clip
from voicelab.errors import RequestInvalid, VoicelabError
from voicelab.metrics import Metric, measure_rows
from voicelab.metrics.measure import resolve
from voicelab.runs.failures import error_message
from voicelab.takes.cards import TakeCard, compare_cards, filter_cards, find_outlier, sort_cards
from voicelab.takes.comparison import with_words
from voicelab.takes.rows import Column, RowState
from voicelab.views.background import Task
from voicelab.views.bundles import error_html, format_figure, metric_label
from voicelab.views.comparison_panel import ComparePanel
from voicelab.views.panel import Ending, Panel, button, classed, close_children, control, fold, inlined, line, styled
from voicelab.views.player import Player, pcm_bytes, playable
from voicelab.views.sweep_tables import SHOWN

COLUMNS: Final = 160
"""Columns of the small waveform of a take."""

Send = Callable[[dict[str, Any], list[bytes]], object]
"""Sends a message with its buffers to the page."""

_INTERVAL_S: Final = 0.1
# Sorting many rows again and again, while they are measured, would be most of the work.
_ORDER_S: Final = 0.5
_GRID_ORDER: Final = "Grid order"


def outline(clip: Clip) -> bytes:
    """Return the least and the greatest sample of ``COLUMNS`` equal parts: signed bytes, 127 is full scale."""
    if not len(clip):
        return bytes(2 * COLUMNS)
    edges = np.linspace(0, len(clip), COLUMNS, endpoint=False).astype(int)
    low, high = np.minimum.reduceat(clip.samples, edges), np.maximum.reduceat(clip.samples, edges)
    # Outwards, so that what is heard is seen.
    columns = np.stack((np.floor(low * 127.0), np.ceil(high * 127.0)), axis=1)
    return bytes(np.clip(columns, -127, 127).astype(np.int8))


class _Drawn(NamedTuple):
    """What the page draws of a take, and what tells its samples from others."""

    outline: bytes
    seconds: float
    sha256: str


class TakeRows:
    """Rows, the order in which they are shown, and a thread that is there only while there is something to do.

    All calls may come from any thread. ``metrics`` are measured on each take as it comes; what the page shows first.
    Raises RequestInvalid for a metric that there is not, MissingExtra for one that is not installed.
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
        self._stale = True
        self._sorted = 0.0
        self._last = 0.0
        self._drawn: dict[int, _Drawn] = {}
        self._colour, self._cells, self._repeats = "", 0, 1
        self._unmeasured: deque[int] = deque()
        self._shown: tuple[int, ...] = ()
        self._sent: dict[int, tuple[TakeCard, bool]] = {}
        self._counts: tuple[int, int] | None = None
        self._pending = False
        self._task: Task | None = None
        self._closed = False

    @property
    def rows(self) -> tuple[TakeCard, ...]:
        """All rows, measured as far as they are."""
        with self._lock:
            return tuple(self._rows.values())

    @property
    def shown(self) -> tuple[TakeCard, ...]:
        """The rows that fit the filter, in the order in which they are shown."""
        with self._lock:
            return tuple(self._arranged())

    def row(self, id: int) -> TakeCard | None:
        """Return a row."""
        return self._rows.get(id)

    @contextmanager
    def _change(self, *, order: bool = True, at_once: bool = False) -> Iterator[None]:
        """Change something under the lock, and wake the thread; ``order`` says that the order may be another one."""
        with self._changed:
            yield
            self._stale = self._stale or order
            if at_once:
                self._sorted = 0.0
            self._wake()

    def put(self, rows: Iterable[TakeCard]) -> None:
        """Add rows, or replace those of the same ids."""
        with self._change():
            for row in rows:
                self._rows[row.id] = row
                self._drawn.pop(row.id, None)
                if row.fetch is not None:
                    self._unmeasured.append(row.id)

    def mark(self, rows: Iterable[TakeCard], state: RowState) -> None:
        """Let rows that are still there be in another state; one that has been replaced meanwhile is left alone."""
        with self._change(order=False):
            self._rows |= {row.id: replace(row, state=state) for row in rows if self._rows.get(row.id) is row}

    def drop(self, ids: Iterable[int]) -> None:
        """Forget some rows."""
        with self._change():
            for key in ids:
                self._rows.pop(key, None)

    def clear(self) -> None:
        """Forget all rows."""
        with self._change():
            for held in (self._rows, self._drawn, self._unmeasured, self._sent):
                held.clear()

    def arrange(self, where: str = "", by: str = "", *, descending: bool = False) -> None:
        """Filter and sort. Raises RequestInvalid for a filter that means nothing; the one before then stays."""
        with self._change(at_once=True):
            filter_cards(self._rows.values(), where)
            self._look = (where, by, descending)

    def facet(self, cells: int, repeats: int, metric: str) -> None:
        """Tell the page the mean of a metric in each of so many cells, whose takes have the ids that follow each other."""
        with self._change():
            self._cells, self._repeats, self._colour = cells, repeats, metric

    def pin(self, ids: Iterable[int]) -> None:
        """Let these come first."""
        with self._change(at_once=True):
            self._pinned = frozenset(ids)

    def measure(self, metrics: Iterable[str | Metric]) -> None:
        """Measure these from now on, the takes that are there too. Raises like the constructor."""
        chosen = resolve(metrics)
        with self._change():
            self.metrics = chosen
            heard = {
                key: replace(row, figures={}, error="") for key, row in self._rows.items() if row.fetch is not None
            }
            self._rows |= heard
            self._unmeasured = deque(heard)

    def show(self, ids: Sequence[int]) -> None:
        """Note that the page shows these, in part or soon, and send it what it does not have of them."""
        with self._change(order=False):
            self._shown = tuple(ids)

    def again(self) -> None:
        """Note that the page has nothing yet: it was opened anew."""
        with self._change():
            self._sent.clear()
            self._counts = None

    def settled(self, timeout: float) -> bool:
        """Wait until all is measured and sent, at most ``timeout`` seconds; returns whether it is."""
        task = self._task
        return task is None or task.wait(timeout)

    def close(self) -> None:
        """Do no more."""
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
        """Return what is to be drawn or measured next: first what the page shows, and pictures before figures."""
        shown = [row for key in self._shown if (row := self._rows.get(key)) is not None and self._audible(row)]
        for row in [row for row in shown if row.id not in self._drawn] or [row for row in shown if not row.figures]:
            return row
        while self._unmeasured:
            row = self._rows.get(self._unmeasured.popleft())
            if row is not None and self._audible(row) and not row.figures:
                return row
        return None

    @staticmethod
    def _audible(row: TakeCard) -> bool:
        """Say whether a row has sound that nothing has gone wrong with."""
        return row.fetch is not None and not row.error

    def _prepare(self, row: TakeCard) -> None:
        try:
            clip = row.clip()
            drawn, done = self._drawn.get(row.id) or _Drawn(outline(clip), clip.duration, clip.sha256), row
            # What is in sight is drawn first: the figures take longer.
            if not row.figures and (row.id in self._drawn or row.id not in self._shown):
                (measured,) = measure_rows((clip,), self.metrics)
                done = replace(row, figures={metric.name: measured[metric.name] for metric in self.metrics})
        except Exception as error:  # noqa: BLE001 (audio that is gone, a user's own metric: the others go on)
            drawn, done = None, replace(row, error=error_message(error))
        with self._changed:
            if self._rows.get(row.id) is not row:
                return  # another take has its place
            self._rows[row.id] = done
            if drawn:
                self._drawn[row.id] = drawn
            self._stale = self._stale or bool(self._look[0] or self._look[1] or self._cells)
            self._pending = True

    def _arranged(self) -> list[TakeCard]:
        """Return the rows that fit the filter, in order; holds the lock."""
        where, by, descending = self._look
        try:
            rows = filter_cards(self._rows.values(), where)
        except RequestInvalid:  # of a metric that is no longer measured, or not yet again: nothing is hidden
            rows = list(self._rows.values())
        return sort_cards(rows, by, descending=descending, pinned=self._pinned)

    def _messages(self) -> list[tuple[dict[str, Any], list[bytes]]]:
        """Return what the page lacks of what it shows and, where they are due, of order and sums; holds the lock."""
        now, before, sums = time.monotonic(), self._order, []
        if self._stale and now >= self._sorted + _ORDER_S:
            self._order = [row.id for row in self._arranged()]
            self._stale, self._sorted = False, now
            sums = [self._sums()] if self._cells else []
        self._pending = self._stale
        rows = [row for row in map(self._rows.get, self._shown) if row is not None]
        shown = {row.id: (row, row.id in self._drawn) for row in rows}
        new = {key: own for key, own in shown.items() if self._sent.get(key) != own}
        self._sent |= new
        counts = (len(self._rows), len(self._order))
        changed = before != self._order or counts != self._counts
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
        """Return the mean, the standard deviation, the number of takes and the twin of each cell; holds the lock."""
        rows = [self._rows[key] for key in self._order if key in self._rows]
        metric = next((one for one in self.metrics if one.name == self._colour), self.metrics[0])
        values = np.array([row.figures.get(metric.name, np.nan) for row in rows], np.float64)
        there = np.isfinite(values)
        cells = np.array([row.id for row in rows], np.intp)[there] // self._repeats
        values = values[there]

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
            "low": float(np.nanmin(mean)) if there.any() else None,
            "high": float(np.nanmax(mean)) if there.any() else None,
            "longest": max((one.seconds for one in self._drawn.values()), default=0.0),
        }
        return message, [np.stack((mean, sd, number, self._twins()), axis=1).astype("<f4").tobytes()]

    def _twins(self) -> list[int]:
        """Return for each cell the first one whose takes are the same sample by sample, -1 where that is itself."""
        first: dict[tuple[str, ...], int] = {}
        twins = []
        for cell in range(self._cells):
            keys = range(cell * self._repeats, (cell + 1) * self._repeats)
            sounds = tuple(self._drawn[key].sha256 for key in keys if key in self._drawn)
            twin = first.setdefault(sounds, cell) if len(sounds) == self._repeats else cell
            twins.append(twin if twin < cell else -1)
        return twins

    def _card(self, row: TakeCard) -> dict[str, Any]:
        drawn = self._drawn.get(row.id)
        figures = [
            (metric.name, f"{format_figure(row.figures[metric.name], metric.unit)} {metric.unit}".rstrip())
            for metric in self.metrics
            if metric.name in row.figures
        ]
        if "seed" not in row.labels and row.values.get("seed") is not None:
            figures.append(("seed", str(row.values["seed"])))
        return {
            "id": row.id,
            "labels": [(short_name(axis), label) for axis, label in row.labels.items()],
            "code": row.code,
            "state": row.state,
            "error": row.error,
            "notes": list(row.notes),
            "figures": figures,
            "hear": row.fetch is not None,
            "seconds": drawn.seconds if drawn else 0.0,
            "drawn": drawn is not None,
        }


class TakeGrid(Ending, anywidget.AnyWidget):
    """A grid of takes. ``work`` holds its rows; ``selected`` and ``pinned`` the ids of some of them.

    As facets the first axis goes down, the second across, the others are tabs, and a cell has the takes of one
    combination; as a list there is a card for each take. Keys while it has the focus: the arrows go from take to take,
    space plays and pauses, X selects, P pins, O opens. ``opened`` is called with the id of a take that shall be shown
    large, ``gone`` when no page has shown it for some seconds.
    """

    _esm = inlined("takes.js")
    _css = styled("takes.css")

    label = traitlets.Unicode("Takes").tag(sync=True)
    columns = traitlets.Int(1).tag(sync=True)
    """Takes that belong in one row, where so many fit."""
    selected: traitlets.List[int] = traitlets.List(traitlets.Int()).tag(sync=True)
    pinned: traitlets.List[int] = traitlets.List(traitlets.Int()).tag(sync=True)
    view = traitlets.Enum(("facets", "list"), "list").tag(sync=True)
    facets: traitlets.Dict[str, Any] = traitlets.Dict().tag(sync=True)
    """``axes``, a name with its labels each, and ``repeats``; there are no axes where takes are of no grid."""

    def __init__(
        self, metrics: Iterable[str | Metric], gone: Callable[[], object], opened: Callable[[int], object]
    ) -> None:
        self.work = TakeRows(self._post, metrics)
        self._gone, self._opened = gone, opened
        super().__init__()
        self.at_close(self.work.close)
        self.on_msg(self._on_message)
        self.observe(lambda change: self.work.pin(change["new"]), names="pinned")

    def reveal(self, id: int) -> None:
        """Bring a take into sight and mark it."""
        self._post({"kind": "reveal", "id": id}, [])

    def show_tab(self) -> None:
        """Bring the tab that was opened into sight and give it the focus."""
        self._post({"kind": "tab"}, [])

    def clear(self) -> None:
        """Forget all takes."""
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
            # Not behind the figures: the listener is waiting for it.
            Task(lambda: self._sound(message.get("id")), name="sound").start()
        elif kind == "open" and isinstance(message.get("id"), int):
            self._opened(message["id"])
        elif kind == "gone":
            self._gone()

    def _sound(self, id: object) -> None:
        row = self.work.row(id) if isinstance(id, int) else None
        if row is None:
            return
        try:
            clip = playable(row.clip())
        except VoicelabError:
            return  # the row says so itself, once it was tried to be measured
        self._post({"kind": "sound", "id": id, "rate": clip.rate}, [pcm_bytes(clip.samples)])


class TakesView(Panel):
    """Takes in tabs: *Listen* has the grid, *Compare* the takes that are selected side by side.

    ``grid`` is the grid; ``tools`` a line above it for further controls. A subclass adds tabs of its own. What a tab
    shows is made when it is opened.
    """

    def __init__(
        self,
        *,
        axes: Sequence[str] = (),
        metrics: Iterable[str | Metric] = SHOWN,
        gone: Callable[[], object] = lambda: None,
    ) -> None:
        self.grid = TakeGrid(metrics, gone, self.open_take)
        self._axes = tuple(axes)
        self._cells: tuple[int, int] | None = None
        self._filled = ""
        self._makers: dict[str, Callable[[], object]] = {}
        example = "temperature>=0.5, voice=ada"
        self.where = control(w.Text, "Filter", "filter", placeholder=example, width="260px")
        self.sort = control(w.Dropdown, "Sort by", width="200px")
        self.descending = classed(w.ToggleButton(description="↓", tooltip="The largest first"), "icon")
        self.measured = control(w.Text, "Metrics", width="320px", continuous_update=False)
        self.find = button("Find outlier", self.find_outlier, "outlier", help="The take farthest from the median")
        self.metric = control(w.Dropdown, "by", "outlier-metric", width="160px")
        limits = "Compare the selected takes, 2 to 8 of them"
        self.compare_button = button("Compare", self.compare, "compare-selected", help=limits)
        self.select_button = button("Select all shown", self.select_shown, "select-shown")
        self.clear_button = button("Select none", lambda: self.grid.set_trait("selected", []), "select-none")
        self.counted = classed(w.Label(), "selected")
        self.tools = line(name="buttons")
        self.view = control(w.Dropdown, "View", width="130px", options=[("Facets", "facets"), ("List", "list")])
        self.colour = control(w.Dropdown, "Colour", width="190px")
        self.player = w.VBox()
        finding = line(self.find, self.metric, name="buttons")
        measuring = fold("Measurements and outliers", line(self.measured, finding))
        self._by_list, self._by_facets = line(self.sort, self.descending, name="buttons"), self.colour
        arranging = line(self.view, self._by_list, self._by_facets, self.where)
        selecting = line(self.select_button, self.clear_button, name="buttons")
        acting = line(selecting, line(self.compare_button, self.counted, name="buttons"), self.tools)
        self._places: dict[str, w.VBox] = {"Listen": w.VBox([arranging, self.grid, self.player, acting, measuring])}
        self.tabs = classed(w.Tab(), "tabs")
        self._offer()
        super().__init__("takes-view", [self.message, self.tabs])
        self.add_tab("Compare", make=self._compare_if_few)
        for one in (self.where, self.sort, self.descending):
            one.observe(self._arrange, names="value")
        self.measured.observe(self._measure, names="value")
        self.view.observe(self._show_view, names="value")
        self.colour.observe(self._facet, names="value")
        self._show_view()
        self.grid.observe(self._count, names="selected")
        self.tabs.observe(lambda change: self._opened(list(self._places)[change["new"] or 0]), names="selected_index")
        self._count()

    @property
    def selected(self) -> tuple[TakeCard, ...]:
        """The rows that are selected, in the order in which they were."""
        return tuple(row for key in self.grid.selected if (row := self.grid.work.row(key)) is not None)

    def add_tab(
        self, name: str, *children: w.Widget, place: int | None = None, make: Callable[[], object] | None = None
    ) -> None:
        """Add a tab, the last or at a place; below ``children`` is room for what ``make`` fills in when it is opened."""
        if make is not None:
            self._makers[name] = make
        tabs = list(self._places.items())
        tabs.insert(len(tabs) if place is None else place, (name, w.VBox([*children, w.VBox()])))
        self._places = dict(tabs)
        self.tabs.children = tuple(self._places.values())
        self.tabs.titles = tuple(self._places)

    def content(self, tab: str) -> tuple[w.Widget, ...]:
        """Return what was made for a tab."""
        children: tuple[w.Widget, ...] = self._places[tab].children[-1].children
        return children

    def begin(self, cards: Sequence[TakeCard], columns: Sequence[Column]) -> None:
        """Show the takes of a table with these key columns, ``repeat`` last; as facets if every combination has a take."""
        *axes, repeat = columns
        repeats = len(repeat)
        self._axes = tuple(column.name for column in columns if column is not repeat or repeats > 1)
        self.grid.clear()
        close_children(self.player)
        self.player.children = ()
        self.grid.columns = (len(axes[-1]) if axes else 1) * repeats
        cells = math.prod(map(len, axes))
        shown = [column.labels for column in columns if column.name in self._axes]
        combinations = itertools.product(*shown) if len(cards) == cells * repeats else ()
        complete = bool(axes) and [tuple(card.labels.values()) for card in cards] == list(combinations)
        before, self._cells = self._cells, (cells, repeats) if complete else None
        self.grid.facets = {"axes": [(column.title, column.labels) for column in axes], "repeats": repeats}
        if (self._cells is None) != (before is None):  # else the chosen view remains
            self.view.value = "list" if self._cells is None else "facets"
        self._show_view()
        self.where.value = ""
        self._offer()
        self._facet()
        self.grid.work.put(cards)

    def open_take(self, id: int) -> Task:
        """Show a take in a player below the grid, with its words, in a thread."""

        def show() -> None:
            row = self.grid.work.row(id)
            if row is None or row.fetch is None:
                return
            clip = row.clip()
            player = Player(clip, label=row.name, name=f"take-{id}")
            close_children(self.player)
            self.player.children = (w.HTML(escape(row.name)), player)
            player.end(with_words(clip).words)

        return self.in_background(show, "open")

    def _show_view(self, _: object = None) -> None:
        self.grid.view = self.view.value if self._cells is not None else "list"
        listed = self.grid.view == "list"
        self._by_list.layout.display = None if listed else "none"
        self._by_facets.layout.display = "none" if listed else None
        self.view.layout.display = "none" if self._cells is None else None

    def _facet(self, _: object = None) -> None:
        cells, repeats = self._cells or (0, 1)
        self.grid.work.facet(cells, repeats, self.colour.value or "")

    def find_outlier(self) -> None:
        """Bring the take into sight whose measurement is farthest from the median of those shown."""
        outlier = find_outlier(self.grid.work.shown, self.metric.value)
        if outlier is None:
            self.say(f"{self.metric.value} does not differ, or fewer than three takes have it.")
            return
        row, score = outlier
        self.grid.reveal(row.id)
        how = "an outlier (beyond 3.5)" if abs(score) > 3.5 else "no outlier (that would be beyond 3.5)"
        self.say(f"{row.name}: {self.metric.value} is {score:+.1f} robust standard deviations from the median, {how}.")

    def compare(self) -> None:
        """Put the selected takes side by side."""
        self.attempt(lambda: self.put("Compare", ComparePanel(compare_cards(self.selected))))

    def select_shown(self) -> None:
        """Select all takes that the filter leaves."""
        self.grid.selected = [row.id for row in self.grid.work.shown]

    def fill(self, tab: str, widget: w.Widget) -> None:
        """Show a widget in a tab, in place of the one before, which is closed."""
        place = self._places[tab].children[-1]
        close_children(place)
        place.children = (widget,)

    def put(self, tab: str, widget: w.Widget) -> None:
        """Show a widget in a tab, and open the tab."""
        self.fill(tab, widget)
        self._filled = tab  # it need not be made again because it is opened
        self.tabs.selected_index = list(self._places).index(tab)
        self._filled = ""
        self.grid.show_tab()

    def fill_later(self, tab: str, make: Callable[[], w.Widget], words: str) -> Task:
        """Fill a tab from a thread; until then it says what is being done, and what went wrong in place of it."""

        def failed(error: Exception) -> None:
            self.fill(tab, w.HTML(error_html(error)))

        self.fill(tab, w.HTML(f'<div class="voicelab-soft" role="status">{escape(words)}</div>'))
        return self.in_background(lambda: self.fill(tab, make()), "tab", failed)

    def _opened(self, tab: str) -> None:
        """Make what a tab shows, when it was opened by hand."""
        if tab != self._filled:
            self._makers.get(tab, lambda: None)()
            self.grid.show_tab()

    def _compare_if_few(self) -> None:
        if 2 <= len(self.selected) <= 8:
            self.compare()
        elif not self.content("Compare"):
            self.fill("Compare", w.Label("Select 2 to 8 takes in Listen: they play here side by side."))

    def _offer(self) -> None:
        metrics, wanted = [metric.name for metric in self.grid.work.metrics], self.sort.value
        offered = (_GRID_ORDER, *self._axes, *metrics)
        self.sort.options = [(metric_label(name) if name in metrics else short_name(name), name) for name in offered]
        self.sort.value = wanted if wanted in offered else _GRID_ORDER
        for choice in (self.metric, self.colour):
            chosen = choice.value
            choice.options = [(metric_label(name), name) for name in metrics]
            choice.value = chosen if chosen in metrics else metrics[0]
        self.measured.value = ", ".join(metrics)

    def _arrange(self, _: object = None) -> None:
        by = "" if self.sort.value == _GRID_ORDER else self.sort.value
        self.attempt(lambda: self.grid.work.arrange(self.where.value, by, descending=self.descending.value))

    def _measure(self, _: object = None) -> None:
        names = [name for name in map(str.strip, self.measured.value.split(",")) if name]
        if names == [metric.name for metric in self.grid.work.metrics]:
            return

        def measure() -> None:
            self.grid.work.measure(names)
            self._offer()

        self.attempt(measure)

    def _count(self, _: object = None) -> None:
        count = len(self.grid.selected)
        self.counted.value = f"{count} selected" if count else "nothing selected"
        self.compare_button.disabled = not 2 <= count <= 8
