"""Declared capabilities of a backend, field by field, and validation of calls against them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Final, Literal, Self

from pydantic import ConfigDict, TypeAdapter, ValidationError

from voicelab.call import EXTRA, Call, Knob, KnobValue, VoicePreset, is_field, short_name, thawed
from voicelab.display import Shown
from voicelab.errors import ArgumentError, FieldError, RequestInvalid, StoreError
from voicelab.schema import DEFAULT_MODEL, MODELS, Model, ProsodyControl, TTSRequest
from voicelab.tags import read_tags

_OTHERS: Final = "text reference_id references prosody format sample_rate mp3_bitrate opus_bitrate".split()
SYNTHESIS_FIELDS: Final = tuple(name for name in TTSRequest.model_fields if name not in _OTHERS)
"""Fields that control the model: neither text, voice and prosody, nor the format of the audio."""

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
    """Restricted support of a request field.

    Args:
        field: name of the field, dotted for ``prosody.speed`` and ``prosody.volume``.
        ignored: reason why the field has no effect, as a clause ("the model has no sampling"); empty if it has an
            effect.
        bounds: minimum and maximum, if narrower than those of the interface.
        values: supported values, if fewer than those of the interface.
    """

    field: str
    ignored: str = ""
    bounds: tuple[float, float] | None = None
    values: tuple[Any, ...] = ()

    def __post_init__(self) -> None:
        if not is_field(self.field) or self.field in {"text", "prosody", "model", "seed"}:
            raise ArgumentError.of(
                "fields", f"must be a field that a backend can ignore or restrict, got {self.field!r}"
            )

    def problem(self, value: object) -> str:
        """Return the reason why a value is rejected; empty if it is accepted or the field is ignored."""
        if self.ignored or value is None:
            return ""
        out_of_bounds = self.bounds is not None and not self.bounds[0] <= value <= self.bounds[1]  # type: ignore[operator]
        return (
            f"must be {self.narrowed}, got {value}"
            if out_of_bounds or (self.values and value not in self.values)
            else ""
        )

    @property
    def narrowed(self) -> str:
        """Supported values as text; empty if they are not restricted."""
        if self.bounds is not None:
            return f"{self.bounds[0]:g} to {self.bounds[1]:g}"
        return " or ".join(map(str, self.values))


@dataclass(frozen=True, slots=True)
class Price:
    """Price of a service: ``amount`` in ``currency`` for every ``per`` units of text, audio or requests.

    The unit "bytes" counts UTF-8 bytes of the text, "characters" its characters, "seconds" the duration of the audio.
    The price applies to ``model``, or to all models if it is empty. Several prices of one model add up.
    """

    amount: float
    currency: str = ""
    unit: PriceUnit = "bytes"
    per: float = 1_000_000
    model: str = ""

    def __str__(self) -> str:
        singular, plural = _UNITS[self.unit]
        unit = f"million {plural}" if self.per == 1_000_000 else singular if self.per == 1 else f"{self.per:g} {plural}"
        currency, model = (self.currency and f" {self.currency}"), (self.model and f" ({self.model})")
        return f"{self.amount:g}{currency} per {unit}{model}"


@dataclass(frozen=True, slots=True)
class Capabilities(Shown):
    """Declared capabilities of a backend.

    Args:
        name: name of the backend.
        models: model names; the default is s2-pro if included, else the first.
        device: device of the model ("cpu", "cuda:0 …", "remote").
        seed: whether equal seeds give equal samples (exact), nearly equal samples (best-effort), or seeds are not supported
            (none); unknown if a service could not be queried.
        fingerprint: identifies the weights or the service: a digest or a base URL, never a secret.
        languages: language codes.
        voices: preset voices.
        max_text: maximum characters per request; None if unknown.
        prices: prices of synthesis; empty if free, None if unknown.
        one_model: whether all names in ``models`` select the same weights; None if unknown.
        at_once: maximum number of concurrent requests; None if unknown.
        license: license terms of the synthesized audio, with the time of acceptance; "" if none apply.
        notice: notice to display when serving others; "" if none.
        fields: request fields that are ignored or restricted; all other fields work as the interface specifies.
        knobs: additional parameters of the backend.
        open_ended: whether unlisted models and ``extra`` fields are passed on to the service, which validates them.
        voice_required: whether a call must name a voice, because the default voice is unknown.

    Raises:
        ArgumentError: two knobs, or two entries of ``fields``, have the same name.
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
    open_ended: bool = False
    voice_required: bool = False
    __pydantic_config__ = ConfigDict(extra="forbid")  # of a record

    def __post_init__(self) -> None:
        for argument, names in (
            ("fields", [support.field for support in self.fields]),
            ("knobs", [knob.name for knob in self.knobs]),
        ):
            if repeated := {name for name in names if names.count(name) > 1}:
                raise ArgumentError.of(argument, f"{min(repeated)!r} is declared twice")

    @property
    def default_model(self) -> str:
        """Model used if none is specified."""
        return DEFAULT_MODEL if DEFAULT_MODEL in self.models or not self.models else self.models[0]

    @property
    def wire_models(self) -> tuple[Model, ...]:
        """Values for the ``model`` header of the interface; only s2-pro if the backend's models have other names."""
        return tuple(model for model in MODELS if model in self.models) or (DEFAULT_MODEL,)

    def record(self) -> dict[str, Any]:
        """Convert to a JSON-serializable object; inverse of ``of_record``."""
        return {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(self).items()}

    @classmethod
    def of_record(cls, record: Any) -> Self:
        """Create from the object of ``record``. Raises StoreError if it is invalid."""
        try:
            return TypeAdapter(cls).validate_python(record)
        except ValidationError as error:
            raise StoreError(f"invalid record of a backend's capabilities: {error}") from error

    def support(self, name: str) -> FieldSupport | None:
        """Return the declared support of a field; None if the field works as the interface specifies."""
        return next((support for support in self.fields if support.field == name), None)

    def ignored(self, name: str) -> str:
        """Return the reason why a field has no effect; empty if the field is supported."""
        support = self.support(name)
        return "" if support is None else support.ignored

    def knob_values(self, call: Call) -> dict[str, KnobValue]:
        """Return the knob values of a call. Unset knobs take their default, and are omitted if they have no default."""
        return {knob.name: knob.default for knob in self.knobs if knob.default is not None} | dict(call.knobs)


