"""SweepPanel: edit, estimate, run, pause, cancel and play a sweep; ResultPanel: play and analyze a table of takes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from functools import partial
from html import escape
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

import ipywidgets as w

from voicelab.call import parse_value, short_name
from voicelab.clip import Clip
from voicelab.errors import RequestInvalid, VoicelabError
from voicelab.listening.design import KINDS
from voicelab.listening.votes import Ballot
from voicelab.metrics import Metric, with_note
from voicelab.recordings import REPEAT
from voicelab.stats.effects import effects
from voicelab.sweeps.run import CAPS, Budget, Outcome, SweepRun
from voicelab.sweeps.spec import axes_for, budget_of, retyped, texts_of, typed_axes
from voicelab.sweeps.sweep import Sweep
from voicelab.takes.cards import TakeCard, card_of
from voicelab.takes.rows import RowState, TakeRow
from voicelab.takes.table import TakeTable
from voicelab.views.background import Debouncer, Task
from voicelab.views.bundles import effects_bundle, error_html, table
from voicelab.views.controls import field_help, field_label, seed_reason
from voicelab.views.listening import ListeningWidget
from voicelab.views.panel import (
    Ending,
    Message,
    Panel,
    ProgressLine,
    SavedOutput,
    button,
    classed,
    control,
    disable,
    fold,
    line,
    mark_wrong,
)
from voicelab.views.sweep_tables import SHOWN, table_bundle, write_page
from voicelab.views.takes import TakesView

if TYPE_CHECKING:
    import pandas as pd

_TICK_S: Final = 0.25
_ROWS: Final = 200
_DEFAULT_LIMIT: Final = 1000
"""Default limit on requests."""
_LIMITS: Final = dict(zip(CAPS, ("Requests", "Characters", "Audio, s", "Compute, s", "Cost"), strict=True))

Tabs = Mapping[str, tuple[str, Callable[[TakeTable], Mapping[str, str]]]]
"""Further tabs of a result: status text while computing, and the function that makes the output."""


class _AxisRow(Ending, w.VBox):  # type: ignore[misc]  # ipywidgets publishes no types
    """Row of an axis: field, values, and errors."""

    def __init__(self, form: _SweepForm, name: str, typed: str) -> None:
        self._voices = form.voices
        fields = [(field_label(axis), axis) for axis in form.offered]
        self.field = control(w.Dropdown, "Vary", options=fields, value=name, help="Varied field")
        example = "0.2..1.0 step 0.2, or comma-separated values"
        self.values = control(w.Text, "over", "axis", value=typed, placeholder=example)
        self.remove = button("×", lambda: form.remove(self), "remove-axis", help="Remove this axis")
        self.problem = classed(w.HTML(), "problem")
        row = classed(w.HBox([self.field, self.values, classed(self.remove, "icon")]), "axis-row")
        super().__init__([row, self.problem])
        self.field.observe(self._update_help, names="value")
        self._update_help()
        for widget in (self.field, self.values):
            widget.observe(form.changed, names="value")

    def _update_help(self, _: object = None) -> None:
        name = self.field.value
        voices = f" Voices: {', '.join(self._voices)}." if name == "reference_id" and self._voices else ""
        self.values.tooltip = field_help(name) + voices


class TextsForm(Ending, w.VBox):  # type: ignore[misc]  # ipywidgets publishes no types
    """Form of a sweep over texts, validated shortly after its last change.

    ``sweep`` and ``budget`` are its contents; ``sweep`` is None while the form is invalid, with the error at its field, or
    not validated yet. ``changed`` is called, possibly from a thread, when they may have changed.
    """

    def __init__(
        self, texts: str, repeats: int, seed: int, changed: Callable[[], object], *sections: w.Widget, more: w.Widget
    ) -> None:
        self.sweep: Sweep | None = None
        self.budget = Budget()
        self._changed = changed
        self._debouncer = Debouncer(self.check)
        options: Any = {"value": texts, "rows": 3, "help": field_help("text")}
        self.texts = control(w.Textarea, "Texts (one per line)", "sweep-texts", **options)
        self.texts_problem = classed(w.HTML(), "problem")
        self.repeats = control(w.BoundedIntText, "Repeats", value=repeats, min=1, max=10_000, width="220px")
        seeds = "Source of the seeds of the repeats, the same in every cell"
        self.seed = control(w.Text, "Seed", value=str(seed), width="160px", help=seeds)
        self.estimate, self.problem = classed(w.HTML(), "estimate"), classed(w.HTML(), "sweep-problem")
        numbers = line(self.repeats, self.seed)
        super().__init__([self.texts, self.texts_problem, *sections, numbers, more, self.estimate, self.problem])
        classed(self, "form")
        self.at_close(self._debouncer.close)
        for widget in (self.texts, self.repeats, self.seed):
            widget.observe(self.changed, names="value")

    def typed(self) -> tuple[Sweep, Budget, str]:
        """Return sweep, budget and a description of the form's contents. Raises VoicelabError."""
        raise NotImplementedError

    def places(self) -> Iterator[tuple[str, w.DOMWidget, w.HTML | None]]:
        """Yield the validated fields: name, control, and widget of its errors, if separate."""
        yield "text", self.texts, self.texts_problem
        yield "seed", self.seed, None

    def check(self, is_current: Callable[[], bool]) -> None:
        """Validate the form, in a thread; results are dropped unless ``is_current``."""
        problem: Exception | None = None
        needs = ""
        try:
            sweep, budget, description = self.typed()
            estimate = sweep.estimate()
            needs = f"{description}, {len(sweep)} takes: {estimate}."
            budget.check(estimate)
        except VoicelabError as error:
            problem = error
        if not is_current():
            return
        self.show(problem, needs)
        if problem is None:
            self.sweep, self.budget = sweep, budget
        self._changed()

    def show(self, problem: Exception | None, needs: str = "") -> None:
        """Show errors at their fields, others below the form."""
        unplaced = list(problem.errors) if isinstance(problem, RequestInvalid) else []
        for name, widget, message in self.places():
            errors = [item for item in unplaced if item.field == name]
            mark_wrong(widget, errors)
            if message is not None:
                unplaced = [item for item in unplaced if item not in errors]
                message.value = error_html(RequestInvalid(errors)) if errors else ""
        rest = RequestInvalid(unplaced) if unplaced else None if isinstance(problem, RequestInvalid) else problem
        self.problem.value = error_html(rest) if rest is not None else ""
        self.estimate.value = f'<div role="status">{escape(needs)}</div>' if needs else ""

    def changed(self, _: object = None) -> None:
        """Invalidate the sweep until the change is validated."""
        self.sweep = None
        self._changed()
        self._debouncer.ask()

    def check_again(self) -> None:
        """Estimate again, since takes may be cached now."""
        self._debouncer.ask()

    def settled(self, timeout: float = 10.0) -> bool:
        """Wait until the form is validated and estimated; return False on timeout."""
        return bool(self._debouncer.settled(timeout))


