"""Figures that tests of panels measure on their way: printed, and kept where bench/panels.py asks for them."""

from __future__ import annotations

import json
import os
from pathlib import Path

__all__ = ["VARIABLE", "figure"]

VARIABLE = "VOICELAB_FIGURES"
"""Environment variable that names a file: every figure is a line of JSON in it."""


def figure(name: str, value: float) -> None:
    """Print a figure, and keep it where somebody collects them."""
    print(f"{name}: {value:.1f}")  # noqa: T201 (pytest shows it with -s)
    if path := os.environ.get(VARIABLE):
        with Path(path).open("a", encoding="utf-8") as file:
            file.write(json.dumps({"name": name, "value": value}) + "\n")
