"""OpenAIBackend: a server of OpenAI's speech API, with the waits, retries and truncation checks of every service."""

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
from voicelab.errors import NotFound, RequestInvalid, ServiceError, StreamTruncated, VoicelabError
from voicelab.schema import VoiceCreate, VoiceModel

API_KEY_VARIABLE: Final = "OPENAI_API_KEY"
"""As the official package has it."""
_HOME: Final = "https://api.openai.com/v1"
_MODELS: Final = ("gpt-4o-mini-tts", "tts-1", "tts-1-hd")
"""OpenAI's own, for a server that lists none."""
_VOICES: Final = tuple("alloy ash ballad coral echo fable nova onyx sage shimmer verse".split())
"""OpenAI's own, which cannot be asked for; the first is what a server is sent that lists none."""
_PAUSE_S: Final = 10.0
_NO_FIELD: Final = "OpenAI's API has no such field"
_IGNORED: Final = tuple(
    FieldSupport(name, ignored=_NO_FIELD)
    for name in (
        "temperature", "top_p", "references", "chunk_length", "normalize", "latency", "max_new_tokens",
        "repetition_penalty", "min_chunk_length", "condition_on_previous_chunks", "early_stop_threshold",
    )
)  # fmt: skip
_INSTRUCTIONS: Final = Knob("instructions", "str", "", "How to speak, in words; tts-1 and many other models ignore it.")


StreamFormat = Literal["audio", "sse"]
"""How a server is to send its audio: as it is, or as server-sent events."""


def open_openai(address: str = "", *, api_key: str | None = None) -> OpenAIBackend:
    """Open ``openai:https://…``, or ``openai:https://…?stream_format=sse``.

    The key is in OPENAI_API_KEY when it is not given. Raises like OpenAIBackend.
    """
    base_url, asked, wanted = address.partition("?stream_format=")
    key = api_key or os.environ.get(API_KEY_VARIABLE) or None
    return OpenAIBackend(base_url or _HOME, key, stream_format=wanted if asked else "audio")  # type: ignore[arg-type]


class OpenAIBackend(ServiceBackend):
    """Speaks through a server of OpenAI's speech API at ``base_url``, with or without its ``/v1``.

    The audio is asked for as WAV, and made the format, the rate and the volume of the call here. Models and voices are
    those that the server lists; without a voice the first of them speaks. With ``stream_format="sse"`` the audio is asked
    for as server-sent events, which some servers send sooner than audio; one that sends audio all the same is understood.
    Takes what ServiceBackend takes, and raises like it.
    """

    def __init__(
        self,
        base_url: str = _HOME,
        api_key: str | None = None,
        *,
        timeout: Timeouts | float | None = None,
        retry: RetryPolicy | None = None,
        stream_format: StreamFormat = "audio",
    ) -> None:
        if stream_format not in (listed := get_args(StreamFormat)):
            raise RequestInvalid.of("stream_format", f"Input should be {' or '.join(listed)}", in_="query")
        self._stream_format = stream_format
        super().__init__(base_url.strip().rstrip("/").removesuffix("/v1"), api_key, timeout=timeout, retry=retry)
        self._listed: Capabilities | None = None
        self._quiet_until = 0.0

    @property
    def capabilities(self) -> Capabilities:
        """What is assumed of such a server, with the models and voices that it lists. This never fails."""
        self._reopen_in_fork()
        with self._probing:
            if self._listed is None and time.monotonic() >= self._quiet_until:
                try:
                    self._listed = self._list()
                except VoicelabError:  # it was not reached, or does not take the key; it may be there the next time
                    self._quiet_until = time.monotonic() + _PAUSE_S
            return self._listed or self._declared((), ())

    def check(self) -> None:
        """Ask whether the server is there and takes the key. Raises AuthenticationError, ServiceError."""
        run_blocking(self._caller.probe(_get("/v1/models"), self._transport()))

    def create_voice(self, request: VoiceCreate) -> VoiceModel:
        """Refuse: there is no such call. Raises RequestInvalid."""
        message = f"{self.base_url} makes no voices: OpenAI's API has no such call"
        raise RequestInvalid.of("voices", f"{message} ({request.title!r})", type="unsupported")

    def get_voice(self, id: str) -> VoiceModel:
        """Refuse: there is no such call. Raises NotFound."""
        raise NotFound(f"{self.base_url} has no records of voices, so none of {id!r}", status=404)

    def _list(self) -> Capabilities:
        models = self._names("/v1/models", "data")
        speaking = tuple(name for name, _ in models if "tts" in name.lower()) or tuple(name for name, _ in models)
        voices = tuple(VoicePreset(*named) for named in self._names("/v1/audio/voices", "voices"))
        return self._declared(speaking, voices)

    def _names(self, path: str, key: str) -> list[tuple[str, str]]:
        """Return the (id, title) of what the server lists there, nothing where it has no list. Raises ServiceError."""
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
        return [(one, title if isinstance(title, str) else one) for one, title in names if isinstance(one, str)]

    def _declared(self, models: tuple[str, ...], voices: tuple[VoicePreset, ...]) -> Capabilities:
        if not voices and self.base_url == _HOME.removesuffix("/v1"):
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
        return wire.sound_call("/v1/audio/speech", body, accept=accept)

    def _received(self, call: Call, chunks: Generator[bytes, None, None]) -> Iterator[bytes]:
        request = call.request
        decoder, encoder = StreamDecoder("wav", request.rate), StreamEncoder.for_request(request, request.rate)
        prosody = ProsodyProcessor(request.rate, volume=request.prosody.volume if request.prosody else 0.0)
        with closing(chunks):
            for chunk in chunks if self._stream_format == "audio" else audio_of_events(chunks):
                yield encoder.feed(prosody.feed(decoder.feed(chunk)))
        yield encoder.feed(prosody.feed(decoder.finish())) + encoder.feed(prosody.finish()) + encoder.finish()


def audio_of_events(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the audio of server-sent events ``speech.audio.delta`` as it comes; of a WAV file, its bytes as they are.

    Raises StreamTruncated when no ``speech.audio.done`` ends it, ServiceError for an error among the events or none of them.
    """
    rest, data, done = b"", b"", False
    parts: list[bytes] = []
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
                    parts.append(audio)
                    yield audio
    if not done:
        partial = b"".join(parts)
        message = f"the events broke off after {len(partial)} bytes of audio; the error's .partial holds them"
        raise StreamTruncated(message, partial=partial)


def _event(data: bytes) -> tuple[bytes, bool]:
    """Return the audio of an event, and whether it is the last. Raises ServiceError."""
    if data == b"[DONE]":
        return b"", True
    try:
        event = json.loads(data)
        kind = event.get("type", "")
        if kind == "speech.audio.delta":
            return base64.b64decode(event["audio"], validate=True), False
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise ServiceError(f"the service sent an event that is none of speech: {data[:80]!a}") from None
    if kind == "error" or "error" in event:
        error = event.get("error", event)
        message = error.get("message") if isinstance(error, dict) else error
        raise ServiceError(f"the service broke off: {wire.plain(str(message))}")
    return b"", kind == "speech.audio.done"


def _get(path: str) -> wire.HttpCall:
    return wire.HttpCall("GET", path, wire.HEALTH.headers, "undelivered")
