"""The magics that say a line or a cell, and the progress of loops: in a notebook, in a terminal, of a sweep."""

from __future__ import annotations

import io
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from IPython.core.completer import provisionalcompleter
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output

import voicelab
import voicelab as vl
from tests.tones import DECLARED, ToneBackend, there
from voicelab.call import Knob
from voicelab.capabilities import FieldSupport
from voicelab.clip import Clip
from voicelab.errors import RequestInvalid
from voicelab.lab import Lab
from voicelab.schema import TTSRequest
from voicelab.session import Session
from voicelab.views.notebook import OPTIONS, SpeakMagics, complete, install, parse


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[InteractiveShell]:
    """An IPython of its own, with a lab in the variable that the magics look at."""
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    made = InteractiveShell.instance()
    made.run_line_magic("load_ext", "voicelab")
    made.user_ns["lab"] = Lab(ToneBackend())
    yield made
    if made.history_manager is not None:
        made.history_manager.end_session()
    InteractiveShell.clear_instance()


def asked(shell: InteractiveShell) -> tuple[TTSRequest, str, int | None]:
    backend = shell.user_ns["lab"].backend
    request, model, seed = backend.asked[-1]
    return request, model, seed


@pytest.mark.parametrize(
    ("line", "offers"),
    [
        ("lab.speak('x', voice='", ["ada", "ben"]),
        ("other.speak('x', voice='", []),
        ("lab.sweep('x', voice=['ada', \"b", ["ben"]),
        ("lab.voices['a", ["ada"]),
        ("lab.voices.b", ["lab.voices.ben"]),
        ("lab.speak('x', latency='l", ["low"]),
        ("lab.speak('x', model='s2", ["s2-pro"]),
        ("vl.measure(clip, 'f0_m", ["f0_median"]),
        ("result.frame(metrics=['duration', 'f0_m", ["f0_median"]),
        ("lab.speak('lo", []),
    ],
)
def test_values_in_strings_are_completed(shell: InteractiveShell, line: str, offers: list[str]) -> None:
    install(shell)  # once more than the extension did: it is there once
    shell.user_ns["other"] = Lab(ToneBackend(voices=()))
    with provisionalcompleter():
        given = [one.text for one in shell.Completer.completions(line, len(line)) if one.type == "string"]
    assert given == offers


def test_unknown_option_is_one_line_with_a_suggestion(shell: InteractiveShell) -> None:
    ran = shell.run_cell("%speak --temprature 1 Hello.")  # type: ignore[no-untyped-call]
    lines = ran.error_in_exec._render_traceback_()
    assert lines == ["RequestInvalid: temprature: unknown option; did you mean temperature?"]


def test_line_magic_applies_options(shell: InteractiveShell) -> None:
    line = (
        "--temperature 0.4 --latency=low --voice ada --seed 7 --normalize false --speed 1.5 --model s1 It's 5 o'clock."
    )
    clip = shell.run_line_magic("speak", line)
    request, model, seed = asked(shell)
    assert isinstance(clip, Clip)
    assert request.text == "It's 5 o'clock."
    assert (request.temperature, request.latency, request.reference_id) == (0.4, "low", "ada")
    assert (request.normalize, model, seed) == (False, "s1", 7)
    assert there(request.prosody).speed == 1.5


def test_cell_magic_assigns_to_a_variable(shell: InteractiveShell) -> None:
    result = shell.run_cell("%%speak --to kept --seed 1\nOne line,\nand another -- with a dash.")  # type: ignore[no-untyped-call]
    assert isinstance(result.result, Clip)
    assert shell.user_ns["kept"] is result.result
    assert asked(shell)[0].text == "One line,\nand another -- with a dash."


def test_invalid_option_value_names_the_option(shell: InteractiveShell) -> None:
    with pytest.raises(RequestInvalid, match="temperature"):
        shell.run_line_magic("speak", "--temperature warm Hello")
    with pytest.raises(RequestInvalid, match="unknown option"):
        shell.run_line_magic("speak", "--temprature 1 Hello")
    with pytest.raises(RequestInvalid, match="requires a value"):
        shell.run_line_magic("speak", "--temperature")
    with pytest.raises(RequestInvalid, match="is not a lab"):
        shell.run_line_magic("speak", "--lab nothing Hello")


def test_options_are_fields_of_the_schema() -> None:
    assert set(TTSRequest.model_fields) - {"text", "references", "prosody"} <= set(OPTIONS)
    assert {"voice", "seed", "model", "speed", "volume"} <= set(OPTIONS)


