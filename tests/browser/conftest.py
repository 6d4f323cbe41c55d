"""A real JupyterLab with a real kernel, and Debian's Chromium driven by Playwright."""

from __future__ import annotations

import io
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, FloatRect, Locator, Page, ViewportSize, sync_playwright

from tests.speechlike import speech_file

ROOT = Path(__file__).parents[2]
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
START_S = 120
LONG = 90_000
"""Milliseconds for what takes two seconds on a quiet machine."""
VIEWPORT: ViewportSize = {"width": 1200, "height": 1000}
AUDIO = "[...(globalThis[Symbol.for('voicelab.contexts')]?.values() ?? [])]"
"""The page's audio contexts, each with those who hold it."""
# What is cut off, or can be scrolled sideways, in a panel: nothing may be.
# A word too short for its letters shows none of them, and says itself in its title.
CUT = """(root) => [root, ...root.querySelectorAll("*")].filter((node) => {
  const style = getComputedStyle(node);
  const free = "canvas, option, textarea, pre, .voicelab-take, .voicelab-take *, .voicelab-narrow";
  return node.clientWidth && !node.matches(free) &&
    node.scrollWidth > node.clientWidth + 1 && style.overflowX !== "visible" && style.display !== "inline";
}).map((node) => `${node.tagName}.${node.className} ${node.scrollWidth} > ${node.clientWidth}: ${node.innerText}`)"""
CLOSE = "import ipywidgets; ipywidgets.Widget.close_all()"
IDLE = "() => window.jupyterapp?.shell?.currentWidget?.context?.sessionContext?.session?.kernel?.status === 'idle'"


@dataclass(frozen=True)
class Jupyter:
    """A running JupyterLab: where it answers, and the folder whose notebooks it shows."""

    url: str
    folder: Path

    def notebook(self, name: str, *cells: str) -> str:
        """Write a notebook of code cells and return the address that opens it."""
        blank: dict[str, object] = {"cell_type": "code", "metadata": {}, "execution_count": None, "outputs": []}
        document = {
            "cells": [{**blank, "id": f"c{number}", "source": cell} for number, cell in enumerate(cells)],
            "metadata": {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}},
            "nbformat": 4,
            "nbformat_minor": 5,
        }
        (self.folder / name).write_text(json.dumps(document), encoding="utf-8")
        # A workspace of its own: JupyterLab would otherwise open the notebooks of earlier tests again.
        return f"{self.url}/lab/workspaces/{name.partition('.')[0]}/tree/{name}"


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


@pytest.fixture(scope="session")
def jupyter(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Jupyter]:
    """Start JupyterLab on an empty folder, with settings, data and kernels of its own."""
    home = tmp_path_factory.mktemp("jupyter")
    folder = home / "notebooks"
    settings = home / "settings" / "@jupyterlab" / "apputils-extension"
    settings.mkdir(parents=True)
    folder.mkdir()
    (settings / "notification.jupyterlab-settings").write_text('{"fetchNews": "false", "checkForUpdates": false}')
    environment = dict(os.environ)
    for name in ("CONFIG_DIR", "DATA_DIR", "RUNTIME_DIR"):
        environment[f"JUPYTER_{name}"] = str(home / name.lower())
    environment["JUPYTERLAB_SETTINGS_DIR"] = str(home / "settings")
    environment["JUPYTERLAB_WORKSPACES_DIR"] = str(home / "workspaces")
    environment["IPYTHONDIR"] = str(home / "ipython")
    environment["PYTHONPATH"] = os.pathsep.join([*environment.get("PYTHONPATH", "").split(os.pathsep), str(ROOT)])
    port = free_port()
    command = [sys.executable, "-m", "jupyterlab", "--no-browser", "--ip=127.0.0.1", f"--port={port}"]
    command += ["--allow-root", "--IdentityProvider.token=", "--LabApp.expose_app_in_browser=True"]
    command += [f"--ServerApp.root_dir={folder}", "--ServerApp.port_retries=0"]
    command += ["--JupyterNotebookApp.expose_app_in_browser=True"]
    with serving(command, f"http://127.0.0.1:{port}/api", home, environment):
        yield Jupyter(f"http://127.0.0.1:{port}", folder)


