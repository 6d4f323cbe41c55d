"""The progress of loops in code: in a notebook's output, in a terminal, and of a sweep at work."""

from __future__ import annotations

import io
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output

import voicelab as vl
from tests.tones import ToneBackend
from voicelab.lab import Lab


class Kernel(InteractiveShell):
    """An IPython shell that says it has a kernel, as a notebook's does."""

    kernel = True


@pytest.fixture
def notebook() -> Iterator[None]:
    Kernel.clear_instance()
    InteractiveShell.clear_instance()
    Kernel.instance()
    yield
    Kernel.clear_instance()
    InteractiveShell.clear_instance()


def shown(outputs: Any) -> list[str]:
    return [output.data["text/plain"] for output in outputs]


@pytest.mark.usefixtures("notebook")
def test_a_notebook_is_told_seldom_and_keeps_the_count_alone() -> None:
    with capture_output() as caught:
        assert list(vl.progress(range(1000), "takes")) == list(range(1000))
    told = shown(caught.outputs)
    assert told[0] == "takes: 0 of 1000"
    assert told[-1] == "takes: 1000 of 1000"
    assert len(told) < 20
    assert "<progress" in caught.outputs[0].data["text/html"]
    assert "<progress" not in caught.outputs[-1].data["text/html"]


@pytest.mark.usefixtures("notebook")
def test_it_tells_what_is_left_and_where_it_was_left() -> None:
    with capture_output() as caught:
        for number in vl.progress(iter(range(40)), "<b>", total=40):
            time.sleep(0.06)
            if number == 4:
                break
    told = shown(caught.outputs)
    assert any("s left" in text for text in told)
    assert told[-1] == "<b>: 4 of 40"
    assert "<b>" not in caught.outputs[-1].data["text/html"]


@pytest.mark.usefixtures("notebook")
def test_what_has_no_length_is_counted() -> None:
    with capture_output() as caught:
        assert sum(vl.progress(n for n in range(5))) == 10
    assert shown(caught.outputs)[-1] == "5"


def test_a_terminal_has_a_line_and_a_file_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    for terminal in (True, False):
        written = io.StringIO()
        monkeypatch.setattr("sys.stderr", written)
        monkeypatch.setenv("TTY_COMPATIBLE", "1" if terminal else "0")
        assert list(vl.progress("abc", "letters")) == ["a", "b", "c"]
        assert ("letters" in written.getvalue()) is terminal


@pytest.mark.usefixtures("notebook")
def test_a_sweep_at_work_is_gone_through_as_it_is_made(tmp_path: Path) -> None:
    first = threading.Event()  # the takes wait until one of the failures has been told
    lab = Lab(ToneBackend(lambda _: first.wait(5)))
    run = lab.sweep("One.", temperature="0..1 step 0.5", voice=["ada", "nobody"], cache=vl.Cache(tmp_path)).start()
    with capture_output() as caught:
        states = []
        for outcome in vl.progress(run, "takes"):
            states.append((outcome.error is None, run.state))
            first.set()
    assert sorted(made for made, _ in states) == [False] * 3 + [True] * 3
    assert states[0][1] == "running", "they come before all are made"
    assert shown(caught.outputs)[-1] == "takes: 6 of 6"
    assert len(run) == 6
    assert len(list(run)) == 6, "a run that is over still tells what came"
