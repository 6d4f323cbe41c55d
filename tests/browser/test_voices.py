"""The voice panel in JupyterLab, used as a person would: dropped, recorded, corrected, made, and heard."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import TYPE_CHECKING

from tests.browser.conftest import LONG, Scratch, shoot, themed, until
from tests.browser.front_ends import shows
from tests.speechlike import RATE, speechlike
from voicelab.clip import Clip

if TYPE_CHECKING:
    from playwright.sync_api import Page

PANEL = ".voicelab-voices"
QUICK = """\
import os
import voicelab as vl
os.environ["VOICELAB_RECOGNIZER"] = "none"
panel = vl.connect().voice_panel()
panel"""
CELL = """\
import os
import voicelab as vl
lab = vl.connect()
voice = lab.voices[3]
text = "The birch canoe slid on the smooth planks. Glue the sheet to the dark blue background."
clip = lab.speak(text, voice=voice, seed=2)
os.environ.pop("VOICELAB_RECOGNIZER", None)
panel = lab.voice_panel()
panel"""
DROP = """([panel, name, data]) => {
  const bytes = Uint8Array.from(atob(data), (c) => c.charCodeAt(0));
  const dataTransfer = new DataTransfer();
  dataTransfer.items.add(new File([bytes], name));
  const target = document.querySelector(panel + " .voicelab-recorder");
  for (const kind of ["dragenter", "dragover", "drop"]) {
    target.dispatchEvent(new DragEvent(kind, { dataTransfer, bubbles: true, cancelable: true }));
  }
}"""

# Keeps the tracks of microphones that are opened from now on.
WATCH = """() => {
  globalThis.tracks = [];
  const { mediaDevices } = navigator;
  const open = mediaDevices.getUserMedia.bind(mediaDevices);
  mediaDevices.getUserMedia = async (wanted) => {
    const stream = await open(wanted);
    tracks.push(...stream.getTracks());
    for (const track of stream.getTracks()) track.enabled = !globalThis.mute;
    return stream;
  };
}"""


def remove(page: Page) -> None:
    page.locator(f"{PANEL} button.voicelab-remove").first.click()
    page.wait_for_selector(".voicelab-recording", state="detached", timeout=LONG)


def drop(page: Page, name: str, data: bytes) -> None:
    page.evaluate(DROP, [PANEL, name, base64.b64encode(data).decode()])


def test_files_are_dropped_and_the_microphone_is_recorded(scratch: Scratch) -> None:
    page = scratch.run(QUICK)
    page.wait_for_selector(f"{PANEL} .voicelab-recorder", timeout=LONG)
    make = page.locator("button.voicelab-make-voice")
    assert make.is_disabled()
    row = page.locator(f"{PANEL} .voicelab-recording").first

    # What is no sound is named, and names no voice.
    drop(page, "notes.txt", b"not a sound")
    page.wait_for_selector(".voicelab-intake [role=alert]", timeout=LONG)
    assert make.is_disabled()
    # A file of several pieces.
    sound = Clip(speechlike(14), RATE).resample(44_100).to_bytes("wav")
    assert len(sound) > 1 << 20
    drop(page, "ben.wav", sound)
    page.locator(".voicelab-recording", has_text="ben.wav, 1").wait_for(timeout=LONG)
    page.wait_for_selector("button.voicelab-make-voice:enabled", timeout=LONG)
    assert "as unusable: notes.txt" in page.locator(f"{PANEL} > .voicelab-message").inner_text()
    page.locator(f"{PANEL} button.voicelab-remove").first.click()
    title = page.locator(f"{PANEL} .voicelab-title input")
    assert title.input_value() == "ben"
    title.fill("")
    page.wait_for_function(f"() => document.querySelector('{PANEL} > .voicelab-message').innerText.includes('Title')")
    remove(page)

    # The microphone hears a file.
    record = page.locator("button.voicelab-record")
    record.click()
    until(page, "+d.recorded > 1", ".voicelab-recorder")
    until(page, "+d.level > 0.01", ".voicelab-recorder")
    record.click()
    page.wait_for_selector(".voicelab-intake [role=note]", timeout=LONG)
    assert "Recording 1" in row.inner_text()
    assert "shorter than the 10 to 30 s" in row.inner_text()
    row.get_by_role("button", name="Play").click()
    until(page, "+d.heard > 0.02", ".voicelab-recording .voicelab-player")

    # Nobody may be allowed to listen; the panel says so, and works again once somebody is.
    page.context.clear_permissions()
    page.context.grant_permissions(["geolocation"])  # and nothing else
    record.click()
    refused = ":has-text('The browser denied access to the microphone.')"
    page.wait_for_selector(f".voicelab-recorder [role=alert]{refused}", timeout=LONG)
    assert record.is_enabled()
    assert record.inner_text() == "● Record"
    page.context.grant_permissions(["microphone"])

    # A kernel that goes takes the microphone with it.
    page.evaluate(WATCH)
    record.click()
    until(page, "+d.recorded > 0.1", ".voicelab-recorder")
    assert page.evaluate("() => tracks.map((track) => track.readyState)") == ["live"]
    page.evaluate("() => jupyterapp.shell.currentWidget.context.sessionContext.session.kernel.restart()")
    page.wait_for_function("() => tracks.every((track) => track.readyState === 'ended')", timeout=LONG)
    page.wait_for_selector("button.voicelab-record:disabled", timeout=LONG)
    assert "Kernel disconnected" in page.locator(".voicelab-recorder").inner_text()


def test_a_microphone_that_is_muted_or_closed_says_so(scratch: Scratch) -> None:
    page = scratch.run(QUICK)
    record = page.locator("button.voicelab-record")
    record.wait_for(timeout=LONG)
    page.evaluate(WATCH)
    page.evaluate("() => (globalThis.mute = true)")
    record.click()
    until(page, "+d.recorded > 0.1", ".voicelab-recorder")
    record.click()
    page.wait_for_selector(".voicelab-recorder [role=alert]:has-text('The recording is silent')", timeout=LONG)
    page.evaluate("() => (globalThis.mute = false)")
    record.click()
    until(page, "+d.recorded > 1", ".voicelab-recorder")
    page.evaluate("() => { tracks.at(-1).stop(); tracks.at(-1).dispatchEvent(new Event('ended')); }")
    page.wait_for_selector(".voicelab-recorder [role=alert]:has-text('The microphone was disconnected')", timeout=LONG)
    page.wait_for_selector(".voicelab-recording:has-text('Recording 1')", timeout=LONG)
    remove(page)


@shows("JupyterLab 4", "voice")
def test_a_clip_is_corrected_made_a_voice_and_heard(scratch: Scratch, tmp_path: Path) -> None:
    page = scratch.run(CELL)
    page.set_viewport_size({"width": 1200, "height": 1400})
    add_clip(page)
    transcript = page.locator(".voicelab-transcript textarea")
    assert len(transcript.input_value().split()) > 6
    transcript.fill("The birch canoe.")
    transcript.blur()
    page.locator(f"{PANEL} .voicelab-title input").fill("Two sentences")
    page.wait_for_selector(".voicelab-intake [role=note]:has-text('does not match')", timeout=LONG)
    page.wait_for_selector("button.voicelab-make-voice:enabled", timeout=LONG)
    page.locator("button.voicelab-make-voice").click()
    page.wait_for_selector(".voicelab-making:has-text('Two sentences: trained')", timeout=LONG)
    record = page.locator(".voicelab-record-of-voice")
    record.locator("summary").wait_for(timeout=LONG)
    assert "Two sentences: trained, private, 1 recording" in record.inner_text()
    record.locator("summary").click()
    assert "does not match" in record.inner_text(), "what was noticed stands in the record"
    record.locator("summary").click()
    page.locator(f"{PANEL} button.voicelab-speak").click()
    until(page, "+d.heard > 0.02", f"{PANEL} .voicelab-player")

    # As it looks with a second voice on its way.
    add_clip(page)
    page.wait_for_selector(f"{PANEL} .voicelab-player[data-state=ready][data-spectrogram^=mel]", timeout=LONG)
    for theme in ("Dark", "Light"):
        themed(page, theme)
        shoot(page, PANEL, tmp_path, f"voices-{theme.lower()}.png")


def add_clip(page: Page) -> None:
    """Give the name of a clip of the notebook, and wait until it has been listened to."""
    page.locator(".voicelab-clip-name input").fill("clip")
    page.locator("button.voicelab-add-clip").click()
    page.wait_for_selector("button.voicelab-make-voice:enabled", timeout=LONG)
