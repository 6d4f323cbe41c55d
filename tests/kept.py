from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.tones import ToneBackend, there
from voicelab.runs.cache import Cache
from voicelab.runs.folder import RunFolder
from voicelab.schema import TTSRequest


@pytest.fixture
def tones() -> ToneBackend:
    return ToneBackend()


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    return Cache(tmp_path / "cache")


def ask(text: str = "Hello", **fields: Any) -> TTSRequest:
    return TTSRequest.build(**{"format": "pcm", "sample_rate": 8000, **fields, "text": text})


def spoil(run: RunFolder, key: str) -> None:
    """Change a bit of the kept audio of a take."""
    record = there(run.record(key))
    path = run.takes.folder / record["sound"]
    data = bytearray(path.read_bytes())
    data[-10] ^= 4
    path.write_bytes(data)
