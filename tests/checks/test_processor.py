"""Figures from another kind of processor are told from figures that moved."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from tests.checks.conftest import Write, printed, shown
from voicelab.checks import check, update
from voicelab.checks.processor import processor, without_figures

CODE = "from voicelab.checks.processor import processor; print(processor())"


@pytest.mark.parametrize("threads", ["1", "4"])
def test_it_is_named_alike_in_every_process(threads: str) -> None:
    environment = os.environ | {"OMP_NUM_THREADS": threads, "OPENBLAS_NUM_THREADS": threads}
    done = subprocess.run([sys.executable, "-c", CODE], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == f"{processor()}\n"
    assert len(processor().split()) == 3


@pytest.mark.parametrize(
    ("was", "now", "same"),
    [
        ("p 0.0794, -1.2e-05 [−0.08, nan]", "p 1, 3 [0.5, 12.75]", True),
        ("   temperature    1.0     9.99", "   temperature    1.0   -10.01", True),
        ("Clip(2.97 s, 44100 Hz, -24.3 dBFS)", "Clip(3.1 s, 44100 Hz, -9 dBFS)", True),
        ("1 recording (#fccd)", "1 recording (#0c23)", True),
        ("f0_sd of s1 as mp3", "f0_sd of s2 as mp3", False),
        ("3 takes differ", "no takes differ", False),
        ("1 2", "1 2 3", False),
    ],
)
def test_figures_are_left_out_and_words_are_not(was: str, now: str, same: bool) -> None:
    assert (without_figures(was) == without_figures(now)) is same


def test_a_notebook_from_another_processor_is_held_to_its_words_alone(write: Write) -> None:
    path = write(("print(1.5, 'dB')",), ("'p 0.02'",))
    assert update(path).findings == ()
    notebook = json.loads(path.read_text(encoding="utf-8"))
    assert notebook["metadata"]["voicelab"]["processor"] == processor()
    notebook["cells"][0]["outputs"] = [printed("2.75 dB\n")]
    notebook["cells"][1]["outputs"] = [shown("'q 0.02'")]
    path.write_text(json.dumps(notebook), encoding="utf-8")
    assert [finding.cell for finding in check(path).findings] == [1, 2]
    notebook["metadata"]["voicelab"]["processor"] = "riscv64 Nobody 01234567"
    path.write_text(json.dumps(notebook), encoding="utf-8")
    report = check(path)
    assert [finding.cell for finding in report.findings] == [2]
    (note,) = report.notes
    assert note.kind == "processor"
    assert "riscv64 Nobody 01234567" in note.message
    assert processor() in note.message
