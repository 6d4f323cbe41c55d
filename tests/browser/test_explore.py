"""The exploratory panel in JupyterLab with the embedded voice: a knob is let go, and it is heard."""

from __future__ import annotations

from pathlib import Path

from tests.browser.conftest import LONG, Scratch, shoot, themed
from tests.browser.test_sweep import wait

CELL = """\
import voicelab as vl
lab = vl.connect(seed=1)
lab.speak("Good morning.")
panel = lab.explore("The birch canoe slid on the smooth planks.")
panel"""


def test_let_go_heard_and_compared(scratch: Scratch, tmp_path: Path) -> None:
    page = scratch.run(CELL)
    page.set_viewport_size({"width": 1300, "height": 1300})
    slider = page.locator(".voicelab-knob-temperature [role=slider]")
    slider.wait_for(timeout=LONG)
    slider.focus()
    page.keyboard.press("End")
    wait(page, "+d.all === 1 && +d.drawn === 1")
    page.wait_for_function("() => +document.querySelector('.voicelab-player').dataset.heard > 0.02", timeout=LONG)
    code = page.locator(".voicelab-code pre")
    assert code.inner_text() == "lab.speak('The birch canoe slid on the smooth planks.', temperature=1.0)"
    speed = page.locator(".voicelab-knob-prosody-speed [role=slider]")
    speed.focus()
    page.keyboard.press("End")
    wait(page, "+d.all === 2 && +d.drawn === 2")
    assert "temperature=1.0, speed=2.0" in code.inner_text()
    # What is written is what is copied.
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.locator(".voicelab-code button").click()
    page.wait_for_selector(".voicelab-code button:has-text('Copied')")
    assert page.evaluate("() => navigator.clipboard.readText()") == code.inner_text()
    # The faster take is the shorter one, and the earlier one can still be heard.
    page.locator(".voicelab-take[data-id='1']").focus()
    page.keyboard.press(" ")
    wait(page, "+d.heard > 0.02 && d.playing === '1'")
    page.keyboard.press("x")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("x")
    page.wait_for_selector("button.voicelab-compare-selected:enabled", timeout=LONG)
    seed = page.locator(".voicelab-knob-seed input")
    seed.fill("seven")
    seed.blur()
    page.wait_for_function("() => document.querySelector('.voicelab-message').innerText.includes('seed')")
    assert page.locator(".voicelab-explore button.voicelab-speak").is_disabled()
    border = "(node) => getComputedStyle(node).borderTopWidth"
    assert page.locator(".voicelab-knob-seed").evaluate(border) == "2px"
    seed.fill("2")
    seed.blur()
    wait(page, "+d.all === 3 && +d.drawn === 3")
    page.wait_for_selector(".voicelab-player[data-state=ready]", timeout=LONG)
    for theme in ("Dark", "Light"):
        themed(page, theme)
        shoot(page, ".voicelab-explore", tmp_path, f"explore-{theme.lower()}.png")
