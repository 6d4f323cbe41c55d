"""Client of servers with OpenAI's speech API, with the timeouts, retries and truncation checks of ServiceBackend."""

from __future__ import annotations

import base64
import json
import os
import time
from collections.abc import Generator, Iterable, Iterator
from contextlib import closing
from typing import Any, Final, Literal, get_args

from voicelab.audio.decoders import StreamDecoder
from voicelab.audio.encoders import StreamEncoder
from voicelab.audio.prosody import ProsodyProcessor
from voicelab.backends import wire
from voicelab.backends.caller import RetryPolicy, Timeouts
from voicelab.backends.service import ServiceBackend
from voicelab.backends.transport import run_blocking
from voicelab.call import Call, Knob, VoicePreset
from voicelab.capabilities import Capabilities, FieldSupport
from voicelab.errors import NotFound, RequestInvalid, ServiceError, StreamTruncated, VoicelabError, shown_value
from voicelab.schema import VoiceCreate, VoiceModel

API_KEY_VARIABLE: Final = "OPENAI_API_KEY"
_DEFAULT_URL: Final = "https://api.openai.com/v1"
_MODELS: Final = ("gpt-4o-mini-tts", "tts-1", "tts-1-hd")
"""Models of OpenAI, the default for servers without a list."""
_VOICES: Final = tuple("alloy ash ballad coral echo fable nova onyx sage shimmer verse".split())
"""Voices of OpenAI, which has no list; the first is the default for servers without a list."""
_PAUSE_S: Final = 10.0
_UNSUPPORTED: Final = "not supported by OpenAI's API"
_IGNORED: Final = tuple(
    FieldSupport(name, ignored=_UNSUPPORTED)
    for name in (
        "temperature", "top_p", "references", "chunk_length", "normalize", "latency", "max_new_tokens",
        "repetition_penalty", "min_chunk_length", "condition_on_previous_chunks", "early_stop_threshold",
    )
)  # fmt: skip
_INSTRUCTIONS: Final = Knob(
    "instructions", "str", "", "Speaking style, in words; ignored by tts-1 and many other models."
)


StreamFormat = Literal["audio", "sse"]
"""Transfer of audio: as the response body, or in server-sent events."""


def open_openai(address: str = "", *, api_key: str | None = None) -> OpenAIBackend:
    """Open ``openai:https://…`` or ``openai:https://…?stream_format=sse``.

    The key defaults to OPENAI_API_KEY. Raises like OpenAIBackend.
    """
    base_url, separator, stream_format = address.partition("?stream_format=")
    key = api_key or os.environ.get(API_KEY_VARIABLE) or None
    return OpenAIBackend(base_url or _DEFAULT_URL, key, stream_format=stream_format if separator else "audio")  # type: ignore[arg-type]


