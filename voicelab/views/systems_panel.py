"""SystemsPanel: choose systems and texts, have all of them say all texts, and hear, measure and test them blindly."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from html import escape
from typing import Any, Final

import ipywidgets as w

from voicelab.call import parse_value
from voicelab.errors import ArgumentError, VoicelabError
from voicelab.experiments.metrics import Metric
from voicelab.experiments.runs.cache import Cache
from voicelab.experiments.sweeps.result import SweepResult
from voicelab.experiments.sweeps.run import Budget
from voicelab.experiments.sweeps.spec import lines_of, texts_in
from voicelab.experiments.sweeps.sweep import Sweep, sweep_of
from voicelab.experiments.systems import SystemComparison
from voicelab.registry import backends, split_address
from voicelab.session import Session
from voicelab.views.background import Task
from voicelab.views.bundles import error_html, systems_bundle
from voicelab.views.controls import seed_reason
from voicelab.views.panel import WIDE, button, disable, line
from voicelab.views.sweep_panel import CheckedForm, ResultPanel, SweepPanel

__all__ = ["SystemsPanel"]

_TAB: Final = "Systems"


class _SystemsForm(CheckedForm):
    """Which systems say which texts: what a sweep's form is to its panel. The first that is chosen is compared with."""

    def __init__(
        self,
        labs: Mapping[str, Session],
        texts: Sequence[str],
        changed: Callable[[], object],
        *,
        repeats: int,
        seed: int,
        cache: Cache | None,
    ) -> None:
        self._labs = dict(labs)
        self._cache = cache
        self.budget = Budget()
        self._opening: Task | None = None
        self.systems = w.VBox()
        usable = [one for one in backends() if not one.install]
        self.address = w.Combobox(
            placeholder=", ".join(one.form.partition(" or ")[0] for one in usable),
            options=[f"{one.name}:" for one in usable],
            description="Add",
            layout=w.Layout(flex="1 1 280px", max_width="460px"),
            style={"description_width": "35px"},
        )
        self.address.tooltip = "A backend's name and address, as vl.connect takes it"
        self.add_button = button("Add a system", self.add, "add-system", icon="plus")
        narrow = w.Layout(width="150px")
        initial = {"description_width": "initial"}
        self.texts = w.Textarea(
            value=lines_of(texts), rows=3, description="Texts, one a line", layout=WIDE, style=initial
        )
        self.texts.add_class("voicelab-systems-texts")
        self.repeats = w.BoundedIntText(
            value=repeats, min=1, max=10_000, description="Takes of each", layout=narrow, style=initial
        )
        self.seed = w.Text(value=str(seed), description="Seed", layout=narrow, style={"description_width": "40px"})
        self.estimate, self.problem = w.HTML(), w.HTML()
        self.problem.add_class("voicelab-systems-problem")
        super().__init__(
            [
                self.systems,
                line(self.address, self.add_button),
                self.texts,
                line(self.repeats, self.seed),
                self.estimate,
                self.problem,
            ],
            changed,
        )
        for name in self._labs:
            self._offer(name)
        for control in (self.texts, self.repeats, self.seed):
            control.observe(self.changed, names="value")
        self.changed()

    @property
    def labs(self) -> dict[str, Session]:
        """The systems that are chosen, by name."""
        return {
            name: self._labs[name] for name, box in zip(self._labs, self.systems.children, strict=True) if box.value
        }

    def add(self) -> Task:
        """Open what stands in the address, in a thread, and choose it."""
        address = self.address.value.strip()
        self.add_button.disabled = True

        def work() -> None:
            try:
                name = split_address(address)[0]
                lab = Session.open(address)
                number = 1 + sum(one.partition("_")[0] == name for one in self._labs)
                name = name if number == 1 else f"{name}_{number}"
                self._labs[name] = lab
                self._offer(name)
                self.address.value = ""
                self.changed()
            finally:
                self.add_button.disabled = False

        self._opening = Task(work, name="open", failed=lambda error: self._show(error, "")).start()
        return self._opening

    def _offer(self, name: str) -> None:
        capabilities = self._labs[name].capabilities
        box = w.Checkbox(
            value=True,
            description=f"{name}: {capabilities.name} on {capabilities.device}, {len(capabilities.voices)} voices",
            indent=False,
            layout=WIDE,
        )
        box.add_class("voicelab-system")
        box.observe(self.changed, names="value")
        self.systems.children = (*self.systems.children, box)

    def check(self, wanted: Callable[[], bool]) -> None:
        """See CheckedForm."""
        sweep: Sweep | None = None
        problem: Exception | None = None
        needs = ""
        try:
            labs = self.labs
            if len(labs) < 2:
                raise ArgumentError.of("labs", "choose at least two systems")
            disable(self.seed, seed_reason(one.capabilities for one in labs.values()))
            seed = parse_value("seed", self.seed.value)
            sweep = sweep_of(
                next(iter(labs.values())),
                texts_in(self.texts.value),
                repeats=self.repeats.value,
                seed=seed,
                labs=labs,
                cache=self._cache,
                fields={},
            )
            needs = f"{len(labs)} systems, {len(sweep)} takes: {sweep.estimate()}."
        except VoicelabError as error:
            problem = error
        if wanted():
            self._show(problem, needs)
            self.sweep = sweep if problem is None else None
            self._changed()

    def _show(self, problem: Exception | None, needs: str) -> None:
        self.problem.value = "" if problem is None else error_html(problem)
        self.estimate.value = f'<div role="status">{escape(needs)}</div>' if needs else ""


