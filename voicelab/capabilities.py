"""Capabilities: what a backend declares about itself, field by field, and what that makes of a call."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Final, Literal, Self

from pydantic import ConfigDict, TypeAdapter, ValidationError

from voicelab.call import Call, Knob, KnobValue, VoicePreset, is_field, short_name
from voicelab.display import Shown
from voicelab.errors import ArgumentError, FieldError, RequestInvalid, StoreError
from voicelab.schema import DEFAULT_MODEL, MODELS, Model, ProsodyControl, TTSRequest
from voicelab.tags import read_tags

SeedSupport = Literal["exact", "best-effort", "none", "unknown"]
PriceUnit = Literal["bytes", "characters", "seconds", "requests"]

_UNITS: Final[Mapping[PriceUnit, tuple[str, str]]] = {
    "bytes": ("byte of text", "bytes of text"),
    "characters": ("character", "characters"),
    "seconds": ("second of audio", "seconds of audio"),
    "requests": ("request", "requests"),
}


@dataclass(frozen=True, slots=True)
class FieldSupport:
    """A field of the request that does less here than the interface says.

    Args:
        field: its name, dotted for ``prosody.speed`` and ``prosody.volume``.
        ignored: why it does nothing, as a sentence's end ("the model has no sampling"); empty where it acts.
        bounds: the least and the greatest number that is taken, where these are narrower.
        values: what is taken, where that is less than the interface lists.
    """

    field: str
    ignored: str = ""
    bounds: tuple[float, float] | None = None
    values: tuple[Any, ...] = ()

    def __post_init__(self) -> None:
        if not is_field(self.field) or self.field in {"text", "prosody", "model", "seed"}:
            raise ArgumentError.of("fields", f"there is no field {self.field!r} that a backend could ignore or narrow")

    def problem(self, value: object) -> str:
        """Return why a value is not taken; empty where it is, and where the field is ignored."""
        if self.ignored or value is None:
            return ""
        beyond = self.bounds is not None and not self.bounds[0] <= value <= self.bounds[1]  # type: ignore[operator]
        return f"it takes {self.narrowed}" if beyond or (self.values and value not in self.values) else ""

    @property
    def narrowed(self) -> str:
        """What is taken, in words; empty where it is what the interface lists."""
        if self.bounds is not None:
            return f"{self.bounds[0]:g} to {self.bounds[1]:g}"
        return " or ".join(map(str, self.values))


@dataclass(frozen=True, slots=True)
class Price:
    """What a service charges: ``amount`` in ``currency`` for every ``per`` units of text, audio or requests.

    "bytes" are UTF-8 bytes of the text, "characters" those of the text, "seconds" those of the audio. ``model`` is the
    one that it is for, empty for all. Several prices of a model add up.
    """

    amount: float
    currency: str = ""
    unit: PriceUnit = "bytes"
    per: float = 1_000_000
    model: str = ""

    def __str__(self) -> str:
        one, several = _UNITS[self.unit]
        what = f"million {several}" if self.per == 1_000_000 else one if self.per == 1 else f"{self.per:g} {several}"
        currency, model = (self.currency and f" {self.currency}"), (self.model and f" ({self.model})")
        return f"{self.amount:g}{currency} per {what}{model}"


@dataclass(frozen=True, slots=True)
class Capabilities(Shown):
    """What a backend declares about itself.

    ``models`` are the backend's own names; the first is spoken with when nothing is said, unless s2-pro, the interface's
    default, is among them. ``device`` is where it runs ("cpu", "cuda:0 …", "remote"). ``seed`` says whether the same seed
    gives the same samples (exact), nearly so (best-effort), or cannot be given (none); unknown is a service that could
    not be asked. ``fingerprint`` tells one set of weights, or one service, from another: a digest or a base address,
    never a secret. ``max_text`` is in characters, None when unknown; ``prices`` is what speech costs, empty where it is
    free, None when unknown. ``one_model`` says whether all ``models`` are names of one and the same set of weights, None
    when unknown. ``at_once`` is how many requests it speaks side by side, None when unknown. ``fields`` has those fields of
    the request that are ignored or taken within narrower bounds; all others act as the interface says. ``knobs`` are
    parameters that the backend has besides. ``license`` is what binds who uses its speech, and when it was accepted;
    ``notice`` what has to be shown where it serves others; both "" where nothing does.

    Raises ArgumentError for two knobs, or two entries of ``fields``, of one name.
    """

    name: str
    models: tuple[str, ...]
    device: str
    seed: SeedSupport
    fingerprint: str
    languages: tuple[str, ...] = ()
    voices: tuple[VoicePreset, ...] = ()
    max_text: int | None = None
    prices: tuple[Price, ...] | None = None
    one_model: bool | None = None
    at_once: int | None = None
    license: str = ""
    notice: str = ""
    fields: tuple[FieldSupport, ...] = ()
    knobs: tuple[Knob, ...] = ()
    __pydantic_config__ = ConfigDict(extra="forbid")  # of a record

    def __post_init__(self) -> None:
        for argument, names in (
            ("fields", [one.field for one in self.fields]),
            ("knobs", [one.name for one in self.knobs]),
        ):
            if twice := {name for name in names if names.count(name) > 1}:
                raise ArgumentError.of(argument, f"{min(twice)!r} is declared twice")

    @property
    def default_model(self) -> str:
        """The model that speaks when none is named."""
        return DEFAULT_MODEL if DEFAULT_MODEL in self.models or not self.models else self.models[0]

    @property
    def wire_models(self) -> tuple[Model, ...]:
        """The names that the interface's ``model`` header can have: s2-pro alone for a backend with names of its own."""
        return tuple(model for model in MODELS if model in self.models) or (DEFAULT_MODEL,)

    def record(self) -> dict[str, Any]:
        """Return what is declared as a JSON-able object; ``of_record`` reads it back."""
        return {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(self).items()}

    @classmethod
    def of_record(cls, record: Any) -> Self:
        """Return the Capabilities that were recorded. Raises StoreError when the record is none."""
        try:
            return TypeAdapter(cls).validate_python(record)
        except ValidationError as error:
            raise StoreError(f"this is no record of a backend's capabilities: {error}") from error

    def support(self, name: str) -> FieldSupport | None:
        """Return what is declared of a field; None where it acts as the interface says."""
        return next((one for one in self.fields if one.field == name), None)

    def ignored(self, name: str) -> str:
        """Return why a field does nothing here; empty where it acts."""
        support = self.support(name)
        return "" if support is None else support.ignored

    def knob_values(self, call: Call) -> dict[str, KnobValue]:
        """Return the value of every knob for a call: those it names, and the defaults of the others."""
        return {knob.name: knob.default for knob in self.knobs} | dict(call.knobs)


