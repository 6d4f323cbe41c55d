from __future__ import annotations

import json
import os
import sqlite3
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


@pytest.mark.skipif(os.name == "nt", reason="a folder is made unusable with a file in its way")
def test_a_data_folder_that_cannot_be_used_is_trouble(
    run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("VOICELAB_HOME", str(tmp_path / "file" / "home"))
    done = run("doctor")
    assert done.exit_code == 1
    assert "TROUBLE" in done.stdout
