"""The wire: every type of the interface, with all fields, bounds and descriptions, described once.

This is the only validation of the wire. Constructors refuse unknown keywords with a hint;
``from_wire`` ignores unknown keys, as the interface's service does. Both raise RequestInvalid.
"""

from __future__ import annotations

from voicelab.schema.base import WireModel
from voicelab.schema.speech import (
    DEFAULT_MODEL,
    DEFAULT_RATES,
    FORMATS,
    LATENCIES,
    MEDIA_TYPES,
    MODELS,
    MP3_BITRATES,
    OPUS_BITRATES,
    RATES,
    AudioFormat,
    Latency,
    Model,
    Mp3Bitrate,
    OpusBitrate,
    ProsodyControl,
    ReferenceAudio,
    TTSRequest,
    check_model,
)
from voicelab.schema.voices import Author, SampleEntity, Visibility, VoiceCreate, VoiceModel, VoiceState

__all__ = [
    "DEFAULT_MODEL",
    "DEFAULT_RATES",
    "FORMATS",
    "LATENCIES",
    "MEDIA_TYPES",
    "MODELS",
    "MP3_BITRATES",
    "OPUS_BITRATES",
    "RATES",
    "AudioFormat",
    "Author",
    "Latency",
    "Model",
    "Mp3Bitrate",
    "OpusBitrate",
    "ProsodyControl",
    "ReferenceAudio",
    "SampleEntity",
    "TTSRequest",
    "Visibility",
    "VoiceCreate",
    "VoiceModel",
    "VoiceState",
    "WireModel",
    "check_model",
]
