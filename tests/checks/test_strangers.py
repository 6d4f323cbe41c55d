"""Notebooks saved by nbclient: volatile outputs are no differences, planted defects are."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient
from nbformat.v4 import new_output

from tests.checks.conftest import Write
from voicelab.checks import check, update
from voicelab.lab import connect

SPEAK = "import voicelab as vl\nlab = vl.connect()\nclip = lab.speak('The birch canoe slid on planks.', seed=1)\nclip"
CELLS = [
    SPEAK,
    "from IPython.display import Audio\nAudio(clip.samples, rate=clip.rate)",
    "frame = lab.sweep('One.', temperature=[.2, .9], repeats=2).run().frame()\nframe",
    "print(frame.to_string(index=False))",
    "frame.groupby('temperature')[['duration_s', 'rtf']].mean()",
    "import time\nfrom tqdm import tqdm\nfor _ in tqdm(range(20)): time.sleep(.02)",
    "for _ in tqdm(range(5), leave=False, desc='takes'): time.sleep(.05)",
    "for _ in vl.progress(range(20), 'takes'): time.sleep(.01)",
    "import warnings\nwarnings.warn('beware')",
    "raise ConnectionError('a service that costs money')",
    "clip.plot();",
]
SKIPPED = 10


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a notebook with the outputs that a plain nbclient stores."""
    path = tmp_path_factory.mktemp("strangers") / "saved.ipynb"
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    notebook = nbformat.v4.new_notebook(
        cells=[nbformat.v4.new_code_cell(cell) for cell in CELLS], metadata={"kernelspec": kernel}
    )
    notebook.cells[SKIPPED - 1].metadata["tags"] = ["skip-execution"]
    notebook.cells[SKIPPED - 1].outputs = [new_output("stream", text="from a service\n")]
    client = NotebookClient(notebook, record_timing=False, resources={"metadata": {"path": str(path.parent)}})
    client.execute()
    nbformat.write(notebook, path)
    return path


def test_volatile_outputs_are_no_differences(saved: Path) -> None:
    text = saved.read_text(encoding="utf-8")
    assert re.search(r"ipykernel_\d+/\d+\.py:2: UserWarning", text)
    assert "20/20 [00:00" in text
    assert check(saved).findings == ()


def _other_sound(text: str) -> str:
    with connect() as lab:
        other = lab.speak("Glue the sheet to the dark blue background.", seed=1, voice="clara")
    for data, mime in ((other.to_bytes("mp3"), "mpeg"), (other.to_bytes("wav"), "wav")):
        sound = base64.b64encode(data).decode()
        text = re.sub(rf"(data:audio/{mime};base64,)[0-9A-Za-z+/=]+", rf"\g<1>{sound}", text)
    return text


def _replaced(was: str, now: str) -> Callable[[str], str]:
    return lambda text: text.replace(was, now)


@pytest.fixture(scope="module")
def planted(saved: Path) -> dict[int, str]:
    """Plant a defect in each of some cells of one copy, and check that once; return what is said of each cell."""
    notebook = nbformat.read(saved, as_version=4)
    for number, plant in {
        1: _other_sound,
        2: _other_sound,
        3: _replaced("0.9", "0.8"),
        4: _replaced("0.9", "0.8"),
        5: _replaced("0.9", "0.8"),
        6: _replaced("20/20", "19/20"),
        8: _replaced("20 of 20", "19 of 20"),
        9: _replaced("UserWarning", "FutureWarning"),
    }.items():
        for output in notebook.cells[number - 1].outputs:
            if "text" in output:
                output.text = plant(output.text)
            for mime, value in output.get("data", {}).items():
                if mime.startswith("text/") and (number > 2 or "base64" in value):
                    output.data[mime] = plant(value)
    notebook.cells[10].outputs = []
    path = saved.with_name("planted.ipynb")
    nbformat.write(notebook, path)
    said: dict[int, str] = {}
    for finding in check(path).findings:
        said[finding.cell or 0] = said.get(finding.cell or 0, "") + f"{finding.kind}: {finding.message}\n"
    return said


@pytest.mark.parametrize(
    ("cell", "words"),
    [
        (1, "difference: output 1 (text/html): the audio differs: "),
        (2, "difference: output 1 (text/html): the audio differs: "),
        (3, "expected"),
        (4, "difference: stdout: "),
        (5, "expected"),
        (6, "20/20"),
        (8, "got 'takes: 20 of 20', expected 'takes: 19 of 20'"),
        (9, "CELL.py:2: UserWarning"),
        (11, "empty: the cell displays a figure"),
    ],
)
def test_planted_differences(planted: dict[int, str], cell: int, words: str) -> None:
    assert words in planted.get(cell, "")


def test_no_other_findings(planted: dict[int, str]) -> None:
    assert sorted(planted) == [1, 2, 3, 4, 5, 6, 8, 9, 11]


def test_update_leaves_cells_that_are_skipped_as_they_are(write: Write) -> None:
    path = write(("print(1)",), ("# NBVAL_SKIP\n1 / 0", new_output("stream", text="earlier\n")), ("print(3)",))
    notebook: Any = nbformat.read(path, as_version=4)
    notebook.cells.insert(2, nbformat.v4.new_code_cell("1 / 0", metadata={"tags": ["skip-execution"]}, id="tagged"))
    notebook.cells[2].outputs = [new_output("stream", text="before that\n")]
    nbformat.write(notebook, path)
    assert update(path).findings == ()
    assert check(path).findings == ()
    outputs = ["".join(output.text for output in cell.outputs) for cell in nbformat.read(path, as_version=4).cells]
    assert outputs == ["1\n", "earlier\n", "before that\n", "3\n"]
