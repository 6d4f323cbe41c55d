"""``voicelab lab``: let the voice say a sentence, then open the quickstart, or run it where nobody looks on."""

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

from voicelab.cli.console import say_line
from voicelab.errors import EngineError, MissingExtra, RequestInvalid

SENTENCE = "The birch canoe slid on the smooth planks."
_QUICKSTART = Path("notebooks/01_quickstart.ipynb")
# A notebook that runs for longer than this has hung.
_LIMIT_S = 1800
_LAST_LINES = 12
_POLL_S = 0.1
_ASK_S = 5.0


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
    since: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS",
            help="When the whole command began, in seconds since 1970.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Hear the voice, then open a notebook. Headless, the notebook is run instead and written as HTML."""
    if not notebook.is_file():
        raise RequestInvalid.of("notebook", f"{notebook} is not here; run this in a clone, or name a notebook")
    if headless is None:
        headless = not is_interactive()
    needed = "nbconvert" if headless else "jupyterlab"
    if find_spec(needed) is None:
        raise MissingExtra.of("notebook", needed)
    out.mkdir(parents=True, exist_ok=True)
    _self_check(out)
    begun = time.time()
    if headless:
        say_line(f"{_execute(notebook, out)}: {notebook}, executed{_took(begun, since)}")
        return
    say_line(f"Opening {notebook} in JupyterLab; Ctrl-C twice ends it.")
    code = _jupyterlab([str(notebook), *(jupyter or [])], since)
    if code:
        raise typer.Exit(code)


def _took(begun: float, since: float | None) -> str:
    """Say how long something took, and all that led to it."""
    now = time.time()
    return f" in {now - begun:.0f} s" + (f", {now - since:.0f} s in all" if since is not None else "")


def _jupyterlab(arguments: list[str], since: float | None) -> int:
    """Run JupyterLab until it is ended, and say when it answers; return its exit status."""
    sys.stdout.flush()
    begun = time.time()
    with subprocess.Popen([sys.executable, "-m", "jupyterlab", *arguments]) as server:
        # Ctrl-C reaches JupyterLab by itself, which asks back; whoever ends us means it.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, lambda *_: server.terminate())
        while server.poll() is None:
            if (address := _answers(server.pid)) is not None:
                say_line(f"JupyterLab answers at {address}{_took(begun, since)}")
                sys.stdout.flush()
                return server.wait()
            time.sleep(_POLL_S)
    message = f"JupyterLab ended with status {server.returncode} before it answered; why stands above"
    raise EngineError(f"{message}. Another port: voicelab lab --jupyter=--port=9999")


def _answers(server: int) -> str | None:
    """Return the address of a Jupyter server by its process, once it listens."""
    from jupyter_core.paths import jupyter_runtime_dir

    with suppress(OSError, ValueError, KeyError, httpx.HTTPError):
        record = json.loads(Path(jupyter_runtime_dir(), f"jpserver-{server}.json").read_text(encoding="utf-8"))
        # Any answer will do: it may want a token, which is not ours to know.
        httpx.head(record["url"], timeout=_ASK_S, trust_env=False)
        return str(record["url"])
    return None


def is_interactive() -> bool:
    """Say whether there is a person to open a browser for: a terminal, and a display to draw on."""
    if os.environ.get("HEADLESS", "0").lower() not in {"", "0", "false", "no"}:
        return False
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        return False
    if sys.platform in {"win32", "darwin"}:
        return True
    return bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


def _self_check(out: Path) -> None:
    """Say a sentence with the embedded voice, whatever service the environment names, and report it."""
    # In a process of its own: what the voice needs of memory is free again when the notebook is open.
    command = [sys.executable, "-c", "from voicelab.cli import app; app()", "say", SENTENCE, "--seed", "1"]
    environment = {name: value for name, value in os.environ.items() if name != "VOICELAB_BASE_URL"}
    done = subprocess.run([*command, "-o", str(out / "self-check.wav")], env=environment, check=False)
    if done.returncode:
        raise EngineError("the voice did not speak; voicelab doctor says how to fix what is wrong")


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
