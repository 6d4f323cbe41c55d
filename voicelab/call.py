"""Call, all parameters of one utterance: request, model, seed and backend parameters (knobs).

Only this module resolves the short names (``voice``, ``speed``, ``volume``) and defaults, and validates seeds and knobs.
"""

from __future__ import annotations

import inspect
import json
import math
import re
import types
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import PurePath
from types import MappingProxyType
from typing import Annotated, Any, Final, Literal, Self, TypeVar, Union, get_args, get_origin

from voicelab.display import Shown
from voicelab.errors import ArgumentError, RequestInvalid, shown_value, suggestion
from voicelab.schema import DEFAULT_MODEL, ProsodyControl, ReferenceAudio, TTSRequest, VoiceModel, unknown_field
from voicelab.tags import read_tags, said

MAX_SEED: Final = 2**63 - 1
"""Largest seed; the smallest is 0."""

_ALIASES: Final = {"speed": "prosody.speed", "volume": "prosody.volume", "voice": "reference_id"}
# English, measured on the embedded voice: 14 to 15 characters per second.
_CHARACTERS_PER_SECOND: Final = 14.5
# Chinese characters (syllables), measured on the embedded voice: 3.2 to 3.6 per second.
_HAN: Final = re.compile("[\u3400-\u9fff]")
_HAN_PER_SECOND: Final = 3.5
_BOOLEANS: Final = {"true": True, "on": True, "false": False, "off": False}
_NO_DEFAULTS: Final[Mapping[str, object]] = MappingProxyType({})
_PROSODY: Final = tuple(ProsodyControl.model_fields)
# Fields that set the speaker; either replaces the default speaker.
_SPEAKER: Final = ("reference_id", "references")
# Fields for which None is a value that overrides the lab's default. For all other fields None means unset.
_NULLABLE: Final = (*_SPEAKER, "prosody", "sample_rate")
# Names that a knob cannot have: fields, arguments of connect and sweep, and columns of tables.
_RESERVED: Final = frozenset(
    (
        *TTSRequest.model_fields,
        *_PROSODY,
        *_ALIASES,
        *("model", "seed", "backend", "lab", "labs", "repeats", "repeat", "cache", "cell", "knobs", "defaults", "key"),
        *("api_key", "device", "record", "replay", "fingerprint", "digest", "notes", "created", "cached", "similarity"),
    )
)
_NOT_FLAT: Final = frozenset({"text", "references", "prosody"})


@dataclass(frozen=True, slots=True)
class VoicePreset:
    """Built-in voice of a backend; ``id`` is a value of ``voice``."""

    id: str
    title: str
    description: str = ""


KnobValue = bool | int | float | str
"""Value of a knob."""

EXTRA: Final = "extra."
"""Prefix of the names of fields that are passed on to a service: ``extra={"features": […]}`` is ``extra.features``."""
_FIXED: Final = ("text", "format")


class JsonText(str):
    """JSON text of a list, an object or null, as the value of an extra field."""

    __slots__ = ()


_KNOB_TYPES: Final[Mapping[str, type]] = MappingProxyType({"bool": bool, "int": int, "float": float, "str": str})


