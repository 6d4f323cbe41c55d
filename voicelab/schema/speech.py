"""The body of a speech request: TTSRequest, ReferenceAudio and ProsodyControl (interface 2.1 to 2.3)."""

from __future__ import annotations

import hashlib
from types import MappingProxyType
from typing import Annotated, Any, Literal, Self, get_args

from pydantic import BeforeValidator, ConfigDict, Field, Strict, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError

from voicelab.errors import FieldError, RequestInvalid
from voicelab.schema.base import Number, Text, Whole, Wire, WireModel, drop_unknown, strictly_whole

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
    mp3_bitrate: Annotated[Mp3Bitrate, BeforeValidator(strictly_whole)] = Field(
        default=128, description="kbit/s of mp3: 64, 128 or 192. Other formats ignore it."
    )
    opus_bitrate: Annotated[OpusBitrate, BeforeValidator(strictly_whole)] = Field(
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
        fields = _body(cls, wire)
        if fields.get("reference_id") is not None:
            fields.pop("references", None)
        references = fields.get("references")
        refused: tuple[FieldError, ...] = ()
        if isinstance(references, list | tuple):
            fields["references"] = [
                drop_unknown(ReferenceAudio, item) if isinstance(item, dict) else item for item in references
            ]
        if not binary and references is not None and references != []:
            fields.pop("references")
            message = "Inline references need a MessagePack body (application/msgpack), not JSON"
            refused = RequestInvalid.of("references", message, type="binary_required").errors
        if isinstance(fields.get("prosody"), dict):
            fields["prosody"] = drop_unknown(ProsodyControl, fields["prosody"])
        try:
            request = cls(**fields)
        except RequestInvalid as error:
            raise RequestInvalid((*error.errors, *refused)) from None
        if refused:
            raise RequestInvalid(refused)
        return request

    def to_wire(self) -> dict[str, Any]:
        """Return the full body, every field present; reference audio is bytes, so JSON takes it only without."""
        wire = {name: getattr(self, name) for name in type(self).model_fields}
        if self.references is not None:
            wire["references"] = [{"audio": item.audio, "text": item.text} for item in self.references]
        if self.prosody is not None:
            wire["prosody"] = {"speed": self.prosody.speed, "volume": self.prosody.volume}
        return wire

    def canonical(self) -> dict[str, Any]:
        """Return a JSON-able form that is equal for requests that mean the same, for keys and manifests.

        Reference audio appears as its sha256; references that a ``reference_id`` overrides, and an empty
        list of them, as null. Defaults that depend on the format are filled in.
        """
        wire = self.to_wire()
        wire["sample_rate"] = self.rate
        wire["prosody"] = wire["prosody"] or ProsodyControl().model_dump()
        wire["references"] = None
        if self.references and self.reference_id is None:
            wire["references"] = [
                {"audio_sha256": hashlib.sha256(item.audio).hexdigest(), "text": item.text} for item in self.references
            ]
        return wire


def check_model(name: object) -> Model:
    """Return the synthesis model that a ``model`` header names; None (no header) is s2-pro.

    Raises RequestInvalid with ``in`` header for any other value.
    """
    if name is None:
        return DEFAULT_MODEL
    for model in MODELS:
        if name == model:
            return model
    models = " or ".join(repr(model) for model in MODELS)
    raise RequestInvalid.of("model", f"Input should be {models}", type="literal_error", in_="header")


def _body(model: type[WireModel], wire: object) -> dict[str, Any]:
    if not isinstance(wire, dict):
        message = "The body should be an object with the request's fields"
        raise RequestInvalid((FieldError(loc=("body",), type="model_type", msg=message),))
    body: Wire = wire
    return drop_unknown(model, body)