def check_text_length(request: TTSRequest, limit: int | None) -> None:
    """Raise RequestInvalid when the text has more than ``limit`` characters; None is no limit."""
    length = len(request.text)
    if limit is not None and length > limit:
        message = f"The text has {length} characters; at most {limit} are taken at once"
        error = FieldError(("body", "text"), "string_too_long", message, ctx=f"max_length: {limit}")
        raise RequestInvalid((error,))


def check_seed_support(call: Call, capabilities: Capabilities) -> None:
    """Raise RequestInvalid when the call has a seed and the backend takes none."""
    if call.seed is not None and capabilities.seed == "none":
        message = f"the backend {capabilities.name!r} takes no seed, so it could not be honoured"
        raise RequestInvalid.of("seed", message, type="unsupported", in_="header")


def check_call(call: Call, capabilities: Capabilities) -> Call:
    """Return a call as the backend takes it, s2-pro being its default model where it has none of this name.

    Raises RequestInvalid, which names the field: a seed where none is taken, a model or a knob that there is not, a
    value beyond what the backend declares.
    """
    check_seed_support(call, capabilities)
    who = f"the backend {capabilities.name!r}"
    if call.model != DEFAULT_MODEL and call.model not in capabilities.models:
        message = f"{who} has no model {call.model!r}; it has {', '.join(capabilities.models)}"
        raise RequestInvalid.of("model", message, type="literal_error", in_="header")
    problems = [
        FieldError(("body", *support.field.split(".")), "unsupported", f"{who}: {problem}")
        for support in capabilities.fields
        if (problem := support.problem(field_value(call.request, support.field)))
    ]
    knobs = {knob.name: knob for knob in capabilities.knobs}
    for name, value in call.knobs:
        if name not in knobs:
            has = f"its own knobs are {', '.join(knobs)}" if knobs else "it has no knobs of its own"
            problems.append(FieldError(("body", name), "extra_forbidden", f"{who} has no knob {name!r}; {has}"))
            continue
        try:
            knobs[name].check(value)
        except RequestInvalid as error:
            problems += error.errors
    if problems:
        raise RequestInvalid(problems)
    model = call.model if call.model in capabilities.models else capabilities.default_model
    return call if model == call.model else replace(call, model=model)


def field_value(request: TTSRequest, name: str) -> Any:
    """Return a field of a request by its name, dotted for the parts of ``prosody``."""
    outer, _, inner = name.partition(".")
    return getattr(request.prosody or ProsodyControl(), inner) if inner else getattr(request, outer)


def ignored_notes(call: Call, capabilities: Capabilities) -> Iterable[str]:
    """Yield a sentence for what looks like a tag and is none, and for every field that is not at its default in vain."""
    yield from read_tags(call.request.text, call.model).notes
    for support in capabilities.fields:
        value = field_value(call.request, support.field)
        outer, _, inner = support.field.partition(".")
        default = (ProsodyControl if inner else TTSRequest).model_fields[inner or outer].default
        if support.ignored and value != default:
            yield f"{short_name(support.field)} did nothing: {support.ignored}."


def speech_cost(call: Call, seconds: float, prices: Iterable[Price] | None) -> Mapping[str, float] | None:
    """Return what a call costs that makes ``seconds`` of audio, by currency; nothing where it is free, None when unknown."""
    table = None if prices is None else tuple(prices)
    of_model = [price for price in table or () if price.model in {"", call.model}]
    if table is None or (table and not of_model):
        return None
    text = call.request.text
    amounts = {"bytes": len(text.encode()), "characters": len(text), "seconds": seconds, "requests": 1}
    costs: dict[str, float] = {}
    for price in of_model:
        costs[price.currency] = costs.get(price.currency, 0.0) + price.amount * amounts[price.unit] / price.per
    return costs
