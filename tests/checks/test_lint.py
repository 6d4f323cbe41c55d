"""Findings of the linter, each planted once."""

from __future__ import annotations

import base64
import json
import re
import struct
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbformat.v4 import new_output

from tests.checks.conftest import Write, printed, shown
from voicelab.checks import Finding, NotebookLimits, check
from voicelab.checks.lint import source_digest, visible

# Put together here, so that this file holds none.
KEY = "vl_" + "a1B2c3D4" * 6 + "0"
SECRETS = {
    "a voicelab API key": KEY,
    "a bearer token": "Authorization: Bearer " + "q7" * 12,
    "a private key": "-----BEGIN " + "RSA PRIVATE KEY-----",
    "an AWS key": "AKIA" + "Q7" * 8,
    "a GitHub token": "ghp_" + "q7" * 18,
    "a GitLab token": "glpat-" + "q7" * 10,
    "a Slack token": "xoxb-" + "17" * 8,
    "a model hub token": "hf_" + "q7" * 17,
    "a Google key": "AIza" + "q7-_x" * 7,
    "an API key": "sk-" + "q7" * 12,
    "a JSON web token": "eyJ" + "q7" * 8 + "." + "q7" * 8 + "." + "q7" * 8,
    "a password in a URL": "https://ada:" + "correcthorse" + "@voice.example/v1",
    "a hard-coded secret": 'api_key = "' + "q7" * 10 + '"',
}


def look(path: Path, **limits: int) -> list[Finding]:
    return list(check(path, run=False, limits=NotebookLimits(**limits)).findings)


def edit(path: Path, change: Any) -> None:
    notebook = json.loads(path.read_text(encoding="utf-8"))
    change(notebook)
    path.write_text(json.dumps(notebook), encoding="utf-8")


def only(path: Path, **limits: int) -> Finding:
    (finding,) = look(path, **limits)
    return finding


def test_a_notebook_with_nothing_wrong(write: Write) -> None:
    assert look(write(("1 + 1", shown("2")), ("print(3)", printed("3\n")))) == []


def test_invalid_notebooks(tmp_path: Path) -> None:
    for text in ("{", "[]", '{"cells": 3, "nbformat": 4, "nbformat_minor": 5, "metadata": {}}', "caf\xe9"):
        (tmp_path / "n.ipynb").write_bytes(text.encode("cp1252"))
        finding = only(tmp_path / "n.ipynb")
        assert finding.kind == "not-a-notebook"
        assert finding.message.startswith("the file must be a notebook, JSON in UTF-8: ")


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


def test_placeholders_are_not_secrets(write: Write) -> None:
    source = (
        "headers = {'Authorization': 'Bearer <your key, as you have it>'}\napi_key = os.environ['VOICELAB_API_KEY']"
    )
    sound = "data:audio/mpeg;base64," + "AKIA" + "Q7" * 8 + "vl" * 40
    assert look(write((source, shown("x", f"<audio src='{sound}'>")))) == []


def counted(notebook: Any, *counts: int | None) -> None:
    for cell, count in zip(notebook["cells"][:3], counts, strict=True):
        cell["execution_count"] = count


def output_text(text: str) -> Callable[[Any], None]:
    return lambda notebook: notebook["cells"][0]["outputs"][0]["data"].update({"text/plain": text})


def in_two_pieces(notebook: Any) -> None:
    notebook["cells"][0]["outputs"] = [printed(KEY[:20]), printed(KEY[20:])]


def never_executed(notebook: Any) -> None:
    notebook["cells"][2].update(execution_count=None, outputs=[])


PATHS = ["/home/ada/x.wav", "/tmp/tmpab12/x", "/Users/ada/x", "C:\\Users\\ada\\x", f"{sys.prefix}/x"]  # noqa: S108


@pytest.mark.parametrize(
    ("change", "limits", "cell", "kind", "words"),
    [
        (output_text("x" * 3000), {"output_bytes": 2000}, 1, "size", "at most 0.00 MiB"),
        (output_text("x" * 3000), {"notebook_bytes": 3000}, None, "size", "at most 0.00 MiB"),
        (lambda notebook: counted(notebook, 1, None, 2), {}, 2, "stale", "changed or cleared"),
        (lambda notebook: counted(notebook, 1, 3, 4), {}, 2, "stale", "must be 2, got 3"),
        (lambda notebook: counted(notebook, 2, 3, 4), {}, 1, "stale", "must be 1, got 2"),
        (never_executed, {}, 3, "stale", "was not executed"),
        (lambda notebook: notebook["cells"][1].update(source="1 + 1"), {}, 2, "stale", "source was changed"),
        (in_two_pieces, {}, 1, "secret", ""),
        *((output_text(f"PosixPath('{path}')"), {}, 1, "path", "") for path in PATHS),
    ],
)
def test_findings(
    write: Write, change: Callable[[Any], None], limits: dict[str, int], cell: int | None, kind: str, words: str
) -> None:
    path = write(("1", shown("1")), ("2", shown("2")), ("3", shown("3")), ("",))
    sources = [source_digest(cell) for cell in nbformat.read(path, as_version=4).cells]
    edit(path, lambda notebook: notebook["metadata"].update(voicelab={"sources": sources}))
    edit(path, lambda notebook: notebook["cells"][3].update(execution_count=None))  # there is nothing to execute
    assert look(path) == []
    edit(path, change)
    finding = only(path, **limits)
    assert (finding.cell, finding.kind) == (cell, kind)
    assert words in finding.message