class OpenAIBackend(ServiceBackend):
    """Client of a server with OpenAI's speech API at ``base_url``, with or without ``/v1``.

    Requests WAV and converts it to the format, sample rate and volume of the call. Models and voices are those that the
    server lists; the first voice is the default. ``stream_format="sse"`` requests server-sent events, which some servers
    start earlier; plain audio in response is accepted. Other arguments and errors are those of ServiceBackend.
    """

    def __init__(
        self,
        base_url: str = _DEFAULT_URL,
        api_key: str | None = None,
        *,
        timeout: Timeouts | float | None = None,
        retry: RetryPolicy | None = None,
        stream_format: StreamFormat = "audio",
    ) -> None:
        if stream_format not in (formats := get_args(StreamFormat)):
            raise RequestInvalid.of(
                "stream_format",
                f"must be {' or '.join(map(repr, formats))}, got {shown_value(stream_format)}",
                in_="query",
            )
        self._stream_format = stream_format
        super().__init__(base_url.strip().rstrip("/").removesuffix("/v1"), api_key, timeout=timeout, retry=retry)
        self._capabilities: Capabilities | None = None
        self._next_probe = 0.0

    @property
    def capabilities(self) -> Capabilities:
        """Capabilities of the API, with the models and voices that the server lists. Never raises."""
        self._reopen_in_fork()
        with self._probing:
            if self._capabilities is None and time.monotonic() >= self._next_probe:
                try:
                    self._capabilities = self._list()
                except VoicelabError:  # unreachable, or the key is rejected
                    self._next_probe = time.monotonic() + _PAUSE_S
            return self._capabilities or self._declared((), ())

    def check(self) -> None:
        """Check address and key. Raises AuthenticationError, ServiceError."""
        run_blocking(self._caller.probe(_get("/v1/models"), self._transport()))

    def create_voice(self, request: VoiceCreate) -> VoiceModel:
        """Raise RequestInvalid: not in OpenAI's API."""
        message = f"{self.base_url} cannot create voices: not in OpenAI's API ({request.title!r})"
        raise RequestInvalid.of("voices", message, type="unsupported")

    def get_voice(self, id: str) -> VoiceModel:
        """Raise NotFound: not in OpenAI's API."""
        raise NotFound(f"{self.base_url} has no voice records, requested {id!r}", status=404)

    def _list(self) -> Capabilities:
        models = self._names("/v1/models", "data")
        tts_models = tuple(name for name, _ in models if "tts" in name.lower()) or tuple(name for name, _ in models)
        voices = tuple(VoicePreset(*labels) for labels in self._names("/v1/audio/voices", "voices"))
        return self._declared(tts_models, voices)

    def _names(self, path: str, key: str) -> list[tuple[str, str]]:
        """Request a list of (id, title); empty if the server has none. Raises ServiceError."""
        try:
            answer = run_blocking(self._caller.probe(_get(path), self._transport()))
            listed = json.loads(answer.body)[key]
        except (NotFound, ValueError, KeyError, TypeError):
            return []
        except ServiceError as error:
            if error.status in {400, 405, 501}:
                return []
            raise
        listed = listed if isinstance(listed, list) else []
        items = [item if isinstance(item, dict) else {"id": item} for item in listed if item]
        names = [(item.get("id") or item.get("voice_id") or item.get("name"), item.get("name")) for item in items]
        return [(id_, title if isinstance(title, str) else id_) for id_, title in names if isinstance(id_, str)]

    def _declared(self, models: tuple[str, ...], voices: tuple[VoicePreset, ...]) -> Capabilities:
        if not voices and self.base_url == _DEFAULT_URL.removesuffix("/v1"):
            voices = tuple(VoicePreset(name, name.capitalize()) for name in _VOICES)
        return Capabilities(
            name="openai",
            models=models or _MODELS,
            device="remote",
            seed="none",
            fingerprint=f"openai:{self.base_url}",
            voices=voices,
            fields=_IGNORED,
            knobs=(_INSTRUCTIONS,),
        )

    def _http_call(self, call: Call, capabilities: Capabilities) -> wire.HttpCall:
        voices = capabilities.voices
        body: dict[str, Any] = {
            "model": call.model,
            "input": call.request.text,
            "voice": call.request.reference_id or (voices[0].id if voices else _VOICES[0]),
            "response_format": "wav",
            **dict(call.knobs),
        }
        if call.request.prosody is not None and call.request.prosody.speed != 1.0:
            body["speed"] = call.request.prosody.speed
        accept = wire.ACCEPT
        if self._stream_format != "audio":
            body["stream_format"], accept = self._stream_format, f"{wire.EVENT_STREAM}, {accept}"
        return wire.audio_call("/v1/audio/speech", body, accept=accept)

    def _convert(self, call: Call, chunks: Generator[bytes, None, None]) -> Iterator[bytes]:
        request = call.request
        decoder, encoder = StreamDecoder("wav", request.rate), StreamEncoder.for_request(request, request.rate)
        prosody = ProsodyProcessor(request.rate, volume=request.prosody.volume if request.prosody else 0.0)
        with closing(chunks):
            for chunk in chunks if self._stream_format == "audio" else audio_of_events(chunks):
                yield encoder.feed(prosody.feed(decoder.feed(chunk)))
        yield encoder.feed(prosody.feed(decoder.finish())) + encoder.feed(prosody.finish()) + encoder.finish()


def audio_of_events(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the audio of server-sent events ``speech.audio.delta``, or the unchanged bytes of a WAV file.

    Raises StreamTruncated without a final ``speech.audio.done``, ServiceError for an error event or malformed events.
    """
    rest, data, done = b"", b"", False
    audio_chunks: list[bytes] = []
    incoming = iter(chunks)
    for chunk in incoming:
        rest += chunk
        if rest[:4] == b"RIFF":
            yield rest
            yield from incoming
            return
        *lines, rest = rest.replace(b"\r\n", b"\n").split(b"\n")
        for line in lines:
            if line.startswith(b"data:"):
                data += line[5:].strip()
            elif not line and data:
                audio, ended = _event(data)
                data, done = b"", done or ended
                if audio:
                    audio_chunks.append(audio)
                    yield audio
    if not done:
        partial = b"".join(audio_chunks)
        message = f"the events broke off after {len(partial)} bytes of audio, which are in the error's .partial"
        raise StreamTruncated(message, partial=partial)


def _event(data: bytes) -> tuple[bytes, bool]:
    """Return the audio of an event, and True if the stream ends. Raises ServiceError."""
    if data == b"[DONE]":
        return b"", True
    try:
        event = json.loads(data)
        kind = event.get("type", "")
        if kind == "speech.audio.delta":
            return base64.b64decode(event["audio"], validate=True), False
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise ServiceError(f"the service sent a malformed event: {data[:80]!a}") from None
    if kind == "error" or "error" in event:
        error = event.get("error", event)
        message = error.get("message") if isinstance(error, dict) else error
        raise ServiceError(f"the service sent an error event: {wire.plain(str(message))}")
    return b"", kind == "speech.audio.done"


def _get(path: str) -> wire.HttpCall:
    return wire.HttpCall("GET", path, wire.HEALTH.headers, "undelivered")
