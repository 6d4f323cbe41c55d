"""Call: everything that decides one utterance: the request, the model, the seed, and the backend's own knobs.

A call is made here and only here: what the short names (``voice``, ``speed``, ``volume``) stand for, what a default
is, and within which bounds a seed is. Everything else makes one or passes it on.
"""

from __future__ import annotations

import inspect
import math
import re
import types
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Annotated, Any, Final, Literal, Self, TypeVar, Union, get_args, get_origin

from voicelab.display import Shown
from voicelab.errors import ArgumentError, RequestInvalid, suggestion
from voicelab.schema import DEFAULT_MODEL, ProsodyControl, ReferenceAudio, TTSRequest, VoiceModel
from voicelab.tags import read_tags, said

MAX_SEED: Final = 2**63 - 1
"""The largest seed; the smallest is 0."""

_ALIASES: Final = {"speed": "prosody.speed", "volume": "prosody.volume", "voice": "reference_id"}
# English read at an even pace; measured on the embedded voice: 14 to 15 characters a second.
_CHARACTERS_PER_SECOND: Final = 14.5
# Chinese characters, each of them a syllable; measured on the embedded voice: 3.2 to 3.6 a second.
_HAN: Final = re.compile("[\u3400-\u9fff]")
_HAN_PER_SECOND: Final = 3.5
_BOOLEANS: Final = {"true": True, "on": True, "false": False, "off": False}
_NOTHING: Final[Mapping[str, object]] = MappingProxyType({})
_PROSODY: Final = tuple(ProsodyControl.model_fields)
# What says who speaks. A call that names one of them replaces the default speaker altogether.
_SPEAKER: Final = ("reference_id", "references")
# What an own parameter of a backend cannot be called: fields, and arguments of connect, sweep and the tables' columns.
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
    """A voice that a backend brings with it; ``id`` is what ``reference_id`` takes."""

    id: str
    title: str
    description: str = ""


KnobValue = bool | int | float | str
"""What an own parameter of a backend can be set to."""

_KNOB_TYPES: Final[Mapping[str, type]] = MappingProxyType({"bool": bool, "int": int, "float": float, "str": str})


@dataclass(frozen=True, slots=True)
class Knob:
    """A parameter that a backend has besides the fields of the interface.

    Args:
        name: a word of Python that is no field's name; it is a keyword of ``lab.speak`` and an axis of a sweep.
        type: "bool", "int", "float" or "str".
        default: its value when nothing is said.
        description: one sentence for help and tooltips.
        bounds: the least and the greatest number; None for no bounds.
        choices: the words that there are; empty for any.

    Raises ArgumentError for a name that means something else, and for a default that it would not take itself.
    """

    name: str
    type: Literal["bool", "int", "float", "str"]
    default: KnobValue
    description: str = ""
    bounds: tuple[float, float] | None = None
    choices: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.name.isidentifier() or self.name.startswith("_"):
            raise ArgumentError.of("knobs", f"{self.name!r} cannot be a keyword; use letters, digits and underscores")
        if self.name in _RESERVED:
            message = f"{self.name!r} already names a field or an argument of every backend; give the knob another name"
            raise ArgumentError.of("knobs", message)
        if self.type not in _KNOB_TYPES:
            raise ArgumentError.of("knobs", f"{self.name}: the type is bool, int, float or str, not {self.type!r}")
        try:
            self.check(self.default)
        except RequestInvalid as error:
            raise ArgumentError.of("knobs", f"the default of {error}") from None

    def check(self, value: object) -> KnobValue:
        """Return a value as the backend gets it. Raises RequestInvalid, which names the knob."""
        if hasattr(value, "dtype") and hasattr(value, "item"):  # of np.arange and the like
            value = value.item()
        if self.type == "float" and isinstance(value, int) and not isinstance(value, bool):
            value = float(value)
        kind = _KNOB_TYPES[self.type]
        if not isinstance(value, kind) or (kind is not bool and isinstance(value, bool)) or value != value:  # noqa: PLR0124 - nan
            words = {"bool": "true or false", "int": "a whole number", "float": "a number", "str": "text"}
            raise RequestInvalid.of(self.name, f"Input should be {words[self.type]}", type=f"{self.type}_type")
        checked: KnobValue = value  # type: ignore[assignment]  # one of the four types, as was just seen
        if self.bounds is not None and not self.bounds[0] <= checked <= self.bounds[1]:  # type: ignore[operator]
            message = f"Input should be {self.bounds[0]:g} to {self.bounds[1]:g}"
            raise RequestInvalid.of(self.name, message, type="out_of_bounds")
        if self.choices and checked not in self.choices:
            raise RequestInvalid.of(self.name, f"Input should be {' or '.join(self.choices)}", type="literal_error")
        return checked


