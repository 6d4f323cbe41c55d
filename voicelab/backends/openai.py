"""Client of servers with OpenAI's speech API, with the timeouts, retries and truncation checks of ServiceBackend."""

from __future__ import annotations

import base64
import json
import os
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass
from typing import Any, Final, Literal, get_args
from urllib.parse import parse_qsl

from voicelab.audio.decoders import StreamDecoder
from voicelab.audio.encoders import StreamEncoder, wav_header
from voicelab.audio.formats import sniff
from voicelab.audio.prosody import ProsodyProcessor
from voicelab.backends import wire
from voicelab.backends.caller import RetryPolicy, Timeouts, run_blocking
from voicelab.backends.service import ServiceBackend
from voicelab.call import EXTRA, Call, Knob, VoicePreset
from voicelab.capabilities import SYNTHESIS_FIELDS, Capabilities, FieldSupport, SeedSupport, check_call
from voicelab.errors import (
    ArgumentError,
    NotFound,
    RequestInvalid,
    ServiceError,
    StreamTruncated,
    VoicelabError,
    shown_value,
)
from voicelab.schema import ReferenceAudio, VoiceCreate, VoiceModel

API_KEY_VARIABLE: Final = "OPENAI_API_KEY"
_DEFAULT_URL: Final = "https://api.openai.com/v1"
_MODELS: Final = ("gpt-4o-mini-tts", "tts-1", "tts-1-hd")
"""Models of OpenAI, the default for servers that list no models."""
_VOICES: Final = tuple("alloy ash ballad cedar coral echo fable marin nova onyx sage shimmer verse".split())
"""Voices of OpenAI, whose API does not list them."""
_PCM_RATE: Final = 24_000
"""Sample rate of pcm in OpenAI's API, in Hz."""
_NO_HEADER: Final = (
    f"The server's events state no sample rate: {_PCM_RATE} Hz is assumed; responses without sse state it."
)
_PAUSE_S: Final = 10.0
_UNSUPPORTED: Final = "not supported by OpenAI's API"
_IGNORED: Final = tuple(FieldSupport(name, ignored=_UNSUPPORTED) for name in SYNTHESIS_FIELDS)
_NO_REFERENCES: Final = FieldSupport("references", ignored=_UNSUPPORTED)
_INSTRUCTIONS: Final = Knob(
    "instructions", "str", "", "Speaking style, in words; ignored by tts-1 and many other models."
)


@dataclass(frozen=True, slots=True)
class Profile:
    """Fields that a kind of server accepts in addition to OpenAI's.

    Sources: vLLM-Omni, "Speech API" (with its events); Kokoro-FastAPI, ``OpenAISpeechRequest``; Speaches,
    ``CreateSpeechRequestBody``.

    Args:
        knobs: backend parameters.
        seed: seed support; a seed is sent unless it is "none". If it is "unknown", the take has a note.
        references: whether ``ref_audio`` (a data URL) and ``ref_text`` clone a voice.
        stream: whether the server streams audio only if the request has ``stream_format``, which it accepts only at speed 1.
    """

    knobs: tuple[Knob, ...] = (_INSTRUCTIONS,)
    seed: SeedSupport = "unknown"
    references: bool = False
    stream: bool = False


_UNKNOWN: Final = Profile()
_TASKS: Final = ("CustomVoice", "VoiceDesign", "Base")
PROFILES: Final[Mapping[str, Profile]] = {
    "openai": Profile(seed="none"),  # its schema forbids unknown fields
    "vllm-omni": Profile(
        (
            _INSTRUCTIONS,
            Knob("language", "str", None, "Language, such as English; detected by default."),
            Knob("task_type", "str", None, "Task of Qwen3-TTS; inferred by default.", choices=_TASKS),
        ),
        seed="best-effort",
        references=True,
        stream=True,
    ),
    "kokoro-fastapi": Profile(
        (
            Knob("lang_code", "str", None, "Language in which the text is read; by default, that of the voice."),
            Knob("volume_multiplier", "float", None, "Factor by which the amplitude is multiplied."),
        )
    ),
    "speaches": Profile(()),
}
"""Profiles by name."""

