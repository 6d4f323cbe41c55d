"""Words below waveforms: heard from, repeated, lit while they sound, and written to files that other tools read."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from tests.browser.conftest import LONG, Scratch, box_of, until
from voicelab.audio.words import Words, WordTime
from voicelab.clip import Clip
from voicelab.takes.comparison import compare
from voicelab.views.comparison_panel import comparison_bundle

if TYPE_CHECKING:
    from playwright.sync_api import Page

SETUP = """\
import numpy as np
import voicelab as vl
from voicelab.clip import Clip
from voicelab.audio.words import Words, WordTime
from voicelab.views.player import Player
def spoken(pace):
    samples = (0.5 * np.sin(np.arange(int(24_000 * 2 * pace)) / 20)).astype(np.float32)
    said = (("one", 0.1), ("two", 0.7), ("three", 1.3))
    words = [WordTime(word, pace * start, pace * (start + 0.4)) for word, start in said]
    return Clip(samples, 24_000, Words(words))
"""


def test_a_click_plays_from_a_word_and_a_double_click_repeats_it(scratch: Scratch) -> None:
    page = scratch.run(SETUP, "Player(spoken(1))")
    words = page.locator(".voicelab-player .voicelab-words button")
    words.first.wait_for(timeout=LONG)
    assert words.all_inner_texts() == ["one", "two", "three"]
    wave, two = box_of(page.locator(".voicelab-wave")), box_of(words.nth(1))
    assert abs((two["x"] - wave["x"]) / wave["width"] - 0.7 / 2) < 0.01, "it does not stand where it is heard"
    words.nth(1).click()
    until(page, "d.state === 'playing' && +d.position > 0.7 * 24000 && +d.heard > 0.1")
    words.nth(2).dblclick()
    page.wait_for_selector(".voicelab-words button.voicelab-lit:has-text('three')", timeout=LONG)
    words.nth(0).dblclick()
    until(page, "d.region === '2400 12000' && d.state === 'playing'")
    # It goes round: the position falls while it plays, and stays inside of the word.
    until(page, "(window.before ?? 0) > (window.before = +d.position) && window.before < 12000")
    until(page, "d.state === 'playing'")
    page.locator(".voicelab-wave").focus()
    page.keyboard.press("Escape")
    page.keyboard.press("Space")
    page.keyboard.press("]")
    page.keyboard.press("]")
    until(page, "Math.abs(+d.position - 1.3 * 24000) < 10")


def test_a_word_too_narrow_for_its_letters_shows_them_when_it_has_the_focus(scratch: Scratch) -> None:
    page = scratch.run(SETUP, "Player(Clip(spoken(1).samples, 24_000, Words([WordTime('a', 0.0, 0.5),"
                       " WordTime('tremendously', 0.5, 0.52), WordTime('good', 0.6, 1.2)])))")  # fmt: skip
    words = page.locator(".voicelab-player .voicelab-words button")
    narrow = page.locator(".voicelab-words button.voicelab-narrow")
    narrow.wait_for(timeout=LONG)
    letters = "(node) => [getComputedStyle(node).color, node.scrollWidth <= node.clientWidth]"
    assert narrow.evaluate(letters) == ["rgba(0, 0, 0, 0)", False]
    # One word is reached by Tab, the others by the arrows.
    assert words.evaluate_all("(all) => all.map((one) => one.tabIndex)") == [0, -1, -1]
    words.first.focus()
    page.keyboard.press("ArrowRight")
    assert narrow.evaluate("(node) => node === document.activeElement")
    assert narrow.evaluate(letters) == [words.last.evaluate("(node) => getComputedStyle(node).color"), True]
    page.keyboard.press("Enter")
    until(page, "d.state === 'playing' && +d.position >= 0.5 * 24000")


def test_in_a_comparison_the_word_is_lit_in_every_row(scratch: Scratch) -> None:
    page = scratch.run(SETUP, "vl.compare(fast=spoken(1), slow=spoken(2)).panel()")
    rows = page.locator(".voicelab-compare-row")
    rows.nth(1).locator(".voicelab-words button").nth(1).dblclick()
    until(page, "d.current === 'slow' && d.playing === 'true' && +d.heard > 0.1", ".voicelab-compare")
    page.wait_for_function(
        "() => [...document.querySelectorAll('.voicelab-compare-row')].every((row) =>"
        " row.querySelector('.voicelab-lit')?.textContent === 'two')",
        timeout=LONG,
    )
    page.locator(".voicelab-compare").get_by_role("button", name="Blind").click()
    page.wait_for_function("() => !document.querySelector('.voicelab-compare .voicelab-words button')", timeout=LONG)


def test_pitch_is_drawn_and_what_is_under_the_cursor_is_read(scratch: Scratch) -> None:
    page = scratch.run(SETUP, "Player(spoken(1))")
    page.wait_for_selector(".voicelab-player[data-spectrogram^=mel]", timeout=LONG)
    spectrum = page.locator(".voicelab-spectrum")
    before = spectrum.evaluate("(canvas) => canvas.toDataURL()")
    page.get_by_role("button", name="Pitch over the spectrogram").click()
    page.wait_for_function(
        "(before) => document.querySelector('.voicelab-spectrum').toDataURL() !== before", arg=before, timeout=LONG
    )
    box = box_of(spectrum)
    page.mouse.move(box["x"] + 0.5 * box["width"], box["y"] + 0.9 * box["height"])
    page.wait_for_function("() => document.querySelector('.voicelab-readout').textContent.includes('F0')", timeout=LONG)
    time, frequency, level, pitch = page.locator(".voicelab-readout").inner_text().split(" · ")
    assert abs(float(time.split()[0]) - 1.0) < 0.01
    assert 20 < float(frequency.split()[0]) < 500
    assert -80 < float(level.split()[0]) <= 0
    assert abs(float(pitch.split()[1]) - 24_000 / 20 / 6.2832) < 6


def test_what_stays_of_a_comparison_switches_at_the_same_word_without_a_kernel(page: Page) -> None:
    def spoken(pace: float) -> Clip:
        samples = (0.5 * np.sin(np.arange(int(24_000 * 3 * pace)) / 20)).astype(np.float32)
        times = ((0.1, 0.5), (0.7, 1.4), (1.5, 2.5))
        said = zip(("one", "two", "three"), times, strict=True)
        return Clip(samples, 24_000, Words([WordTime(word, pace * start, pace * end) for word, (start, end) in said]))

    page.set_content(comparison_bundle(compare(fast=spoken(1), slow=spoken(2)))["text/html"])
    moments = page.evaluate(
        """async () => {
          const [fast, slow] = document.querySelectorAll('audio');
          fast.muted = slow.muted = true; // no hand has touched the page
          fast.currentTime = 1;
          await fast.play();
          await slow.play();
          const there = [fast.currentTime, slow.currentTime, fast.paused];
          slow.currentTime = 4;
          await fast.play();
          return [...there, fast.currentTime, slow.paused];
        }"""
    )
    assert moments[1] == pytest.approx(2 * moments[0], abs=0.3)
    assert moments[0] >= 1
    assert moments[3] == pytest.approx(2, abs=0.3)
    assert (moments[2], moments[4]) == (True, True)


# A voice that is understood, behind a backend that says no word times, as remote ones do.
REMOTE = """\
import voicelab as vl
from tests.tones import RATE, ToneBackend
from voicelab.audio.encoders import StreamEncoder
from voicelab.lab import Lab
voice = vl.connect()
class Remote(ToneBackend):
    def _notes(self, call):
        request = call.request
        said = voice.speak(request.text, seed=call.seed, latency="low").resample(RATE).samples
        encoder = StreamEncoder(request.format, RATE, request.rate, mp3_bitrate=128, opus_bitrate=-1000)
        yield encoder.feed(said)
        yield encoder.finish()
