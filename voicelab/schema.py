"""Wire types of the interface, with all fields, bounds and descriptions. Only this module validates wire data.

Constructors reject unknown keywords; ``from_wire`` ignores unknown keys, as the interface's service does. Both raise
RequestInvalid.
"""

from __future__ import annotations

import numbers
import re
from collections.abc import Iterable, Mapping
from datetime import datetime
from functools import cached_property
from types import MappingProxyType
from typing import Annotated, Any, Literal, LiteralString, Self, TypeVar, get_args

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    Strict,
    ValidationError,
    ValidationInfo,
    field_validator,
)
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails, PydanticCustomError

from voicelab.display import Shown
from voicelab.errors import FieldError, RequestInvalid, ServiceError, shown_value
from voicelab.guesses import GUESSES, hint
from voicelab.storage import digest_of

_Model = TypeVar("_Model", bound="WireModel")

# Entries of pydantic's context that are of no use to a caller.
_INTERNAL = ("error", "class_name")

# Keywords of ``speak`` absent from TTSRequest, with their counterparts.
_COUNTERPARTS = {
    "model": "the model header (model= of Call)",
    "seed": "the seed header (seed= of Call)",
    "speed": "prosody={'speed': …}",
    "voice": "reference_id",
    "volume": "prosody={'volume': …}",
}


def _encodable(value: str) -> str:
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        # JSON can contain a lone surrogate, which UTF-8 cannot encode.
        message = "must be valid Unicode text, without lone surrogates"
        raise PydanticCustomError("string_unicode", message) from None
    return value


def _filled(value: str) -> str:
    if not value.strip():
        raise PydanticCustomError("string_too_short", "must not be empty or blank")
    return value


def _strictly(kinds: tuple[type, ...], error: LiteralString, message: LiteralString) -> BeforeValidator:
    def check(value: object) -> object:
        if isinstance(value, bool) or not isinstance(value, kinds):
            raise PydanticCustomError(error, message)
        return value

    return BeforeValidator(check)


# Rejects convertible values such as NumPy booleans, and 64.0, which would match the 64 of an enumeration.
_NUMBER = _strictly((int, float), "float_type", "must be a number")
_WHOLE = _strictly((int,), "int_type", "must be a whole number")


Text = Annotated[str, Strict(), AfterValidator(_encodable)]
"""A string that UTF-8 can encode."""
Filled = Annotated[Text, AfterValidator(_filled)]
"""A text that is not blank."""
Number = Annotated[
    float,
    Strict(),
    Field(allow_inf_nan=False),
    _NUMBER,
    # -0.0 and 0.0 are the same request and need the same canonical form.
    AfterValidator(lambda value: value + 0.0),
]
"""A finite number; integers are accepted, booleans and strings are not."""
Whole = Annotated[int, _WHOLE]
"""An integer; booleans and 1.0 are rejected."""


class WireModel(BaseModel):
    """Immutable base class of the wire types; unknown keywords and invalid values raise RequestInvalid."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    def __init__(self, **fields: object) -> None:
        try:
            super().__init__(**{name: _plain(value) for name, value in fields.items()})
        except ValidationError as error:
            raise RequestInvalid(field_errors(error, type(self))) from None

    # pydantic then validates nested models in place, so that errors carry the complete path (body, prosody, speed).
    __init__.__pydantic_base_init__ = True  # type: ignore[attr-defined]

    @classmethod
    def build(cls, **fields: object) -> Self:
        """Create a value from keywords. Raises RequestInvalid, which names unknown and invalid fields."""
        return cls(**fields)

    def replace(self, **changes: object) -> Self:
        """Return a copy with changed fields, validated again. Raises RequestInvalid."""
        return type(self)(**{**dict(self), **changes})

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """Return a copy; unlike pydantic's, changes are validated."""
        copied = super().model_copy(deep=deep)
        return copied.replace(**update) if update else copied


