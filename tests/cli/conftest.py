"""A service that answers: a backend of tones, behind real HTTP on loopback."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from voicelab.audio.formats import StreamEncoder
from voicelab.backend import Capabilities, SpeechStream
from voicelab.cli import app
from voicelab.errors import NotFound
from voicelab.schema import Model, TTSRequest, VoiceCreate, VoiceModel
from voicelab.service.keys import KeyStore
from voicelab.service.run import running


class Tones:
    """A real, small backend: a tenth of a second for each word, of a pitch that the request decides."""

    RATE = 44100
    WORD_S = 0.1

    def __init__(self) -> None:
        self.requests: list[tuple[TTSRequest, Model, int | None]] = []

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities("tones", ("s1", "s2-pro"), "cpu", "exact", "tones-1")

    def synthesize(self, request: TTSRequest, *, model: Model = "s2-pro", seed: int | None = None) -> SpeechStream:
        self.requests.append((request, model, seed))
        chunks = self._chunks(request, seed)
        return SpeechStream(chunks, request=request, model=model, backend=self.capabilities, seed=seed)

    def create_voice(self, request: VoiceCreate) -> VoiceModel:
        raise NotFound(f"no place for {request.title}")

    def get_voice(self, id: str) -> VoiceModel:
        raise NotFound(id)

    def close(self) -> None:
        pass

    def _chunks(self, request: TTSRequest, seed: int | None) -> Iterator[bytes]:
        encoder = StreamEncoder(
            request.format,
            self.RATE,
            request.rate,
            mp3_bitrate=request.mp3_bitrate,
            opus_bitrate=request.opus_bitrate,
        )
        pitch = 200 + 100 * request.temperature + (seed or 0) % 50
        time = np.arange(int(self.RATE * self.WORD_S)) / self.RATE
        word = (0.3 * np.sin(2 * math.pi * pitch * time)).astype(np.float32)
        for _ in request.text.split():
            yield encoder.feed(word)
        yield encoder.finish()


Run = Callable[..., Any]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a command in an empty folder with a data folder of its own; the answer has exit_code, stdout, stderr."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("VOICELAB_HOME", str(tmp_path / "home"))
    runner = CliRunner()

    def call(*arguments: str, stdin: str | bytes | None = None) -> Any:
        return runner.invoke(app, list(arguments), input=stdin)

    return call


@pytest.fixture
def tones() -> Tones:
    return Tones()


@pytest.fixture
def service(tones: Tones, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The address of a running service of tones; its key is in the environment, as a user's would be."""
    with KeyStore(tmp_path / "service-keys.sqlite3") as keys:
        monkeypatch.setenv("VOICELAB_API_KEY", keys.create("cli").secret)
        with running(tones, keys=keys) as address:
            yield address