class _SweepForm(TextsForm):
    """Form of texts, axes and limits, validated before anything runs."""

    def __init__(self, sweep: Sweep, changed: Callable[[], object]) -> None:
        self._sweep = sweep
        voices = (voice.id for backend in sweep.backends.values() for voice in backend.capabilities.voices)
        self.voices = tuple(dict.fromkeys(voices))
        self.offered = axes_for(sweep)
        self.axes = w.VBox()
        self.add = button("Add an axis", self.add_axis, "add-axis")
        free = {"placeholder": "no limit", "width": "200px"}
        self.limits = {name: control(w.Text, _LIMITS[name], f"limit-{name}", **free) for name in CAPS}
        self.limits["requests"].value = f"{_DEFAULT_LIMIT}"
        limits = fold("Limits: stop before exceeding them", line(*self.limits.values()))
        sections = (self.axes, line(self.add, name="buttons"))
        super().__init__(texts_of(sweep), sweep.repeats, sweep.seed, changed, *sections, more=limits)
        declared = [backend.capabilities for backend in sweep.backends.values()]
        disable(self.seed, seed_reason(declared))
        disable(
            self.limits["cost"],
            "" if any(capabilities.prices for capabilities in declared) else "the backends have no prices",
        )
        self.axes.children = tuple(_AxisRow(self, name, typed) for name, typed in typed_axes(sweep))
        for limit in self.limits.values():
            limit.observe(self.changed, names="value")
        self.changed()

    def add_axis(self) -> None:
        """Add a row for the next unvaried field."""
        varied = {row.field.value for row in self.axes.children}
        free = next((name for name in self.offered if name not in varied), None)
        if free is not None:
            self.axes.children = (*self.axes.children, _AxisRow(self, free, ""))
            self.changed()

    def remove(self, row: _AxisRow) -> None:
        """Remove an axis."""
        self.axes.children = tuple(child for child in self.axes.children if child is not row)
        row.close()
        row.layout.close()
        self.changed()

    def typed(self) -> tuple[Sweep, Budget, str]:
        """See TextsForm."""
        budget = budget_of({name: limit.value for name, limit in self.limits.items()})
        axes = [(row.field.value, row.values.value) for row in self.axes.children]
        seed = parse_value("seed", self.seed.value)
        sweep = retyped(self._sweep, self.texts.value, axes, repeats=self.repeats.value, seed=seed)
        return sweep, budget, f"{len(sweep.grid.cells)} cells"

    def places(self) -> Iterator[tuple[str, w.DOMWidget, w.HTML | None]]:
        """See TextsForm."""
        # Of two axes of one name the later one has the error.
        yield from ((row.field.value, row.values, row.problem) for row in reversed(self.axes.children))
        yield from super().places()
        yield from ((f"budget.{name}", limit, None) for name, limit in self.limits.items())


