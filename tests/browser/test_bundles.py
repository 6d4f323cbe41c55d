"""What is left of an output where nobody trusts it, no kernel runs, or no JupyterLab: it still shows, and still plays."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.browser.conftest import LONG, Jupyter, Scratch

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

CELLS = (
    "import voicelab as vl\nfrom tests.tones import ToneBackend\nfrom voicelab.lab import Lab\nlab = Lab(ToneBackend())",
    "clip = lab.speak('Eight notes.', seed=1)\nclip",
    "lab.sweep('Notes', temperature=[0.2, 0.8]).run()",
    "vl.compare(clip, lab.speak('Eight notes.', seed=2))",
    "from voicelab.views.player import Player\nPlayer(clip)",
    "lab.panel()",
    "lab.voice_panel()",
    "lab.capabilities",
)
SOUNDS = 1 + 2 + 2
"""Players in the saved outputs of ``CELLS`` where no widget runs, without the one of Player."""
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
    page.evaluate("() => jupyterapp.commands.execute('docmanager:save')")
    assert errors == []
    return json.loads((scratch.folder / "test_bundles.ipynb").read_text(encoding="utf-8"))


def outputs(document: Any) -> list[dict[str, Any]]:
    return [output["data"] for cell in document["cells"] for output in cell["outputs"]]


def check(page: Page, *, widgets: bool = False) -> None:
    """Hear and see all there is; ``widgets``: JupyterLab shows them, or tries to, in place of what is beside them."""
    # Tall enough for all cells: what is out of sight is not there yet.
    page.set_viewport_size({"width": 1200, "height": 4000})
    page.wait_for_function("() => document.body.innerText.includes('tones on cpu')", timeout=LONG)
    sounds = page.locator(".jp-OutputArea audio")
    sounds.nth(SOUNDS - 1).wait_for(timeout=LONG)
    assert sounds.count() == SOUNDS + (0 if widgets else 1)
    for number in range(sounds.count()):
        assert sounds.nth(number).evaluate(PLAYS) == "data:audio/mpeg;base64"
    pictures = page.locator(".jp-OutputArea img")
    sizes = [pictures.nth(number).evaluate("(picture) => picture.naturalWidth") for number in range(pictures.count())]
    assert len(sizes) == 2 + (0 if widgets else 1)
    assert min(sizes) >= 600
    said = page.locator("body").inner_text()
    if not widgets:
        assert "model not found" not in said
        assert "a panel to type a text" in said
        assert "a panel to make voices" in said


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
    assert [WIDGET in kind for kind in kinds] == [False, False, False, True, True, True, False]
    assert {"image/png", "text/html", "text/plain", WIDGET} == kinds[3]
    assert {"image/png", "text/html", "text/plain"} == kinds[0]


def test_reopened_and_trusted_it_plays(saved: Any, page: Page, jupyter: Jupyter) -> None:
    page.goto(f"{jupyter.url}/lab/workspaces/trusted/tree/{opened(jupyter, 'trusted.ipynb', saved)}")
    # A widget whose kernel has gone is an error to JupyterLab, whatever else the output holds; it asks for a run.
    check(page, widgets=True)
    page.wait_for_function("() => document.body.innerText.split('model not found').length === 4")
    # What only trusted pages may: a click on the picture plays from there.
    first = page.locator(".jp-OutputArea audio").first
    page.locator(".jp-OutputArea img").first.click(position={"x": 300, "y": 60})
    page.wait_for_function("() => document.querySelector('.jp-OutputArea audio').currentTime > 0.2")
    assert first.evaluate("(audio) => !audio.error")


def test_reopened_and_trusted_by_nobody_it_plays(saved: Any, page: Page, jupyter: Jupyter) -> None:
    page.goto(f"{jupyter.url}/lab/workspaces/untrusted/tree/{opened(jupyter, 'untrusted.ipynb', saved, from_='afar')}")
    check(page)
    assert page.locator(".jp-OutputArea [ontimeupdate], .jp-OutputArea [onclick]").count() == 0, "it was trusted"


@pytest.fixture
def plain(browser: Browser) -> Iterator[Page]:
    """Open a page whose own errors are not ours: Notebook 7 reports plugins of JupyterLab that it lacks."""
    context = browser.new_context(viewport={"width": 1200, "height": 1000})
    yield context.new_page()
    context.close()


def test_in_notebook_7_it_plays_and_the_panels_live(saved: Any, plain: Page, jupyter: Jupyter) -> None:
    plain.goto(f"{jupyter.url}/notebooks/{opened(jupyter, 'seven.ipynb', saved, from_='afar')}")
    check(plain)
    plain.wait_for_function(
        "() => jupyterapp.shell.currentWidget.context.sessionContext.session?.kernel?.status === 'idle'",
        timeout=120_000,
    )
    plain.evaluate("() => jupyterapp.commands.execute('notebook:run-all-cells')")
    panel = plain.locator(".voicelab-panel")
    panel.locator("button.voicelab-speak").click(timeout=LONG)
    plain.wait_for_function(
        "() => +document.querySelector('.voicelab-panel .voicelab-player').dataset.heard > 0.1", timeout=LONG
    )
    plain.locator(".voicelab-voices .voicelab-recorder").wait_for(timeout=LONG)
    check(plain, widgets=True)


def test_on_a_page_made_of_it_without_kernel_and_network_it_plays(
    saved: Any, page: Page, jupyter: Jupyter, tmp_path: Path
) -> None:
    from nbconvert import HTMLExporter

    html, _ = HTMLExporter().from_filename(str(jupyter.folder / opened(jupyter, "page.ipynb", saved)))  # type: ignore[no-untyped-call]
    (tmp_path / "page.html").write_text(html, encoding="utf-8")
    page.context.set_offline(True)
    page.goto((tmp_path / "page.html").as_uri(), wait_until="domcontentloaded")
    check(page)
