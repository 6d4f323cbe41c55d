"""ExplorePanel: type a text, turn the knobs, hear what they do while it is being made; takes stay to be compared.

The knobs are a control for every field of a speech request, with the schema's bounds and words.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from html import escape
from typing import Any, Final, Literal, get_args, get_origin

import ipywidgets as w
from pydantic.fields import FieldInfo

from voicelab.audio.clip import Clip
from voicelab.audio.samples import Samples
from voicelab.backend import Backend, Capabilities, check_seed_support
from voicelab.call import Call, parse_value, short_name
from voicelab.errors import Cancelled, RequestInvalid
from voicelab.experiments.sweeps.result import Row
from voicelab.lab import Lab
from voicelab.schema import ProsodyControl, TTSRequest
from voicelab.views.background import Arrival, Debouncer, SpeechTask
from voicelab.views.bundles import clip_bundle
from voicelab.views.panel import WIDE, Panel, ProgressLine, SavedOutput, button, line, mark_wrong
from voicelab.views.player import Player
from voicelab.views.takes import TakesView

__all__ = [
    "MAIN",
    "MORE",
    "SLIDERS",
    "TEXT",
    "ExplorePanel",
    "Knobs",
    "field_help",
    "field_label",
    "voice_choices",
]

MAIN: Final = ("voice", "latency", "seed", "temperature", "top_p")
"""What a compact panel shows."""
SLIDERS: Final = ("temperature", "top_p", "repetition_penalty", "prosody.speed", "prosody.volume")
MORE: Final = (
    "chunk_length",
    "min_chunk_length",
    "max_new_tokens",
    "early_stop_threshold",
    "normalize",
    "condition_on_previous_chunks",
)
TEXT: Final = "The birch canoe slid on the smooth planks."
"""What a panel says at first."""

_MOST: Final = 500
_SETTLE_S: Final = 0.1
# The bar moves twice a second: with the sound, which takes 13 messages, a page gets fewer than 20 a second.
_BAR_S: Final = 0.5

# Where the name of a field does not say it all to a reader.
_LABELS: Final = {
    "reference_id": "Voice",
    "top_p": "Top-p",
    "prosody.volume": "Volume, dB",
    "chunk_length": "Segment length, characters",
    "min_chunk_length": "Shortest segment, characters",
    "max_new_tokens": "Most tokens per segment",
    "normalize": "Write out numbers",
    "condition_on_previous_chunks": "Continue from audio before",
    "sample_rate": "Sample rate, Hz",
    "mp3_bitrate": "MP3 bitrate, kbit/s",
    "opus_bitrate": "Opus bitrate, kbit/s",
}
# What stands beside a request, which the schema does not describe.
_BESIDE: Final = {
    "model": "The synthesis model: s1, s2-pro.",
    "seed": "A whole number; the same seed repeats the same speech where the backend can.",
    "backend": "Names of the labs that the sweep was given.",
}


def field_label(name: str) -> str:
    """Return what a person calls a field, with its unit."""
    return _LABELS.get(name) or name.rpartition(".")[2].replace("_", " ").capitalize()


def field_help(name: str) -> str:
    """Return a field's tooltip: its name in code, and what the schema says of it."""
    name = "reference_id" if name == "voice" else name
    return f"{short_name(name)}: {_BESIDE.get(name) or _schema_field(name).description}"


def _schema_field(name: str) -> FieldInfo:
    place, _, part = name.rpartition(".")
    return (ProsodyControl if place == "prosody" else TTSRequest).model_fields[part]


def voice_choices(capabilities: Capabilities, chosen: str | None = None) -> tuple[tuple[str, str | None], ...]:
    """Return (label, reference_id) of every voice to choose from: the default speaker, then the presets.

    ``chosen`` is added when it is none of them, so that a stored voice stays selectable.
    """
    presets = [
        (f"{voice.title} ({voice.description})" if voice.description else voice.title, voice.id)
        for voice in capabilities.voices
    ]
    if chosen is not None and chosen not in {identity for _, identity in presets}:
        presets.append((chosen, chosen))
    return (("Default speaker", None), *presets)