@dataclass(frozen=True, slots=True)
class Knob:
    """Backend parameter: a parameter that the interface does not define.

    Args:
        name: Python identifier, different from every field; a keyword of ``lab.speak`` and an axis of a sweep.
        type: "bool", "int", "float" or "str".
        default: default value; None leaves it to the backend.
        description: one sentence for help and tooltips.
        bounds: minimum and maximum; None if unbounded.
        choices: allowed values; empty if any value is allowed.

    Raises ArgumentError for a reserved name or an invalid default.
    """

    name: str
    type: Literal["bool", "int", "float", "str"]
    default: KnobValue | None
    description: str = ""
    bounds: tuple[float, float] | None = None
    choices: tuple[KnobValue, ...] = ()

    def __post_init__(self) -> None:
        if not self.name.isidentifier() or self.name.startswith("_"):
            raise ArgumentError.of("knobs", f"name must be letters, digits and underscores, got {self.name!r}")
        if self.name in _RESERVED:
            raise ArgumentError.of("knobs", f"{self.name!r} is a field or argument of every backend; use another name")
        if self.type not in _KNOB_TYPES:
            raise ArgumentError.of("knobs", f"{self.name}: type must be bool, int, float or str, got {self.type!r}")
        try:
            if self.default is not None:
                self.check(self.default)
        except RequestInvalid as error:
            raise ArgumentError.of("knobs", f"the default of {error}") from None

    def check(self, value: object) -> KnobValue:
        """Validate a value and convert it for the backend. Raises RequestInvalid, which names the knob."""
        if hasattr(value, "dtype") and hasattr(value, "item"):  # NumPy scalar
            value = value.item()
        value = value.value if isinstance(value, Enum) else str(value) if isinstance(value, PurePath) else value
        if self.type == "float" and isinstance(value, int) and not isinstance(value, bool):
            value = float(value)
        kind = _KNOB_TYPES[self.type]
        if not isinstance(value, kind) or (kind is not bool and isinstance(value, bool)) or value != value:  # noqa: PLR0124 - nan
            types = {"bool": "true or false", "int": "a whole number", "float": "a number", "str": "a string"}
            message = f"must be {types[self.type]}, got {shown_value(value)}"
            raise RequestInvalid.of(self.name, message, type=f"{self.type}_type")
        checked: KnobValue = value  # type: ignore[assignment]
        if self.bounds is not None and not self.bounds[0] <= checked <= self.bounds[1]:  # type: ignore[operator]
            message = (
                f"must be between {self.bounds[0]:g} and {self.bounds[1]:g}, got {str(checked).removesuffix('.0')}"
            )
            raise RequestInvalid.of(self.name, message, type="out_of_bounds")
        if self.choices and checked not in self.choices:
            message = f"must be {' or '.join(map(repr, self.choices))}, got {shown_value(checked)}"
            raise RequestInvalid.of(self.name, message, type="literal_error")
        return checked


class Voices(Shown, tuple[VoicePreset, ...]):  # noqa: SLOT001 (``sample`` is set on instances)
    """Table of presets, which can be accessed by id: ``voices["marlow"]``, ``voices.marlow``.

    ``sample`` synthesizes a Clip of a voice for the table; None if synthesis is slow or not free.
    """

    sample: Callable[[VoicePreset], Any] | None = None

    def __getitem__(self, key: Any) -> Any:
        if not isinstance(key, str):
            return super().__getitem__(key)
        for voice in self:
            if voice.id == key:
                return voice
        ids = [voice.id for voice in self]
        hint = suggestion(key, ids) or f"; available: {', '.join(ids) or 'none'}"
        raise ArgumentError.of("voice", f"unknown voice {key!r}{hint}")

    def __getattr__(self, name: str) -> VoicePreset:
        try:
            preset: VoicePreset = self[name]
        except ArgumentError as error:
            raise AttributeError(str(error)) from None
        return preset

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *(voice.id for voice in self)]

    def _ipython_key_completions_(self) -> list[str]:
        return [voice.id for voice in self]


Voice = str | VoicePreset | VoiceModel | Mapping[str, float]
"""Preset voice, stored voice or voice id, or for a blend of voices, a mapping from ids to weights."""


