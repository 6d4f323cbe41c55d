from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.utterances import utterances  # noqa: F401 - fixture
from voicelab.schema import VoiceCreate, VoiceModel
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
