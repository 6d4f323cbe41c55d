"""The values that the stages of the normalizer share."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

__all__ = ["Normalized", "Rules", "apply"]

Rules: TypeAlias = tuple[tuple[re.Pattern[str], Callable[[re.Match[str]], str] | str], ...]
"""(pattern, replacement) pairs in the order they apply."""


@dataclass(frozen=True, slots=True)
class Normalized:
    """Text ready for the next stage, and what was done to it that the user should know."""

    text: str
    notes: tuple[str, ...] = ()


def apply(rules: Rules, text: str) -> str:
    """`text` with each rule applied once, everywhere, in order."""
    for pattern, replacement in rules:
        text = pattern.sub(replacement, text)
    return text
