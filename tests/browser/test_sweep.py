"""The sweep panel in JupyterLab, used as a person would: typed, run, heard, sorted, compared."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tests.browser.conftest import Jupyter, open_and_run

if TYPE_CHECKING:
    from playwright.sync_api import Page

SETUP = """\
import time
from pathlib import Path
from tests.tones import ToneBackend
from voicelab.experiments.cache import Cache
from voicelab.lab import Lab
lab = Lab(ToneBackend())
"""
GRID = ".voicelab-takes"


def wait(page: Page, condition: str) -> None:
    page.wait_for_function(
        f"() => {{ const d = document.querySelector('{GRID}')?.dataset; return d && ({condition}) }}"
    )


def test_typed_run_and_heard(page: Page, jupyter: Jupyter, tmp_path: Path) -> None:
    cell = SETUP + (
        'panel = lab.sweep("Eight notes, then some more.", temperature=[0.5], cache=Cache("cache-typed")).panel()\npanel'
    )
    open_and_run(page, jupyter.notebook("sweep.ipynb", cell))
    axis = page.locator(".voicelab-axis input")
    axis.fill("0..2 step 0.5")
    page.wait_for_function(
        "() => document.querySelector('.voicelab-sweep-panel').innerText.includes('less than or equal to 1')"
    )
    assert page.locator("button.voicelab-run").is_disabled()
    axis.fill("0..1 step 0.25")
    page.wait_for_selector("button.voicelab-run:enabled")
    assert "5 requests" in page.locator(".voicelab-estimate").inner_text()
    page.locator("button.voicelab-run").click()
    wait(page, "+d.all === 5 && +d.drawn === 5")
    page.screenshot(path=tmp_path / "sweep.png")
    first = page.locator(".voicelab-take").first
    first.get_by_role("button", name="Play").click()
    wait(page, "+d.heard > 0.1 && d.playing !== ''")
