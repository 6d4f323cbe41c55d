"""How notebooks are compared with what is committed: strictly, but for two things that differ by machine.

Rounding differs between processors, so the encoded sound and the picture inside an HTML output may
differ in their last bits; nbval compares HTML byte for byte. Their base64 is masked. All that is told
about them (duration, level, pitch, mel, size) is compared.
"""

from __future__ import annotations

import os
from tempfile import TemporaryDirectory

import pytest

from voicelab.checks import MASKS

_HOME = pytest.StashKey[TemporaryDirectory[str]]()


def pytest_configure(config: pytest.Config) -> None:
    """Name the file of masks, unless the command line names another; voices made here go to a folder that goes away."""
    config.stash[_HOME] = TemporaryDirectory(prefix="voicelab-")
    os.environ["VOICELAB_HOME"] = config.stash[_HOME].name
    if getattr(config.option, "nbval_sanitize_with", "absent") is None:
        config.option.nbval_sanitize_with = str(MASKS)


def pytest_unconfigure(config: pytest.Config) -> None:
    """Remove that folder."""
    if folder := config.stash.get(_HOME, None):
        folder.cleanup()