@contextmanager
def serving(command: list[str], url: str, folder: Path, environment: dict[str, str]) -> Iterator[None]:
    """Run a server in a folder until it answers at ``url``, and stop it; fails with the end of its log if it does not."""
    with (folder / "log.txt").open("wb") as log:
        process = subprocess.Popen(command, cwd=folder, env=environment, stdout=log, stderr=log, start_new_session=True)
    try:
        deadline = time.monotonic() + START_S
        while not answering(url):
            if time.monotonic() > deadline or process.poll() is not None:
                pytest.fail(f"{url} did not answer:\n{(folder / 'log.txt').read_text(errors='replace')[-3000:]}")
            time.sleep(0.3)
        yield
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait(timeout=30)


def answering(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=2):  # noqa: S310 (our own server, on loopback)
            return True
    except OSError:
        return False


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """Start Chromium; skipped only where it is not installed.

    For a module, not the session: while Playwright runs, this thread has an event loop, and other tests start their own.
    """
    if CHROMIUM is None:
        pytest.skip("Chromium is not installed (on Debian: apt-get install chromium)")
    arguments = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--disable-background-networking"]
    # A microphone that hears a file again and again.
    spoken = tmp_path_factory.mktemp("microphone") / "spoken.wav"
    spoken.write_bytes(speech_file(4))
    arguments += ["--use-fake-device-for-media-stream", f"--use-file-for-fake-audio-capture={spoken}"]
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=arguments)
        yield chromium
        chromium.close()


def _opened(browser: Browser) -> tuple[Page, list[str]]:
    """Open an empty page of its own, and a list that its JavaScript's errors come to."""
    page = browser.new_context(viewport=VIEWPORT, accept_downloads=True, permissions=["microphone"]).new_page()
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    return page, errors


@pytest.fixture
def page(browser: Browser, tmp_path: Path) -> Iterator[Page]:
    """Open an empty page of its own; an error in the page's JavaScript fails the test.

    How the page looked at the end is kept in the test's temporary folder.
    """
    opened, errors = _opened(browser)
    yield opened
    opened.screenshot(path=tmp_path / "end.png")
    opened.context.close()
    assert errors == []


@dataclass(frozen=True)
class Scratch:
    """A notebook that is open with its kernel, and is written anew by every test."""

    page: Page
    folder: Path

    def run(self, *cells: str) -> Page:
        """Put ``cells`` in place of what was there, whose widgets are closed, run them to their end, and return the page."""
        self.page.set_viewport_size(VIEWPORT)
        self.page.wait_for_function(IDLE, timeout=120_000)
        in_kernel(self.page, CLOSE)
        self.page.evaluate(
            """async (cells) => {
              const { content } = jupyterapp.shell.currentWidget;
              const notebook = content.model.sharedModel;
              const before = notebook.cells.length;
              notebook.insertCells(0, cells.map((source) => ({ cell_type: "code", source })));
              notebook.deleteCellRange(cells.length, cells.length + before);
              await jupyterapp.commands.execute("notebook:run-all-cells");
            }""",
            list(cells),
        )
        said = "() => jupyterapp.shell.currentWidget.content.model.toJSON().cells.flatMap((cell) => cell.outputs ?? [])"
        errors = [output["evalue"] for output in self.page.evaluate(said) if output["output_type"] == "error"]
        assert errors == []
        return self.page


@pytest.fixture(scope="module")
def _scratch(browser: Browser, jupyter: Jupyter) -> Iterator[tuple[Scratch, list[str]]]:
    page, errors = _opened(browser)
    # The kernel of the module before is still there, with all it has imported: to import it takes longer than most tests.
    open_and_run(page, jupyter.notebook("scratch.ipynb", ""))
    yield Scratch(page, jupyter.folder), errors
    in_kernel(page, f"{CLOSE}; get_ipython().reset(new_session=False)")
    page.context.close()


