"""PyAV, imported on first use because WAV and PCM do not need FFmpeg, whose libraries take 50 ms to load."""

from __future__ import annotations

from typing import Any


def __getattr__(name: str) -> Any:
    import av.filter

    return getattr(av, name)