def field_errors(error: ValidationError, model: type[BaseModel]) -> tuple[FieldError, ...]:
    """Convert pydantic's error to items of section 7 of the interface."""
    items: list[FieldError] = []
    for detail in error.errors(include_url=False):
        loc = tuple(map(str, detail["loc"]))
        kind, message = detail["type"], _must(detail, model)
        if kind == "extra_forbidden":
            message = _unknown(loc[-1], list(_fields_at(model, detail["loc"][:-1])))
        context = {key: value for key, value in detail.get("ctx", {}).items() if key not in _INTERNAL}
        note = ", ".join(f"{key}: {value}" for key, value in context.items()) or None
        items.append(FieldError(loc=("body", *loc), type=kind, msg=message, ctx=note))
    return tuple(items)


def _plain(value: object) -> object:
    # NumPy scalars, as in sweeps, do not derive from int, nor float32 from float.
    if isinstance(value, bool | int | float) or not isinstance(value, numbers.Real):
        return value
    return int(value) if isinstance(value, numbers.Integral) else float(value)


def _must(detail: ErrorDetails, model: type[BaseModel]) -> str:
    """Format pydantic's message as "must be X, got Y"; Y is the value if short, else its type."""
    message = detail["msg"].replace("a valid tuple", "a list").replace("a valid ", "a ")
    rule = re.sub("^(Input|String) should ", "must ", message)
    if not rule.startswith("must ") or ", got " in rule:
        return rule
    *path, name = detail["loc"] or ("",)
    if isinstance(name, str) and detail["type"] in {"greater_than_equal", "less_than_equal"}:
        low, high = field_bounds(_fields_at(model, path)[name])
        rule = f"must be between {low:g} and {high:g}" if low is not None and high is not None else rule
        return f"{rule}, got {shown_value(detail['input']).removesuffix('.0')}"
    return f"{rule}, got {shown_value(detail['input'])}"


def field_bounds(field: FieldInfo) -> tuple[float | None, float | None]:
    """Return the minimum and maximum of a field; None for no bound."""
    bounds = {end: getattr(item, end) for item in field.metadata for end in ("ge", "le") if hasattr(item, end)}
    return bounds.get("ge"), bounds.get("le")


def _fields_at(model: type[BaseModel], path: Iterable[str | int]) -> dict[str, FieldInfo]:
    fields = dict(model.model_fields)
    for name in (item for item in path if isinstance(item, str)):
        nested = _model_in(fields[name].annotation)
        fields = dict(nested.model_fields) if nested else {}
    return fields


def _model_in(annotation: object) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    for inner in getattr(annotation, "__args__", ()):
        if (nested := _model_in(inner)) is not None:
            return nested
    return None


def _unknown(key: str, fields: list[str]) -> str:
    keyword = GUESSES["speak"].get(key, key)
    if "temperature" in fields and keyword in _COUNTERPARTS:
        return f"unknown field {key!r}; did you mean {_COUNTERPARTS[keyword]}?"
    return unknown_field(key, fields, "speak" if "temperature" in fields else "")


def unknown_field(name: str, fields: Iterable[str], kind: str = "speak") -> str:
    """Format the message about an unknown field; ``kind`` is a key of ``GUESSES``."""
    names = list(fields)
    return f"unknown field {name!r}" + (hint(kind, name, names) or f"; the fields are {', '.join(names)}")


Model = Literal["s1", "s2-pro"]
AudioFormat = Literal["wav", "pcm", "mp3", "opus"]
Latency = Literal["low", "normal", "balanced"]
Mp3Bitrate = Literal[64, 128, 192]
OpusBitrate = Literal[-1000, 24, 32, 48, 64]

DEFAULT_MODEL: Model = "s2-pro"
MODELS: tuple[Model, ...] = get_args(Model)
FORMATS: tuple[AudioFormat, ...] = get_args(AudioFormat)
LATENCIES: tuple[Latency, ...] = get_args(Latency)
MP3_BITRATES: tuple[Mp3Bitrate, ...] = get_args(Mp3Bitrate)
OPUS_BITRATES: tuple[OpusBitrate, ...] = get_args(OpusBitrate)

