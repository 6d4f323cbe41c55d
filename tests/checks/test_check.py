"""Executed notebooks: descriptions of differences, and no network access."""

from __future__ import annotations

import base64
import io
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from nbformat.v4 import new_output
from nbval.plugin import get_sanitize_patterns
from PIL import Image

from tests.checks.conftest import Write, displayed, printed, shown
from voicelab.checks import FIGURES, MASKS, NotebookLimits, check, update
from voicelab.checks.compare import Masks, OutputComparison
from voicelab.errors import RequestInvalid
from voicelab.takes.replay import Tolerance

CLIP = "Clip(2.88 s, 44100 Hz, -26 dBFS, F0 102 Hz, mel -26 -39 -48 dB)"
# What a cell shows as its last value, whatever its text.
SHOW = "class Shown(str):\n    def __repr__(self):\n        return str(self)\n"
MOVED = SHOW + f"\nShown({CLIP.replace('102', '110')!r})"

# The picture that is committed, and code that draws a larger one.
DRAWN = (
    "import base64, io\nfrom PIL import Image\ndata = io.BytesIO()\nImage.new('L', (32, 32)).save(data, 'PNG')"
    "\nfrom IPython.display import publish_display_data\n"
    "publish_display_data({'image/png': base64.b64encode(data.getvalue()).decode(), 'text/plain': 'a picture'})"
)

AWAY = "import socket\ntry:\n    socket.create_connection(('192.0.2.1', 9))\nexcept OSError as error:\n    print(error)"
CHILD = (
    "import subprocess, sys\n"
    "code = 'import socket; socket.getaddrinfo(\"voice.example\", 443)'\n"
    "done = subprocess.run([sys.executable, '-c', code], capture_output=True, text=True)\n"
    "print('offline' in done.stderr)"
)
# A program that is not Python; it heeds a proxy.
ELSEWHERE = (
    "done = subprocess.run(['git', 'ls-remote', 'http://192.0.2.1/a.git'], capture_output=True, text=True)\n"
    "print('127.0.0.1 port 9' in done.stderr)"
)
NO_VOICE = (
    "import voicelab\ntry:\n    voicelab.connect()\nexcept ImportError as error:\n"
    "    print('checked with recordings only' in str(error))"
)
SHOWS = (
    "import sys\nfrom IPython.display import clear_output, display\nfrom ipywidgets import Output\n"
    "handle = display('one', display_id=True)\nhandle.update('two')\n"
    "with Output():\n    print('in a widget')\n"
    "print('a')\nprint('b', file=sys.stderr)\nprint('c')"
)
HERE = (
    "with socket.create_server(('127.0.0.1', 0)) as server:\n    socket.create_connection(server.getsockname()).close()"
)


def _square(side: int, **options: Any) -> str:
    data = io.BytesIO()
    Image.new("L", (side, side)).save(data, "PNG", **options)
    return base64.b64encode(data.getvalue()).decode()


PICTURE = _square(16)


def messages(was: str, now: str, masks: Masks | None = None) -> list[str]:
    return [
        item.message for item in OutputComparison(masks or Masks(), Tolerance()).differences([shown(was)], [shown(now)])
    ]


