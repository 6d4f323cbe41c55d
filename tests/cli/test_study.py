from __future__ import annotations

import shutil
import signal
import subprocess
import time
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from tests.backends.test_piper import voice as piper_voice
from tests.served import VOICELAB, until
from tests.speechlike import RATE, speechlike
from tests.tones import ToneBackend
from voicelab.backends.runs import RecordingBackend, ReplayBackend
from voicelab.call import Call
from voicelab.clip import Clip
from voicelab.errors import EngineError
from voicelab.runs.cache import Cache
from voicelab.runs.run import Journal
from voicelab.schema import TTSRequest
from voicelab.takes.collection import load

SPEC = """
text = "Hello."
repeats = 2

[fields]
format = "mp3"

[axes]
temperature = "0..1 step 0.5"
latency = ["low", "normal"]
"""


@pytest.fixture
def spec(tmp_path: Path) -> str:
    (tmp_path / "study.toml").write_text(SPEC)
    return "study.toml"


def test_a_folder_with_everything(run: Any, service: str, spec: str, tones: ToneBackend) -> None:
    done = run.well("sweep", spec, "--base-url", service)
    assert "12 requests, 72 characters" in done.stdout
    assert "study: 12 of 12 takes, done" in done.stdout
    assert len(load("study")) == 12
    table = pd.read_csv("study/takes.csv")
    assert len(table) == 12
    assert all(Clip.load(Path("study") / name).duration > 0.2 for name in table["file"])
    assert set(table["temperature"]) == {0.0, 0.5, 1.0}
    again = run("sweep", spec, "--base-url", service)
    assert "12 cached" in again.stdout
    assert len(tones.asked) == 12
    Path(spec).write_text(
        SPEC.replace("0..1 step 0.5", "0..1 step 1")
    )  # takes.csv follows the spec, the run has all takes
    run.well("sweep", spec, "--base-url", service)
    assert set(pd.read_csv("study/takes.csv")["temperature"]) == {0.0, 1.0}
    assert (len([*Path("study/audio").iterdir()]), len(load("study"))) == (8, 12)
    Path("other.toml").write_text('text = "Another."\n')
    line = run.refused("sweep", "other.toml", "-o", "study", "--base-url", service)
    assert "must be new or contain an earlier sweep of other.toml, got study with study.toml" in line
    Path("own").mkdir()
    Path("own/takes.csv").write_text("mine")
    refusal = run.refused("sweep", spec, "-o", "own", "--base-url", service)
    assert f"must be new or contain an earlier sweep of {spec}, got own with takes.csv" in refusal
    assert Path("own/takes.csv").read_text() == "mine"
    assert len(pd.read_csv("study/takes.csv")) == 8


def test_rows_of_a_file(run: Any, service: str, tmp_path: Path, tones: ToneBackend) -> None:
    (tmp_path / "texts.csv").write_text("text,temperature\nOne.,0.2\nTwo.,\n")
    done = run("sweep", "texts.csv", "--repeats", "2", "--base-url", service)
    assert "texts: 4 of 4 takes, done" in done.stdout
    assert [request.temperature for request, _, _ in sorted(tones.asked, key=str)] == [0.2, 0.2, 0.7, 0.7]
    (tmp_path / "both.toml").write_text('rows = "texts.csv"\nrepeats = 1\n[fields]\ntop_p = 0.5\n')
    assert "both: 2 of 2 takes, done" in run("sweep", "both.toml", "--base-url", service).stdout
    (tmp_path / "texts.csv").write_text("text,temperature\nOne.,hot\n")
    line = run.refused("sweep", "texts.csv", "--base-url", service)
    assert "temperature: row 2: must be a number, got 'hot'" in line


def test_backend_parameters_in_a_spec(run: Any, tmp_path: Path) -> None:
    path = piper_voice(tmp_path)
    spec = f'text = "Hello."\nbackend = "piper:{path}"\n[fields]\nnoise_w = 0\n[axes]\nnoise_scale = "0..1 step 0.5"\n'
    (tmp_path / "own.toml").write_text(spec)
    run.well("sweep", "own.toml")
    knobs = {take.call.knobs for take in load("own").takes}
    # noise_scale of 0.5 is the voice's own default.
    assert knobs == {(("noise_w", 0.0),), *((("noise_scale", value), ("noise_w", 0.0)) for value in (0.0, 1.0))}
    (tmp_path / "own.toml").write_text(spec.replace("noise_scale", "temperature"))
    refused = run("sweep", "own.toml")
    assert refused.exit_code != 0
    assert "temperature" in str(refused.stderr or refused.exception)


