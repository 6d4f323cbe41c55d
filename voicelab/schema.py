"""The wire: every type of the interface, with all fields, bounds and descriptions, described once.

This is the only validation of the wire. Constructors refuse unknown keywords with a hint;
``from_wire`` ignores unknown keys, as the interface's service does. Both raise RequestInvalid.
"""

from __future__ import annotations

import numbers
from collections.abc import Iterable, Mapping
from datetime import datetime
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
from pydantic_core import PydanticCustomError

from voicelab.display import Shown
from voicelab.errors import FieldError, RequestInvalid, ServiceError, suggestion
from voicelab.storage import digest_of

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


def _strictly(kinds: tuple[type, ...], error: LiteralString, message: LiteralString) -> BeforeValidator:
    def check(value: object) -> object:
        if isinstance(value, bool) or not isinstance(value, kinds):
            raise PydanticCustomError(error, message)
        return value

    return BeforeValidator(check)


# Not what can only be converted, such as numpy's booleans; and 64.0 would be taken for the 64 of an enumeration.
_NUMBER = _strictly((int, float), "float_type", "Input should be a valid number")
_WHOLE = _strictly((int,), "int_type", "Input should be a valid integer")


Text = Annotated[str, Strict(), AfterValidator(_encodable)]
"""A string that UTF-8 can carry."""
Number = Annotated[
    float,
    Strict(),
    Field(allow_inf_nan=False),
    _NUMBER,
    # -0.0 and 0.0 mean the same request and must have the same canonical form.
    AfterValidator(lambda value: value + 0.0),
]
"""A finite number; whole numbers are taken, booleans and strings are not."""
Whole = Annotated[int, _WHOLE]
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
    if isinstance(value, bool | int | float) or not isinstance(value, numbers.Real):
        return value
    return int(value) if isinstance(value, numbers.Integral) else float(value)


def _fields_at(model: type[BaseModel], path: Iterable[str | int]) -> list[str]:
    fields: Any = model.model_fields
    for part in (one for one in path if isinstance(one, str)):
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
"""Sample rates in Hz that each format can be asked for."""
DEFAULT_RATES: MappingProxyType[AudioFormat, int] = MappingProxyType(
    {"wav": 44100, "pcm": 44100, "mp3": 44100, "opus": 48000}
)
"""Sample rate in Hz of each format when the request names none."""
MEDIA_TYPES: MappingProxyType[AudioFormat, str] = MappingProxyType(
    {"wav": "audio/wav", "pcm": "audio/pcm", "mp3": "audio/mpeg", "opus": "audio/ogg"}
)
"""Media type of the audio returned in each format."""

# In terms of JSON Schema: one of these holds. Without a format it is mp3.
_RATE_OF_FORMAT = [
    {
        "properties": {"format": {"const": name}, "sample_rate": {"enum": [*rates, None]}},
        "required": [] if name == "mp3" else ["format"],
    }
    for name, rates in RATES.items()
]

# The interface gives no maximum; this is what every integer type on the way can hold.
_LARGEST = 2**63 - 1


class ReferenceAudio(WireModel):
    """A voice sample with its transcript, for cloning without a stored voice."""

    audio: Annotated[bytes, Strict()] = Field(
        min_length=1,
        repr=False,
        description="Voice sample as a WAV, MP3 or FLAC file. Clear speech of 10 to 30 seconds with "
        "little background noise gives the best results.",
    )
    text: Text = Field(
        description="Exact transcript of the speech in the sample. Its accuracy affects cloning quality."
    )


class ProsodyControl(WireModel):
    """Speaking rate and loudness."""

    speed: Number = Field(
        default=1.0, ge=0.5, le=2.0, description="Speaking-rate multiplier, 0.5 to 2.0; 1.0 is normal. The pitch stays."
    )
    volume: Number = Field(
        default=0.0,
        ge=-100.0,
        le=100.0,
        description="Volume change in dB; positive is louder, negative is quieter. Peaks are limited, not clipped.",
    )


