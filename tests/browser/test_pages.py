"""Notebooks as pages: an application in Voilà, and slides."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.browser.conftest import LONG, ROOT, Jupyter, free_port, serving
from tests.browser.front_ends import shows
from tests.browser.test_bundles import CELLS as SAVED_CELLS
from tests.browser.test_bundles import PLAYS, saved  # noqa: F401 (a fixture)

if TYPE_CHECKING:
    from playwright.sync_api import Page, Route

FRONT_ENDS = Path(sys.prefix) / "front-ends"
VOILA = FRONT_ENDS / "voila"
CELLS = (
    "from tests.tones import ToneBackend\nfrom voicelab.lab import Lab\nimport voicelab as vl\nlab = Lab(ToneBackend())",
    "clip = lab.speak('Eight notes.', seed=1)\nclip",
    "lab.panel(compact=True)",
    "lab.sweep('Eight notes.', temperature=[0.2, 0.8]).panel()",
    "vl.compare(clip, lab.speak('Eight notes.', seed=2)).panel()",
    "lab.voice_panel()",
)

SLIDES = SAVED_CELLS[1:]
SCRIPTS = {
    "/require.min.js": "requirejs/require.js",
    "/jquery.min.js": "jquery/dist/jquery.min.js",
    **{f"/{name}": f"reveal.js/{name}" for name in ("dist/reveal.js", "dist/reveal.css", "plugin/notes/notes.js")},
}


@pytest.fixture
def voila(tmp_path: Path) -> Iterator[str]:
    """Serve a notebook with Voilà; gives its address."""
    if not VOILA.is_dir():
        pytest.skip("Voilà is not here (make test-browser fetches it; so does .ci/front-ends .venv)")
    Jupyter("", tmp_path).notebook("application.ipynb", *CELLS)
    port = free_port()
    environment = {**os.environ, "PYTHONPATH": f"{VOILA}{os.pathsep}{ROOT}", "IPYTHONDIR": str(tmp_path / "ipython")}
    environment["JUPYTER_PATH"] = str(VOILA / "share" / "jupyter")
    command = [sys.executable, "-m", "voila", "application.ipynb", "--no-browser", f"--port={port}"]
    with serving(command, f"http://127.0.0.1:{port}/voila/static/voila.js", tmp_path, environment):
        yield f"http://127.0.0.1:{port}"


@shows("Voilà 0.5", "clips", "panel", "sweep", "compare", "voice")
def test_an_application_of_voila_speaks_sweeps_and_compares(voila: str, page: Page) -> None:
    page.goto(voila, timeout=2 * LONG)
    page.locator("button.voicelab-speak").first.click(timeout=2 * LONG)
    heard = "() => +document.querySelector('.voicelab-panel .voicelab-player').dataset.heard > 0.05"
    page.wait_for_function(heard, timeout=LONG)
    assert page.locator("audio:visible").first.evaluate(PLAYS) == "data:audio/mpeg;base64"
    page.locator("button.voicelab-run").click()
    page.get_by_text("2 of 2 takes, done").wait_for(timeout=LONG)
    page.locator(".voicelab-facet .voicelab-hear[data-state=done]").nth(1).click()
    page.wait_for_function("() => +document.querySelector('.voicelab-takes').dataset.heard > 0.05", timeout=LONG)
    compare = page.locator(".voicelab-compare")
    compare.get_by_role("button", name="Play").first.click()
    page.wait_for_function("(node) => +node.dataset.heard > 0.05", arg=compare.element_handle(), timeout=LONG)
    page.locator(".voicelab-recorder").wait_for(timeout=LONG)
    assert page.locator(".voicelab-saved:visible").count() == 0


@shows("nbconvert slides", "clips", "saved")
def test_slides_fit_and_play_without_a_kernel(saved: Any, page: Page, jupyter: Jupyter) -> None:  # noqa: F811
    if not (FRONT_ENDS / "reveal.js").is_dir():
        pytest.skip("reveal.js is not here (make test-browser fetches it; so does .ci/front-ends .venv)")
    import nbformat
    from nbconvert import SlidesExporter

    document = nbformat.reads(nbformat.writes(nbformat.from_dict(saved)), as_version=4)
    for cell in document.cells:
        cell.metadata["slideshow"] = {"slide_type": "slide" if cell.outputs else "skip"}
    html, _ = SlidesExporter(exclude_input=True, reveal_scroll=True).from_notebook_node(document)  # type: ignore[no-untyped-call]
    page.route("**/*", lambda route: answer(route, html))
    page.set_viewport_size({"width": 1280, "height": 800})
    page.goto("https://slides.test/")
    page.wait_for_selector(".reveal.ready", timeout=LONG)
    slides = page.locator(".slides > section")
    assert slides.count() == len(SLIDES)
    for number, cell in enumerate(SLIDES):
        slide = slides.nth(number)
        page.wait_for_function("(node) => node.classList.contains('present')", arg=slide.element_handle(), timeout=LONG)
        for sound in slide.locator("audio").all():
            assert sound.evaluate(PLAYS) == "data:audio/mpeg;base64", cell
        inner = slide.locator("section")
        # A slide has 700 pixels; the comparison scrolls.
        fits, overflow = inner.evaluate("(node) => [node.scrollHeight <= 700, getComputedStyle(node).overflowY]")
        assert fits or overflow == "scroll", cell
        assert fits == ("compare" not in cell), cell
        page.keyboard.press("ArrowRight")


def answer(route: Route, html: str) -> None:
    """Answer with the slides, or with a script that they take from a network."""
    path = route.request.url.partition("?")[0]
    for end, file in SCRIPTS.items():
        if path.endswith(end):
            return route.fulfill(path=FRONT_ENDS / file)
    if path == "https://slides.test/":
        return route.fulfill(body=html, content_type="text/html")
    if "mathjax" in path:
        return route.fulfill(body="window.MathJax = { Hub: { getAllJax() {} } }", content_type="text/javascript")
    return route.abort()
