"""The comparison in JupyterLab: switched by keys at the same word or time, matched, blind; what leaves is recorded."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from tests.browser.conftest import LONG, Scratch, shoot, themed
from tests.browser.figures import figure
from tests.browser.front_ends import shows
from tests.browser.recorder import heard_more, played, record, recording

if TYPE_CHECKING:
    from playwright.sync_api import Page

PANEL = ".voicelab-compare"
ROWS = f"{PANEL} .voicelab-compare-row > button"
SPOKEN = """
import voicelab as vl
lab = vl.connect()
text = "The birch canoe slid on the smooth planks."
comparison = vl.compare(lab.speak(text, seed=1), slow=lab.speak(text, seed=1, speed=0.5))
comparison.panel()
"""
# Clips whose every sample tells when it is: `first` rises from 0.05 by 0.1 a second, `slow` from 0.5 by 0.05, and what
# is said in it takes twice as long.
TELLING = """
import numpy as np
import voicelab as vl
def ramp(low, slope, seconds):
    words = tuple(vl.WordTime(str(n), n * seconds / 4, (n + 1) * seconds / 4) for n in range(4))
    return vl.Clip((low + slope * np.arange(seconds * 24_000) / 24_000).astype(np.float32), 24_000, words=words)
vl.compare(first=ramp(0.05, 0.1, 4), slow=ramp(0.5, 0.05, 8)).panel()
"""
TONES = """
import numpy as np
import voicelab as vl
def tone(level):
    return vl.Clip((level * np.sin(2 * np.pi * 1000 * np.arange(240_000) / 24_000)).astype(np.float32), 24_000)
vl.compare(loud=tone(0.4), quiet=tone(0.1)).panel()
"""
# Whatever is set to rise or fall is so 20 ms late: as where the machine has other work at just that moment.
BUSY = """
() => {
  const ramp = AudioParam.prototype.linearRampToValueAtTime;
  AudioParam.prototype.linearRampToValueAtTime = function (...to) {
    const begun = performance.now();
    while (performance.now() - begun < 20);
    return ramp.apply(this, to);
  };
}
"""
SWITCHED_MS = 20
"""Milliseconds from a key to the sound of the other clip alone."""


# How many colours the picture of each clip has.
BLANK = f"""() => [...document.querySelectorAll('{PANEL} .voicelab-compare-row canvas')].map((canvas) => {{
  const {{ data }} = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
  return new Set(new Uint32Array(data.buffer)).size;
}})"""


def data(page: Page, name: str) -> str:
    return str(page.evaluate(f"() => document.querySelector('{PANEL}').dataset.{name}"))


def until(page: Page, condition: str) -> None:
    """Wait until ``condition`` on ``d``, the panel's figures, holds."""
    page.wait_for_function(f"() => {{ const d = document.querySelector('{PANEL}').dataset; return {condition} }}")


def opened(scratch: Scratch, cell: str, first: str) -> Page:
    page = scratch.run(cell)
    page.wait_for_selector(f"{PANEL}[data-current='{first}']", timeout=LONG)
    page.focus(PANEL)
    return page


@shows("JupyterLab 4", "compare")
def test_keys_switch_at_the_same_word(scratch: Scratch) -> None:
    page = opened(scratch, SPOKEN, "A")
    page.keyboard.press("Space")
    until(page, "d.playing === 'true' && +d.position > 0.6")
    page.keyboard.press("2")
    until(page, "d.current === 'slow'")
    # Half the speed: the same word is twice as far.
    assert float(data(page, "position")) > 1.1
    until(page, "+d.heard > 0.02")
    page.keyboard.press("Space")
    until(page, "d.playing === 'false'")
    page.keyboard.press("1")
    until(page, "d.current === 'A'")
    # A drag repeats a part; Escape plays on.
    box = page.locator(f"{PANEL} canvas").first.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + 0.3 * box["width"], box["y"] + 20)
    page.mouse.down()
    page.mouse.move(box["x"] + 0.5 * box["width"], box["y"] + 20, steps=4)
    page.mouse.up()
    until(page, "d.playing === 'true'")
    page.wait_for_selector(f"{PANEL} button[aria-label=Loop][aria-pressed=true]")
    page.keyboard.press("Escape")
    page.wait_for_selector(f"{PANEL} button[aria-label=Loop][aria-pressed=false]")
    page.keyboard.press("Space")
    # On a slow machine it may have ended before the key, which then plays it once more.
    until(page, "d.playing === 'false'")
    # The player's own keys: the end, all of it again and again, a tenth of a second back.
    page.keyboard.press("l")
    page.wait_for_selector(f"{PANEL} button[aria-label=Loop][aria-pressed=true]")
    page.keyboard.press("l")
    page.keyboard.press("Home")
    until(page, "+d.position === 0")
    page.keyboard.press("End")
    until(page, "+d.position > 1.2")
    end = float(data(page, "position"))
    page.keyboard.press("Shift+ArrowLeft")
    until(page, f"Math.abs(+d.position - {end} + 0.1) < 0.01")
    page.keyboard.press("Home")
    until(page, "+d.position === 0")
    clock = page.locator(f"{PANEL} .voicelab-clock").inner_text()
    assert re.fullmatch(r"0\.0 / \d\.\d s", clock)