@dataclass(frozen=True, slots=True)
class Call:
    """Parameters of one utterance: the argument of a backend's ``synthesize``.

    Args:
        request: fields of the interface.
        model: name of a model of the backend; s2-pro, the interface's default, selects the backend's default.
        seed: integer from 0 to 2**63 - 1; None leaves it to the backend.
        knobs: (name, value) pairs of extra fields and of knobs with non-default values, sorted by name; validated by the
            backend.

    Raises RequestInvalid for an invalid model or seed.
    """

    request: TTSRequest
    model: str = DEFAULT_MODEL
    seed: int | None = None
    knobs: tuple[tuple[str, KnobValue], ...] = ()

    def __post_init__(self) -> None:
        _check_model_name(self.model)
        if self.seed is not None:
            check_seed(self.seed)

    @classmethod
    def of(
        cls, text: str, defaults: Mapping[str, object] = _NO_DEFAULTS, knobs: Iterable[Knob] = (), **fields: object
    ) -> Self:
        """Create a call.

        Args:
            text: request text.
            defaults: defaults of ``fields``.
            knobs: knobs of the backend, which ``fields`` may contain.
            **fields: fields of TTSRequest, ``model``, ``seed``, ``voice`` (id, preset or VoiceModel; sets
                ``reference_id``), ``speed`` and ``volume`` (set ``prosody``). None means unset, except for
                ``reference_id``, ``references``, ``prosody`` and ``sample_rate``. The default format is wav.

        Raises RequestInvalid, which names the field.
        """
        base = _full_names(defaults, None)
        knobs = tuple(knobs)
        changes = {name: value for name, value in fields.items() if value is not None or name in _NULLABLE}
        changes = _full_names(changes, base.get("prosody"))
        if any(name in changes for name in _SPEAKER):
            base = {name: value for name, value in base.items() if name not in _SPEAKER}
        merged = {"format": "wav", **base, **changes, "text": text}
        knob_values = _pop_knobs(merged, knobs)
        model, seed = merged.pop("model", None), merged.pop("seed", None)
        with _keywords(knobs):
            request = TTSRequest.build(**merged)
        return cls(request, _check_model_name(model), None if seed is None else check_seed(seed), knob_values)

    @property
    def expected_seconds(self) -> float:
        """Duration in seconds estimated from text and speed."""
        read, prosody = read_tags(self.request.text, self.model), self.request.prosody
        chinese = len(_HAN.findall(read.said))
        seconds = (len(read.said) - chinese) / _CHARACTERS_PER_SECOND + chinese / _HAN_PER_SECOND
        return (seconds + sum(tag.seconds for tag in read.tags)) / (prosody.speed if prosody else 1.0)

    @property
    def said(self) -> str:
        """Spoken text: the request text without tags, see `voicelab.tags`."""
        return said(self.request.text, self.model)

    def replace(self, knobs: Iterable[Knob] = (), /, **changes: object) -> Self:
        """Return a copy with changed fields. Raises RequestInvalid.

        ``changes`` has keywords of ``of``, dotted names such as ``prosody.speed``, and names of ``knobs``. A new voice
        removes the references, and new references remove the voice.
        """
        knobs = tuple(knobs)
        fields = _full_names(changes, self.request.prosody)
        model, seed = fields.pop("model", self.model), fields.pop("seed", self.seed)
        if fields.get("reference_id") is not None:
            fields.setdefault("references", None)
        if "references" in fields:
            fields.setdefault("reference_id", None)
        knob_values = {name: value for name, value in self.knobs if name not in fields}
        knob_values.update(_pop_knobs(fields, ()))
        for knob in knobs:
            if knob.name in fields:
                knob_values.pop(knob.name, None)
                knob_values.update(_pop_knobs(fields, (knob,)))
        with _keywords(knobs):
            request = self.request.replace(**fields) if fields else self.request
        seed = None if seed is None else check_seed(seed)
        return type(self)(request, _check_model_name(model), seed, knob_pairs(knob_values))

    @property
    def settings(self) -> dict[str, Any]:
        """All parameters except text and references, by dotted names: ``reference_id``, ``prosody.speed``, ``seed``."""
        request, prosody = self.request, self.request.prosody or ProsodyControl()
        fields = {name: getattr(request, name) for name in TTSRequest.model_fields if name not in _NOT_FLAT}
        prosody_fields = {f"prosody.{name}": getattr(prosody, name) for name in _PROSODY}
        return {
            "reference_id": request.reference_id,
            "model": self.model,
            **fields,
            **prosody_fields,
            **dict(self.knobs),
            "seed": self.seed,
        }

    def code(self, base: Call | None = None, also: Collection[str] = ()) -> str:
        """Format the call as Python code, ``lab.speak(…)``.

        The code contains the fields in ``also`` and those that differ from ``base``, the lab's defaults (None for the
        defaults of the interface).
        """
        defaults = (base or Call.of(self.request.text)).settings
        fields = {name: value for name, value in self.settings.items() if value != defaults.get(name) or name in also}
        if fields.get("seed", 0) is None:
            del fields["seed"]
        # voice=None would be the default voice of the lab, not that of the backend.
        keywords = {short_name(name) if value is not None else name: value for name, value in fields.items()}
        if extra := {name.removeprefix(EXTRA): thawed(keywords.pop(name)) for name in fields if name.startswith(EXTRA)}:
            keywords["extra"] = extra
        return f"lab.speak({', '.join([repr(self.request.text), *(f'{key}={keywords[key]!r}' for key in keywords)])})"