def test_the_value_of_a_secret_variable(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(("1", shown("it is correct-horse-battery")))
    assert look(path) == []
    monkeypatch.setenv("MY_SERVICE_TOKEN", "correct-horse-battery")
    assert "the value of MY_SERVICE_TOKEN" in only(path).message


def test_urls_and_relative_paths_are_not_local_paths(write: Write) -> None:
    assert look(write(("1", shown("see https://voice.example/home/ada, and/or/tmp/x, and takes/1.wav")))) == []


def test_widget_needs_state_or_html(write: Write) -> None:
    view = {"application/vnd.jupyter.widget-view+json": {"model_id": "abc", "version_major": 2, "version_minor": 0}}

    def widget(**beside: str) -> Any:
        return new_output("display_data", {**view, "text/plain": "IntSlider(value=0)", **beside})

    assert only(write(("1", widget()))).kind == "widget"
    assert look(write(("1", widget(**{"text/html": "<p>a panel</p>"})))) == []
    state = {
        "application/vnd.jupyter.widget-state+json": {"state": {"abc": {}}, "version_major": 2, "version_minor": 0}
    }
    assert look(write(("1", widget()), widgets=state)) == []


NOTEBOOKS = sorted((Path(__file__).parents[2] / "notebooks").glob("*.ipynb"))
WIDGET = "application/vnd.jupyter.widget-view+json"
NUMBER = re.compile(r"\d+(?:\.\d+)?")


def test_scripts_and_sound_alone_are_found(write: Write) -> None:
    bare = "<div></div><script>draw('a graph')</script><style>b { color: red }</style><audio src='data:,'>none</audio>"
    picture = new_output("display_data", {"text/html": bare, "image/png": "iVBORw0KGgo=", "text/plain": "x"})
    path = write(
        ("1", shown("x", bare)),
        ("2", shown("x", f"{bare}<p>a word</p>")),
        ("3", shown("x", f'{bare}<img src="data:image/png;base64,AAAA">')),
        ("4", picture),
        ("5", shown("x", "<template><p>made by a script</p></template>")),
        ("6", shown("x", '<img src="https://elsewhere.example/a.png">')),
        ("7", shown("x")),
        ("8", shown("x", "<style>b { color: red }</style><div></div>")),  # is empty for everybody
    )
    assert [(item.cell, item.kind) for item in check(path, run=False).notes] == [
        (1, "preview"),
        (5, "preview"),
        (6, "preview"),
    ]


def test_words_and_pictures_that_remain() -> None:
    page = "<p>one<script>two</script></p><svg><text>three</text></svg><audio>four</audio> five"
    page += "<img src='data:image/png,' alt='six'>"
    assert visible(page) == ("one five six", 1, True)


def _outputs(path: Path) -> list[tuple[int, dict[str, Any]]]:
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    found = [(number, output) for number, cell in enumerate(cells, start=1) for output in cell.get("outputs", ())]
    return [(number, output["data"]) for number, output in found if "data" in output]


def _text(data: dict[str, Any], mime: str) -> str:
    return "".join(data.get(mime, ""))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
class TestCommitted:
    def test_it_is_small_and_holds_no_secret_path_time_or_stale_output(self, path: Path) -> None:
        report = check(path, run=False)
        assert (report.findings, report.notes) == ((), ())
        assert path.stat().st_size <= 1.5 * 2**20
        # Without these, an output under a source that was changed would not be found.
        assert json.loads(path.read_text(encoding="utf-8"))["metadata"]["voicelab"]["sources"]

    def test_every_output_says_the_same_without_scripts_styles_and_sound(self, path: Path) -> None:
        shown = _outputs(path)
        assert shown
        for number, data in shown:
            assert set(data) <= {"image/png", "text/html", "text/plain", WIDGET}, number
            if visible(_text(data, "text/html")) != ("", 0, False):
                words, *_ = visible(_text(data, "text/html"))
                plain = _text(data, "text/plain")
                # A clip's caption is for readers; the figures that the check compares stand in its plain text alone.
                shown_too = plain.partition(",")[0] if plain.startswith("Clip(") else plain
                missing = set(NUMBER.findall(shown_too)) - set(NUMBER.findall(words))
                assert missing == set(), number
                assert len(words) > 20, number
            else:
                assert _text(data, "text/plain")

    def test_its_pictures_fit_a_page_and_nothing_is_fetched_from_elsewhere(self, path: Path) -> None:
        for number, data in _outputs(path):
            page = _text(data, "text/html")
            assert re.findall(r"""(?:src|href)=["']?(?:https?:)?//[^"' >]+|url\(\s*["']?https?:""", page) == [], number
            pictures = re.findall(r'src="data:image/png;base64,([^"]+)"', page)
            for picture in (*pictures, *([_text(data, "image/png")] if "image/png" in data else [])):
                png = base64.b64decode(picture)
                assert png[:8] == b"\x89PNG\r\n\x1a\n"
                width, height = struct.unpack(">II", png[16:24])
                assert 200 <= width <= 1600, number
                assert 80 <= height <= 1600, number