_PLAIN_RATES = (8000, 16000, 24000, 32000, 44100)
RATES: MappingProxyType[AudioFormat, tuple[int, ...]] = MappingProxyType(
    {"wav": _PLAIN_RATES, "pcm": _PLAIN_RATES, "mp3": (32000, 44100), "opus": (48000,)}
)
"""Sample rates in Hz that each format supports."""
DEFAULT_RATES: MappingProxyType[AudioFormat, int] = MappingProxyType(
    {"wav": 44100, "pcm": 44100, "mp3": 44100, "opus": 48000}
)
"""Default sample rate in Hz of each format."""
MEDIA_TYPES: MappingProxyType[AudioFormat, str] = MappingProxyType(
    {"wav": "audio/wav", "pcm": "audio/pcm", "mp3": "audio/mpeg", "opus": "audio/ogg"}
)
"""Media type of each format."""

# JSON Schema: ``anyOf`` of these. The default format is mp3.
_RATE_OF_FORMAT = [
    {
        "properties": {"format": {"const": name}, "sample_rate": {"enum": [*rates, None]}},
        "required": [] if name == "mp3" else ["format"],
    }
    for name, rates in RATES.items()
]

# The interface has no maximum; this is the range of 64-bit integers.
_MAX_INTEGER = 2**63 - 1


class ReferenceAudio(WireModel):
    """Voice sample with its transcript, for cloning without a stored voice."""

    audio: Annotated[bytes, Strict()] = Field(
        min_length=1,
        repr=False,
        description="Voice sample as a WAV, MP3 or FLAC file. Clear speech of 10 to 30 seconds with "
        "little background noise gives the best results.",
    )
    text: Text = Field(
        description="Exact transcript of the speech in the sample. Its accuracy affects cloning quality."
    )

    @cached_property
    def audio_sha256(self) -> str:
        """SHA-256 of the audio."""
        return digest_of(self.audio)


class ProsodyControl(WireModel):
    """Speaking rate and loudness."""

    speed: Number = Field(
        default=1.0,
        ge=0.5,
        le=2.0,
        description="Speaking-rate multiplier, 0.5 to 2.0; 1.0 is normal. The pitch does not change.",
    )
    volume: Number = Field(
        default=0.0,
        ge=-100.0,
        le=100.0,
        description="Volume change in dB; positive is louder, negative is quieter. Peaks are limited, not clipped.",
    )


