"""Sweeps of templates, ``{tag}`` in a text, and of rows in the place of a grid."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from tests.tones import ToneBackend, there
from voicelab.errors import RequestInvalid, StoreError
from voicelab.lab import Lab
from voicelab.sweeps.spec import read_spec, retyped, texts_of, typed_axes

ROWS: list[dict[str, Any]] = [
    {"text": "One.", "temperature": 0.2, "seed": 3},
    {"text": "{style}Two.", "style": "[angry]"},
    {"text": "One.", "temperature": 0.9},
]


@pytest.fixture
def lab() -> Lab:
    return Lab(ToneBackend())


def refusal(lab: Lab, *texts: Any, **fields: Any) -> str:
    with pytest.raises(RequestInvalid) as caught:
        lab.sweep(*texts, **fields)
    return str(caught.value)


def test_a_name_in_braces_is_an_axis(lab: Lab, tmp_path: Path) -> None:
    tags = ["", "[whispering]"]
    sweep = lab.sweep("{tag}No, {{tag}} {1}.", extra={"tag": tags}, temperature=[0.2, 0.7], cache=tmp_path)
    assert {cell.call.request.text for cell in sweep.grid.cells} == {"No, {tag} {1}.", "[whispering]No, {tag} {1}."}
    frame = sweep.run().frame()
    assert list(frame["tag"]) == ["(none)", "(none)", "[whispering]", "[whispering]"]
    assert set(frame["text"]) == {"{tag}No, {{tag}} {1}."}
    assert frame["sent"][2] == "[whispering]No, {tag} {1}."
    texts = lab.sweep(["{n} pears", "{n} plums"], n="1..3").grid.cells  # type: ignore[call-arg]
    assert [cell.call.request.text for cell in texts][:4] == ["1 pears", "2 pears", "3 pears", "1 plums"]
    assert {cell.values["text"] for cell in texts} == {"{n} pears", "{n} plums"}
    assert lab.sweep("Dear {name}.", extra={"name": "Ada, Ben"}).grid.cells[0].call.request.text == "Dear Ada, Ben."


def test_a_name_without_an_axis_is_named(lab: Lab) -> None:
    assert refusal(lab, "{tag}No.") == (
        "text: the placeholder {tag} has no axis: pass tag=[…], or write {{tag}} for literal braces"
    )
    assert "the text must contain {tag}, got 'No.'" in refusal(lab, ["{tag}Yes.", "No."], tag=["a", "b"])
    assert "the placeholder {seed} is the name of a field" in refusal(lab, "{seed} seeds", seed=[1, 2])
    assert "unknown field 'tag'" in refusal(lab, "No.", tag=["a"])


def test_rows_are_paired_and_repeated(lab: Lab, tmp_path: Path) -> None:
    sweep = lab.sweep(rows=ROWS, repeats=1, top_p=0.5, cache=tmp_path)
    assert repr(sweep) == "Sweep(3 rows of text, temperature, seed, style; 3 takes)"
    calls = [(one.call.request.text, one.call.request.temperature, one.call.seed) for one in sweep.grid.cells]
    assert calls == [("One.", 0.2, 3), ("[angry]Two.", 0.7, None), ("One.", 0.9, None)]
    assert {cell.call.request.top_p for cell in sweep.grid.cells} == {0.5}
    result = sweep.run()
    assert list(result.frame()["sent"].dropna()) == ["[angry]Two."]
    assert len(result.select(text="One.").takes) == 2
    frame = pd.DataFrame([{key: row.get(key) for key in ("text", "temperature")} for row in ROWS], index=list("abc"))
    frame["style"] = ["", "[sad]", None]
    twice = lab.sweep(rows=frame, repeats=2, latency=["low", "normal"], cache=tmp_path)
    assert (len(twice.grid.cells), len(twice), len({twice.key(job) for job in twice.jobs()})) == (6, 12, 12)
    assert lab.sweep("Dear {name}.", rows=[{"name": "Ada"}]).grid.cells[0].call.request.text == "Dear Ada."


def test_a_run_of_rows_goes_on_where_it_stopped(tmp_path: Path) -> None:
    Lab(ToneBackend()).sweep(rows=ROWS[:2]).run(tmp_path / "run")
    backend = ToneBackend()
    again = Lab(backend).sweep(rows=ROWS).run(tmp_path / "run")
    assert (len(again.takes), len(backend.asked)) == (3, 1)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([{"text": "a"}, {"text": "b", "speed": 9}], "speed: row 2: must be between 0.5 and 2, got 9"),
        ([{"text": "a", "vioce": "x"}], "vioce: must be a field, or {vioce} in a text; did you mean voice?"),
        ([{"text": "a"}, {"text": ""}], "text: row 2: text is required"),
        (
            [{"text": "a"}, {"text": "a"}],
            "rows: rows must be unique, row 2 equals row 1; for several takes, pass repeats=N",
        ),
        (
            [{"text": "a", "format": "opus", "sample_rate": 44100}],
            "sample_rate: row 1: must be 48000 for opus, got 44100",
        ),
        ([{"text": "{x} a"}], "text: row 1: the placeholder {x} has no axis"),
        ([], "rows: must have at least one row, got none"),
    ],
)
def test_a_bad_cell_is_named_by_row_and_column(lab: Lab, rows: list[Mapping[str, Any]], message: str) -> None:
    assert refusal(lab, rows=rows).startswith(message)


def test_a_file_of_rows(lab: Lab, tmp_path: Path) -> None:
    file = tmp_path / "texts.csv"
    file.write_text('text,speed,normalize,seed\n"One, two.",1.5,off,\nThree.,,,7\n')
    first, second = lab.sweep(rows=file).grid.cells
    assert (first.call.request.text, there(first.call.request.prosody).speed) == ("One, two.", 1.5)
    assert (first.call.request.normalize, second.call.request.normalize, second.call.seed) == (False, True, 7)
    file.write_text("text,seed\nOne.,x\n")
    assert refusal(lab, rows=file) == "seed: row 2: must be a whole number, got 'x'"
    file.write_bytes("Text;Temperature\nGrüße.;0,5\n".encode("cp1252"))
    (cell,) = lab.sweep(rows=file).grid.cells
    assert (cell.call.request.text, cell.call.request.temperature) == ("Grüße.", 0.5)
    for name, text in (("a.CSV", 'text,top_p\nOne.,"0,5"\n'), ("a.tsv", "Text\tTop P\nOne.\t0,5\n")):
        (tmp_path / name).write_text(text)
        (cell,) = lab.sweep(**read_spec(tmp_path / name).options).grid.cells
        assert cell.call.request.top_p == 0.5
    values = [("One.", 0.5, False), ("Two.", 1, True)]
    (tmp_path / "a.json").write_text(
        json.dumps([dict(zip(("text", "top_p", "normalize"), row, strict=True)) for row in values])
    )
    requests = [cell.call.request for cell in lab.sweep(**read_spec(tmp_path / "a.json").options).grid.cells]
    assert [(request.text, request.top_p, request.normalize) for request in requests] == values
    with pytest.raises(RequestInvalid, match="rows: must be a DataFrame, mappings or the path of a CSV or Excel file"):
        lab.sweep(rows=5)  # type: ignore[arg-type]
    with pytest.raises(StoreError, match=r"none\.csv cannot be read"):
        lab.sweep(rows=tmp_path / "none.csv")


def test_a_form_keeps_rows_and_templates(lab: Lab) -> None:
    rows = lab.sweep(rows=ROWS, latency=["low", "normal"])
    assert retyped(rows, texts_of(rows), [("latency", "low")]).rows == rows.rows
    with pytest.raises(RequestInvalid, match="texts of rows"):
        retyped(rows, "Another.", [])
    template = lab.sweep("{tag}No.", extra={"tag": ["", "[sad]"]})
    assert typed_axes(template) == [("tag", '"", [sad]')]
    (axis,) = retyped(template, texts_of(template), [("tag", "[shy], [sad]")]).axes
    assert axis.values == ("[shy]", "[sad]")
    assert template.panel().form.settled()


def test_references_are_files_relative_to_the_table(tmp_path: Path) -> None:
    (tmp_path / "a.wav").write_bytes(b"a")
    (tmp_path / "b.wav").write_bytes(b"b")
    (tmp_path / "b.txt").write_text("Of b.")
    table = tmp_path / "rows.csv"
    table.write_text("text,references,reference_text\nOne.,a.wav,Of a.\nTwo.,b.wav,\nThree.,,\nFour.,a.wav,Of a.\n")
    lab = Lab(ToneBackend())
    sweep = lab.sweep(rows=table)
    references = [cell.call.request.references for cell in sweep.grid.cells]
    assert [[(item.audio, item.text) for item in given or ()] for given in references] == [
        [(b"a", "Of a.")], [(b"b", "Of b.")], [], [(b"a", "Of a.")],
    ]  # fmt: skip
    assert sweep.axes[1].labels == ("a.wav", "b.wav", "default")
    in_memory = lab.sweep(rows=[{"text": "One.", "references": tmp_path / "b.wav"}])
    assert in_memory.grid.cells[0].call.request.references == references[1]
    table.write_text("text,references\nOne.,gone.wav\nTwo.,b.wav\nThree.,lost.wav\n")
    with pytest.raises(RequestInvalid, match=r"row 2: .*gone\.wav cannot be read.*row 4: .*lost\.wav"):
        lab.sweep(rows=table)
