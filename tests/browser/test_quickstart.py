"""The quickstart in a real JupyterLab with the embedded voice: run as a newcomer runs it, and listened to."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tests.browser.conftest import ROOT, Jupyter, open_and_run

if TYPE_CHECKING:
    from playwright.sync_api import Page

NOTEBOOK = ROOT / "notebooks" / "01_quickstart.ipynb"
PLAYER = "document.querySelector('.voicelab-player').dataset"


def _copy(jupyter: Jupyter, name: str) -> str:
    """Put a copy of the quickstart into the server's folder and return the address that opens it."""
    url = jupyter.notebook(name)
    (jupyter.folder / name).write_bytes(NOTEBOOK.read_bytes())
    return url


def test_the_panel_of_the_quickstart_speaks(page: Page, jupyter: Jupyter, tmp_path: Path) -> None:
    open_and_run(page, _copy(jupyter, "quickstart.ipynb"))
    assert page.locator(".jp-OutputArea-output[data-mime-type='application/vnd.jupyter.stderr']").count() == 0
    panel = page.locator(".voicelab-panel")
    panel.scroll_into_view_if_needed()
    panel.locator("textarea").fill("She sells sea shells by the sea shore.")
    page.locator("button.voicelab-speak").click()
    page.wait_for_function(f"() => {PLAYER}.state === 'playing' && +{PLAYER}.samples > 0 && +{PLAYER}.heard > 0.01")
    time, position = page.evaluate(f"() => [+{PLAYER}.time, +{PLAYER}.position]")
    page.wait_for_function(f"() => +{PLAYER}.time > {time} && +{PLAYER}.position > {position}")
    page.screenshot(path=tmp_path / "speaking.png")
    page.wait_for_function(f"() => {PLAYER}.state === 'ready'", timeout=60_000)
    samples, peak = page.evaluate(f"() => [+{PLAYER}.samples, +{PLAYER}.peak]")
    assert samples > 44_100
    assert peak > 0.05
    page.screenshot(path=tmp_path / "spoken.png")


def test_the_saved_notebook_plays_without_a_run(page: Page, jupyter: Jupyter, tmp_path: Path) -> None:
    page.goto(_copy(jupyter, "saved.ipynb"))
    audio = page.locator(".jp-OutputArea audio").first
    audio.wait_for(timeout=60_000)
    assert audio.evaluate("node => node.src.slice(0, 22)") == "data:audio/mpeg;base64"
    audio.evaluate("node => node.play()")
    page.wait_for_function("() => document.querySelector('.jp-OutputArea audio').currentTime > 0.1")
    picture = page.locator(".jp-OutputArea img[alt^='Waveform']").first
    assert picture.evaluate("node => node.naturalWidth") == 640
    page.screenshot(path=tmp_path / "saved.png")
