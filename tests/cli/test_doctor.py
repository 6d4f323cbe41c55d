from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from voicelab.cli.doctor import wal_reset_risk


@pytest.mark.parametrize(
    ("version", "risk"),
    [((3, 6, 23), False), ((3, 7, 0), True), ((3, 40, 1), True), ((3, 51, 2), True), ((3, 51, 3), False)],
)
def test_the_versions_with_the_wal_reset_defect(version: tuple[int, ...], risk: bool) -> None:
    assert wal_reset_risk(version) is risk


def _report(run: Any) -> dict[str, dict[str, str]]:
    done = run("doctor", "--json")
    report: dict[str, dict[str, str]] = json.loads(done.stdout)
    return report


def test_it_says_what_is_there(run: Any, tmp_path: Path) -> None:
    done = run("doctor")
    assert done.exit_code == 0, done.output
    report = _report(run)
    for name in ("python", "torch", "av", "ffmpeg", "device", "weights", "voices", "VOICELAB_HOME"):
        assert report[name]["value"]
        assert f"\n{name} " in "\n" + done.stdout
        assert report[name]["value"] in done.stdout
    assert report["sqlite"]["value"] == sqlite3.sqlite_version
    assert "libavcodec" in report["ffmpeg"]["value"]
    assert report["VOICELAB_HOME"]["value"] == str(tmp_path / "home")
    assert "note" not in report["numpy"]


def test_it_says_whether_there_is_a_key_and_never_which(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert _report(run)["VOICELAB_API_KEY"]["value"] == "not set"
    planted = "vl_" + "Qq" * 24 + "1"
    monkeypatch.setenv("VOICELAB_API_KEY", planted)
    done = run("doctor")
    assert "VOICELAB_API_KEY      set" in done.stdout
    assert planted[:12] not in done.output


@pytest.mark.parametrize(("service", "status"), [("", 1), ("http://127.0.0.1:9", 0)])
def test_without_torch_it_says_what_to_install(tmp_path: Path, service: str, status: int) -> None:
    # An interpreter of its own, in which torch is found and is not there.
    (tmp_path / "torch.py").write_text("raise ModuleNotFoundError('No module named torch', name='torch')\n")
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); from voicelab.cli import app; app(['doctor', '--json'])"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "VOICELAB_BASE_URL": service},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == status, done.stderr
    voice = json.loads(done.stdout)["voice"]
    assert "pip install 'voicelab[local]'" in voice["note" if service else "trouble"]


@pytest.mark.skipif(os.name == "nt", reason="a folder is made unusable with a file in its way")
def test_a_data_folder_that_cannot_be_used_is_trouble(
    run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("VOICELAB_HOME", str(tmp_path / "file" / "home"))
    done = run("doctor")
    assert done.exit_code == 1
    assert "TROUBLE" in done.stdout
