"""The tables of the interface document as data, copied cell by cell, and nothing from voicelab."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

MISSING = object()


@dataclass(frozen=True)
class Field:
    """A row: the type it names, its default, its bounds or its values."""

    type: str
    default: Any = MISSING
    required: bool = False
    null: bool = False
    low: float | None = None
    high: float | None = None
    values: tuple[Any, ...] = ()


# 2.1
TTS_REQUEST: dict[str, Field] = {
    "text": Field("string", required=True),
    "temperature": Field("number", 0.7, low=0, high=1),
    "top_p": Field("number", 0.7, low=0, high=1),
    "references": Field("array of ReferenceAudio", null=True),
    "reference_id": Field("string", None, null=True),
    "prosody": Field("ProsodyControl", None, null=True),
    "chunk_length": Field("integer", 300, low=100, high=300),
    "normalize": Field("boolean", True),
    "format": Field("string", "mp3", values=("wav", "pcm", "mp3", "opus")),
    "sample_rate": Field("integer", None, null=True),
    "mp3_bitrate": Field("integer", 128, values=(64, 128, 192)),
    "opus_bitrate": Field("integer", -1000, values=(-1000, 24, 32, 48, 64)),
    "latency": Field("string", "normal", values=("low", "normal", "balanced")),
    "max_new_tokens": Field("integer", 1024),
    "repetition_penalty": Field("number", 1.2),
    "min_chunk_length": Field("integer", 50, low=0, high=100),
    "condition_on_previous_chunks": Field("boolean", True),
    "early_stop_threshold": Field("number", 1, low=0, high=1),
}
# 2.2
REFERENCE_AUDIO: dict[str, Field] = {
    "audio": Field("binary", required=True),
    "text": Field("string", required=True),
}
# 2.3
PROSODY_CONTROL: dict[str, Field] = {
    "speed": Field("number", 1, low=0.5, high=2.0),
    "volume": Field("number", 0),
}
# 2.4
AUTHOR = ("_id", "nickname", "avatar")
VOICE_MODEL: dict[str, Field] = {
    "_id": Field("string", required=True),
    "type": Field("string", required=True, values=("svc", "tts")),
    "title": Field("string", required=True),
    "description": Field("string", required=True),
    "cover_image": Field("string", required=True),
    "state": Field("string", required=True, values=("created", "training", "trained", "failed")),
    "tags": Field("array of string", required=True),
    "created_at": Field("date-time", required=True),
    "updated_at": Field("date-time", required=True),
    "visibility": Field("string", required=True, values=("public", "unlist", "private")),
    "like_count": Field("integer", required=True),
    "mark_count": Field("integer", required=True),
    "shared_count": Field("integer", required=True),
    "task_count": Field("integer", required=True),
    "author": Field("object", required=True),
    "train_mode": Field("string", "full", values=("fast", "full")),
    "samples": Field("array of SampleEntity"),
    "languages": Field("array of string"),
    "lock_visibility": Field("boolean", False),
    "unliked": Field("boolean", False),
    "liked": Field("boolean", False),
    "marked": Field("boolean", False),
}
# 4.1, the audio format rules: (sample rates, default rate)
RATES: dict[str, tuple[tuple[int, ...], int]] = {
    "wav": ((8000, 16000, 24000, 32000, 44100), 44100),
    "pcm": ((8000, 16000, 24000, 32000, 44100), 44100),
    "mp3": ((32000, 44100), 44100),
    "opus": ((48000,), 48000),
}
# 4.2
VOICE_FORM: dict[str, Field] = {
    "type": Field("string", required=True, values=("tts",)),
    "title": Field("string", required=True),
    "train_mode": Field("string", required=True, values=("fast",)),
    "voices": Field("files", required=True),
    "visibility": Field("string", "public", values=("public", "unlist", "private")),
    "description": Field("string", None, null=True),
    "cover_image": Field("file", None, null=True),
    "texts": Field("strings"),
    "tags": Field("strings"),
    "enhance_audio_quality": Field("boolean", False),
}
# 7.1, 422
ERROR_PLACES = ("path", "query", "header", "cookie", "body")
MODELS = ("s1", "s2-pro")
