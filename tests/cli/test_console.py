from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

import voicelab
from tests.served import VOICELAB
from voicelab.cli.console import CommandGroup
from voicelab.errors import EngineError, FieldError, RequestInvalid


def _fails_with(error: BaseException) -> Any:
    app = typer.Typer(cls=CommandGroup, pretty_exceptions_enable=False)

    @app.command()
    def fail() -> None:
        raise error

    @app.command()
    def other() -> None:
        pass

    return CliRunner().invoke(app, ["fail"])


@pytest.mark.parametrize(
    ("error", "line", "status"),
    [
        (
            RequestInvalid(
                (FieldError(("body", "top_p"), "t", "too high"), FieldError(("body", "text"), "t", "blank"))
            ),
            "voicelab: top_p: too high; text: blank",
            2,
        ),
        (EngineError("broken\nover two lines"), "voicelab: broken over two lines", 2),
        (FileNotFoundError(2, "No such file or directory", "a.wav"), "voicelab: a.wav: No such file or directory", 2),
        (KeyboardInterrupt(), "voicelab: stopped", 130),
    ],
    ids=["request", "engine", "file", "Ctrl-C"],
)
def test_an_error_is_one_line_and_a_status(error: BaseException, line: str, status: int) -> None:
    done = _fails_with(error)
    assert (done.stderr.splitlines(), done.exit_code) == ([line], status)


def test_a_defect_keeps_its_traceback() -> None:
    done = _fails_with(ZeroDivisionError("a defect"))
    assert isinstance(done.exception, ZeroDivisionError)


def test_version(run: Any) -> None:
    assert run("--version").stdout.strip() == voicelab.__version__


def test_the_script_runs_and_help_needs_no_engine() -> None:
    done = subprocess.run([VOICELAB, "--help"], capture_output=True, text=True, check=True, timeout=60)
    assert "say" in done.stdout
    # A command imports what it needs itself: say loads neither the checks of notebooks nor the service.
    code = "import sys; from voicelab.cli import app; app(standalone_mode=False); print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code, "say", "--help"], capture_output=True, text=True, check=True)
    modules = set(loaded.stdout.splitlines()[-1].split())
    assert "voicelab.cli.say" in modules
    assert not modules & {"torch", "librosa", "pandas", "voicelab.checks", "voicelab.service", "voicelab.sweeps.sweep"}


def test_an_unknown_option_is_refused_with_status_2(run: Any) -> None:
    done = run("say", "x", "--temp", "1")
    assert (done.exit_code, type(done.exception)) == (2, SystemExit)
    assert "--temp" in done.stderr
