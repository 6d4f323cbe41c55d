"""SweepPanel: edit, estimate, run, pause, cancel and play a sweep."""

from __future__ import annotations

import functools
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from html import escape
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

import ipywidgets as w

from voicelab.call import is_field, parse_value
from voicelab.errors import RequestInvalid, VoicelabError
from voicelab.listening.votes import Ballot
from voicelab.metrics import Metric
from voicelab.metrics.measure import resolve
from voicelab.sweeps.run import CAPS, Budget, Outcome, SweepRun, counted
from voicelab.sweeps.spec import axes_for, budget_of, retyped, texts_of, typed_axes
from voicelab.sweeps.sweep import Sweep
from voicelab.takes.cards import CardState
from voicelab.takes.rows import TakeRow
from voicelab.takes.table import TakeTable
from voicelab.views.background import Debouncer, Task
from voicelab.views.controls import described_field, described_knob, field_help, field_label, seed_reason
from voicelab.views.panel import (
    Ending,
    Panel,
    ProgressLine,
    SavedOutput,
    button,
    classed,
    close_widgets,
    control,
    disable,
    fold,
    html,
    line,
    main_button,
    mark_wrong,
    problem_html,
    stack,
)
from voicelab.views.result_panel import ResultPanel, Tabs
from voicelab.views.scripts import look
from voicelab.views.sweep_tables import SHOWN

if TYPE_CHECKING:
    import pandas as pd

_TICK_S: Final = 0.25
_ESTIMATED_TAKES: Final = 3
_MAX_REPEATS: Final = 10_000
# Axis values that are a range, which the picker shows in its fields.
_RANGE: Final = re.compile(r"\s*(\S+?)\s*\.\.\s*(\S+)\s+step\s+(\S+)\s*")
_DEFAULT_LIMIT: Final = 1000
"""Default limit on requests."""
_LIMITS: Final = dict(zip(CAPS, ("Requests", "Characters", "Audio, s", "Compute, s", "Cost"), strict=True))


def _rounded(seconds: float) -> str:
    """Format a remaining time, rounded to 5 s below 90 s and to a minute above."""
    return f"{max(5 * round(seconds / 5), 1)} s" if seconds < 90 else f"{round(seconds / 60)} min"


class _AxisRow(Ending, w.VBox):  # type: ignore[misc]  # ipywidgets publishes no types
    """Row of an axis: field, values as text, a picker that writes the text, and errors."""

    def __init__(self, form: _SweepForm, name: str, typed: str) -> None:
        self._form, self._writing = form, False
        fields = [(field_label(axis), axis) for axis in form.offered]
        self.field = control(w.Dropdown, "Vary", options=fields, value=name, help="Varied field")
        example = "0.2..1.0 step 0.2, or comma-separated values"
        self.values = control(w.Text, "over", "axis", value=typed, placeholder=example)
        self.remove = button("×", lambda: form.remove(self), "remove-axis", "icon", help="Remove this axis")
        self.picker = line(name="picker")
        self.problem = html("", "problem")
        row = control(w.HBox, "", "axis-row", children=[self.field, self.values, self.remove])
        super().__init__([row, self.picker, self.problem], layout=look(w.Layout))
        self.field.observe(self._field_changed, names="value")
        self._field_changed()
        self.values.observe(self._show_values, names="value")
        for widget in (self.field, self.values):
            widget.observe(form.changed, names="value")

    def _field_changed(self, _: object = None) -> None:
        """Offer the values of the field: a button for each value, or the minimum, maximum and step of a range."""
        self.values.tooltip = field_help(self.field.value)
        choices, ends = self._form.values_of(self.field.value)
        close_widgets(self.picker.children)
        if choices:
            parts = [control(w.ToggleButton, label, help=value) for label, value in choices]
            every = button("All", lambda: self._write(", ".join(value for _, value in choices)), "all-values")
            self.picker.children = (*parts, *([every] if len(parts) > 1 else []))
        else:
            parts = [
                control(w.Text, word, placeholder=end, continuous_update=False)
                for word, end in zip(("from", "to", "step"), ends, strict=False)
            ]
            self.picker.children = tuple(parts)
        self._parts, self._choices = parts, [value for _, value in choices]
        for part in parts:
            part.observe(self._pick, names="value")
        self._show_values()

    def _listed(self) -> list[str]:
        return [value for value in map(str.strip, self.values.value.split(",")) if value]

    def _show_values(self, _: object = None) -> None:
        """Set the controls of the picker from the text of the values."""
        if self._writing or not self._parts:
            return
        matched = _RANGE.fullmatch(self.values.value)
        if not (self._choices or matched or all(part.value for part in self._parts)):
            return  # the user is entering a range
        self._writing = True
        states: Iterable[Any] = matched.groups() if matched else [""] * len(self._parts)
        if self._choices:
            states = [value in self._listed() for value in self._choices]
        for part, state in zip(self._parts, states, strict=True):
            part.value = state
        self._writing = False

    def _pick(self, _: object) -> None:
        """Write the picked values as text."""
        if self._writing:
            return
        picked = [part.value for part in self._parts]
        if self._choices:
            others = [value for value in self._listed() if value not in self._choices]
            chosen = [value for value, on in zip(self._choices, picked, strict=True) if on]
            self._write(", ".join((*others, *chosen)))
        elif all(picked):
            self._write("{}..{} step {}".format(*picked))

    def _write(self, text: str) -> None:
        self.values.value = text


