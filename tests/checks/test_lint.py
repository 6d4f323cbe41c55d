"""What is found without running anything: each thing planted once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbformat.v4 import new_output

from tests.checks.conftest import Write, printed, shown
from voicelab.checks import Finding, Limits, check
from voicelab.checks.lint import source_digest

# Put together here, so that this file holds none.
KEY = "vl_" + "a1B2c3D4" * 6 + "0"
SECRETS = {
    "a key of a voicelab service": KEY,
    "a bearer credential": "Authorization: Bearer " + "q7" * 12,
    "a private key": "-----BEGIN " + "RSA PRIVATE KEY-----",
    "a key of AWS": "AKIA" + "Q7" * 8,
    "a token of GitHub": "ghp_" + "q7" * 18,
    "a token of GitLab": "glpat-" + "q7" * 10,
    "a token of Slack": "xoxb-" + "17" * 8,
    "a token of a model hub": "hf_" + "q7" * 17,
    "a key of Google": "AIza" + "q7-_x" * 7,
    "an API key": "sk-" + "q7" * 12,
    "a JSON web token": "eyJ" + "q7" * 8 + "." + "q7" * 8 + "." + "q7" * 8,
    "a password in an address": "https://ada:" + "correcthorse" + "@voice.example/v1",
    "a secret that is written down": 'api_key = "' + "q7" * 10 + '"',
}


def look(path: Path, **limits: int) -> list[Finding]:
    return list(check(path, run=False, limits=Limits(**limits)).findings)


def edit(path: Path, change: Any) -> None:
    notebook = json.loads(path.read_text(encoding="utf-8"))
    change(notebook)
    path.write_text(json.dumps(notebook), encoding="utf-8")


def only(path: Path, **limits: int) -> Finding:
    (finding,) = look(path, **limits)
    return finding


def test_a_notebook_with_nothing_wrong(write: Write) -> None:
    assert look(write(("1 + 1", shown("2")), ("print(3)", printed("3\n")))) == []


def test_what_is_no_notebook(tmp_path: Path) -> None:
    for text in ("{", "[]", '{"cells": 3, "nbformat": 4, "nbformat_minor": 5, "metadata": {}}'):
        (tmp_path / "n.ipynb").write_text(text)
        assert only(tmp_path / "n.ipynb").kind == "not-a-notebook"


@pytest.mark.parametrize("what", SECRETS)
def test_a_secret_is_found_wherever_it_is_and_not_repeated(write: Write, what: str) -> None:
    secret = SECRETS[what]
    in_metadata = new_output("display_data", {"text/plain": "x"}, metadata={"note": secret})
    path = write((f"'{secret}'", shown("x")), ("1", shown("1", f"<b>{secret}</b>")), ("2", in_metadata), note=secret)
    edit(path, lambda notebook: notebook["cells"][2]["metadata"].update(note=secret))
    found = look(path)
    assert {(item.cell, item.message.rpartition(", ")[2]) for item in found if what in item.message} == {
        (None, "in the metadata"),
        (1, "in the source"),
        (2, "in the output"),
        (3, "in the metadata"),
        (3, "in the output"),
    }
    assert all(item.kind == "secret" and secret[-10:] not in item.message for item in found)


def test_what_stands_for_a_secret_is_none(write: Write) -> None:
    source = (
        "headers = {'Authorization': 'Bearer <your key, as you have it>'}\napi_key = os.environ['VOICELAB_API_KEY']"
    )
    sound = "data:audio/mpeg;base64," + "AKIA" + "Q7" * 8 + "vl" * 40
    assert look(write((source, shown("x", f"<audio src='{sound}'>")))) == []


def test_sizes(write: Write) -> None:
    path = write(("1", shown("x" * 3000)), ("2", shown("y" * 500)))
    assert only(path, output_bytes=2000).cell == 1
    assert "at most 0.00 MiB" in only(path, output_bytes=2000).message
    assert only(path, notebook_bytes=3000).cell is None


@pytest.mark.parametrize(
    ("counts", "cell", "what"),
    [
        ((1, None, 2), 2, "changed or cleared"),
        ((1, 3, 4), 2, "as number 3 where 2"),
        ((2, 3, 4), 1, "as number 2 where 1"),
    ],
)
def test_outputs_of_another_run(write: Write, counts: tuple[Any, ...], cell: int, what: str) -> None:
    path = write(("1", shown("1")), ("2", shown("2")), ("3", shown("3")))

    def change(notebook: Any) -> None:
        for place, count in enumerate(counts):
            notebook["cells"][place]["execution_count"] = count

    edit(path, change)
    finding = only(path)
    assert (finding.cell, finding.kind) == (cell, "stale")
    assert what in finding.message


def test_a_source_that_was_changed_under_its_outputs(write: Write) -> None:
    path = write(("1", shown("1")), ("2", shown("2")))
    sources = [source_digest(cell) for cell in nbformat.read(path, as_version=4).cells]
    edit(path, lambda notebook: notebook["metadata"].update(voicelab={"sources": sources}))
    assert look(path) == []
    edit(path, lambda notebook: notebook["cells"][1].update(source="1 + 1"))
    finding = only(path)
    assert (finding.cell, finding.kind) == (2, "stale")
    assert "source was changed" in finding.message


def test_the_value_of_a_secret_variable(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(("1", shown("it is correct-horse-battery")))
    assert look(path) == []
    monkeypatch.setenv("MY_SERVICE_TOKEN", "correct-horse-battery")
    assert "the value of MY_SERVICE_TOKEN" in only(path).message


def test_a_key_in_two_pieces_of_a_stream(write: Write) -> None:
    assert only(write(("1", printed(KEY[:20]), printed(KEY[20:])))).kind == "secret"


def test_a_cell_that_was_not_executed_and_empty_cells(write: Write) -> None:
    path = write(("x = 1",), ("",))
    assert look(path) == []

    def forget(notebook: Any) -> None:
        notebook["cells"][0]["execution_count"] = None

    edit(path, forget)
    assert "was not executed" in only(path).message


@pytest.mark.parametrize("name", ["/home/ada/x.wav", "/tmp/tmpab12/x", "/Users/ada/x", "C:\\\\Users\\\\ada\\\\x"])  # noqa: S108
def test_paths_of_the_machine(write: Write, name: str) -> None:
    finding = only(write(("1", shown(f"PosixPath('{name}')"))))
    assert (finding.cell, finding.kind) == (1, "path")


def test_paths_of_this_very_machine(write: Write, tmp_path: Path) -> None:
    assert only(write(("1", printed(f"saved to {tmp_path}/x.wav")))).kind == "path"


def test_what_looks_like_a_path_and_is_none(write: Write) -> None:
    assert look(write(("1", shown("see https://voice.example/home/ada, and/or/tmp/x, and takes/1.wav")))) == []


def test_stored_times(write: Write) -> None:
    path = write(("1", shown("1")))
    stored = {"execution": {"iopub.execute_input": "2026-01-01T00:00:00Z"}}
    edit(path, lambda notebook: notebook["cells"][0]["metadata"].update(stored))
    assert only(path).kind == "times"


def test_a_widget_needs_its_state_or_something_beside_it(write: Write) -> None:
    view = {"application/vnd.jupyter.widget-view+json": {"model_id": "abc", "version_major": 2, "version_minor": 0}}

    def widget(**beside: str) -> Any:
        return new_output("display_data", {**view, "text/plain": "IntSlider(value=0)", **beside})

    assert only(write(("1", widget()))).kind == "widget"
    assert look(write(("1", widget(**{"text/html": "<p>a panel</p>"})))) == []
    state = {
        "application/vnd.jupyter.widget-state+json": {"state": {"abc": {}}, "version_major": 2, "version_minor": 0}
    }
    assert look(write(("1", widget()), widgets=state)) == []
