from __future__ import annotations

from tests.kept import cache, tones  # noqa: F401 - fixtures
