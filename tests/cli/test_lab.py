"""``voicelab lab``: the self-check speaks, and the notebook is executed or JupyterLab answers."""

from __future__ import annotations

import itertools
import os
import re
import signal
import socket
import subprocess
import sys
import time
import wave
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from tests.checks.conftest import notebook
from tests.served import VOICELAB, until
from voicelab.cli.lab import _execute, _jupyterlab, is_interactive
from voicelab.errors import EngineError


@pytest.mark.thorough
def test_headless_synthesizes_and_executes_the_notebook(tmp_path: Path) -> None:
    notebook(tmp_path / "a.ipynb", ("print(6 * 7, 'is the answer')",))
    # As make does it: begun 100 s ago, or a little more.
    command = [VOICELAB, "lab", "a.ipynb", f"--since={time.time() - 100:.0f}"]
    environment = {**os.environ, "HEADLESS": "1"}
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    report, written = done.stdout.splitlines()
    match = re.fullmatch(r"(\S+): (\d+\.\d\d) s of audio in \d+\.\d\d s on \S.*", report)
    assert match is not None
    with wave.open(str(tmp_path / match[1])) as file:
        assert file.getnframes() / file.getframerate() == pytest.approx(float(match[2]), abs=0.01)
        assert 1 < float(match[2]) < 8
        samples = np.frombuffer(file.readframes(10**9), "<i2")
        # Speech, not silence: loud somewhere.
        assert abs(samples).max() > 1000
    assert re.fullmatch(r"build/a\.html: a\.ipynb, executed in \d+ s, 1\d\d s in total", written)
    assert "42 is the answer" in (tmp_path / "build" / "a.html").read_text(encoding="utf-8")


def test_failing_notebook(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    notebook(tmp_path / "a.ipynb", ("1 / 0",))
    with pytest.raises(EngineError, match=r"a\.ipynb failed; see the end of its error output above"):
        _execute(tmp_path / "a.ipynb", tmp_path)
    assert "ZeroDivisionError" in capsys.readouterr().err


def test_missing_notebook(run: Any) -> None:
    assert "notebooks/01_quickstart.ipynb does not exist" in run.refused("lab")


@pytest.mark.thorough
def test_jupyterlab_opens_the_notebook(tmp_path: Path) -> None:
    notebook(tmp_path / "a.ipynb", ("1 + 1",))
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    passed_on = ["--no-browser", f"--ServerApp.port={port}", "--IdentityProvider.token=t", "--allow-root"]
    arguments = [f"--jupyter={argument}" for argument in passed_on]
    command = [VOICELAB, "lab", "a.ipynb", "--no-headless", *arguments]
    environment = {**os.environ, "JUPYTER_CONFIG_DIR": str(tmp_path), "JUPYTER_DATA_DIR": str(tmp_path)}
    with subprocess.Popen(
        command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment
    ) as process:
        try:
            until(lambda: process.poll() is not None or _answers(f"http://127.0.0.1:{port}/api/status?token=t"), 120)
            page = httpx.get(f"http://127.0.0.1:{port}/lab/tree/a.ipynb?token=t", timeout=30, follow_redirects=True)
            assert page.status_code == 200
            assert "JupyterLab" in page.text
            assert process.stdout is not None
            told = list(itertools.islice(process.stdout, 3))
            assert re.fullmatch(rf"JupyterLab answers at http://[a-z0-9.]+:{port}/ in \d+ s\n", told[2])
        finally:
            # Whoever ends the command ends JupyterLab.
            process.terminate()
            process.communicate(timeout=30)
    with pytest.raises(httpx.TransportError):
        httpx.get(f"http://127.0.0.1:{port}/api", timeout=5)


def test_port_in_use(tmp_path: Path) -> None:
    notebook(tmp_path / "a.ipynb", ("1 + 1",))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        passed_on = [f"--ServerApp.port={taken.getsockname()[1]}", "--ServerApp.port_retries=0", "--allow-root"]
        with pytest.raises(EngineError, match=r"exited with status 1 during startup; .* --jupyter=--port="):
            _jupyterlab([str(tmp_path / "a.ipynb"), "--no-browser", *passed_on], None)


@pytest.fixture(autouse=True)
def _signals() -> Iterator[None]:
    """Put back what the command does with signals, where it runs in this process."""
    was = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in was.items():
        signal.signal(number, handler)


def _answers(address: str) -> bool:
    try:
        return "kernels" in httpx.get(address, timeout=5).raise_for_status().json()
    except (httpx.HTTPError, ValueError):
        return False


@pytest.mark.parametrize(
    ("headless", "display", "terminal", "interactive"),
    [
        ("1", "DISPLAY", True, False),
        ("true", "DISPLAY", True, False),
        ("0", "DISPLAY", True, True),
        ("", "DISPLAY", True, True),
        ("", "WAYLAND_DISPLAY", True, True),
        ("", "DISPLAY", False, False),
        ("", "", True, sys.platform in {"darwin", "win32"}),  # these always have a display
    ],
)
def test_is_interactive(
    monkeypatch: pytest.MonkeyPatch, headless: str, display: str, terminal: bool, interactive: bool
) -> None:
    for name in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.setenv(name, ":0" if name == display else "")
    monkeypatch.setenv("HEADLESS", headless)
    master, slave = os.openpty()
    with os.fdopen(master), os.fdopen(slave) as opened:
        if terminal:
            monkeypatch.setattr(sys, "stdin", opened)
            monkeypatch.setattr(sys, "stdout", opened)
        assert is_interactive() is interactive
