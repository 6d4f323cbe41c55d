"""Where voicelab keeps its data."""

from __future__ import annotations

import os
from pathlib import Path

import platformdirs

__all__ = ["data_home"]


def data_home() -> Path:
    """Return the folder of voicelab's data: ``VOICELAB_HOME``, or the platform's user data folder."""
    chosen = os.environ.get("VOICELAB_HOME")
    return Path(chosen) if chosen else Path(platformdirs.user_data_dir("voicelab", appauthor=False))