def is_field(name: str) -> bool:
    """Return whether every backend accepts this keyword: a request field, a short name, ``model`` or ``seed``."""
    names = {*TTSRequest.model_fields, *_PROSODY, "model", "seed", "extra"}
    return name.startswith(EXTRA) or field_name(name).removeprefix("prosody.") in names


def knob_pairs(knobs: Mapping[str, KnobValue]) -> tuple[tuple[str, KnobValue], ...]:
    """Return knobs sorted by name, as in a call."""
    return tuple(sorted(knobs.items()))


@contextmanager
def _keywords(knobs: Iterable[Knob]) -> Iterator[None]:
    """Add the keywords of ``speak`` to the errors about unknown fields that the block raises."""
    try:
        yield
    except RequestInvalid as error:
        names = [short_name(name) for name in ("text", *Call(TTSRequest(text="a")).settings, *_NOT_FLAT - {"text"})]
        names += [knob.name for knob in knobs]
        error.change(
            lambda item: (
                replace(item, msg=unknown_field(item.field, names))
                if item.type == "extra_forbidden" and "." not in item.field
                else item
            )
        )
        raise


def _pop_knobs(fields: dict[str, object], knobs: Iterable[Knob]) -> tuple[tuple[str, KnobValue], ...]:
    """Remove knobs and extra fields from ``fields``; return those whose values are neither None nor the default."""
    extra = {name: fields.pop(name) for name in tuple(fields) if name.startswith(EXTRA)}
    values = {knob: fields.pop(knob.name) for knob in knobs if knob.name in fields}
    checked = {knob: knob.check(value) for knob, value in values.items() if value is not None}
    changed = {knob.name: value for knob, value in checked.items() if value != knob.default}
    return knob_pairs(changed | {name: frozen(value) for name, value in extra.items() if value is not None})


def _check_model_name(model: object) -> str:
    """Validate a model name; None selects the interface's default model. Raises RequestInvalid."""
    if model is None:
        return DEFAULT_MODEL
    if not isinstance(model, str) or not model.strip():
        message = f"must be the name of a model of the backend, got {shown_value(model)}"
        raise RequestInvalid.of("model", message, type="string_type", in_="header")
    return model


_Function = TypeVar("_Function", bound=Callable[..., Any])


def speech_keywords() -> dict[str, tuple[Any, Any, str]]:
    """Return the keywords of ``speak`` with annotation, default and description."""
    fields = {**TTSRequest.model_fields, **ProsodyControl.model_fields}
    described = {name: (field.annotation, field.default, field.description or "") for name, field in fields.items()}
    return {
        "voice": (Voice | None, None, "Id of a preset or stored voice, a preset of ``lab.voices``, or a VoiceModel."),
        "seed": (int | None, None, "0 to 2**63 - 1. The same seed repeats the samples if the backend is exact."),
        "model": (str | None, None, "One of ``lab.capabilities.models``."),
        **{name: field for name, field in described.items() if name != "text"},
        "format": (described["format"][0], "wav", described["format"][2]),
        "extra": (
            Mapping[str, object] | None,
            None,
            "Fields of a service that are not listed, other values of listed fields (None omits the field), or knobs.",
        ),
    }


def completed(function: _Function) -> _Function:
    """Add the keywords of ``speak`` to the signature and docstring of a function with ``**fields``, for completion."""
    plain = inspect.signature(function)
    parameters = [item for item in plain.parameters.values() if item.kind is not inspect.Parameter.VAR_KEYWORD]
    keywords = {name: item for name, item in speech_keywords().items() if name not in plain.parameters}
    parameters += [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
        for name, (annotation, default, _) in keywords.items()
    ]
    function.__signature__ = plain.replace(parameters=parameters)  # type: ignore[attr-defined]
    lines = (f"    {name}: {text} Default: {default!r}." for name, (_, default, text) in keywords.items())
    function.__doc__ = "\n".join((inspect.getdoc(function) or "", "\nFields:", *lines))
    return function