StreamFormat = Literal["audio", "sse"]
"""Transfer of audio: as the response body, or in server-sent events."""


def open_openai(
    address: str = "",
    *,
    api_key: str | None = None,
    profile: str | None = None,
    fields: Mapping[str, object] | Iterable[tuple[str, object]] = (),
) -> OpenAIBackend:
    """Open ``openai:https://…``, optionally followed by options: ``?profile=vllm-omni&stream_format=sse``.

    The key defaults to OPENAI_API_KEY. Raises the same errors as OpenAIBackend.
    """
    base_url, _, query = address.partition("?")
    options: dict[str, Any] = dict(parse_qsl(query, keep_blank_values=True))
    for name in options.keys() - {"profile", "stream_format"}:
        raise RequestInvalid.of("backend", f"the options must be profile or stream_format, got {name!r}", in_="query")
    options |= {"profile": profile} if profile else {}
    key = api_key or os.environ.get(API_KEY_VARIABLE) or None
    return OpenAIBackend(base_url or _DEFAULT_URL, key, fields=fields, **options)


class OpenAIBackend(ServiceBackend):
    """Client of a server with OpenAI's speech API at ``base_url``, with or without ``/v1``.

    Requests WAV and converts it to the format, sample rate and volume of the call. Models and voices are those that the
    server lists. The first listed voice is the default; if the server lists no voices, a call must name one.

    ``stream_format="sse"`` requests server-sent events, because some servers start to send these earlier than plain audio.
    A response with plain audio is accepted too. ``profile`` is a key of PROFILES; by default, the properties of the server
    are unknown, so seeds are sent and recordings are rejected. ``fields`` declares further backend parameters: it maps
    their names to a list of strings or to a type. Other arguments and errors are those of ServiceBackend.
    """

    def __init__(
        self,
        base_url: str = _DEFAULT_URL,
        api_key: str | None = None,
        *,
        timeout: Timeouts | float | None = None,
        retry: RetryPolicy | None = None,
        stream_format: StreamFormat = "audio",
        profile: str | None = None,
        fields: Mapping[str, object] | Iterable[tuple[str, object]] = (),
    ) -> None:
        if profile not in {None, *PROFILES}:
            message = f"must be {' or '.join(map(repr, PROFILES))}, got {shown_value(profile)}"
            raise RequestInvalid.of("profile", message, in_="query")
        if stream_format not in (formats := get_args(StreamFormat)):
            raise RequestInvalid.of(
                "stream_format",
                f"must be {' or '.join(map(repr, formats))}, got {shown_value(stream_format)}",
                in_="query",
            )
        self._stream_format = stream_format
        super().__init__(base_url.strip().rstrip("/").removesuffix("/v1"), api_key, timeout=timeout, retry=retry)
        is_openai = self.base_url == _DEFAULT_URL.removesuffix("/v1")
        self._profile = PROFILES["openai"] if is_openai else PROFILES[profile] if profile else _UNKNOWN
        try:
            declared = dict(fields)
        except (TypeError, ValueError):
            example = '{"language": ["English", "Chinese"], "top_k": int}'
            raise ArgumentError.of("fields", f"must be a mapping such as {example}, got {fields!r}") from None
        added = tuple(_knob(name, values) for name, values in declared.items())
        self._knobs = (*added, *(knob for knob in self._profile.knobs if knob.name not in declared))
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
                except VoicelabError:  # unreachable, or the key is rejected: the call will raise the error
                    self._next_probe = time.monotonic() + _PAUSE_S
            return self._capabilities or self._declared((), (), listed=False)

    def check(self) -> None:
        """Check that the server is reachable and accepts the key. Raises AuthenticationError, ServiceError."""
        with suppress(NotFound):  # some servers list no models
            run_blocking(self._caller.probe(_get("/v1/models"), self._transport()))

    def create_voice(self, request: VoiceCreate) -> VoiceModel:
        """Raise RequestInvalid: OpenAI's API stores no voices."""
        message = f"{self.base_url} cannot create the voice {request.title!r}: OpenAI's API does not store voices"
        raise RequestInvalid.of("voices", message, type="unsupported")

    def get_voice(self, id: str) -> VoiceModel:
        """Raise NotFound: OpenAI's API stores no voices."""
        raise NotFound(f"{self.base_url} has no voice {id!r}: OpenAI's API does not store voices", status=404)

    def list_voices(self) -> tuple[VoiceModel, ...]:
        """Return an empty tuple: OpenAI's API stores no voices."""
        return ()

    def _list(self) -> Capabilities:
        models = self._items("/v1/models", "data")
        speech = [item for item in models if item.get("task") == "text-to-speech" or "tts" in str(item["id"]).lower()]
        tts_models = tuple(item["id"] for item in speech or models)
        listed = self._items("/v1/audio/voices", "voices")
        voices = tuple(VoicePreset(item["id"], str(item.get("name") or item["id"])) for item in listed)
        return self._declared(tts_models, voices)

    def _items(self, path: str, key: str) -> list[dict[str, Any]]:
        """Request a list, and return its objects without duplicate ids; empty if the server has none. Raises ServiceError."""
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
        by_id: dict[str, dict[str, Any]] = {}
        for item in (item if isinstance(item, dict) else {"id": item} for item in listed):
            id_ = item.get("id") or item.get("voice_id") or item.get("name")
            if isinstance(id_, str):
                by_id.setdefault(id_, {**item, "id": id_})
        return list(by_id.values())

    def _declared(
        self, models: tuple[str, ...], voices: tuple[VoicePreset, ...], *, listed: bool = True
    ) -> Capabilities:
        if not voices and self.base_url == _DEFAULT_URL.removesuffix("/v1"):
            voices = tuple(VoicePreset(name, name.capitalize()) for name in _VOICES)
        return Capabilities(
            name="openai",
            models=models or _MODELS,
            device="remote",
            seed=self._profile.seed,
            fingerprint=f"openai:{self.base_url}",
            voices=voices,
            fields=_IGNORED if self._profile.references else (*_IGNORED, _NO_REFERENCES),
            knobs=self._knobs,
            open_ended=True,
            voice_required=listed and not voices,
        )

    def _http_call(self, call: Call, capabilities: Capabilities) -> wire.HttpCall:
        request, voices = call.request, capabilities.voices
        references = () if request.reference_id is not None else request.references or ()
        voice = {"voice": request.reference_id or voices[0].id} if request.reference_id or voices else {}
        if not (references or voice or self._capabilities):
            self._capabilities = self._list()  # raises the error that explains why the voices are unknown
            return self._http_call(check_call(call, self._capabilities), self._capabilities)
        own = {name: value for name, value in call.knobs if not name.startswith(EXTRA)}
        speaker = self._reference(references) if references else voice
        body: dict[str, Any] = {"model": call.model, "input": request.text, **speaker, "response_format": "wav", **own}
        if call.seed is not None:
            body["seed"] = call.seed % 2**31  # some servers accept only 32 bits
        speed = request.prosody.speed if request.prosody is not None else 1.0
        if speed != 1.0:
            body["speed"] = speed
        sse, one_speed = self._stream_format == "sse", self._profile.stream
        if (sse or one_speed) and (speed == 1.0 or not one_speed):
            body["stream_format"] = self._stream_format
        accept = f"{wire.EVENT_STREAM}, {wire.ACCEPT}" if sse else wire.ACCEPT
        return wire.audio_call("/v1/audio/speech", wire.with_extra(body, call), accept=accept)

    def _reference(self, references: tuple[ReferenceAudio, ...]) -> dict[str, str]:
        """Return the request fields of the reference. Raises RequestInvalid for several or unsupported references."""
        if not self._profile.references:
            message = "the server would ignore a recording; connect with profile='vllm-omni' if it takes ref_audio"
            raise RequestInvalid.of("references", message, type="unsupported")
        if len(references) > 1:
            raise RequestInvalid.of("references", f"must be one recording, got {len(references)}")
        audio = references[0].audio
        url = f"data:audio/{sniff(audio)};base64,{base64.b64encode(audio).decode()}"
        return {"ref_audio": url, **({"ref_text": references[0].text} if references[0].text else {})}

    def _convert(
        self, call: Call, chunks: Generator[bytes, None, None], note: Callable[[str], object]
    ) -> Iterator[bytes]:
        request = call.request
        decoder, encoder = StreamDecoder("wav", request.rate), StreamEncoder.for_request(request, request.rate)
        prosody = ProsodyProcessor(request.rate, volume=request.prosody.volume if request.prosody else 0.0)
        with closing(chunks):
            for chunk in chunks if self._stream_format == "audio" else audio_of_events(chunks, note):
                yield encoder.feed(prosody.feed(decoder.feed(chunk)))
        yield encoder.feed(prosody.feed(decoder.finish())) + encoder.feed(prosody.finish()) + encoder.finish()


