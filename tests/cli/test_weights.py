from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import voicelab as vl
from tests.engine.dual.tiny import write_model
from tests.engine.dual.tiny_codec import REAL_TIME, save_codec, tiny_tensors
from tests.speechlike import speech_file


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    save_codec(write_model(tmp_path / "weights" / "s2-pro", "s2-pro") / "codec.pth", tiny_tensors(REAL_TIME))
    return tmp_path / "weights"


def test_check_reports_problems_with_status_1(run: Any, folder: Path) -> None:
    """Tiny weights are not those published."""
    done = run("weights", "check", str(folder))
    assert done.exit_code == 1
    assert "model-00001-of-00002.safetensors: PROBLEM: it must have" in done.stdout
    assert "not verified: its size, which is not listed" in done.stdout
    assert done.stdout.splitlines()[-1].startswith("6 files: 3 with problems, ")


def test_a_license_is_shown_accepted_once_and_written_into_what_is_made(
    run: Any, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("VOICELAB_ACCEPT_LICENSE", raising=False)
    with pytest.raises(vl.LicenseRequired, match="Fish Audio Research License") as raised:
        vl.connect(f"local:{folder}")
    assert f"voicelab weights accept {folder}" in str(raised.value)
    (folder / "s2-pro" / "LICENSE.md").write_text("all of it")
    refused = run("weights", "accept", str(folder), stdin="n\n")
    assert refused.exit_code == 1
    with pytest.raises(vl.LicenseRequired):
        vl.connect(f"local:{folder}")
    done = run.well("weights", "accept", str(folder), stdin="y\n")
    assert "research and non-commercial use" in done.stdout
    assert str(folder / "s2-pro" / "LICENSE.md") in done.stdout
    with vl.connect(f"local:{folder}") as lab:
        accepted = lab.capabilities.license
        assert accepted.startswith("Fish Audio Research License of 2026-03-07 (accepted 20")
        assert lab.capabilities.notice.startswith("Built with Fish Audio")
        voice = lab.create_voice("Ada", [speech_file(1.2)], texts=["Hello."], tags=["mine"])
        assert voice.tags == ("mine", accepted)
        lab.sweep("Hello.", temperature=[0.7], max_new_tokens=4).run(tmp_path / "run")
    made = vl.load(tmp_path / "run")
    assert [one.license for one in made.run.backends] == [accepted]


def test_accepting_needs_no_terminal(run: Any, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("VOICELAB_ACCEPT_LICENSE", raising=False)
    run.well("weights", "accept", "--yes", str(folder))
    vl.connect(f"local:{folder}").close()
