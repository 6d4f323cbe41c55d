"""Parts that are marked in a player, what is zoomed in to, and the small picture of all of it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tests.browser.conftest import LONG, Scratch, box_of, drag, in_kernel, shoot, themed, until
from voicelab.audio.words import Words

if TYPE_CHECKING:
    from playwright.sync_api import Page

SPOKEN = """\
import voicelab as vl
from voicelab.views.player import Player
player = Player(vl.connect().speak("Glue the sheet to the dark blue background.", seed=1))
player"""
REGIONS = ".voicelab-regions button"
WAVE = ".voicelab-wave"


def in_python(page: Page, folder: Path) -> Words:
    in_kernel(page, "player.regions.save('marked.vtt')")
    return Words.load(folder / "marked.vtt")


def test_parts_are_marked_named_heard_exported_and_cut(scratch: Scratch) -> None:
    page = scratch.run(SPOKEN)
    until(page, "d.state === 'ready' && d.spectrogram")
    assert page.get_by_role("button", name="Mark the loop").is_disabled()
    drag(page, page.locator(WAVE), 0.2, 0.4)
    page.keyboard.press("m")
    drag(page, page.locator(WAVE), 0.3, 0.6)
    page.get_by_role("button", name="Mark the loop").click()
    page.locator(REGIONS).nth(1).dblclick()
    page.keyboard.type("vowel")
    page.keyboard.press("Enter")
    page.wait_for_function(f"() => document.querySelectorAll('{REGIONS}')[1]?.textContent === 'vowel'", timeout=LONG)
    assert page.locator(REGIONS).all_inner_texts() == ["1", "vowel"]
    tops = [box_of(region)["y"] for region in page.locator(REGIONS).all()]
    assert tops[1] - tops[0] > 15, "regions that overlap hide each other"
    first, vowel = in_python(page, scratch.folder)
    whole = float(page.locator(WAVE).get_attribute("aria-valuemax") or 0)
    assert [first.text, vowel.text] == ["1", "vowel"]
    assert abs(vowel.start / whole - 0.3) < 0.02
    assert abs(vowel.end / whole - 0.6) < 0.02
    in_kernel(page, "open('cut.txt', 'w').write(str(player.cut('vowel').duration))")
    assert abs(float((scratch.folder / "cut.txt").read_text()) - (vowel.end - vowel.start)) < 0.002
    page.locator(REGIONS).first.click()
    until(page, "d.state === 'playing' && +d.heard > 0.01")
    page.locator(WAVE).focus()
    page.keyboard.press("Space")
    page.get_by_label("Format of the download").select_option("textgrid")
    with page.expect_download(timeout=LONG) as waiting:
        page.get_by_role("button", name="Download as TextGrid").click()
    text = Path(waiting.value.path()).read_text(encoding="utf-8")
    assert waiting.value.suggested_filename == "Glue-the-sheet-to-the-seed1.TextGrid"
    assert 'text = "vowel"' in text
    assert 'text = "sheet"' in text
    page.locator(REGIONS).first.focus()
    page.keyboard.press("Delete")
    page.wait_for_function(f"() => document.querySelectorAll('{REGIONS}').length === 1", timeout=LONG)
    assert [part.text for part in in_python(page, scratch.folder)] == ["vowel"]
    in_kernel(page, "player.regions = [('noise', 0.0, 0.25)]")
    page.wait_for_selector(f"{REGIONS}:has-text('noise')", timeout=LONG)


def test_what_is_zoomed_in_to_is_made_anew_and_found_on_the_small_picture(scratch: Scratch, tmp_path: Path) -> None:
    page = scratch.run(SPOKEN)
    until(page, "d.state === 'ready' && d.spectrogram")
    small = page.locator(".voicelab-minimap")
    assert small.is_hidden()
    page.locator(WAVE).focus()
    for _ in range(3):
        page.keyboard.press("+")
    until(page, "d.detail && d.detail.split(' ')[2] < 0.002")
    assert small.is_visible()
    box = box_of(page.locator(".voicelab-spectrum"))
    page.mouse.move(box["x"] + 50, box["y"] + 50)
    page.wait_for_selector(".voicelab-readout:has-text('window 7 ms'), .voicelab-readout:has-text('window 6 ms')")
    for theme in ("Dark", "Light"):
        themed(page, theme)
        drag(page, page.locator(WAVE), 0.2, 0.5)
        page.keyboard.press("m")
        shoot(page, ".voicelab-player", tmp_path, f"player-zoomed-{theme.lower()}.png")
    drag(page, small, 0.1, 0.5)
    until(page, "Math.abs((+d.first + d.shown / 2) / d.samples - 0.5) < 0.02")
    until(page, "Math.abs(d.detail.split(' ')[0] * 44100 - d.first) < 100")
    page.keyboard.press("0")
    until(page, "d.first === '0' && d.shown === d.samples")
    assert small.is_hidden()
