from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.tones import ToneBackend
from voicelab.experiments.cache import Cache
from voicelab.schema import TTSRequest


@pytest.fixture
def tones() -> ToneBackend:
    return ToneBackend()


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    return Cache(tmp_path / "cache")


def ask(text: str = "Hello", **fields: Any) -> TTSRequest:
    return TTSRequest.build(**{"format": "pcm", "sample_rate": 8000, **fields, "text": text})
