"""The exploratory panel in JupyterLab with the embedded voice: a knob is let go, and it is heard."""

from __future__ import annotations

from pathlib import Path

from tests.browser.conftest import LONG, Scratch, in_kernel, shoot, themed
from tests.browser.test_sweep import wait

CELL = """\
import voicelab as vl
lab = vl.connect(seed=1)
lab.speak("Good morning.")
panel = lab.panel("The birch canoe slid on the smooth planks.")
panel"""


def test_let_go_heard_and_compared(scratch: Scratch, tmp_path: Path) -> None:
    page = scratch.run(CELL)
    page.set_viewport_size({"width": 1300, "height": 1300})
    slider = page.locator(".voicelab-field-temperature [type=range]")
    slider.wait_for(timeout=LONG)
    slider.focus()
    page.keyboard.press("End")
    wait(page, "+d.all === 1 && +d.drawn === 1")
    page.wait_for_function("() => +document.querySelector('.voicelab-player').dataset.heard > 0.02", timeout=LONG)
    code = page.locator(".voicelab-code pre")
    text = "'The birch canoe slid on the smooth planks.'"
    assert code.inner_text() == f"lab.speak({text}, temperature=1.0, latency='low')"
    speed = page.locator(".voicelab-field-prosody-speed [type=range]")
    speed.focus()
    page.keyboard.press("End")
    wait(page, "+d.all === 2 && +d.drawn === 2")
    assert code.inner_text().endswith("temperature=1.0, latency='low', speed=2.0)")
    in_kernel(page, f"import json; json.dump(lab.speak({text}).sha256 != panel.clip.sha256, open('differs', 'w'))")
    in_kernel(page, f"json.dump({code.inner_text()}.sha256 == panel.clip.sha256, open('same', 'w'))")
    assert [(scratch.folder / name).read_text() for name in ("differs", "same")] == ["true", "true"]
    # What is written is what is copied.
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.locator(".voicelab-code button").click()
    page.wait_for_selector(".voicelab-code button:has-text('Copied')")
    assert page.evaluate("() => navigator.clipboard.readText()") == code.inner_text()
    # The faster take is the shorter one, and the earlier one can still be heard.
    page.locator(".voicelab-take[data-id='1']").focus()
    page.keyboard.press(" ")
    wait(page, "+d.heard > 0.02 && d.current === '1'")
    page.keyboard.press("x")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("x")
    page.wait_for_selector("button.voicelab-compare-selected:enabled", timeout=LONG)
    seed = page.locator(".voicelab-field-seed [type=text]")
    seed.fill("seven")
    seed.blur()
    page.wait_for_selector(".voicelab-field-seed .voicelab-problem:has-text('whole number')")
    assert page.locator(".voicelab-explore button.voicelab-speak").is_disabled()
    assert seed.get_attribute("aria-invalid") == "true"
    seed.fill("4294967295")
    seed.blur()
    wait(page, "+d.all === 3 && +d.drawn === 3")
    # A long seed is whole on its card, and on one line.
    title = page.locator(".voicelab-take[data-id='3'] .voicelab-take-title")
    assert "seed 4294967295" in title.inner_text()
    assert title.evaluate("(node) => node.scrollHeight <= node.clientHeight")
    lines = "(node) => [...node.children].find((one) => one.innerText.startsWith('seed')).getClientRects().length"
    assert title.evaluate(lines) == 1
    page.wait_for_selector(".voicelab-player[data-state=ready]", timeout=LONG)
    for theme in ("Dark", "Light"):
        themed(page, theme)
        shoot(page, ".voicelab-explore", tmp_path, f"explore-{theme.lower()}.png")
