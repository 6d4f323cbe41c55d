"""Notebooks that are run: what moved is told in words, and nothing reaches a network."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.checks.conftest import Write, printed, shown
from voicelab.checks import Finding, Limits, check
from voicelab.checks.compare import Masks, differences
from voicelab.errors import RequestInvalid
from voicelab.experiments.replay import Tolerance

CLIP = "Clip(2.88 s, 44100 Hz, -26 dBFS, F0 102 Hz, mel -26 -39 -48 dB)"
# What a cell shows as its last value, whatever its text.
SHOW = "class Shown(str):\n    def __repr__(self):\n        return str(self)\n"
MOVED = SHOW + f"\nShown({CLIP.replace('102', '110')!r})"


def told(was: str, now: str, masks: Masks | None = None) -> list[str]:
    return list(differences([shown(was)], [shown(now)], masks or Masks(), Tolerance()))


def test_one_output_value_that_was_changed_is_found(write: Write) -> None:
    path = write(("print(6 * 7)", printed("42\n")), ("6 * 7", shown("42")))
    assert check(path) == []
    notebook = json.loads(path.read_text(encoding="utf-8"))
    notebook["cells"][1]["outputs"][0]["data"]["text/plain"] = ["43"]
    path.write_text(json.dumps(notebook), encoding="utf-8")
    assert check(path) == [Finding(path, 2, "difference", "output 1 (text/plain): '42' where it was '43'")]


def test_everything_that_happens_when_cells_run(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    # One kernel for all of it: each takes seconds to start.
    monkeypatch.setenv("VOICELAB_API_KEY", "from outside")
    monkeypatch.setenv("VOICELAB_BASE_URL", "http://127.0.0.1:9")
    away = "import socket\ntry:\n    socket.create_connection(('192.0.2.1', 9))\nexcept OSError as error:\n    print(error)"
    child = (
        "import subprocess, sys\n"
        "code = 'import socket; socket.getaddrinfo(\"voice.example\", 443)'\n"
        "done = subprocess.run([sys.executable, '-c', code], capture_output=True, text=True)\n"
        "print('offline' in done.stderr)"
    )
    here = (
        "with socket.create_server(('127.0.0.1', 0)) as server:\n"
        "    socket.create_connection(server.getsockname()).close()"
    )
    path = write(
        (away, printed("notebooks are checked offline: no connection to '192.0.2.1'\n")),
        (child, printed("True\n")),
        (here,),
        ("import os\n'VOICELAB_API_KEY' in os.environ, 'VOICELAB_BASE_URL' in os.environ", shown("(False, False)")),
        ("os.path.isfile('n.ipynb')", shown("True")),
        ("print('a')\nprint('b')", printed("a\n"), printed("b\n")),
        ("print(1)", printed("1\n"), shown("gone")),
        (MOVED, shown(CLIP)),
        ("# NBVAL_IGNORE_OUTPUT\nobject()", shown("<object at 0x7f0000000000>")),
        ("object()", shown("<object at 0x7f0000000000>")),
        ("1 / 0", shown("inf")),
        ("print('never')", printed("never")),
    )
    assert [(item.cell, item.kind, item.message) for item in check(path)] == [
        (7, "difference", "1 outputs where there were 2; now: stdout"),
        (
            8,
            "difference",
            "output 1 (text/plain): the clip moved: F0 +131 cents (tolerance 50): beyond tolerance",
        ),
        (
            10,
            "difference",
            "output 1 (text/plain): only addresses in memory differ: show something that has a name of its own",
        ),
        (11, "error", "the cell failed: ZeroDivisionError: division by zero"),
    ]


def test_a_cell_that_does_not_end_and_a_kernel_that_dies(write: Write) -> None:
    hangs = write(("import time\nwhile True:\n    time.sleep(0.1)",))
    (finding,) = check(hangs, limits=Limits(timeout_s=2))
    assert (finding.cell, finding.kind) == (1, "timeout")
    dies = write(("x = 1",), ("import os\nos._exit(1)",), name="dies.ipynb")
    (finding,) = check(dies)
    assert (finding.cell, finding.kind) == (2, "error")
    assert "kernel died" in finding.message


def test_sound_and_pictures_are_masked_and_what_is_told_of_them_is_not() -> None:
    page = '<audio src="data:audio/mpeg;base64,{}"><img src="data:image/png;base64,{}"><p>{}</p>'
    assert told(page.format("AAAA", "BBBB", CLIP), page.format("CCCC", "DDDD", CLIP)) == []
    (words,) = told(page.format("AAAA", "BBBB", CLIP), page.format("CCCC", "DDDD", CLIP.replace("2.88", "3.00")))
    assert "duration +0.12 s" in words


def test_masks_of_ones_own(tmp_path: Path) -> None:
    own = tmp_path / "own.cfg"
    own.write_text("[date]\nregex: \\d{4}-\\d\\d-\\d\\d\nreplace: DATE\n")
    assert told("on 2026-01-01", "on 2026-02-02", Masks([own])) == []
    assert told("on 2026-01-01", "on 2026-02-02") != []
    for wrong in ("no section", "[x]\nregex: (", "[x]\nregex: a"):
        own.write_text(wrong)
        with pytest.raises(RequestInvalid, match="masks"):
            Masks([own])


@pytest.mark.parametrize(
    ("was", "now", "words"),
    [
        ("a\nb", "a\nc", "'c' where it was 'b'"),
        ("a\nb", "a\nb\nc", "3 lines where there were 2"),
        ("x" * 300 + "1", "x" * 300 + "2", "…"),
        (f"{CLIP} {CLIP}", f"{CLIP} {CLIP.replace('2.88', '2.90')}", "clip 2: duration +0.02 s"),
    ],
)
def test_differences_in_words(was: str, now: str, words: str) -> None:
    (said,) = told(was, now)
    assert words in said
    assert len(said) < 300


def test_another_kind_of_output() -> None:
    (said,) = differences([shown("1")], [shown("1", "<b>1</b>")], Masks(), Tolerance())
    assert said == "output 1 is text/html and text/plain where it was text/plain"


def test_another_sitecustomize_still_runs(tmp_path: Path) -> None:
    import voicelab.checks

    guard = Path(voicelab.checks.__file__).with_name("guard")
    (tmp_path / "sitecustomize.py").write_text("print('the other one')\n")
    done = subprocess.run(
        [sys.executable, "-c", "import socket; socket.getaddrinfo('voice.example', 443)"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(guard), str(tmp_path)])},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.stdout == "the other one\n"
    assert "checked offline" in done.stderr
