"""What ends in the middle: a kernel, or a service that speaks; nothing goes on by itself, and every panel says so."""

from __future__ import annotations

import json
import re
import time
from typing import TYPE_CHECKING

import psutil

from tests.browser.conftest import AUDIO, LONG, Scratch, drag, in_kernel, until

if TYPE_CHECKING:
    from playwright.sync_api import Page

TEXT = "Eight notes, then some more, and so on, as long as it takes somebody to start the kernel anew in the middle."
# A note of 50 ms takes 30 ms: RTF 0.6. A worker of the sandbox, in which recordings are decoded, is a process of its own.
CELLS = (
    f"""\
import json
import os
import time
import psutil
import voicelab as vl
from tests.speechlike import speech_file
from tests.tones import ToneBackend
from voicelab.audio.sandbox import decode_apart
from voicelab.runs.cache import Cache
from voicelab.lab import Lab
lab = Lab(ToneBackend(lambda _: time.sleep(0.03)))
clip = Lab(ToneBackend()).speak({TEXT!r}, seed=1)
decode_apart(speech_file(1))
kernel = psutil.Process()
here = [kernel.pid, *(child.pid for child in kernel.children(recursive=True))]
with open("processes.json", "w") as file:
    json.dump(here, file)
""",
    f"sweep = lab.sweep({TEXT!r}, temperature=[0, 0.25, 0.5, 0.75, 1], cache=Cache('cache-restart')).panel()\nsweep",
    f"panel = lab.panel(compact=True)\npanel.controls.set(text={TEXT!r})\npanel",
    "vl.compare(first=clip, second=clip).panel()",
)


def running(pid: int) -> bool:
    """Whether a process is at work; one that has ended may still be listed until somebody asks for its status."""
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def restart(page: Page) -> None:
    page.evaluate("() => jupyterapp.shell.currentWidget.context.sessionContext.session.kernel.restart()")


def test_a_kernel_that_is_restarted_in_the_middle_of_everything_leaves_nothing(scratch: Scratch) -> None:
    page = scratch.run(*CELLS)
    page.set_viewport_size({"width": 1200, "height": 2600})
    before = json.loads((scratch.folder / "processes.json").read_text(encoding="utf-8"))
    assert len(before) > 1
    assert all(map(running, before))
    page.locator("button.voicelab-run:enabled").click(timeout=LONG)
    page.wait_for_selector(".voicelab-hear[data-state=running]", timeout=LONG)
    # A comparison that would go round for ever, and speech that still arrives.
    page.wait_for_selector(".voicelab-compare[data-current=first]", timeout=LONG)
    drag(page, page.locator(".voicelab-compare canvas").first, 0.2, 0.4)
    page.wait_for_selector(".voicelab-compare[data-playing=true]", timeout=LONG)
    page.locator(".voicelab-panel button.voicelab-speak").click()
    until(page, "d.state === 'playing' && +d.heard > 0.1 && +d.samples > 22050", ".voicelab-panel .voicelab-player")

    restart(page)
    page.wait_for_selector(".voicelab-panel .voicelab-player[data-state=ready]", timeout=LONG)
    page.wait_for_selector(".voicelab-compare[data-playing=false]", timeout=LONG)
    page.wait_for_function(f"() => {AUDIO}.every((entry) => entry.audio.state !== 'running' && !entry.users.size)")
    assert page.locator(".voicelab-panel .voicelab-notice").inner_text() == (
        "Kernel disconnected; the audio is incomplete."
    )
    assert "Kernel disconnected" in page.locator(".voicelab-takes-lost").inner_text()
    assert page.locator(".voicelab-hear[data-state=running]").count() == 0
    deadline = time.monotonic() + LONG / 1000
    while any(map(running, before)) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert [pid for pid in before if running(pid)] == []

    # What had come is still there to be heard, and the cells run again.
    page.locator(".voicelab-panel .voicelab-player button[aria-label=Loop]").click()  # it may be short
    page.locator(".voicelab-panel .voicelab-player button[aria-label=Play]").click()
    page.wait_for_selector(".voicelab-panel .voicelab-player[data-state=playing]", timeout=LONG)
    page.locator(".voicelab-compare").focus()
    page.keyboard.press("Space")
    page.wait_for_selector(".voicelab-compare[data-playing=true]", timeout=LONG)
    scratch.run("print('here again')")


