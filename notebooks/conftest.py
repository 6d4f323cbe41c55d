"""How notebooks are compared with what is committed: strictly, but for two things that differ by machine.

Rounding differs between processors, so the encoded sound and the picture inside an HTML output may
differ in their last bits; nbval compares HTML byte for byte. Their base64 is masked. All that is told
about them (duration, level, pitch, mel, size) is compared.
"""

from __future__ import annotations

from pathlib import Path

import pytest


def pytest_configure(config: pytest.Config) -> None:
    """Name the file of masks, unless the command line names another."""
    if getattr(config.option, "nbval_sanitize_with", "absent") is None:
        config.option.nbval_sanitize_with = str(Path(__file__).with_name("masks.cfg"))
