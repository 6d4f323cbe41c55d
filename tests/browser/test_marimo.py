"""Panels in marimo, as a reader opens a notebook of it: they speak, play, and give back what was marked."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.browser.conftest import LONG, ROOT, drag, free_port, serving
from tests.browser.front_ends import shows

if TYPE_CHECKING:
    from playwright.sync_api import Page

MARIMO = Path(sys.prefix) / "front-ends" / "marimo"
CELLS = (
    "import voicelab as vl\nfrom tests.tones import ToneBackend\nfrom voicelab.lab import Lab\nlab = Lab(ToneBackend())",
    "panel = lab.panel('Four notes.')\npanel",
    "clip = lab.speak('Eight notes, then more.', seed=1)\nclip",
    (
        "from voicelab.views.player import Player\nplayer = Player(clip, label='marked')\n"
        "player.observe(lambda _: player.regions.save('marked.vtt'), 'marks')\nplayer"
    ),
    "vl.compare(a=clip, b=lab.speak('Eight other notes.', seed=2)).panel()",
    "sweep = lab.sweep('Eight notes.', temperature=[0.2, 0.8], voice=['ada', 'ben'], repeats=2).panel()\nsweep",
    "lab.voice_panel()",
)


@pytest.fixture(scope="module")
def marimo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """Serve a notebook of marimo; gives its address and its folder."""
    if not MARIMO.is_dir():
        pytest.skip("marimo is not here (make test-browser fetches it; so does .ci/front-ends .venv)")
    folder = tmp_path_factory.mktemp("marimo")
    source = "import marimo\napp = marimo.App()\n"
    for number, cell in enumerate(CELLS):
        body = cell.replace("\n", "\n    ")
        source += f"\n@app.cell\ndef cell{number}():\n    {body}\n    return\n"
    (folder / "notebook.py").write_text(source, encoding="utf-8")
    (folder / "pyproject.toml").write_text('[tool.marimo.display]\ntheme = "system"\n', encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": f"{MARIMO}{os.pathsep}{ROOT}", "HOME": str(folder)}
    port = free_port()
    command = [sys.executable, "-m", "marimo", "run", "notebook.py", "--headless", "--no-token", f"--port={port}"]
    url = f"http://127.0.0.1:{port}"
    with serving([*command, "--host=127.0.0.1"], f"{url}/health", folder, environment):
        yield url, folder


@shows("marimo 0.25", "clips", "panel", "compare")
def test_panels_speak_play_and_give_back_what_was_marked(page: Page, marimo: tuple[str, Path]) -> None:
    url, folder = marimo
    page.goto(url)
    # Of the cell that explores: the controls, the player, the code and the takes, one below the other.
    speak = page.locator("button.voicelab-speak").first
    speak.wait_for(timeout=2 * LONG)
    page.locator("audio").first.wait_for(timeout=LONG)  # the clip, without a widget
    page.locator(".voicelab-controls textarea").first.fill("Six notes.")
    speak.click()
    # Inside a shadow tree, where a selector of the document does not look.
    player = page.locator(".voicelab-player").first.element_handle()
    page.wait_for_function("(node) => +node.dataset.heard > 0.05", arg=player, timeout=LONG)
    page.wait_for_function("({ dataset: d }) => d.state === 'ready' && d.spectrogram", arg=player, timeout=LONG)
    assert "lab.speak('Six notes.'" in page.locator(".voicelab-code").first.inner_text()
    page.locator(".voicelab-take").first.wait_for(timeout=LONG)

    marked = page.locator(".voicelab-player[aria-label=marked]")
    wave = marked.locator(".voicelab-wave")
    wave.scroll_into_view_if_needed()
    drag(page, wave, 0.25, 0.5)
    marked.get_by_role("button", name="Mark the loop").click()
    marked.locator(".voicelab-regions button").wait_for(timeout=LONG)
    deadline = time.monotonic() + 10
    while not (folder / "marked.vtt").exists() and time.monotonic() < deadline:
        page.wait_for_timeout(100)
    assert "-->" in (folder / "marked.vtt").read_text(encoding="utf-8")

    compare = page.locator(".voicelab-compare")
    compare.scroll_into_view_if_needed()
    compare.get_by_role("button", name="Play", exact=False).first.click()
    page.wait_for_function("(node) => +node.dataset.heard > 0.05", arg=compare.element_handle(), timeout=LONG)


@shows("marimo 0.25", "sweep", "voice")
def test_a_sweep_runs_and_its_tabs_open(page: Page, marimo: tuple[str, Path]) -> None:
    page.goto(marimo[0])
    sweep = page.locator(".voicelab-sweep-panel")
    sweep.locator("button.voicelab-run").wait_for(timeout=2 * LONG)
    page.locator(".voicelab-voices .voicelab-recorder").wait_for(timeout=LONG)
    # A row of the form is added, marked and removed.
    sweep.get_by_role("button", name="Add an axis").click()
    values = sweep.locator(".voicelab-axis input")
    values.nth(2).fill("0.1, 7")
    sweep.get_by_text("must be between 0 and 1, got 7").wait_for(timeout=LONG)
    sweep.locator("button.voicelab-run:disabled").wait_for(timeout=LONG)
    sweep.locator("button.voicelab-remove-axis").nth(2).click()
    # marimo sends each change as a request of its own, which may overtake another.
    sweep.locator(".voicelab-axis-row").nth(2).wait_for(state="detached", timeout=LONG)
    values.nth(0).fill("")
    sweep.get_by_text("the axis has no values").wait_for(timeout=LONG)
    for end, value in (("from", "0"), ("to", "1"), ("step", "0.5")):
        sweep.get_by_label(end, exact=True).first.fill(value)
        sweep.get_by_label(end, exact=True).first.press("Enter")
    sweep.get_by_text("6 cells, 12 takes").wait_for(timeout=LONG)
    assert values.nth(0).input_value() == "0..1 step 0.5"
    sweep.locator("button.voicelab-run").click()
    sweep.get_by_text("12 of 12 takes, done").wait_for(timeout=LONG)
    grid = sweep.locator(".voicelab-takes")
    grid.locator(".voicelab-hear[data-state=done]").nth(11).click()
    page.wait_for_function("(node) => +node.dataset.heard > 0.05", arg=grid.element_handle(), timeout=LONG)
    # Made in a thread, or when the tab is opened.
    sweep.locator(".voicelab-open").first.click()
    sweep.locator(".voicelab-opened .voicelab-player[data-spectrogram]").wait_for(timeout=LONG)
    for tab, there in (("Effects", "thead >> text=metric by axis"), ("Table", ".voicelab-table td >> nth=0")):
        sweep.get_by_role("tab", name=tab).click()
        sweep.locator(there).wait_for(timeout=LONG)
    assert "From sweep.frame()" in sweep.inner_text()


def test_both_themes_can_be_read(page: Page, marimo: tuple[str, Path], tmp_path: Path) -> None:
    page.emulate_media(color_scheme="dark")
    page.goto(marimo[0])
    player = page.locator(".voicelab-player[aria-label=marked]")
    for theme, ink in (("dark", "#56b4e9"), ("light", "#004b75")):
        page.emulate_media(color_scheme=theme)  # type: ignore[arg-type]  # one of its own words
        page.wait_for_function(
            "([node, ink]) => getComputedStyle(node).getPropertyValue('--vl-heard').trim() === ink",
            arg=[player.element_handle(timeout=2 * LONG), ink],
            timeout=LONG,
        )
        page.screenshot(path=tmp_path / f"marimo-{theme}.png", full_page=True)
        text, paper = player.evaluate(
            "(node) => [getComputedStyle(node).color, getComputedStyle(node).backgroundColor]"
            ".map((colour) => colour.match(/[0-9.]+/g).slice(0, 3).reduce((sum, part) => sum + Number(part), 0))"
        )
        assert abs(text - paper) > 300, "the text cannot be read"
