"""Loading: run folders of sweeps, caches and tables as TakeTables; sound files as Clips."""

from __future__ import annotations

import itertools
import json
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from tests.kept import ask
from tests.speechlike import RATE, speechlike
from tests.sweeps.test_sweep import sweep
from tests.tones import DECLARED, ToneBackend, there
from voicelab.call import Call
from voicelab.clip import Clip
from voicelab.errors import ArgumentError, StoreError
from voicelab.lab import Lab
from voicelab.runs.cache import Cache
from voicelab.runs.run import Journal
from voicelab.schema import ProsodyControl, ReferenceAudio
from voicelab.takes.collection import collect, load

REFERENCE = ReferenceAudio(audio=b"RIFF" * 100, text="Hi")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "run"


def test_a_sound_file_is_loaded_as_a_clip(tmp_path: Path) -> None:
    clip = Clip(speechlike(0.5), RATE)
    for name in ("a.wav", "a.WAV", "a.mp3"):
        path = clip.save(tmp_path / name)
        assert load(path) == Clip.load(path)
        assert load(str(path)).duration == pytest.approx(0.5, abs=0.1)
    with pytest.raises((StoreError, OSError), match=r"none\.wav"):
        load(tmp_path / "none.wav")


def test_a_cache_is_a_table_of_the_fields_that_differ(tones: ToneBackend, tmp_path: Path) -> None:
    cache = Cache(tmp_path / "cache")
    for text in ("One.", "Two."):
        for temperature in (0.2, 0.9):
            cache.get_or_render(tones, Call(ask(text, temperature=temperature), seed=3))
    table = load(tmp_path / "cache")
    assert [column.name for column in table.columns] == ["text", "temperature", "repeat"]
    assert repr(table) == "TakeTable(text: 2, temperature: 2; 4 takes)"
    assert len(table.select(text="One.", temperature=0.9)) == 1
    assert there(table.run).backends == (tones.capabilities,)


def test_takes_of_several_sweeps_have_a_note_and_the_columns_that_differ(tones: ToneBackend, tmp_path: Path) -> None:
    lab = Lab(tones)

    def run(name: str, axes: Any, text: str = "One.") -> tuple[list[str], tuple[str, ...], int]:
        lab.sweep(text, **axes).run(tmp_path / name)
        table = load(tmp_path / name)
        assert not there(table.run).problems
        return [column.name for column in table.columns][:-1], table.notes, len(table)

    few, more = {"temperature": [0, 1]}, {"temperature": [0, 1, 0.5]}
    assert run("t", {"x": ["a", "b"]}, "{x} {{y}}") == (["x"], (), 2)  # the text is not an axis
    assert run("a", {**few, "format": ["wav", "opus"]}) == (["temperature", "format"], (), 4)
    assert run("a", {**more, "format": ["wav", "opus"]}) == (["temperature", "format"], (), 6)  # a larger sweep
    note = "The folder has takes of several sweeps"
    assert run("b", few) == (["temperature"], (), 2)
    # The takes of both sweeps with the default top_p are equal.
    assert run("b", {**few, "top_p": [0.7, 0.9]}) == (["temperature", "top_p"], (f"{note}.",), 4)
    assert run("c", {"temperature": [0]}) == (["temperature"], (), 1)
    mixed = (f"{note}, which also differ in text.",)
    assert run("c", {"temperature": [1]}, "Two.") == (["temperature", "text"], mixed, 2)
    assert run("c", {"temperature": [0]}, "Two.") == (["temperature", "text"], mixed, 3)


def test_a_sweep_over_rows_is_a_complete_run(tones: ToneBackend, tmp_path: Path) -> None:
    rows: list[dict[str, object]] = [{"text": "One.", "voice": "ben"}, {"text": "Two.", "temperature": 0.2}]
    Lab(tones).sweep(rows=rows).run(tmp_path / "run")
    loaded = load(tmp_path / "run")
    assert (len(loaded), loaded.notes, there(loaded.run).problems) == (2, (), ())


