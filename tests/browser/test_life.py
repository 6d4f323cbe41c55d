"""Work of a panel ends with its output, with an interrupt, and is announced while the kernel is busy."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.browser.conftest import LONG, Scratch, in_kernel

if TYPE_CHECKING:
    from playwright.sync_api import Page

SLOW = """\
import json
import time
from tests.tones import ToneBackend
from voicelab.runs.cache import Cache
from voicelab.lab import Lab
backend = ToneBackend(lambda _: time.sleep(0.01))
panel = Lab(backend).sweep("Four.", seed=list(range(400)), cache=Cache("cache-life-%s")).panel()
panel"""
STOPS = {
    "the cell is deleted": "() => jupyterapp.shell.currentWidget.content.model.sharedModel.deleteCell(0)",
    "the output is cleared": "() => jupyterapp.commands.execute('notebook:clear-all-cell-outputs')",
    "interrupt": "() => jupyterapp.commands.execute('notebook:interrupt-kernel')",
}


def asked(page: Page, folder: Path) -> tuple[int, str]:
    """Return the number of requests so far, and the state of the run."""
    in_kernel(page, "from pathlib import Path; Path('asked').write_text(f'{len(backend.asked)} {panel._run.state}')")
    number, _, state = (folder / "asked").read_text(encoding="utf-8").partition(" ")
    return int(number), state


@pytest.mark.parametrize("stop", STOPS)
def test_a_running_sweep_stops_within_two_seconds(scratch: Scratch, stop: str) -> None:
    page = scratch.run(SLOW % stop.replace(" ", "-"), "after = 1")
    page.locator("button.voicelab-run:enabled").click()
    page.locator(".voicelab-hear[data-state=done]").first.wait_for(timeout=LONG)
    assert asked(page, scratch.folder)[1] == "running"
    page.evaluate(STOPS[stop])
    time.sleep(2)
    number, state = asked(page, scratch.folder)
    assert state == "cancelled"
    assert number < 400
    if stop == "interrupt":
        page.get_by_role("button", name="Resume").wait_for(timeout=LONG)
        assert "cancelled" in page.locator(".voicelab-sweep-panel .voicelab-status").inner_text()


def test_a_busy_kernel_is_said_on_the_button_and_presses_do_not_queue(scratch: Scratch) -> None:
    setup = (
        "from tests.tones import ToneBackend\nfrom voicelab.lab import Lab\nbackend = ToneBackend()\nlab = Lab(backend)"
    )
    page = scratch.run(
        setup, "panel = lab.panel('Four notes.', compact=True)\npanel", "knobs = lab.knob_panel()\nknobs"
    )
    speak, run = page.locator("button.voicelab-speak"), page.locator("button.voicelab-run-knobs")
    run.wait_for(timeout=LONG)
    in_kernel(page, "pass")
    kernel = "jupyterapp.shell.currentWidget.context.sessionContext.session.kernel"
    page.evaluate(f"() => void {kernel}.requestExecute({{code: 'import time; time.sleep(8)'}})")
    page.wait_for_function(f"() => {kernel}.status === 'busy'", timeout=LONG)
    for button in (speak, run):
        button.click()
        page.wait_for_function("(node) => node.dataset.waiting === 'late'", arg=button.element_handle(), timeout=3000)
        content = button.evaluate("(node) => getComputedStyle(node, '::after').content")
        assert content == '" · waiting for the kernel"'
        button.click()
        button.click()
    assert page.locator(".voicelab-panel .voicelab-status").inner_text() == "Waiting for the kernel, which is busy…"
    page.wait_for_function("() => !document.querySelector('[data-waiting]')", timeout=LONG)
    in_kernel(page, "panel.wait(); panel.cancel()")
    in_kernel(page, "from pathlib import Path; Path('count').write_text(f'{panel.newest} {knobs._task is not None}')")
    assert (scratch.folder / "count").read_text(encoding="utf-8") == "1 True"


def test_python_plays_and_hears_of_it(scratch: Scratch) -> None:
    cell = (
        "from tests.tones import ToneBackend\nfrom voicelab.lab import Lab\nfrom voicelab.views.player import Player\n"
        "player = Player(Lab(ToneBackend()).speak('Thirty notes, or a few more of them.'))\nevents = []\n"
        "player.on_event(lambda name, seconds: events.append((name, round(seconds, 1))))\nplayer"
    )
    page = scratch.run(cell)
    page.locator(".voicelab-player[data-state=ready]").wait_for(timeout=LONG)
    page.mouse.click(5, 5)  # browsers allow sound after a gesture
    in_kernel(page, "player.play(1.0)")
    # Of 1.8 s; a position is reported every 0.25 s.
    moved = "({ heard, position, samples }) => heard > 0.1 && position / samples > 1.4 / 1.8"
    page.wait_for_function(f"() => ({moved})(document.querySelector('.voicelab-player').dataset)", timeout=LONG)
    in_kernel(page, "player.pause()")
    page.wait_for_selector(".voicelab-player[data-state=ready]", timeout=LONG)
    in_kernel(page, "player.seek(1.5); player.play()")
    page.wait_for_selector(".voicelab-player[data-state=playing]", timeout=LONG)
    page.wait_for_selector(".voicelab-player[data-state=ready]", timeout=LONG)
    page.wait_for_timeout(200)
    in_kernel(page, "from pathlib import Path; import json; Path('events').write_text(json.dumps(events))")
    events = json.loads((scratch.folder / "events").read_text(encoding="utf-8"))
    assert [name for name, _ in events if name != "position"] == ["play", "pause", "play", "ended"]
    assert [seconds for name, seconds in events if name == "play"] == pytest.approx([1.0, 1.5], abs=0.11)
    assert events[-1][1] == pytest.approx(1.8, abs=0.2)
    assert any(name == "position" and seconds > 1.0 for name, seconds in events)


def test_of_two_pages_with_a_panel_one_plays(scratch: Scratch) -> None:
    page = scratch.run(
        "from tests.tones import ToneBackend\nfrom voicelab.lab import Lab\nlab = Lab(ToneBackend())",
        "panel = lab.panel('Twenty notes, or more.', compact=True)\npanel",
    )
    speak = page.locator("button.voicelab-speak")
    speak.wait_for(timeout=LONG)
    page.evaluate("() => jupyterapp.commands.execute('docmanager:save')")
    other = page.context.new_page()
    other.goto(page.url)
    other.locator("button.voicelab-speak").wait_for(timeout=LONG)
    other.mouse.click(5, 5)  # so that its sound is allowed
    page.bring_to_front()
    speak.click()
    heard = "() => +document.querySelector('.voicelab-player').dataset.heard > 0.1"
    page.wait_for_function(heard, timeout=LONG)
    other.wait_for_function("() => +document.querySelector('.voicelab-player').dataset.samples > 20000", timeout=LONG)
    other.wait_for_timeout(1500)  # a page that was not used last waits for an answer of 1 s
    assert not other.evaluate(heard)
    other.close()
