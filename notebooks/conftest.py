"""How notebooks are compared with what is committed: strictly, but for what differs by machine.

Encoded sound and pictures inside an HTML output may differ in their last bits, and nbval compares HTML byte for byte: their
base64 is masked. Rounding differs between kinds of processors, and with it what is said: where a notebook's outputs were made
on another kind than this one's, all figures are masked too, as `voicelab check` does.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from voicelab.checks import FIGURES, MASKS, processor

_HOME = pytest.StashKey[TemporaryDirectory[str]]()


def pytest_configure(config: pytest.Config) -> None:
    """Name the file of masks, unless the command line names another; voices made here go to a folder that goes away."""
    config.stash[_HOME] = TemporaryDirectory(prefix="voicelab-")
    os.environ["VOICELAB_HOME"] = config.stash[_HOME].name
    if getattr(config.option, "nbval_sanitize_with", "absent") is None:
        config.option.nbval_sanitize_with = str(_masks(Path(os.environ["VOICELAB_HOME"])))


def _masks(folder: Path) -> Path:
    """The file of masks that fits the processor here, in `folder` where it has to be made."""
    metadata = [json.loads(path.read_bytes())["metadata"] for path in Path(__file__).parent.glob("*.ipynb")]
    if {one.get("voicelab", {}).get("processor", processor()) for one in metadata} <= {processor()}:
        return MASKS
    both = folder / "masks.cfg"
    both.write_text("".join(file.read_text(encoding="utf-8") + "\n" for file in (MASKS, FIGURES)), encoding="utf-8")
    return both


def pytest_unconfigure(config: pytest.Config) -> None:
    """Remove that folder."""
    if folder := config.stash.get(_HOME, None):
        folder.cleanup()