def test_execution(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    # One kernel for all of it: each takes seconds to start.
    monkeypatch.setenv("VOICELAB_API_KEY", "from outside")
    monkeypatch.setenv("VOICELAB_BASE_URL", "http://127.0.0.1:9")
    path = write(
        (AWAY, printed("notebooks are checked offline: no connection to '192.0.2.1'\n")),
        (CHILD, printed("True\n")),
        (HERE,),
        (ELSEWHERE, printed("True\n")),
        (NO_VOICE, printed("True\n")),
        ("import os\n'VOICELAB_API_KEY' in os.environ, 'VOICELAB_BASE_URL' in os.environ", shown("(False, False)")),
        ("os.path.isfile('n.ipynb')", shown("True")),
        (SHOWS, displayed("'two'"), printed("a\n"), new_output("stream", name="stderr", text="b\n"), printed("c\n")),
        ("print('gone')\nclear_output()\nprint('last')", printed("last\n")),
        ("# NBVAL_SKIP\n1 / 0",),
        ("# NBVAL_RAISES_EXCEPTION\n1 / 0", new_output("error", ename="ZeroDivisionError", evalue="division by zero")),
        ("print(1)", printed("1\n"), shown("gone")),
        (MOVED, shown(CLIP)),
        (DRAWN, new_output("display_data", {"image/png": PICTURE, "text/plain": "a picture"})),
        ("# NBVAL_IGNORE_OUTPUT\nobject()", shown("<object at 0x7f0000000000>")),
        ("object()", shown("<object at 0x7f0000000000>")),
        ("1 / 0", shown("inf")),
        ("print('never')", printed("never")),
    )
    assert [(item.cell, item.kind, item.message) for item in check(path, recordings_only=True).findings] == [
        (12, "difference", "missing: output 1 (text/plain)"),
        (
            13,
            "difference",
            "output 1 (text/plain): the clip differs: F0 +131 cents (tolerance 50): beyond tolerance",
        ),
        (14, "difference", "output 1 (image/png): got 32 × 32 pixels, expected 16 × 16"),
        (17, "error", "the cell failed in line 1: ZeroDivisionError: division by zero"),
    ]


def test_timeout_and_dead_kernel(write: Write) -> None:
    hangs = write(("import time\nwhile True:\n    time.sleep(0.1)",))
    (finding,) = check(hangs, limits=NotebookLimits(timeout_s=2)).findings
    assert (finding.cell, finding.kind) == (1, "timeout")
    dies = write(("x = 1",), ("import os\nos._exit(1)",), name="dies.ipynb")
    before = dies.read_bytes()
    (finding,) = update(dies).findings
    assert dies.read_bytes() == before
    assert (finding.cell, finding.kind) == (2, "error")
    assert "kernel died" in finding.message


def test_output_widgets_do_not_lose_replies(write: Write) -> None:
    """Messages that nbclient sends for widgets use the socket of the replies: some are lost without polling."""
    path = write(("from ipywidgets import Output",), *(("with Output():\n    print(1)",) for _ in range(300)))
    report = check(path, limits=NotebookLimits(timeout_s=60))
    assert report.findings == ()
    assert report.seconds is not None
    assert report.seconds < 60


def test_embedded_audio_and_pictures_are_masked() -> None:
    page = '<audio src="data:audio/mpeg;base64,{}"><img src="data:image/png;base64,{}"><p>{}</p>'
    stored = _square(16, compress_level=0)
    assert messages(page.format("AAAA", PICTURE, CLIP), page.format("AAAA", stored, CLIP)) == []
    (words,) = messages(page.format("AAAA", PICTURE, CLIP), page.format("AAAA", _square(17), CLIP))
    assert "got 17 × 17 pixels" in words
    captioned = '<div class="voicelab-caption">2.{} s · seed 1 <span>mp3</span></div><p>{}</p>'
    assert messages(captioned.format(88, "a"), captioned.format(89, "a")) == []
    assert messages(captioned.format(88, "a"), captioned.format(88, "b")) != []
    (words,) = messages(page.format("AAAA", "BBBB", CLIP), page.format("CCCC", "DDDD", CLIP.replace("2.88", "3.00")))
    assert "duration +0.12 s" in words


def test_custom_masks(tmp_path: Path) -> None:
    own = tmp_path / "own.cfg"
    own.write_text("[date]\nregex: \\d{4}-\\d\\d-\\d\\d\nreplace: DATE\n")
    assert messages("on 2026-01-01", "on 2026-02-02", Masks([own])) == []
    assert messages("on 2026-01-01", "on 2026-02-02") != []
    for wrong in ("no section", "[x]\nregex: (", "[x]\nregex: a"):
        own.write_text(wrong)
        with pytest.raises(RequestInvalid, match="masks"):
            Masks([own])


@pytest.mark.parametrize(
    ("was", "now", "words"),
    [
        ("a\nb", "a\nc", "got 'c', expected 'b'"),
        ("a\nb", "a\nb\nc", "got 3 lines, expected 2"),
        ("x" * 300 + "1", "x" * 300 + "2", "…"),
        (f"{CLIP} {CLIP}", f"{CLIP} {CLIP.replace('2.88', '2.90')}", "clip 2 differs: duration +0.02 s"),
    ],
)
def test_descriptions_of_text_differences(was: str, now: str, words: str) -> None:
    (message,) = messages(was, now)
    assert words in message
    assert len(message) < 300


def test_nbval_reads_the_masks_too() -> None:
    rules = list(get_sanitize_patterns(MASKS.read_text(encoding="utf-8")))
    assert len(rules) == len(re.findall(r"^\[", MASKS.read_text(encoding="utf-8"), re.MULTILINE))
    assert len(list(get_sanitize_patterns(FIGURES.read_text(encoding="utf-8")))) == 3
    svg = '<path id="{0}{1}"/><use href="#{0}{1}"/><g clip-path="url(#p{1})"/><dc:date>{2}</dc:date>'
    assert messages(svg.format("m", "0123456789", "2026-01-01"), svg.format("m", "abcdef0123", "2026-01-02")) == []
    assert messages(svg.format("m", "0123456789", "1"), svg.format("x", "0123456789", "1")) != []


def test_clip_digests_within_tolerance_are_tolerable() -> None:
    compare = OutputComparison(Masks(), Tolerance())
    near, far = CLIP.replace("2.88", "2.90"), CLIP.replace("2.88", "2.99")
    for was, now, tolerable in ((CLIP, near, True), (CLIP, far, False), (f"{CLIP} a", f"{near} b", False)):
        (difference,) = compare.differences([shown(was)], [shown(now)])
        assert difference.tolerable is tolerable


def test_missing_kernel(write: Write) -> None:
    path = write(("1",), kernelspec={"name": "nowhere", "display_name": "Nowhere", "language": "python"})
    (finding,) = check(path).findings
    assert finding.kind == "kernel"
    assert "'nowhere' is not installed" in finding.message


def test_changed_media_types() -> None:
    (difference,) = OutputComparison(Masks(), Tolerance()).differences([shown("1")], [shown("1", "<b>1</b>")])
    assert difference.message == "output 1: got text/html and text/plain, expected text/plain"


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
