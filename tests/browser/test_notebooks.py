"""Every notebook in a real JupyterLab and Chromium, run as a reader runs it: a step of CI of its own, some minutes long."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.browser.conftest import ROOT, Jupyter, open_and_run

if TYPE_CHECKING:
    from playwright.sync_api import Page

NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
# The model, not the page: JupyterLab draws only the cells in sight.
CELLS = "() => jupyterapp.shell.currentWidget.content.model.toJSON().cells.filter(cell => cell.cell_type === 'code')"


@pytest.mark.notebooks
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_it_runs_from_the_first_cell_to_the_last(page: Page, jupyter: Jupyter, tmp_path: Path, path: Path) -> None:
    url = jupyter.notebook(path.name)
    shutil.copy(path, jupyter.folder)
    shutil.copytree(path.parent / "recordings", jupyter.folder / "recordings", dirs_exist_ok=True)
    open_and_run(page, url)
    page.screenshot(path=tmp_path / "run.png")
    cells = page.evaluate(CELLS)
    outputs = [output for cell in cells for output in cell["outputs"]]
    assert [output for output in outputs if output["output_type"] == "error" or output.get("name") == "stderr"] == []
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1))
    assert sum("image/png" in output.get("data", {}) for output in outputs) > 0