class Voices(Shown, tuple[VoicePreset, ...]):  # noqa: SLOT001 (a table that is shown asks ``sample`` of it)
    """Presets, shown as a table; each also by its id: ``voices["marlow"]``, ``voices.marlow``.

    ``sample`` returns what a voice sounds like as a Clip, for the table; None where that costs time or money.
    """

    sample: Callable[[VoicePreset], Any] | None = None

    def __getitem__(self, key: Any) -> Any:
        if not isinstance(key, str):
            return super().__getitem__(key)
        for voice in self:
            if voice.id == key:
                return voice
        ids = [voice.id for voice in self]
        hint = suggestion(key.casefold(), ids) or f"; there are {', '.join(ids) or 'none'}"
        raise ArgumentError.of("voice", f"there is no voice {key!r}{hint}")

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
"""Who speaks: the id of a preset or of a stored voice, or the thing itself; where voices blend, ids with their weights."""


@dataclass(frozen=True, slots=True)
class Call:
    """One utterance to be made: what a backend's ``synthesize`` takes.

    ``model`` is a name of the backend's own; s2-pro, the interface's default, is whatever the backend speaks with when
    nothing is said. ``seed`` is a whole number from 0 to 2**63 - 1; None leaves it to the backend. ``knobs`` are own
    parameters of the backend that differ from their defaults, (name, value) in the order of names; whether there are
    such is the backend's to say. Raises RequestInvalid for a model or a seed that cannot be.
    """

    request: TTSRequest
    model: str = DEFAULT_MODEL
    seed: int | None = None
    knobs: tuple[tuple[str, KnobValue], ...] = ()

    def __post_init__(self) -> None:
        _check_name(self.model)
        if self.seed is not None:
            check_seed(self.seed)

    @classmethod
    def of(
        cls,
        text: str,
        defaults: Mapping[str, object] = _NOTHING,
        knobs: Iterable[Knob] = (),
        **fields: object,
    ) -> Self:
        """Make a call that says ``text``.

        Args:
            text: what to say.
            defaults: what ``fields`` do not say; by the same names.
            knobs: own parameters that the backend declares; ``fields`` may name them too.
            **fields: fields of TTSRequest, ``model``, ``seed``, and ``voice`` (an id, a preset or a VoiceModel) for
                ``reference_id``, ``speed`` and ``volume`` for those of ``prosody``. None for ``voice``, ``model`` or
                ``seed`` is the default. The format is wav when neither names one.

        Raises RequestInvalid, which names the field.
        """
        base = _named(defaults, None)
        given = {name: value for name, value in fields.items() if value is not None or name not in _OPTIONAL}
        given = _named(given, base.get("prosody"))
        if any(name in given for name in _SPEAKER):
            base = {name: value for name, value in base.items() if name not in _SPEAKER}
        merged = {"format": "wav", **base, **given, "text": text}
        own = _taken(merged, knobs)
        model, seed = merged.pop("model", None), merged.pop("seed", None)
        return cls(TTSRequest.build(**merged), _check_name(model), None if seed is None else check_seed(seed), own)

    @property
    def expected_seconds(self) -> float:
        """About how long the speech will be, in seconds, judged by the text and the speed: for estimates and progress."""
        read, prosody = read_tags(self.request.text, self.model), self.request.prosody
        chinese = len(_HAN.findall(read.said))
        seconds = (len(read.said) - chinese) / _CHARACTERS_PER_SECOND + chinese / _HAN_PER_SECOND
        return (seconds + sum(tag.seconds for tag in read.tags)) / (prosody.speed if prosody else 1.0)

    @property
    def said(self) -> str:
        """What is meant to be heard: the text without its tags; see `voicelab.tags`."""
        return said(self.request.text, self.model)

    def replace(self, knobs: Iterable[Knob] = (), /, **changes: object) -> Self:
        """Return the call with some fields changed, by the names that ``of`` takes, or dotted: ``prosody.speed``.

        ``knobs`` are own parameters that may be among them. A call with another voice clones no reference, and the other
        way round. Raises RequestInvalid.
        """
        fields = _named(changes, self.request.prosody)
        model, seed = fields.pop("model", self.model), fields.pop("seed", self.seed)
        if fields.get("reference_id") is not None:
            fields.setdefault("references", None)
        if "references" in fields:
            fields.setdefault("reference_id", None)
        own = dict(self.knobs)
        for knob in knobs:
            if knob.name in fields:
                own.pop(knob.name, None)
                own.update(_taken(fields, (knob,)))
        request = self.request.replace(**fields) if fields else self.request
        seed = None if seed is None else check_seed(seed)
        return type(self)(request, _check_name(model), seed, knob_pairs(own))

    @property
    def settings(self) -> dict[str, Any]:
        """All that it says beside the text and references, by flat names: ``reference_id``, ``prosody.speed``, ``seed``."""
        request, prosody = self.request, self.request.prosody or ProsodyControl()
        fields = {name: getattr(request, name) for name in TTSRequest.model_fields if name not in _NOT_FLAT}
        parts = {f"prosody.{name}": getattr(prosody, name) for name in _PROSODY}
        return {
            "reference_id": request.reference_id,
            "model": self.model,
            **fields,
            **parts,
            **dict(self.knobs),
            "seed": self.seed,
        }

    def code(self, base: Call | None = None, also: Collection[str] = ()) -> str:
        """Return the Python that makes its speech, ``lab.speak(…)``.

        ``base`` is what the lab's calls say anyway, the interface's defaults when not given; what differs from it is
        written out, and the fields in ``also`` in any case.
        """
        before = (base or Call.of(self.request.text)).settings
        fields = {name: value for name, value in self.settings.items() if value != before.get(name) or name in also}
        if fields.get("seed", 0) is None:
            del fields["seed"]
        # voice=None would be the lab's own default voice, not the backend's default speaker.
        named = {short_name(name) if value is not None else name: value for name, value in fields.items()}
        return f"lab.speak({', '.join([repr(self.request.text), *(f'{name}={named[name]!r}' for name in named)])})"