class _SystemsResult(ResultPanel):
    """What the systems said, with the table that compares them at one loudness."""

    def __init__(self, result: SweepResult, *, metrics: Iterable[str | Metric], gone: Callable[[], object]) -> None:
        self._measures = tuple(metrics)
        super().__init__(result, gone=gone)
        self.add_tab(_TAB)

    @property
    def comparison(self) -> SystemComparison:
        """What has come so far, as ``vl.compare_systems`` returns it."""
        return SystemComparison(self.result, self._measures)

    def fill_tab(self, tab: str) -> None:
        """Make the table of systems when its tab is opened, in a thread."""
        if tab != _TAB:
            super().fill_tab(tab)
            return
        self.in_background(lambda: self.put(_TAB, w.HTML(systems_bundle(self.comparison)["text/html"])), "systems")

    def saved_output(self) -> Mapping[str, str]:
        """Return the table of systems, once all have said everything."""
        result = self.result
        return systems_bundle(self.comparison) if result.outcomes and not result.failures else {}


class SystemsPanel(SweepPanel):
    """Choose systems and texts, run, and hear all takes: the panel of a sweep over systems.

    ``comparison`` is the SystemComparison of what has come.
    """

    about = "a panel to have several systems say the same texts, and to hear, measure and test them blindly"

    def __init__(
        self,
        texts: Sequence[str],
        labs: Mapping[str, Session],
        *,
        metrics: Iterable[str | Metric],
        repeats: int = 1,
        seed: int = 0,
        cache: Cache | None = None,
    ) -> None:
        self._asked: dict[str, Any] = {"repeats": repeats, "seed": seed, "cache": cache}
        self._labs = labs
        lab = next(iter(labs.values()))
        super().__init__(sweep_of(lab, texts, labs=labs, fields={}, **self._asked), metrics=metrics)

    def new_form(self, sweep: Sweep) -> Any:
        """Return the form of systems, begun with a sweep."""
        texts = next(axis.values for axis in sweep.axes if axis.name == "text")
        return _SystemsForm(self._labs, texts, self._form_changed, **self._asked)

    def new_result(self, result: SweepResult, metrics: Iterable[str | Metric]) -> ResultPanel:
        """Return what shows the takes, with the table of systems."""
        return _SystemsResult(result, metrics=metrics, gone=self.cancel)

    @property
    def comparison(self) -> SystemComparison:
        """What has come so far, as ``vl.compare_systems`` returns it."""
        takes = self.takes
        return takes.comparison if isinstance(takes, _SystemsResult) else SystemComparison(takes.result, ())
