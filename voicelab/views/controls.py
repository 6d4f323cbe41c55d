"""Controls: the shell of a panel that speaks: text, voice and Speak above, a control for every field of a call below.

What a field is called, its bounds and its line of help come from the schema. The page shows it with static/controls.js.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from typing import Any, Final, Literal, get_args, get_origin

import anywidget
import traitlets
from pydantic.fields import FieldInfo

from voicelab.backend import check_call
from voicelab.call import Call, field_name, parse_value, short_name
from voicelab.capabilities import Capabilities
from voicelab.errors import RequestInvalid
from voicelab.lab import Lab
from voicelab.schema import ProsodyControl, TTSRequest
from voicelab.views.player import STATIC, inlined

__all__ = ["FIELDS", "MAIN", "CallCode", "Controls", "field_help", "field_label", "voice_choices"]

MAIN: Final = ("latency", "temperature", "top_p", "seed")
"""What a compact panel shows at first, beside text and voice."""
FIELDS: Final = (
    "temperature",
    "top_p",
    "repetition_penalty",
    "prosody.speed",
    "prosody.volume",
    "latency",
    "model",
    "seed",
    "chunk_length",
    "min_chunk_length",
    "max_new_tokens",
    "early_stop_threshold",
    "normalize",
    "condition_on_previous_chunks",
)
"""Fields with a control of their own, in order."""
_SHOWN: Final = 8
"""So many of them a large panel shows at first."""

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
    name = field_name(name)
    return f"{short_name(name)}: {_description(name)}"


def _description(name: str) -> str:
    return _BESIDE.get(name) or str(_schema_field(name).description)


def _schema_field(name: str) -> FieldInfo:
    place, _, part = name.rpartition(".")
    return (ProsodyControl if place == "prosody" else TTSRequest).model_fields[part]


def voice_choices(capabilities: Capabilities, chosen: str | None = None) -> list[tuple[str, str]]:
    """Return (label, id) of every voice to choose from: the default speaker, whose id is "", then the presets.

    ``chosen`` is added when it is none of them, so that a stored voice stays selectable.
    """
    presets = [
        (f"{voice.title} ({voice.description})" if voice.description else voice.title, voice.id)
        for voice in capabilities.voices
    ]
    if chosen and chosen not in {identity for _, identity in presets}:
        presets.append((chosen, chosen))
    return [("Default speaker", ""), *presets]


class CallCode(anywidget.AnyWidget):
    """The foot of a panel: the Python that does what the panel does, with a button that copies it."""

    _esm = inlined("code.js")
    _css = STATIC / "controls.css"

    code = traitlets.Unicode("").tag(sync=True)


class Controls(anywidget.AnyWidget):
    """The text, the voice and a control for every field, begun with what a lab's calls start from.

    ``values`` are what they say, by the names of the fields; the seed is text, and None for the voice is "". While
    ``held`` the seed stays the same, so that what differs between two takes is the field that was changed; otherwise
    each take has a new one. ``changed`` is called when the user lets go of a control, ``pressed`` with "speak",
    "cancel" or "draw" (a new seed is wanted).
    """

    _esm = inlined("controls.js")
    _css = STATIC / "controls.css"

    values = traitlets.Dict().tag(sync=True)
    fields: traitlets.List[dict[str, Any]] = traitlets.List().tag(sync=True)
    problems = traitlets.Dict().tag(sync=True)
    """What is wrong, in sentences, by the name of the field; "" for what belongs to none."""
    notes: traitlets.List[str] = traitlets.List().tag(sync=True)
    status = traitlets.Unicode("").tag(sync=True)
    """How far the last take is, in words."""
    share = traitlets.Float(0.0).tag(sync=True)
    """How far it is, from 0 to 1."""
    tone = traitlets.Unicode("").tag(sync=True)
    """How it went: "info", "success", "warning" or "danger"."""
    busy = traitlets.Bool(False).tag(sync=True)
    ready = traitlets.Bool(True).tag(sync=True)
    """Whether Speak can be pressed."""
    held = traitlets.Bool(True).tag(sync=True)
    speak_on_change = traitlets.Bool(True).tag(sync=True)

    def __init__(
        self, lab: Lab, text: str, *, compact: bool, changed: Callable[[], object], pressed: Callable[[str], object]
    ) -> None:
        self._lab = lab
        self.base = lab.call(text)
        self._seeded = lab.capabilities.seed in {"exact", "best-effort"}
        first = self.base
        # Whoever turns knobs wants to hear at once, unless the lab was told otherwise.
        if "latency" not in lab.defaults:
            first = first.replace(latency="low")
        front = MAIN if compact else FIELDS[:_SHOWN]
        voices = voice_choices(lab.capabilities, first.request.reference_id)
        super().__init__(
            fields=[
                {"name": "reference_id", "kind": "voice", "options": voices, **_named("reference_id"), "default": ""},
                *(_field(name, lab, front=name in front) for name in FIELDS),
            ],
            values=self._values(first),
            speak_on_change=not compact,
        )
        self._changed, self._pressed, self._quiet = changed, pressed, False
        if self._seeded and first.seed is None:
            self.draw_seed()
        self.observe(self._released, names="values")
        self.on_msg(self._on_message)

    def __repr__(self) -> str:
        return f"Controls({len(self.fields)} fields)"

    @property
    def text(self) -> str:
        """What is to be said."""
        return str(self.values["text"])

    def set(self, **values: Any) -> None:
        """Turn controls by hand, as a user does; ``speed``, ``volume`` and ``voice`` are called as in ``lab.speak``."""
        short = {"voice": "reference_id", "speed": "prosody.speed", "volume": "prosody.volume"}
        self.values = {**self.values, **{short.get(name, name): value for name, value in values.items()}}

    def put(self, call: Call) -> None:
        """Turn the controls to what makes ``call``, without a call of ``changed``."""
        self._silently(self._values(call))

    def draw_seed(self) -> None:
        """Draw a new seed, without a call of ``changed``."""
        if self._seeded:
            self._silently({**self.values, "seed": str(secrets.randbelow(2**32))})

    def offer_voices(self, voices: Sequence[tuple[str, str]], chosen: str) -> None:
        """Offer other voices, (label, id), and choose one."""
        self.fields = [{**self.fields[0], "options": list(voices)}, *self.fields[1:]]
        if self.values["reference_id"] != chosen:
            self.set(reference_id=chosen)

    def call(self) -> Call:
        """Return the call that the controls say. Raises RequestInvalid, which names the field."""
        settings = {name: self.values[name] for name in ("reference_id", *FIELDS)}
        base = self.base.settings
        settings["reference_id"] = settings["reference_id"] or None
        settings["seed"] = parse_value("seed", settings["seed"]) if settings["seed"].strip() else base["seed"]
        changes = {name: value for name, value in settings.items() if value != base[name]}
        call = self._lab.call(self.text).replace(**changes)
        return check_call(call, self._lab.capabilities)

    def code(self, call: Call) -> str:
        """Return the Python that makes a call of the lab: the same samples, where the backend's seeds are exact."""
        return call.code(self.base)

    def show(
        self,
        status: str | None = None,
        share: float | None = None,
        tone: str | None = None,
        *,
        busy: bool | None = None,
    ) -> None:
        """Show how far the last take is: what is given and has changed."""
        given = {"status": status, "share": share, "tone": tone, "busy": busy}
        with self.hold_sync():
            for name, value in given.items():
                if value is not None and getattr(self, name) != value:
                    setattr(self, name, value)

    def show_error(self, error: Exception | None) -> None:
        """Say what is wrong, at its field; None takes away what was said."""
        if isinstance(error, RequestInvalid):
            self.problems = {_shown_at(item.field): item.msg for item in error.errors}
        else:
            self.problems = {} if error is None else {"": str(error)}
        self.ready = not isinstance(error, RequestInvalid)

    def _values(self, call: Call) -> dict[str, Any]:
        values = {name: value for name, value in call.settings.items() if name in FIELDS}
        seed = "" if call.seed is None else str(call.seed)
        return {**values, "text": call.request.text, "reference_id": call.request.reference_id or "", "seed": seed}

    def _silently(self, values: dict[str, Any]) -> None:
        self._quiet = True
        try:
            self.values = values
        finally:
            self._quiet = False

    def _released(self, _: object) -> None:
        if not self._quiet:
            self._changed()

    def _on_message(self, _: Any, message: dict[str, Any], __: Sequence[Any]) -> None:
        if message.get("kind") in {"speak", "cancel", "draw"}:
            self._pressed(message["kind"])


