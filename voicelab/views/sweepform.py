"""SweepForm: a sweep's texts, axes, repeats and caps, checked and estimated while they are typed."""

from __future__ import annotations

from collections.abc import Callable
from html import escape
from typing import Any, Final

import ipywidgets as w

from voicelab.errors import RequestInvalid, VoicelabError
from voicelab.experiments.sweeps.axes import short_name
from voicelab.experiments.sweeps.budget import Budget
from voicelab.experiments.sweeps.sweep import Sweep
from voicelab.experiments.sweeps.typed import AXES, CAPS, budget_of, retyped, texts_of, typed_axes
from voicelab.views.form import error_html, knob
from voicelab.views.later import Later
from voicelab.views.takesview import flow, shut, small

__all__ = ["SweepForm"]

_WIDE: Final = {"width": "calc(100% - 4px)"}
_UNITS: Final = {"audio_s": "s of audio", "compute_s": "s of work", "cost": "in money"}
_MOST: Final = 1000
"""Requests that a panel makes at most, unless somebody writes another cap."""


class AxisRow(w.VBox):  # type: ignore[misc]  # ipywidgets publishes no types
    """One axis: which field, its values, and below what is wrong with them."""

    def __init__(self, form: SweepForm, name: str, typed: str) -> None:
        self._voices = form.voices
        self.field = w.Dropdown(
            options=[(short_name(axis), axis) for axis in AXES], value=name, layout=w.Layout(width="180px")
        )
        self.field.tooltip = "The field that is varied"
        self.values = w.Text(value=typed, placeholder="0.2..1.0 step 0.2, or values with commas between")
        self.values.layout.width = "420px"
        self.values.add_class("voicelab-axis")
        self.remove = small("", lambda: form.remove(self), "remove-axis", icon="times", tooltip="Remove this axis")
        self.trouble = w.HTML()
        super().__init__([flow(self.field, self.values, self.remove), self.trouble])
        self.field.observe(self._named, names="value")
        self._named()
        for control in (self.field, self.values):
            control.observe(form.changed, names="value")

    def _named(self, _: object = None) -> None:
        self.values.tooltip = _about(self.field.value, self._voices)

    @property
    def typed(self) -> tuple[str, str]:
        """The name of the field and what is typed."""
        return self.field.value, self.values.value


