from __future__ import annotations

from tests.voices.conftest import spoken

__all__ = ["spoken"]
