"""OpenAI's speech API, for existing clients.

The endpoints are ``POST /v1/audio/speech``, ``GET /v1/models``, ``GET /v1/models/{id}`` and, as in other compatible servers,
``GET /v1/audio/voices``. Errors have OpenAI's format. Requests may have additional fields (``extra_body`` in the openai
package): the other fields of the interface, ``seed``, and backend parameters.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Any, Final

from starlette.responses import Response

from voicelab.backend import Backend, list_voices
from voicelab.call import Call, is_field
from voicelab.capabilities import Capabilities
from voicelab.errors import FieldError, NotFound, RequestInvalid, shown_value
from voicelab.schema import FORMATS
from voicelab.service.responses import json_response

SPEECH: Final = "/v1/audio/speech"
MODELS: Final = "/v1/models"
VOICES: Final = "/v1/audio/voices"

_PCM_RATE: Final = 24_000
"""Sampling rate of pcm in Hz, as in OpenAI's API."""
_REPLACED_FIELDS: Final = ("text", "format", "reference_id", "references")
"""Interface fields that requests of this API do not have: most have other names, and JSON cannot contain references."""


def openai_call(wire: object, capabilities: Capabilities) -> Call:
    """Convert a body of OpenAI's API to a call. Raises RequestInvalid with OpenAI's field names."""
    if not isinstance(wire, Mapping):
        raise RequestInvalid.of("input", "the body must be a JSON object with model, input and voice")
    fields: dict[str, Any] = {name: value for name, value in wire.items() if value is not None}
    text, audio_format = fields.pop("input", ""), fields.pop("response_format", "mp3")
    voice = fields.pop("voice", None)
    problems = [
        FieldError(("body", name), "unsupported", f"must be {' or '.join(allowed)}, got {shown_value(value)}")
        for name, value, allowed in (
            ("response_format", audio_format, FORMATS),
            ("stream_format", fields.pop("stream_format", "audio"), ("audio", "sse")),
            ("model", fields.get("model"), capabilities.models),
        )
        if value not in allowed
    ]
    knobs = {knob.name for knob in capabilities.knobs}
    problems += [
        FieldError(("body", name), "extra_forbidden", "Unknown field")
        for name in fields
        if name not in knobs and (name in _REPLACED_FIELDS or not is_field(name))
    ]
    if problems:
        raise RequestInvalid(problems)
    if voice is not None:
        fields["voice"] = voice.get("id", "") if isinstance(voice, Mapping) else voice
    if audio_format == "pcm":
        fields.setdefault("sample_rate", _PCM_RATE)
    return Call.of(text, knobs=capabilities.knobs, format=audio_format, **fields)


def asks_for_events(wire: object) -> bool:
    """Return True if a body requests server-sent events."""
    return isinstance(wire, Mapping) and wire.get("stream_format") == "sse"


def audio_event(audio: bytes) -> bytes:
    """Encode a chunk of audio as an event."""
    return _event({"type": "speech.audio.delta", "audio": base64.b64encode(audio).decode("ascii")})


def done_event(characters: int) -> bytes:
    """Encode the final event; its ``usage`` reports the number of charged characters as tokens."""
    usage = {"input_tokens": characters, "output_tokens": 0, "total_tokens": characters}
    return _event({"type": "speech.audio.done", "usage": usage})


def _event(fields: Mapping[str, Any]) -> bytes:
    return b"data: " + json.dumps(fields, separators=(",", ":")).encode() + b"\n\n"


def models_answer(capabilities: Capabilities, id: str | None = None) -> Response:
    """List the backend's models, or describe one of them. Raises NotFound."""
    models = [
        {"id": name, "object": "model", "created": 0, "owned_by": capabilities.name} for name in capabilities.models
    ]
    if id is None:
        return json_response({"object": "list", "data": models})
    for model in models:
        if model["id"] == id:
            return json_response(model)
    raise NotFound(f"Unknown model {id!a}", status=404)


def voices_answer(backend: Backend) -> Response:
    """List the presets and the caller's stored voices; their ids are values of ``voice``."""
    voices = [
        {"id": voice.id, "name": voice.title, "description": voice.description} for voice in backend.capabilities.voices
    ]
    stored = [{"id": voice.id, "name": voice.title, "description": voice.description} for voice in list_voices(backend)]
    return json_response({"voices": voices + stored})