def test_all_pictures_have_one_axis_of_time(scratch: Scratch) -> None:
    page = opened(scratch, SPOKEN, "A")
    # The first is half as long: its picture ends in the middle, or a little before.
    page.wait_for_function(
        """() => {
          const canvases = document.querySelectorAll(':is(.voicelab-compare-row, .voicelab-compare-axis) canvas');
          const ends = [...canvases].map((canvas) => {
            const { data, width } = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
            const inked = (end, value, at) => (at % 4 === 3 && value ? Math.max(end, ((at - 3) / 4) % width) : end);
            return data.reduce(inked, 0) / width;
          });
          const near = (value, wanted) => Math.abs(value - wanted) < 0.06;
          return near(ends[0], 0.5) && near(ends[1], 1) && ends[2] > 0.5;
        }""",
        timeout=LONG,
    )
    blind = page.get_by_role("button", name="Blind", exact=True)
    blind.click()
    page.wait_for_selector(".voicelab-compare-axis canvas", state="hidden")  # it would tell how long each is
    blind.click()


def test_tables_and_contours_and_nothing_of_them_blind(scratch: Scratch, tmp_path: Path) -> None:
    page = opened(scratch, SPOKEN, "A")
    tables = page.locator(f"{PANEL} table")
    tables.nth(1).wait_for(timeout=LONG)
    asked, measured = tables.all_inner_texts()
    assert asked.split() == ["Request", "differences", "A", "slow", "speed", "1.0", "0.5"]
    for name in ("Duration, s", "Loudness, LUFS", "F0 median, Hz", "F0 range, semitones"):
        assert name in measured
    # Each line's canvas has the slow one's colour somewhere.
    drawn = page.evaluate(
        """() => [...document.querySelectorAll('.voicelab-compare-line canvas')].map((canvas) => {
          const { data } = canvas.getContext('2d').getImageData(canvas.width / 4, 0, canvas.width / 2, canvas.height);
          return data.some((_, at) => at % 4 === 0 && data[at] === 0xd5 && data[at + 1] === 0x5e && data[at + 2] === 0);
        })"""
    )
    assert drawn == [True, True]
    for theme in ("Dark", "Light"):
        themed(page, theme)
        shoot(page, PANEL, tmp_path, f"compare-{theme.lower()}.png")
    rows = page.locator(ROWS)
    assert [text.split()[1] for text in rows.all_text_contents()] == ["A,", "slow,"]
    blind = page.get_by_role("button", name="Blind", exact=True)
    blind.click()
    page.wait_for_function(f"() => [...document.querySelectorAll('{ROWS}')].every((b) => b.textContent.length === 1)")
    assert rows.all_text_contents() == ["1", "2"]
    # Nor does a picture tell, or what was chosen: the first is, whichever that is.
    assert data(page, "current") == "1"
    assert page.evaluate(BLANK) == [1, 1]
    # Nor do cursors, whose speeds differ.
    page.locator(PANEL).press("Space")
    until(page, "d.playing === 'true' && +d.position > 0.2")
    assert page.evaluate(BLANK) == [1, 1]
    page.locator(PANEL).press("Space")
    shown = page.locator(PANEL).inner_text()
    assert "slow" not in shown
    assert "speed" not in shown
    assert data(page, "current") in {"1", "2"}
    page.locator(PANEL).press("2")
    until(page, "d.current === '2'")
    blind.click()
    page.wait_for_function(f"() => document.querySelector('{PANEL}').innerText.includes('speed')")


