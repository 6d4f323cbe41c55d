"""The quickstart in a real JupyterLab with the embedded voice: run as a newcomer runs it, and listened to."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

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


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_made_of_it_plays_with_no_kernel_and_no_network(page: Page, tmp_path: Path, scheme: str) -> None:
    from nbconvert import HTMLExporter

    html, _ = HTMLExporter(theme=scheme).from_filename(str(NOTEBOOK))  # type: ignore[no-untyped-call]
    target = tmp_path / "quickstart.html"
    target.write_text(html, encoding="utf-8")
    # The page of nbconvert asks for MathJax; nothing here needs it.
    page.context.set_offline(True)
    page.goto(target.as_uri(), wait_until="domcontentloaded")
    audio = page.locator("audio").first
    audio.evaluate("node => node.play()")
    page.wait_for_function("() => document.querySelector('audio').currentTime > 0.1")
    assert "Run this cell to use it" in page.locator("body").inner_text()
    page.screenshot(path=tmp_path / f"{scheme}.png")


def test_the_committed_notebook_was_executed_in_order_and_holds_no_widget_state() -> None:
    document = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
    code = [cell for cell in document["cells"] if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in code] == list(range(1, len(code) + 1))
    assert "widgets" not in document["metadata"]
    assert all(cell["metadata"] == {} for cell in code), "no times of execution, they would change at every run"