# A service in a process of its own, which can be killed and started again at the same address.
SERVED = '''\
import subprocess, sys, time
from pathlib import Path
import voicelab as vl
from voicelab.runs.cache import Cache
from voicelab.service.keys import KeyStore
PROGRAM = """
import itertools, sys, time
from pathlib import Path
from tests.tones import ToneBackend
from voicelab.service.keys import KeyStore
from voicelab.service.run import serve
ready = lambda line: Path("ready").write_text(line) if "is ready" in line else None
halves = itertools.count()
def hold(note):
    # Three takes are made; the others are half said until they may go on, or the service is killed.
    while note == 6 and next(halves) >= 3 and not Path("go").exists():
        time.sleep(0.05)
serve(ToneBackend(hold), port=int(sys.argv[1]), keys=KeyStore("keys.sqlite3"), say=ready)
"""
def start(port=0):
    Path("ready").unlink(missing_ok=True)
    process = subprocess.Popen([sys.executable, "-c", PROGRAM, str(port)])
    while not Path("ready").exists() or not Path("ready").read_text():
        time.sleep(0.02)
    return process, Path("ready").read_text().split()[-1]
secret = KeyStore("keys.sqlite3").create("sweep").secret
service, url = start()
lab = vl.connect(url, api_key=secret)
panel = lab.sweep("Eight notes.", temperature="0..1 step 0.05", cache=Cache("cache-died")).panel()
panel'''


def test_a_service_that_dies_during_a_sweep_fails_what_is_left_which_can_be_made_later(scratch: Scratch) -> None:
    page = scratch.run(SERVED)
    page.locator("button.voicelab-run:enabled").click(timeout=LONG)
    page.wait_for_selector(".voicelab-hear[data-state=done]", timeout=LONG)
    in_kernel(page, "service.kill(); service.wait()")
    page.wait_for_selector("button.voicelab-run:enabled:has-text('Retry failed')", timeout=LONG)
    status = page.locator(".voicelab-sweep-panel .voicelab-status").inner_text()
    done, failed = (int(number) for number in re.findall(r"(\d+) of 21 takes, done, (\d+) failed", status)[0])
    assert done == 21
    assert 0 < failed < 21
    # What had come can be heard, and what failed is made once the service is back; nothing is made twice.
    page.locator(".voicelab-hear[data-state=done]").first.click()
    page.wait_for_function("() => +document.querySelector('.voicelab-takes').dataset.heard > 0.1", timeout=LONG)
    page.locator(".voicelab-takes-view .widget-dropdown select").first.select_option("List")
    page.locator(".voicelab-takes-view input").first.fill("state=failed")
    page.wait_for_selector(f".voicelab-takes[data-view=list][data-shown='{failed}']", timeout=LONG)
    assert "the audio broke off" in page.locator(".voicelab-take-state").first.inner_text()
    in_kernel(page, "Path('go').touch(); service, url = start(int(url.rpartition(':')[2]))")
    page.locator("button.voicelab-run").click()
    there = f"{21 - failed} cached"
    page.wait_for_selector(f".voicelab-sweep-panel .voicelab-status:has-text('{there}')", timeout=LONG)
    page.wait_for_function("() => document.querySelector('button.voicelab-run:enabled')?.innerText.trim() === 'Run'")
    page.wait_for_selector(".voicelab-takes[data-shown='21']", timeout=LONG)
    assert page.locator(".voicelab-take[data-state=failed]").count() == 0
    in_kernel(page, "lab.close(); service.kill(); service.wait()")