def test_knobs_exit_status(run: Any, service: str, tones: ToneBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    ask = ("knobs", "temperature", "--backend", service, "--repeats", "2")
    acts = run(*ask)
    assert (acts.exit_code, acts.stdout.startswith("temperature: acts")) == (0, True)
    notes = tones._notes
    monkeypatch.setattr(
        tones, "_notes", lambda call: notes(replace(call, request=call.request.replace(temperature=0.7)))
    )
    contradicts = run(*ask)
    assert (contradicts.exit_code, contradicts.stdout.startswith("temperature: contradicts")) == (1, True)


def test_estimate_and_exceeded_budget_synthesize_nothing(run: Any, service: str, spec: str, tones: ToneBackend) -> None:
    assert "12 requests" in run.well("sweep", spec, "--estimate", "--base-url", service).stdout
    for wrong in ("[axis]\ntop_p = [0, 1]", "[fields]\ntemperature = 5"):
        Path("wrong.toml").write_text(f'text = "One."\n{wrong}\n')
        assert "(in wrong.toml)" in run.refused("sweep", "wrong.toml", "--base-url", service)
    Path(spec).write_text(SPEC + "[budget]\nrequests = 11\n")
    done = run("sweep", spec, "--base-url", service)
    assert (done.exit_code, tones.asked) == (2, [])
    assert "budget.requests" in done.stderr
    assert not Path("study").exists()


def test_failed_takes_are_reported_with_status_1(run: Any, service: str, spec: str, tones: ToneBackend) -> None:
    def out_of_breath(note: int) -> None:
        if note == 5:  # of "Hello." alone
            raise EngineError("out of breath")

    tones.step = out_of_breath
    Path(spec).write_text('text = ["Hello.", "Oh."]\n[axes]\nvoice = ["ada", "ben"]\n')
    done = run("sweep", spec, "--base-url", service)
    assert done.exit_code == 1
    assert "2 failed" in done.stdout
    assert done.stderr.count("broke off after") == 2
    assert len(load("study").failures) == 2


def test_no_scheduler(run: Any, service: str, spec: str) -> None:
    done = run("sweep", spec, "--base-url", service, "--dask", "nonsense")
    assert (done.exit_code, "dask" in done.stderr) == (2, True)


def test_interrupted_sweep_resumes(service: str, spec: str, tones: ToneBackend, tmp_path: Path) -> None:
    tones.step = lambda _: time.sleep(0.03)
    command = [VOICELAB, "sweep", str(tmp_path / spec), "--base-url", service]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path)
    lines = tmp_path / "study" / "run.jsonl"
    until(lambda: lines.exists() and lines.read_text().count("\n") >= 3, 60)
    process.send_signal(signal.SIGINT)
    told, errors = process.communicate(timeout=30)
    assert process.returncode == 1, errors
    assert "cancelled" in told
    kept = len(load(lines))
    assert 0 < kept < 12
    tones.step = lambda _: None
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stderr
    assert f"{kept} cached" in done.stdout


@pytest.fixture
def kept(run: Any, tones: ToneBackend) -> Path:
    """A run of two takes that the tones have made, one of a text that looks like markup and holds a key's place."""
    path = Path("run")
    with Journal(path, [tones.capabilities]) as journal:
        for text in ("The birch canoe", "slid [bold]on[/] the smooth planks, and further on than a column is wide"):
            journal.add(tones.synthesize(Call(TTSRequest(text=text, format="wav", sample_rate=8000), seed=3)).take())
    tones.asked.clear()
    return path


def test_a_run_that_repeats_ends_with_0(run: Any, kept: Path, service: str, tones: ToneBackend) -> None:
    done = run.well("replay", str(kept), "--base-url", service, "--check-seeds")
    lines = done.stdout.splitlines()
    assert lines[0] == "run: 2 takes, replayed by tones on remote"
    assert lines[-1] == "2 takes: 2 identical"
    assert lines[1] == "seeds: declared exact, observed exact"
    assert done.stdout.count("identical") == 3
    assert f"{'slid [bold]on[/] the smooth planks, and further'[:39]}… " in done.stdout
    assert ("canoe…" in done.stdout, "+0.000" in done.stdout) == (False, False)
    assert [seed for _, _, seed in tones.asked][:2] == [3, 3]


