"""What every test gets: no network beyond loopback, a data folder of its own, no key from outside."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

_HERMETIC = Path(__file__).parent / "hermetic"


def _install_guard() -> None:
    spec = importlib.util.spec_from_file_location("voicelab_hermetic", _HERMETIC / "sitecustomize.py")
    assert spec is not None
    assert spec.loader is not None
    spec.loader.exec_module(importlib.util.module_from_spec(spec))


_install_guard()


@pytest.fixture(scope="session", autouse=True)
def _clean_environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for name in ("VOICELAB_API_KEY", "VOICELAB_BASE_URL"):
            patch.delenv(name, raising=False)
        patch.setenv("VOICELAB_HOME", str(tmp_path_factory.mktemp("voicelab-home")))
        # Programs that tests start are guarded too.
        inherited = os.environ.get("PYTHONPATH")
        patch.setenv("PYTHONPATH", os.pathsep.join(filter(None, (str(_HERMETIC), inherited))))
        yield
