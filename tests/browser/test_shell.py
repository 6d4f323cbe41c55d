"""All panels as a reader sees and uses them: narrow and wide, light and dark, by eye, by keyboard and by ear."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.browser.conftest import CUT, LONG, Scratch, serious, shoot, themed

if TYPE_CHECKING:
    from playwright.sync_api import Page

SETUP = """\
import voicelab as vl
from voicelab.experiments.runs.cache import Cache
lab = vl.connect(seed=7)
clip = lab.speak("The birch canoe slid on the smooth planks.")
other = lab.speak("The birch canoe slid on the smooth planks.", voice="marlow", temperature=1)"""
PANELS = {
    "panel": "panel = lab.panel()\npanel.speak()\npanel.wait()\npanel",
    "explore": "panel = lab.explore()\npanel.speak()\npanel.wait()\npanel",
    "sweep": """\
panel = lab.sweep("Glue the sheet.", temperature="0.2..1.0 step 0.4", latency=["low", "normal"], repeats=2,
                  cache=Cache("cache-shell")).panel()
panel.form.settled()
panel.run()
panel.wait()
panel""",
    "compare": "vl.compare(embedded=clip, marlow=other).panel()",
    "voices": "lab.voice_panel(clip)",
    "listening": """\
from tests.experiments.listening.test_design import listening_test
vl.listen(vl.Ballot(listening_test("MUSHRA", items=1), "shell.sqlite3"))""",
    "player": "from voicelab.views.player import Player\nPlayer(clip)",
}
ROOTS = {
    "panel": ".voicelab-panel",
    "explore": ".voicelab-explore",
    "sweep": ".voicelab-sweep-panel",
    "compare": ".voicelab-compare",
    "voices": ".voicelab-voices",
    "listening": ".voicelab-listening",
    "player": ".voicelab-player",
}


def fit(page: Page, root: str, width: int) -> None:
    """Let the page be so wide that the panel has ``width`` pixels."""
    page.evaluate("() => jupyterapp.shell.collapseLeft()")
    page.set_viewport_size({"width": width, "height": 1600})
    # The page takes a moment to have the width of its window.
    narrower = "([root, width]) => document.querySelector(root).getBoundingClientRect().width < width"
    page.wait_for_function(narrower, arg=[root, width])
    have = page.locator(root).first.evaluate("(node) => node.getBoundingClientRect().width")
    page.set_viewport_size({"width": round(2 * width - have), "height": 1600})
    page.wait_for_timeout(400)  # what is drawn anew settles


@pytest.mark.parametrize("name", PANELS)
def test_nothing_is_cut_and_everything_can_be_reached(scratch: Scratch, tmp_path: Path, name: str) -> None:
    page, root = scratch.run(SETUP, PANELS[name]), ROOTS[name]
    page.locator(root).first.wait_for(timeout=LONG)
    for theme in ("Dark", "Light"):
        themed(page, theme)
        for width in (600, 900, 1280):
            fit(page, root, width)
            shoot(page, root, tmp_path, f"{name}-{theme.lower()}-{width}.png")
            assert page.locator(root).first.evaluate(CUT) == [], f"at {width} pixels, {theme}"
        assert serious(page, root) == [], theme


# A place in a panel where nothing takes a click: its middle, or what is left of it.
BLANK = """(root) => {
  const box = root.getBoundingClientRect();
  for (let y = Math.max(1, box.top + 1); y < Math.min(box.bottom, innerHeight); y += 3)
    for (let x = box.right - 2; x > box.left; x -= 7) {
      const node = document.elementFromPoint(x, y);
      const used = node?.closest("button, input, select, textarea, a, canvas, summary, label, [tabindex='0']");
      if (root.contains(node) && (!used || used.contains(root))) return [x, y];
    }
}"""


@pytest.mark.parametrize("name", PANELS)
def test_keys_after_a_click_on_a_blank_part_are_not_the_notebooks(scratch: Scratch, name: str) -> None:
    page, root = scratch.run(SETUP, PANELS[name], "after = 1"), ROOTS[name]
    panel = page.locator(root).first
    panel.wait_for(timeout=LONG)
    panel.scroll_into_view_if_needed()
    page.wait_for_timeout(300)
    place = panel.evaluate(BLANK)
    assert place is not None
    page.mouse.click(*place)
    for key in ("a", "x"):  # a cell above, and this one cut
        page.keyboard.press(key)
        assert page.evaluate("() => jupyterapp.shell.currentWidget.content.model.cells.length") == 3, key
