"""Controls, the form of a synthesis panel: text, voice, Speak button, and a control for every field of a call.

Labels, bounds and help texts come from the schema; static/controls.js renders them.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Final, Literal, get_args, get_origin

import traitlets
from pydantic.fields import FieldInfo

from voicelab.call import Call, Knob, field_name, is_field, knob_pairs, parse_value, short_name
from voicelab.capabilities import Capabilities, FieldSupport, check_call
from voicelab.errors import FieldError, RequestInvalid
from voicelab.schema import ProsodyControl, TTSRequest
from voicelab.session import Session
from voicelab.views.scripts import PageWidget

MAIN: Final = ("latency", "temperature", "top_p", "seed")
"""Fields that a compact panel shows expanded, besides text and voice."""
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
"""Fields with a control, in order."""
_OPTIONAL: Final = frozenset({"reference_id", "seed"})
_STEPS: Final = 1000
_SEEDS: Final = 10_000
"""Number of seeds to draw from. It is small because every card shows its seed."""
_MAX_NUMBER: Final = 2**31 - 1
_FRONT_FIELDS: Final = 8
"""Number of fields that a large panel shows expanded."""

# Labels of fields whose names are not clear enough.
_LABELS: Final = {
    "reference_id": "Voice",
    "voices": "Recordings",
    "names": "Fields",
    "top_p": "Top-p",
    "prosody.volume": "Volume, dB",
    "chunk_length": "Segment length, characters",
    "min_chunk_length": "Minimum segment length, characters",
    "max_new_tokens": "Maximum tokens per segment",
    "normalize": "Normalize text",
    "condition_on_previous_chunks": "Condition on previous segments",
    "sample_rate": "Sample rate, Hz",
    "mp3_bitrate": "MP3 bitrate, kbit/s",
    "opus_bitrate": "Opus bitrate, kbit/s",
}
# Descriptions of axes and call options outside the request schema.
_DESCRIPTIONS: Final = {
    "model": "The synthesis model: s1, s2-pro.",
    "seed": "An integer; the same seed reproduces the same speech if the backend supports seeds.",
    "backend": "Names of the labs passed to the sweep.",
}


def field_label(name: str) -> str:
    """Return the label of a field, with its unit."""
    return _LABELS.get(name) or name.rpartition(".")[2].replace("_", " ").capitalize()


def field_help(name: str) -> str:
    """Return the tooltip of a field: its name in code and its description."""
    name = field_name(name)
    return f"{short_name(name)}: {_description(name)}"


def _description(name: str) -> str:
    custom = f"A knob of the backend, or the values of {{{name}}} in the text."
    return _DESCRIPTIONS.get(name) or (str(_schema_field(name).description) if is_field(name) else custom)


def _schema_field(name: str) -> FieldInfo:
    group, _, field = name.rpartition(".")
    return (ProsodyControl if group == "prosody" else TTSRequest).model_fields[field]


def voice_choices(capabilities: Capabilities, chosen: str | None = None) -> list[tuple[str, str]]:
    """Return (label, id) of all selectable voices: the default speaker, whose id is "", then the presets.

    ``chosen`` is appended if it is not a preset, so that a stored voice remains selectable.
    """
    presets = [
        (f"{voice.title} ({voice.description})" if voice.description else voice.title, voice.id)
        for voice in capabilities.voices
    ]
    if chosen and chosen not in {identity for _, identity in presets}:
        presets.append((chosen, chosen))
    return [("Default speaker", ""), *presets]


class CallCode(PageWidget):
    """The Python code for the call of a panel, with a button to copy it."""

    script = "code.js"
    styles = ("controls.css",)

    code = traitlets.Unicode("").tag(sync=True)


class Controls(PageWidget):
    """Text, voice and a control for every field, initialized with the defaults of a lab.

    ``values`` maps field names to values; the seed is text, and "" is the default voice. While ``held`` is true, the
    seed is constant, so that takes differ only in the changed field; otherwise each take draws a new seed. ``changed``
    is called after a change of a control, ``pressed`` with "speak", "cancel" or "draw" (draw a new seed).
    """

    script = "controls.js"
    styles = ("controls.css",)

    values = traitlets.Dict().tag(sync=True)
    fields: traitlets.List[dict[str, Any]] = traitlets.List().tag(sync=True)
    problems = traitlets.Dict().tag(sync=True)
    """Error messages by field name; "" for general errors."""
    notes: traitlets.List[str] = traitlets.List().tag(sync=True)
    status = traitlets.Unicode("").tag(sync=True)
    """Status of the latest take, as text."""
    share = traitlets.Float(0.0).tag(sync=True)
    """Progress from 0 to 1."""
    tone = traitlets.Unicode("").tag(sync=True)
    """Style of the status: "info", "success", "warning" or "danger"."""
    busy = traitlets.Bool(False).tag(sync=True)
    ready = traitlets.Bool(True).tag(sync=True)
    """Whether Speak is enabled."""
    held = traitlets.Bool(True).tag(sync=True)
    speak_on_change = traitlets.Bool(True).tag(sync=True)

    def __init__(
        self, lab: Session, text: str, *, compact: bool, changed: Callable[[], object], pressed: Callable[[str], object]
    ) -> None:
        self._lab = lab
        self.base = check_call(lab.call(text), lab.capabilities)
        self._seeded = lab.capabilities.seed in {"exact", "best-effort"}
        initial = self.base
        # Panels request low latency, unless the lab sets a latency.
        support = lab.capabilities.support("latency") or FieldSupport("latency")
        if "latency" not in lab.defaults and not (support.ignored or support.problem("low")):
            initial = initial.replace(latency="low")
        front = MAIN if compact else FIELDS[:_FRONT_FIELDS]
        voice: dict[str, Any] = {
            "name": "reference_id",
            "kind": "voice",
            **_description_fields("reference_id"),
            "default": "",
        }
        voice["options"] = voice_choices(lab.capabilities, initial.request.reference_id)
        super().__init__(
            fields=[
                _off(voice, lab.capabilities.ignored("reference_id")),
                *(described_field(name, lab.capabilities, front=name in front) for name in FIELDS),
                *map(described_knob, lab.capabilities.knobs),
            ],
            values=self._values(initial),
            speak_on_change=not compact,
        )
        self._changed, self._pressed, self._quiet = changed, pressed, False
        if self._seeded and initial.seed is None:
            self.draw_seed()
        self.observe(self._released, names="values")
        self.on_msg(self._on_message)

    def __repr__(self) -> str:
        return f"Controls({len(self.fields)} fields)"

    @property
    def text(self) -> str:
        """Request text."""
        return str(self.values["text"])

    def set(self, **values: Any) -> None:
        """Change controls as a user does; names are those of ``lab.speak``, such as ``speed``, ``volume`` and ``voice``."""
        self.values = {**self.values, **{field_name(name): value for name, value in values.items()}}

    def put(self, call: Call) -> None:
        """Set the controls to the values of a call, without calling ``changed``."""
        self._silently(self._values(call))

    def draw_seed(self) -> None:
        """Draw a new seed, without calling ``changed``."""
        if self._seeded:
            self._silently({**self.values, "seed": str(secrets.randbelow(_SEEDS))})

    def offer_voices(self, voices: Sequence[tuple[str, str]], chosen: str) -> None:
        """Replace the selectable voices, given as (label, id), and select the voice ``chosen``."""
        self.fields = [{**self.fields[0], "options": list(voices)}, *self.fields[1:]]
        if self.values["reference_id"] != chosen:
            self.set(reference_id=chosen)

    def call(self) -> Call:
        """Return the call with the current values. Raises RequestInvalid, which names all invalid fields."""
        problems: list[FieldError] = []
        settings = {field["name"]: self.values[field["name"]] for field in self.fields}
        knobs = {knob.name: knob.default for knob in self._lab.capabilities.knobs}
        base = {**knobs, **self.base.settings}
        unset = {name for name, default in knobs.items() if default is None}
        for name in ("seed", *unset):
            word, settings[name] = str(settings[name]).strip(), base[name]
            with _collected(problems):
                settings[name] = parse_value(name, word, self._lab.capabilities.knobs) if word else settings[name]
        settings["reference_id"] = settings["reference_id"] or None
        for name in (name for name, value in settings.items() if value is None and name not in _OPTIONAL | unset):
            problems += RequestInvalid.of(name, "must be a number, got no value").errors
            settings[name] = base[name]
        changes = {name: value for name, value in settings.items() if value != base[name]}
        call = self.base
        with _collected(problems):
            call = self._lab.call(self.text)
        with _collected(problems):
            call = check_call(call.replace(self._lab.capabilities.knobs, **changes), self._lab.capabilities)
        if problems:
            raise RequestInvalid(problems)
        return call

    def code(self, call: Call) -> str:
        """Return Python code for a call; it gives the same samples if the backend's seeds are exact."""
        values = self._lab.capabilities.knob_values(call)
        knobs = {name: values[name] for name, _ in self.base.knobs if name in values}  # also of the backend's default
        return replace(call, knobs=knob_pairs({**knobs, **dict(call.knobs)})).code(self.base)

    def show(self, **traits: str | float | bool) -> None:
        """Update the progress of the latest take: any of ``status``, ``share``, ``tone`` and ``busy``."""
        with self.hold_sync():
            for name, value in traits.items():
                self.set_trait(name, value)

    def show_error(self, error: Exception | None) -> None:
        """Show an error at its field; None clears it."""
        problems = {} if error is None else {"": str(error)}
        if isinstance(error, RequestInvalid):
            names = {"text", *(field["name"] for field in self.fields)}
            messages = [(field_name(item.field), item.msg) for item in error.errors]
            problems = {name if name in names else "": message for name, message in messages}
        with self.hold_sync():  # in one message
            self.problems, self.ready = problems, not isinstance(error, RequestInvalid)

    def _values(self, call: Call) -> dict[str, Any]:
        knobs = {knob.name: "" for knob in self._lab.capabilities.knobs} | self._lab.capabilities.knob_values(call)
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


