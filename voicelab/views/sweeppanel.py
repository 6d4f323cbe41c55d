"""SweepPanel: type axes, see what they need, run, pause, cancel, listen; and ResultPanel, what has come of it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

import ipywidgets as w

from voicelab.errors import VoicelabError
from voicelab.experiments.listening.design import KINDS
from voicelab.experiments.listening.votes import Ballot
from voicelab.experiments.metrics import Metric
from voicelab.experiments.sweeps.axes import short_name
from voicelab.experiments.sweeps.grid import Grid
from voicelab.experiments.sweeps.result import SweepResult
from voicelab.experiments.sweeps.rows import RowState, place, row_of, waiting_rows
from voicelab.experiments.sweeps.run import Outcome, Run
from voicelab.experiments.sweeps.sweep import Sweep
from voicelab.views.form import error_html
from voicelab.views.lasting import Lasting
from voicelab.views.listening import ListeningWidget
from voicelab.views.sweep import SHOWN, result_bundle
from voicelab.views.sweepform import SweepForm
from voicelab.views.sweeppage import write_page
from voicelab.views.takesview import TakesView, flow, shut, small

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["ResultPanel", "SweepPanel"]

_TICK_S: Final = 0.25
_ROWS: Final = 200


class ResultPanel(Lasting, TakesView):
    """What a sweep has brought, to hear, look through and send on. ``result`` is the SweepResult it shows.

    What is done with a selection is done with all takes that are shown where nothing is selected. ``frame()`` is the
    table, measurements included. ``ballot`` has the votes of the blind test that was begun last. The notebook keeps
    the table of takes that the result itself shows.
    """

    about = "a panel to hear, sort and compare its takes"

    def __init__(
        self,
        result: SweepResult,
        *,
        metrics: Iterable[str | Metric] = SHOWN,
        gone: Callable[[], object] = lambda: None,
    ) -> None:
        super().__init__(metrics=metrics, gone=gone)
        self.ballot: Ballot | None = None
        self.kind = w.Dropdown(options=[kind for kind in KINDS if kind != "MUSHRA"], layout={"width": "110px"})
        self.kind.tooltip = "Kind of listening test"
        self.over = w.Dropdown(description="over", layout=w.Layout(width="200px"), style={"description_width": "40px"})
        self.test_button = small("Blind test", self.listening_test, "blind-test", icon="eye-slash")
        self.folder = w.Text(
            value="sweep", description="folder", layout={"width": "240px"}, style={"description_width": "50px"}
        )
        self.export_button = small("Export", self.export, "export", icon="save")
        self.export_button.tooltip = "Write the takes as they came, takes.csv and takes.html"
        self.table_button = small("Table", self.show_table, "table", icon="table")
        test = flow(self.test_button, self.kind, self.over)
        self.tools.children = (test, flow(self.folder, self.export_button, self.table_button))
        self.fill(result)

    @property
    def result(self) -> SweepResult:
        """What there is so far."""
        return self._live()

    @property
    def selection(self) -> SweepResult:
        """The result with those takes only that are selected, or shown where none is, in the order of the grid."""
        rows = self.selected or self.grid.work.shown
        result, chosen = self.result, {row.id for row in rows}
        return replace(result, outcomes=tuple(one for one in result.outcomes if _id(result.grid, one) in chosen))

    def fill_from(self, live: Callable[[], SweepResult]) -> None:
        """Take it that ``live`` returns what has come since of what is shown."""
        self._live = live

    def fill(self, result: SweepResult) -> None:
        """Show a result; takes that are not there yet wait."""
        self.fill_from(lambda: result)
        axes = result.grid.axes
        names = [*(axis.name for axis in axes), *(("take",) if result.grid.repeats > 1 else ())]
        rows = {row.id: row for row in waiting_rows(result.grid)}
        rows |= {row.id: row for row in (row_of(outcome, result.grid) for outcome in result.outcomes)}
        columns = (len(axes[-1]) if axes else 1) * result.grid.repeats
        self.begin(rows.values(), names, columns)
        self.over.options = [(short_name(axis.name), axis.name) for axis in axes]
        self.over.value = axes[-1].name if axes else None
        self.test_button.disabled = not axes

    def listening_test(self) -> None:
        """Ask about the selected takes blindly, below the grid; the votes go into a file beside the notebook."""

        def ask() -> None:
            test = self.selection.listening_test(self.kind.value, self.over.value)
            path = Path(f"votes-{datetime.now(UTC):%Y%m%d-%H%M%S}.sqlite3")
            ballot = Ballot(test, path)
            # After the new one is there: if it cannot be made, the test on the page goes on.
            self._let_go()
            self.ballot = ballot
            self.put_on_stage(ListeningWidget(self.ballot))
            self.say(f"The votes go into {path}; analyse(ballot.test, ballot) unblinds them, with this panel's ballot.")

        self.attempt(ask)

    def close(self) -> None:
        """Let go of the file of votes, and take everything off the page."""
        self._let_go()
        super().close()

    def _let_go(self) -> None:
        # Also called for a panel that could not be made.
        ballot: Ballot | None = getattr(self, "ballot", None)
        if ballot is not None:
            ballot.close()

    def export(self) -> threading.Thread:
        """Write the selected takes into the folder, in a thread."""
        folder, selection, metrics = Path(self.folder.value), self.selection, self.grid.work.metrics
        self.export_button.disabled = True
        self.say(f"Writing {len(selection.takes)} takes to {folder} …")

        def write() -> None:
            try:
                selection.export(folder)
                write_page(selection, folder / "takes.html", metrics)
            except VoicelabError as error:
                self.message.value = error_html(error)
            else:
                self.say(f"{len(selection.takes)} takes are in {folder}: audio, takes.csv and takes.html.")
            finally:
                self.export_button.disabled = False

        thread = threading.Thread(target=write, name="voicelab-export", daemon=True)
        thread.start()
        return thread

    def frame(self) -> pd.DataFrame:
        """Return the table of all takes with their measurements, those that are made; ``frame`` of a result has more."""
        # Of a sweep that runs, each look at the result is another one.
        result = self.result
        frame = result.frame()
        figures = {row.id: row.figures for row in self.grid.work.rows}
        ids = [_id(result.grid, outcome) for outcome in result.outcomes]
        for metric in self.grid.work.metrics:
            frame[metric.name] = [figures.get(key, {}).get(metric.name, float("nan")) for key in ids]
        return frame

    def show_table(self) -> None:
        """Show the table below the grid; ``frame()`` returns it."""

        def show() -> None:
            frame = self.frame().drop(columns=["key", "digest"])
            note = f"<p>{len(frame)} rows, the first {_ROWS} are here; <code>panel.frame()</code> is the DataFrame.</p>"
            table = frame.head(_ROWS).to_html(na_rep="", border=0, float_format="{:.4g}".format, index=False)
            box = w.HTML(f'<div style="overflow:auto;max-height:420px">{note}{table}</div>')
            box.add_class("voicelab-table")
            self.put_on_stage(box)

        self.attempt(show)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.result!r})"

    def lasting(self) -> Mapping[str, str]:
        """Return the table of the takes that there are."""
        return result_bundle(self.result) if self.result.outcomes else {}


class SweepPanel(Lasting, w.VBox):  # type: ignore[misc]  # ipywidgets publishes no types
    """A sweep to be typed, estimated, run and heard. The work is done in threads, the kernel stays free.

    ``sweep`` is what is typed (None while it is wrong), ``result`` what has come. What is made is kept: a run that was
    cancelled goes on where it was. ``close()`` stops all and takes the panel off the page; so does the run stop when
    no page has shown the panel for some seconds. Once a run is over the notebook keeps the table of its takes.
    """

    about = "a panel to type the axes of a sweep, see what it needs, run it and hear its takes"

    def __init__(self, sweep: Sweep, *, metrics: Iterable[str | Metric] = SHOWN) -> None:
        self._run: Run | None = None
        self._ticker: threading.Thread | None = None
        self.run_button = small("Run", self.run, "run", button_style="primary", icon="play", disabled=True)
        self.pause_button = small("Pause", self.pause, "pause", icon="pause", disabled=True)
        self.cancel_button = small("Cancel", self.cancel, "cancel-sweep", icon="stop", disabled=True)
        self.progress = w.IntProgress(min=0, max=1, layout=w.Layout(width="200px"))
        self.status = w.Label()
        self.status.add_class("voicelab-sweep-status")
        self.message = w.HTML()
        self.message.add_class("voicelab-sweep-message")
        self.takes = ResultPanel(SweepResult(sweep.grid, (), "cancelled"), metrics=metrics, gone=self.cancel)
        self.takes.layout.display = "none"
        self.form = SweepForm(sweep, self._typed)
        controls = flow(self.run_button, self.pause_button, self.cancel_button, self.progress, self.status)
        super().__init__([self.form, controls, self.message, self.takes])
        self.add_class("voicelab-sweep-panel")

    @property
    def sweep(self) -> Sweep | None:
        """The sweep that is typed; None while something is wrong with it."""
        return self.form.sweep

    @property
    def result(self) -> SweepResult:
        """What has come so far."""
        return self.takes.result

    @property
    def ballot(self) -> Ballot | None:
        """The votes of the blind test that was begun last."""
        return self.takes.ballot

    def run(self) -> Run | None:
        """Do what the Run button does; returns the work, or None when the form has an error."""
        sweep = self.form.sweep
        if self._run is not None and self._run.state in {"running", "paused"}:
            return self._run
        if sweep is None:
            return None
        self.message.value = ""
        grid, work = sweep.grid, self.takes.grid.work
        self.takes.fill(SweepResult(grid, (), "running"))
        try:
            run = sweep.start(budget=self.form.budget, listener=lambda one: work.put([row_of(one, grid)]))
        except VoicelabError as error:
            self.message.value = error_html(error)
            return None
        self.takes.fill_from(lambda: sweep.result(run))
        self.takes.layout.display = None
        self._run = run
        self.progress.max = max(len(sweep), 1)
        self._ticker = threading.Thread(
            target=self._follow, args=(self._run, sweep), name="voicelab-panel", daemon=True
        )
        self._ticker.start()
        return self._run

    def pause(self) -> None:
        """Do what the Pause button does: start no more takes, or go on."""
        if self._run is not None:
            if self._run.state == "paused":
                self._run.unpause()
            else:
                self._run.pause()
            self._buttons()

    def cancel(self) -> None:
        """Do what the Cancel button does: break off what runs, keep what is made."""
        if self._run is not None:
            self._run.cancel()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until a run is over and shown, at most ``timeout`` seconds; returns whether it is."""
        ticker = self._ticker
        if ticker is not None:
            ticker.join(timeout)
        return ticker is None or not ticker.is_alive()

    def close(self) -> None:
        """Stop the work and take the panel off the page."""
        if hasattr(self, "form"):
            self.cancel()
            shut(self)
        super().close()

    def _typed(self) -> None:
        # The form tells of itself while it is being made.
        if hasattr(self, "form"):
            self._buttons()
        else:
            self.run_button.disabled = True

    def _buttons(self) -> None:
        state = self._run.state if self._run is not None else ""
        active = state in {"running", "paused"}
        wanted = {
            (self.run_button, "disabled"): active or self.form.sweep is None,
            (self.run_button, "description"): "Resume" if state in {"cancelled", "over budget"} else "Run",
            (self.pause_button, "disabled"): not active,
            (self.pause_button, "description"): "Go on" if state == "paused" else "Pause",
            (self.cancel_button, "disabled"): not active,
        }
        for (button, trait), value in wanted.items():
            if getattr(button, trait) != value:
                setattr(button, trait, value)

    def _follow(self, run: Run, sweep: Sweep) -> None:
        """Show how far a run is, until it is over; in a thread of its own."""
        over, begun = False, set[int]()
        while not over:
            try:
                over = run.wait(_TICK_S)
            except Exception as error:  # noqa: BLE001 (the run itself failed: whoever looks is told)
                over = True
                self.message.value = error_html(error)
            begun = self._mark_running(run, sweep.grid, begun)
            self._buttons()
            known = run.progress
            if self.progress.value != known.done:
                self.progress.value = known.done
            left = f", about {known.remaining_s:.0f} s left" if known.remaining_s else ""
            self.status.value = f"{known}{left}"
        done = {"done": "success", "cancelled": "warning", "over budget": "warning"}
        self.progress.bar_style = "danger" if run.progress.failed else done.get(run.state, "danger")
        self.last()

    def _mark_running(self, run: Run, grid: Grid, before: set[int]) -> set[int]:
        """Let the takes that are being made say so, and those wait again that were broken off."""
        work = self.takes.grid.work
        now = {place(grid, job.cell.index, job.repeat) for job in run.running}
        states: tuple[tuple[set[int], RowState], ...] = ((now - before, "running"), (before - now, "waiting"))
        for keys, state in states:
            rows = [row for key in keys if (row := work.row(key)) is not None]
            # One that has come meanwhile is left as it is.
            work.mark([row for row in rows if row.state in {"waiting", "running"}], state)
        return now

    def __repr__(self) -> str:
        return f"SweepPanel({self.form.sweep or self.result!r})"

    def lasting(self) -> Mapping[str, str]:
        """Return the table of the takes that there are."""
        return self.takes.lasting()


def _id(grid: Grid, outcome: Outcome) -> int:
    return place(grid, outcome.job.cell.index, outcome.job.repeat)
