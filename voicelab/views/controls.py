"""Controls: the shell of a panel that speaks: text, voice and Speak above, a control for every field of a call below.

What a field is called, its bounds and its line of help come from the schema. The page shows it with static/controls.js.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, Literal, get_args, get_origin

import anywidget
import traitlets
from pydantic.fields import FieldInfo

from voicelab.call import Call, Knob, field_name, is_field, parse_value, short_name
from voicelab.capabilities import Capabilities, FieldSupport, check_call
from voicelab.errors import RequestInvalid
from voicelab.schema import ProsodyControl, TTSRequest
from voicelab.session import Session
from voicelab.views.panel import inlined, styled

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
_STEPS: Final = 1000
_MOST: Final = 2**31 - 1
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
    own = f"A parameter of the backend's own, or what {{{name}}} in the text is filled with."
    return _BESIDE.get(name) or (str(_schema_field(name).description) if is_field(name) else own)


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
    _css = styled("controls.css")

    code = traitlets.Unicode("").tag(sync=True)


class Controls(anywidget.AnyWidget):
    """The text, the voice and a control for every field, begun with what a lab's calls start from.

    ``values`` are what they say, by the names of the fields; the seed is text, and None for the voice is "". While
    ``held`` the seed stays the same, so that what differs between two takes is the field that was changed; otherwise
    each take has a new one. ``changed`` is called when the user lets go of a control, ``pressed`` with "speak",
    "cancel" or "draw" (a new seed is wanted).
    """

    _esm = inlined("controls.js")
    _css = styled("controls.css")

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
        self, lab: Session, text: str, *, compact: bool, changed: Callable[[], object], pressed: Callable[[str], object]
    ) -> None:
        self._lab = lab
        self.base = check_call(lab.call(text), lab.capabilities)
        self._seeded = lab.capabilities.seed in {"exact", "best-effort"}
        first = self.base
        # Whoever turns knobs wants to hear at once, unless the lab was told otherwise.
        support = lab.capabilities.support("latency") or FieldSupport("latency")
        if "latency" not in lab.defaults and not (support.ignored or support.problem("low")):
            first = first.replace(latency="low")
        front = MAIN if compact else FIELDS[:_SHOWN]
        voice: dict[str, Any] = {"name": "reference_id", "kind": "voice", **_named("reference_id"), "default": ""}
        voice["options"] = voice_choices(lab.capabilities, first.request.reference_id)
        super().__init__(
            fields=[
                _off(voice, lab.capabilities.ignored("reference_id")),
                *(_field(name, lab.capabilities, front=name in front) for name in FIELDS),
                *map(_knob, lab.capabilities.knobs),
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
        self.values = {**self.values, **{field_name(name): value for name, value in values.items()}}

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
        settings = {field["name"]: self.values[field["name"]] for field in self.fields}
        knobs = {knob.name: knob.default for knob in self._lab.capabilities.knobs}
        base = {**knobs, **self.base.settings}
        settings["reference_id"] = settings["reference_id"] or None
        settings["seed"] = parse_value("seed", settings["seed"]) if settings["seed"].strip() else base["seed"]
        changes = {name: value for name, value in settings.items() if value != base[name]}
        call = self._lab.call(self.text).replace(self._lab.capabilities.knobs, **changes)
        return check_call(call, self._lab.capabilities)

    def code(self, call: Call) -> str:
        """Return the Python that makes a call of the lab: the same samples, where the backend's seeds are exact."""
        return call.code(self.base)

    def show(self, **given: str | float | bool) -> None:
        """Show how far the last take is: ``status``, ``share``, ``tone`` and ``busy``, those that are given."""
        with self.hold_sync():
            for name, value in given.items():
                self.set_trait(name, value)

    def show_error(self, error: Exception | None) -> None:
        """Say what is wrong, at its field; None takes away what was said."""
        problems = {} if error is None else {"": str(error)}
        if isinstance(error, RequestInvalid):
            there = {"text", *(field["name"] for field in self.fields)}
            named = [(field_name(item.field), item.msg) for item in error.errors]
            problems = {name if name in there else "": msg for name, msg in named}
        with self.hold_sync():  # a page that has the one has the other
            self.problems, self.ready = problems, not isinstance(error, RequestInvalid)

    def _values(self, call: Call) -> dict[str, Any]:
        knobs = self._lab.capabilities.knob_values(call)
        values = {name: value for name, value in call.settings.items() if name in FIELDS} | knobs
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


