"""TakesView: a grid of takes with what one does to many: filter, sort, find the odd one out, compare."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from html import escape
from typing import Any, Final

import ipywidgets as w

from voicelab.errors import VoicelabError
from voicelab.experiments.metrics import Metric
from voicelab.experiments.sweeps.axes import short_name
from voicelab.experiments.sweeps.rows import Row, comparison_of, odd_one_out
from voicelab.views.compare import ComparePanel
from voicelab.views.form import error_html
from voicelab.views.sweep import SHOWN
from voicelab.views.takes import TakeGrid

__all__ = ["TakesView", "flow", "shut", "small"]

_GRID_ORDER: Final = "order of the grid"


def small(text: str, does: Callable[[], object], name: str, **options: Any) -> w.Button:
    """Return a button as wide as its text, of the class ``voicelab-<name>``, that does something."""
    button = w.Button(description=text, layout=w.Layout(width="auto"), **options)
    button.add_class(f"voicelab-{name}")
    button.on_click(lambda _: does())
    return button


def flow(*children: w.Widget) -> w.HBox:
    """Return widgets side by side, on as many lines as they need."""
    return w.HBox(list(children), layout=w.Layout(flex_flow="row wrap", align_items="center"))


def shut(box: w.Box) -> None:
    """Close all that is in ``box`` and in the boxes in it, with what says how they look; ``box`` itself stays."""
    for child in box.children:
        if isinstance(child, w.Box):
            shut(child)
        child.close()
        for look in ("style", "layout"):
            if child.has_trait(look):
                getattr(child, look).close()


class TakesView(w.VBox):  # type: ignore[misc]  # ipywidgets publishes no types
    """A grid of takes below a line of controls.

    ``grid`` is the grid, ``stage`` the place below it where a comparison appears, ``tools`` further controls, which
    whoever uses this may fill. What goes wrong is said in ``message``.
    """

    def __init__(
        self,
        rows: Iterable[Row] = (),
        *,
        axes: Sequence[str] = (),
        metrics: Iterable[str | Metric] = SHOWN,
        columns: int = 1,
        gone: Callable[[], object] = lambda: None,
    ) -> None:
        self.grid = TakeGrid(rows, metrics=metrics, columns=columns, gone=gone)
        self._axes = tuple(axes)
        wide = {"width": "330px"}
        self.where = w.Text(description="filter", placeholder="temperature>=0.5, voice=ada", layout=wide)
        self.sort = w.Dropdown(description="sort", layout=w.Layout(width="230px"))
        self.descending = w.ToggleButton(description="↓", tooltip="The largest first", layout=w.Layout(width="34px"))
        self.measured = w.Text(description="metrics", continuous_update=False, layout=wide)
        self.metric = w.Dropdown(description="odd one out of", style={"description_width": "initial"})
        self.metric.layout.width = "220px"
        self.find = small("Find", self.find_odd, "outlier", tooltip="The take farthest from the median of all")
        self.compare_button = small("Compare", self.compare, "compare-selected", icon="headphones")
        self.select_button = small("Select all shown", self.select_shown, "select-shown")
        self.clear_button = small("Select none", self.select_none, "select-none")
        self.counted = w.Label()
        self.counted.add_class("voicelab-selected")
        self.message = w.HTML()
        self.message.add_class("voicelab-takes-message")
        self.stage = w.VBox()
        self.tools = flow()
        self._offer()
        super().__init__(
            [
                flow(self.where, self.sort, self.descending, self.measured, self.metric, self.find),
                flow(self.compare_button, self.select_button, self.clear_button, self.counted),
                self.tools,
                self.message,
                self.grid,
                self.stage,
            ]
        )
        self.add_class("voicelab-takes-view")
        self.where.observe(self._arrange, names="value")
        self.sort.observe(self._arrange, names="value")
        self.descending.observe(self._arrange, names="value")
        self.measured.observe(self._measure, names="value")
        self.grid.observe(self._count, names="selected")
        self._count()

    @property
    def selected(self) -> tuple[Row, ...]:
        """The rows that are selected, in the order in which they were."""
        return tuple(row for key in self.grid.selected if (row := self.grid.work.row(key)) is not None)

    def begin(self, rows: Iterable[Row], axes: Sequence[str], columns: int = 1) -> None:
        """Show other takes instead."""
        self._axes = tuple(axes)
        self.grid.clear()
        self.grid.columns = columns
        self.where.value = ""
        self._offer()
        self.grid.work.put(rows)

    def find_odd(self) -> None:
        """Bring the take into sight whose measurement is farthest from the median of those shown."""
        found = odd_one_out(self.grid.work.shown, self.metric.value)
        if found is None:
            self.say(f"{self.metric.value} does not differ, or fewer than three takes have it.")
            return
        row, score = found
        self.grid.reveal(row.id)
        how = "an outlier (beyond 3.5)" if abs(score) > 3.5 else "no outlier (that would be beyond 3.5)"
        self.say(f"{row.name}: {self.metric.value} is {score:+.1f} robust standard deviations from the median, {how}.")

    def compare(self) -> None:
        """Put the selected takes side by side below the grid."""
        self.attempt(lambda: self.put_on_stage(ComparePanel(comparison_of(self.selected))))

    def select_shown(self) -> None:
        """Select all takes that the filter leaves."""
        self.grid.selected = [row.id for row in self.grid.work.shown]

    def select_none(self) -> None:
        """Select nothing."""
        self.grid.selected = []

    def put_on_stage(self, widget: w.Widget) -> None:
        """Show a widget below the grid in place of the one before, which is closed."""
        shut(self.stage)
        self.stage.children = (widget,)

    def attempt(self, does: Callable[[], object]) -> None:
        """Do something; say here what went wrong."""
        self.message.value = ""
        try:
            does()
        except VoicelabError as error:
            self.message.value = error_html(error)

    def say(self, text: str) -> None:
        """Say something to whoever looks, and to a screen reader."""
        self.message.value = f'<div role="status">{escape(text)}</div>'

    def close(self) -> None:
        """Stop what is being worked out and take it off the page."""
        if hasattr(self, "grid"):
            shut(self)
        super().close()

    def _offer(self) -> None:
        metrics = [metric.name for metric in self.grid.work.metrics]
        wanted = self.sort.value
        offered = (_GRID_ORDER, *self._axes, *metrics)
        self.sort.options = [(short_name(name), name) for name in offered]
        self.sort.value = wanted if wanted in offered else _GRID_ORDER
        self.metric.options = metrics
        self.metric.value = metrics[0]
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
        self.compare_button.tooltip = "Compare the selected takes, 2 to 8 of them"
