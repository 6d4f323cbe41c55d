"""What a manifest says about the machine and the libraries that made a take; nothing that names a person."""

from __future__ import annotations

import os
import platform
import re
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import voicelab

__all__ = ["hardware", "libraries"]

# Whatever may change a sample: encoders, resamplers, the engine; and what measures.
_LIBRARIES = (
    "av",
    "httpx",
    "librosa",
    "msgpack",
    "numpy",
    "pandas",
    "pyloudnorm",
    "safetensors",
    "scipy",
    "soxr",
    "torch",
)


def libraries() -> dict[str, str]:
    """Return the versions of Python, voicelab and of the installed libraries that make or measure audio."""
    found = {"python": platform.python_version(), "voicelab": voicelab.__version__}
    for name in _LIBRARIES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def hardware() -> dict[str, Any]:
    """Return system, architecture, processor, its logical cores, and memory in bytes (None when unknown)."""
    return {
        "system": platform.system(),
        "machine": platform.machine(),
        "processor": _processor(),
        "cores": os.cpu_count(),
        "memory": _memory(),
    }


def _processor() -> str:
    try:
        named = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(encoding="utf-8"), re.MULTILINE)
    except (OSError, UnicodeDecodeError):
        named = None
    return named[1] if named else platform.processor()


def _memory() -> int | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return None