class SweepForm(w.VBox):  # type: ignore[misc]  # ipywidgets publishes no types
    """What shall be swept. ``sweep`` and ``budget`` are what is typed, None while something is wrong with it.

    ``told`` is called, from a thread, whenever that may have changed. Everything is checked by the schema before
    anything runs; what is wrong stands in red at its field.
    """

    def __init__(self, sweep: Sweep, told: Callable[[], object]) -> None:
        self._given = sweep
        self._told = told
        several = (voice.id for backend in sweep.backends.values() for voice in backend.capabilities.voices)
        self.voices = tuple(dict.fromkeys(several))
        self.sweep: Sweep | None = None
        self.budget = Budget()
        self._later = Later(self._check)
        self.texts = w.Textarea(value=texts_of(sweep), rows=2, layout=_WIDE, placeholder="One text a line")
        self.texts.tooltip = knob("text").description
        self.texts.add_class("voicelab-sweep-texts")
        self.texts_trouble = w.HTML()
        self.axes = w.VBox()
        self.add = small("Add an axis", self.add_axis, "add-axis", icon="plus")
        number = {"width": "150px"}
        self.repeats = w.BoundedIntText(
            value=sweep.repeats,
            min=1,
            max=10_000,
            description="takes of each",
            layout=number,
            style={"description_width": "initial"},
        )
        self.seed = w.Text(
            value=str(sweep.seed), description="seed", layout=number, style={"description_width": "40px"}
        )
        self.seed.tooltip = "What the seeds of the takes are drawn from, the same in every cell"
        self.caps = {name: _cap(name) for name in CAPS}
        self.estimate = w.HTML()
        self.estimate.add_class("voicelab-estimate")
        self.trouble = w.HTML()
        self.trouble.add_class("voicelab-sweep-trouble")
        caps = w.Accordion(
            [flow(*self.caps.values())], titles=("Caps: nothing begins above them",), selected_index=None
        )
        super().__init__(
            [
                w.Label("Texts, one a line"),
                self.texts,
                self.texts_trouble,
                self.axes,
                flow(self.add, self.repeats, self.seed),
                caps,
                self.estimate,
                self.trouble,
            ]
        )
        self.axes.children = tuple(AxisRow(self, name, typed) for name, typed in typed_axes(sweep))
        for control in (self.texts, self.repeats, self.seed, *self.caps.values()):
            control.observe(self.changed, names="value")
        self.changed()

    def add_axis(self) -> None:
        """Add a line for the next field that is not varied yet."""
        taken = {row.field.value for row in self.axes.children}
        free = next((name for name in AXES if name not in taken), None)
        if free is not None:
            self.axes.children = (*self.axes.children, AxisRow(self, free, ""))
            self.changed()

    def remove(self, row: AxisRow) -> None:
        """Take an axis away."""
        self.axes.children = tuple(other for other in self.axes.children if other is not row)
        shut(row)
        row.close()
        row.layout.close()
        self.changed()

    def changed(self, _: object = None) -> None:
        """Take note that something was typed: until it is checked, nothing can run."""
        self.sweep = None
        self._told()
        self._later.ask()

    def settled(self, timeout: float = 10.0) -> bool:
        """Wait until what was typed is checked and estimated; returns whether it is."""
        return bool(self._later.settled(timeout))

    def close(self) -> None:
        """Stop checking and take it off the page."""
        if hasattr(self, "_later"):
            self._later.close()
            shut(self)
        super().close()

    def _check(self, wanted: Callable[[], bool]) -> None:
        """Read everything; called in a thread, some moments after the last change."""
        found: Sweep | None = None
        trouble: Exception | None = None
        told = ""
        try:
            budget = budget_of({name: control.value for name, control in self.caps.items()})
            found = retyped(
                self._given,
                self.texts.value,
                [row.typed for row in self.axes.children],
                repeats=self.repeats.value,
                seed=_whole(self.seed.value),
            )
            needed = found.estimate()
            told = f"{len(found.grid.cells)} cells, {len(found)} takes: {needed}."
            budget.check(needed)
        except RequestInvalid as error:
            trouble = error
        except VoicelabError as error:
            trouble, told = error, ""
        if not wanted():
            return
        self._show(trouble, told)
        if trouble is None:
            self.sweep, self.budget = found, budget
        self._told()

    def _show(self, trouble: Exception | None, told: str) -> None:
        """Put what is wrong to its field, the rest below."""
        left = list(trouble.errors) if isinstance(trouble, RequestInvalid) else []
        # Of two axes of one name the later one is too many.
        for row in reversed(self.axes.children):
            mine = [item for item in left if item.field == row.field.value]
            left = [item for item in left if item not in mine]
            _mark(row.values, row.trouble, RequestInvalid(mine) if mine else None)
        texts = [item for item in left if item.field == "text"]
        left = [item for item in left if item not in texts]
        _mark(self.texts, self.texts_trouble, RequestInvalid(texts) if texts else None)
        for name, control in self.caps.items():
            _mark(control, None, next((item for item in left if item.field == f"budget.{name}"), None))
        _mark(self.seed, None, next((item for item in left if item.field == "seed"), None))
        rest = RequestInvalid(left) if left else trouble if not isinstance(trouble, RequestInvalid) else None
        _say(self.trouble, error_html(rest) if rest is not None else "")
        _say(self.estimate, f'<div role="status">{escape(told)}</div>' if told else "")


def _mark(control: w.DOMWidget, place: w.HTML | None, trouble: object) -> None:
    """Put a red border round a control, and the trouble into its place, or take them away."""
    if trouble is None:
        control.remove_class("voicelab-wrong")
        control.layout.border = None
    else:
        control.add_class("voicelab-wrong")
        control.layout.border = "2px solid var(--jp-error-color1, #c62828)"
    if place is not None:
        _say(place, error_html(trouble) if isinstance(trouble, Exception) else "")


def _say(place: w.HTML, html: str) -> None:
    if place.value != html:
        place.value = html


def _cap(name: str) -> w.Text:
    control = w.Text(
        value=f"{_MOST}" if name == "requests" else "",
        placeholder="no cap",
        description=f"{name} {_UNITS[name]}" if name == "cost" else _UNITS.get(name, name),
        layout=w.Layout(width="210px"),
        style={"description_width": "90px"},
    )
    control.add_class(f"voicelab-cap-{name}")
    return control


def _whole(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise RequestInvalid.of("seed", "Input should be a whole number, 0 or more", type="int_type") from None


def _about(name: str, voices: tuple[str, ...]) -> str:
    """Return what the schema says of a field; of what stands beside the request, a line of ours."""
    beside: dict[str, Any] = {
        "model": "The synthesis model: s1, s2-pro.",
        "seed": "Whole numbers; the same seed repeats the same speech where the backend can.",
        "backend": "Names of the labs that the sweep was given.",
    }
    told = str(beside.get(name) or knob(name).description)
    return f"{told} There are {', '.join(voices)}." if name == "reference_id" and voices else told
