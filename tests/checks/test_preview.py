"""What a code host shows of saved notebooks: of any that leave nothing to see, and of all that are committed here."""

from __future__ import annotations

import base64
import json
import re
import struct
from pathlib import Path
from typing import Any

import pytest
from nbformat.v4 import new_output

from tests.checks.conftest import Write, shown
from voicelab.checks import check
from voicelab.checks.preview import empty, visible

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
    assert visible(page) == ("one five six", 1)


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
            if "text/html" in data and not empty(_text(data, "text/html")):
                words, _ = visible(_text(data, "text/html"))
                missing = set(NUMBER.findall(_text(data, "text/plain"))) - set(NUMBER.findall(words))
                assert missing == set(), number
                assert len(words) > 20, number
            else:
                assert _text(data, "text/plain")

    def test_its_pictures_are_pictures_that_fit_a_page(self, path: Path) -> None:
        for number, data in _outputs(path):
            pictures = re.findall(r'src="data:image/png;base64,([^"]+)"', _text(data, "text/html"))
            for picture in (*pictures, *([_text(data, "image/png")] if "image/png" in data else [])):
                png = base64.b64decode(picture)
                assert png[:8] == b"\x89PNG\r\n\x1a\n"
                width, height = struct.unpack(">II", png[16:24])
                assert 200 <= width <= 1600, number
                assert 80 <= height <= 1600, number

    def test_nothing_is_fetched_from_elsewhere(self, path: Path) -> None:
        for number, data in _outputs(path):
            page = _text(data, "text/html")
            assert re.findall(r"""(?:src|href)=["']?(?:https?:)?//[^"' >]+|url\(\s*["']?https?:""", page) == [], number