class TTSRequest(WireModel):
    """A speech request. Frozen and always valid; a bad field raises RequestInvalid, which names it."""

    model_config = ConfigDict(json_schema_extra={"anyOf": _RATE_OF_FORMAT})  # type: ignore[dict-item]  # it is JSON

    text: Text = Field(description="Text to convert to speech.", json_schema_extra={"minLength": 1, "pattern": r"\S"})
    temperature: Number = Field(
        default=0.7,
        ge=0.0,
        le=1.0,
        description="0 to 1. Higher is more varied, lower is more consistent; 0 always repeats.",
    )
    top_p: Number = Field(default=0.7, ge=0.0, le=1.0, description="0 to 1. Nucleus sampling diversity.")
    references: tuple[ReferenceAudio, ...] | None = Field(
        default=None,
        description="Voice samples to clone at once, without a stored voice. Ignored when reference_id is given.",
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
        default=True, description="Write out numbers, dates and abbreviations before speaking; steadier for numbers."
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
        default=1024, ge=1, le=_LARGEST, description="Maximum audio tokens generated for each text segment."
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
        default=True, description="Use the audio before as context, for a consistent voice."
    )
    early_stop_threshold: Number = Field(
        default=1.0,
        ge=0.0,
        le=1.0,
        description="0 to 1. Of the segments made together, once this share has ended the rest are stopped; "
        "1 waits for all.",
    )

    @field_validator("text")
    @classmethod
    def _spoken(cls, text: str) -> str:
        if not text.strip():
            raise PydanticCustomError("string_too_short", "There is nothing to say: the text is empty or blank")
        return text

    @field_validator("sample_rate")
    @classmethod
    def _listed_rate(cls, rate: int | None, info: ValidationInfo) -> int | None:
        # ``format`` is validated before; when it is wrong itself, its own error is enough.
        listed = RATES.get(info.data.get("format", ""))
        if rate is not None and listed is not None and rate not in listed:
            raise PydanticCustomError(
                "literal_error",
                "{format} has no sample rate of {rate} Hz; choose {expected}",
                {
                    "format": info.data["format"],
                    # A number of thousands of digits cannot be printed, and need not be.
                    "rate": rate if abs(rate) <= _LARGEST else "so many",
                    "expected": " or ".join(map(str, listed)),
                },
            )
        return rate

    @property
    def rate(self) -> int:
        """Sample rate in Hz of the audio that answers this request."""
        return DEFAULT_RATES[self.format] if self.sample_rate is None else self.sample_rate

    @classmethod
    def from_wire(cls, wire: object, *, binary: bool) -> Self:
        """Validate a decoded body. Unknown keys are ignored, as the interface's service does.

        ``binary`` says that the body can carry bytes (MessagePack); in JSON ``references`` may only be
        null or empty. References beside a ``reference_id`` are not looked at. Raises RequestInvalid.
        """
        fields = _fields(wire)
        if fields.get("reference_id") is not None:
            fields.pop("references", None)
        refused: tuple[FieldError, ...] = ()
        if not binary and fields.get("references") not in (None, []):
            fields.pop("references")
            message = "Inline references need a MessagePack body (application/msgpack), not JSON"
            refused = RequestInvalid.of("references", message, type="binary_required").errors
        return _validated(cls, fields, refused)

    def to_wire(self) -> dict[str, Any]:
        """Return the full body, every field present; reference audio is bytes, so JSON takes it only without."""
        return self.model_dump()

    def record(self) -> dict[str, Any]:
        """Return the request as a JSON-able object, all fields as given; reference audio is named by its sha256."""
        wire = self.to_wire()
        if self.references is not None:
            wire["references"] = [{"audio_sha256": digest_of(one.audio), "text": one.text} for one in self.references]
        return wire

    def canonical(self) -> dict[str, Any]:
        """Return a JSON-able form that is equal for requests that mean the same, for keys and manifests.

        Reference audio appears as its sha256; references that a ``reference_id`` overrides, and an empty
        list of them, as null. Defaults that depend on the format are filled in.
        """
        wire = self.record()
        wire["sample_rate"] = self.rate
        wire["prosody"] = wire["prosody"] or ProsodyControl().model_dump()
        wire["references"] = None if self.reference_id is not None else wire["references"] or None
        return wire