def audio_of_events(chunks: Iterable[bytes], note: Callable[[str], object]) -> Iterator[bytes]:
    """Yield the audio of server-sent events ``speech.audio.delta`` as one WAV file; pass plain WAV data through.

    Also reads the events of SGLang-Omni (``"audio": {"data": …}``, for requests with ``stream``).

    The events contain one WAV file in chunks, several WAV files, or samples without a header. In the last case, ``note`` is
    called with a text that states the assumed rate.

    Raises StreamTruncated if there is no final ``speech.audio.done``, ServiceError for an error event or malformed events.
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
                    is_file = audio[:4] == b"RIFF"
                    if not audio_chunks and not is_file:
                        note(_NO_HEADER)
                        yield wav_header(_PCM_RATE)
                    audio_chunks.append(audio)
                    yield audio.partition(b"data")[2][4:] if is_file and len(audio_chunks) > 1 else audio
    if not done:
        partial = b"".join(audio_chunks)
        message = f"the events broke off after {len(partial)} bytes of audio, which are in the error's .partial"
        raise StreamTruncated(message, partial=partial)
    if not audio_chunks:
        raise ServiceError("the service sent events without audio")


def _event(data: bytes) -> tuple[bytes, bool]:
    """Return the audio of an event, and whether it ends the stream. Raises ServiceError."""
    if data == b"[DONE]":
        return b"", True
    try:
        event = json.loads(data)
        kind, audio = event.get("type", ""), event.get("audio")
        if kind == "speech.audio.delta" or audio:
            return base64.b64decode(audio["data"] if isinstance(audio, dict) else audio, validate=True), False
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise ServiceError(f"the service sent a malformed event: {data[:80]!a}") from None
    if kind == "error" or "error" in event:
        error = event.get("error", event)
        message = error.get("message") if isinstance(error, dict) else error
        raise ServiceError(f"the service sent an error event: {wire.plain(str(message))}")
    return b"", kind == "speech.audio.done"


def _knob(name: str, values: object) -> Knob:
    """Return the backend parameter for an entry of ``fields``. Raises ArgumentError."""
    if isinstance(values, list | tuple) and values and all(isinstance(value, str) for value in values):
        return Knob(name, "str", None, choices=tuple(values))
    if isinstance(values, type) and values in {bool, int, float, str}:
        return Knob(name, values.__name__, None)  # type: ignore[arg-type]
    message = f"{name!r} must be a list of texts, or one of the types bool, int, float and str, got {values!r}"
    raise ArgumentError.of("fields", message)


def _get(path: str) -> wire.HttpCall:
    return wire.HttpCall("GET", path, wire.HEALTH.headers, "undelivered")
