"""A service that answers: a backend of tones, behind real HTTP on loopback."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tests.tones import ToneBackend
from voicelab.cli import app
from voicelab.service.keys import KeyStore
from voicelab.service.run import running

Run = Callable[..., Any]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a command in an empty folder with a data folder of its own; the answer has exit_code, stdout, stderr."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("VOICELAB_HOME", str(tmp_path / "home"))
    runner = CliRunner()

    def call(*arguments: str, stdin: str | bytes | None = None) -> Any:
        return runner.invoke(app, list(arguments), input=stdin)

    return call


@pytest.fixture
def tones() -> ToneBackend:
    return ToneBackend()


@pytest.fixture
def service(tones: ToneBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The address of a running service of tones; its key is in the environment, as a user's would be."""
    with KeyStore(tmp_path / "service-keys.sqlite3") as keys:
        monkeypatch.setenv("VOICELAB_API_KEY", keys.create("cli").secret)
        with running(tones, keys=keys) as address:
            yield address