def merged_defaults(
    defaults: Mapping[str, object], changes: Mapping[str, object], knobs: Sequence[Knob] = ()
) -> dict[str, object]:
    """Merge ``changes`` into defaults for ``Call.of``, keyed by field name; None removes a default.

    Raises RequestInvalid for an invalid default.
    """
    base = _full_names(defaults, None)
    fields = _full_names(changes, base.get("prosody"))
    if any(fields.get(name) is not None for name in _SPEAKER):
        base = {name: value for name, value in base.items() if name not in _SPEAKER}
    merged = {name: value for name, value in {**base, **fields}.items() if value is not None}
    if "text" in merged:
        raise RequestInvalid.of("text", "cannot be a default; pass it to speak()")
    Call.of("defaults", merged, knobs)
    return merged


def field_name(name: str) -> str:
    """Convert a short name to the field: ``voice`` to ``reference_id``, ``speed`` to ``prosody.speed``."""
    return _ALIASES.get(name, name)


def short_name(name: str) -> str:
    """Convert a field to its short name, the inverse of ``field_name``."""
    return next((short for short, field in _ALIASES.items() if field == name), name)


def value_kind(name: str, knobs: Iterable[Knob] = ()) -> tuple[type, bool]:
    """Return the type of a field or knob (str, bool, int, float; object for others), and whether it may be None."""
    name = field_name(name)
    for knob in knobs:
        if knob.name == name:
            return _KNOB_TYPES[knob.type], False
    if name == "seed":
        return int, True
    if name == "model":
        return str, False
    model = ProsodyControl if name.startswith("prosody.") else TTSRequest
    field = model.model_fields.get(name.removeprefix("prosody."))
    if field is None:
        return object, False
    kind, optional = bare_type(field.annotation), type(None) in get_args(field.annotation)
    kind = type(get_args(kind)[0]) if get_origin(kind) is Literal else kind
    return (kind if kind in {str, bool, int, float} else object), optional


def parse_value(name: str, typed: str, knobs: Iterable[Knob] = ()) -> Any:
    """Parse a string as the value of a field or knob, without checking bounds.

    Booleans are ``true``, ``on``, ``false`` and ``off``; ``none`` and ``null`` mean None if the field may be None. Raises
    RequestInvalid, which names the field, for an invalid number.
    """
    kind, optional = value_kind(name, knobs)
    word = typed.strip()
    if name.startswith(EXTRA):
        try:
            return frozen(json.loads(word))
        except ValueError:
            return typed
    if optional and word.lower() in {"none", "null"}:
        return None
    if kind is bool:
        return _BOOLEANS.get(word.lower(), word)
    if kind not in {int, float}:
        return typed
    try:
        return kind(word)
    except ValueError:
        message = f"must be {'a whole number' if kind is int else 'a number'}, got {word!r}"
        source = "header" if name == "seed" else "body"
        raise RequestInvalid.of(field_name(name), message, type=f"{kind.__name__}_parsing", in_=source) from None


def bare_type(annotation: Any) -> Any:
    """Strip Annotated and ``| None`` from the type of a field, such as ``Annotated[int, Strict()] | None``."""
    origin, args = get_origin(annotation), get_args(annotation)
    if origin not in {Annotated, Union, types.UnionType}:
        return annotation
    return bare_type(args[0] if origin is Annotated else next(item for item in args if item is not type(None)))


def check_seed(seed: object) -> int:
    """Return the seed. Raises RequestInvalid unless it is an integer from 0 to 2**63 - 1."""
    if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed <= MAX_SEED:
        message = f"must be a whole number from 0 to {MAX_SEED}, got {shown_value(seed)}"
        raise RequestInvalid.of("seed", message, type="int_type", in_="header")
    return seed


