"""All panels as a reader sees and uses them: narrow and wide, light and dark, by eye, by keyboard and by ear."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from axe_playwright_python.sync_playwright import Axe

from tests.browser.conftest import LONG, Scratch, shoot, themed

if TYPE_CHECKING:
    from playwright.sync_api import Page

SETUP = """\
import voicelab as vl
from voicelab.experiments.cache import Cache
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
    "player": "from voicelab.views.player import Player\nPlayer(clip)",
}
ROOTS = {
    "panel": ".voicelab-panel",
    "explore": ".voicelab-explore",
    "sweep": ".voicelab-sweep-panel",
    "compare": ".voicelab-compare",
    "voices": ".voicelab-voices",
    "player": ".voicelab-player",
}
# What is cut off, or can be scrolled sideways, in a panel: nothing may be.
# A word too short for its letters shows none of them, and says itself in its title.
CUT = """(root) => [root, ...root.querySelectorAll("*")].filter((node) => {
  const style = getComputedStyle(node);
  const free = "canvas, option, textarea, pre, .voicelab-take, .voicelab-take *, .voicelab-narrow";
  return node.clientWidth && !node.matches(free) &&
    node.scrollWidth > node.clientWidth + 1 && style.overflowX !== "visible" && style.display !== "inline";
}).map((node) => `${node.tagName}.${node.className} ${node.scrollWidth} > ${node.clientWidth}: ${node.innerText}`)"""


def fit(page: Page, root: str, width: int) -> None:
    """Let the page be so wide that the panel has ``width`` pixels."""
    page.evaluate("() => jupyterapp.shell.collapseLeft()")
    page.set_viewport_size({"width": width, "height": 1600})
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
        options = {"runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "best-practice"]}
        violations = Axe().run(page, context=root, options=options).response["violations"]
        serious = [
            (one["id"], node["html"][:160], node["any"][0]["message"] if node["any"] else "")
            for one in violations
            if one["impact"] in {"serious", "critical"}
            for node in one["nodes"]
        ]
        assert serious == [], theme
