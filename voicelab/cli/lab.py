"""``voicelab lab``: synthesize a test sentence, then open the quickstart in JupyterLab or execute it headless."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import httpx
import typer

from voicelab.cli.console import print_line
from voicelab.errors import EngineError, MissingExtra, RequestInvalid

SENTENCE = "The birch canoe slid on the smooth planks."
_QUICKSTART = Path("notebooks/01_quickstart.ipynb")
_NOTEBOOK_TIMEOUT_S = 1800
_ERROR_LINES = 12
_POLL_INTERVAL_S = 0.1
_REQUEST_TIMEOUT_S = 5.0


def lab(
    notebook: Annotated[
        Path, typer.Argument(help="The notebook to open.", show_default=str(_QUICKSTART))
    ] = _QUICKSTART,
    *,
    headless: Annotated[
        bool | None,
        typer.Option(
            help="Execute the notebook and write HTML instead of opening JupyterLab "
            "(default: if HEADLESS=1, or if there is no terminal or display).",
            show_default=False,
        ),
    ] = None,
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="Output folder.")] = Path("build"),
    jupyter: Annotated[
        list[str] | None, typer.Option(metavar="ARG", help="Argument for JupyterLab; repeatable.", show_default=False)
    ] = None,
    since: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS",
            help="Time at which the calling command began, in seconds since 1970; the total duration is counted from it.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Synthesize a test sentence, then open a notebook in JupyterLab, or execute it and write HTML if headless."""
    if not notebook.is_file():
        raise RequestInvalid.of("notebook", f"{notebook} does not exist; run this in a clone, or pass a notebook")
    if headless is None:
        headless = not is_interactive()
    needed = "nbconvert" if headless else "jupyterlab"
    if find_spec(needed) is None:
        raise MissingExtra.of("notebook", needed)
    out.mkdir(parents=True, exist_ok=True)
    _self_check(out)
    start = time.time()
    if headless:
        print_line(f"{_execute(notebook, out)}: {notebook}, executed{_elapsed(start, since)}")
        return
    print_line(f"Opening {notebook} in JupyterLab; Ctrl-C twice ends it.")
    code = _jupyterlab([str(notebook), *(jupyter or [])], since)
    if code:
        raise typer.Exit(code)


def _elapsed(start: float, since: float | None) -> str:
    """Format the seconds since ``start``, and since the calling command began."""
    end = time.time()
    return f" in {end - start:.0f} s" + (f", {end - since:.0f} s in total" if since is not None else "")


def _jupyterlab(arguments: list[str], since: float | None) -> int:
    """Run JupyterLab, print its address when it is reachable, and return its exit status."""
    sys.stdout.flush()
    start = time.time()
    with subprocess.Popen([sys.executable, "-m", "jupyterlab", *arguments]) as server:
        # The terminal also sends Ctrl-C to JupyterLab, which asks for confirmation; only this process receives SIGTERM.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, lambda *_: server.terminate())
        while server.poll() is None:
            if (address := _server_address(server.pid)) is not None:
                print_line(f"JupyterLab answers at {address}{_elapsed(start, since)}")
                sys.stdout.flush()
                return server.wait()
            time.sleep(_POLL_INTERVAL_S)
    message = f"JupyterLab exited with status {server.returncode} during startup; see its messages above"
    raise EngineError(f"{message}. Another port: voicelab lab --jupyter=--port=9999")


def _server_address(pid: int) -> str | None:
    """Return the address of the Jupyter server with process id ``pid``; None until it is reachable."""
    from jupyter_core.paths import jupyter_runtime_dir

    with suppress(OSError, ValueError, KeyError, httpx.HTTPError):
        record = json.loads(Path(jupyter_runtime_dir(), f"jpserver-{pid}.json").read_text(encoding="utf-8"))
        # Any status means reachable, including 403 for a missing token.
        httpx.head(record["url"], timeout=_REQUEST_TIMEOUT_S, trust_env=False)
        return str(record["url"])
    return None


def is_interactive() -> bool:
    """Return True if there are a terminal and a display, unless HEADLESS is set."""
    if os.environ.get("HEADLESS", "0").lower() not in {"", "0", "false", "no"}:
        return False
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        return False
    if sys.platform in {"win32", "darwin"}:
        return True
    return bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


def _self_check(out: Path) -> None:
    """Synthesize a sentence with the embedded voice, ignoring VOICELAB_BASE_URL."""
    # Run in a subprocess, so that the voice's memory is released before the notebook runs.
    command = [sys.executable, "-c", "from voicelab.cli import app; app()", "say", SENTENCE, "--seed", "1"]
    environment = {name: value for name, value in os.environ.items() if name != "VOICELAB_BASE_URL"}
    done = subprocess.run([*command, "-o", str(out / "self-check.wav")], env=environment, check=False)
    if done.returncode:
        raise EngineError("synthesis failed; voicelab doctor lists problems and fixes")


def _execute(notebook: Path, out: Path) -> Path:
    command = [sys.executable, "-m", "nbconvert", "--to", "html", "--execute", str(notebook)]
    # With widget state, the page would load a widget manager from a CDN.
    command += ["--output-dir", str(out), "--log-level", "WARN", "--ExecutePreprocessor.store_widget_state=False"]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, errors="replace", check=False, timeout=_NOTEBOOK_TIMEOUT_S
        )
    except subprocess.TimeoutExpired:
        raise EngineError(f"{notebook} did not finish within {_NOTEBOOK_TIMEOUT_S} s") from None
    if done.returncode != 0:
        for line in done.stderr.splitlines()[-_ERROR_LINES:]:
            print_line(line, to_stderr=True)
        raise EngineError(f"{notebook} failed; see the end of its error output above")
    return out / f"{notebook.stem}.html"