def voice_id(voice: object) -> str:
    """Return the id of a voice; for a blend, ``a(0.6)+b(0.4)``. Raises RequestInvalid."""
    if isinstance(voice, VoicePreset | VoiceModel):
        return voice.id
    if isinstance(voice, str) and voice:
        return voice
    if isinstance(voice, Mapping) and voice:
        numbers = all(isinstance(weight, int | float) and not isinstance(weight, bool) for weight in voice.values())
        if not numbers or not all(0 < weight < math.inf for weight in voice.values()):
            listed = ", ".join(map(str, voice.values()))
            raise RequestInvalid.of("voice", f"the weights of a blend must be numbers above 0, got {listed}")
        return "+".join(f"{voice_id(name)}({weight:.12g})" for name, weight in voice.items())
    raise RequestInvalid.of("voice", f"must be an id, a preset, a VoiceModel or a blend, got {type(voice).__name__}")


def _full_names(fields: Mapping[str, object], prosody: object) -> dict[str, object]:
    """Convert short names to field names; ``prosody`` supplies the volume if only the speed is set, and vice versa."""
    full: dict[str, object] = {}
    changes: dict[str, object] = {}
    for name, value in fields.items():
        bare_name = name.removeprefix("prosody.")
        if bare_name in _PROSODY:
            changes[bare_name] = value
        elif name == "extra":
            full |= _extra_fields(value)
        elif name != "voice":
            full[name] = value
    if "voice" in fields:
        voice = fields["voice"]
        if full.get("reference_id") is not None:
            raise RequestInvalid.of("reference_id", "pass voice or reference_id, not both")
        full["reference_id"] = None if voice is None else voice_id(voice)
    if changes:
        if full.get("prosody") is not None:
            name = next(iter(changes))
            raise RequestInvalid.of(name, f"pass prosody or {name}, not both")
        defaults = dict(prosody) if isinstance(prosody, Mapping | ProsodyControl) else {}
        # None means unset.
        full["prosody"] = {name: value for name, value in {**defaults, **changes}.items() if value is not None} or None
    return full


def _extra_fields(value: object) -> dict[str, object]:
    """Return the items of ``extra`` by their full names, such as ``extra.features``. Raises RequestInvalid."""
    if value is None:
        return {}
    if not isinstance(value, Mapping) or not all(isinstance(name, str) and name for name in value):
        raise RequestInvalid.of("extra", f"must be a mapping from names to values, got {shown_value(value)}")
    for name in _FIXED:
        if name in value:
            raise RequestInvalid.of(f"extra.{name}", f"must be passed as {name}=, got it in extra")
    return {EXTRA + name: frozen(item) for name, item in value.items()}


def frozen(value: object) -> KnobValue:
    """Return the hashable value of an extra field; lists, mappings and None become JsonText. Raises RequestInvalid."""
    if isinstance(value, str | bool | int) or (isinstance(value, float) and math.isfinite(value)):
        return value
    try:
        return JsonText(json.dumps(value, ensure_ascii=False, sort_keys=True, allow_nan=False))
    except (TypeError, ValueError):
        message = f"must have JSON values (text, numbers, booleans, lists, mappings), got {shown_value(value)}"
        raise RequestInvalid.of("extra", message) from None


def thawed(value: object) -> Any:
    """Return the JSON value of a knob or an extra field, the inverse of ``frozen``."""
    return json.loads(value) if isinstance(value, JsonText) else value


def call_record(call: Call) -> dict[str, Any]:
    """Convert a call to a JSON object; the key ``knobs`` is omitted if the call has no knobs."""
    return {"request": call.request.record(), "model": call.model, "seed": call.seed} | call_knobs(call)


def call_of(record: Mapping[str, Any], references: Callable[[str], bytes]) -> Call:
    """Create a call from its record.

    ``references`` fetches audio by its SHA-256; its errors propagate. Raises RequestInvalid.
    """
    fields = dict(record["request"])
    if fields.get("references") is not None:
        fields["references"] = [
            ReferenceAudio(audio=references(item["audio_sha256"]), text=item["text"]) for item in fields["references"]
        ]
    return Call(TTSRequest.build(**fields), record["model"], record["seed"], _recorded_knobs(record))


def call_knobs(call: Call) -> dict[str, Any]:
    """Return the knobs of a call for its record; empty if there are none."""
    return {"knobs": {name: thawed(value) for name, value in call.knobs}} if call.knobs else {}


def _recorded_knobs(record: Mapping[str, Any]) -> tuple[tuple[str, KnobValue], ...]:
    return knob_pairs({name: frozen(value) for name, value in record.get("knobs", {}).items()})