def _shown_at(field: str) -> str:
    """Return the control at which an error of ``field`` is said; "" for one that has none."""
    name = field_name(field)
    return name if name in {"text", "reference_id", *FIELDS} else ""


def _named(name: str) -> dict[str, str]:
    return {"label": field_label(name), "title": short_name(name), "help": _description(name)}


def _field(name: str, lab: Lab, *, front: bool) -> dict[str, Any]:
    """Return what the page needs to show a field: choices, a switch, a slider between its bounds, or a number."""
    common = {"name": name, "front": front, **_named(name)}
    if name == "seed":
        return {**common, "kind": "seed", "disabled": lab.capabilities.seed in {"none", "unknown"}, "default": ""}
    if name == "model":
        models = lab.capabilities.models
        return {**common, "kind": "choice", "options": list(models), "default": Call.of("x").model}
    field = _schema_field(name)
    common["default"] = field.default
    if get_origin(field.annotation) is Literal:
        return {**common, "kind": "choice", "options": list(get_args(field.annotation))}
    if isinstance(field.default, bool):
        return {**common, "kind": "switch"}
    low, high = (
        next((getattr(item, end) for item in field.metadata if hasattr(item, end)), None) for end in ("ge", "le")
    )
    if name == "repetition_penalty":
        # From a tenth to the schema's hundred, with 1 in reach of a hand.
        return {**common, "kind": "slider", "min": 0.1, "max": high, "step": 0.01, "log": True}
    if isinstance(field.default, float):
        return {**common, "kind": "slider", "min": low, "max": high, "step": 1 if name == "prosody.volume" else 0.05}
    if high is not None and high <= 10_000:
        return {**common, "kind": "slider", "min": low or 0, "max": high, "step": 1}
    return {**common, "kind": "number", "min": low or 0, "max": 2**31 - 1, "step": 1}