def test_named_voices_keep_their_names(tmp_path: Path) -> None:
    made = sweep(ToneBackend(), {"voice": {"Anna": "ada", "Ben": "ben"}}).run(tmp_path / "run")
    assert list(made.frame()["reference_id"]) == ["Anna", "Ben"]
    loaded = load(tmp_path / "run")
    assert list(loaded.frame()["reference_id"]) == ["Anna", "Ben"]
    assert not there(loaded.run).problems
    assert [take.request.reference_id for take in loaded.takes] == ["ada", "ben"]


def test_failures_are_rows_with_their_values_and_errors(tmp_path: Path) -> None:
    axes: dict[str, object] = {"temperature": [0, 1], "voice": ["ada", "nobody"]}
    made = sweep(ToneBackend(voices=DECLARED), axes).run(tmp_path / "run")
    loaded = load(tmp_path / "run")
    assert len(loaded) == 2
    assert sorted(row.labels["temperature"] for row in loaded.failures) == ["0", "1"]
    assert {row.labels["reference_id"] for row in loaded.failures} == {"nobody"}
    assert {str(row.error) for row in loaded.failures} == {str(row.error) for row in made.failures}
    columns = ["temperature", "reference_id", "repeat", "seed", "digest", "error"]
    ours, theirs = (
        frame[columns].sort_values(columns[:2]).reset_index(drop=True) for frame in (made.frame(), loaded.frame())
    )
    pd.testing.assert_frame_equal(ours, theirs, check_dtype=False)


def test_a_saved_table_is_loaded_with_its_columns_metrics_notes_and_exclusions(tmp_path: Path) -> None:
    for system, pitch in (("ours", 110.0), ("theirs", 180.0)):
        for speaker in ("ann", "ben"):
            (tmp_path / system / speaker).mkdir(parents=True)
            for item in ("1", "2"):
                clip = Clip(speechlike(0.6 + int(item) / 10, pitch, noise=1e-4), RATE)
                clip.save(tmp_path / system / speaker / f"{item}.wav")
    (tmp_path / "ours" / "ann" / "2.wav").unlink()
    table = collect(f"{tmp_path}/{{system}}/{{speaker}}/{{item}}.wav", metrics=["duration"])
    assert [dict(recording)["speaker"] for recording in table.excluded] == ["ann"]
    loaded = load(table.save(tmp_path / "kept"))
    assert repr(loaded) == repr(table) == "TakeTable(item: 2, speaker: 2, system: 2; 6 takes; 1 note)"
    for name in ("columns", "metrics", "matched", "notes", "excluded", "systems"):
        assert getattr(loaded, name) == getattr(table, name), name
    assert [take.digest for take in loaded] == [take.digest for take in table]
    names = ["item", "speaker", "system", "repeat", "text", "duration"]
    pd.testing.assert_frame_equal(loaded.frame()[names], table.frame()[names])
    pd.testing.assert_frame_equal(loaded.summary(), table.summary())
    assert loaded.listening_test("AB").items.keys() == table.listening_test("AB").items.keys()
    assert load(loaded.save(tmp_path / "again")).columns == table.columns


def test_takes_with_the_same_keys_are_named_when_they_are_paired(folder: Path, tones: ToneBackend) -> None:
    with Journal(folder, [tones.capabilities]) as journal:
        for number in range(2):
            journal.add(
                tones.synthesize(Call(ask(f"Take {number}"), seed=1)).take(), mood="calm", voice="ab"[0], n=number
            )
    table = load(folder)
    assert table.paired("n")
    both = " and ".join(f"take {take.key[:12]}…" for take in table)
    with pytest.raises(ArgumentError, match=f"{both} have the same keys: mood=calm"):
        replace(table, columns=tuple(column for column in table.columns if column.name != "n")).paired("mood")