def test_a_take_that_differs_ends_with_1_and_says_by_how_much(
    run: Any, kept: Path, service: str, tones: ToneBackend
) -> None:
    take = tones.synthesize(Call(TTSRequest(text="Changed", format="pcm", sample_rate=8000), seed=4)).take()
    with Journal(kept, [tones.capabilities]) as journal:
        journal.add(replace(take, sound=bytes(len(take.audio)), digest=""))
    done = run("replay", str(kept), "--base-url", service)
    assert done.exit_code == 1, done.stderr
    assert "2 identical, 1 different" in done.stdout.splitlines()[-1]
    assert "+0.000" in done.stdout
    assert "note: tones declares exact seeds, and 1 of its takes differ." in done.stderr


def test_takes_without_their_sound_are_a_problem(run: Any, kept: Path, service: str) -> None:
    shutil.rmtree(kept / "takes")
    done = run("replay", str(kept), "--base-url", service)
    assert done.exit_code == 2
    assert "no original" in done.stdout
    assert "problem: Take" in done.stderr


def test_a_recording_and_a_cache_are_runs_too(run: Any, service: str, tones: ToneBackend) -> None:
    call = Call(TTSRequest(text="Hello", format="wav", sample_rate=8000), seed=3)
    RecordingBackend(tones, "recorded").synthesize(call).take()
    Cache("cached").get_or_render(tones, call)
    for folder in ("recorded", "cached"):
        done = run("replay", folder, "--base-url", service)
        assert (done.exit_code, done.stdout.splitlines()[-1]) == (0, "1 takes: 1 identical"), done.stderr
        assert ReplayBackend(folder, "at once").synthesize(call).clip() == tones.synthesize(call).clip()


def test_recordings_are_measured_and_compared(run: Any, tmp_path: Path) -> None:
    for system, pitch in (("a", 110.0), ("b", 180.0)):
        (tmp_path / system).mkdir()
        for item in ("one", "two"):
            Clip(speechlike(1.0 + len(item) / 10, pitch), RATE).save(tmp_path / system / f"{item}.wav")
    done = run.well("measure", "a", "b/one.wav", "--metrics", "duration,loudness")
    assert done.stdout.splitlines()[0].split() == ["file", "duration", "loudness", "undefined"]
    assert len(done.stdout.splitlines()) == 4
    run.well("measure", "a", "-m", "duration", "-o", "table.csv")
    assert len(pd.read_csv(tmp_path / "table.csv")) == 2
    for name in ("table.xls", "table"):
        assert "must end in .csv or .parquet" in run.refused("measure", "a", "-o", name)
    (tmp_path / "b" / "three.wav").write_bytes((tmp_path / "b" / "two.wav").read_bytes())
    done = run.well("compare", "a", "b", "-m", "duration,snr", "-o", "page.html")
    assert "Items excluded because a system lacks them: three (not in a)" in done.stderr
    page = (tmp_path / "page.html").read_text()
    assert page.count("<audio") == 4
    assert "three (not in a)" in page
    for system in ("a", "b"):  # folders of one name, in others
        (tmp_path / "in" / system).mkdir(parents=True)
        (tmp_path / system).rename(tmp_path / "in" / system / "wav")
    done = run("compare", "in/a/wav", "in/b/wav", "-m", "duration")
    assert (done.exit_code, "in/a/wav, in/b/wav" in done.stdout) == (0, True), done.output
    assert "nowhere" in run.refused("compare", "in/a/wav", "nowhere")


def test_parquet_is_written_where_it_can_be(run: Any, tmp_path: Path) -> None:
    Clip(speechlike(1.0), RATE).save(tmp_path / "a.wav")
    done = run("measure", "a.wav", "-m", "duration", "-o", "table.parquet")
    if find_spec("pyarrow") is None:
        assert (done.exit_code, "pip install pyarrow" in done.stderr) == (2, True)
        # Before anything is read: a file that is none would be named.
        (tmp_path / "b.wav").write_bytes(b"no sound")
        assert "pip install pyarrow" in run.refused("measure", "b.wav", "-o", "table.parquet")
    else:
        assert pd.read_parquet(tmp_path / "table.parquet")["duration"][0] == 1.0