lab = Lab(Remote())
"""
SHEET = "Glue the sheet to the dark blue background."


def test_words_of_a_backend_that_says_no_times_and_of_files_are_found(scratch: Scratch) -> None:
    page = scratch.run(
        f"{REMOTE}panel = lab.panel(compact=True)\npanel.controls.set(text={SHEET!r})\npanel",
        f"clip = lab.speak({SHEET!r}, seed=2)\nassert not clip.words\n"
        "file = vl.Clip.load(lab.speak(clip.take.request.text, seed=3).save('remote.wav'))\n"
        "vl.compare(said=clip, loaded=file).panel()",
        "timed = vl.align_words(file, clip.take.request.text).words\n"
        "given = vl.Clip.load('remote.wav', words=timed.save('remote.TextGrid'))\n"
        "for suffix in ('srt', 'vtt'):\n"
        "    again = vl.Clip.load('remote.wav', words=given.words.save(f'remote.{suffix}'))\n"
        "    assert [word.text for word in again.words] == [word.text for word in given.words], suffix\n"
        "from voicelab.views.player import Player\nPlayer(given)",
    )
    words = [word.strip(".") for word in SHEET.split()]
    page.set_viewport_size({"width": 1200, "height": 2400})
    rows = page.locator(".voicelab-compare-row .voicelab-words")
    page.wait_for_selector(".voicelab-compare .voicelab-words button", timeout=LONG)
    for number in range(2):
        assert rows.nth(number).locator("button").all_inner_texts() == words
    player = page.locator(".jp-OutputArea-output > .voicelab-player, .jp-OutputArea-output .voicelab-player").last
    assert player.locator(".voicelab-words button").all_inner_texts() == words
    page.locator(".voicelab-panel button.voicelab-speak").click()
    page.wait_for_function(
        "() => document.querySelectorAll('.voicelab-panel .voicelab-words button').length === 8", timeout=LONG
    )
