"""Cells whose source displays a figure, player or panel that is not saved."""

from __future__ import annotations

from typing import Any

import pytest
from nbformat.v4 import new_output

from tests.checks.conftest import Write, printed, shown
from voicelab.checks import check, update

BEFORE = "fig, ax = plt.subplots()\nclip = lab.speak('One.')\npanel = lab.panel(compact=True)\ntable = result.frame()"

SHOWN = [
    "clip.plot();",
    "axes = clip.plot(kind=('waveform', 'f0'))",
    "axes = plot_clips(*lively, kind='f0')",
    "plt.plot([1, 2])",
    "figure, rows = plt.subplots(2)\nrows[0].plot(x)\nrows[0].set_title('x');",
    "for kind in kinds:\n    clip.plot(kind=kind)",
    "with plt.style.context('ggplot'):\n    frame.plot()",
    "%time plt.hist(values)\nplt.show()",
    "vl.effects(frame, axes='speed').plot()",
    "clip",
    "panel",
    "fig",
    "lab.speak('Two.')",
    "vl.compare(clip, other)  # at one loudness",
    "Audio(wave, rate=16_000)",
    "display(clip)\nx = 1",
]
NOT_SHOWN = [
    "clip;",
    "x = lab.speak('Two.')",
    "ax.plot([1, 2]);",
    "clip.plot(axes=ax, kind='f0');",
    "frame.plot(ax=ax);",
    "effects.plot(axes[0])",
    "plt.rcParams['font.size'] = 8",
    "ax.set_title('x');",
    "fig2 = plt.figure()\nplt.savefig('x.png')\nplt.close(fig2)",
    "def draw():\n    plt.plot([1])",
    "if wanted:\n    clip.plot()",
    "with output:\n    clip.plot()",
    "later = lambda: clip.plot()",
    "print(clip)",
    "table",
    "%%capture\nclip.plot()",
    "clip = None\nclip",
    "not python at all",
]


def one(write: Write, source: str, *outputs: Any) -> list[tuple[int | None, str]]:
    findings = check(write((BEFORE, picture()), (source, *outputs)), run=False).findings
    return [(finding.cell, finding.kind) for finding in findings]


def picture() -> Any:
    return new_output("display_data", {"image/png": "iVBORw0KGgo=", "text/plain": "<Figure size 1x1 with 1 Axes>"})


@pytest.mark.parametrize("source", SHOWN)
def test_lost_output(write: Write, source: str) -> None:
    assert one(write, source) == [(2, "empty")]
    assert one(write, source, picture()) == []


@pytest.mark.parametrize("source", NOT_SHOWN)
def test_cell_without_display(write: Write, source: str) -> None:
    assert one(write, source) == []


def test_printed_text_is_no_figure(write: Write) -> None:
    assert one(write, "print(1)\nclip.plot()", printed("1\n"), shown("(<Axes: ylabel='amplitude'>,)")) == [(2, "empty")]
    assert one(write, "print(1)\nclip.plot()", printed("1\n"), shown("(<Axes: >,)"), picture()) == []
    assert one(write, "plt.plot(1 / 0)", new_output("error", ename="ZeroDivisionError", evalue="")) == []


def test_cells_that_are_skipped_or_whose_output_is_removed_and_figures_that_go_elsewhere(write: Write) -> None:
    for tag in ("skip-execution", "nbval-skip", "remove-output", "remove_output"):
        path = write(("clip.plot()",), ("# NBVAL_SKIP\nclip.plot()",))
        text = path.read_text(encoding="utf-8").replace('"metadata": {},', f'"metadata": {{"tags": ["{tag}"]}},', 1)
        path.write_text(text, encoding="utf-8")
        assert check(path, run=False).findings == (), tag
    for elsewhere in ("import matplotlib\nmatplotlib.use('Agg')", "%matplotlib agg"):
        assert check(write((elsewhere,), ("clip.plot()",)), run=False).findings == ()


def test_update_does_not_write_a_notebook_whose_figure_is_gone(write: Write) -> None:
    code = "import matplotlib.pyplot as plt\n_ = plt.plot([1, 2])"
    path = write((code,), ("plt.rcParams['interactive'] = False\nplt.plot([1])",))
    before = path.read_bytes()
    assert [(finding.cell, finding.kind) for finding in update(path).findings] == [(2, "empty")]
    assert path.read_bytes() == before
    path = write((code,), ("plt.plot([1]);",))
    assert update(path).findings == ()
    assert check(path).findings == ()
