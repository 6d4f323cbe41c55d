from __future__ import annotations

from tests.utterances import utterances  # noqa: F401 - fixture