_OPTIONAL: Final = ("voice", "model", "seed")


def is_field(name: str) -> bool:
    """Whether a name is one that every backend has: a field of the request, a short name, ``model`` or ``seed``."""
    return field_name(name).removeprefix("prosody.") in {*TTSRequest.model_fields, *_PROSODY, "model", "seed"}


def knob_pairs(knobs: Mapping[str, KnobValue]) -> tuple[tuple[str, KnobValue], ...]:
    """Return own parameters as a call holds them: in the order of their names."""
    return tuple(sorted(knobs.items()))


def _taken(fields: dict[str, object], knobs: Iterable[Knob]) -> tuple[tuple[str, KnobValue], ...]:
    """Take the knobs out of ``fields``; return those that are not at their defaults, None being the default too."""
    values = {knob: fields.pop(knob.name) for knob in knobs if knob.name in fields}
    checked = {knob: knob.check(value) for knob, value in values.items() if value is not None}
    return knob_pairs({knob.name: value for knob, value in checked.items() if value != knob.default})


def _check_name(model: object) -> str:
    """Return the name of a model, None for the interface's default. Raises RequestInvalid for what is no name."""
    if model is None:
        return DEFAULT_MODEL
    if not isinstance(model, str) or not model.strip():
        message = "Input should be the name of a model of the backend"
        raise RequestInvalid.of("model", message, type="string_type", in_="header")
    return model


_Function = TypeVar("_Function", bound=Callable[..., Any])


def completed(function: _Function) -> _Function:
    """Let a function that takes the fields of a call as ``**fields`` say so in its signature, for completion and help."""
    plain = inspect.signature(function)
    named = [one for one in plain.parameters.values() if one.kind is not inspect.Parameter.VAR_KEYWORD]
    present = {one.name for one in named}
    models = {**TTSRequest.model_fields, **ProsodyControl.model_fields}
    fields: dict[str, tuple[Any, Any]] = {name: (field.default, field.annotation) for name, field in models.items()}
    extra = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
        for name, (default, annotation) in (fields | {"voice": (None, inspect.Parameter.empty)}).items()
        if name not in present
    ]
    function.__signature__ = plain.replace(parameters=[*named, *extra])  # type: ignore[attr-defined]
    return function


def merged_defaults(
    defaults: Mapping[str, object], changes: Mapping[str, object], knobs: Sequence[Knob] = ()
) -> dict[str, object]:
    """Return defaults for ``Call.of`` with ``changes`` made to them, by the schema's names; None takes one away.

    Raises RequestInvalid for a default that no call can have.
    """
    base = _named(defaults, None)
    fields = _named(changes, base.get("prosody"))
    if any(fields.get(name) is not None for name in _SPEAKER):
        # Whoever is named speaks in the place of who spoke before.
        base = {name: value for name, value in base.items() if name not in _SPEAKER}
    merged = {name: value for name, value in {**base, **fields}.items() if value is not None}
    if "text" in merged:
        raise RequestInvalid.of("text", "the text belongs to the call, it has no default")
    Call.of("defaults", merged, knobs)
    return merged


def field_name(name: str) -> str:
    """Return the field that a name stands for: ``voice`` is ``reference_id``, ``speed`` and ``volume`` are prosody's."""
    return _ALIASES.get(name, name)


def short_name(name: str) -> str:
    """Return the name that people have for a field: the other way round."""
    return next((short for short, field in _ALIASES.items() if field == name), name)