class TextsForm(Ending, w.VBox):  # type: ignore[misc]  # ipywidgets publishes no types
    """Form of a sweep over texts, validated shortly after its last change.

    ``sweep`` and ``budget`` are its contents; ``sweep`` is None while the form is ``invalid`` or not yet validated.
    ``changed`` is called, possibly from a thread, when the contents may have changed.
    """

    def __init__(
        self, texts: str, repeats: int, seed: int, changed: Callable[[], object], *sections: w.Widget, more: w.Widget
    ) -> None:
        self.sweep: Sweep | None = None
        self.invalid = False
        self.budget = Budget()
        self._changed = changed
        self._debouncer = Debouncer(self.check)
        options: Any = {"value": texts, "rows": 3, "help": field_help("text")}
        self.texts = control(w.Textarea, "Texts (one per line)", "sweep-texts", **options)
        self.texts_problem = html("", "problem")
        self.repeats = control(w.IntText, "Repeats", value=repeats, width="220px")
        self.repeats_problem, self.seed_problem = (html("", "problem") for _ in range(2))
        seeds = "Seed from which the seeds of the repeats are drawn; these are the same in every cell"
        self.seed = control(w.Text, "Seed", value=str(seed), width="160px", help=seeds)
        self.estimate, self.problem = html("", "estimate"), html("", "sweep-problem")
        numbers = line(self.repeats, self.seed)
        super().__init__(
            [
                self.texts,
                self.texts_problem,
                *sections,
                numbers,
                self.repeats_problem,
                self.seed_problem,
                more,
                self.estimate,
                self.problem,
            ],
            layout=look(w.Layout),
        )
        classed(self, "form")
        self.at_close(self._debouncer.close)
        for widget in (self.texts, self.repeats, self.seed):
            widget.observe(self.changed, names="value")

    def typed(self) -> tuple[Sweep, Budget, str]:
        """Return sweep, budget and a description of the form's contents. Raises VoicelabError."""
        raise NotImplementedError

    def checked_repeats(self) -> int:
        """Return the repeats. Raises RequestInvalid."""
        count = int(self.repeats.value)
        if not 1 <= count <= _MAX_REPEATS:
            raise RequestInvalid.of("repeats", f"must be between 1 and {_MAX_REPEATS:,}, got {count}")
        return count

    def places(self) -> Iterator[tuple[str, w.DOMWidget, w.HTML | None]]:
        """Yield the validated fields: name, control, and widget of its errors, if separate."""
        yield "text", self.texts, self.texts_problem
        yield "repeats", self.repeats, self.repeats_problem
        yield "seed", self.seed, self.seed_problem

    def check(self, is_current: Callable[[], bool]) -> None:
        """Validate the form in a thread; the results are discarded unless ``is_current()``."""
        problem: Exception | None = None
        needs = ""
        try:
            sweep, budget, description = self.typed()
            estimate = sweep.estimate()
            needs = f"{description}, {counted(len(sweep), 'take')}: {estimate}."
            budget.check(estimate)
        except VoicelabError as error:
            problem = error
        if not is_current():
            return
        self.invalid = problem is not None
        if problem is None:
            self.sweep, self.budget = sweep, budget
        self._changed()
        self.show(problem, needs)

    def show(self, problem: Exception | None, needs: str = "") -> None:
        """Show errors at their fields; errors without a field are shown below the form."""
        unplaced = list(problem.errors) if isinstance(problem, RequestInvalid) else []
        for name, widget, message in self.places():
            errors = [item for item in unplaced if item.field == name]
            mark_wrong(widget, errors)
            if message is not None:
                unplaced = [item for item in unplaced if item not in errors]
                message.value = problem_html(RequestInvalid(errors) if errors else None)
        rest = RequestInvalid(unplaced) if unplaced else None if isinstance(problem, RequestInvalid) else problem
        self.problem.value = problem_html(rest)
        self.estimate.value = f'<div role="status">{escape(needs)}</div>' if needs else ""

    def changed(self, _: object = None) -> None:
        """Invalidate the sweep until the change is validated."""
        self.sweep, self.invalid = None, False
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
        self.offered = axes_for(sweep)
        self.axes = stack()
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

    def values_of(self, name: str) -> tuple[list[tuple[str, str]], tuple[str, ...]]:
        """Return the choices of a field as (label, value), and minimum, maximum and step of a numeric field, as text."""
        declared = [backend.capabilities for backend in self._sweep.backends.values()]
        if name == "reference_id":
            voices = {voice.id: voice.title for capabilities in declared for voice in capabilities.voices}
            return [(title, identity) for identity, title in voices.items()], ()
        if name == "backend":
            return [(lab, lab) for lab in self._sweep.backends], ()
        knob = next((knob for knob in self._sweep.knobs if knob.name == name), None)
        if knob is None and not (is_field(name) or name == "model"):
            return [], ()  # placeholder of a template
        about = described_field(name, declared[0]) if knob is None else described_knob(knob)
        options = ["false", "true"] if about["kind"] == "switch" else [str(value) for value in about.get("options", ())]
        ends = (
            tuple(f"{about[end]:g}" for end in ("min", "max", "step")) if about["kind"] in {"slider", "number"} else ()
        )
        return [(value, value) for value in options], ends

    def add_axis(self) -> None:
        """Add a row for the next field that is not varied yet."""
        varied = {row.field.value for row in self.axes.children}
        free = next((name for name in self.offered if name not in varied), None)
        if free is not None:
            self.axes.children = (*self.axes.children, _AxisRow(self, free, ""))
            self.changed()

    def remove(self, row: _AxisRow) -> None:
        """Remove an axis."""
        self.axes.children = tuple(child for child in self.axes.children if child is not row)
        close_widgets([row])
        self.changed()

    def typed(self) -> tuple[Sweep, Budget, str]:
        """Return sweep, budget and a description of the form's contents. Raises VoicelabError."""
        budget = budget_of({name: limit.value for name, limit in self.limits.items()})
        axes = [(row.field.value, row.values.value) for row in self.axes.children]
        seed = parse_value("seed", self.seed.value)
        sweep = retyped(self._sweep, self.texts.value, axes, repeats=self.checked_repeats(), seed=seed)
        return sweep, budget, counted(len(sweep.grid.cells), "cell")

    def places(self) -> Iterator[tuple[str, w.DOMWidget, w.HTML | None]]:
        """Yield the validated fields: name, control, and widget of its errors, if separate."""
        # If two axes have the same name, the later one has the error.
        yield from ((row.field.value, row.values, row.problem) for row in reversed(self.axes.children))
        yield from super().places()
        yield from ((f"budget.{name}", limit, None) for name, limit in self.limits.items())