def check_model(name: object) -> Model:
    """Return the synthesis model that a ``model`` header names; None (no header) is s2-pro.

    Raises RequestInvalid with ``in`` header for any other value.
    """
    for model in MODELS:
        if (DEFAULT_MODEL if name is None else name) == model:
            return model
    models = " or ".join(repr(model) for model in MODELS)
    raise RequestInvalid.of("model", f"Input should be {models}", type="literal_error", in_="header")


def _fields(wire: object) -> dict[str, Any]:
    if not isinstance(wire, dict):
        message = "The body should be an object with the request's fields"
        raise RequestInvalid((FieldError(loc=("body",), type="model_type", msg=message),))
    return dict(wire)


def _validated(model: type[_Model], fields: dict[str, Any], wrong: tuple[FieldError, ...]) -> _Model:
    """The value of a body's fields. Raises RequestInvalid with all that is wrong with them, and with what is besides."""
    try:
        value = model.model_validate(fields, extra="ignore")
    except ValidationError as error:
        raise RequestInvalid((*field_errors(error, model), *wrong)) from None
    if wrong:
        raise RequestInvalid(wrong)
    return value


Visibility = Literal["public", "unlist", "private"]
VoiceState = Literal["created", "training", "trained", "failed"]


# MessagePack and forms may give one value where several are allowed.
_LISTED = BeforeValidator(lambda value: (value,) if isinstance(value, str | bytes) else value)


class _Record(BaseModel):
    """What a service returns: read generously (fields may be added by the service), frozen."""

    model_config = ConfigDict(frozen=True, extra="ignore", populate_by_name=True)


class Author(_Record):
    """Who made a voice model."""

    id: str = Field(validation_alias="_id", serialization_alias="_id", description="Identifier of the author.")
    nickname: str = Field(default="", description="Name shown.")
    avatar: str = Field(default="", description="Address of a picture; empty when there is none.")


_Loose = Annotated[str, BeforeValidator(lambda value: "" if value is None else value)]


class SampleEntity(_Record):
    """A sample of a voice model."""

    title: _Loose = Field(default="", description="Title of the sample.")
    text: _Loose = Field(default="", description="What is said in it.")
    task_id: _Loose = Field(default="", description="Identifier of the task that made it.")
    audio: _Loose = Field(default="", description="Address of the audio.")


class VoiceModel(Shown, _Record):
    """The record of a voice model. ``id`` is ``_id`` on the wire."""

    id: str = Field(validation_alias="_id", serialization_alias="_id", description="Identifier, for reference_id.")
    type: Literal["svc", "tts"] = Field(default="tts", description="svc or tts.")
    title: str = Field(description="Title.")
    description: str = Field(default="", description="Description.")
    cover_image: str = Field(default="", description="Address of the cover picture; empty when there is none.")
    state: VoiceState = Field(description="created, training, trained or failed.")
    tags: tuple[str, ...] = Field(default=(), description="Tags.")
    created_at: datetime = Field(description="When it was made.")
    updated_at: datetime = Field(description="When it was last changed.")
    visibility: Visibility = Field(
        description="public: found by anybody; unlist: by anyone with the link; private: only by its creator."
    )
    like_count: int = Field(default=0, description="Likes.")
    mark_count: int = Field(default=0, description="Marks.")
    shared_count: int = Field(default=0, description="Times shared.")
    task_count: int = Field(default=0, description="Times used.")
    author: Author = Field(description="Who made it.")
    train_mode: Literal["fast", "full"] = Field(default="full", description="fast or full.")
    samples: tuple[SampleEntity, ...] = Field(default=(), description="Samples.")
    languages: tuple[str, ...] = Field(default=(), description="Languages spoken.")
    lock_visibility: bool = Field(default=False, description="Whether the visibility is locked.")
    unliked: bool = Field(default=False, description="Whether the caller dislikes it.")
    liked: bool = Field(default=False, description="Whether the caller likes it.")
    marked: bool = Field(default=False, description="Whether the caller marked it.")

    @classmethod
    def from_wire(cls, wire: object) -> Self:
        """Read a service's answer. Fields of later versions are ignored.

        Raises ServiceError, which names the fields, when the answer is no voice model record.
        """
        # Optional fields may be null as well as absent.
        fields = {key: value for key, value in wire.items() if value is not None} if isinstance(wire, dict) else wire
        try:
            return cls.model_validate(fields)
        except ValidationError as error:
            problem = RequestInvalid(field_errors(error, cls))
            raise ServiceError(f"the answer is not a voice model record: {problem}") from None

    def to_wire(self) -> dict[str, Any]:
        """Return the record as JSON-able values, every field of section 2.4 present."""
        return self.model_dump(mode="json", by_alias=True)


