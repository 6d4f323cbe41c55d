"""Work of a panel ends with its output, with an interrupt, and is announced while the kernel is busy."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.browser.conftest import LONG, Scratch, in_kernel

if TYPE_CHECKING:
    from playwright.sync_api import Page

SLOW = """\
import time
from tests.tones import ToneBackend
from voicelab.runs.cache import Cache
from voicelab.lab import Lab
backend = ToneBackend(lambda _: time.sleep(0.01))
panel = Lab(backend).sweep("Four.", seed=list(range(400)), cache=Cache("cache-life-%s")).panel()
panel"""
STOPS = {
    "the cell is deleted": "() => jupyterapp.shell.currentWidget.content.model.sharedModel.deleteCell(0)",
    "the output is cleared": "() => jupyterapp.commands.execute('notebook:clear-all-cell-outputs')",
    "interrupt": "() => jupyterapp.commands.execute('notebook:interrupt-kernel')",
}


def asked(page: Page, folder: Path) -> tuple[int, str]:
    """Return the number of requests so far, and the state of the run."""
    in_kernel(page, "from pathlib import Path; Path('asked').write_text(f'{len(backend.asked)} {panel._run.state}')")
    number, _, state = (folder / "asked").read_text(encoding="utf-8").partition(" ")
    return int(number), state


@pytest.mark.parametrize("stop", STOPS)
def test_a_running_sweep_stops_within_two_seconds(scratch: Scratch, stop: str) -> None:
    page = scratch.run(SLOW % stop.replace(" ", "-"), "after = 1")
    page.locator("button.voicelab-run:enabled").click()
    page.locator(".voicelab-hear[data-state=done]").first.wait_for(timeout=LONG)
    assert asked(page, scratch.folder)[1] == "running"
    page.evaluate(STOPS[stop])
    time.sleep(2)
    number, state = asked(page, scratch.folder)
    assert state == "cancelled"
    assert number < 400
    if stop == "interrupt":
        page.get_by_role("button", name="Resume").wait_for(timeout=LONG)
        assert "cancelled" in page.locator(".voicelab-sweep-panel .voicelab-status").inner_text()


def test_a_busy_kernel_is_said_on_the_button_and_presses_do_not_queue(scratch: Scratch) -> None:
    setup = (
        "from tests.tones import ToneBackend\nfrom voicelab.lab import Lab\nbackend = ToneBackend()\nlab = Lab(backend)"
    )
    page = scratch.run(
        setup, "panel = lab.panel('Four notes.', compact=True)\npanel", "knobs = lab.knob_panel()\nknobs"
    )
    speak, run = page.locator("button.voicelab-speak"), page.locator("button.voicelab-run-knobs")
    run.wait_for(timeout=LONG)
    page.evaluate(
        "() => void jupyterapp.shell.currentWidget.context.sessionContext.session.kernel"
        ".requestExecute({code: 'import time; time.sleep(3)'})"
    )
    for button in (speak, run):
        button.click()
        page.wait_for_function("(node) => node.dataset.waiting === 'late'", arg=button.element_handle(), timeout=1000)
        content = button.evaluate("(node) => getComputedStyle(node, '::after').content")
        assert content == '" · waiting for the kernel"'
        button.click()
        button.click()
    assert page.locator(".voicelab-panel .voicelab-status").inner_text() == "Waiting for the kernel, which is busy…"
    page.wait_for_function("() => !document.querySelector('[data-waiting]')", timeout=LONG)
    in_kernel(page, "panel.wait(); panel.cancel()")
    in_kernel(page, "from pathlib import Path; Path('count').write_text(str(panel.newest))")
    assert (scratch.folder / "count").read_text(encoding="utf-8") == "1"