class TTSRequest(WireModel):
    """Speech request. Raises RequestInvalid, which names invalid fields."""

    model_config = ConfigDict(json_schema_extra={"anyOf": _RATE_OF_FORMAT})  # type: ignore[dict-item]  # it is JSON

    text: Filled = Field(description="Text to convert to speech.", json_schema_extra={"minLength": 1, "pattern": r"\S"})
    temperature: Number = Field(
        default=0.7,
        ge=0.0,
        le=1.0,
        description="0 to 1. Higher is more varied, lower is more consistent; 0 always gives the same audio.",
    )
    top_p: Number = Field(default=0.7, ge=0.0, le=1.0, description="0 to 1. Nucleus sampling diversity.")
    references: tuple[ReferenceAudio, ...] | None = Field(
        default=None,
        description="Voice samples for cloning without a stored voice. Ignored when reference_id is given.",
    )
    reference_id: Text | None = Field(default=None, description="Identifier of a stored voice model.")
    prosody: ProsodyControl | None = Field(default=None, description="Speed and volume adjustments.")
    chunk_length: Whole = Field(
        default=300,
        ge=100,
        le=300,
        description="100 to 300. Length in characters of the text segments synthesized at once.",
    )
    normalize: Annotated[bool, Strict()] = Field(
        default=True,
        description="Expand numbers, dates and abbreviations into words before synthesis; more reliable for numbers.",
    )
    format: AudioFormat = Field(default="mp3", description="Audio format: wav, pcm, mp3 or opus.")
    sample_rate: Whole | None = Field(
        default=None,
        description="Sample rate in Hz. None is the format's own: 44100 for wav, pcm and mp3; 48000 for opus.",
    )
    mp3_bitrate: Annotated[Mp3Bitrate, _WHOLE] = Field(
        default=128, description="kbit/s of mp3: 64, 128 or 192. Other formats ignore it."
    )
    opus_bitrate: Annotated[OpusBitrate, _WHOLE] = Field(
        default=-1000, description="kbit/s of opus: 24, 32, 48 or 64; -1000 is automatic. Other formats ignore it."
    )
    latency: Latency = Field(
        default="normal",
        description="normal is best quality, balanced has reduced latency, low has the lowest latency.",
    )
    max_new_tokens: Whole = Field(
        default=1024, ge=1, le=_MAX_INTEGER, description="Maximum audio tokens generated for each text segment."
    )
    repetition_penalty: Number = Field(
        default=1.2,
        gt=0.0,
        le=100.0,
        description="Values above 1.0 reduce repetition of audio patterns; 1.0 has no effect.",
    )
    min_chunk_length: Whole = Field(
        default=50,
        ge=0,
        le=100,
        description="0 to 100. Minimum characters before the text is split into a new segment.",
    )
    condition_on_previous_chunks: Annotated[bool, Strict()] = Field(
        default=True, description="Use the preceding audio as context, for a consistent voice."
    )
    early_stop_threshold: Number = Field(
        default=1.0,
        ge=0.0,
        le=1.0,
        description="0 to 1. When this share of a batch of segments has ended, the others are stopped; "
        "1 waits for all.",
    )

    @field_validator("sample_rate")
    @classmethod
    def _check_rate(cls, rate: int | None, info: ValidationInfo) -> int | None:
        # ``format`` is validated first; if it is invalid, its own error suffices.
        supported = RATES.get(info.data.get("format", ""))
        if rate is not None and supported is not None and rate not in supported:
            raise PydanticCustomError(
                "literal_error",
                "must be {expected} for {format}, got {rate}",
                {
                    "format": info.data["format"],
                    # Python does not format integers of thousands of digits.
                    "rate": rate if abs(rate) <= _MAX_INTEGER else "over 2**63",
                    "expected": " or ".join(map(str, supported)),
                },
            )
        return rate

    @property
    def rate(self) -> int:
        """Sample rate in Hz of the response."""
        return DEFAULT_RATES[self.format] if self.sample_rate is None else self.sample_rate

    @classmethod
    def from_wire(cls, wire: object, *, binary: bool) -> Self:
        """Validate a decoded body; unknown keys, and references next to a ``reference_id``, are ignored.

        ``binary``: the body can contain bytes (MessagePack); in JSON, ``references`` must be null or empty. Raises
        RequestInvalid.
        """
        fields = _fields(wire)
        if fields.get("reference_id") is not None:
            fields.pop("references", None)
        errors: tuple[FieldError, ...] = ()
        if not binary and fields.get("references") not in (None, []):
            fields.pop("references")
            message = "Inline references require a MessagePack body (application/msgpack), got JSON"
            errors = RequestInvalid.of("references", message, type="binary_required").errors
        return _validated(cls, fields, errors)

    def to_wire(self) -> dict[str, Any]:
        """Return the body with every field; reference audio is bytes, which JSON cannot contain."""
        return self.model_dump()

    def record(self) -> dict[str, Any]:
        """Return the request as a JSON object, with reference audio replaced by its SHA-256."""
        wire = self.to_wire()
        if self.references is not None:
            wire["references"] = [{"audio_sha256": item.audio_sha256, "text": item.text} for item in self.references]
        return wire

    def canonical(self) -> dict[str, Any]:
        """Return a JSON object that is equal for equivalent requests, for keys and manifests.

        Reference audio is replaced by its SHA-256; references that a ``reference_id`` overrides, and empty ones, are
        null; defaults that depend on the format are resolved.
        """
        wire = self.record()
        wire["sample_rate"] = self.rate
        wire["prosody"] = wire["prosody"] or ProsodyControl().model_dump()
        wire["references"] = None if self.reference_id is not None else wire["references"] or None
        return wire


def check_model(name: object) -> Model:
    """Return the synthesis model of a ``model`` header; None (no header) is s2-pro. Raises RequestInvalid."""
    for model in MODELS:
        if (DEFAULT_MODEL if name is None else name) == model:
            return model
    models = " or ".join(repr(model) for model in MODELS)
    raise RequestInvalid.of("model", f"must be {models}, got {shown_value(name)}", type="literal_error", in_="header")


