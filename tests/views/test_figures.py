"""Figures in a fresh kernel: a cell shows what it draws, after whatever was drawn before it."""

from __future__ import annotations

import os
import sys
import threading
import time
from typing import Any

import matplotlib as mpl
import numpy as np
import pytest
from nbclient import NotebookClient
from nbformat.v4 import new_code_cell, new_notebook

from voicelab.clip import Clip
from voicelab.views import plots
from voicelab.views.bundles import clip_picture

CLIP = """
import numpy as np
import pandas as pd
import voicelab as vl
wave = (0.3 * np.sin(2 * np.pi * 200 * np.arange(16_000) / 16_000)).astype(np.float32)
clip, other = vl.Clip(wave, 16_000), vl.Clip(wave[:9_000], 16_000)
"""
USERS = "import matplotlib.pyplot as plt\nplt.plot([1, 2]);"
DRAW = [
    "clip.plot();",
    "clip.plot(kind='mel', style='paper');",
    "clip.plot(style='ggplot');",
    "clip.plot(style={'font.size': 9.0});",
    "vl.save_figure(clip.plot(kind='f0'), 'f0.png')",
    "clip",
    "vl.compare(clip, other)",
    "vl.effects(pd.DataFrame({'gain': [0, 0, 1, 1], 'level': [1.0, 2.0, 3.0, 5.0]}), axes='gain').plot();",
    "vl.plan_test('MOS', 0.5, sd=(0.3, 0.3, 0.6), simulations=100, listeners=(6, 9), items=(6,)).plot();",
]
STATE = "(mpl.rcParams['interactive'], mpl.get_backend(), mpl.rcParams['axes.labelcolor'], mpl.rcParams['font.size'])"


@pytest.mark.parametrize("first", [DRAW[0], DRAW[1]])
def test_every_cell_displays_its_figure(first: str, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MPLBACKEND", raising=False)
    cells = [CLIP, first, USERS, *DRAW, USERS, f"import matplotlib as mpl\n{STATE}"]
    notebook = new_notebook(cells=[new_code_cell(cell) for cell in cells])
    NotebookClient(notebook, timeout=120, resources={"metadata": {"path": str(tmp_path)}}).execute(env=dict(os.environ))
    *drawn, state = notebook.cells[1:]
    pictures = {cell.source: [bool("image/png" in out.get("data", {})) for out in cell.outputs] for cell in drawn}
    assert [source for source, shown in pictures.items() if not any(shown)] == []
    assert state.outputs[0].data["text/plain"].startswith("(True, 'module://matplotlib_inline")
    assert state.outputs[0].data["text/plain"].endswith("'black', 10.0)")


def test_drawing_an_output_does_not_change_rcparams() -> None:
    """Panels draw in threads, where the settings of all of matplotlib are somebody else's."""
    names = ("text.color", "axes.facecolor", "xtick.labelsize", "interactive")
    settings: Any = mpl.rcParams
    before, during = [settings[name] for name in names], set[str]()

    def look(*_: object) -> None:
        during.update(name for name, value in zip(names, before, strict=True) if settings[name] != value)

    clip = Clip(np.sin(np.arange(8_000, dtype=np.float32) / 9), 16_000)
    sys.setprofile(look)
    try:
        clip_picture(clip)
    finally:
        sys.setprofile(None)
    assert during == set()


def test_concurrent_styles_restore_rcparams() -> None:
    before = dict(mpl.rcParams)
    leave = [threading.Event(), threading.Event()]

    def draw(style: str, ended: threading.Event) -> None:
        with plots.plot_style(style, activate=False):
            ended.wait(30)

    threads = [threading.Thread(target=draw, args=each) for each in zip(("paper", "ggplot"), leave, strict=True)]
    for thread in threads:
        thread.start()
        time.sleep(0.5)
    for thread, ended in zip(threads, leave, strict=True):  # the one that began first ends first
        ended.set()
        thread.join(30)
    assert dict(mpl.rcParams) == before