@contextmanager
def _collected(problems: list[FieldError]) -> Iterator[None]:
    """Append the errors of the block to ``problems``."""
    try:
        yield
    except RequestInvalid as error:
        problems += error.errors


def _description_fields(name: str) -> dict[str, str]:
    return {"label": field_label(name), "title": short_name(name), "help": _description(name)}


def seed_reason(capabilities: Iterable[Capabilities]) -> str:
    """Return the reason why none of the backends supports seeds; "" if at least one does."""
    kinds = {backend.seed for backend in capabilities}
    if kinds & {"exact", "best-effort"}:
        return ""
    return "seed support is unknown" if "unknown" in kinds else "seeds are not supported"


def _off(about: dict[str, Any], reason: str) -> dict[str, Any]:
    """Disable a control, with the reason as its help; leave it unchanged if ``reason`` is ""."""
    return {**about, "disabled": True, "help": f"No effect: {reason}."} if reason else about


def described_field(name: str, capabilities: Capabilities, *, front: bool = False) -> dict[str, Any]:
    """Describe the control of a field for the page; it offers only the values that the backend supports.

    The control of a field that the backend ignores is disabled, with the reason as help.
    """
    common = {"name": name, "front": front, **_description_fields(name)}
    if name == "seed":
        return _off({**common, "kind": "seed", "default": ""}, seed_reason([capabilities]))
    if name == "model":
        models = list(capabilities.models)
        reason = "all models share the same weights" if capabilities.one_model else ""
        reason = "there is only one model" if len(models) == 1 else reason
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
        # The scale is logarithmic and begins at 0.1.
        return {**common, "kind": "slider", "min": low or 0.1, "max": high, "step": 0.01, "log": True}
    step = 1 if name == "prosody.volume" or not isinstance(field.default, float) else 0.05
    return {**common, **_kind(field.default, choices, low, high, step)}


