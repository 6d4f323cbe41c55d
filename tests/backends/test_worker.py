"""Models in an environment of their own: a virtual environment with neither voicelab nor NumPy."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import voicelab as vl
from voicelab.backends.kokoro import load_voice_tables, package_graph
from voicelab.cli.stored import worker_template
from voicelab.errors import ArgumentError, Cancelled, EngineError, EngineUnavailable, RequestInvalid

SCRIPT = """
import array, io, os, signal, sys, tempfile, time, types, wave
from enum import Enum
print("loading", "x" * 99)  # a log on standard output
os.write(1, b"of a library\\n")
loaded = time.time()
sys.modules["lazy"] = type("Lazy", (types.ModuleType,), {"__getattr__": lambda *_: sys.modules["lazy"].x()})("lazy")

Voice = Enum("Voice", {"LOW": "low", "HIGH": "high"})

def wav():
    path = os.path.join(tempfile.mkdtemp(), "out.wav")
    with wave.open(path, "wb") as file:
        file.setparams((1, 2, 8000, 0, "NONE", ""))
        file.writeframes(bytes(1600))
    return path

def tts(text, voice: Voice = Voice.LOW, gain: float = 0.3, seed: int = 0, references=(), ref_audio=None):
    samples = array.array("f", [gain] * 800)
    if text == "raise":
        raise ValueError("no such word")
    if text == "exit":
        print("out of memory", file=sys.stderr)
        os._exit(3)
    if text == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if text == "slow":
        time.sleep(1)
    if text == "nothing":
        return None
    if text == "mapping":
        return {"wav": samples}
    if text == "path":
        return wav()
    if text == "file":
        return open(wav(), "rb")
    if text == "voice":
        return [0.1] * (800 if voice is Voice.HIGH else 1600), 8000
    if text == "bytes":
        return open(wav(), "rb").read()
    if text == "buffer":
        return io.BytesIO(open(wav(), "rb").read())
    if text == "integers":
        return [int(32768 * gain)] * 800, 8000
    if text == "input":
        return [0.1] * 800, 8000 if input() else 0
    if text == "blocks":
        return iter([(samples, 8000)] * 3)
    if text == "when":
        return [loaded % 1000 / 1000] * 800, 8000
    if references:
        return references[0].audio
    return samples, 8000
"""


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("environment")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    return folder / "bin" / "python"


@pytest.fixture(scope="module")
def worker(python: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("worker") / "model.py"
    path.write_text(SCRIPT, encoding="utf-8")
    return f"worker:{python} {path}"


def test_a_worker_has_the_parameters_of_its_function(worker: str) -> None:
    with vl.connect(worker) as lab:
        assert [voice.id for voice in lab.voices] == ["low", "high"]
        assert [(knob.name, knob.default) for knob in lab.capabilities.knobs] == [("gain", 0.3)]
        clip = lab.speak("Hello.", gain=0.5, sample_rate=8_000, seed=4)  # type: ignore[call-arg]
        assert (clip.duration, float(clip.samples[100])) == (0.1, pytest.approx(0.5, abs=1e-3))  # type: ignore[comparison-overlap]
        assert lab.speak("blocks").duration == pytest.approx(0.3)
        for text in ("path", "bytes", "buffer", "file", "integers"):
            assert lab.speak(text).duration == pytest.approx(0.1)
        assert float(lab.speak("integers", sample_rate=8_000).samples[100]) == pytest.approx(0.3, abs=1e-3)
        assert lab.speak("Hello.", references=clip).duration == pytest.approx(0.1)
        assert lab.speak("voice", voice="high").duration == pytest.approx(0.1)
        assert lab.speak("when") == lab.speak("when")  # loaded once
        table = lab.sweep("Hello.", extra={"gain": [0.1, 0.2]}, repeats=2).run()
        assert len(table) == 4


def test_failures_name_the_script_and_the_next_call_restarts_it(worker: str) -> None:
    with vl.connect(worker) as lab:
        with pytest.raises(EngineError, match="model raised ValueError: no such word") as raised:
            lab.speak("raise")
        assert "in tts" in raised.value.__notes__[0]
        with pytest.raises(EngineError, match=r"model ended with exit code 3; log: .*out of memory"):
            lab.speak("exit")
        with pytest.raises(EngineUnavailable, match="model ended with signal SIGKILL"):
            lab.speak("kill")
        with pytest.raises(EngineError, match="must return"):
            lab.speak("nothing")
        with pytest.raises(EngineError, match=r"tts\(\) must return \(samples, rate\), .*, got dict"):
            lab.speak("mapping")
        with pytest.raises(EngineError, match="model raised EOFError"):  # requests are not its input
            lab.speak("input")
        assert lab.speak("Hello.").duration == pytest.approx(0.1)
    with pytest.raises(EngineError, match="closed"):
        lab.speak("Hello.")


def test_cancelled_and_late_answers(worker: str) -> None:
    with vl.connect(worker) as lab:
        stream = lab.stream("slow")
        threading.Timer(0.2, stream.close).start()
        with pytest.raises(Cancelled):
            stream.take()
        assert lab.speak("Hello.").duration == pytest.approx(0.1)  # not the late answer
    with vl.connect(worker, time_limit_s=0.2) as lab:
        with pytest.raises(EngineError, match=r"did not answer within 0.2 s and was stopped"):
            lab.speak("slow")
        assert lab.speak("Hello.").duration == pytest.approx(0.1)


def test_workers_side_by_side(worker: str) -> None:
    with vl.connect(worker, at_once=2) as lab:
        started = time.monotonic()
        lab.sweep("slow", seed=[1, 2]).run()
        assert time.monotonic() - started < 1.9


def test_the_fingerprint_covers_the_users_modules(python: Path, tmp_path: Path) -> None:
    script, module = tmp_path / "script.py", tmp_path / "level.py"
    script.write_text("import level\ndef tts(text):\n    return [level.LEVEL] * 800, 8000\n", encoding="utf-8")
    fingerprints = []
    for level in ("0.1", "0.25", "0.1"):
        module.write_text(f"LEVEL = {level}\n", encoding="utf-8")
        with vl.connect(f"worker:{python} {script}") as lab:
            fingerprints.append(lab.capabilities.fingerprint)
    assert fingerprints[0] == fingerprints[2] != fingerprints[1]


def test_the_template_runs(python: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "tone.py"
    worker_template()
    path.write_text(capsys.readouterr().out, encoding="utf-8")
    with vl.connect(f"worker:{python} {path}") as lab:
        assert lab.speak("Hello there, you.", voice="high", pitch=1.5).duration == pytest.approx(1.13, abs=0.05)  # type: ignore[call-arg]


KOKORO = """
from typing import Literal
from kokoro_onnx import Kokoro

