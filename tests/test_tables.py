"""Tables of every program are read; in those that are written, no text is run as a formula, and every text is restored."""

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
from voicelab.errors import ArgumentError, MissingExtra, StoreError
from voicelab.listening.design import ListeningTest
from voicelab.listening.results import analyze
from voicelab.listening.votes import Ballot
from voicelab.recordings import Report, recordings_of
from voicelab.tables import csv_bytes, read_table, restore_texts

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
    assert sorted(recording.text for recording in recordings_of(path, Report())) == sorted(texts)
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


GERMAN = 'Path; File Name ;TEXT;Dauer\na.wav;;Grüße aus Köln, "größer";1,5\n\n;;;\nb.wav;;"zwei\nZeilen; hier";-2\n'


@pytest.mark.parametrize(
    "encoding", ["utf-8", "utf-8-sig", "cp1252", "utf-16", "utf-16-le", "utf-16-be", "utf-32", "mac_roman"]
)
def test_a_table_of_a_european_spreadsheet_is_read(encoding: str, tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_bytes(GERMAN.replace("\n", "\r\n").encode(encoding))
    table = read_table(tmp_path / "x.csv", ("path", "file_name", "text"))
    assert table.columns.tolist() == ["path", "file_name", "text", "Dauer"]
    assert table["Dauer"].tolist() == ["1.5", "-2"]
    assert "x.csv: commas are read as decimal points in Dauer." in table.attrs["notes"]
    if encoding != "mac_roman":  # confused with Windows-1252, as the note says
        assert table["text"].tolist() == ['Grüße aus Köln, "größer"', "zwei\r\nZeilen; hier"]
    guessed = not encoding.startswith("utf") or encoding.endswith(("le", "be"))
    assert any("save it in UTF-8 if letters are wrong" in note for note in table.attrs["notes"]) == guessed


@pytest.mark.parametrize(
    ("content", "rows"),
    [
        ("sep=;\npath;text\na.wav;b,c", [["a.wav", "b,c"]]),
        ('path,text\n"a.wav","x;y;z"\n"b.wav","u;v;w"', [["a.wav", "x;y;z"], ["b.wav", "u;v;w"]]),
        ('path\ttext\na.wav\t"Hello" she said\nb.wav\t"Open', [["a.wav", '"Hello" she said'], ["b.wav", '"Open']]),
        ("path|text\na.wav|one, two; three", [["a.wav", "one, two; three"]]),
        ('path,text,,\r\na.wav,"Hi, ""you""",,\r\nb.wav', [["a.wav", 'Hi, "you"'], ["b.wav", ""]]),
        ("path\na b.wav", [["a b.wav"]]),
        ("path,text\na.wav,1,5".replace("1,5", '"1,5"'), [["a.wav", "1,5"]]),
        ("path,text\na.wav,今天天气很好，我们去公园".encode("gb18030"), [["a.wav", "今天天气很好，我们去公园"]]),
        ("path,text\na.wav,Сегодня хорошая погода".encode("cp1251"), [["a.wav", "Сегодня хорошая погода"]]),
    ],
)
def test_separator_quotes_and_encoding_are_found(content: str | bytes, rows: list[list[str]], tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_bytes(content.encode() if isinstance(content, str) else content)
    assert read_table(tmp_path / "x.csv").to_numpy().tolist() == rows


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            b"path,text\na.wav,Hello, you\nb.wav,x\n\nc.wav,x,,,y",
            "row 2 has 3 cells instead of 2: a.wav, Hello,  you; row 5 has 5",
        ),
        (b"\n", "got an empty file"),
        (b"<!DOCTYPE html><html><p>Not, found", "must be a table, got an HTML page"),
        (bytes(range(256)) * 9, "must be text, got binary data|must be a table"),
        (b"PK\3\4 no archive", "cannot be read as an Excel file"),
    ],
)
def test_files_that_are_no_tables(content: bytes, message: str, tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_bytes(content)
    with pytest.raises(StoreError, match=message):
        read_table(tmp_path / "x.csv")


def test_all_lines_that_are_no_json_objects_are_named(tmp_path: Path) -> None:
    (tmp_path / "x.jsonl").write_text('{"path": "a"}\n[1]\n\n{"path":\n')
    with pytest.raises(StoreError, match=r"a JSON object per line: line 2 is '\[1\]'; line 4 is '{\"path\":'"):
        read_table(tmp_path / "x.jsonl")
    (tmp_path / "x.json").write_text('["a", {"path": "b"}, 3]')
    with pytest.raises(StoreError, match=r"must be a list of JSON objects, or .*: item 1 is 'a'; item 3 is '3'"):
        read_table(tmp_path / "x.json")


@pytest.mark.parametrize("suffix", ["json", "jsonl"])
def test_json_is_a_list_or_lines(suffix: str, tmp_path: Path) -> None:
    rows = [{"Path": "a.wav", "gain": 0.5}, {"Path": "b.wav", "gain": 1.0}]
    for text in (json.dumps(rows), json.dumps(rows, indent=1), "\n".join(map(json.dumps, rows))):
        (tmp_path / f"x.{suffix}").write_text(text)
        table = read_table(tmp_path / f"x.{suffix}", ["path"])
        assert table.to_dict("list") == {"path": ["a.wav", "b.wav"], "gain": [0.5, 1.0]}


def test_an_excel_file_is_read_whatever_its_suffix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = pd.DataFrame({"File": ["a.wav", None], "Item": [1, 2], "MOS": [3.5, 4]})
    with pd.ExcelWriter(tmp_path / "x.xlsx") as book:
        table.to_excel(book, index=False, sheet_name="Liste")
        table.to_excel(book, index=False, sheet_name="alt")
    (tmp_path / "x.xlsx").rename(tmp_path / "x.csv")
    read = read_table(tmp_path / "x.csv", ("file", "item"))
    assert read.to_dict("list") == {"file": ["a.wav", ""], "item": ["1", "2"], "MOS": ["3.5", "4"]}
    assert read.attrs["notes"] == ("x.csv: sheet 'Liste' is read, not 'alt'.",)
    with pd.ExcelWriter(tmp_path / "y.xlsx") as book:
        pd.DataFrame({"Contents": ["files of a study"]}).to_excel(book, index=False, sheet_name="cover")
        table.to_excel(book, index=False, sheet_name="Liste")
    read = read_table(tmp_path / "y.xlsx", ("file", "item"))
    assert read.file.tolist() == ["a.wav", ""]
    assert read.attrs["notes"] == ("y.xlsx: sheet 'Liste' is read, not 'cover'.",)
    with pd.ExcelWriter(tmp_path / "z.xlsx") as book:
        pd.DataFrame({"Contents": ["files of a study"]}).to_excel(book, index=False, sheet_name="cover")
        table[["MOS"]].to_excel(book, index=False, sheet_name="Liste")
    with pytest.raises(
        ArgumentError, match=r"z\.xlsx must have a file .* Contents\. z\.xlsx: sheet 'cover' is read, not"
    ):
        vl.collect(tmp_path / "z.xlsx")
    monkeypatch.setitem(sys.modules, "openpyxl", None)
    with pytest.raises(
        MissingExtra, match=r"reading x\.csv, an Excel file, requires an optional dependency: .*\[excel\]"
    ):
        read_table(tmp_path / "x.csv")
