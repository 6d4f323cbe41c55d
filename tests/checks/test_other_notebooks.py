"""Notebooks of other libraries: what differs in every run is no finding, and what was changed is one."""

from __future__ import annotations

import base64
import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import nbformat
import pytest
from nbformat.v4 import new_output
from rich.console import Console
from rich.jupyter import _render_segments
from rich.progress import BarColumn, Progress, ProgressColumn, SpinnerColumn

from tests.checks.conftest import Write, displayed, printed, shown
from voicelab.checks import check, update
from voicelab.checks.check import read
from voicelab.checks.compare import Masks, OutputComparison, visible_text
from voicelab.checks.displays import VIEW, properties
from voicelab.checks.lint import source_lines
from voicelab.cli.check import json_report, junit_report
from voicelab.takes.replay import Tolerance

PICTURE = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR4nGP4DwABAQEAsTj2GAAAAABJRU5ErkJggg=="
LINE = new_output("execute_result", {"text/plain": "[<matplotlib.lines.Line2D at 0x{}>]"}, execution_count=1)
FIGURE = new_output("display_data", {"image/png": PICTURE, "text/plain": "<Figure size 1x1 with 1 Axes>"})
SUMMARY = "Date:                Fri, 27 Nov 2026   Prob (F-statistic): 0.1\nTime:                        {}   AIC: {}\n"
SLOWEST = "The slowest run took 9.1 times longer than the fastest. This could mean that …\n"


def differences(was: list[Any], now: list[Any]) -> list[tuple[str, bool]]:
    found = OutputComparison(Masks(), Tolerance()).differences(was, now)
    return [(one.message, one.negligible) for one in found]


def at(output: Any, address: str) -> Any:
    data = {mime: text.format(address) for mime, text in output["data"].items()}
    return nbformat.from_dict({**output, "data": data})


def test_addresses() -> None:
    both = [at(LINE, each) for each in ("7f0123456789", "7f9876543210")]
    assert differences([both[0], FIGURE], [both[1], FIGURE]) == []
    assert differences(both[:1], both[1:]) == [("output 1: only memory addresses differ", True)]
    styled = [shown(f"<pandas.io.formats.style.Styler at 0x7f000000000{i}>", f"<b>{i // 2}</b>") for i in range(3)]
    assert differences(styled[:1], styled[1:2]) == []
    assert [negligible for _, negligible in differences(styled[:1], styled[2:])] == [False]


@pytest.mark.parametrize(
    ("was", "now", "changed"),
    [
        ("wrote /tmp/tmpab12cd_9/x 3", "wrote /var/folders/a/bc/T/tmpqq12cdzz/x 3", "wrote /tmp/tmpab12cd_9/x 4"),
        (SUMMARY.format("01:53:07", 3), SUMMARY.format("23:00:00", 3), SUMMARY.format("01:53:07", 4)),
        ("30/30\u2007[00:00&lt;00:00,\u2007185.03it/s]", "30/30\u2007[00:09&lt;00:00,\u20071.3s/it]", "29/30"),
        ("Time: 12:00:00", "Time: 12:00:00", "Time: 12:00:01"),
        ("Date: & 2026-11-27 11:10 & AIC: 3", "Date: & 2026-11-27 11:11 & AIC: 3", "Date: & 2026-11-27 11:10 & AIC: 4"),
        (
            "CPU times: user 1 μs, sys: 0 ns\nWall time: 2 μs\n3",
            "CPU times: user 2 s, total: 3 s\nWall time: 3 s\n3",
            "CPU times: user 1 μs, sys: 0 ns\nWall time: 2 μs\n4",
        ),
        *(
            [head + f"{time} per loop (mean ± std. dev. of {runs}, 10 loops each)" for head, time, runs in states]
            for states in [
                [("", "1.33 μs ± 0 ns", "7 runs"), (SLOWEST, "3 s ± 1 s", "7 runs"), ("", "3 s ± 1 s", "1 run")]
            ]
        ),
        (
            "/home/ann/.venv/lib/python3.11/site-packages/sklearn/a.py:5: Warning",
            "/opt/conda/lib/python3.11/site-packages/sklearn/a.py:5: Warning",
            "/opt/conda/lib/python3.11/site-packages/sklearn/a.py:6: Warning",
        ),
        ('<image id="image2237a5fd32"/>', '<image id="image283633ee96"/>', '<image id="picture283633ee96"/>'),
    ],
)
def test_volatile_text(was: str, now: str, changed: str) -> None:
    assert differences([printed(was)], [printed(now)]) == []
    assert differences([printed(was)], [printed(changed)]) != []