_BOOLEANS = {"true": True, "1": True, "on": True, "false": False, "0": False, "off": False}


class VoiceCreate(WireModel):
    """The call that makes a voice model from audio. Frozen and always valid."""

    model_config = ConfigDict(
        json_schema_extra={
            # On the wire; here the two have the only values that they can have.
            "required": ["title", "voices", "train_mode", "type"],
            "anyOf": [
                {"properties": {"visibility": {"enum": ["unlist", "private"]}}, "required": ["visibility"]},
                {"properties": {"cover_image": {"type": "string", "minLength": 1}}, "required": ["cover_image"]},
            ],
        }
    )

    title: Text = Field(description="Model title.", json_schema_extra={"minLength": 1, "pattern": r"\S"})
    voices: Annotated[tuple[Annotated[bytes, Strict(), Field(min_length=1)], ...], _LISTED] = Field(
        repr=False, description="Voice files (WAV, MP3 or FLAC) used to tune the model, one or more."
    )
    texts: Annotated[tuple[Text, ...], _LISTED] = Field(
        default=(), description="Transcripts, one for each voice file. When left out, the speech is recognised."
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
    train_mode: Literal["fast"] = Field(default="fast", description="Only fast: usable as soon as it is created.")
    type: Literal["tts"] = Field(default="tts", description="Only tts.")

    @field_validator("title")
    @classmethod
    def _titled(cls, title: str) -> str:
        if not title.strip():
            raise PydanticCustomError("string_too_short", "The title is empty or blank")
        return title

    @field_validator("voices")
    @classmethod
    def _some(cls, voices: tuple[bytes, ...]) -> tuple[bytes, ...]:
        if not voices:
            raise PydanticCustomError("too_short", "At least one voice file is needed")
        return voices

    @field_validator("texts")
    @classmethod
    def _as_many(cls, texts: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        voices = info.data.get("voices")
        if texts and voices is not None and len(texts) != len(voices):
            raise PydanticCustomError(
                "value_error",
                "There are {texts} transcripts for {voices} voice files; give one for each, or none",
                {"texts": len(texts), "voices": len(voices)},
            )
        return texts

    @field_validator("cover_image")
    @classmethod
    def _covered(cls, cover: bytes | None, info: ValidationInfo) -> bytes | None:
        if not cover and info.data.get("visibility") == "public":
            raise PydanticCustomError("missing", "A public voice model needs a cover image")
        return cover

    @classmethod
    def from_wire(cls, wire: object, *, form: bool = False) -> Self:
        """Validate a decoded body; files are bytes, one value may stand for a list of one.

        ``form`` says that it came as a form, where a boolean is written out and an empty string is no
        value. ``type`` and ``train_mode`` must be present. Unknown keys are ignored. Raises RequestInvalid.
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
        return _validated(cls, fields, tuple(FieldError(("body", one), "missing", "Field required") for one in absent))

    def to_wire(self) -> dict[str, Any]:
        """Return the full body; files are bytes, lists are lists."""
        wire = {name: getattr(self, name) for name in type(self).model_fields}
        return {name: list(value) if isinstance(value, tuple) else value for name, value in wire.items()}
