"""Commands as backends: espeak-ng, flite, and small scripts that fail."""

from __future__ import annotations

import shlex
import shutil
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import voicelab as vl
from voicelab.errors import ArgumentError, Cancelled, EngineError, RequestInvalid

TEXT = "The birch; $(canoe) 'slid' \"on\" {planks} & 50 %."
ESPEAK = "espeak-ng -v {voice=en} -s {rate=170} -w {out} {text}"


def script(folder: Path, code: str, arguments: str = "") -> str:
    """Write a Python program and return its command."""
    path = folder / "program.py"
    path.write_text(f"import os, sys, time\n{code}", encoding="utf-8")
    return f"{shlex.quote(sys.executable)} -S {shlex.quote(str(path))} {arguments}"


@pytest.mark.skipif(shutil.which("espeak-ng") is None, reason="espeak-ng is not installed")
def test_espeak_ng() -> None:
    lab = vl.connect(f"command:{ESPEAK}", voices=["en", "de"])
    assert [(knob.name, knob.type, knob.default) for knob in lab.capabilities.knobs] == [("rate", "int", 170)]
    slow, fast = (lab.speak(TEXT, rate=rate).duration for rate in (120, 240))  # type: ignore[call-arg]
    assert slow > 1.5 * fast
    assert lab.speak(TEXT, voice="de") != lab.speak(TEXT)
    # A text that begins with "-" is not an option of the program.
    assert lab.speak("--version of five").duration > 0.8
    whole = lab.speak(TEXT)
    for command in ("espeak-ng -v en -s 170 --stdout", "espeak-ng -v en -s 170 --stdout -f {text_file}"):
        assert vl.connect(f"command:{command}").speak(TEXT).duration == pytest.approx(whole.duration, abs=0.3)
    table = lab.sweep("Good day.", voice=["en", "de"], extra={"rate": "150..190 step 20"}).run()
    assert len(table) == 6
    assert not any(take.notes for take in table.takes)


@pytest.mark.skipif(shutil.which("flite") is None, reason="flite is not installed")
def test_flite_and_its_voices() -> None:
    lab = vl.connect("command:flite -voice {voice=slt|rms|kal} -t {text} -o {out}")
    assert [voice.id for voice in lab.voices] == ["slt", "rms", "kal"]
    assert lab.speak("Hello there.", voice="rms") != lab.speak("Hello there.")


def test_values_of_placeholders_have_the_type_of_their_default(tmp_path: Path) -> None:
    path, tone = tmp_path / "a folder" / "say it", tmp_path / "tone.mp3"
    path.parent.mkdir()
    path.write_text(f"#!/bin/sh\necho $* > {tmp_path}/log\ncp {tone} $1\n")
    path.chmod(0o755)
    tone.write_bytes(vl.Clip(np.full(8_000, 0.1, np.float32), 8_000).to_bytes("mp3"))
    lab: Any = vl.connect(f"command:'{path}' {{out}} {{pitch=50|70}} {{fast=false}} {{gain=1.5}}")
    assert lab.speak("Hello.", pitch=70, fast=True).duration == pytest.approx(1, abs=0.1)  # MP3 in out.wav
    assert (tmp_path / "log").read_text().endswith("out.wav 70 true 1.5\n")
    with pytest.raises(RequestInvalid, match="pitch: must be 50 or 70, got 60"):
        lab.speak("Hello.", pitch=60)
    with pytest.raises(
        RequestInvalid, match="not an executable program on the PATH; quote a path that contains spaces"
    ):
        vl.connect(f"command:{path} {{out}}")