@pytest.mark.parametrize(
    "part", ["+a/b", "a-b c/d ", "<b>x</b> ", "x/y:z ", "1.5 ms 30% ", "\x1b[32m━━━━ ", "(a: 'b') "]
)
def test_long_lines_are_compared_in_linear_time(part: str) -> None:
    line = part * (300_000 // len(part))
    assert differences([shown(line, f"<p>{line}</p>")], [shown(line, f"<p>{line}</p>")]) == []


def test_random_ids_and_pictures_in_pages() -> None:
    page = '<img id="_anim_img{0}"><script>an("{0}", ["data:image/png;base64,{1}"])</script>'
    other = Path(__file__).parents[2] / "voicelab"  # any bytes that are no picture
    pages = [[shown("x", page.format(i * 32, PICTURE))] for i in "ab"]
    assert differences(*pages) == []
    ((words, _),) = differences(pages[0], [shown("x", page.format("a" * 32, base64.b64encode(bytes(other)).decode()))])
    assert "the picture cannot be read" in words


@pytest.mark.parametrize(
    "columns",
    [
        Progress.get_default_columns(),
        (SpinnerColumn(), "{task.description}", BarColumn(), "{task.completed}/4"),
    ],
)
def test_last_state_of_rich_bars_is_volatile(columns: tuple[ProgressColumn | str, ...]) -> None:
    console = Console(force_terminal=True, color_system="truecolor", width=100)

    def state(name: str, count: int) -> Any:
        progress = Progress(*columns, console=console)
        progress.add_task(name, total=4, completed=count)
        segments = list(console.render(progress.get_renderable()))
        return shown(console._render_buffer(segments), _render_segments(segments))

    first, *others = (state("measure files", count) for count in range(5))
    assert [differences([first], [other]) for other in others] == [[]] * 4
    assert differences([first], [state("decode files", 0)]) != []
    for text in ("━" * 12 + " part 1", "┏━ fold 1/2 " + "━" * 12 + "┓"):
        assert differences([printed(text)], [printed(text.replace("1", "3"))]) != []


def bars(name: str, count: int, total: int) -> str:
    return f"{name}: {100 * count // total}%|{'#' * count}| {count}/{total} [00:00<00:00, {count + 1.5}it/s]"


def tqdm_widget(count: int, style: str, name: str = "inner", total: int = 3) -> dict[str, Any]:
    """The saved states of tqdm.notebook, which are refreshed every 0.1 s, and the bar also at the end."""
    box = {"children": ["IPY_MODEL_text", "IPY_MODEL_bar", "IPY_MODEL_count"]}
    states = {
        "box": ("HBoxModel", box),
        "text": ("HTMLModel", {"value": f"{name}:\u2007{100 * count // total:3}%"}),
        "bar": ("FloatProgressModel", {"bar_style": style, "max": float(total), "value": float(total)}),
        "count": ("HTMLModel", {"value": f"\u2007{count}/{total}\u2007[00:00&lt;00:00,\u2007{count + 1.5}it/s]"}),
    }
    return {key: {"model_name": kind, "state": state} for key, (kind, state) in states.items()}


@pytest.mark.parametrize(
    ("now", "count"),
    [
        (tqdm_widget(3, ""), 0),
        (tqdm_widget(3, "", "outer"), 1),
        (tqdm_widget(3, "", total=4), 2),
        (tqdm_widget(3, "success"), 3),
    ],
)
def test_texts_of_hidden_bars_are_volatile(now: dict[str, Any], count: int) -> None:
    view = new_output("display_data", {VIEW: {"model_id": "box"}, "text/plain": "inner:   0%|          | 0/3"})
    compared = OutputComparison(Masks(), Tolerance(), states=(tqdm_widget(0, ""), now))
    assert len(list(compared.differences([view], [view]))) == count


def test_nested_progress_bars() -> None:
    def run(total: int, states: int) -> str:
        text = f"\r{bars('outer', 0, total)}"
        for outer in range(1, total + 1):
            inner = "".join(f"\n\r{bars('inner', state, 4)}\x1b[A" for state in range(0, 4, 4 // states))
            text += f"{inner}\n\r{' ' * 40}\r\x1b[A\r{bars('outer', outer, total)}"
        return text + "\n"

    def coalesced(text: str) -> str:  # as nbclient saves it
        return "\n".join(line.rpartition("\r")[2] or line for line in text.split("\n"))

    few, many = run(3, 1), run(3, 4)
    assert visible_text(few) != few
    assert visible_text(coalesced(many)) == visible_text(visible_text(coalesced(many)))
    assert differences([printed(few)], [printed(many)]) == differences([printed(coalesced(few))], [printed(many)]) == []
    assert differences([printed(few)], [printed(run(4, 4))]) != []
    assert visible_text("ab\b\bcd\n10 %\r100 %\r\n") == "cd\n100 %\n"


SLIDER = (
    "import ipywidgets as w\nbox = w.VBox([w.IntSlider(value={}), w.Output()])\nwith box.children[1]: print('in')\nbox"
)


def test_widgets_acceptance_and_saved_metadata(write: Write) -> None:
    path = write(
        (SLIDER.format(5), displayed("x")),
        ("import os\nprint('/home/ada/x')", printed("/home/ada/x\n")),
        ("import time\nprint(f'{\"fit_s\":>14}  error\\n{time.time():>14.1f}    .25')",),
        ("print(1)", printed("1\n")),
    )
    notebook = nbformat.read(path, as_version=4)
    notebook.cells[1].metadata["tags"], notebook.cells[2].metadata["tags"] = ["accept-path"], ["timing=fit_s"]
    notebook.cells[3].metadata["execution"] = {"iopub.execute_input": "2026-01-01"}
    nbformat.write(notebook, path)
    assert update(path).findings == ()
    saved = path.read_text(encoding="utf-8")
    assert f'"model_id": "{1:032x}"' in saved
    # The same again, with a BOM, execution times and another value of the slider.
    notebook = nbformat.read(path, as_version=4)
    notebook.cells[3].metadata["execution"] = {"iopub.execute_input": "2026-01-01"}
    slider = notebook.metadata.widgets["application/vnd.jupyter.widget-state+json"].state
    assert "IntSlider.value = 5" in [line for model in slider.values() for line in properties(model)]
    next(model for model in slider.values() if model.model_name == "IntSliderModel").state.value = 7
    path.write_text(nbformat.writes(notebook), encoding="utf-8-sig")
    own = path.with_name("own.cfg")
    own.write_text("[print]\nregex: .*:4: difference: .*\nreplace:\n")
    report = check(path, masks=[own])
    assert [str(one).partition(".ipynb")[2] for one in report.findings] == [
        ":1: difference: output 1 (widget): got 'IntSlider.value = 5', expected 'IntSlider.value = 7'"
    ]
    assert [(note.cell, note.kind) for note in report.notes] == [(None, "times"), (None, "timings"), (2, "path")]
    path.write_text(path.read_text(encoding="utf-8-sig").replace('"1\\n"', '"2\\n"'), encoding="utf-8")
    assert {(note.cell, note.kind) for note in check(path, masks=[own]).notes} >= {(4, "difference")}


def test_keep_going_kernel_and_reports(write: Write) -> None:
    path = write(
        ("x = 1\n1 / 0\n",),
        ("x", shown("2")),
        ("raise KeyError('a\x1bb')",),
        kernelspec={"name": "gone", "display_name": "x"},
    )
    (finding,) = check(path).findings
    assert "'gone' is not installed; install it, or pass another with --kernel (installed: " in finding.message
    report = check(path, kernel="python3", keep_going=True)
    lines = path.read_text(encoding="utf-8").splitlines()
    assert [(one.cell, one.kind, one.source_line) for one in report.findings] == [
        (1, "error", 2),
        (2, "difference", None),
        (3, "error", 1),
    ]
    for finding, text in zip(report.findings, ("1 / 0", "x", "raise KeyError"), strict=True):
        assert finding.line is not None
        assert lines[finding.line - 1].strip().startswith(f'"{text}')
    (encoded,) = json.loads(json_report([report]))
    assert [(one["cell"], one["line"]) for one in encoded["findings"]] == [(f.cell, f.line) for f in report.findings]
    (suite,) = ET.fromstring(junit_report([report]))  # noqa: S314 - our own
    assert suite.attrib == {"name": str(path), "tests": "4", "failures": "3"}
    assert [case.attrib["name"] for case in suite if case.find("failure") is not None] == ["cell 1", "cell 2", "cell 3"]


def test_lines_of_sources(write: Write) -> None:
    path = write(("a\nb",), ("print('\"source\": [')", printed('"source": ["a"]')), ("",))
    text = path.read_text(encoding="utf-8")
    for (first, *_), source in zip(source_lines(text), ("a", "print"), strict=False):
        assert text.splitlines()[first - 1].strip().startswith(f'"{source}')
    assert source_lines(json.dumps(json.loads(text))) == [[1], [1], [1]]
    assert not isinstance(read(path), tuple)


def test_interrupt_ends_kernels(write: Write) -> None:
    path = write(("import time, os\nopen('started', 'w').write(str(os.getpid()))\ntime.sleep(100)",))
    code = f"from voicelab.cli import app; app(['check', {str(path)!r}])"
    with subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE, text=True) as process:
        started = path.with_name("started")
        while not (started.exists() and started.read_text()):
            assert process.poll() is None
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        _, words = process.communicate(timeout=20)  # 1 s on an idle machine
    assert process.returncode == 130
    assert words.endswith("voicelab: stopped\n")
    assert not Path("/proc", started.read_text()).exists()