def value_kind(name: str, knobs: Iterable[Knob] = ()) -> tuple[type, bool]:
    """Return of what kind the values of a field are (str, bool, int, float), and whether None is one; object for others.

    ``knobs`` are own parameters of a backend, which ``name`` may be one of.
    """
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
    """Return what a typed word means as the value of a field.

    ``true`` and ``on``, ``false`` and ``off`` are those values; ``none`` and ``null`` are None where the field may be
    None. Whether a value is within its bounds is the schema's to say. Raises RequestInvalid, which names the field, for a
    number that cannot be read.
    """
    kind, optional = value_kind(name, knobs)
    word = typed.strip()
    if optional and word.lower() in {"none", "null"}:
        return None
    if kind is bool:
        return _BOOLEANS.get(word.lower(), word)
    if kind not in {int, float}:
        return typed
    try:
        return kind(word)
    except ValueError:
        wanted, place = ("a whole number" if kind is int else "a number"), ("header" if name == "seed" else "body")
        message = f"should be {wanted}, not {word!r}"
        raise RequestInvalid.of(field_name(name), message, type=f"{kind.__name__}_parsing", in_=place) from None


def bare_type(annotation: Any) -> Any:
    """Return what is under Annotated and ``| None``: bool, int, float, str, bytes, a Literal, or a tuple of them."""
    origin, args = get_origin(annotation), get_args(annotation)
    if origin not in {Annotated, Union, types.UnionType}:
        return annotation
    return bare_type(args[0] if origin is Annotated else next(item for item in args if item is not type(None)))


def check_seed(seed: object) -> int:
    """Return a seed. Raises RequestInvalid when it is no whole number from 0 to 2**63 - 1."""
    if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed <= MAX_SEED:
        message = f"Input should be a whole number from 0 to {MAX_SEED}"
        raise RequestInvalid.of("seed", message, type="int_type", in_="header")
    return seed


def voice_id(voice: object) -> str:
    """Return the id of a voice, given as such, as a preset or as a record; of a blend ``a(0.6)+b(0.4)``.

    Raises RequestInvalid.
    """
    if isinstance(voice, VoicePreset | VoiceModel):
        return voice.id
    if isinstance(voice, str) and voice:
        return voice
    if isinstance(voice, Mapping) and voice:
        wrong = [weight for weight in voice.values() if isinstance(weight, bool) or not isinstance(weight, int | float)]
        if wrong or not all(0 < weight < math.inf for weight in voice.values()):
            raise RequestInvalid.of("voice", "a blend is ids with their weights, numbers above 0")
        return "+".join(f"{voice_id(name)}({weight:.12g})" for name, weight in voice.items())
    raise RequestInvalid.of("voice", f"a voice is an id, a preset, a VoiceModel or a blend, not {type(voice).__name__}")


def _named(fields: Mapping[str, object], prosody: object) -> dict[str, object]:
    """Return the fields by the schema's names; of speed and volume, ``prosody`` says the one that is not given."""
    named: dict[str, object] = {}
    parts: dict[str, object] = {}
    for name, value in fields.items():
        part = name.removeprefix("prosody.")
        if part in _PROSODY:
            parts[part] = value
        elif name != "voice":
            named[name] = value
    if "voice" in fields:
        voice = fields["voice"]
        if named.get("reference_id") is not None:
            raise RequestInvalid.of("reference_id", "give voice or reference_id, not both")
        named["reference_id"] = None if voice is None else voice_id(voice)
    if parts:
        if named.get("prosody") is not None:
            name = next(iter(parts))
            raise RequestInvalid.of(name, f"give prosody or {name}, not both")
        before = dict(prosody) if isinstance(prosody, Mapping | ProsodyControl) else {}
        # None is what was not said: for the part too, as for every field.
        named["prosody"] = {name: value for name, value in {**before, **parts}.items() if value is not None} or None
    return named


def call_record(call: Call) -> dict[str, Any]:
    """Return a call as a JSON-able object; own knobs are in it only where there are any."""
    return {"request": call.request.record(), "model": call.model, "seed": call.seed} | call_knobs(call)


def call_of(record: Mapping[str, Any], references: Callable[[str], bytes]) -> Call:
    """Return the call that ``call_record`` described.

    ``references`` returns audio by its sha256. Raises RequestInvalid and what ``references`` raises.
    """
    fields = dict(record["request"])
    if fields.get("references") is not None:
        fields["references"] = [
            ReferenceAudio(audio=references(item["audio_sha256"]), text=item["text"]) for item in fields["references"]
        ]
    return Call(TTSRequest.build(**fields), record["model"], record["seed"], knob_pairs(record.get("knobs", {})))


def call_knobs(call: Call) -> dict[str, Any]:
    """Return a call's own knobs as they stand in its record: nothing where it has none."""
    return {"knobs": dict(call.knobs)} if call.knobs else {}
