"""What all wire types share: strict values, frozen models, and errors in the interface's shape."""

from __future__ import annotations

import numbers
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Self, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, Strict, ValidationError
from pydantic_core import PydanticCustomError

from voicelab.errors import FieldError, RequestInvalid, suggestion

__all__ = ["Number", "Text", "Whole", "Wire", "WireModel", "drop_unknown", "field_errors", "strictly_whole"]

Wire = Mapping[str, Any]
"""A decoded JSON object or MessagePack map."""

_Model = TypeVar("_Model", bound="WireModel")

# Parts of pydantic's context that mean nothing to a reader of the answer.
_INTERNAL = ("error", "class_name")

# Other names that people type for a field; close spellings are matched without this table.
_HINTS = {
    "bitrate": "mp3_bitrate or opus_bitrate",
    "codec": "format",
    "max_tokens": "max_new_tokens",
    "model": "the 'model' header: pass model= beside the request, not in it",
    "penalty": "repetition_penalty",
    "seed": "no field of the request: pass seed= beside it, not in it",
    "speaker": "reference_id",
    "speed": "prosody={'speed': …}",
    "voice": "reference_id",
    "voice_id": "reference_id",
    "volume": "prosody={'volume': …}",
}


def _encodable(value: str) -> str:
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        # JSON can carry half of a surrogate pair; no text has one, and it cannot be sent on.
        message = "Input should be valid Unicode text, without lone surrogates"
        raise PydanticCustomError("string_unicode", message) from None
    return value


def _without_negative_zero(value: float) -> float:
    # -0.0 and 0.0 mean the same request and must have the same canonical form.
    return value + 0.0


def strictly_number(value: object) -> object:
    """Refuse what can only be converted to a number, such as numpy's booleans."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise PydanticCustomError("float_type", "Input should be a valid number")
    return value


def strictly_whole(value: object) -> object:
    """Refuse anything but an integer before an enumeration compares by ``==`` (``64.0 == 64``)."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise PydanticCustomError("int_type", "Input should be a valid integer")
    return value


Text = Annotated[str, Strict(), AfterValidator(_encodable)]
"""A string that UTF-8 can carry."""
Number = Annotated[
    float,
    Strict(),
    Field(allow_inf_nan=False),
    BeforeValidator(strictly_number),
    AfterValidator(_without_negative_zero),
]
"""A finite number; whole numbers are taken, booleans and strings are not."""
Whole = Annotated[int, BeforeValidator(strictly_whole)]
"""A whole number; booleans and 1.0 are refused."""


class WireModel(BaseModel):
    """Base of the wire types: frozen, unknown keywords refused, every bad value a RequestInvalid."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    def __init__(self, **fields: object) -> None:
        try:
            super().__init__(**{name: _plain(value) for name, value in fields.items()})
        except ValidationError as error:
            raise RequestInvalid(field_errors(error, type(self))) from None

    # Lets a model inside another one be validated as a part of it, so that its errors carry the
    # whole path (body, prosody, speed). pydantic sets the same mark on its own RootModel.
    __init__.__pydantic_base_init__ = True  # type: ignore[attr-defined]

    @classmethod
    def build(cls, **fields: object) -> Self:
        """Make a value from keywords; a bad or unknown one raises RequestInvalid, which names it."""
        return cls(**fields)

    def replace(self, **changes: object) -> Self:
        """Return a copy with some fields changed, validated anew. Raises RequestInvalid."""
        return type(self)(**{**dict(self), **changes})

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """Return a copy; changes are validated, which pydantic's own copy leaves out."""
        copied = super().model_copy(deep=deep)
        return copied.replace(**update) if update else copied


def drop_unknown(model: type[_Model], wire: Wire) -> dict[str, Any]:
    """Return the entries of ``wire`` that are fields of ``model``, by their names on the wire."""
    names = {field.alias or name for name, field in model.model_fields.items()}
    return {key: value for key, value in wire.items() if key in names}


def field_errors(error: ValidationError, model: type[BaseModel], *, place: str = "body") -> tuple[FieldError, ...]:
    """Turn pydantic's error into items of the interface's part 7; values never appear in them."""
    items: list[FieldError] = []
    for detail in error.errors(include_url=False, include_input=False):
        loc = tuple(str(part) for part in detail["loc"])
        kind, message = detail["type"], detail["msg"]
        if kind == "extra_forbidden":
            message = _unknown(loc[-1], _fields_at(model, detail["loc"][:-1]))
        elif kind == "tuple_type":
            message = "Input should be a valid list"
        context = {key: value for key, value in detail.get("ctx", {}).items() if key not in _INTERNAL}
        note = ", ".join(f"{key}: {value}" for key, value in context.items()) or None
        items.append(FieldError(loc=(place, *loc), type=kind, msg=message, ctx=note, in_=place))
    return tuple(items)


def _plain(value: object) -> object:
    # Sweeps hand over numpy scalars; they are numbers like any other, but no float or int by type.
    if isinstance(value, bool | int | float):
        return value
    if isinstance(value, numbers.Integral):
        return int(value)
    if isinstance(value, numbers.Real):
        return float(value)
    return value


def _fields_at(model: type[BaseModel], path: Iterable[str | int]) -> list[str]:
    fields: Any = model.model_fields
    for part in path:
        if isinstance(part, int):
            continue
        nested = _model_in(fields[part].annotation)
        fields = nested.model_fields if nested else {}
    return list(fields)


def _model_in(annotation: object) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    for inner in getattr(annotation, "__args__", ()):
        if (nested := _model_in(inner)) is not None:
            return nested
    return None


def _unknown(key: str, fields: list[str]) -> str:
    message = f"there is no field {key!r}"
    hint = suggestion(key, fields)
    if not hint and key in _HINTS and "temperature" in fields:
        hint = f"; did you mean {_HINTS[key]}?"
    return message + (hint or f"; the fields are {', '.join(fields)}")
