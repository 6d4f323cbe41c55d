"""A small voice for tests: real audio through real codecs, in which every note depends on the request."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import TypeVar

import numpy as np

from voicelab.audio.encoders import StreamEncoder
from voicelab.backend import SpeechStream
from voicelab.call import Call, VoicePreset
from voicelab.capabilities import Capabilities, check_seed_support, check_text_length
from voicelab.errors import NotFound, RequestInvalid
from voicelab.schema import Author, TTSRequest, VoiceCreate, VoiceModel

RATE = 24_000
NOTE = 1_200  # samples: 50 ms
VOICES = (VoicePreset("ada", "Ada", "low and calm"), VoicePreset("ben", "Ben"))
DECLARED = (*VOICES, VoicePreset("nobody", "Nobody"))
"""For a backend that declares a voice and then refuses it."""


T = TypeVar("T")


def there(value: T | None) -> T:
    """Return what must be there."""
    assert value is not None
    return value


def until(true: Callable[[], object], seconds: float = 10) -> None:
    """Wait for something to become true."""
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "it never came"
        time.sleep(0.002)


class ToneBackend:
    """Says a note for every character. ``step`` is called before each note with its number, and may raise or wait."""

    def __init__(self, step: Callable[[int], object] = lambda _: None, **declared: object) -> None:
        self.step = step
        self.asked: list[tuple[TTSRequest, str, int | None]] = []
        self.open = 0
        fields: dict[str, object] = {
            "name": "tones",
            "models": ("s1", "s2-pro"),
            "device": "cpu",
            "seed": "exact",
            "fingerprint": "tones-1",
            "languages": ("en",),
            "voices": VOICES,
            "max_text": 20_000,
        }
        self._capabilities = Capabilities(**{**fields, **declared})  # type: ignore[arg-type]

    @property
    def capabilities(self) -> Capabilities:
        return self._capabilities

    def synthesize(self, call: Call) -> SpeechStream:
        request = call.request
        check_text_length(request, self._capabilities.max_text)
        check_seed_support(call, self._capabilities)
        if request.reference_id is not None and request.reference_id not in {voice.id for voice in VOICES}:
            raise RequestInvalid.of("reference_id", "There is no such voice", type="not_found")
        self.asked.append((request, call.model, call.seed))
        self.open += 1
        return SpeechStream(self._notes(call), call=call, backend=self._capabilities, on_close=self._closed)

    def create_voice(self, request: VoiceCreate) -> VoiceModel:
        raise NotFound(f"tones have no voice like {request.title}")

    def get_voice(self, id: str) -> VoiceModel:
        raise NotFound(f"tones have no voice {id}")

    def close(self) -> None:
        return

    def _closed(self) -> None:
        self.open -= 1

    def _notes(self, call: Call) -> Iterator[bytes]:
        request = call.request
        encoder = StreamEncoder(
            request.format, RATE, request.rate, mp3_bitrate=request.mp3_bitrate, opus_bitrate=request.opus_bitrate
        )
        identity = json.dumps([request.canonical(), call.model, call.seed], sort_keys=True)
        at = np.arange(NOTE) / RATE
        for number in range(len(request.text)):
            self.step(number)
            digest = hashlib.sha256(f"{identity}{number}".encode()).digest()
            pitch = 110 + digest[0] * 2
            yield encoder.feed((0.3 * np.sin(2 * np.pi * pitch * at)).astype(np.float32))
        yield encoder.finish()


class Keeper(ToneBackend):
    """Tones that also keep voices: what was asked for last, and all that were made, the newest first."""

    def __init__(self, step: Callable[[int], object] = lambda _: None, **declared: object) -> None:
        super().__init__(step, **declared)
        self.created: VoiceCreate | None = None
        self.made: list[VoiceModel] = []

    def synthesize(self, call: Call) -> SpeechStream:
        if call.request.reference_id not in {voice.id for voice in self.made}:
            return super().synthesize(call)
        stream = super().synthesize(call.replace(reference_id=VOICES[0].id))
        self.asked[-1] = (call.request, call.model, call.seed)
        return stream

    def create_voice(self, request: VoiceCreate) -> VoiceModel:
        self.created, now = request, datetime.now(UTC)
        times = {"created_at": now, "updated_at": now}
        made = {"id": f"{len(self.made):032x}", "title": request.title, "visibility": request.visibility}
        self.made.insert(0, VoiceModel(**made, **times, state="trained", author=Author(id="me")))  # type: ignore[arg-type]
        return self.made[0]

    def get_voice(self, id: str) -> VoiceModel:
        for voice in self.made:
            if voice.id == id:
                return voice
        raise NotFound(f"no voice {id}", status=404)
