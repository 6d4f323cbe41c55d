"""Formulas in CSV files: nothing that people wrote is run by a spreadsheet, and everything comes back as it was."""

from __future__ import annotations

import csv
import io
import json
import math
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import voicelab as vl
from tests.listening.test_design import sound
from tests.listening.test_votes import vote_all
from tests.tones import ToneBackend
from voicelab.listening.design import ListeningTest
from voicelab.listening.results import analyze
from voicelab.listening.votes import Ballot
from voicelab.recordings import recordings_of
from voicelab.tables import csv_bytes, restore_texts

EVIL = (
    '=HYPERLINK("http://evil.example","x")', "=cmd|' /C calc'!A0", "+1+cmd", "-2+3", "@SUM(1)", "\t=1", "\r=1", "＝1+1",
    "'=1", "''=1",
)  # fmt: skip
PLAIN = ("-5", "+1.5e3", "1-2", "it's", "'tis", "a=b", "", " ", "-", "…", 'é, "x"\nnew', "‘=’")


def _cells(data: bytes) -> list[list[str]]:
    return list(csv.reader(io.StringIO(data.decode(), newline="")))


def _runs(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return cell[:1] in tuple("=+-@\t\r＝＋－＠")
    return False


def test_texts_are_escaped_and_numbers_stay() -> None:
    table = pd.DataFrame({"=name": [*EVIL, *PLAIN], "number": range(-9, len(EVIL) + len(PLAIN) - 9), "x": -1.5})
    header, *rows = _cells(csv_bytes(table))
    assert header == ["'=name", "number", "x"]
    assert [row[0] for row in rows] == [f"'{text}" for text in EVIL] + [text if text != "-" else "'-" for text in PLAIN]
    assert [row[1:] for row in rows][:2] == [["-9", "-1.5"], ["-8", "-1.5"]]
    mixed = pd.DataFrame({"mixed": ["=1", -3, -0.5, None, math.nan, True, Path("-x/=y")]})
    assert [row[0] for row in _cells(csv_bytes(mixed))[1:]] == ["'=1", "-3", "-0.5", "", "", "True", "'-x/=y"]


@settings(deadline=None)
@given(st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\0")), min_size=1))
def test_every_text_comes_back(texts: list[str]) -> None:
    data = csv_bytes(pd.DataFrame({"text": texts, "number": -1}))
    again = restore_texts(pd.read_csv(io.BytesIO(data), dtype=str, keep_default_na=False))
    assert again["text"].tolist() == texts
    assert not any(_runs(cell) for row in _cells(data) for cell in row)


def test_a_sweep_is_exported_and_read_back(tmp_path: Path) -> None:
    texts = ["=1+1 is two", "-er is a suffix", "@ann came"]
    with vl.Lab(ToneBackend()) as lab:
        result = lab.sweep(rows=[{"text": text, "temperature": 0.5} for text in texts]).run()
        path = result.export(tmp_path / "takes")
        laid_out = result.export(tmp_path / "audiofolder", layout="audiofolder")
    assert not any(_runs(cell) for row in _cells(path.read_bytes()) for cell in row)
    assert sorted(recording.text for recording in recordings_of(path)) == sorted(texts)
    # What trains a model must hold the transcript itself.
    assert sorted(pd.read_csv(laid_out)["text"]) == sorted(texts)


@pytest.mark.parametrize("kind", ["MOS", "AB"])
def test_analysis_of_a_report_restores_names_that_are_formulas(tmp_path: Path, kind: str) -> None:
    systems = ('=HYPERLINK("x")', "@b")
    items = {f"-item {number}": {name: sound(number + 9 * n) for n, name in enumerate(systems)} for number in range(3)}
    test = ListeningTest("=test", kind, items, seed=1)  # type: ignore[arg-type]
    with Ballot(test, tmp_path / "votes") as ballot:
        draw = np.random.default_rng(1)
        for name in ("=cmd", "+49 30", "ann"):
            vote_all(
                ballot,
                name,
                lambda _: {"A": float(draw.integers(1, 6))} if kind == "MOS" else {"choice": "AB"[draw.integers(2)]},
            )
        folder = analyze(test, ballot).report().save(tmp_path / "report")
    for name in ("votes.csv", "figures.csv"):
        assert not any(_runs(cell) for row in _cells((folder / name).read_bytes()) for cell in row)
    done = subprocess.run([sys.executable, "analysis.py"], capture_output=True, text=True, check=True, cwd=folder)
    assert all(f" {name} " in done.stdout for name in systems)
    assert json.loads((folder / "study.json").read_text())["systems"] == list(systems)
    assert all(path.stat().st_mode & 0o077 == 0 for path in (folder, *folder.iterdir()))
