"""Accept the licenses for weights drawn at random."""

from __future__ import annotations

from collections.abc import Iterator

import pytest


@pytest.fixture(scope="session", autouse=True)
def _accepted() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VOICELAB_ACCEPT_LICENSE", "1")
        yield