def test_a_loaded_sweep_is_in_the_order_of_the_grid(tmp_path: Path) -> None:
    def late(_: int) -> None:
        # The first take of the grid ends last.
        if not others.is_set() and threading.current_thread().name.endswith("_0"):
            others.wait(20)

    others = threading.Event()
    path = tmp_path / "run"
    numbers = itertools.count(1)

    def listener(_: object) -> None:
        if next(numbers) >= 5:
            others.set()

    work = sweep(ToneBackend(late), repeats=2).start(path, concurrency=2, listener=listener)
    assert work.wait(30)
    lines = [json.loads(line) for line in (path / "run.jsonl").read_text().splitlines()[1:]]
    written = [(line["labels"]["cell"], line["take"]["repeat"]) for line in lines]
    assert written != sorted(written)
    table = load(path).frame("duration", "level")
    made = sweep(ToneBackend(), repeats=2).table(work)
    pd.testing.assert_frame_equal(
        table[["temperature", "latency", "repeat", "key"]], made.frame()[["temperature", "latency", "repeat", "key"]]
    )
    assert [take.key for take in load(path)] == table.key.tolist()
    assert table.temperature.dtype == float
    assert table.duration.tolist() == [take.clip().duration for take in load(path)]
    assert table.columns[-1] == "undefined"


@pytest.mark.parametrize("then", [[0.5, 0.9, 1], [0.7, 1], [0.5, 0.7]])
@pytest.mark.parametrize("repeats", [1, 2, 3])
def test_a_changed_sweep_is_loaded_cell_by_cell(then: list[float], repeats: int, tmp_path: Path) -> None:
    path = tmp_path / "run"
    sweep(ToneBackend(), {"temperature": [0.5, 1]}, repeats=2).run(path)
    sweep(ToneBackend(), {"temperature": then}, repeats=repeats).run(path)
    table = load(path).frame()
    assert len(table) == sum(max(2 * (value in (0.5, 1)), repeats * (value in then)) for value in {0.5, 1, *then})
    assert not table.duplicated(["temperature", "repeat"]).any()
    assert table.temperature.ne(table.temperature.shift()).sum() == table.temperature.nunique()  # cells are together
    if then == [0.5, 0.9, 1]:  # grown: the numbers and the order are those of the last sweep
        assert table.temperature.drop_duplicates().tolist() == then
    written = (path / "run.jsonl").read_bytes()
    sweep(ToneBackend(), {"temperature": then}, repeats=repeats).run(path)
    assert (path / "run.jsonl").read_bytes() == written
    pd.testing.assert_frame_equal(load(path).frame(), table)


def test_a_run_is_loaded_as_a_table(folder: Path, tones: ToneBackend) -> None:
    with Journal(folder, [tones.capabilities]) as journal:
        journal.add(
            tones.synthesize(Call(ask("One", prosody=ProsodyControl(speed=1.5)), seed=2**63 - 1)).take(),
            cell=1,
            text="first",
        )
        journal.add(tones.synthesize(Call(ask("Two", references=(REFERENCE,)))).take(repeat=1), cell=2, text="second")
    frame = load(folder).frame()
    assert "cell" not in frame
    assert list(frame["text"]) == ["first", "second"]
    assert list(frame["prosody.speed"]) == [1.5, 1.0]
    assert frame["seed"][0] == 2**63 - 1
    assert frame["seed"].isna().tolist() == [False, True]
    assert frame["references"].isna().tolist() == [True, False]
    assert list(frame["repeat"]) == [0, 1]
    assert list(frame["bytes"]) == [len(take.audio) for take in load(folder)]
    assert set(tones.asked[0][0].canonical()) - {"prosody"} <= set(frame.columns)
    assert frame["created"][0] == load(folder).run.takes[0].created.replace(tzinfo=None)
    frame.to_excel(folder / "table.xlsx")  # which supports no time zones


def test_an_empty_run_is_an_empty_table(folder: Path, tones: ToneBackend) -> None:
    Journal(folder, [tones.capabilities]).close()
    assert len(load(folder).frame()) == 0


def test_a_thousand_takes_are_read_quickly(folder: Path, tones: ToneBackend) -> None:
    take = tones.synthesize(Call(ask(), seed=3)).take()
    with Journal(folder, [tones.capabilities]) as journal:
        for repeat in range(1000):
            journal.add(replace(take, repeat=repeat))
    started = time.process_time()
    frame = load(folder).frame()
    assert time.process_time() - started < 2.0
    assert len(frame) == 1000
