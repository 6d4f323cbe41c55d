"""What a grid of takes is told, and when: rows in order, figures and pictures, worked out off the kernel's main thread.

No widget is known here. What a page is told goes through one function, at most ten times a second, and only about the
takes that the page shows; a grid of a hundred thousand costs a page no more than one of a hundred.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np

from voicelab.audio.clip import Clip
from voicelab.errors import RequestInvalid
from voicelab.experiments.metrics import Metric, measure_rows
from voicelab.experiments.metrics.measure import resolve
from voicelab.experiments.sweeps.axes import short_name
from voicelab.experiments.sweeps.rows import Row, RowState, matching, ordered
from voicelab.experiments.telling import told
from voicelab.views.sweep import figure

__all__ = ["COLUMNS", "TakeWork", "Tell", "outline"]

COLUMNS: Final = 160
"""Columns of the small waveform of a take."""

Tell = Callable[[dict[str, Any], list[bytes]], object]
"""Sends a message with its buffers to the page."""

_INTERVAL_S: Final = 0.1
# Sorting many rows again and again, while they are measured, would be most of the work.
_ORDER_S: Final = 0.5
_OUTLINES: Final = 4096


def outline(clip: Clip) -> bytes:
    """Return the least and the greatest sample of ``COLUMNS`` equal parts: signed bytes, 127 is full scale."""
    if not len(clip):
        return bytes(2 * COLUMNS)
    edges = np.linspace(0, len(clip), COLUMNS, endpoint=False).astype(int)
    low, high = np.minimum.reduceat(clip.samples, edges), np.maximum.reduceat(clip.samples, edges)
    # Outwards, so that what is heard is seen.
    columns = np.stack((np.floor(low * 127.0), np.ceil(high * 127.0)), axis=1)
    return bytes(np.clip(columns, -127, 127).astype(np.int8))


class TakeWork:
    """Rows, the order in which they are shown, and a thread that is there only while there is something to do.

    All calls may come from any thread. ``metrics`` are measured on each take as it comes; what the page shows first.
    Raises RequestInvalid for a metric that there is not, MissingExtra for one that is not installed.
    """

    def __init__(self, tell: Tell, metrics: Iterable[str | Metric]) -> None:
        self.metrics = resolve(metrics)
        self._tell = tell
        self._lock = threading.RLock()
        self._awake = threading.Condition(self._lock)
        self._rows: dict[int, Row] = {}
        self._look: tuple[str, str, bool] = ("", "", False)
        self._pinned: frozenset[int] = frozenset()
        self._order: list[int] = []
        self._stale = True
        self._sorted = 0.0
        self._last = 0.0
        self._outlines: OrderedDict[int, bytes] = OrderedDict()
        self._unmeasured: deque[int] = deque()
        self._given_up: set[int] = set()
        self._shown: tuple[int, ...] = ()
        self._told: dict[int, tuple[Row, bool]] = {}
        self._counted: tuple[int, int] | None = None
        self._pending = False
        self._thread: threading.Thread | None = None
        self._closed = False

    @property
    def rows(self) -> tuple[Row, ...]:
        """All rows, measured as far as they are."""
        with self._lock:
            return tuple(self._rows.values())

    @property
    def shown(self) -> tuple[Row, ...]:
        """The rows that fit the filter, in the order in which they are shown."""
        with self._lock:
            return tuple(self._found())

    def row(self, id: int) -> Row | None:
        """Return a row."""
        return self._rows.get(id)

    def put(self, rows: Iterable[Row]) -> None:
        """Add rows, or replace those of the same ids."""
        with self._awake:
            for row in rows:
                self._rows[row.id] = row
                self._outlines.pop(row.id, None)
                self._given_up.discard(row.id)
                if row.hear is not None:
                    self._unmeasured.append(row.id)
            self._stale = True
            self._wake()

    def mark(self, rows: Iterable[Row], state: RowState) -> None:
        """Let rows that are still there be in another state; one that has been replaced meanwhile is left alone."""
        with self._awake:
            for row in rows:
                if self._rows.get(row.id) is row:
                    self._rows[row.id] = replace(row, state=state)
            self._wake()

    def drop(self, ids: Iterable[int]) -> None:
        """Forget some rows."""
        with self._awake:
            for key in ids:
                self._rows.pop(key, None)
            self._stale = True
            self._wake()

    def clear(self) -> None:
        """Forget all rows."""
        with self._awake:
            for kept in (self._rows, self._outlines, self._unmeasured, self._given_up, self._told):
                kept.clear()
            self._stale = True
            self._wake()

    def arrange(self, where: str = "", by: str = "", *, descending: bool = False) -> None:
        """Filter and sort. Raises RequestInvalid for a filter that means nothing; the one before then stays."""
        with self._awake:
            matching(self._rows.values(), where)
            self._look = (where, by, descending)
            self._stale, self._sorted = True, 0.0
            self._wake()

    def pin(self, ids: Iterable[int]) -> None:
        """Let these come first."""
        with self._awake:
            self._pinned = frozenset(ids)
            self._stale, self._sorted = True, 0.0
            self._wake()

    def measure(self, metrics: Iterable[str | Metric]) -> None:
        """Measure these from now on, the takes that are there too. Raises like the constructor."""
        chosen = resolve(metrics)
        with self._awake:
            self.metrics = chosen
            self._rows = {key: replace(row, figures={}) for key, row in self._rows.items()}
            self._unmeasured = deque(key for key, row in self._rows.items() if row.hear is not None)
            self._given_up.clear()
            self._stale = True
            self._wake()

    def show(self, ids: Sequence[int]) -> None:
        """Take it that the page shows these, in part or soon, and tell it what it does not know of them."""
        with self._awake:
            self._shown = tuple(ids)
            self._wake()

    def again(self) -> None:
        """Take it that the page knows nothing: it was opened anew."""
        with self._awake:
            self._told.clear()
            self._counted = None
            self._wake()

    def settled(self, timeout: float) -> bool:
        """Wait until all is measured and told, at most ``timeout`` seconds; returns whether it is."""
        thread = self._thread
        if thread is not None:
            thread.join(timeout)
        return thread is None or not thread.is_alive()

    def close(self) -> None:
        """Do no more."""
        with self._awake:
            self._closed = True
            self._awake.notify_all()

    def _wake(self) -> None:
        self._pending = True
        if self._closed:
            return
        if self._thread is None or not self._thread.is_alive():
            # Daemonic: a kernel that shuts down does not wait for pictures.
            self._thread = threading.Thread(target=self._run, name="voicelab-takes", daemon=True)
            self._thread.start()
        self._awake.notify_all()

    def _run(self) -> None:
        while True:
            with self._awake:
                wait = self._last + _INTERVAL_S - time.monotonic()
                if self._closed:
                    return
                tell = self._pending and wait <= 0
                row = None if tell else self._next()
                if row is None and not tell:
                    if not self._pending:
                        self._thread = None
                        return
                    self._awake.wait(wait)
                    continue
                told = self._message() if tell else None
                self._last = time.monotonic() if tell else self._last
            if told is not None:
                self._tell(*told)
            elif row is not None:
                self._prepare(row)

    def _next(self) -> Row | None:
        """Return what is to be measured or drawn next: first what the page shows."""
        for key in self._shown:
            row = self._rows.get(key)
            if row is None or row.hear is None or key in self._given_up:
                continue
            if key not in self._outlines or not row.figures:
                return row
        while self._unmeasured:
            row = self._rows.get(self._unmeasured.popleft())
            if row is not None and row.hear is not None and not row.figures and row.id not in self._given_up:
                return row
        return None

    def _prepare(self, row: Row) -> None:
        try:
            clip = row.clip()
            drawn = outline(clip)
            figures: Mapping[str, float] = row.figures
            if not figures:
                (measured,) = measure_rows((clip,), self.metrics)
                figures = {metric.name: measured[metric.name] for metric in self.metrics}
            done = replace(row, figures=figures)
        except Exception as error:  # noqa: BLE001 (audio that is gone, somebody's own metric: the others go on)
            drawn, done = b"", replace(row, error=told(error))
        with self._awake:
            if self._rows.get(row.id) is not row:
                return  # another take has its place
            self._rows[row.id] = done
            if drawn:
                self._outlines[row.id] = drawn
                while len(self._outlines) > _OUTLINES:
                    self._outlines.popitem(last=False)
            else:
                self._given_up.add(row.id)
            self._stale = self._stale or bool(self._look[0] or self._look[1])
            self._pending = True

    def _found(self) -> list[Row]:
        """Return the rows that fit the filter, in order; holds the lock."""
        where, by, descending = self._look
        try:
            found = matching(self._rows.values(), where)
        except RequestInvalid:  # of a metric that is no longer measured, or not yet again: nothing is hidden
            found = list(self._rows.values())
        return ordered(found, by, descending=descending, pinned=self._pinned)

    def _arrange(self) -> bool:
        """Bring the order up to date where that is due; returns whether it has changed."""
        now = time.monotonic()
        if not self._stale or now < self._sorted + _ORDER_S:
            return False
        order = [row.id for row in self._found()]
        self._stale, self._sorted = False, now
        changed = order != self._order
        self._order = order
        return changed

    def _message(self) -> tuple[dict[str, Any], list[bytes]] | None:
        """Return what the page does not know yet of what it shows, None where that is nothing; holds the lock."""
        changed = self._arrange()
        self._pending = self._stale
        cards, drawn = [], []
        for key in self._shown:
            row = self._rows.get(key)
            if row is None:
                continue
            known = (row, key in self._outlines)
            if self._told.get(key) == known:
                continue
            self._told[key] = known
            cards.append(self._card(*known))
            if known[1]:
                drawn.append(self._outlines[key])
        counted = (len(self._rows), len(self._order))
        if not (cards or changed or counted != self._counted):
            return None
        message: dict[str, Any] = {"kind": "takes", "all": counted[0], "cards": cards}
        buffers = [b"".join(drawn)]
        if changed or counted != self._counted:
            message["ordered"] = True
            buffers.append(np.asarray(self._order, np.int32).tobytes())
        self._counted = counted
        return message, buffers

    def _card(self, row: Row, drawn: bool) -> dict[str, Any]:
        figures = [
            (metric.name, _figure(metric, row.figures[metric.name]))
            for metric in self.metrics
            if metric.name in row.figures
        ]
        return {
            "id": row.id,
            "labels": [(short_name(axis), label) for axis, label in row.labels.items()],
            "state": row.state,
            "error": row.error,
            "notes": list(row.notes),
            "figures": figures,
            "hear": row.hear is not None,
            "drawn": drawn,
        }


def _figure(metric: Metric, value: float) -> str:
    return f"{figure(value, metric.unit)} {metric.unit}".rstrip()
