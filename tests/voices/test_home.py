from __future__ import annotations

from pathlib import Path

import pytest

from voicelab.voices.home import data_home
from voicelab.voices.store import VoiceStore


def test_the_environment_names_the_data_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VOICELAB_HOME", str(tmp_path / "data"))
    assert data_home() == tmp_path / "data"
    assert VoiceStore().folder == tmp_path / "data" / "voices"
    monkeypatch.setenv("VOICELAB_HOME", "")
    assert data_home().name == "voicelab"
