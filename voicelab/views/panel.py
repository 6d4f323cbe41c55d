"""SpeechPanel: type a text, turn the main knobs, press Speak, listen while it is being made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any, Protocol

import ipywidgets as w

from voicelab.audio.clip import Clip
from voicelab.audio.samples import Samples
from voicelab.backend import Capabilities, SpeechStream
from voicelab.errors import Cancelled, RequestInvalid
from voicelab.schema import TTSRequest
from voicelab.views.form import call_code, error_html, expected_seconds, knob, parse_seed, voice_choices
from voicelab.views.job import Arrival, SpeechJob
from voicelab.views.player import Player

__all__ = ["Speaker", "SpeechPanel"]

_TEXT = "The birch canoe slid on the smooth planks."
_WIDE = w.Layout(width="100%")


class Speaker(Protocol):
    """What a panel asks of a Lab."""

    @property
    def capabilities(self) -> Capabilities:
        """What the backend is and can do."""

    @property
    def defaults(self) -> Mapping[str, object]:
        """What every call starts from."""

    def request(self, text: str, **fields: Any) -> TTSRequest:
        """Return the request that would be made. Raises RequestInvalid."""

    def stream(self, text: str, **fields: Any) -> SpeechStream:
        """Begin to speak."""


class SpeechPanel(w.VBox):  # type: ignore[misc]  # ipywidgets publishes no types
    """A form over ``lab.speak`` with a player that sounds as the audio arrives.

    ``clip`` is the last Clip that was spoken in full, ``code`` the call that makes it again. The work
    runs in a thread, the kernel stays free; ``close()`` stops it and takes the panel off the page.
    """

    def __init__(self, lab: Speaker, text: str = _TEXT) -> None:
        self._lab = lab
        self._job: SpeechJob | None = None
        self._made = 0.0
        self._valid = False
        self.clip: Clip | None = None
        self._base = _base(lab, text)
        self._build(text)
        super().__init__(
            [
                self.text,
                w.HBox([self.voice, self.latency, self.seed], layout=w.Layout(flex_flow="row wrap")),
                w.HBox([self.temperature, self.top_p], layout=w.Layout(flex_flow="row wrap")),
                w.HBox([self.speak_button, self.cancel_button, self.progress, self.status]),
                self.message,
                self.player,
                self.code_view,
            ]
        )
        self.add_class("voicelab-panel")
        for control in (self.text, *self._knobs.values()):
            control.observe(self._changed, names="value")
        self._changed()

    @property
    def code(self) -> str:
        """The call that says the panel's text with the panel's settings."""
        return call_code(self.text.value, self._fields(), base=self._base)

    def speak(self) -> SpeechJob | None:
        """Do what the Speak button does; returns the work, or None when the form has an error."""
        if self._job is not None and self._job.running:
            return self._job
        if not self._changed():
            return None
        self.speak_button.disabled = True
        self.cancel_button.disabled = False
        self._made = 0.0
        self.progress.value = 0.0
        self.progress.bar_style = "info"
        self.status.value = "waiting for the first audio…"
        text, fields = self.text.value, self._fields()
        self._job = SpeechJob(lambda: self._lab.stream(text, **fields), self)
        return self._job

    def cancel(self) -> None:
        """Do what the Cancel button does."""
        if self._job is not None:
            self._job.cancel()

    def close(self) -> None:
        """Stop the work and take the panel off the page."""
        # Also called for a panel that could not be made, from its ``__del__``.
        if hasattr(self, "player"):
            self.cancel()
            self.player.close()
        super().close()

    # What the job tells, from its own thread.

    def began(self, rate: int) -> None:
        """Empty the player for new speech."""
        self.player.begin(rate)

    def arrived(self, samples: Samples, arrivals: Sequence[Arrival]) -> None:
        """Let new samples sound, and move the progress bar."""
        self.player.feed(samples, arrivals)
        self._made = self.player.duration
        # How long a text takes is known only at its end: the bar never says that it is over before.
        self.progress.value = min(self._made / expected_seconds(self.text.value), 0.95)
        self.status.value = f"{self._made:.1f} s so far"

    def finished(self, clip: Clip) -> None:
        """Keep the clip and say how it went."""
        self.clip = clip
        timing = clip.provenance.timing if clip.provenance else None
        took = (
            f", first audio after {timing.first_audio_s:.2f} s, RTF {timing.rtf(clip.duration):.2f}" if timing else ""
        )
        notes = "".join(f"<br>{escape(note)}" for note in clip.notes)
        self._over("success", 1.0, f"{clip.duration:.1f} s{took}", notes)

    def failed(self, error: Exception) -> None:
        """Say in the panel what went wrong."""
        if isinstance(error, Cancelled):
            self._over("warning", self.progress.value, f"cancelled after {self._made:.1f} s")
        else:
            self._over("danger", self.progress.value, "failed", error_html(error))

    def _over(self, style: str, progress: float, status: str, message: str = "") -> None:
        self.player.end()
        self.progress.bar_style = style
        self.progress.value = progress
        self.status.value = status
        self.message.value = message
        self.cancel_button.disabled = True
        # The form may have been changed meanwhile, to something that cannot be said.
        self.speak_button.disabled = not self._valid

    def _build(self, text: str) -> None:
        lab, base = self._lab, self._base
        self.text = w.Textarea(value=text, rows=3, layout=_WIDE, tooltip=knob("text").description)
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
        self.speak_button = w.Button(description="Speak", button_style="primary", icon="volume-up")
        self.speak_button.add_class("voicelab-speak")
        self.speak_button.on_click(lambda _: self.speak())
        self.cancel_button = w.Button(description="Cancel", icon="stop", disabled=True)
        self.cancel_button.add_class("voicelab-cancel")
        self.cancel_button.on_click(lambda _: self.cancel())
        self.progress = w.FloatProgress(min=0.0, max=1.0, layout=w.Layout(width="160px"))
        self.status = w.Label()
        self.status.add_class("voicelab-status")
        self.message = w.HTML()
        self.message.add_class("voicelab-message")
        self.player = Player(label="What was spoken")
        self.code_view = w.HTML(layout=_WIDE)
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

    def _changed(self, _: object = None) -> bool:
        """Check the form, name what is wrong with it, and write the call; returns whether it is right."""
        try:
            fields = self._fields()
            self._lab.request(self.text.value, **{name: value for name, value in fields.items() if name != "seed"})
        except RequestInvalid as error:
            self._valid = False
            self.message.value = error_html(error)
            self.speak_button.disabled = True
            return False
        self._valid = True
        self.message.value = ""
        self.speak_button.disabled = self._job is not None and self._job.running
        # One click selects the whole call, to copy it.
        code = escape(call_code(self.text.value, fields, base=self._base))
        self.code_view.value = f'<pre style="user-select:all;white-space:pre-wrap;margin:0">{code}</pre>'
        return True

    def __repr__(self) -> str:
        capabilities = self._lab.capabilities
        return f"SpeechPanel({capabilities.name} on {capabilities.device}, {len(capabilities.voices)} voices)"

    def _repr_mimebundle_(self, **options: Any) -> dict[str, Any]:
        bundle: dict[str, Any] = super()._repr_mimebundle_(**options)
        bundle["text/plain"] = repr(self)
        bundle["text/html"] = (
            f"<p>{escape(repr(self))}: a panel to type a text, set voice, temperature, top_p, latency and seed, "
            "and listen. Run this cell to use it.</p>"
        )
        return bundle


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