class ResultPanel(SavedOutput, TakesView):
    """Panel of a TakeTable, ``result``: play, filter, compare, analyze, test blindly and export its takes.

    Actions apply to the selected takes, or to all shown ones without a selection. ``frame()`` is the DataFrame with
    measurements. ``ballot`` has the ratings of the latest blind test. The notebook stores the static output of the table.
    """

    about = "a panel to play, sort and compare its takes"
    live: Callable[[], TakeTable]
    """Returns the table of the takes so far."""
    ballot: Ballot | None = None

    def __init__(
        self,
        result: TakeTable,
        *,
        metrics: Iterable[str | Metric] = SHOWN,
        tabs: Tabs = MappingProxyType({}),
    ) -> None:
        super().__init__(metrics=metrics)
        self._tested: pd.DataFrame | None = None
        self.kind = control(w.Dropdown, "Kind", options=[kind for kind in KINDS if kind != "MUSHRA"], width="140px")
        self.over = control(w.Dropdown, "Compare by", width="300px")
        self.test_button = button("Begin", self.listening_test, "blind-test")
        self.folder = control(w.Text, "Folder", "folder", value="sweep", width="300px")
        files = "Write the audio as received, takes.csv and takes.html"
        self.export_button = button("Export", self.export, "export", help=files)
        self.add_tab("Effects", index=1, make=self.show_effects)
        self.add_tab("Blind test", line(self.kind, self.over, self.test_button))
        self.add_tab("Table", make=lambda: self.attempt(self.show_table))
        self.add_tab("Export", line(self.folder, self.export_button))
        for name, (words, make) in tabs.items():
            self.add_tab(name, make=partial(self.fill_later, name, partial(self._output_of, make), words))
        self.show_result(result)

    @property
    def result(self) -> TakeTable:
        """The table of the takes so far."""
        return self.live()

    @property
    def selection(self) -> TakeTable:
        """The table of the selected takes, or of all displayed takes if none is selected."""
        rows = self.selected or self.grid.work.shown
        chosen = {row.id for row in rows}
        return self.result.pick(index for index, _ in enumerate(self.result.rows) if index in chosen)

    def show_result(self, result: TakeTable) -> None:
        """Show a table; takes that are not made yet wait."""
        self.live = lambda: result
        self._names = [column.name for column in result.shown_columns]
        fetch = result.clip_of if result.matched and result.state == "done" else None
        cards = [self.card(index, row, fetch) for index, row in enumerate(result.rows)]
        self.begin(cards, result.columns)
        axes = [column for column in result.columns if column.name != REPEAT]
        self.over.options = [(field_label(column.name), column.name) for column in axes]
        self.over.value = axes[-1].name if axes else None
        self.test_button.disabled = not axes

    def card(self, index: int, row: TakeRow, fetch: Callable[[TakeRow], Clip] | None = None) -> TakeCard:
        """Make the card of a row of the table; ``fetch`` returns its clip in place of the take's own."""
        return card_of(index, row, self._names, None if fetch is None else partial(fetch, row))

    def listening_test(self) -> None:
        """Start a blind test of the selected takes; ratings are stored in a file next to the notebook."""

        def ask() -> None:
            test = self.selection.listening_test(self.kind.value, self.over.value)
            path = Path(f"votes-{datetime.now(UTC):%Y%m%d-%H%M%S}.sqlite3")
            # If the new ballot cannot be opened, the previous test continues.
            previous, self.ballot = self.ballot, Ballot(test, path)
            self.at_close(self.ballot.close)
            if previous is not None:
                previous.close()
            self.put("Blind test", ListeningWidget(self.ballot))
            self.say(f"The votes go into {path}; analyze(ballot.test, ballot) unblinds them, with this panel's ballot.")

        self.attempt(ask)

    def export(self) -> Task:
        """Write the selected takes to the folder, from a thread."""
        folder, selection, metrics = Path(self.folder.value), self.selection, self.grid.work.metrics
        self.export_button.disabled = True
        self.say(f"Writing {len(selection.takes)} takes to {folder} …")

        def write() -> None:
            try:
                selection.export(folder)
                write_page(selection, folder / "takes.html", metrics)
                self.say(f"{len(selection.takes)} takes are in {folder}: audio, takes.csv and takes.html.")
            finally:
                self.export_button.disabled = False

        return self.in_background(write, "export")

    def frame(self) -> pd.DataFrame:
        """Return the DataFrame of all takes with the measurements of the panel."""
        result = self.result  # of a running sweep, each access is another table
        frame = result.frame()
        figures = {row.id: row.figures for row in self.grid.work.rows}
        ids = [index for index, row in enumerate(result.rows) if row.state != "waiting"]
        for metric in self.grid.work.metrics:
            frame[metric.name] = [figures.get(key, {}).get(metric.name, float("nan")) for key in ids]
        return with_note(frame, self.grid.work.metrics)

    def _output_of(self, make: Callable[[TakeTable], Mapping[str, str]]) -> w.HTML:
        return w.HTML(make(self.result)["text/html"])

    def show_table(self) -> None:
        """Show the DataFrame, key columns and measurements first."""
        frame = self.frame().drop(columns=["key", "digest"])
        columns, metrics = self.result.columns, self.grid.work.metrics
        leading = [*(column.name for column in columns), *(metric.name for metric in metrics)]
        frame = frame[[*(name for name in leading if name in frame), *(name for name in frame if name not in leading)]]
        limit = f", the first {_ROWS} are here" if len(frame) > _ROWS else ""
        note = f'<p class="voicelab-soft">{len(frame)} rows{limit}; <code>panel.frame()</code> is the DataFrame.</p>'
        rows = frame.head(_ROWS).astype(object).itertuples(index=False)
        html = table([short_name(name) for name in frame.columns], ([_plain(value) for value in row] for row in rows))
        self.fill("Table", classed(w.HTML(f'{note}<div class="voicelab-scroll" tabindex="0">{html}</div>'), "table"))

    def show_effects(self) -> None:
        """Test the effect of each axis on each measurement, from a thread: see ``vl.effects``."""
        names, blocks = (list(map(short_name, columns)) for columns in self.result.factors())
        frame = self.frame().rename(columns=short_name)
        metrics = [metric.name for metric in self.grid.work.metrics]
        if self._tested is not None and self._tested.equals(frame) and self.content("Effects"):
            return  # already shown

        def make() -> Message:
            self._tested = frame
            table = Message(value=effects_bundle(effects(frame, names, metrics, blocks=blocks))["text/html"])
            table.on_msg(lambda _, message, __: self.order_by(message.get("pick", "")))
            return table

        self.fill_later("Effects", make, f"Testing the effects of {' and '.join(names)} on {', '.join(metrics)}…")

    def order_by(self, metric: str) -> None:
        """Sort and color the takes by a metric, and show them."""
        if metric in (shown.name for shown in self.grid.work.metrics):
            self.sort.value = self.color.value = metric
            self.tabs.selected_index = 0

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.result!r})"

    def saved_output(self) -> Mapping[str, str]:
        """Return the static output of the takes so far."""
        return table_bundle(self.result) if len(self.result) or self.result.failures else {}


