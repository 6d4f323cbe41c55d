"""Knobs: a control for every field of a speech request, with the schema's bounds and words, and the call they make."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import ipywidgets as w

from voicelab.backend import Capabilities
from voicelab.errors import RequestInvalid
from voicelab.experiments.sweeps.axes import short_name
from voicelab.schema import TTSRequest
from voicelab.views.form import Knob, knob, parse_seed, voice_choices

__all__ = ["Knobs"]

SLIDERS: Final = ("temperature", "top_p", "repetition_penalty", "prosody.speed", "prosody.volume")
MORE: Final = (
    "chunk_length",
    "min_chunk_length",
    "max_new_tokens",
    "early_stop_threshold",
    "normalize",
    "condition_on_previous_chunks",
)
_STEPS: Final = {"prosody.volume": 1.0, "prosody.speed": 0.05}
# No widgets of this module's own: somebody may close all that there are.
_LOOK: Final[dict[str, Any]] = {"style": {"description_width": "150px"}, "layout": {"width": "400px"}}


class Knobs:
    """Controls by the names of their fields, begun with what ``request``, ``model`` and ``seed`` say.

    ``fields()`` is what a call takes beside its text, without what it would have anyway. ``told`` is called whenever
    somebody has let go of a control.
    """

    def __init__(
        self,
        request: TTSRequest,
        capabilities: Capabilities,
        *,
        model: str,
        seed: int | None,
        told: Callable[[], object],
    ) -> None:
        self._capabilities = capabilities
        self._base = {**_settings(request), "model": model, "seed": seed}
        self.controls: dict[str, Any] = {
            "voice": w.Dropdown(
                # A Dropdown takes None for "nothing chosen", so the default speaker is the empty string here.
                options=[(label, name or "") for label, name in voice_choices(capabilities, request.reference_id)],
                description="voice",
                tooltip=knob("reference_id").description,
                **_LOOK,
            ),
            "model": w.Dropdown(
                options=capabilities.models, description="model", tooltip="The synthesis model.", **_LOOK
            ),
            "latency": _control(knob("latency")),
            "seed": w.Text(
                description="seed",
                placeholder="new every time" if seed is None else f"{seed}, the lab's own",
                continuous_update=False,
                disabled=capabilities.seed == "none",
                tooltip="A whole number; the same seed repeats the same speech where the backend can.",
                **_LOOK,
            ),
            **{name: _control(knob(name)) for name in (*SLIDERS, *MORE)},
        }
        for name, control in self.controls.items():
            control.add_class(f"voicelab-knob-{name.replace('.', '-')}")
        self._quiet = False
        self._told = told
        self.put(self._base)
        for control in self.controls.values():
            control.observe(self._changed, names="value")

    def put(self, settings: Mapping[str, Any]) -> None:
        """Turn the knobs to ``settings``, as ``settings()`` returned them; nobody is told."""
        self._quiet = True
        try:
            for name, value in settings.items():
                shown = {"voice": value or "", "seed": "" if value is None else str(value)}.get(name, value)
                self.controls[name].value = shown
        finally:
            self._quiet = False

    def settings(self) -> dict[str, Any]:
        """Return what the knobs say, every one. Raises RequestInvalid, which names ``seed``, for a bad seed."""
        settings = {name: _rounded(control.value) for name, control in self.controls.items()}
        settings["voice"] = settings["voice"] or None
        settings["seed"] = parse_seed(self.controls["seed"].value, self._capabilities)
        return settings

    def changes(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Return those settings that are not what a call has anyway."""
        # No seed here is the lab's own, as for ``speak``.
        settings = {name: value for name, value in settings.items() if (name, value) != ("seed", None)}
        return {name: value for name, value in settings.items() if value != self._base[name]}

    def fields(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Return what ``lab.speak`` takes for them beside the text."""
        fields = {short_name(name): value for name, value in self.changes(settings).items()}
        if "voice" in fields and fields["voice"] is None:
            # voice=None would mean the lab's own default voice, not the backend's default speaker.
            del fields["voice"]
            fields["reference_id"] = None
        return fields

    def wrong(self, error: RequestInvalid | None) -> None:
        """Put a red border round the controls that an error names, and take it from the others."""
        names = {item.field for item in error.errors} if error is not None else set()
        for name, control in self.controls.items():
            bad = name in names or (name == "voice" and "reference_id" in names)
            control.layout.border = "2px solid var(--jp-error-color1, #c62828)" if bad else None

    def _changed(self, _: object) -> None:
        if not self._quiet:
            self._told()


def _settings(request: TTSRequest) -> dict[str, Any]:
    prosody = request.prosody
    return {
        "voice": request.reference_id,
        "latency": request.latency,
        "prosody.speed": prosody.speed if prosody else 1.0,
        "prosody.volume": prosody.volume if prosody else 0.0,
        **{name: getattr(request, name) for name in (*SLIDERS, *MORE) if "." not in name},
    }


def _rounded(value: Any) -> Any:
    return round(value, 4) if isinstance(value, float) else value


def _control(field: Knob) -> Any:
    """Return the control that fits a field: choices, a switch, a slider between its bounds, or a number."""
    name = field.name.rpartition(".")[2]
    about: dict[str, Any] = {"description": name, "tooltip": field.description, **_LOOK}
    if field.choices:
        return w.Dropdown(options=field.choices, **about)
    if isinstance(field.default, bool):
        return w.Checkbox(indent=True, **about)
    if name == "repetition_penalty":
        # From a tenth to the schema's hundred, with 1 in reach of a hand.
        return w.FloatLogSlider(min=-1, max=2, step=0.01, readout_format=".2f", continuous_update=False, **about)
    if isinstance(field.default, float):
        step = _STEPS.get(field.name, _STEPS.get(f"prosody.{name}", 0.05))
        bounds = {"min": field.low, "max": field.high, "step": step}
        return w.FloatSlider(readout_format=".2f", continuous_update=False, **bounds, **about)
    if field.high is not None and field.high <= 10_000:
        return w.IntSlider(min=int(field.low or 0), max=int(field.high), continuous_update=False, **about)
    return w.BoundedIntText(min=int(field.low or 0), max=2**31 - 1, continuous_update=False, **about)
