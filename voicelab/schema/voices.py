"""Voice models: the record that a service returns, and the call that creates one (interface 2.4 and 4.2)."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal, Self

from pydantic import (
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
from voicelab.errors import FieldError, RequestInvalid, ServiceError
from voicelab.schema.base import Text, WireModel, drop_unknown, field_errors

Visibility = Literal["public", "unlist", "private"]
VoiceState = Literal["created", "training", "trained", "failed"]


def _listed(value: object) -> object:
    # MessagePack and forms may give one value where several are allowed.
    return (value,) if isinstance(value, str | bytes) else value


def _none_is_empty(value: object) -> object:
    return "" if value is None else value


class _Record(BaseModel):
    """What a service returns: read generously (fields may be added by the service), frozen."""

    model_config = ConfigDict(frozen=True, extra="ignore", populate_by_name=True)


class Author(_Record):
    """Who made a voice model."""

    id: str = Field(validation_alias="_id", serialization_alias="_id", description="Identifier of the author.")
    nickname: str = Field(default="", description="Name shown.")
    avatar: str = Field(default="", description="Address of a picture; empty when there is none.")


_Loose = Annotated[str, BeforeValidator(_none_is_empty)]


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
    voices: Annotated[tuple[Annotated[bytes, Strict(), Field(min_length=1)], ...], BeforeValidator(_listed)] = Field(
        repr=False, description="Voice files (WAV, MP3 or FLAC) used to tune the model, one or more."
    )
    texts: Annotated[tuple[Text, ...], BeforeValidator(_listed)] = Field(
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
    tags: Annotated[tuple[Text, ...], BeforeValidator(_listed)] = Field(default=(), description="Tags.")
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
        if not isinstance(wire, dict):
            raise RequestInvalid((FieldError(("body",), "model_type", "The body should be an object with the fields"),))
        fields = drop_unknown(cls, wire)
        for name in ("texts", "tags", "visibility", "enhance_audio_quality"):
            if fields.get(name, 0) is None:
                del fields[name]
        if form:
            fields = {key: value for key, value in fields.items() if value != "" or key == "title"}
            flag = fields.get("enhance_audio_quality")
            if isinstance(flag, str):
                fields["enhance_audio_quality"] = _BOOLEANS.get(flag.lower(), flag)
        absent = [name for name in ("type", "train_mode") if name not in fields]
        missing = tuple(FieldError(("body", name), "missing", "Field required") for name in absent)
        try:
            request = cls(**fields)
        except RequestInvalid as error:
            raise RequestInvalid((*error.errors, *missing)) from None
        if missing:
            raise RequestInvalid(missing)
        return request

    def to_wire(self) -> dict[str, Any]:
        """Return the full body; files are bytes, lists are lists."""
        wire = {name: getattr(self, name) for name in type(self).model_fields}
        return {name: list(value) if isinstance(value, tuple) else value for name, value in wire.items()}
