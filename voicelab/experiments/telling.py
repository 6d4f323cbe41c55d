"""What an error says to people: whole, but for what looks like a key."""

from __future__ import annotations

import re
from typing import Final

from voicelab.errors import VoicelabError

__all__ = ["told", "without_keys"]

_SECRET: Final = re.compile(
    r"(?i)(\bbearer\s+|\b(?:api|access|auth)?[_-]?(?:key|token|secret|password)[\"']?\s*[=:]\s*[\"']?)[^\s\"',;]+"
    r"|\b(?:vl_|sk-)[\w-]{12,}"
)


def without_keys(text: str) -> str:
    """Return a text with an ellipsis for everything that looks like a key."""
    return _SECRET.sub(lambda found: f"{found[1] or ''}…", text)


def told(error: BaseException) -> str:
    """Return an error's sentence without keys, with its class where it is none of ours.

    Errors of this program hold no secrets; those of somebody else's backend may.
    """
    ours = isinstance(error, VoicelabError) and str(error)
    return without_keys(str(error) if ours else f"{type(error).__name__}: {error}")
