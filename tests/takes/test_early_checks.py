"""What cannot work is refused before the long work: options, metrics, and files that cannot be written."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import voicelab as vl
from tests.speechlike import RATE, speechlike
from tests.tones import ToneBackend
from voicelab.errors import ArgumentError, StoreError
from voicelab.metrics import Metric, measure


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for system in ("a", "b"):
        (tmp_path / "spoken" / system).mkdir(parents=True)
        for item in ("x", "y"):
            vl.Clip(speechlike(0.6, noise=1e-4), RATE).save(tmp_path / "spoken" / system / f"{item}.wav")
    return tmp_path / "spoken"


@pytest.mark.parametrize(
    ("call", "allowed"),
    [
        (lambda systems, path: vl.collect(path, jbos=2), "jobs, tools"),
        (lambda systems, path: systems.frame(jbos=2), "reference, text, tools, jobs, progress"),
        (
            lambda systems, path: vl.load(systems.export(path / "r", "run").parent).frame(jbos=2),
            "reference, text, tools",
        ),
        (lambda systems, path: systems.export(path / "x", jbos=2), "none"),
        (lambda systems, path: systems.export(path / "x", "kaldi", jbos=2), "none"),
        (lambda systems, path: systems.export(path / "x", "webmushra", jbos=2), "question, seed, lufs, checks"),
        (lambda systems, path: systems.listening_test("AB", jbos=2), "question, seed, lufs, checks"),
        (lambda systems, path: systems.compare("x").listening_test("AB", jbos=2), "question, seed, lufs, checks"),
        (lambda systems, path: systems.panel(jbos=2), "metrics"),
        (lambda systems, path: vl.collect(path, jbos=2), "metrics, keys"),
    ],
)
def test_an_unknown_option_is_refused_at_the_call(
    folder: Path, call: Callable[[vl.TakeTable, Path], Any], allowed: str
) -> None:
    systems = vl.collect(folder, metrics=["duration"])
    with pytest.raises(ArgumentError, match=f"jbos: unknown option; allowed options: .*{allowed}"):
        call(systems, folder)
    assert not (folder / "x").exists()


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"metrics": ["duratoin"]}, "unknown metric 'duratoin'; did you mean duration"),
        ({"metrics": ["mfcc_distance"]}, "mfcc_distance compares clips with a reference"),
        ({"jobs": 0}, "jobs: must be a whole number, 1 or more, got 0"),
    ],
)
def test_what_cannot_be_measured_is_refused_before_a_file_is_read(
    folder: Path, options: dict[str, Any], match: str
) -> None:
    (folder / "a" / "x.wav").write_bytes(b"no sound")
    with pytest.raises(ArgumentError, match=match):
        vl.collect(folder, **options)


def test_systems_are_not_spoken_for_a_metric_that_there_is_not(tmp_path: Path) -> None:
    backend = ToneBackend()
    lab = vl.Lab(backend)
    for metrics in (("duratoin",), ("mcd",), "duratoin"):
        with pytest.raises((ArgumentError, vl.MissingExtra)):
            vl.compare_systems(["One."], metrics=metrics, cache=tmp_path, a=lab, b=lab)
        with pytest.raises((ArgumentError, vl.MissingExtra)):
            vl.systems_panel(["One."], metrics=metrics, cache=tmp_path, a=lab, b=lab)
    assert backend.asked == []


def test_a_page_that_cannot_be_written_is_refused_before_takes_are_measured(folder: Path, tmp_path: Path) -> None:
    measured: list[object] = []

    def count(subject: Any) -> float:
        measured.append(subject)
        return 1.0

    systems = vl.collect(folder, metrics=[Metric("counted", "", count)])
    (tmp_path / "file").write_text("a file")
    folder.rename(tmp_path / "spoken.html")
    for path in (tmp_path / "file" / "page.html", tmp_path / "spoken.html"):
        with pytest.raises(StoreError, match="cannot be written"):
            systems.page(path)
    with pytest.raises(ArgumentError, match=r"path: must end in \.html, got '.*table\.csv'"):
        systems.page(tmp_path / "table.csv")
    with pytest.raises(StoreError, match="cannot be written"):
        systems.export(tmp_path / "file" / "set", "audiofolder")
    assert measured == []


def test_a_page_is_whole_or_as_it_was(folder: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    again, table = (vl.collect(folder, metrics=["duration"]) for _ in range(2))
    table.page(page)
    before = page.read_text()
    assert before.count("<audio") == 4
    (folder / "b" / "y.wav").write_bytes(b"changed")
    with pytest.raises(StoreError, match="has changed"):
        again.page(page)
    assert page.read_text() == before
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == ["page.html"]


def loudness_of(clip: vl.Clip) -> float:
    return float(measure([clip], "loudness")["loudness"].iloc[0])


@pytest.mark.parametrize("samples", [np.zeros(RATE, np.float32), speechlike(0.2, noise=1e-4)], ids=["silent", "short"])
@pytest.mark.parametrize("jobs", [1, 2])
def test_a_recording_without_a_loudness_is_named_and_the_others_are_matched(
    tmp_path: Path, samples: np.ndarray[Any, Any], jobs: int
) -> None:
    for system, gain in (("a", 0.1), ("b", 0.5), ("c", 1.0)):
        (tmp_path / system).mkdir()
        for item in ("x", "y"):
            spoken = (speechlike(0.8, noise=1e-4) * gain).astype(np.float32)
            vl.Clip(samples if (system, item) == ("b", "x") else spoken, RATE).save(tmp_path / system / f"{item}.wav")
    systems = vl.collect(tmp_path, metrics=["loudness", "level"], jobs=jobs)
    loudness = systems.frame().set_index(["item", "system"])["loudness"]
    assert np.isnan(loudness["x", "b"])
    for item in ("x", "y"):
        assert np.ptp(loudness[item].dropna()) < 0.01
    assert systems.loudness_note.startswith("loudness-matched, except b x (")
    page = systems.page(tmp_path / "page.html").read_text()
    assert page.count("loudness-matched, except b x (") == 2  # above the table, and where the takes play
    shown = systems._repr_mimebundle_()
    assert all("loudness-matched, except b x" in shown[kind] for kind in ("text/plain", "text/html"))
    clips = systems.clips("x")
    assert loudness_of(clips["a"]) == pytest.approx(loudness_of(clips["c"]), abs=0.01)
    assert np.array_equal(clips["b"].samples, systems.select(system="b").takes[0].clip().samples)
    comparison = systems.compare("x")
    assert set(comparison.matched.gains) == {"a", "c"}
    html = comparison._repr_mimebundle_()["text/html"]
    assert html.count("matched to") == 2
    assert html.count("level unmatched: ") == 1
    with pytest.raises(ArgumentError, match=r"items: loudness of 'x' by 'b' cannot be matched"):
        systems.listening_test("AB")
    whole = vl.collect({name: tmp_path / name / "y.wav" for name in "abc"}, metrics=["loudness"])
    assert whole.loudness_note == "loudness-matched"
