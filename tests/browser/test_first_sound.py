"""How long it takes from a click, and from the first bytes, to the first sound in the page, with the embedded voice."""

from __future__ import annotations

import json

import pytest

from tests.browser.conftest import LONG, Scratch, in_kernel
from tests.browser.figures import figure
from tests.browser.front_ends import shows
from tests.browser.recorder import listen, record, sounded

LEVEL = 0.003
PANELS = {
    "compact": ("lab.panel(compact=True)", "button.voicelab-speak"),
    "explore": ("lab.panel()", "button.voicelab-speak"),
    "sweep": ("lab.sweep('One.', temperature=[0.2, 0.8]).panel()", "button.voicelab-run"),
    "voices": ("lab.voice_panel()", "button.voicelab-record"),
}
# From running the second cell to the frame after its panel is on the page.
PAINT = """async (selector) => {
  const { content } = jupyterapp.shell.currentWidget;
  content.activeCellIndex = 1;
  const [before] = document.querySelectorAll(selector);
  const began = performance.now();
  const painted = new Promise((resolve) => {
    const look = () => {
      const node = document.querySelector(selector);
      if (node && node !== before && node.checkVisibility()) requestAnimationFrame(() => resolve(performance.now() - began));
      else requestAnimationFrame(look);
    };
    look();
  });
  jupyterapp.commands.execute('notebook:run-cell');
  return await painted;
}"""
CELL = """
import json
import time
import numpy as np
import voicelab as vl
from voicelab.backend import SpeechStream
lab = vl.connect()
lab.speak("Good morning.", seed=1)
left = []
following = SpeechStream.__next__
def timed(stream):
    chunk = following(stream)
    left.append(time.time())
    return chunk
SpeechStream.__next__ = timed
panel = lab.panel(compact=True)
panel.controls.set(seed="1")
panel
"""
# The sound begins some samples before the first that is louder than the level.
TOLD = f"""
first = int(np.argmax(np.abs(panel.clip.samples) > {LEVEL})) / panel.clip.rate
open("told.json", "w").write(json.dumps([left[0], first]))
left.clear()
"""
# Tasks of the page of more than 50 ms.
LONG_TASKS = """() => {
  window.tasks = [];
  const keep = (list) => window.tasks.push(...list.getEntries().map(({ duration }) => duration));
  new PerformanceObserver(keep).observe({ entryTypes: ["longtask"] });
}"""
PAINTED_MS = 2_000
"""Milliseconds that a machine may need on which others work too; the goal is 300 on a quiet one."""
AFTER_MS = 400
"""Milliseconds that a machine may need on which others work too; 100 are promised on a quiet one."""


@shows("JupyterLab 4", "panel")
def test_the_first_sound_follows_the_first_bytes(scratch: Scratch) -> None:
    record(scratch.page)
    page = scratch.run(CELL)
    speak = page.locator("button.voicelab-speak")
    speak.wait_for(timeout=LONG)
    page.locator(".voicelab-panel textarea").fill("Glue the sheet.")
    page.locator(".voicelab-panel textarea").blur()
    page.evaluate("document.addEventListener('click', () => (window.clicked = Date.now()), true)")
    page.evaluate(LONG_TASKS)
    took, clicked = [], []
    for _ in range(10):
        listen(page, LEVEL)
        page.wait_for_selector("button.voicelab-speak:enabled", timeout=LONG)
        speak.click()
        heard = sounded(page)
        page.wait_for_selector(".voicelab-player[data-state=ready]", timeout=LONG)
        page.wait_for_selector(".voicelab-status:has-text('RTF')", timeout=LONG)
        in_kernel(page, TOLD)
        left, before = json.loads((scratch.folder / "told.json").read_text(encoding="utf-8"))
        took.append(1000 * (heard - before - left))
        clicked.append(1000 * (heard - before) - page.evaluate("window.clicked"))
    in_kernel(page, "SpeechStream.__next__ = following")
    figure("longest_task_while_streaming_ms", max([0, *page.evaluate("window.tasks")]))
    for after_bytes, after_click in zip(took, clicked, strict=True):
        figure("first_sound_ms", after_bytes)
        figure("click_to_sound_ms", after_click)
    assert 0 < min(took) < AFTER_MS, took


@pytest.mark.parametrize("name", PANELS)
def test_a_panel_is_painted_soon(scratch: Scratch, name: str) -> None:
    cell, selector = PANELS[name]
    page = scratch.run(
        "from tests.tones import ToneBackend\nfrom voicelab.lab import Lab\nlab = Lab(ToneBackend())", cell
    )
    page.locator(selector).wait_for(timeout=LONG)
    took = [page.evaluate(PAINT, selector) for _ in range(5)]
    for milliseconds in took:
        figure(f"first_paint_{name}_ms", milliseconds)
    # What others do on the machine only adds to it.
    assert min(took) < PAINTED_MS, took
