"""SystemsPanel: choose systems and texts, synthesize, play, measure and test the systems blindly."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import ipywidgets as w

from voicelab.backends.registry import available_backends, split_address
from voicelab.call import parse_value
from voicelab.errors import ArgumentError
from voicelab.metrics import Metric, check_measuring
from voicelab.runs.cache import Cache
from voicelab.session import Session
from voicelab.sweeps.run import Budget, Outcome, SweepRun
from voicelab.sweeps.spec import lines_of, texts_in
from voicelab.sweeps.sweep import Sweep
from voicelab.sweeps.systems import systems_sweep, systems_table
from voicelab.takes.rows import SYSTEM, TakeRow
from voicelab.takes.table import TakeTable
from voicelab.views.background import Task
from voicelab.views.controls import seed_reason
from voicelab.views.panel import button, control, disable, line, stack
from voicelab.views.sweep_panel import SweepPanel, TextsForm
from voicelab.views.sweep_tables import table_bundle


class _SystemsForm(TextsForm):
    """Form of systems and texts; the first chosen system is the baseline."""

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
        self.systems = stack()
        usable = [backend for backend in available_backends() if not backend.install]
        self.address = control(
            w.Combobox,
            "Add",
            "address",
            placeholder=", ".join(backend.form.partition(" or ")[0] for backend in usable),
            options=[f"{backend.name}:" for backend in usable],
            help="Name and address of a backend, as in vl.connect",
        )
        self.add_button = button("Add a system", self.add, "add-system")
        more = line(self.address, self.add_button)
        super().__init__(lines_of(texts), repeats, seed, changed, self.systems, more=more)
        for name in self._labs:
            self._offer(name)
        self.changed()

    @property
    def labs(self) -> dict[str, Session]:
        """Chosen systems by name."""
        return {
            name: self._labs[name] for name, box in zip(self._labs, self.systems.children, strict=True) if box.value
        }

    def add(self) -> Task:
        """Open the backend at the typed address in a thread, and add it to the chosen systems."""
        address = self.address.value.strip()
        self.add_button.disabled = True

        def work() -> None:
            try:
                name = split_address(address)[0]
                lab = Session.open(address)
                number = 1 + sum(lab_name.partition("_")[0] == name for lab_name in self._labs)
                name = name if number == 1 else f"{name}_{number}"
                self._labs[name] = lab
                self._offer(name)
                self.address.value = ""
                self.changed()
            finally:
                self.add_button.disabled = False

        return Task(work, name="open", failed=self.show).start()

    def _offer(self, name: str) -> None:
        backend = self._labs[name].capabilities
        label = f"{name}: {backend.name} on {backend.device}, {len(backend.voices)} voices"
        box = control(w.Checkbox, label, "system", value=True, indent=False)
        box.observe(self.changed, names="value")
        self.systems.children = (*self.systems.children, box)

    def typed(self) -> tuple[Sweep, Budget, str]:
        """Return sweep, budget and a description of the form's contents. Raises VoicelabError."""
        labs = self.labs
        if len(labs) < 2:
            raise ArgumentError.of("labs", "choose at least two systems")
        disable(self.seed, seed_reason(lab.capabilities for lab in labs.values()))
        options = {
            "repeats": self.checked_repeats(),
            "seed": parse_value("seed", self.seed.value),
            "cache": self._cache,
        }
        return systems_sweep(texts_in(self.texts.value), labs, **options), Budget(), f"{len(labs)} systems"


class SystemsPanel(SweepPanel):
    """Panel to choose systems and texts, synthesize and play all takes.

    ``result`` is the table of the takes so far, as ``vl.compare_systems`` returns it.
    """

    about = "a panel to synthesize texts with several systems, and to play, measure and test them blindly"

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
        self._options: dict[str, Any] = {"repeats": repeats, "seed": seed, "cache": cache}
        self._labs, self._measured = labs, tuple(metrics)
        check_measuring(self._measured)
        tab = ("Matching the loudness of all takes and measuring them…", table_bundle)
        super().__init__(systems_sweep(texts, labs, **self._options), tabs={"Systems": tab})

    def new_form(self, sweep: Sweep) -> TextsForm:
        """Return the form to choose systems and texts, filled in with the texts of a sweep."""
        texts = [text for axis in sweep.axes if axis.name == "text" for text in axis.labels]
        return _SystemsForm(self._labs, texts, self._form_changed, **self._options)

    def table_of(self, sweep: Sweep, run: SweepRun | None = None) -> TakeTable:
        """Return the table of the comparison, as ``vl.compare_systems`` does."""
        return systems_table(sweep.table(run), self._measured)

    def row_of(self, outcome: Outcome) -> TakeRow:
        """Return the row of a new take in the comparison."""
        return outcome.row().rename({"backend": SYSTEM})

    def saved_output(self) -> Mapping[str, str]:
        """Return the summary of the systems, once all takes exist."""
        return table_bundle(self.result) if len(self.result) == len(self.result.rows) else {}
