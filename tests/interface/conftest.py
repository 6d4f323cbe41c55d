"""Real servers over real sockets: tones stand for speech where only the wire matters, else the embedded voice speaks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.interface.sound import file
from tests.interface.uploads import SAID
from tests.interface.wire import JSON, KINDS, Answer, Caller
from tests.served import serving
from tests.tones import ToneBackend
from voicelab.backend import Backend
from voicelab.engine.local import LocalBackend
from voicelab.schema import TTSRequest
from voicelab.service.keys import KeyStore
from voicelab.voices.store import VoiceStore

SENTENCE = "Four hours of work."


@dataclass
class Wire:
    """A service in which tones stand for speech: what a request is when it has arrived can be looked at."""

    backend: ToneBackend
    keys: KeyStore
    caller: Caller

    def arrived(self, kind: str = JSON, **fields: Any) -> TTSRequest:
        """Send a body and return what the backend was asked."""
        answer = self.caller.tts({"text": "Hi", "format": "pcm", **fields}, kind)
        assert answer.status == 200, answer.body[:300]
        return self.backend.asked[-1][0]

    def refused(self, kind: str = JSON, **fields: Any) -> Answer:
        before = len(self.backend.asked)
        answer = self.caller.tts({"text": "Hi", "format": "pcm", **fields}, kind)
        assert len(self.backend.asked) == before
        return answer


@dataclass
class Voice:
    """A service with the embedded voice. The same words said the same way are asked for once."""

    backend: LocalBackend
    folder: Path
    caller: Caller
    other: Caller
    said: dict[str, bytes] = field(default_factory=dict)

    def say(self, text: str = SENTENCE, *, seed: int = 1, kind: str = JSON, **fields: Any) -> bytes:
        value = {"text": text, "format": "pcm", "sample_rate": 16000, **fields}
        key = repr((sorted(value.items(), key=lambda item: item[0]), seed, kind))
        if key not in self.said:
            answer = self.caller.tts(value, kind, x_voicelab_seed=str(seed))
            assert answer.status == 200, answer.body[:300]
            self.said[key] = answer.body
        return self.said[key]


@contextmanager
def calling(backend: Backend, folder: Path, **limits: Any) -> Iterator[tuple[KeyStore, Caller]]:
    """Serve a backend, with its keys in a folder; give the keys, and somebody who has one."""
    with serving(folder, backend, **limits) as service:
        yield service.keys, Caller(service.url, service.secret)


@pytest.fixture(scope="session")
def wire(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Wire]:
    backend = ToneBackend()
    with calling(backend, tmp_path_factory.mktemp("wire")) as (keys, caller):
        yield Wire(backend, keys, caller)


@pytest.fixture(scope="session")
def voice(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Voice]:
    folder = tmp_path_factory.mktemp("voice")
    with (
        VoiceStore(folder / "voices", exclusive=True) as store,
        closing(LocalBackend("cpu", voices=store)) as backend,
        calling(backend, folder) as (keys, ada),
    ):
        yield Voice(backend, folder / "voices", ada, Caller(ada.url, keys.create("ben").secret))


@pytest.fixture(scope="session")
def speech(voice: Voice) -> bytes:
    """Three seconds of speech as a WAV file."""
    return file(voice.say(SAID), "WAV")


@pytest.fixture(scope="session")
def other_speech(voice: Voice) -> bytes:
    """Speech that is somebody else's, and has another length."""
    return file(voice.say(SAID + " " + SAID, reference_id="clara"), "WAV")


@pytest.fixture(params=KINDS, ids=["json", "msgpack"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)