def _fields(wire: object) -> dict[str, Any]:
    if not isinstance(wire, dict):
        message = f"must be an object, got {shown_value(wire)}"
        raise RequestInvalid((FieldError(loc=("body",), type="model_type", msg=message),))
    return dict(wire)


def _validated(model: type[_Model], fields: dict[str, Any], errors: tuple[FieldError, ...]) -> _Model:
    """Validate the fields of a body. Raises RequestInvalid with all errors, including ``errors``."""
    try:
        value = model.model_validate(fields, extra="ignore")
    except ValidationError as error:
        raise RequestInvalid((*field_errors(error, model), *errors)) from None
    if errors:
        raise RequestInvalid(errors)
    return value


Visibility = Literal["public", "unlist", "private"]
VoiceState = Literal["created", "training", "trained", "failed"]


# MessagePack and forms may have a single value in place of a list.
_LISTED = BeforeValidator(lambda value: (value,) if isinstance(value, str | bytes) else value)


class _Record(BaseModel):
    """Immutable base class of records from a service; unknown fields are ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore", populate_by_name=True)


class Author(_Record):
    """Author of a voice model."""

    id: str = Field(validation_alias="_id", serialization_alias="_id", description="Identifier of the author.")
    nickname: str = Field(default="", description="Display name.")
    avatar: str = Field(default="", description="URL of a picture, or empty.")


_Loose = Annotated[str, BeforeValidator(lambda value: "" if value is None else value)]


class SampleEntity(_Record):
    """Sample of a voice model."""

    title: _Loose = Field(default="", description="Title of the sample.")
    text: _Loose = Field(default="", description="Transcript.")
    task_id: _Loose = Field(default="", description="Identifier of its synthesis task.")
    audio: _Loose = Field(default="", description="URL of the audio.")


class VoiceModel(Shown, _Record):
    """Record of a voice model. ``id`` is ``_id`` on the wire."""

    id: str = Field(validation_alias="_id", serialization_alias="_id", description="Identifier, for reference_id.")
    type: Literal["svc", "tts"] = Field(default="tts", description="svc or tts.")
    title: str = Field(description="Title.")
    description: str = Field(default="", description="Description.")
    cover_image: str = Field(default="", description="URL of the cover picture, or empty.")
    state: VoiceState = Field(description="created, training, trained or failed.")
    tags: tuple[str, ...] = Field(default=(), description="Tags.")
    created_at: datetime = Field(description="Time of creation.")
    updated_at: datetime = Field(description="Time of the latest change.")
    visibility: Visibility = Field(
        description="public: listed for everyone; unlist: for anyone with the link; private: only for its creator."
    )
    like_count: int = Field(default=0, description="Likes.")
    mark_count: int = Field(default=0, description="Marks.")
    shared_count: int = Field(default=0, description="Times shared.")
    task_count: int = Field(default=0, description="Times used.")
    author: Author = Field(description="Author.")
    train_mode: Literal["fast", "full"] = Field(default="full", description="fast or full.")
    samples: tuple[SampleEntity, ...] = Field(default=(), description="Samples.")
    languages: tuple[str, ...] = Field(default=(), description="Languages spoken.")
    lock_visibility: bool = Field(default=False, description="Whether the visibility is locked.")
    unliked: bool = Field(default=False, description="Whether the caller dislikes it.")
    liked: bool = Field(default=False, description="Whether the caller likes it.")
    marked: bool = Field(default=False, description="Whether the caller marked it.")

    @classmethod
    def from_wire(cls, wire: object) -> Self:
        """Parse the response of a service; unknown fields are ignored.

        Raises ServiceError, which names the fields, if the response is not a voice model record.
        """
        # Null optional fields count as absent.
        fields = {key: value for key, value in wire.items() if value is not None} if isinstance(wire, dict) else wire
        try:
            return cls.model_validate(fields)
        except ValidationError as error:
            problem = RequestInvalid(field_errors(error, cls))
            raise ServiceError(f"the response is not a voice model record: {problem}") from None

    def to_wire(self) -> dict[str, Any]:
        """Return the record as a JSON object with every field of section 2.4."""
        return self.model_dump(mode="json", by_alias=True)


_BOOLEANS = {"true": True, "1": True, "on": True, "false": False, "0": False, "off": False}


class VoiceCreate(WireModel):
    """Request to create a voice model from audio."""

    model_config = ConfigDict(
        json_schema_extra={
            # Required on the wire; in Python, train_mode and type default to their only values.
            "required": ["title", "voices", "train_mode", "type"],
            "anyOf": [
                {"properties": {"visibility": {"enum": ["unlist", "private"]}}, "required": ["visibility"]},
                {"properties": {"cover_image": {"type": "string", "minLength": 1}}, "required": ["cover_image"]},
            ],
        }
    )

    title: Filled = Field(description="Model title.", json_schema_extra={"minLength": 1, "pattern": r"\S"})
    voices: Annotated[tuple[Annotated[bytes, Strict(), Field(min_length=1)], ...], _LISTED] = Field(
        repr=False, description="Voice files (WAV, MP3 or FLAC) used to tune the model, one or more."
    )
    texts: Annotated[tuple[Text, ...], _LISTED] = Field(
        default=(), description="Transcripts, one for each voice file. Default: speech recognition."
    )
    visibility: Visibility = Field(default="public", description="public, unlist or private.")
    description: Text | None = Field(default=None, description="Description.")
    cover_image: Annotated[bytes, Strict()] | None = Field(
        default=None,
        repr=False,
        validate_default=True,
        description="Cover picture; required when visibility is public.",
    )
    tags: Annotated[tuple[Text, ...], _LISTED] = Field(default=(), description="Tags.")
    enhance_audio_quality: Annotated[bool, Strict()] = Field(default=False, description="Enhance the audio before use.")
    train_mode: Literal["fast"] = Field(
        default="fast", description="Must be fast: the voice is usable as soon as it is created."
    )
    type: Literal["tts"] = Field(default="tts", description="Must be tts.")

    @field_validator("voices")
    @classmethod
    def _check_voices(cls, voices: tuple[bytes, ...]) -> tuple[bytes, ...]:
        if not voices:
            raise PydanticCustomError("too_short", "must have at least one voice file")
        return voices

    @field_validator("texts")
    @classmethod
    def _check_texts(cls, texts: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        voices = info.data.get("voices")
        if texts and voices is not None and len(texts) != len(voices):
            raise PydanticCustomError(
                "value_error",
                "must have one transcript for each of the {voices} voice files, or none; got {texts}",
                {"texts": len(texts), "voices": len(voices)},
            )
        return texts

    @field_validator("cover_image")
    @classmethod
    def _check_cover(cls, cover: bytes | None, info: ValidationInfo) -> bytes | None:
        if not cover and info.data.get("visibility") == "public":
            raise PydanticCustomError("missing", "A public voice model requires a cover image")
        return cover

    @classmethod
    def from_wire(cls, wire: object, *, form: bool = False) -> Self:
        """Validate a decoded body. Files are bytes, a single value is read as a list, and unknown keys are ignored.

        ``form``: the body is a form, where booleans are strings and an empty string is unset. ``type`` and
        ``train_mode`` are required. Raises RequestInvalid.
        """
        fields = _fields(wire)
        for name in ("texts", "tags", "visibility", "enhance_audio_quality"):
            if fields.get(name, 0) is None:
                del fields[name]
        if form:
            fields = {key: value for key, value in fields.items() if value != "" or key == "title"}
            flag = fields.get("enhance_audio_quality")
            if isinstance(flag, str):
                fields["enhance_audio_quality"] = _BOOLEANS.get(flag.lower(), flag)
        absent = [name for name in ("type", "train_mode") if name not in fields]
        return _validated(
            cls, fields, tuple(FieldError(("body", name), "missing", "Field required") for name in absent)
        )

    def to_wire(self) -> dict[str, Any]:
        """Return the body with every field; files are bytes."""
        wire = {name: getattr(self, name) for name in type(self).model_fields}
        return {name: list(value) if isinstance(value, tuple) else value for name, value in wire.items()}
