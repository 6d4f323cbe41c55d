from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from voicelab.audio.samples import Samples
from voicelab.call import Call
from voicelab.engine.local import LocalBackend
from voicelab.schema import TTSRequest, VoiceCreate, VoiceModel
from voicelab.voices.store import Sample, VoiceStore

COVER = b"\x89PNG\r\n\x1a\n not looked at here"
SAMPLES = (Sample(b"first sound", "one two", "Sample 1"), Sample(b"second sound", "", "Sample 2; noisy"))

Make = Callable[..., VoiceModel]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[VoiceStore]:
    with VoiceStore(tmp_path / "voices") as made:
        yield made


@pytest.fixture
def make(store: VoiceStore) -> Make:
    """Bring a voice through all its states."""

    def made(owner: str = "ann", **fields: object) -> VoiceModel:
        given = {"title": "Ada", "voices": (b"a", b"b"), "visibility": "private", **fields}
        voice = store.begin(VoiceCreate.build(**given), SAMPLES, owner, ("en",))
        store.train(voice)
        return store.finish(voice, "weights-1", b"speaker")

    return made


SENTENCES = (
    "The quick brown fox jumps over the lazy dog.",
    "She got a job in the historical section of the library.",
)


@dataclass(frozen=True)
class Spoken:
    """A sentence of the embedded voice, as 44.1 kHz samples."""

    text: str
    voice: str
    samples: Samples
    rate: int


@pytest.fixture(scope="session")
def spoken() -> tuple[Spoken, ...]:
    """Every sentence by two voices."""
    engine = LocalBackend("cpu")
    try:
        wanted = [(text, voice.id) for text in SENTENCES for voice in engine.capabilities.voices[:2]]
        requests = [TTSRequest(text=text, reference_id=voice, format="wav") for text, voice in wanted]
        streams = [engine.synthesize(Call(request, seed=1)) for request in requests]  # all in one batch
        clips = [stream.clip() for stream in streams]
    finally:
        engine.close()
    return tuple(Spoken(*names, clip.samples, clip.rate) for names, clip in zip(wanted, clips, strict=True))