def heard_alone(sound: np.ndarray[Any, np.dtype[np.float32]], rate: int, at: int, key: str) -> int:
    """Return the first sample after ``at`` from which 10 ms of the clip of ``key`` alone are heard."""
    alone = (sound >= 0.5 if key == "2" else sound < 0.46)[at:]
    return at + int(np.argmax(alone & np.roll(alone, -rate // 100)))


def switched(page: Page, within: float = 0.06) -> list[float]:
    """Switch ten times while it plays, each time to the same word `within` seconds of the other clip.

    Return the milliseconds from each key to the sound of the other clip alone.
    """
    recording(page)
    page.get_by_label("Loudness").select_option("raw")
    page.focus(PANEL)
    page.keyboard.press("Space")
    for turn, key in enumerate("2121212121"):
        # At an uneven distance: no switch may fall upon a boundary of the output's blocks by habit.
        page.wait_for_timeout(90 + 7 * turn)
        page.keyboard.press(key)
    heard_more(page, 1.0)
    sound, rate, (_, *pressed) = played(page)
    took = []
    for at, key in zip(pressed, "2121212121", strict=True):
        alone = heard_alone(sound, rate, at, key)
        took.append(1000 * (alone - at) / rate)
        before, after = float(sound[at]), float(sound[alone + rate // 100])
        passed = (alone + rate // 100 - at) / rate
        low, high = sorted((before, after))
        # Nothing between the two but the two: no silence, no leap beyond either.
        assert sound[at:alone].min() > low - 0.02
        assert sound[at:alone].max() < high + 0.02
        # The same word: twice as far in the slow one, and back.
        there = 2 * (before - 0.05) / 0.1 if key == "2" else (before - 0.5) / 0.05 / 2
        moment = (after - 0.5) / 0.05 if key == "2" else (after - 0.05) / 0.1
        assert moment == pytest.approx(there + passed * (2 if key == "2" else 1), abs=within)
    return took


def test_another_clip_is_heard_within_20_ms_without_a_gap_at_the_same_word(scratch: Scratch) -> None:
    record(scratch.page)
    took = switched(opened(scratch, TELLING, "first"))
    figure("switching_ms", float(np.median(took)))
    assert np.median(took) <= SWITCHED_MS, took


def test_a_page_that_is_busy_in_the_middle_of_a_switch_leaves_no_gap_either(scratch: Scratch) -> None:
    record(scratch.page)
    page = opened(scratch, TELLING, "first")
    page.evaluate(BUSY)
    # What a page orders late begins late: by as much as two workers on two cores hold it up.
    took = switched(page, within=0.15)
    assert np.median(took) > SWITCHED_MS  # it was busy


def test_at_the_same_time(scratch: Scratch) -> None:
    record(scratch.page)
    page = opened(scratch, TELLING, "first")
    recording(page)
    page.get_by_label("Loudness").select_option("raw")
    page.get_by_label("Align by").select_option("time")
    page.focus(PANEL)
    page.keyboard.press("Space")
    until(page, "+d.position > 0.8")
    page.keyboard.press("2")
    until(page, "d.current === 'slow'")
    heard_more(page, 0.2)
    sound, rate, (_, at) = played(page)
    later = at + rate // 10
    before, after = (float(sound[at]) - 0.05) / 0.1, (float(sound[later]) - 0.5) / 0.05
    assert after == pytest.approx(before + 0.1, abs=0.04)


def test_at_one_loudness_and_as_they_are(scratch: Scratch) -> None:
    record(scratch.page)
    page = opened(scratch, TONES, "loud")
    recording(page)
    # Nothing is made louder than it came, or it could clip.
    assert [text.split()[3] for text in page.locator(ROWS).all_text_contents()] == ["-12.1", "+0.0"]

    def heard(key: str, level: str) -> float:
        page.get_by_label("Loudness").select_option(level)
        page.focus(PANEL)
        page.keyboard.press(key)
        heard_more(page, 0.5)
        sound, rate, _ = played(page)
        return float(np.sqrt(np.mean(np.square(sound[-rate // 20 :]))))

    page.keyboard.press("Space")
    until(page, "+d.position > 0.1")
    levels = [heard(key, level) for level in ("matched", "raw") for key in "12"]
    assert levels[1] == pytest.approx(levels[0], rel=0.03)
    assert levels[2] == pytest.approx(0.4 / np.sqrt(2), rel=0.03)
    assert levels[3] == pytest.approx(0.1 / np.sqrt(2), rel=0.03)
    assert page.locator(ROWS).all_text_contents() == ["1  loud", "2  quiet"]


def test_a_clip_without_a_loudness_is_unmatched_and_the_others_are_matched(scratch: Scratch) -> None:
    short = TONES.replace("vl.compare(", "vl.compare(short=tone(0.2).slice(0, 0.2), ")
    assert short != TONES
    page = opened(scratch, short, "short")
    rows = page.locator(ROWS).all_text_contents()
    assert rows == ["1  short, unmatched", "2  loud, gain -12.1\u00a0dB", "3  quiet, gain +0.0\u00a0dB"]
    page.get_by_label("Loudness").select_option("raw")
    names = f"[...document.querySelectorAll('{ROWS}')].map((row) => row.textContent).join()"
    page.wait_for_function(f"() => {names} === '1  short,2  loud,3  quiet'", timeout=LONG)