class SweepPanel(SavedOutput, Panel):
    """Panel to edit, estimate, run and play a sweep. Work runs in threads, so that the kernel stays available.

    ``sweep`` is the edited sweep (None while invalid), ``result`` the table so far. Takes are stored: a cancelled run
    resumes. ``close()`` stops all work and removes the panel; a run also stops when the kernel is interrupted, and when the
    panel's output is deleted. After a run the notebook stores the static output of its takes.
    """

    about = "a panel to edit, estimate and run a sweep, and to play its takes"

    def __init__(
        self, sweep: Sweep, *, metrics: Iterable[str | Metric] = SHOWN, tabs: Tabs = MappingProxyType({})
    ) -> None:
        self._run: SweepRun | None = None
        self._follower: Task | None = None
        self.run_button = button("Run", self.run, "run", button_style="primary", disabled=True)
        self.pause_button = button("Pause", self.pause, "pause", disabled=True)
        self.cancel_button = button("Cancel", self.cancel, "cancel-sweep", disabled=True)
        self.progress = ProgressLine()
        self.takes = ResultPanel(self.table_of(sweep), metrics=metrics, tabs=tabs)
        self.takes.layout.display = "none"
        self.form = self.new_form(sweep)
        buttons = line(self.run_button, self.pause_button, self.cancel_button, name="buttons")
        controls = line(buttons, self.progress)
        self.design = fold("Design", self.form, shown=True)
        super().__init__("sweep-panel", [self.design, controls, self.message, self.takes])
        self.message.unseen = self.cancel
        self.at_close(self.cancel)

    def new_form(self, sweep: Sweep) -> TextsForm:
        """Return the form of the sweep, which calls ``_form_changed``."""
        return _SweepForm(sweep, self._form_changed)

    def table_of(self, sweep: Sweep, run: SweepRun | None = None) -> TakeTable:
        """Return the table of a run, in which takes that are not made yet wait."""
        return sweep.table(run)

    def row_of(self, outcome: Outcome) -> TakeRow:
        """Return the row of a new take or failure in the table."""
        return outcome.row()

    @property
    def sweep(self) -> Sweep | None:
        """The edited sweep; None while invalid."""
        return self.form.sweep

    @property
    def result(self) -> TakeTable:
        """The table of the takes so far."""
        return self.takes.result

    @property
    def ballot(self) -> Ballot | None:
        """Ratings of the latest blind test."""
        return self.takes.ballot

    def run(self) -> SweepRun | None:
        """Start the sweep, like the Run button; return None if the form is invalid."""
        sweep = self.sweep
        if self._run is not None and self._run.state in {"running", "paused"}:
            return self._run
        if sweep is None:
            return None
        work = self.takes.grid.work

        def put(outcome: Outcome) -> None:
            work.put([self.takes.card(sweep.grid.position(outcome.job), self.row_of(outcome))])

        self.show_error(None)
        self.takes.show_result(self.table_of(sweep))
        try:
            run = sweep.start(budget=self.form.budget, listener=put)
        except VoicelabError as error:
            self.show_error(error)
            return None
        self.takes.live = lambda: self.table_of(sweep, run)
        self.takes.layout.display = None
        self.design.set_title(0, f"Design: {sweep!r}")
        self.design.selected_index = None
        self._run = run
        self._follower = self.in_background(lambda: self._follow(run, sweep), "panel", stop=run.cancel)
        return run

    def pause(self) -> None:
        """Pause or resume, like the Pause button."""
        if self._run is not None:
            if self._run.state == "paused":
                self._run.unpause()
            else:
                self._run.pause()
            self._update_buttons()

    def cancel(self) -> None:
        """Cancel the run, like the Cancel button; finished takes are stored."""
        if self._run is not None:
            self._run.cancel()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the run has ended and is shown, at most ``timeout`` seconds; return False on timeout."""
        return self._follower is None or self._follower.wait(timeout)

    def _form_changed(self) -> None:
        if hasattr(self, "form"):  # not during construction
            self._update_buttons()

    def _update_buttons(self) -> None:
        state = self._run.state if self._run is not None else ""
        active = state in {"running", "paused"}
        label = "Resume" if state in {"cancelled", "over budget"} else "Run"
        if state == "done" and self._run is not None and self._run.progress.failed:
            label = "Retry failed"
        self.run_button.disabled = active or self.form.sweep is None
        self.run_button.description = label
        self.pause_button.disabled = self.cancel_button.disabled = not active
        self.pause_button.description = "Continue" if state == "paused" else "Pause"

    def _follow(self, run: SweepRun, sweep: Sweep) -> None:
        """Show the progress of a run until it ends; runs in a thread."""
        ended, running = False, set[int]()
        while not ended:
            try:
                ended = run.wait(_TICK_S)
            except Exception as error:  # noqa: BLE001 (an error of the run is shown)
                ended = True
                self.show_error(error)
            running = self._mark_running(run, sweep, running)
            self._update_buttons()
            progress = run.progress
            remaining = f", about {progress.remaining_s:.0f} s left" if progress.remaining_s else ""
            self.progress.report(
                ". ".join((f"{progress}{remaining}", *run.notes)), progress.done / max(len(sweep), 1), "info"
            )
        styles = {"done": "success", "cancelled": "warning", "over budget": "warning"}
        self.form.check_again()
        self.progress.report(tone="danger" if run.progress.failed else styles.get(run.state, "danger"))
        self.update_saved_output()

    def _mark_running(self, run: SweepRun, sweep: Sweep, previous: set[int]) -> set[int]:
        """Mark the cards of running takes, and those of aborted takes as waiting."""
        work = self.takes.grid.work
        current = set(map(sweep.grid.position, run.running))
        states: tuple[tuple[set[int], RowState], ...] = (
            (current - previous, "running"),
            (previous - current, "waiting"),
        )
        for keys, state in states:
            # A finished take keeps its state.
            rows = [row for row in map(work.row, keys) if row is not None and row.state in {"waiting", "running"}]
            work.mark(rows, state)
        return current

    def __repr__(self) -> str:
        return f"SweepPanel({self.form.sweep or self.result!r})"

    def saved_output(self) -> Mapping[str, str]:
        """Return the static output of the takes so far."""
        return self.takes.saved_output()


def _plain(value: object) -> str:
    """Format a value of a DataFrame; "" for a missing value."""
    if isinstance(value, float):
        return "" if math.isnan(value) else f"{value:.4g}"
    return "" if value is None else str(value)
