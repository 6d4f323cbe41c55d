"""KnobPanel: measure the effect of every field and parameter of a backend, compared with its declaration."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from functools import partial
from typing import cast

import ipywidgets as w

from voicelab.call import short_name
from voicelab.errors import Cancelled, RequestInvalid
from voicelab.session import Session
from voicelab.sweeps.knobs import KnobCheck, check_knobs, checked_names
from voicelab.views.background import Task
from voicelab.views.bundles import knob_check_bundle
from voicelab.views.controls import field_label
from voicelab.views.panel import Panel, ProgressLine, SavedOutput, button, control, html, line, main_button


class KnobPanel(SavedOutput, Panel):
    """Panel that checks fields and parameters. ``check`` is the KnobCheck of the latest finished run.

    The check runs in a thread; ``close()`` and Cancel stop it before the next take. The notebook stores the table.
    """

    about = "a panel to measure the effect of each field and parameter of a backend"

    def __init__(self, lab: Session, names: Sequence[str] = (), *, repeats: int = 3, seed: int = 0) -> None:
        self._lab, self._seed, self._base = lab, seed, lab.call("knobs")
        self._task: Task | None = None
        self._stop = threading.Event()
        self.check: KnobCheck | None = None
        capabilities = lab.capabilities
        chosen = checked_names(capabilities, self._base, names or None)
        self.choices = {name: self._choice(name, name in chosen) for name in checked_names(capabilities, self._base)}
        self.repeats = control(w.IntText, "Repeats per text and value", value=repeats, width="280px")
        self.run_button = main_button("Run", self.run, "run-knobs")
        self.cancel_button = button("Cancel", self.cancel, "cancel-knobs", disabled=True)
        self.progress = ProgressLine()
        self.table = html("", "knob-table", "scroll")
        every = [
            button(label, partial(self._choose_all, on), f"knobs-{label.lower()}")
            for label, on in (("All", True), ("None", False))
        ]
        buttons = line(self.run_button, self.cancel_button, name="buttons")
        controls = line(buttons, self.repeats, line(*every, name="buttons"))
        choices = line(*self.choices.values(), name="choices")
        super().__init__("knob-panel", [choices, controls, self.progress, self.message, self.table])
        self.message.unseen = self.cancel
        self.at_close(self.cancel)

    def run(self) -> Task | None:
        """Start the check, like the Run button; return None if it cannot start."""
        if self.run_button.disabled:
            return self._task
        names = [name for name, choice in self.choices.items() if choice.value]
        if not names:
            self.show_error(RequestInvalid.of("names", "choose at least one field or knob", in_="query"))
            return None
        self.show_error(None)
        self.run_button.disabled, self.cancel_button.disabled = True, False
        stop = self._stop = threading.Event()
        self._task = self.in_background(lambda: self._measure(names, stop), "knobs", self._failed, stop.set)
        return self._task

    def cancel(self) -> None:
        """Cancel the check, like the Cancel button."""
        self._stop.set()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait at most ``timeout`` seconds until the check has ended and is shown; return False on timeout."""
        return self._task is None or self._task.wait(timeout)

    def _choice(self, name: str, chosen: bool) -> w.Checkbox:
        ignored = self._lab.capabilities.ignored(name)
        label = field_label(name) + (" (declared: ignored)" if ignored else "")
        declaration = f"{short_name(name)}: {ignored or 'declared to have an effect'}"
        return cast("w.Checkbox", control(w.Checkbox, label, value=chosen, indent=False, help=declaration))

    def _choose_all(self, on: bool) -> None:
        for choice in self.choices.values():
            choice.value = on

    def _measure(self, names: Sequence[str], stop: threading.Event) -> None:
        def progress(done: int, total: int) -> None:
            if stop.is_set():
                raise Cancelled("the check was cancelled")
            self.progress.report(f"{done} of {total} takes", done / total, "info")

        self.progress.report("waiting for the first take…", 0.0, "info")
        check = check_knobs(
            self._lab.backend, self._base, names, repeats=self.repeats.value, seed=self._seed, progress=progress
        )
        self.check = check
        self.table.value = knob_check_bundle(check)["text/html"]
        wrong = [item.name for item in check.findings if item.verdict == "contradicts"]
        verdict = f"contradicts its declaration: {', '.join(wrong)}" if wrong else "all agree with their declarations"
        self._end(f"{len(check.findings)} checked; {verdict}", "danger" if wrong else "success")
        self.update_saved_output()

    def _failed(self, error: Exception) -> None:
        if isinstance(error, Cancelled):
            self._end("cancelled", "warning")
        else:
            self._end("failed", "danger")
            self.show_error(error)

    def _end(self, status: str, tone: str) -> None:
        self.progress.report(status, tone=tone)
        self.run_button.disabled, self.cancel_button.disabled = False, True

    def __repr__(self) -> str:
        return f"KnobPanel({self._lab.capabilities.name}, {len(self.choices)} fields and knobs)"

    def saved_output(self) -> Mapping[str, str]:
        """Return the table of the last run."""
        return {} if self.check is None else knob_check_bundle(self.check)