def described_knob(knob: Knob) -> dict[str, Any]:
    """Describe the control of a knob for the page."""
    label = knob.name.replace("_", " ").capitalize()
    if knob.default is None:  # an empty control leaves the value to the lab and the backend
        words = ("true", "false") if knob.type == "bool" else knob.choices
        common = {"name": knob.name, "front": True, "label": label, "title": knob.name, "default": ""}
        return {**common, "help": knob.description, **_kind("", ("", *words) if words else (), None, None, 1)}
    common = {"name": knob.name, "front": True, "label": label, "title": knob.name, "default": knob.default}
    low, high = knob.bounds or (-_MAX_NUMBER, _MAX_NUMBER)
    step = 1 if knob.type == "int" else max(10.0 ** math.floor(math.log10((high - low) / 20)), 0.01)
    return {**common, "help": knob.description, **_kind(knob.default, knob.choices, low, high, step)}


def _kind(
    default: object, choices: Sequence[object], low: float | None, high: float | None, step: float
) -> dict[str, Any]:
    """Return the kind of control: switch, choice, text, slider if it has at most 1,000 steps, or number."""
    if isinstance(default, bool):
        return {"kind": "switch"}
    if isinstance(default, str):
        return {"kind": "choice", "options": list(choices)} if choices else {"kind": "word"}
    near = high is not None and low is not None and (high - low) / step <= _STEPS
    ends = {"min": -_MAX_NUMBER if low is None else low, "max": _MAX_NUMBER if high is None else high}
    return {"kind": "slider" if near else "number", **ends, "step": step}
