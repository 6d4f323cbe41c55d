"""The panel and its player, used as a person would, before a backend whose every sample is known."""

from __future__ import annotations

from tests.browser.conftest import LONG, Scratch, box_of, until
from tests.tones import NOTE

SETUP = """\
import time
from tests.tones import ToneBackend
from voicelab.lab import Lab
slow = Lab(ToneBackend(lambda _: time.sleep(0.02)))
panel = slow.panel()
panel"""
TEXT = "Eight notes, then some more, to hear for two seconds."


def test_cancel_stops_the_work(scratch: Scratch) -> None:
    page = scratch.run(SETUP.replace("0.02", "0.2"))
    page.locator(".voicelab-panel textarea").fill(TEXT)
    page.locator("button.voicelab-speak").click()
    until(page, "+d.samples > 0")
    page.locator("button.voicelab-cancel").click()
    page.wait_for_function("() => document.querySelector('.voicelab-status').innerText.startsWith('cancelled')")
    until(page, f"+d.samples < {len(TEXT) * NOTE}")
    assert page.locator("button.voicelab-speak").is_enabled()


def test_the_first_click_after_an_error_speaks(scratch: Scratch) -> None:
    page = scratch.run(SETUP)
    text, button = page.locator(".voicelab-panel textarea"), page.locator("button.voicelab-speak")
    text.fill("")
    text.blur()
    page.wait_for_selector(".voicelab-controls .voicelab-problem:not(:empty)")
    assert button.is_disabled()
    text.focus()
    page.keyboard.type("Four")
    assert button.is_enabled(), "what is typed counts before its field is left"
    box = box_of(button)
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.mouse.down()
    page.wait_for_timeout(1_000)  # a slow hand: the kernel's judgement arrives while the button is held down
    page.mouse.up()
    page.wait_for_selector(".voicelab-status:has-text('0.2 s')", timeout=LONG)
    assert page.locator(".voicelab-code code").inner_text().startswith("lab.speak('Four'")
    # Nothing to say is judged at once.
    text.fill(" ")
    text.blur()
    page.wait_for_selector(".voicelab-controls .voicelab-problem:not(:empty)")
    text.press_sequentially("  ")
    assert button.is_disabled()