@pytest.fixture
def scratch(_scratch: tuple[Scratch, list[str]], tmp_path: Path) -> Iterator[Scratch]:
    """One JupyterLab page for all tests of a module, and one kernel for all modules, emptied after each.

    Otherwise like ``page``.
    """
    opened, errors = _scratch
    yield opened
    opened.page.screenshot(path=tmp_path / "end.png")
    assert errors == []
    errors.clear()


def in_kernel(page: Page, code: str) -> None:
    """Run code in the notebook's kernel, outside its cells, to its end."""
    run = "(code) => jupyterapp.shell.currentWidget.context.sessionContext.session.kernel.requestExecute({code}).done"
    page.evaluate(run, code)


def open_and_run(page: Page, url: str) -> None:
    """Open a notebook in JupyterLab, wait for its kernel, and run all cells to their end."""
    page.goto(url)
    page.wait_for_function(IDLE, timeout=120_000)
    page.evaluate("() => jupyterapp.shell.currentWidget.context.sessionContext.ready")
    page.evaluate("() => jupyterapp.commands.execute('notebook:run-all-cells')")


def until(page: Page, condition: str, selector: str = ".voicelab-player") -> None:
    """Wait until ``condition`` holds on ``d``, the figures that a panel tells in its data."""
    script = f"() => {{ const d = document.querySelector('{selector}')?.dataset; return d && ({condition}) }}"
    page.wait_for_function(script, timeout=LONG)


def box_of(where: Locator) -> FloatRect:
    """Return where something is on the page."""
    box = where.bounding_box()
    assert box is not None
    return box


def drag(page: Page, over: Locator, first: float, last: float) -> None:
    """Drag over something, from and to a share of its width."""
    box = box_of(over)
    page.mouse.move(box["x"] + first * box["width"], box["y"] + 20)
    page.mouse.down()
    page.mouse.move(box["x"] + last * box["width"], box["y"] + 25, steps=4)
    page.mouse.up()


def themed(page: Page, theme: str) -> None:
    """Let JupyterLab be "Light" or "Dark", and wait until its pictures are."""
    page.evaluate(f"() => jupyterapp.commands.execute('apputils:change-theme', {{ theme: 'JupyterLab {theme}' }})")
    light = str(theme == "Light").lower()
    page.wait_for_selector(f"body[data-jp-theme-light={light}]", state="attached", timeout=LONG)
    # Style sheets are changed one after another: pictures are whole once each is as wide as its place.
    page.wait_for_function(
        "() => [...document.querySelectorAll('.voicelab-player canvas, .voicelab-take canvas, .voicelab-compare canvas')]"
        ".every((canvas) => !canvas.clientWidth || Math.abs(canvas.width - canvas.clientWidth * devicePixelRatio) < 2)",
        timeout=LONG,
    )
    page.wait_for_selector("#jupyterlab-splash", state="detached", timeout=LONG)  # it lies over everything meanwhile


def shoot(page: Page, selector: str, path: Path, name: str) -> bytes:
    """Keep how something looks, and put it into the documents where VOICELAB_PICTURES asks for it."""
    shot = page.locator(selector).first.screenshot(path=path / name)
    if os.environ.get("VOICELAB_PICTURES"):
        from PIL import Image

        # 256 colours are all one sees there, and half the bytes.
        few = Image.open(io.BytesIO(shot)).convert("RGB").quantize(256, dither=Image.Dither.NONE)
        few.save(ROOT / "docs" / "images" / name, optimize=True)
    return shot


def serious(page: Page, root: str = "html") -> list[tuple[str, str, str]]:
    """Return what axe calls serious or worse below ``root``: the rule, the element, and why."""
    options = {"runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "best-practice"]}
    return [
        (one["id"], node["html"][:160], node["any"][0]["message"] if node["any"] else "")
        for one in Axe().run(page, context=root, options=options).response["violations"]
        if one["impact"] in {"serious", "critical"}
        for node in one["nodes"]
    ]