def test_each_placeholder_is_one_argument(tmp_path: Path) -> None:
    tone = tmp_path / "tone.wav"
    vl.Clip(np.full(800, 0.1, np.float32), 8_000).save(tone)
    log = tmp_path / "log"
    code = (
        f"open({str(log)!r}, 'w').write(repr(sys.argv[1:]))\nsys.stdout.buffer.write(open({str(tone)!r}, 'rb').read())"
    )
    lab = vl.connect("command:" + script(tmp_path, code, "--say={text} {{x}} {seed=3} {on=yes|no} {empty=}"))
    lab.speak(TEXT, seed=7, on="no")  # type: ignore[call-arg]
    assert log.read_text() == repr([f"--say={TEXT}", "{x}", "7", "no", ""])
    with pytest.raises(RequestInvalid, match="empty: must not begin with '-', got '-x'"):
        lab.speak(TEXT, empty="-x")  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("code", "arguments", "message"),
    [
        ("sys.exit('the model is missing')", "{text}", "ended with exit code 1: the model is missing"),
        ("os.kill(os.getpid(), 9)", "{text}", "ended with signal SIGKILL"),
        ("sys.stderr.write('x' * 9999); sys.exit(3)", "{text}", "exit code 3: …x+$"),
        (
            "print('done', file=sys.stderr)",
            "{text} {out}",
            r"must write audio to \{out\}, got no file instead .*: done",
        ),
        ("open(sys.argv[1], 'w')", "{out} {text}", r"got an empty out.wav$"),
        ("open(sys.argv[1], 'w')", "{out}.wav {text}", r"got out.wav.wav instead of out.wav$"),
        ("pass", "", r"must write audio to standard output or to \{out\}, got nothing"),
        ("sys.stdout.buffer.write(b'RIFF' + bytes(99)); sys.exit(3)", "{text}", "ended with exit code 3$"),
        ("print('loading')", "{text}", "must return readable audio"),
        ("open(sys.argv[1], 'wb').write(b'RIFF')", "{out}", "must return readable audio"),
        ("time.sleep(60)", "{text}", "did not finish within 0.3 s and was stopped"),
        ("os.system('sleep 60')", "{text}", "did not finish within 0.3 s and was stopped"),
    ],
)
def test_failures_are_errors(tmp_path: Path, code: str, arguments: str, message: str) -> None:
    command, limit_s = "command:" + script(tmp_path, code, arguments), 0.3 if "sleep" in code else 20
    with vl.connect(command, time_limit_s=limit_s) as lab:
        started = time.monotonic()
        with pytest.raises(EngineError, match=message):
            lab.speak("Hello.")
        assert time.monotonic() - started < 5


def test_closing_the_stream_stops_the_command(tmp_path: Path) -> None:
    import threading

    stream = vl.connect("command:" + script(tmp_path, "time.sleep(60)", "{text}")).stream("Hello.")
    threading.Timer(0.2, stream.close).start()
    with pytest.raises(Cancelled):
        stream.take()


@pytest.mark.parametrize(
    ("command", "kind", "message"),
    [
        ("", RequestInvalid, "must be a command such as .* got nothing"),
        ("no-such-program {text}", RequestInvalid, "got 'no-such-program', which is not an executable program"),
        ("~/no-such-program {text}", RequestInvalid, f"got '{Path.home()}/no-such-program', which"),
        ("espeak-ng --stdout {text} | sox - {out}", ArgumentError, r"must not contain '\|', because it is run"),
        (
            f"{sys.executable} {{rate}}",
            ArgumentError,
            "placeholder {rate} must have a default, as in {rate=1}, or be one of {text}, {text_file}, {out}",
        ),
        (f"{sys.executable} {{rate:5}}", ArgumentError, "must have placeholders such as"),
        (f"{sys.executable} {{speed=170}}", ArgumentError, "prosody.speed: must be between 0.5 and 2, got 170; rename"),
        (f"{sys.executable} 'open", ArgumentError, "must have balanced quotes"),
    ],
)
def test_invalid_commands(command: str, kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message):
        vl.connect(f"command:{command}")


@pytest.mark.parametrize("address", ["command:cat {text_file}", f"worker:{sys.executable} {__file__}"])
@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("time_limit_s", 0, "must be a positive number of seconds, got 0"),
        ("time_limit_s", float("nan"), "must be a positive number of seconds, got nan"),
        ("time_limit_s", "9", "must be a positive number of seconds, got '9'"),
        ("at_once", 0, "must be a whole number, at least 1, got 0"),
        ("at_once", "2", "must be a whole number, at least 1, got '2'"),
    ],
)
def test_invalid_options(address: str, option: str, value: Any, message: str) -> None:
    with pytest.raises(ArgumentError, match=f"^{option}: {message}$"):
        vl.connect(address, **{option: value})


def test_the_fingerprint_is_that_of_command_and_files(tmp_path: Path) -> None:
    def fingerprint(code: str, arguments: str) -> str:
        return vl.connect("command:" + script(tmp_path, code, arguments)).capabilities.fingerprint

    assert fingerprint("1", "{text}") == fingerprint("1", "{text}")
    assert len({fingerprint(*pair) for pair in (("1", "{text}"), ("2", "{text}"), ("1", "x {text}"))}) == 3
