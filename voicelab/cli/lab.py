"""``voicelab lab``: let the voice say a sentence, then open the quickstart, or run it where nobody looks on."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

import voicelab
from voicelab.cli.console import say_line
from voicelab.cli.output import Report, speak_to_file
from voicelab.errors import EngineError, MissingExtra, RequestInvalid
from voicelab.schema import TTSRequest

__all__ = ["SENTENCE", "lab", "somebody_looks_on"]

SENTENCE = "The birch canoe slid on the smooth planks."
_QUICKSTART = Path("notebooks/01_quickstart.ipynb")
# A notebook that runs for longer than this has hung.
_LIMIT_S = 1800
_LAST_LINES = 12


def lab(
    notebook: Annotated[
        Path, typer.Argument(help="The notebook to open.", show_default=str(_QUICKSTART))
    ] = _QUICKSTART,
    *,
    headless: Annotated[
        bool | None,
        typer.Option(
            help="Run the notebook and write it as HTML, or open JupyterLab in any case "
            "(default: HEADLESS=1, or no terminal, or no display).",
            show_default=False,
        ),
    ] = None,
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="Where files are written.")] = Path("build"),
    jupyter: Annotated[
        list[str] | None,
        typer.Option(metavar="ARG", help="Argument passed on to JupyterLab; repeatable.", show_default=False),
    ] = None,
) -> None:
    """Hear the voice, then open a notebook. Headless, the notebook is run instead and written as HTML."""
    if not notebook.is_file():
        raise RequestInvalid.of("notebook", f"{notebook} is not here; run this in a clone, or name a notebook")
    if headless is None:
        headless = not somebody_looks_on()
    _need("nbconvert" if headless else "jupyterlab")
    out.mkdir(parents=True, exist_ok=True)
    say_line(_self_check(out).line())
    if headless:
        say_line(f"{_execute(notebook, out)}: {notebook}, executed")
        return
    say_line(f"Opening {notebook} in JupyterLab; Ctrl-C twice ends it.")
    command = [sys.executable, "-m", "jupyterlab", str(notebook), *(jupyter or [])]
    sys.stdout.flush()
    # JupyterLab takes our place, so that Ctrl-C and the terminal are its own.
    os.execv(sys.executable, command)


def somebody_looks_on() -> bool:
    """Say whether there is a person to open a browser for: a terminal, and a display to draw on."""
    if os.environ.get("HEADLESS", "0").lower() not in {"", "0", "false", "no"}:
        return False
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        return False
    if sys.platform in {"win32", "darwin"}:
        return True
    return bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


def _need(package: str) -> None:
    if find_spec(package) is None:
        raise MissingExtra.of("notebook", package)


def _self_check(out: Path) -> Report:
    """Say a sentence with the embedded voice, whatever service the environment names."""
    target = out / "self-check.wav"
    started = time.perf_counter()
    backend = voicelab.LocalBackend()
    try:
        with backend.synthesize(TTSRequest.build(text=SENTENCE, format="wav"), seed=1) as stream:
            seconds = speak_to_file(stream, target, lambda _: None)
            device = stream.backend.device
    finally:
        backend.close()
    if seconds <= 0:
        raise EngineError("the self-check came out empty: the voice said nothing")
    return Report(str(target), seconds, time.perf_counter() - started, device)


def _execute(notebook: Path, out: Path) -> Path:
    command = [sys.executable, "-m", "nbconvert", "--to", "html", "--execute", str(notebook)]
    # A stored widget state would make the page load a widget manager from elsewhere.
    command += ["--output-dir", str(out), "--log-level", "WARN", "--ExecutePreprocessor.store_widget_state=False"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False, timeout=_LIMIT_S)
    except subprocess.TimeoutExpired:
        raise EngineError(f"{notebook} did not finish within {_LIMIT_S} s") from None
    if done.returncode != 0:
        for line in done.stderr.splitlines()[-_LAST_LINES:]:
            say_line(line, to_stderr=True)
        raise EngineError(f"{notebook} failed; its last lines are above")
    return out / f"{notebook.stem}.html"