class Knobs:
    """Controls by the names of their fields, begun with what a lab's calls start from.

    ``changed`` is called whenever the user has let go of a control.
    """

    def __init__(self, lab: Lab, text: str, changed: Callable[[], object]) -> None:
        self._lab = lab
        first = lab.call(text)
        self._base = _settings(first)
        self.controls: dict[str, Any] = {
            # A Dropdown takes None for "nothing chosen", so the default speaker is the empty string here.
            "voice": w.Dropdown(
                options=[(label, name or "") for label, name in voice_choices(lab.capabilities, self._base["voice"])],
                **_look("voice"),
            ),
            "model": w.Dropdown(options=lab.capabilities.models, **_look("model")),
            "latency": _control("latency"),
            "seed": w.Text(
                placeholder="new every time" if first.seed is None else f"{first.seed}, the lab's own",
                continuous_update=False,
                disabled=lab.capabilities.seed == "none",
                **_look("seed"),
            ),
            **{name: _control(name) for name in (*SLIDERS, *MORE)},
        }
        for name, control in self.controls.items():
            control.add_class(f"voicelab-knob-{name.replace('.', '-')}")
        self._quiet = False
        self._changed = changed
        self.put(first)
        for control in self.controls.values():
            control.observe(self._released, names="value")

    def put(self, call: Call) -> None:
        """Turn the knobs to what makes ``call``, without a call of ``changed``."""
        self._quiet = True
        try:
            for name, value in _settings(call).items():
                self.controls[name].value = "" if value is None else str(value) if name == "seed" else value
        finally:
            self._quiet = False

    def call(self, text: str) -> Call:
        """Return the call that says ``text`` with what the knobs say. Raises RequestInvalid, which names the field."""
        settings = {name: control.value for name, control in self.controls.items()}
        settings = {name: round(value, 4) if isinstance(value, float) else value for name, value in settings.items()}
        settings |= {"voice": settings["voice"] or None, "seed": parse_value("seed", settings["seed"] or "none")}
        call = self._lab.call(text, **self._fields(settings))
        check_seed_support(call, self._lab.capabilities)
        return call

    def changes(self, call: Call) -> dict[str, Any]:
        """Return those settings of a call that are not what the lab's calls have anyway."""
        return {name: value for name, value in _settings(call).items() if value != self._base[name]}

    def code(self, call: Call) -> str:
        """Return the Python that makes a call of the lab."""
        fields = self._fields(_settings(call))
        return f"lab.speak({', '.join([repr(call.request.text), *(f'{key}={fields[key]!r}' for key in fields)])})"

    def mark_wrong(self, error: RequestInvalid | None) -> None:
        """Put a red border round the controls that an error names, and take it from the others."""
        names = {item.field for item in error.errors} if error is not None else set()
        for name, control in self.controls.items():
            mark_wrong(control, name in names or (name == "voice" and "reference_id" in names))

    def _fields(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Return what ``lab.speak`` takes beside the text; no seed is the lab's own."""
        changed = {name: value for name, value in settings.items() if value != self._base[name]}
        fields = {short_name(name): value for name, value in changed.items() if (name, value) != ("seed", None)}
        if "voice" in fields and fields["voice"] is None:
            # voice=None would mean the lab's own default voice, not the backend's default speaker.
            del fields["voice"]
            fields["reference_id"] = None
        return fields

    def _released(self, _: object) -> None:
        if not self._quiet:
            self._changed()


def _settings(call: Call) -> dict[str, Any]:
    request, prosody = call.request, call.request.prosody or ProsodyControl()
    return {
        "voice": request.reference_id,
        "model": call.model,
        "latency": request.latency,
        "seed": call.seed,
        **{name: getattr(request, name) for name in SLIDERS if "." not in name},
        "prosody.speed": prosody.speed,
        "prosody.volume": prosody.volume,
        **{name: getattr(request, name) for name in MORE},
    }


def _look(name: str) -> dict[str, Any]:
    # Of those in front two stand side by side in JupyterLab's default width; the others have longer labels.
    label, width = ("190px", "430px") if name in MORE else ("125px", "370px")
    look = {"style": {"description_width": label}, "layout": {"width": width}}
    return {"description": field_label(name), "tooltip": field_help(name), **look}


def _control(name: str) -> Any:
    """Return the control that fits a field: choices, a switch, a slider between its bounds, or a number."""
    look, field = {**_look(name), "continuous_update": False}, _schema_field(name)
    low, high = (
        next((getattr(item, end) for item in field.metadata if hasattr(item, end)), None) for end in ("ge", "le")
    )
    if get_origin(field.annotation) is Literal:
        return w.Dropdown(options=get_args(field.annotation), **_look(name))
    if isinstance(field.default, bool):
        return w.Checkbox(indent=True, **_look(name))
    if name == "repetition_penalty":
        # From a tenth to the schema's hundred, with 1 in reach of a hand.
        return w.FloatLogSlider(min=-1, max=2, step=0.01, readout_format=".2f", **look)
    if isinstance(field.default, float):
        step = 1.0 if name == "prosody.volume" else 0.05
        return w.FloatSlider(min=low, max=high, step=step, readout_format=".2f", **look)
    if high is not None and high <= 10_000:
        return w.IntSlider(min=low or 0, max=high, **look)
    return w.BoundedIntText(min=low or 0, max=2**31 - 1, **look)


class ExplorePanel(SavedOutput, Panel):
    """A control for every field of a call; Speak, or a change of one, says the text again in place of what sounds.

    ``code`` is the call that makes what the knobs say, ``clip`` the last take in full, ``takes`` the view of all of
    them, to be heard, pinned and compared. The ``compact`` form shows the main knobs first, speaks when Speak is
    pressed, and keeps only the last take: its ``takes`` is None. The work runs in threads; ``close()`` stops it and
    takes the panel off the page. The notebook keeps the last take, and the call that makes it.
    """

    about = "a panel to type a text, turn the knobs of a voice and hear what each of them does"

    def __init__(self, lab: Lab, text: str = TEXT, *, compact: bool = False) -> None:
        self._lab = lab
        self.lock = threading.RLock()
        self._take: _Take | None = None
        self.newest = 0
        self._first_text = text
        self._history: dict[int, Call] = {}
        self.clip: Clip | None = None
        self._clip_code = ""
        self._debouncer = Debouncer(self._begin_if, _SETTLE_S)
        self.knobs = Knobs(lab, text, self._released)
        self.text = w.Textarea(value=text, rows=2, layout=WIDE, continuous_update=False, tooltip=field_help("text"))
        self.text.add_class("voicelab-text")
        self.speak_button = button("Speak", self.speak, "speak", button_style="primary", icon="volume-up")
        self.cancel_button = button("Cancel", self.cancel, "cancel", icon="stop", disabled=True)
        self.speak_on_change = w.Checkbox(value=not compact, description="Speak on change", indent=False)
        self.speak_on_change.layout.width = "auto"
        self.progress = ProgressLine()
        self.player = Player(label="The last take", name="take")
        self.code_view = w.HTML(layout=WIDE)
        self.code_view.add_class("voicelab-code")
        self.takes = None if compact else self._takes_view()
        shown = MAIN if compact else ("voice", "latency", "seed", "model", *SLIDERS)
        rest = [name for name in ("model", *SLIDERS, *MORE) if name not in shown]
        controls = self.knobs.controls
        more = w.Accordion([line(*(controls[name] for name in rest))], titles=("More fields",), selected_index=None)
        super().__init__(
            "panel" if compact else "explore",
            [
                self.text,
                line(*(controls[name] for name in shown)),
                more,
                line(self.speak_button, self.cancel_button, self.speak_on_change, self.progress),
                self.message,
                self.player,
                self.code_view,
                *([self.takes] if self.takes is not None else []),
            ],
        )
        self.text.observe(lambda _: self._released(), names="value")
        self.check()

    def _takes_view(self) -> TakesView:
        view = TakesView(axes=("text", *self.knobs.controls), gone=self.cancel)
        view.tools.children = (button("Back to the selected take", self.recall, "recall", icon="undo"),)
        return view

    @property
    def code(self) -> str:
        """The Python call that says the text with what the knobs say. Raises RequestInvalid while something is wrong."""
        return self.knobs.code(self.knobs.call(self.text.value))

    @property
    def status(self) -> str:
        """How far the last take is, in words."""
        return str(self.progress.status.value)

    def speak(self) -> None:
        """Do what the Speak button does: speak with what the knobs say, in place of what is being spoken."""
        call = self.check()
        if call is not None:
            self._debouncer.cancel()
            self._begin(call)

    def cancel(self) -> None:
        """Do what the Cancel button does."""
        self._debouncer.cancel()
        with self.lock:
            take = self._take
        if take is not None:
            take.cancel()

    def recall(self) -> None:
        """Turn the knobs back to what the selected take was made with, without speaking."""
        for row in self.takes.selected[:1] if self.takes is not None else ():
            call = self._history[row.id]
            self.knobs.put(call)
            before, self.speak_on_change.value = self.speak_on_change.value, False
            self.text.value = call.request.text
            self.speak_on_change.value = before
            self.check()

    def wait(self, timeout: float = 30.0) -> bool:
        """Wait until what was asked for is spoken; returns whether it is."""
        if not self._debouncer.settled(timeout):
            return False
        take = self._take
        return take is None or take.wait(timeout)

    def check(self) -> Call | None:
        """Check the knobs and write the call; returns it, None where something is wrong."""
        try:
            call = self.knobs.call(self.text.value)
        except RequestInvalid as error:
            self._show_wrong(error)
            return None
        self._show_wrong(None)
        code = escape(self.knobs.code(call))
        # One click selects the whole call, another one copies it.
        self.code_view.value = (
            f'<pre style="user-select:all;white-space:pre-wrap;margin:0">{code}</pre>'
            f'<button class="jupyter-button" data-code="{code}" title="Copy the call" '
            "onclick=\"navigator.clipboard.writeText(this.dataset.code);this.textContent='Copied'\">Copy</button>"
        )
        return call

    def _show_wrong(self, error: RequestInvalid | None) -> None:
        self.knobs.mark_wrong(error)
        self.show_error(error)
        self.speak_button.disabled = error is not None

    def close(self) -> None:
        """Stop the work and take the panel off the page."""
        if hasattr(self, "_debouncer"):
            self._debouncer.close()
            self.cancel()
        super().close()

    def _released(self) -> None:
        if self.check() is not None and self.speak_on_change.value:
            self._debouncer.ask()

    def _begin_if(self, wanted: Callable[[], bool]) -> None:
        """Begin a take, a moment after the last release of a knob; called in a thread."""
        try:
            call = self.knobs.call(self.text.value)
        except RequestInvalid:
            return
        if wanted():
            self._begin(call)

    def _begin(self, call: Call) -> None:
        """Begin a take in place of the one before."""
        with self.lock:
            before, self.newest = self._take, self.newest + 1
            # Begun under the lock, so that ``cancel`` finds it.
            self._take = _Take(self, self._lab.backend, self.newest, call).start()
            if before is not None:
                before.cancel()

    def keep(self, take: _Take, clip: Clip) -> None:
        """Put a finished take among the others."""
        if self.takes is None:
            return
        text = take.call.request.text
        labels = {"take": str(take.number)} | ({"text": text} if text != self._first_text else {})
        labels |= {name.removeprefix("prosody."): str(value) for name, value in self.knobs.changes(take.call).items()}
        values = {"take": take.number, "text": text, **_settings(take.call)}
        with self.lock:
            self._history[take.number] = take.call
            if len(self._history) > _MOST:
                # The oldest that is not pinned makes room.
                free = next((key for key in self._history if key not in self.takes.grid.pinned), take.number)
                del self._history[free]
                self.takes.grid.work.drop([free])
        self.takes.grid.work.put([Row(take.number, labels, values, "done", notes=clip.notes, hear=lambda: clip)])

    def show_finished(self, take: _Take, clip: Clip) -> None:
        """Show the last take, and leave it in the notebook."""
        self.clip, self._clip_code = clip, self.knobs.code(take.call)
        if clip.notes and not self.speak_button.disabled:
            self.message.value = "<br>".join(map(escape, clip.notes))
        self.update_saved_output()

    def __repr__(self) -> str:
        capabilities = self._lab.capabilities
        return f"ExplorePanel({capabilities.name} on {capabilities.device}, {len(capabilities.voices)} voices)"

    def saved_output(self) -> Mapping[str, str]:
        """Return the last take, below the call that makes it."""
        if self.clip is None:
            return {}
        output = clip_bundle(self.clip)
        return {**output, "text/html": f"<pre>{escape(self._clip_code)}</pre>{output['text/html']}"}


class _Take(SpeechTask):
    """One take on its way; only the panel's newest shows itself."""

    def __init__(self, panel: ExplorePanel, backend: Backend, number: int, call: Call) -> None:
        super().__init__(lambda: backend.synthesize(call))
        self.number = number
        self.call = call
        self._panel = panel
        self._title = f"take {number}: " if panel.takes is not None else ""
        self._expected_s = max(call.expected_seconds, 0.5)
        self._moved = time.monotonic()
        self._seconds = 0.0
        panel.cancel_button.disabled = False
        panel.progress.show(f"{self._title}waiting for the first audio…", 0.0, "info")

    @property
    def newest(self) -> bool:
        """Whether no other take has begun since."""
        return self._panel.newest == self.number

    def began(self, rate: int) -> None:
        with self._panel.lock:
            if self.newest:
                self._panel.player.begin(rate)
                self._panel.progress.show(f"{self._title}speaking…")

    def arrived(self, samples: Samples, arrivals: Sequence[Arrival]) -> None:
        with self._panel.lock:
            if not self.newest:
                return
            self._panel.player.feed(samples, arrivals)
            self._seconds = self._panel.player.duration
            now = time.monotonic()
            if now - self._moved >= _BAR_S:
                self._moved = now
                # How long a text takes is known only at its end: the bar never says that it is over before.
                self._panel.progress.show(share=min(self._seconds / self._expected_s, 0.95))

    def finished(self, clip: Clip) -> None:
        # Kept, whether or not another has begun: it is whole.
        self._panel.keep(self, clip)
        timing = clip.take.timing if clip.take else None
        details = f", first audio {timing.first_audio_s:.2f} s, RTF {timing.rtf(clip.duration):.2f}" if timing else ""
        if self.newest:
            self._over(f"{clip.duration:.1f} s{details}", "success", 1.0)
            self._panel.show_finished(self, clip)

    def failed(self, error: Exception) -> None:
        if not self.newest:
            return  # it was broken off for the next one
        if isinstance(error, Cancelled):
            self._over(f"cancelled after {self._seconds:.1f} s", "warning")
        else:
            self._over("failed", "danger")
            self._panel.show_error(error)

    def _over(self, status: str, style: str, share: float | None = None) -> None:
        self._panel.player.end()
        self._panel.cancel_button.disabled = True
        self._panel.progress.show(f"{self._title}{status}", share, style)
