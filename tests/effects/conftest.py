"""The voice inside the package, once for all tests of effects."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.effects.measure import Voice
from voicelab.engine.local import LocalBackend


@pytest.fixture(scope="session")
def voice() -> Iterator[Voice]:
    backend = LocalBackend("cpu")
    yield Voice(backend)
    backend.close()