model = Kokoro("kokoro.onnx", "voices.npz")

def tts(text: str, voice: Literal["af_heart", "am_michael"] = "af_heart", speed: float = 1.0):
    return model.create(text, voice=voice, speed=speed, lang="en-us")
"""


@pytest.mark.thorough  # the nightly run installs its package
def test_kokoros_own_package_as_a_worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("kokoro.onnx").write_bytes(package_graph())
    tables: dict[str, Any] = {name: table[:, None] for name, table in load_voice_tables(None).items()}
    np.savez("voices.npz", **tables)
    Path("model.py").write_text(KOKORO)
    if importlib.util.find_spec("kokoro_onnx") is None:
        with pytest.raises(EngineError, match="No module named 'kokoro_onnx'"):
            vl.connect(f"worker:{sys.executable} model.py")
        return
    with vl.connect(f"worker:{sys.executable} model.py") as lab:
        clip = lab.speak("The birch canoe slid on the smooth planks.", voice="am_michael")
        assert 1.5 < clip.duration < 4
        assert lab.speak("The birch canoe slid on the smooth planks.", speed=1.5).duration < clip.duration


@pytest.mark.parametrize(
    ("command", "code", "kind", "message"),
    [
        ("no-python {path}", "", RequestInvalid, "got 'no-python', which is not an executable program"),
        ("{python} '{path}", "", ArgumentError, "must have balanced quotes"),
        ("{python}", "", ArgumentError, "must have a script, as in .*; got none"),
        ("{python} nowhere.py", "", ArgumentError, "got 'nowhere.py', which is not a file"),
        ("{python} {path}", "import nowhere", EngineError, "ended with exit code 1; log: .*No module named 'nowhere'"),
        ("{python} {path}", "def speak(text): pass", EngineError, r"must define a function tts\(text, ...\)"),
        ("{python} {path}", "def tts(): pass", EngineError, "the first parameter must be the text"),
        ("{python} {path}", "def tts(text, x): pass", ArgumentError, "parameter 'x' must have a default"),
    ],
)
def test_invalid_workers(
    python: Path, tmp_path: Path, command: str, code: str, kind: type[Exception], message: str
) -> None:
    path = tmp_path / "broken.py"
    path.write_text(code, encoding="utf-8")
    with pytest.raises(kind, match=message):
        vl.connect("worker:" + command.format(python=python, path=path))