class SweepPanel(SavedOutput, Panel):
    """Panel to edit, estimate, run and play a sweep. Work runs in threads, so that the kernel remains available.

    ``sweep`` is the edited sweep (None while invalid), ``result`` the table so far. Takes are stored, so a cancelled
    run can be resumed. ``close()`` stops all work and removes the panel; a run also stops when the kernel is
    interrupted, and when the panel's output is deleted. After a run, the notebook stores the static output of its
    takes.
    """

    about = "a panel to edit, estimate and run a sweep, and to play its takes"

    def __init__(
        self, sweep: Sweep, *, metrics: Iterable[str | Metric] = SHOWN, tabs: Tabs = MappingProxyType({})
    ) -> None:
        self._run: SweepRun | None = None
        self._follower: Task | None = None
        self.run_button = main_button("Run", self.run, "run")
        self.pause_button = button("Pause", self.pause, "pause", disabled=True)
        self.cancel_button = button("Cancel", self.cancel, "cancel-sweep", disabled=True)
        self.progress = ProgressLine()
        self._planned, self._metrics, self._tabs = self.table_of(sweep), resolve(metrics), tabs
        self.progress.report("Run synthesizes the takes, which appear here.")
        self.form = self.new_form(sweep)
        buttons = line(self.run_button, self.pause_button, self.cancel_button, name="buttons")
        controls = line(buttons, self.progress)
        self.design = fold("Design", self.form, shown=True)
        super().__init__("sweep-panel", [self.design, controls, self.message])
        self.message.unseen = self.cancel
        self.at_close(self.cancel)

    @functools.cached_property
    def takes(self) -> ResultPanel:
        """Panel of the takes, created at the first run because it has most of the widgets."""
        takes = ResultPanel(self._planned, metrics=self._metrics, tabs=self._tabs)
        takes.owner = self
        self.children = (*self.children, takes)
        return takes

    def new_form(self, sweep: Sweep) -> TextsForm:
        """Return the form of the sweep, which calls ``_form_changed`` after changes."""
        return _SweepForm(sweep, self._form_changed)

    def table_of(self, sweep: Sweep, run: SweepRun | None = None) -> TakeTable:
        """Return the table of a run; the state of missing takes is "waiting"."""
        return sweep.table(run)

    def row_of(self, outcome: Outcome) -> TakeRow:
        """Return the row of a new take or failure in the table."""
        return outcome.row()

    @property
    def sweep(self) -> Sweep | None:
        """Edited sweep; None while the form is invalid."""
        return self.form.sweep

    @property
    def result(self) -> TakeTable:
        """Table of the takes so far."""
        return self.takes.result if self._run is not None else self._planned

    @property
    def ballot(self) -> Ballot | None:
        """Ratings of the latest blind test."""
        return self.takes.ballot if self._run is not None else None

    def frame(self) -> pd.DataFrame:
        """Measure the finished takes, and return the DataFrame of all takes with the measurements of the panel."""
        return self.takes.frame() if self._run is not None else self._planned.frame()

    def run(self) -> SweepRun | None:
        """Start the sweep, like the Run button; return None if the form is invalid."""
        if self._run is not None and self._run.state in {"running", "paused"}:
            return self._run
        self.form.settled()
        sweep = self.sweep
        if sweep is None:
            return None
        is_ready = threading.Event()

        def put(outcome: Outcome) -> None:
            is_ready.wait()
            self.takes.grid.work.put([self.takes.card(sweep.grid.position(outcome.job), self.row_of(outcome))])

        self.show_error(None)
        try:
            run = sweep.start(budget=self.form.budget, listener=put)
        except VoicelabError as error:
            self.show_error(error)
            return None
        try:
            self.takes.show_result(self.table_of(sweep))
            self.takes.grid.work.mark(self.takes.grid.work.rows, "waiting")
        finally:
            is_ready.set()
        self.takes.live = lambda: self.table_of(sweep, run)
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
        """Wait at most ``timeout`` seconds until the run has ended and is shown; return False on timeout."""
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
        self.run_button.disabled = active or self.form.invalid
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
            running = self._mark_running(run, sweep, running, ended=ended)
            self._update_buttons()
            progress = run.progress
            # An estimate from the first takes alone would be inaccurate.
            seconds = progress.remaining_s if progress.rendered >= _ESTIMATED_TAKES else None
            remaining = f", about {_rounded(seconds)} left" if seconds else ""
            self.progress.report(
                ". ".join((f"{progress}{remaining}", *run.notes)), progress.done / max(len(sweep), 1), "info"
            )
        styles = {"done": "success", "cancelled": "warning", "over budget": "warning"}
        self.form.check_again()
        if failures := self.result.failures:
            self.show_error(failures[0].error)
        self.progress.report(tone="danger" if run.progress.failed else styles.get(run.state, "danger"))
        self.update_saved_output()

    def _mark_running(self, run: SweepRun, sweep: Sweep, previous: set[int], *, ended: bool) -> set[int]:
        """Mark cards of running takes, and cards of aborted takes as waiting or, if the run has ended, all as missing."""
        work = self.takes.grid.work
        current = set(map(sweep.grid.position, run.running))
        states: tuple[tuple[set[int], CardState], ...] = (
            (current - previous, "running"),
            ({row.id for row in work.rows}, "missing") if ended else (previous - current, "waiting"),
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
        return self.takes.saved_output() if self._run is not None else {}
