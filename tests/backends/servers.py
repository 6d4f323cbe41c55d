"""Stubs of OpenAI-compatible servers, made from their published schemas: real HTTP servers that speak tones.

Sources: ``openai.types.audio.SpeechCreateParams``; vLLM-Omni, ``OpenAICreateSpeechRequest``; Kokoro-FastAPI,
``OpenAISpeechRequest`` and its router; Speaches, ``CreateSpeechRequestBody`` and its routers. OpenAI refuses unknown
fields; the other three ignore them, as pydantic does by default. vLLM-Omni streams at speed 1 only.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

import numpy as np
import uvicorn
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from voicelab.audio.encoders import wav_header
from voicelab.service.run import ReadyServer, in_thread, listen

RATE = 24_000
Format = Literal["mp3", "opus", "aac", "flac", "wav", "pcm"]
Speed = Annotated[float, Field(ge=0.25, le=4.0)]
StreamFormat = Literal["audio", "sse"]


class OpenAIRequest(BaseModel):
    model_config = ConfigDict(extra="forbid")
    model: str
    input: str = Field(max_length=4096)
    voice: str
    instructions: str = ""
    response_format: Format = "mp3"
    speed: Speed = 1.0
    stream_format: StreamFormat = "audio"


class VllmOmniRequest(BaseModel):
    input: str
    model: str | None = None
    voice: str | None = None
    instructions: str | None = None
    response_format: Literal["wav", "pcm", "flac", "mp3", "opus"] = "wav"
    speed: Speed | None = 1.0
    stream_format: StreamFormat | None = None
    task_type: Literal["CustomVoice", "VoiceDesign", "Base"] | None = None
    language: str | None = None
    ref_audio: str | list[str] | None = None
    ref_text: str | None = None
    x_vector_only_mode: bool | None = None
    max_new_tokens: int | None = Field(default=None, ge=1)
    seed: int | None = None
    sample_rate: int | None = Field(default=None, gt=0)


class NormalizationOptions(BaseModel):
    normalize: bool = True
    unit_normalization: bool = False


class KokoroRequest(BaseModel):
    model: str = "kokoro"
    input: str
    voice: str = "af_heart"
    response_format: Format = "mp3"
    speed: Speed = 1.0
    stream: bool = True
    lang_code: str | None = None
    volume_multiplier: float | None = 1.0
    normalization_options: NormalizationOptions | None = NormalizationOptions()


class SpeachesRequest(BaseModel):
    model: str
    input: str
    voice: str
    response_format: Format = "mp3"
    speed: float = 1.0
    stream_format: StreamFormat = "audio"
    sample_rate: int | None = Field(None, ge=8000, le=48000)


@dataclass
class Stub:
    """A server: its schema, lists, and the fields that change the speech; ``asked`` are the accepted bodies."""

    schema: type[BaseModel]
    models: list[dict[str, str]]
    voices: list[Any] | None
    acting: tuple[str, ...]
    invalid: int = 422
    raw_events: bool = False
    one_speed: bool = False
    asked: list[dict[str, Any]] = field(default_factory=list)
    url: str = ""

    async def speech(self, request: Request) -> Response:
        body = await request.json()
        try:
            fields: Any = self.schema.model_validate(body)
        except ValidationError as error:
            return self._refused(json.loads(error.json(include_url=False)))
        names = [voice if isinstance(voice, str) else voice["name"] for voice in self.voices or ()]
        if names and fields.voice is not None and fields.voice.split("(")[0] not in names:
            return self._unknown(f"Voice '{fields.voice}' not found. Available voices: {', '.join(sorted(names))}")
        if self.one_speed and fields.stream_format and fields.speed != 1.0:
            return self._unknown("Streaming is not supported with speed adjustment.")
        self.asked.append(body)
        wav = wav_header(RATE) + self.samples(fields.model_dump())
        chunks = [wav[44:][at : at + 4801] for at in range(0, len(wav) - 44, 4801)]
        if getattr(fields, "stream_format", None) == "sse":
            return StreamingResponse(self._events(chunks), media_type="text/event-stream")
        return StreamingResponse(iter([wav[:44], *chunks]), media_type="audio/wav")

    def samples(self, fields: Mapping[str, Any]) -> bytes:
        """A tone of 40 ms per character; its pitch depends on the fields that act."""
        told = json.dumps({name: fields[name] for name in self.acting if fields.get(name) is not None})
        count = int(RATE * 0.04 * len(fields["input"]) / (fields["speed"] or 1.0))
        tone = np.sin(np.arange(count) * (200 + zlib.crc32(told.encode()) % 300) * 2 * np.pi / RATE)
        return (tone * 8000).astype("<i2").tobytes()

    def _events(self, chunks: list[bytes]) -> Iterator[str]:
        for index, chunk in enumerate(chunks):
            audio = chunk if index or self.raw_events else wav_header(RATE) + chunk
            delta = {"type": "speech.audio.delta", "audio": base64.b64encode(audio).decode(), "response_format": "wav"}
            yield f"event: speech.audio.delta\ndata: {json.dumps(delta)}\n\n"
        done = {"type": "speech.audio.done", "usage": {"total_tokens": 0}}
        yield f"event: speech.audio.done\ndata: {json.dumps(done)}\n\n"

    def _refused(self, errors: list[dict[str, Any]]) -> Response:
        if self.invalid == 422:  # FastAPI
            return JSONResponse({"detail": [{**item, "loc": ["body", *item["loc"]]} for item in errors]}, 422)
        parameter, message = ".".join(map(str, errors[0]["loc"])), errors[0]["msg"]
        error = {"message": message, "type": "invalid_request_error", "param": parameter, "code": None}
        return JSONResponse({"error": error}, 400)

    def _unknown(self, message: str) -> Response:
        if self.invalid == 422:  # Kokoro-FastAPI
            detail = {"error": "validation_error", "message": message, "type": "invalid_request_error"}
            return JSONResponse({"detail": detail}, 400)
        return JSONResponse({"error": {"message": message, "type": "BadRequestError", "param": None, "code": 400}}, 400)

    async def list_models(self, _: Request) -> Response:
        return JSONResponse({"object": "list", "data": [{"object": "model", **model} for model in self.models]})

    async def list_voices(self, _: Request) -> Response:
        if self.voices is None:
            return JSONResponse({"error": {"message": "Invalid URL", "type": "invalid_request_error"}}, 404)
        return JSONResponse({"voices": self.voices})


def stub(name: str) -> Stub:
    """Return the stub of a profile."""
    if name == "openai":
        models = [{"id": "whisper-1"}, {"id": "gpt-4o-mini-tts"}, {"id": "tts-1"}]
        return Stub(OpenAIRequest, models, None, ("model", "voice", "instructions"), invalid=400)
    if name == "vllm-omni":
        acting = ("voice", "instructions", "language", "ref_audio", "ref_text", "max_new_tokens", "seed")
        models = [{"id": "Qwen/Qwen3-TTS-12Hz-1.7B-CustomVoice"}]
        return Stub(VllmOmniRequest, models, ["vivian", "ryan"], acting, invalid=400, one_speed=True)
    if name == "kokoro-fastapi":
        models = [{"id": "tts-1"}, {"id": "tts-1-hd"}, {"id": "kokoro"}]
        options = ("lang_code", "volume_multiplier", "normalization_options")
        return Stub(KokoroRequest, models, ["af_heart", "af_sky"], ("voice", *options))
    models = [
        {"id": "Systran/faster-whisper-small", "task": "automatic-speech-recognition"},
        {"id": "speaches-ai/Kokoro-82M-v1.0-ONNX", "task": "text-to-speech"},
    ]
    voices = [{"name": "af_heart", "language": "en-us"}, {"name": "af_sky", "language": "en-us"}]
    return Stub(SpeachesRequest, models, voices, ("voice",), raw_events=True)


@contextmanager
def serving(name: str) -> Iterator[Stub]:
    """Run the stub of a profile during a ``with`` block."""
    server = stub(name)
    routes = [
        Route("/v1/audio/speech", server.speech, methods=["POST"]),
        Route("/v1/models", server.list_models),
        Route("/v1/audio/voices", server.list_voices),
    ]
    config = uvicorn.Config(Starlette(routes=routes), ws="none", lifespan="off", log_config=None)
    with in_thread(lambda ready: ReadyServer(config, ready), listen("127.0.0.1", 0), name) as server.url:
        yield server
