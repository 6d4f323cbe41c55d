"""What .ci/binder stands on: the files of binder/, and the two commands that look at a server and at memory."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import threading
import tomllib
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from urllib.parse import unquote

import pytest
import yaml

ROOT = Path(__file__).parents[1]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def _run(name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / ".ci" / name), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


class _Page(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200 if self.path == "/lab" else 404)
        self.end_headers()
        self.wfile.write(b"<html></html>")

    def log_message(self, format: str, *args: object) -> None:
        """Stay silent."""


@pytest.fixture
def address() -> Iterator[str]:
    with HTTPServer(("127.0.0.1", 0), _Page) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_a_page_answers_and_a_missing_one_does_not(address: str) -> None:
    assert _run("answers.py", f"{address}/lab").returncode == 0
    missing = _run("answers.py", f"{address}/other")
    assert missing.returncode == 1
    assert "404" in missing.stdout


@pytest.mark.skipif(sys.platform != "linux", reason="memory is read from /proc")
def test_memory_of_all_processes_counts() -> None:
    # Half of it in a process that the process starts; each holds it until it has been seen.
    hold = "import time; held = bytearray(60 << 20); time.sleep(1.0)"
    both = f"import subprocess, sys; held = bytearray(60 << 20); subprocess.run([sys.executable, '-c', {hold!r}])"
    enough = _run("peak.py", "--limit", "1000", "--name", "both", "--", sys.executable, "-c", both)
    found = re.fullmatch(r"both: at most (\d+) MiB of 1000, \d+ s\n", enough.stdout)
    assert enough.returncode == 0
    assert found is not None
    assert 120 < int(found[1]) < 250
    assert _run("peak.py", "--limit", "100", "--", sys.executable, "-c", both).returncode == 1


@pytest.mark.skipif(sys.platform != "linux", reason="memory is read from /proc")
def test_a_command_that_fails_fails() -> None:
    assert _run("peak.py", "--limit", "1000", "--", sys.executable, "-c", "raise SystemExit(3)").returncode == 3


def test_binder_starts_from_python_and_installs_extras_that_there_are() -> None:
    environment = yaml.safe_load((ROOT / "binder" / "environment.yml").read_text(encoding="utf-8"))
    assert environment["dependencies"] == ["python=3.11", "pip"]
    build = ROOT / "binder" / "postBuild"
    assert os.access(build, os.X_OK)
    (extras,) = re.findall(r"-e '\.\[([a-z,]+)\]'", build.read_text(encoding="utf-8"))
    assert set(extras.split(",")) <= set(PYPROJECT["project"]["optional-dependencies"])
    # What `make lab` installs: a reader finds the same on Binder.
    (lab,) = re.findall(
        r"^READY_LAB := \$\(VENV\)/\.ready-(\S+)$", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE
    )
    assert extras == lab


def test_the_badge_opens_the_quickstart_of_whom_contributing_names(tmp_path: Path) -> None:
    for name in ("README.md", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path)
    contributing = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    (command,) = re.findall(r"^sed .*OWNER/REPO.*$", contributing, re.MULTILINE)
    subprocess.run(["sh", "-c", command], cwd=tmp_path, check=True, timeout=60)
    text = (tmp_path / "README.md").read_text(encoding="utf-8")
    assert "OWNER" not in text + (tmp_path / "pyproject.toml").read_text(encoding="utf-8")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["README.md", "pyproject.toml"]
    ((name, branch, opened),) = re.findall(
        r"\(https://mybinder\.org/v2/gh/([\w-]+/[\w-]+)/(\w+)\?urlpath=(\S+)\)", text
    )
    assert (name, branch) == ("your-name/voicelab", "main")
    folder, _, notebook = unquote(opened).partition("tree/")
    assert folder == "lab/"
    assert (ROOT / notebook).is_file()