def test_lab_is_opened_once_if_missing(shell: InteractiveShell, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[Lab] = []

    def open_lab() -> Lab:
        opened.append(Lab(ToneBackend()))
        return opened[-1]

    monkeypatch.setattr(Session, "open", open_lab)
    magics: Any = SpeakMagics(shell)
    magics.speak("Here.")
    assert opened == []
    shell.user_ns["other"] = Lab(ToneBackend())
    magics.speak("--lab other There.")
    assert shell.user_ns["other"].backend.asked
    del shell.user_ns["lab"]
    magics.speak("Once.")
    magics.speak("Twice.")
    assert len(opened) == 1


def test_knobs_of_the_lab_are_options(shell: Any) -> None:
    pep = Knob("pep", "float", 0.5, bounds=(0.0, 1.0))
    shell.user_ns["own"] = Lab(ToneBackend(knobs=(pep,)))
    magics: Any = SpeakMagics(shell)
    assert magics.speak("--lab own --pep 0.75 Hello.").take.call.knobs == (("pep", 0.75),)
    with pytest.raises(RequestInvalid, match="pep: unknown option"):
        magics.speak("--pep 0.75 Hello.")


def test_two_dashes_end_the_options() -> None:
    assert parse("--seed 1 -- --temperature is high") == ({"seed": 1}, "--temperature is high")
    assert parse("--voice 'a b' --sample_rate none Hi") == ({"voice": "a b", "sample_rate": None}, "Hi")
    assert parse("") == ({}, "")


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("%speak --temp", ["--temperature"]),
        ("%speak --latency ", ["low", "normal", "balanced"]),
        ("%speak --mp3_bitrate 1", ["128", "192"]),
        ("%speak --normalize F", ["False"]),
        ("%speak --voice a", ["ada"]),
        ("%speak --seed 1 --se", []),
    ],
)
def test_options_and_values_are_completed(line: str, offered: list[str]) -> None:
    assert complete(line, Lab(ToneBackend())) == offered


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("%speak --te", []),
        ("%speak --se", []),
        ("%speak --pe", ["--pep"]),
        ("%speak --mood ", ["glad", "sad"]),
        ("%speak --model ", ["own"]),
        ("%speak --format ", ["wav", "mp3"]),
    ],
)
def test_completion_is_limited_to_supported_options(line: str, offered: list[str]) -> None:
    fields = (
        FieldSupport("temperature", ignored="tones are not sampled"),
        FieldSupport("format", values=("wav", "mp3")),
    )
    knobs = (Knob("pep", "float", 0.5), Knob("mood", "str", "glad", choices=("glad", "sad")))
    backend = ToneBackend(fields=fields, knobs=knobs, models=("own",), seed="none")
    assert complete(line, Lab(backend)) == offered
    assert complete("%speak --te") == ["--temperature"], "without a lab every field of the interface"


@pytest.mark.filterwarnings("ignore:.Completer.complete. is pending deprecation:PendingDeprecationWarning")
def test_ipython_completes_options(shell: InteractiveShell) -> None:
    _, matches = shell.complete("--temp", "%speak --temp")
    assert "--temperature" in matches
    _, matches = shell.complete("a", "%speak --voice a")
    assert "ada" in matches
    _, matches = shell.complete("--lat", "%%speak --lat")
    assert "--latency" in matches


def test_help_lists_the_options(shell: InteractiveShell) -> None:
    texts: Any = shell.find_line_magic("speak").__doc__  # type: ignore[no-untyped-call]
    assert "--temperature: 0 to 1." in texts
    assert "--seed" in texts


def test_loading_the_extension_opens_no_lab(shell: InteractiveShell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Session, "open", None)
    voicelab.load_ipython_extension(shell)
    assert shell.find_line_magic("speak") is not None  # type: ignore[no-untyped-call]


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
def test_notebook_progress_is_throttled_and_ends_with_the_count() -> None:
    with capture_output() as caught:
        assert list(vl.progress(range(1000), "takes")) == list(range(1000))
    texts = shown(caught.outputs)
    assert texts[0] == "takes: 0 of 1000"
    assert texts[-1] == "takes: 1000 of 1000"
    assert len(texts) < 20
    assert "<progress" in caught.outputs[0].data["text/html"]
    assert "<progress" not in caught.outputs[-1].data["text/html"]
    with capture_output() as caught:  # what has no length is counted
        assert sum(vl.progress(n for n in range(5))) == 10
    assert shown(caught.outputs)[-1] == "5"


@pytest.mark.usefixtures("notebook")
def test_progress_shows_remaining_time_and_the_final_count() -> None:
    with capture_output() as caught:
        for number in vl.progress(iter(range(40)), "<b>", total=40):
            time.sleep(0.06)
            if number == 4:
                break
    texts = shown(caught.outputs)
    assert any("s left" in text for text in texts)
    assert texts[-1] == "<b>: 4 of 40"
    assert "<b>" not in caught.outputs[-1].data["text/html"]


def test_terminal_progress_is_a_line_and_silent_in_files(monkeypatch: pytest.MonkeyPatch) -> None:
    for terminal in (True, False):
        written = io.StringIO()
        monkeypatch.setattr("sys.stderr", written)
        monkeypatch.setenv("TTY_COMPATIBLE", "1" if terminal else "0")
        assert list(vl.progress("abc", "letters")) == ["a", "b", "c"]
        assert ("letters" in written.getvalue()) is terminal


@pytest.mark.usefixtures("notebook")
def test_progress_iterates_a_running_sweep(tmp_path: Path) -> None:
    first = threading.Event()  # the takes wait until one of the failures has been texts
    lab = Lab(ToneBackend(lambda _: first.wait(5), voices=DECLARED))
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
