"""The same voice as OpenAI's speech API has it, so that programs written for that one speak with it unchanged.

``POST /v1/audio/speech``, ``GET /v1/models``, ``GET /v1/models/{id}``, and ``GET /v1/audio/voices``, which other
compatible servers have too. Errors of these routes have OpenAI's shape. What is not OpenAI's may be said besides: every
field of the interface, ``seed``, and the backend's own knobs (``extra_body`` in the official package).
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
from voicelab.errors import FieldError, NotFound, RequestInvalid
from voicelab.schema import FORMATS
from voicelab.service.responses import json_response

SPEECH: Final = "/v1/audio/speech"
MODELS: Final = "/v1/models"
VOICES: Final = "/v1/audio/voices"

_PCM_RATE: Final = 24_000
"""Hz of pcm, which has no header that could say it: OpenAI's."""
_RENAMED: Final = ("text", "format", "reference_id", "references")
"""Fields that are said otherwise here; references are audio, which this body does not carry."""


def openai_call(wire: object, capabilities: Capabilities) -> Call:
    """Return the call that a body of OpenAI's stands for. Raises RequestInvalid, with the fields as that body names them."""
    if not isinstance(wire, Mapping):
        raise RequestInvalid.of("input", "The body should be a JSON object with model, input and voice")
    fields: dict[str, Any] = {name: value for name, value in wire.items() if value is not None}
    text, wanted = fields.pop("input", ""), fields.pop("response_format", "mp3")
    voice = fields.pop("voice", None)
    problems = [
        FieldError(("body", name), "unsupported", f"Input should be {' or '.join(allowed)}")
        for name, value, allowed in (
            ("response_format", wanted, FORMATS),
            ("stream_format", fields.pop("stream_format", "audio"), ("audio", "sse")),
            ("model", fields.get("model"), capabilities.models),
        )
        if value not in allowed
    ]
    knobs = {knob.name for knob in capabilities.knobs}
    problems += [
        FieldError(("body", name), "extra_forbidden", "There is no such field here")
        for name in fields
        if name not in knobs and (name in _RENAMED or not is_field(name))
    ]
    if problems:
        raise RequestInvalid(problems)
    if voice is not None:
        fields["voice"] = voice.get("id", "") if isinstance(voice, Mapping) else voice
    if wanted == "pcm":
        fields.setdefault("sample_rate", _PCM_RATE)
    return Call.of(text, knobs=capabilities.knobs, format=wanted, **fields)


def asks_for_events(wire: object) -> bool:
    """Whether a body asks for its audio as server-sent events."""
    return isinstance(wire, Mapping) and wire.get("stream_format") == "sse"


def audio_event(audio: bytes) -> bytes:
    """Return the event that carries a piece of audio."""
    return _event({"type": "speech.audio.delta", "audio": base64.b64encode(audio).decode("ascii")})


def last_event(characters: int) -> bytes:
    """Return the event after all audio; its usage counts characters of text, by which keys are charged, as tokens."""
    usage = {"input_tokens": characters, "output_tokens": 0, "total_tokens": characters}
    return _event({"type": "speech.audio.done", "usage": usage})


def _event(fields: Mapping[str, Any]) -> bytes:
    return b"data: " + json.dumps(fields, separators=(",", ":")).encode() + b"\n\n"


def models_answer(capabilities: Capabilities, id: str | None = None) -> Response:
    """Return the list of the backend's models, or one of them. Raises NotFound."""
    models = [
        {"id": name, "object": "model", "created": 0, "owned_by": capabilities.name} for name in capabilities.models
    ]
    if id is None:
        return json_response({"object": "list", "data": models})
    for model in models:
        if model["id"] == id:
            return json_response(model)
    raise NotFound(f"There is no model {id!a}", status=404)


def voices_answer(backend: Backend) -> Response:
    """Return the backend's voices and the caller's stored ones, with what ``voice`` takes as their ids."""
    voices = [
        {"id": voice.id, "name": voice.title, "description": voice.description} for voice in backend.capabilities.voices
    ]
    stored = [{"id": one.id, "name": one.title, "description": one.description} for one in list_voices(backend)]
    return json_response({"voices": voices + stored})
