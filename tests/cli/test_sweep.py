from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from tests.tones import ToneBackend
from voicelab.audio.clip import Clip
from voicelab.experiments.manifest import load

VOICELAB = str(Path(sys.executable).with_name("voicelab"))
SPEC = """
text = "Hello."
repeats = 2

[fields]
format = "mp3"

[axes]
temperature = "0..1 step 0.5"
latency = ["low", "normal"]
"""


@pytest.fixture
def spec(tmp_path: Path) -> str:
    (tmp_path / "study.toml").write_text(SPEC)
    return "study.toml"


def test_a_folder_with_everything(run: Any, service: str, spec: str, tones: ToneBackend) -> None:
    done = run("sweep", spec, "--base-url", service)
    assert done.exit_code == 0, done.stderr
    assert "12 requests, 72 characters" in done.stdout
    assert "study: 12 of 12 takes, done" in done.stdout
    assert len(load("study/manifest.jsonl")) == 12
    table = pd.read_csv("study/takes.csv")
    assert len(table) == 12
    assert all(Clip.load(Path("study") / name).duration > 0.2 for name in table["file"])
    assert set(table["temperature"]) == {0.0, 0.5, 1.0}
    again = run("sweep", spec, "--base-url", service)
    assert "12 were there already" in again.stdout
    assert len(tones.asked) == 12


def test_an_estimate_makes_nothing(run: Any, service: str, spec: str, tones: ToneBackend) -> None:
    done = run("sweep", spec, "--estimate", "--base-url", service)
    assert (done.exit_code, tones.asked) == (0, [])
    assert "12 requests" in done.stdout
    assert not Path("study").exists()


def test_a_budget_that_is_too_small(run: Any, service: str, spec: str, tones: ToneBackend) -> None:
    Path(spec).write_text(SPEC + "[budget]\nrequests = 11\n")
    done = run("sweep", spec, "--base-url", service)
    assert (done.exit_code, tones.asked) == (2, [])
    assert "budget.requests" in done.stderr


def test_a_failure_is_told_and_is_no_success(run: Any, service: str, spec: str, tones: ToneBackend) -> None:
    Path(spec).write_text('text = ["Hello.", "Oh."]\n[axes]\nvoice = ["ada", "nobody"]\n')
    done = run("sweep", spec, "--base-url", service)
    assert done.exit_code == 1
    assert "2 failed" in done.stdout
    assert done.stderr.count("reference_id") >= 2
    assert len(load("study/manifest.jsonl").failures) == 2


def test_no_scheduler(run: Any, service: str, spec: str) -> None:
    done = run("sweep", spec, "--base-url", service, "--dask", "nonsense")
    assert done.exit_code == 2
    assert "dask" in done.stderr


def test_an_interrupt_keeps_what_is_made_and_the_same_command_goes_on(
    service: str, spec: str, tones: ToneBackend, tmp_path: Path
) -> None:
    tones.step = lambda _: time.sleep(0.03)
    command = [VOICELAB, "sweep", str(tmp_path / spec), "--base-url", service]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path)
    manifest = tmp_path / "study" / "manifest.jsonl"
    deadline = time.monotonic() + 60
    while (not manifest.exists() or manifest.read_text().count("\n") < 3) and time.monotonic() < deadline:
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    told, errors = process.communicate(timeout=30)
    assert process.returncode == 1, errors
    assert "cancelled" in told
    kept = len(load(manifest))
    assert 0 < kept < 12
    tones.step = lambda _: None
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stderr
    assert f"{kept} were there already" in done.stdout
