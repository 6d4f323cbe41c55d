"""A service that answers: a backend of tones, behind real HTTP on loopback."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tests.served import serving
from tests.tones import ToneBackend
from voicelab.cli import app


class Run:
    """Runs commands; an answer has exit_code, stdout, stderr."""

    def __call__(self, *arguments: str, stdin: str | bytes | None = None) -> Any:
        return CliRunner().invoke(app, list(arguments), input=stdin)

    def well(self, *arguments: str, stdin: str | bytes | None = None) -> Any:
        """Run a command that is to succeed."""
        done = self(*arguments, stdin=stdin)
        assert done.exit_code == 0, done.output
        return done

    def refused(self, *arguments: str, stdin: str | bytes | None = None) -> str:
        """Run a command that is to end with 2, and return the one line that it says."""
        done = self(*arguments, stdin=stdin)
        assert (done.exit_code, done.stdout) == (2, ""), done.output
        (line,) = done.stderr.splitlines()
        return str(line)


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run commands in an empty folder with a data folder of its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("VOICELAB_HOME", str(tmp_path / "home"))
    return Run()


@pytest.fixture
def tones() -> ToneBackend:
    return ToneBackend()


@pytest.fixture
def service(tones: ToneBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The address of a running service of tones; its key is in the environment, as a user's would be."""
    (tmp_path / "served").mkdir()
    with serving(tmp_path / "served", tones) as service:
        monkeypatch.setenv("VOICELAB_API_KEY", service.secret)
        yield service.url