def check_text_length(request: TTSRequest, limit: int | None) -> None:
    """Raise RequestInvalid if the text has more than ``limit`` characters; None for no limit."""
    length = len(request.text)
    if limit is not None and length > limit:
        message = f"The text must have at most {limit} characters, got {length}"
        error = FieldError(("body", "text"), "string_too_long", message, ctx=f"max_length: {limit}")
        raise RequestInvalid((error,))


def check_seed_support(call: Call, capabilities: Capabilities) -> None:
    """Raise RequestInvalid if the call has a seed and the backend does not support seeds."""
    if call.seed is not None and capabilities.seed == "none":
        message = f"the backend {capabilities.name!r} does not support seeds"
        message += f"; extra={{'seed': {call.seed}}} sends it unchecked" if capabilities.open_ended else "; omit seed"
        raise RequestInvalid.of("seed", message, type="unsupported", in_="header")


def check_call(call: Call, capabilities: Capabilities) -> Call:
    """Validate a call against a backend and return it with the model resolved (s2-pro selects the default model).

    Raises:
        RequestInvalid: the backend does not support the seed, model, knob or value; the error names the field.
    """
    check_seed_support(call, capabilities)
    subject = f"the backend {capabilities.name!r}"
    if call.model not in {DEFAULT_MODEL, *capabilities.models} and not capabilities.open_ended:
        message = f"{subject} has no model {call.model!r}; available: {', '.join(capabilities.models)}"
        raise RequestInvalid.of("model", message, type="literal_error", in_="header")
    problems = [
        FieldError(("body", *support.field.split(".")), "unsupported", f"{problem} ({subject})")
        for support in capabilities.fields
        if (problem := support.problem(field_value(call.request, support.field)))
    ]
    named = call.request.reference_id is not None or call.request.references or "extra.voice" in dict(call.knobs)
    if capabilities.voice_required and not named:
        message = f"a voice is required, since {subject} lists none; pass voice=NAME, or voice=None to send no voice"
        problems.append(FieldError(("body", "voice"), "missing", message))
    knobs = {knob.name: knob for knob in capabilities.knobs}
    for name, value in call.knobs:
        if name.startswith(EXTRA) and capabilities.open_ended:
            continue
        if name.startswith(EXTRA):
            message = f"{subject} accepts no extra fields, got {name.removeprefix(EXTRA)!r}"
            problems.append(FieldError(("body", "extra"), "unsupported", message))
            continue
        if name not in knobs:
            available = f"available: {', '.join(knobs)}" if knobs else "it has no knobs"
            problems.append(
                FieldError(("body", name), "extra_forbidden", f"{subject} has no knob {name!r}; {available}")
            )
            continue
        try:
            knobs[name].check(value)
        except RequestInvalid as error:
            problems += error.errors
    if problems:
        raise RequestInvalid(problems)
    unlisted = call.model == DEFAULT_MODEL and call.model not in capabilities.models
    model = capabilities.default_model if unlisted else call.model
    return call if model == call.model else replace(call, model=model)


