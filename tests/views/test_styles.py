"""Style sheets of panels: contrast as WCAG 2.2 asks for, in JupyterLab and elsewhere, and no effect on other panels."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from voicelab.views.scripts import STATIC

THEMES = Path(sys.prefix) / "share/jupyter/lab/themes/@jupyterlab"
LOOK, PLAYER = ((STATIC / name).read_text(encoding="utf-8") for name in ("look.css", "player.css"))
LIGHT, DARK = LOOK.split("[data-jp-theme-light=", 1)


def _token(name: str, css: str) -> str:
    found = re.search(rf"--{name}: ?([^;]+);", css)
    assert found is not None, name
    return re.sub(r"var\(--[\w-]+, ?(.+)\)", r"\1", found[1])  # the value where the page has no such variable


def _paper(theme: str, name: str) -> str:
    css = (THEMES / f"theme-{theme}-extension/index.css").read_text(encoding="utf-8")
    return _token(f"jp-{name}", css).replace("white", "#fff")


def _rgb(color: str) -> list[float]:
    digits = color.removeprefix("#")
    return [int(pair, 16) / 255 for pair in (re.findall("..", digits) if len(digits) == 6 else [2 * d for d in digits])]


def _contrast(first: Sequence[float], second: Sequence[float]) -> float:
    def luminance(color: Sequence[float]) -> float:
        linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in color]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    low, high = sorted((luminance(first), luminance(second)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_text_has_4_5_and_graphics_3(theme: str) -> None:
    css = LIGHT if theme == "light" else DARK
    outside = re.findall(r'"layout-color[012]": \["(.+)", "(.+)"\]', (STATIC / "dom.js").read_text(encoding="utf-8"))
    papers = [pair[theme == "dark"] for pair in outside] + [_paper(theme, f"layout-color{n}") for n in range(3)]
    pages = [*papers[:2], *papers[3:5]]  # without the background of controls
    assert _token("vl-ink", PLAYER) == "var(--vl-soft)"
    for paper in papers:
        assert _contrast(_rgb(_token("vl-soft", css)), _rgb(paper)) >= 4.5, paper
    for paper in pages:
        assert _contrast(_rgb(_token("vl-wrong", css)), _rgb(paper)) >= 4.5, paper
        for name in ("vl-wave", "vl-heard" if theme == "dark" else "vl-cursor", "vl-accent"):
            assert _contrast(_rgb(_token(name, css)), _rgb(paper)) >= 3, f"{name} on {paper}"
    assert _contrast(_rgb(_token("vl-fill", LIGHT)), _rgb("#fff")) >= 4.5


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_graphics_of_a_comparison_have_3(theme: str) -> None:
    script, figures = ((STATIC / name).read_text(encoding="utf-8") for name in ("compare.js", "compare-figures.js"))
    faded = re.search(r"globalAlpha = on \? 1 : (0\.\d+)", script)
    assert faded is not None
    alpha, paper = float(faded[1]), _rgb(_paper(theme, "layout-color2"))
    wave = _rgb(_token("vl-accent", LIGHT if theme == "light" else DARK))
    mixed = [alpha * ink + (1 - alpha) * back for ink, back in zip(wave, paper, strict=True)]
    assert _contrast(mixed, paper) >= 3
    colors = re.findall(r"#[0-9a-f]{6}", figures.split("COLORS = ", 1)[1].split("\n", 1)[0])
    assert len(colors) == 7
    for color in colors:
        assert _contrast(_rgb(color), _rgb(_paper(theme, "layout-color1"))) >= 3, color


def test_the_style_sheet_of_a_panel_styles_no_other_panel() -> None:
    """Sheets of all panels on a page apply to all of it: two never begin a selector with the same class."""
    sheets: dict[str, set[str]] = {}
    for path in STATIC.glob("*.css"):
        if path.name == "boxes.css":  # what ipywidgets' own sheet does in other front ends, for marimo alone
            continue
        css = re.sub(r"/\*.*?\*/", "", path.read_text(encoding="utf-8"), flags=re.DOTALL)
        for selectors in re.findall(r"([^{}]+)\{", css):
            for selector in re.split(r",(?![^(]*\))", selectors):
                if first := re.search(r"voicelab-[\w-]+", selector):
                    sheets.setdefault(first[0], set()).add(path.name)
    shared = {name: files for name, files in sheets.items() if len(files) > 1 and name != "voicelab-look"}
    assert shared == {}
