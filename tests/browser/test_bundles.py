"""What is left of an output where nobody trusts it, no kernel runs, or no JupyterLab: it still shows, and still plays."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.browser.conftest import IDLE, LONG, Jupyter, Scratch, until
from tests.browser.front_ends import shows

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

CELLS = (
    "import voicelab as vl\nfrom tests.tones import ToneBackend\nfrom voicelab.lab import Lab\nlab = Lab(ToneBackend())",
    "clip = lab.speak('Eight notes.', seed=1)\nclip",
    "lab.sweep('Notes', temperature=[0.2, 0.8]).run()",
    "vl.compare(clip, lab.speak('Eight notes.', seed=2))",
    "from voicelab.views.player import Player\nPlayer(clip)",
    "lab.panel(compact=True)",
    "lab.voice_panel()",
    "lab.capabilities",
)
LIVE = (
    "lab.sweep('Notes', temperature=[0.2, 0.8]).panel()",
    "vl.compare(clip, lab.speak('Eight notes.', seed=2)).panel()",
)
SOUNDS = 1 + 2 + 2
"""Players in the saved outputs of ``CELLS`` that are no panels."""
LASTING = 1 + 1
"""Players that panels leave: Player, and the speech panel, which has spoken."""
PLAYS = """async (audio) => {
  audio.muted = true;
  await audio.play();
  while (audio.currentTime < 0.1 && !audio.ended) await new Promise((later) => audio.ontimeupdate = audio.onended = later);
  audio.pause();
  return audio.src.slice(0, 22);
}"""
WIDGET = "application/vnd.jupyter.widget-view+json"


@pytest.fixture(scope="module")
def saved(_scratch: tuple[Scratch, list[str]]) -> Any:
    """Run the cells in JupyterLab, save the notebook, and return what is in the file."""
    scratch, errors = _scratch
    page = scratch.run(*CELLS)
    page.locator("button.voicelab-speak").first.click(timeout=LONG)
    # Long after the cell has run, the output beside the panel changes in the notebook.
    page.wait_for_function(
        """() => JSON.stringify(jupyterapp.shell.currentWidget.content.model.toJSON().cells[5].outputs).includes('<audio')""",
        timeout=120_000,
    )
    page.evaluate("() => jupyterapp.commands.execute('docmanager:save')")
    assert errors == []
    return json.loads((scratch.folder / "scratch.ipynb").read_text(encoding="utf-8"))


def outputs(document: Any) -> list[dict[str, Any]]:
    return [output["data"] for cell in document["cells"] for output in cell["outputs"]]


def check(page: Page, *, live: bool = False) -> None:
    """Hear and see all there is; ``live``: panels are there, in place of what they leave."""
    # Tall enough for all cells: what is out of sight is not there yet.
    page.set_viewport_size({"width": 1200, "height": 4000})
    page.wait_for_function("() => document.body.innerText.includes('tones on cpu')", timeout=LONG)
    sounds = page.locator(".jp-OutputArea audio:visible")
    wanted = SOUNDS + (0 if live else LASTING)
    sounds.nth(wanted - 1).wait_for(timeout=LONG)
    assert sounds.count() == wanted
    for number in range(sounds.count()):
        assert sounds.nth(number).evaluate(PLAYS) == "data:audio/mpeg;base64"
    pictures = page.locator(".jp-OutputArea img:visible")
    sizes = [pictures.nth(number).evaluate("(picture) => picture.naturalWidth") for number in range(pictures.count())]
    assert len(sizes) == 2 + (0 if live else LASTING)
    assert min(sizes) >= 600


def said_of_panels(page: Page) -> None:
    """Read what each was, where nothing tries to show it as a widget."""
    said = page.locator("body").inner_text()
    assert "model not found" not in said
    assert "a panel to synthesize a text" in said
    assert "a panel to create voices" in said


def opened(jupyter: Jupyter, name: str, document: Any, **metadata: str) -> str:
    """Write the notebook under another name; with other metadata nobody has signed it. Returns its name."""
    changed = {**document, "metadata": {**document["metadata"], **metadata}}
    (jupyter.folder / name).write_text(json.dumps(changed), encoding="utf-8")
    return name


def test_every_output_has_plain_text_and_all_but_tables_of_words_html(saved: Any) -> None:
    for data in outputs(saved):
        text = "".join(data["text/plain"])
        assert text
        assert " object at 0x" not in text
        assert "text/html" in data
    kinds = [set(data) for data in outputs(saved)]
    assert [WIDGET in kind for kind in kinds] == [False] * 3 + [True, False] * 3 + [False]
    assert kinds[0] == kinds[4] == kinds[6] == {"image/png", "text/html", "text/plain"}


def test_reopened_and_trusted_it_plays(saved: Any, page: Page, jupyter: Jupyter, tmp_path: Path) -> None:
    page.goto(f"{jupyter.url}/lab/workspaces/trusted/tree/{opened(jupyter, 'trusted.ipynb', saved)}")
    check(page)
    # A widget whose kernel has gone is an error to JupyterLab, whatever else there is: a sentence stands in its place.
    gone = page.locator(".jp-OutputArea-output.jupyter-widgets")
    gone.nth(2).wait_for(timeout=LONG)  # its kernel comes first
    assert gone.count() == 3
    for number in range(3):
        style = gone.nth(number).evaluate(
            "(node) => [getComputedStyle(node).fontSize, getComputedStyle(node, '::after').content]"
        )
        assert style[0] == "0px"
        assert "run the cell to use it again" in style[1]
    page.screenshot(path=tmp_path / "trusted.png")
    # What only trusted pages may: a click on the picture plays from there.
    assert page.locator(".jp-OutputArea audio[onplay][data-knots]").count() == 2
    first = page.locator(".jp-OutputArea audio").first
    page.locator(".jp-OutputArea img").first.click(position={"x": 300, "y": 60})
    page.wait_for_function("() => document.querySelector('.jp-OutputArea audio').currentTime > 0.2")
    assert first.evaluate("(audio) => !audio.error")


@shows("JupyterLab 4", "clips", "saved")
def test_reopened_and_trusted_by_nobody_it_plays(saved: Any, page: Page, jupyter: Jupyter) -> None:
    page.goto(f"{jupyter.url}/lab/workspaces/untrusted/tree/{opened(jupyter, 'untrusted.ipynb', saved, from_='afar')}")
    check(page)
    said_of_panels(page)
    assert page.locator(".jp-OutputArea [ontimeupdate], .jp-OutputArea [onclick]").count() == 0, "it was trusted"


@pytest.fixture
def plain(browser: Browser) -> Iterator[Page]:
    """Open a page whose own errors are not ours: Notebook 7 reports plugins of JupyterLab that it lacks."""
    context = browser.new_context(viewport={"width": 1200, "height": 1000})
    yield context.new_page()
    context.close()


@shows("Notebook 7", "clips", "panel", "sweep", "compare", "voice")
def test_in_notebook_7_it_plays_and_the_panels_live(saved: Any, plain: Page, jupyter: Jupyter) -> None:
    more: list[dict[str, Any]] = [
        {"cell_type": "code", "metadata": {}, "execution_count": None, "outputs": [], "source": text} for text in LIVE
    ]
    whole = {**saved, "cells": [*saved["cells"], *({**cell, "id": f"m{number}"} for number, cell in enumerate(more))]}
    plain.goto(f"{jupyter.url}/notebooks/{opened(jupyter, 'seven.ipynb', whole, from_='afar')}")
    check(plain)
    plain.wait_for_function(IDLE, timeout=120_000)
    plain.evaluate("() => jupyterapp.commands.execute('notebook:run-all-cells')")
    panel = plain.locator(".voicelab-panel").first
    panel.locator("button.voicelab-speak").click(timeout=LONG)
    until(plain, "+d.heard > 0.1", ".voicelab-panel .voicelab-player")
    plain.locator(".voicelab-voices .voicelab-recorder").wait_for(timeout=LONG)
    check(plain, live=True)
    plain.locator("button.voicelab-run").click()
    plain.get_by_text("2 of 2 takes, done").wait_for(timeout=LONG)
    compare = plain.locator(".voicelab-compare")
    compare.get_by_role("button", name="Play").first.click()
    until(plain, "+d.heard > 0.05", ".voicelab-compare")


@shows("nbconvert HTML", "clips", "saved")
def test_on_a_page_made_of_it_without_kernel_and_network_it_plays(
    saved: Any, page: Page, jupyter: Jupyter, tmp_path: Path
) -> None:
    from nbconvert import HTMLExporter

    html, _ = HTMLExporter().from_filename(str(jupyter.folder / opened(jupyter, "page.ipynb", saved)))  # type: ignore[no-untyped-call]
    (tmp_path / "page.html").write_text(html, encoding="utf-8")
    page.context.set_offline(True)
    page.goto((tmp_path / "page.html").as_uri(), wait_until="domcontentloaded")
    check(page)
    said_of_panels(page)