def field_value(request: TTSRequest, name: str) -> Any:
    """Return the value of a request field; fields of ``prosody`` have dotted names."""
    outer, _, inner = name.partition(".")
    return getattr(request.prosody or ProsodyControl(), inner) if inner else getattr(request, outer)


def ignored_notes(call: Call, capabilities: Capabilities) -> Iterable[str]:
    """Yield notes on malformed tags, on unchecked values, and on ignored fields with non-default values."""
    yield from read_tags(call.request.text, call.model).notes
    if capabilities.open_ended and call.model not in capabilities.models:
        yield f"The service decides on model {call.model!r}, which is not one of {', '.join(capabilities.models)}."
    extra = {name.removeprefix(EXTRA): thawed(value) for name, value in call.knobs if name.startswith(EXTRA)}
    if sent := [name for name, value in extra.items() if value is not None]:
        yield f"Sent unchecked, and possibly ignored by the service: {', '.join(sent)}."
    if unsent := [name for name, value in extra.items() if value is None]:
        yield f"Not sent: {', '.join(unsent)}."
    if has_both := call.request.reference_id is not None and bool(call.request.references):
        yield "references had no effect: the call also has a voice, which takes precedence."
    for support in capabilities.fields:
        if has_both and support.field == "references":
            continue
        value = field_value(call.request, support.field)
        outer, _, inner = support.field.partition(".")
        default = (ProsodyControl if inner else TTSRequest).model_fields[inner or outer].default
        if support.ignored and value != default:
            yield f"{short_name(support.field)} had no effect: {support.ignored}."


def speech_cost(call: Call, seconds: float, prices: Iterable[Price] | None) -> Mapping[str, float] | None:
    """Compute the cost of a call with ``seconds`` of audio, by currency; empty if free, None if unknown."""
    table = None if prices is None else tuple(prices)
    applicable = [price for price in table or () if price.model in {"", call.model}]
    if table is None or (table and not applicable):
        return None
    text = call.request.text
    amounts = {"bytes": len(text.encode()), "characters": len(text), "seconds": seconds, "requests": 1}
    costs: dict[str, float] = {}
    for price in applicable:
        costs[price.currency] = costs.get(price.currency, 0.0) + price.amount * amounts[price.unit] / price.per
    return costs