def _named(name: str) -> dict[str, str]:
    return {"label": field_label(name), "title": short_name(name), "help": _description(name)}


def seed_reason(capabilities: Iterable[Capabilities]) -> str:
    """Return why a seed does nothing in any of these backends; "" where it acts in one."""
    kinds = {one.seed for one in capabilities}
    if kinds & {"exact", "best-effort"}:
        return ""
    return "whether it takes a seed is not known" if "unknown" in kinds else "no seed is taken"


def _off(about: dict[str, Any], reason: str) -> dict[str, Any]:
    """Return a control that is off, its help saying why; as it is where there is no reason."""
    return {**about, "disabled": True, "help": f"It does nothing here: {reason}."} if reason else about


def _field(name: str, capabilities: Capabilities, *, front: bool) -> dict[str, Any]:
    """Return what the page needs to show a field: choices, a switch, a slider between its bounds, or a number.

    What the backend declares narrows it; a field that does nothing there is off, and its help says why.
    """
    common = {"name": name, "front": front, **_named(name)}
    if name == "seed":
        return _off({**common, "kind": "seed", "default": ""}, seed_reason([capabilities]))
    if name == "model":
        models = list(capabilities.models)
        only = "there is one model only" if len(models) == 1 else "all its models are one set of weights"
        reason = only if len(models) == 1 or capabilities.one_model else ""
        return _off({**common, "kind": "choice", "options": models, "default": capabilities.default_model}, reason)
    support = capabilities.support(name) or FieldSupport(name)
    common = _off(common, support.ignored)
    field = _schema_field(name)
    common["default"] = field.default
    choices = (support.values or get_args(field.annotation)) if get_origin(field.annotation) is Literal else ()
    low, high = support.bounds or (
        next((getattr(item, end) for item in field.metadata if hasattr(item, end)), None) for end in ("ge", "le")
    )
    if name == "repetition_penalty":
        # From a tenth to the schema's hundred, with 1 in reach of a hand.
        return {**common, "kind": "slider", "min": low or 0.1, "max": high, "step": 0.01, "log": True}
    step = 1 if name == "prosody.volume" or not isinstance(field.default, float) else 0.05
    return {**common, **_kind(field.default, choices, low, high, step)}


def _knob(knob: Knob) -> dict[str, Any]:
    """Return what the page needs to show an own parameter of the backend."""
    label = knob.name.replace("_", " ").capitalize()
    common = {"name": knob.name, "front": True, "label": label, "title": knob.name, "default": knob.default}
    low, high = knob.bounds or (-_MOST, _MOST)
    step = 1 if knob.type == "int" else max(10.0 ** math.floor(math.log10((high - low) / 20)), 0.01)
    return {**common, "help": knob.description, **_kind(knob.default, knob.choices, low, high, step)}


def _kind(
    default: object, choices: Sequence[object], low: float | None, high: float | None, step: float
) -> dict[str, Any]:
    """Return a switch, a choice, a word, a slider where both ends are near enough for a hand, or a box for a number."""
    if isinstance(default, bool):
        return {"kind": "switch"}
    if isinstance(default, str):
        return {"kind": "choice", "options": list(choices)} if choices else {"kind": "word"}
    near = high is not None and low is not None and (high - low) / step <= _STEPS
    ends = {"min": -_MOST if low is None else low, "max": _MOST if high is None else high}
    return {"kind": "slider" if near else "number", **ends, "step": step}
