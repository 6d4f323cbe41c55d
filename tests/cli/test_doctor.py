from __future__ import annotations

import json
import os
import re
import shutil
import socket
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import jupyter_core.paths
import pytest

import voicelab
from tests.backends.servers import serving
from voicelab.cli.doctor import _recognizer, _service


def _report(run: Any) -> dict[str, dict[str, str]]:
    done = run("doctor", "--json")
    report: dict[str, dict[str, str]] = json.loads(done.stdout)
    assert [name for name, item in report.items() if item.get("problem") and not item.get("fix")] == []
    return report


def test_report_has_versions_and_no_key(run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done = run.well("doctor")
    assert "\nVOICELAB_API_KEY      not set\n" in done.stdout
    planted = "vl_" + "Qq" * 24 + "1"
    monkeypatch.setenv("VOICELAB_API_KEY", planted)
    report = _report(run)
    assert report["VOICELAB_API_KEY"]["value"] == "set"
    assert planted[:12] not in str(report)
    names = ("python", "extra notebook", "encoders", "ffmpeg", "device", "weights", "weights files", "voices", "kernel")
    for name in (*names, "ipywidgets", "anywidget", "VOICELAB_HOME"):
        assert report[name]["value"]
        assert f"\n{name} " in "\n" + done.stdout
        assert report[name]["value"] in done.stdout
    assert report["sqlite"]["value"] == sqlite3.sqlite_version
    assert "libavcodec" in report["ffmpeg"]["value"]
    assert report["VOICELAB_HOME"]["value"] == str(tmp_path / "home")
    assert "numpy " in report["dependencies"]["value"]
    assert report["encoders"]["value"] == "wav, pcm, mp3, opus"
    assert "canoe" in report["hearing"]["note"]
    assert report["hearing"]["value"].startswith("pocketsphinx: ")
    assert "do not rank systems by it" in report["hearing"]["note"]
    # pocketsphinx gets the sentence wrong.
    assert report["hearing"]["warning"] == "misrecognized: WER and CER by pocketsphinx are not reliable"
    assert (
        "(WARNING: misrecognized: WER and CER by pocketsphinx are not reliable; text: 'The birch canoe" in done.stdout
    )
    assert done.stdout.splitlines()[-1] == "warnings: hearing"


def test_a_correct_transcript_is_no_warning(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    class Exact:
        def __init__(self, fetch: bool) -> None:
            assert not fetch  # doctor fetches nothing

        def recognise(self, samples: object, rate: int) -> str:
            return "the birch canoe slid on the smooth planks"

    monkeypatch.setattr("voicelab.asr.recognizers.default_recognizer", Exact)
    done = run.well("doctor")
    assert "WARNING" not in done.stdout
    assert done.stdout.splitlines()[-1] == "no problems"


def test_fields_of_a_backend(run: Any) -> None:
    with serving("kokoro-fastapi") as server:
        done = run.well("doctor", "--backend", f"openai:{server.url}")
        report = json.loads(run.well("doctor", "--backend", f"openai:{server.url}", "--json").stdout)
        refused = run("doctor", "--backend", f"openai:{server.url}", "--voice", "eve")
    rows = {line.split()[0]: line.split("  ") for line in done.stdout.splitlines()}
    assert [cell.strip() for cell in rows["extra.lang_code"] if cell] == ["extra.lang_code", "'e'", "yes", "yes"]
    assert rows["extra.language"][-1] == "equal audio"
    assert "accepts even unknown fields" in report["acceptance"]["note"]
    assert {probe["name"]: probe["acts"] for probe in report["fields"]}["seed"] == "no"
    assert "voice: needs --backend" in run.refused("doctor", "--voice", "eve")
    assert refused.exit_code == 1
    assert "Voice 'eve' not found" in refused.stdout
    assert f"fix: voicelab doctor --backend openai:{server.url} --voice af_heart\n" in refused.stdout


@pytest.mark.parametrize(
    ("address", "problem", "fix"),
    [
        ("openai:{nobody}", "cannot be reached: ", "curl -i {nobody}"),
        ("openai:{nobody}?stream_format=sse", "cannot be reached: ", "curl -i {nobody}"),
        ("{nobody}", "cannot be reached: ", "curl -i {nobody}"),
        ("nope:", "unknown backend 'nope'", "voicelab doctor"),
        ("piper:x.onnx", "x.onnx.json cannot be read", "voicelab doctor --backend piper:PATH.onnx"),
        ("command:nowhere {text}", "'nowhere', which is not", "voicelab doctor --backend 'command:/path/to/nowhere {text}'"),
        ("command:false {x=a|b} {text}", "ended with exit code 1", "false a Hello."),
        ("command:true {voice}", "needs a voice", "voicelab doctor --backend 'command:true {voice}' --voice NAME"),
        ("worker:nowhere x.py", "'nowhere', which is not", "voicelab doctor --backend 'worker:/path/to/nowhere x.py'"),
        ("worker:{python} x.py", "'x.py', which is not a file", "voicelab worker-template > script.py"),
        ("worker:{python} {script}", "SyntaxError", "{python} {script}"),
    ],
)  # fmt: skip
def test_each_failure_has_its_cause_and_one_line_to_type(
    run: Any, service: str, tmp_path: Path, address: str, problem: str, fix: str
) -> None:
    (tmp_path / "script.py").write_text("def tts(")
    with socket.create_server(("127.0.0.1", 0)) as free:
        nobody = f"http://127.0.0.1:{free.getsockname()[1]}"
    values = {"nobody": nobody, "service": service, "python": sys.executable, "script": str(tmp_path / "script.py")}

    def filled(text: str) -> str:
        return re.sub(r"\{(\w+)\}", lambda name: values.get(name[1], name[0]), text)

    done = run("doctor", "--json", "--backend", filled(address))
    assert done.exit_code == 1
    report = json.loads(done.stdout)
    assert problem in report["backend"]["problem"]
    assert report["backend"]["fix"] == filled(fix)


def test_fields_of_a_command_whose_takes_differ(run: Any, tmp_path: Path) -> None:
    script = tmp_path / "noise.py"
    code = "import random, sys, wave\nw = wave.open(sys.argv[1], 'wb'); w.setparams((1, 2, 8000, 0, 'NONE', ''))\n"
    script.write_text(code + "w.writeframes(random.randbytes(1600))")
    address = f"command:{sys.executable} {script} {{out}} {{rate=3}}"
    report = json.loads(run.well("doctor", "--backend", address, "--json").stdout)
    probes = {probe["name"]: probe for probe in report["fields"]}
    assert (probes["rate"]["accepted"], probes["rate"]["acts"]) == ("yes", "unclear")
    assert probes["temperature"]["remark"].startswith("not sent: ")
    assert "voicelab knobs --backend 'command:" in report["unclear effects"]["note"]


def _elsewhere(folder: Path, **environment: str) -> tuple[int, dict[str, dict[str, str]]]:
    """The report of an interpreter of its own, in which modules in ``folder`` come first."""
    inherited = os.environ.get("PYTHONPATH")
    done = subprocess.run(
        [sys.executable, "-c", "from voicelab.cli import app; app(['doctor', '--json'])"],
        env={**os.environ, **environment, "PYTHONPATH": os.pathsep.join(filter(None, (str(folder), inherited)))},
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    return done.returncode, json.loads(done.stdout or done.stderr)


def _without(folder: Path, *modules: str) -> None:
    for name in modules:
        (folder / f"{name}.py").write_text(f"raise ModuleNotFoundError('No module named {name}', name='{name}')\n")


def test_the_voice_speaks_where_torch_is_half_installed(tmp_path: Path) -> None:
    _without(tmp_path, "torch")
    _, report = _elsewhere(tmp_path)
    assert report["torch"]["problem"] == "torch is installed incompletely: No module named torch"
    assert report["torch"]["fix"] == "pip install --force-reinstall torch"
    assert report["device"]["value"] == "cpu"
    assert int(report["voices"]["value"]) > 1


@pytest.mark.parametrize(
    ("address", "key", "fix"),
    [
        ("{service}", "vl_" + "Qq" * 24 + "1", "export VOICELAB_API_KEY=ANOTHER_KEY"),
        ("{service}/v1", None, "curl -i {service}/v1"),
        ("openai:{stub}", None, ""),
    ],
)
def test_address_in_the_environment(
    service: str, address: str, key: str | None, fix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving("speaches") as stub:
        values = {"service": service, "stub": stub.url}
        monkeypatch.setenv("VOICELAB_BASE_URL", address.format(**values))
        if key is not None:
            monkeypatch.setenv("VOICELAB_API_KEY", key)
        reached, set_key = _service()
    assert reached.fix == fix.format(**values)
    assert bool(reached.problem) is bool(fix)
    assert (key or "none")[:12] not in f"{reached} {set_key}"


@pytest.mark.skipif(os.name == "nt", reason="a folder is made unusable with a file in its way")
def test_all_problems_and_their_fixes(tmp_path: Path) -> None:
    # A copy of the package with one bit of the weights turned, packages that are missing or too old, no
    # Jupyter, a file where the data folder should be, and nobody at the service's address.
    copy = tmp_path / "voicelab"
    shutil.copytree(Path(voicelab.__file__).parent, copy, ignore=shutil.ignore_patterns("__pycache__"))
    weights = bytearray((copy / "engine" / "weights" / "voice.safetensors").read_bytes())
    weights[-1] ^= 1
    (copy / "engine" / "weights" / "voice.safetensors").write_bytes(weights)
    (copy / "engine" / "weights" / "guess.safetensors").unlink()
    metadata = tmp_path / "jupyter_voicelab-9.0.dist-info" / "METADATA"
    metadata.parent.mkdir()
    wanted = ["numpy>=99", "not-there-at-all>=1", "torch>=99; extra == 'gpu'", "also-not-there; extra == 'whisper'"]
    wanted += ["numpy; extra == 'mos'", "one-not-there; extra == 'mos'"]
    required = "".join(f"Requires-Dist: {item}\n" for item in wanted)
    metadata.write_text(f"Metadata-Version: 2.1\nName: jupyter-voicelab\nVersion: 9.0\nProvides-Extra: gpu\n{required}")
    other = tmp_path / "voicelab-1.3.dist-info" / "METADATA"
    other.parent.mkdir()
    other.write_text("Metadata-Version: 2.1\nName: voicelab\nVersion: 1.3\n")
    _without(tmp_path, "jupyter_client")
    (tmp_path / "file").write_text("in the way")
    with socket.create_server(("127.0.0.1", 0)) as free:
        nobody = f"http://127.0.0.1:{free.getsockname()[1]}"
    status, report = _elsewhere(tmp_path, VOICELAB_HOME=str(tmp_path / "file" / "home"), VOICELAB_BASE_URL=nobody)
    assert status == 1
    for name, problem, fix in (
        ("voicelab", "acoustic analysis", "pip uninstall voicelab && pip install jupyter-voicelab"),
        ("dependencies", "missing: not-there-at-all; numpy", "pip install jupyter-voicelab"),
        ("extra gpu", "(must be >=99)", "pip install 'jupyter-voicelab[gpu]'"),
        ("weights files", "voice.safetensors is damaged", "--force-reinstall --no-deps"),
        ("weights files", "guess.safetensors: No such file", "--force-reinstall --no-deps"),
        ("voice", "", "pip install"),
        ("VOICELAB_HOME", "cannot be written to", "chmod u+rwx"),
        ("VOICELAB_BASE_URL", "cannot be reached", f"curl -i {nobody}"),
    ):
        assert problem in report[name]["problem"]
        assert fix in report[name]["fix"]
    assert report["jupyter-voicelab"]["value"] == "9.0"
    # An incomplete extra is not a problem: other extras need some of its packages.
    assert report["extras not installed"] == {
        "value": "whisper (also-not-there), mos (one-not-there)",
        "note": "to install: pip install 'jupyter-voicelab[NAME]'",
    }
    assert report["jupyter"]["note"] == "to install: pip install 'jupyter-voicelab[notebook]'"


def test_a_kernel_of_another_python_and_widgets_that_jupyterlab_does_not_find(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from jupyter_client.kernelspec import KernelSpecManager

    from voicelab.cli.doctor import CHECKS

    (jupyter,) = (check for check in CHECKS if check.__name__ == "_jupyter")
    assert not any(diagnosis.problem for diagnosis in jupyter())
    spec = tmp_path / "kernels" / "python3" / "kernel.json"
    spec.parent.mkdir(parents=True)
    spec.write_text(json.dumps({"argv": ["/usr/bin/other", "-f"], "display_name": "x", "language": "python"}))
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path))
    assert KernelSpecManager().get_kernel_spec("python3").argv[0] == "/usr/bin/other"
    # Where JupyterLab looks for scripts besides: an installation without those of the widgets.
    monkeypatch.setattr(jupyter_core.paths, "ENV_JUPYTER_PATH", [str(tmp_path)])
    monkeypatch.setattr(jupyter_core.paths, "SYSTEM_JUPYTER_PATH", [])
    monkeypatch.setenv("JUPYTER_DATA_DIR", str(tmp_path / "data"))
    kernel, ipywidgets, anywidget = jupyter()
    assert kernel.problem == "the kernel python3 uses a different Python"
    assert kernel.fix.endswith("-m ipykernel install --sys-prefix")
    for diagnosis in (ipywidgets, anywidget):
        assert "widgets are not displayed" in diagnosis.problem
        assert "pip install" in diagnosis.fix


def test_every_file_of_the_weights_has_a_digest() -> None:
    # Whether they are those of the files, doctor itself says.
    folder = Path(voicelab.__file__).parent / "engine" / "weights"
    listed = {line.split()[1] for line in (folder / "SHA256SUMS").read_text(encoding="ascii").splitlines()}
    assert {path.name for path in folder.iterdir()} == {*listed, "SHA256SUMS"}


@pytest.mark.parametrize(
    ("asked", "heard", "words"),
    [
        ("pocketsphinx", "pocketsphinx", "WER"),
        ("none", "none", "disabled"),
        ("siri", "siri", "must be faster-whisper, paraformer, pocketsphinx"),
        ("faster-whisper:nowhere", "faster-whisper:nowhere", "are not on this machine"),
    ],
)
def test_recognizer_setting(asked: str, heard: str, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VOICELAB_RECOGNIZER", asked)
    (diagnosis,) = _recognizer()
    assert diagnosis.value == heard
    assert words in diagnosis.note + diagnosis.problem
    assert bool(diagnosis.problem) is bool(diagnosis.fix)


def test_default_recognizer_without_weights_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("VOICELAB_RECOGNIZER")
    (diagnosis,) = _recognizer()
    assert (diagnosis.value, diagnosis.problem) == ("faster-whisper:base", "")
    assert diagnosis.warning.endswith("are not on this machine, and are fetched at first use")
    assert diagnosis.fix == "python -c \"import faster_whisper as f; f.download_model('base')\""
