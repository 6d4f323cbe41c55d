"""A real JupyterLab with a real kernel, and Debian's Chromium driven by Playwright."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

ROOT = Path(__file__).parents[2]
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
START_S = 120


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


def _free_port() -> int:
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
    port = _free_port()
    command = [sys.executable, "-m", "jupyterlab", "--no-browser", "--ip=127.0.0.1", f"--port={port}"]
    command += ["--allow-root", "--IdentityProvider.token=", "--LabApp.expose_app_in_browser=True"]
    command += [f"--ServerApp.root_dir={folder}", "--ServerApp.port_retries=0"]
    with (home / "log.txt").open("wb") as log:
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=log, start_new_session=True)
        url = f"http://127.0.0.1:{port}"
        try:
            _wait(process, url, home / "log.txt")
            yield Jupyter(url, folder)
        finally:
            os.killpg(process.pid, signal.SIGTERM)
            process.wait(timeout=30)


def _wait(process: subprocess.Popen[bytes], url: str, log: Path) -> None:
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline and process.poll() is None:
        try:
            with urllib.request.urlopen(f"{url}/api", timeout=2):  # noqa: S310 (our own server, on loopback)
                return
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            time.sleep(0.3)
    pytest.fail(f"JupyterLab did not start:\n{log.read_text(errors='replace')[-3000:]}")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Start Chromium; skipped only where it is not installed.

    For a module, not the session: while Playwright runs, this thread has an event loop, and other tests start their own.
    """
    if CHROMIUM is None:
        pytest.skip("Chromium is not installed (on Debian: apt-get install chromium)")
    arguments = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--disable-background-networking"]
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=arguments)
        yield chromium
        chromium.close()


@pytest.fixture
def page(browser: Browser, tmp_path: Path) -> Iterator[Page]:
    """Open an empty page of its own; an error in the page's JavaScript fails the test.

    How the page looked at the end is kept in the test's temporary folder.
    """
    context = browser.new_context(viewport={"width": 1200, "height": 1000}, accept_downloads=True)
    opened = context.new_page()
    errors: list[str] = []
    opened.on("pageerror", lambda error: errors.append(str(error)))
    yield opened
    opened.screenshot(path=tmp_path / "end.png")
    context.close()
    assert errors == []


def open_and_run(page: Page, url: str) -> None:
    """Open a notebook in JupyterLab, wait for its kernel, and run all cells to their end."""
    page.goto(url)
    page.wait_for_function(
        "() => window.jupyterapp?.shell?.currentWidget?.context?.sessionContext?.session?.kernel?.status === 'idle'",
        timeout=120_000,
    )
    page.evaluate("() => jupyterapp.shell.currentWidget.context.sessionContext.ready")
    page.evaluate("() => jupyterapp.commands.execute('notebook:run-all-cells')")
