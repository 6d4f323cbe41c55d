"""SpeechPanel: type a text, turn the main knobs, press Speak, listen while it is being made."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Any

import ipywidgets as w

from voicelab.audio.clip import Clip
from voicelab.errors import RequestInvalid
from voicelab.views.display import clip_bundle
from voicelab.views.form import call_code, error_html, knob, parse_seed, voice_choices
from voicelab.views.lasting import Lasting
from voicelab.views.speaking import Speaker, Speaking

__all__ = ["Speaker", "SpeechPanel"]

_TEXT = "The birch canoe slid on the smooth planks."


class SpeechPanel(Lasting, Speaking):
    """A form over ``lab.speak`` with a player that sounds as the audio arrives.

    ``clip`` is the last Clip that was spoken in full, ``code`` the call that makes it again. The work
    runs in a thread, the kernel stays free; ``close()`` stops it and takes the panel off the page. The notebook keeps
    the clip.
    """

    about = "a panel to type a text, set voice, temperature, top_p, latency and seed, and listen"

    def __init__(self, lab: Speaker, text: str = _TEXT) -> None:
        super().__init__(lab, "What was spoken")
        self._base = _base(lab, text)
        self._build(text)
        self.children = [
            self.text,
            w.HBox([self.voice, self.latency, self.seed], layout=w.Layout(flex_flow="row wrap")),
            w.HBox([self.temperature, self.top_p], layout=w.Layout(flex_flow="row wrap")),
            w.HBox([self.speak_button, self.cancel_button, self.progress, self.status]),
            self.message,
            self.player,
            self.code_view,
        ]
        self.add_class("voicelab-panel")
        for control in (self.text, *self._knobs.values()):
            control.observe(self._changed, names="value")
        self._changed()

    @property
    def code(self) -> str:
        """The call that says the panel's text with the panel's settings."""
        return call_code(self.text.value, self._fields(), base=self._base)

    def wanted(self) -> tuple[str, dict[str, Any]] | None:
        """Return the text and the settings; what is wrong with them is named."""
        try:
            fields = self._fields()
            self._lab.request(self.text.value, **{name: value for name, value in fields.items() if name != "seed"})
        except RequestInvalid as error:
            self.message.value = error_html(error)
            return None
        return self.text.value, fields

    def _build(self, text: str) -> None:
        lab, base = self._lab, self._base
        self.text = w.Textarea(value=text, rows=3, layout=w.Layout(width="100%"), tooltip=knob("text").description)
        self.text.add_class("voicelab-text")
        self.voice = w.Dropdown(
            # A Dropdown takes None for "nothing chosen", so the default speaker is the empty string here.
            options=[(label, name or "") for label, name in voice_choices(lab.capabilities, base["voice"])],
            value=base["voice"] or "",
            description="voice",
            tooltip=knob("reference_id").description,
        )
        self.latency = w.Dropdown(
            options=knob("latency").choices,
            value=base["latency"],
            description="latency",
            tooltip=knob("latency").description,
        )
        seed = base["seed"]
        self.seed = w.Text(
            value="" if seed is None else str(seed),
            description="seed",
            placeholder="new every time" if seed is None else f"{seed}, the lab's own",
            continuous_update=True,
            disabled=lab.capabilities.seed == "none",
            tooltip="A whole number; the same seed repeats the same speech where the backend can.",
        )
        self.temperature = _slider("temperature", base["temperature"])
        self.top_p = _slider("top_p", base["top_p"])
        self._knobs = {
            "voice": self.voice,
            "temperature": self.temperature,
            "top_p": self.top_p,
            "latency": self.latency,
            "seed": self.seed,
        }
        self.code_view = w.HTML(layout=w.Layout(width="100%"))
        self.code_view.add_class("voicelab-code")

    def _fields(self) -> dict[str, Any]:
        fields: dict[str, Any] = {name: control.value for name, control in self._knobs.items()}
        fields["voice"] = fields["voice"] or None
        fields["temperature"] = round(fields["temperature"], 4)
        fields["top_p"] = round(fields["top_p"], 4)
        fields["seed"] = parse_seed(self.seed.value, self._lab.capabilities)
        if fields["voice"] is None and self._base["voice"] is not None:
            # voice=None would mean the lab's own default voice, not the backend's default speaker.
            del fields["voice"]
            fields["reference_id"] = None
        return fields

    def _changed(self, _: object = None) -> None:
        """Check the form, name what is wrong with it, and write the call."""
        self.message.value = ""
        wanted = self.wanted()
        self.speak_button.disabled = wanted is None or self.running
        if wanted is not None:
            # One click selects the whole call, to copy it.
            code = escape(call_code(*wanted, base=self._base))
            self.code_view.value = f'<pre style="user-select:all;white-space:pre-wrap;margin:0">{code}</pre>'

    def __repr__(self) -> str:
        capabilities = self._lab.capabilities
        return f"SpeechPanel({capabilities.name} on {capabilities.device}, {len(capabilities.voices)} voices)"

    def lasting(self) -> Mapping[str, str]:
        """Return the last clip that was spoken in full."""
        return {} if self.clip is None else clip_bundle(self.clip)

    def finished(self, clip: Clip) -> None:
        """Keep the clip, in the notebook too."""
        super().finished(clip)
        self.last()


def _base(lab: Speaker, text: str) -> dict[str, Any]:
    """Return what the form begins with: the lab's defaults, then the interface's."""
    request = lab.request(text)
    return {
        "voice": request.reference_id,
        "reference_id": request.reference_id,
        "temperature": request.temperature,
        "top_p": request.top_p,
        "latency": request.latency,
        "seed": lab.defaults.get("seed"),
    }


def _slider(name: str, value: float) -> w.FloatSlider:
    field = knob(name)
    return w.FloatSlider(
        value=value,
        min=field.low,
        max=field.high,
        step=0.05,
        description=name,
        style={"description_width": "initial"},
        readout_format=".2f",
        continuous_update=False,
        tooltip=field.description,
    )
