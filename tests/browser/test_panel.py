"""The panel and its player, used as a person would, before a backend whose every sample is known."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tests.browser.conftest import LONG, Scratch
from tests.tones import NOTE, ToneBackend
from voicelab.clip import Clip
from voicelab.lab import Lab

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page

SETUP = """\
import time
from tests.tones import ToneBackend
from voicelab.lab import Lab
slow = Lab(ToneBackend(lambda _: time.sleep(0.02)))
panel = slow.panel()
panel"""
TEXT = "Eight notes, then some more, to hear for two seconds."


def number(player: Locator, name: str) -> float:
    return float(player.get_attribute(f"data-{name}") or "nan")


def speak(page: Page, text: str) -> Locator:
    page.locator(".voicelab-panel textarea").fill(text)
    page.locator(".voicelab-panel textarea").blur()
    page.locator("button.voicelab-speak").click()
    return page.locator(".voicelab-player")


def test_speak_sounds_while_the_audio_arrives_and_ends_with_every_sample(scratch: Scratch) -> None:
    page = scratch.run(SETUP)
    player = speak(page, TEXT)
    wait = "() => { const d = document.querySelector('.voicelab-player').dataset; return %s }"
    page.wait_for_function(wait % "d.state === 'playing' && +d.samples > 0 && +d.heard > 0.1")
    early, position, time = number(player, "samples"), number(player, "position"), number(player, "time")
    whole = eval(page.locator(".voicelab-code code").inner_text(), {"lab": Lab(ToneBackend())})  # noqa: S307
    assert early < len(whole), "it played only once all audio was there"
    page.wait_for_function(wait % f"+d.position > {position} && +d.time > {time}")
    page.wait_for_function(wait % "d.state === 'ready'")
    assert number(player, "samples") == len(whole)
    assert abs(number(player, "peak") - whole.peak) < 2e-4
    assert "RTF" in page.locator(".voicelab-status").inner_text()

    with page.expect_download() as waiting:
        player.locator("button[aria-label='Download as WAV']").click()
    assert Clip.load(Path(waiting.value.path()).read_bytes()) == whole


def test_seeking_by_click_and_the_keys(scratch: Scratch) -> None:
    page = scratch.run(SETUP)
    player = speak(page, TEXT)
    page.wait_for_selector(".voicelab-player[data-state='ready']")
    length = number(player, "samples")
    canvas = player.locator("canvas[role=slider]")
    box = canvas.bounding_box()
    assert box is not None
    canvas.click(position={"x": box["width"] / 2, "y": 10})
    page.wait_for_function("() => +document.querySelector('.voicelab-player').dataset.position > 0")
    assert abs(number(player, "position") / length - 0.5) < 0.02
    canvas.press("Space")
    page.wait_for_selector(".voicelab-player[data-state='playing']")
    canvas.press("Space")
    page.wait_for_selector(".voicelab-player[data-state='ready']")
    held = number(player, "position")
    assert held > length / 2
    canvas.press("ArrowLeft")
    page.wait_for_function(f"() => +document.querySelector('.voicelab-player').dataset.position < {held - 20_000}")


def test_cancel_stops_the_work(scratch: Scratch) -> None:
    waiting = SETUP.replace("0.02", "0.2")
    page = scratch.run(waiting)
    player = speak(page, TEXT)
    page.wait_for_function("() => +document.querySelector('.voicelab-player').dataset.samples > 0")
    page.locator("button.voicelab-cancel").click()
    page.wait_for_function("() => document.querySelector('.voicelab-status').innerText.startsWith('cancelled')")
    assert number(player, "samples") < len(TEXT) * NOTE
    assert page.locator("button.voicelab-speak").is_enabled()


def test_a_wrong_field_is_named_and_speak_is_disabled(scratch: Scratch) -> None:
    page = scratch.run(SETUP)
    seed = page.locator(".voicelab-field-seed input[type=text]")
    seed.fill("seven")
    seed.blur()
    page.wait_for_selector(".voicelab-field-seed .voicelab-problem:has-text('whole number')")
    assert page.locator("button.voicelab-speak").is_disabled()
    seed.fill("7")
    seed.blur()
    page.wait_for_function("() => document.querySelector('.voicelab-code').innerText.includes('seed=7')")
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
    box = button.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.mouse.down()
    page.wait_for_timeout(1_000)  # a slow hand: the kernel's judgement arrives while the button is held down
    page.mouse.up()
    page.wait_for_function(
        "() => document.querySelector('.voicelab-status').innerText.startsWith('0.2 s')", timeout=LONG
    )
    assert page.locator(".voicelab-code code").inner_text().startswith("lab.speak('Four'")
    # Nothing to say is judged at once.
    text.fill(" ")
    text.blur()
    page.wait_for_selector(".voicelab-controls .voicelab-problem:not(:empty)")
    text.press_sequentially("  ")
    assert button.is_disabled()


def test_a_view_that_opens_later_gets_what_came_before(scratch: Scratch) -> None:
    later = (
        "import numpy as np\nfrom voicelab.clip import Clip\nfrom voicelab.views.player import Player\n"
        "clip = Clip((0.5 * np.sin(np.arange(24_000) / 20)).astype(np.float32), 24_000)\nplayer = Player(clip)"
    )
    page = scratch.run(later, "player")
    # The samples and the word that they are all come in two messages.
    page.wait_for_selector(".voicelab-player[data-samples='24000']:not([data-state='waiting'])")
    player = page.locator(".voicelab-player")
    assert player.get_attribute("data-state") == "ready", "showing a clip must not make it talk"
    player.locator("button[aria-label='Play']").click()
    page.wait_for_function("() => +document.querySelector('.voicelab-player').dataset.heard > 0.4")