def test_an_output_that_cannot_be_written_is_refused_before_the_work(
    run: Any, tmp_path: Path, service: str, tones: ToneBackend
) -> None:
    """Of every command with -o, below a file and where a folder is."""
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "x.wav").write_bytes(b"read after the output was checked, this would be an error of its own")
    (tmp_path / "file").write_text("a file")
    (tmp_path / "folder.csv").mkdir()
    (tmp_path / "folder.html").mkdir()
    (tmp_path / "spec.toml").write_text('text = "Hello."\n[axes]\ntemperature = [0.1, 0.2]\n')
    for command in (
        ("measure", "a", "-o", "file/table.csv"),
        ("measure", "a", "-o", "folder.csv"),
        ("compare", "a", "-o", "file/page.html"),
        ("compare", "a", "-o", "folder.html"),
        ("sweep", "spec.toml", "-o", "file/run", "--backend", service),
        ("sweep", "spec.toml", "-o", "file", "--backend", service),
        ("say", "Hello.", "-o", "file/hello.wav", "--backend", service),
    ):
        done = run(*command)
        assert done.exit_code != 0, command
        assert "cannot be written" in done.stderr, (command, done.stderr)
        assert "Traceback" not in done.stderr
    assert tones.asked == []
    assert "must end in .html, got 'table.csv'" in run.refused("compare", "a", "-o", "table.csv")
    assert (tmp_path / "file").read_text() == "a file"


def test_a_table_is_written_into_a_new_folder(run: Any, tmp_path: Path) -> None:
    Clip(speechlike(1.0), RATE).save(tmp_path / "a.wav")
    run.well("measure", "a.wav", "-m", "duration", "-o", "new/folder/table.csv")
    assert pd.read_csv(tmp_path / "new" / "folder" / "table.csv")["duration"][0] == 1.0


def test_compare_notes_loudness_exceptions(run: Any, tmp_path: Path) -> None:
    for system in ("a", "b"):
        (tmp_path / system).mkdir()
        for item in ("x", "y"):
            sound = speechlike(1.0) * (0 if (system, item) == ("b", "y") else 1)
            Clip(sound.astype("float32"), RATE).save(tmp_path / system / f"{item}.wav")
    done = run.well("compare", "a", "b", "-m", "duration", "-o", "page.html")
    assert "note: Playback is loudness-matched, except b y (" in done.stderr


def test_unreadable_files_are_named_or_excluded(run: Any, tmp_path: Path) -> None:
    for system in "ab":
        (tmp_path / system).mkdir()
        for number in range(3):
            Clip(speechlike(0.5 + number / 10, 110.0), RATE).save(tmp_path / system / f"{number}.wav")
    (tmp_path / "b" / "0.wav").write_bytes(b"")
    (tmp_path / "b" / "1.wav").write_text("<html>not found</html>")
    for command in ("measure", "compare"):
        heading, *listed = run(command, "a", "b", "-m", "duration").stderr.splitlines()
        assert "2 of 6 files" in heading
        assert "--on-error skip" in heading
        assert listed == [
            "  b/0.wav: the file is empty",
            "  b/1.wav: the file is an HTML page (a download that failed?)",
        ]
        wrong = run.refused(command, "a", "-m", "duration", "--on-error", "ignore")
        assert "must be 'raise' or 'skip', got 'ignore'" in wrong
    done = run.well("compare", "a", "b", "-m", "duration", "-o", "page.html", "--on-error", "skip")
    assert "; 2 takes" in done.stdout
    assert "excluded: b/0.wav: the file is empty" in done.stderr
    assert "excluded: b/1.wav: the file is an HTML page" in done.stderr
    assert "excluded: a/0.wav: the item is not in b" in done.stderr
    (tmp_path / "a" / "gone.wav").symlink_to("none.wav")
    done = run.well("measure", "a", "b", "-m", "duration", "--on-error", "skip")
    assert "the file is empty" in done.stdout
    assert "note: not measured: 1 × a link to a file that does not exist" in done.stderr
