"""Key columns of recordings: every row has its own values, pairs share all keys, and duplicates of a key are refused."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import voicelab as vl
from tests.speechlike import RATE, speechlike
from voicelab.errors import ArgumentError

SPEAKERS = {"Ana": 110.0, "José": 150.0, "李": 220.0}
SYSTEMS = ("ours", "theirs")
MOODS = ("glad", "sad")
Key = tuple[str, str, str, str]
"""System, speaker, mood, item."""


def keys() -> Iterator[Key]:
    for system in SYSTEMS:
        for speaker in SPEAKERS:
            for mood in MOODS:
                for item in ("1", "2"):
                    yield system, speaker, mood, item


DURATIONS: Mapping[Key, float] = {key: 0.6 + number / 50 for number, key in enumerate(keys())}
"""No two recordings have one duration, so that the sound tells whose it is."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """``SYSTEM/SPEAKER/MOOD/ITEM.wav``; the names below theirs are decomposed, as some file systems write them."""
    root = tmp_path_factory.mktemp("speakers")
    for (system, speaker, mood, item), seconds in DURATIONS.items():
        name = unicodedata.normalize("NFD" if system == "theirs" else "NFC", speaker)
        (root / system / name / mood).mkdir(parents=True, exist_ok=True)
        sound = speechlike(seconds, SPEAKERS[speaker], noise=1e-4)
        vl.Clip(sound, RATE).save(root / system / name / mood / f"{item}.wav")
    return root


def table(folder: Path) -> pd.DataFrame:
    """The same as a table, in no order."""
    rows = []
    for (system, speaker, mood, item), seconds in DURATIONS.items():
        name = unicodedata.normalize("NFD" if system == "theirs" else "NFC", speaker)
        path = folder / system / name / mood / f"{item}.wav"
        rows.append(
            {
                "path": str(path),
                "system": system,
                "speaker": speaker,
                "mood": mood,
                "item": int(item),
                "length": seconds,
            }
        )
    return pd.DataFrame(rows).sample(frac=1, random_state=7)


def names_of(table: vl.TakeTable) -> list[str]:
    return [column.name for column in table.shown_columns]


def own_values(frame: pd.DataFrame) -> None:
    """Assert that each row has the values of the recording whose sound it measured."""
    assert len(frame) == len(DURATIONS)
    for row in frame.to_dict("records"):
        key = (row["system"], unicodedata.normalize("NFC", row["speaker"]), row["mood"], str(row["item"]))
        assert row["duration"] == pytest.approx(DURATIONS[key], abs=1e-3), row


def own_pairs(test: vl.ListeningTest) -> None:
    """Assert that the sounds of an item of a blind test share everything but the system."""
    assert len(test.items) == len(DURATIONS) // 2
    for item, clips in test.items.items():
        values = dict(part.split("=") for part in item.split(", ") if "=" in part)
        for system, clip in clips.items():
            key = (system, values["speaker"], values["mood"], values["item"])
            assert clip.duration == pytest.approx(DURATIONS[key], abs=1e-3), item


def sources(folder: Path, tmp_path: Path) -> Mapping[str, tuple[Any, dict[str, Any]]]:
    own = table(folder)
    own.drop(columns="length").to_csv(tmp_path / "list.csv", index=False)
    own.drop(columns="length").to_json(tmp_path / "list.jsonl", orient="records", lines=True)
    pattern = f"{folder}/{{system}}/{{speaker}}/{{mood}}/{{item}}.wav"
    return {
        "pattern": (pattern, {}),
        "frame": (own.drop(columns="length"), {}),
        "frame with keys": (own, {"keys": ["speaker", "mood"]}),
        "csv": (tmp_path / "list.csv", {}),
        "jsonl": (tmp_path / "list.jsonl", {}),
        "mapping": ({name: pattern.replace("{system}", name) for name in SYSTEMS}, {}),
    }


def test_every_row_has_its_own_values_and_pairs_share_all_keys(folder: Path, tmp_path: Path) -> None:
    for kind, (source, options) in sources(folder, tmp_path).items():
        systems = vl.collect(source, metrics=["duration"], **options)
        assert (set(systems.systems), names_of(systems)) == (set(SYSTEMS), ["item", "speaker", "mood", "system"]), kind
        own_values(systems.frame())
        assert systems.frame()["speaker"].nunique() == len(SPEAKERS)
        own_pairs(systems.listening_test("AB"))
        gap = np.mean(
            [DURATIONS["theirs", *key[1:]] - seconds for key, seconds in DURATIONS.items() if key[0] == "ours"]
        )
        ours_first = systems.systems[0] == "ours"
        difference = systems.summary().loc["duration", f"{systems.systems[1]} difference"]
        assert difference == pytest.approx(gap if ours_first else -gap, abs=1e-3), kind
        by_system = systems.clips("2", speaker="José", mood="sad")
        for name, clip in by_system.items():
            assert clip.duration == pytest.approx(DURATIONS[name, "José", "sad", "2"], abs=1e-3)
        with pytest.raises(ArgumentError, match="must select one pair, got 6; also specify speaker, mood"):
            systems.compare("2")
        assert len(systems.select(speaker="李")) == 8


def test_the_values_of_a_table_that_pair_recordings_are_noted(folder: Path) -> None:
    own = table(folder)
    (note,) = vl.collect(own.drop(columns="length")).notes
    assert note.startswith("Recordings are paired by item, speaker, mood, which vary within a system")
    notes = vl.collect(own, keys=["speaker", "mood"]).notes
    assert notes == ("Recordings of a pair differ in columns that are not keys: length.",)
    with pytest.raises(ArgumentError, match=r"with the same speaker, mood, length.*keys=… chooses which columns"):
        vl.collect(own)
    with pytest.raises(ArgumentError, match="keys: must be columns of the source, got 'speeker'; did you mean speaker"):
        vl.collect(own, keys=["speeker"])
    part = own.query("speaker == 'Ana' and mood == 'sad'")  # items are enough here
    systems = vl.collect(part, metrics=["duration"])
    assert names_of(systems) == ["item", "system"]
    assert np.allclose(systems.frame()["length"], systems.frame()["duration"], atol=1e-3)


def test_two_recordings_of_one_key_are_refused_by_name(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(
        ArgumentError, match=r"ours/Ana/glad/1\.wav and .*ours/José/glad/1\.wav are both item '1', mood 'glad'"
    ):
        vl.collect(f"{folder}/{{system}}/*/{{mood}}/{{item}}.wav")
    with pytest.raises(ArgumentError, match=r"are both item '.', speaker '.+' of system"):
        vl.collect(table(folder), keys=["speaker"])
    vl.Clip(speechlike(0.6), RATE).save(tmp_path / "a.wav")
    (tmp_path / "a.aif").write_bytes((tmp_path / "a.wav").read_bytes())
    with pytest.raises(ArgumentError, match=r"a\.aif and .*a\.wav are both item 'a'"):
        vl.collect({"ours": tmp_path})
    file = tmp_path / "a.wav"
    parts = [{"path": file, "item": "a", "system": "s", "start": start, "end": start + 0.1} for start in (0.1, 0.2)]
    with pytest.raises(ArgumentError, match=r"a\.wav from 0\.1 s and .*a\.wav from 0\.2 s are both item 'a'"):
        vl.collect(parts)


def test_a_repeat_pairs_recordings_and_is_no_item_of_its_own(tmp_path: Path) -> None:
    """Numbered by the user, from any number on; numbers that one system lacks are left out."""
    lengths: dict[Any, float] = {("a", "1"): 0.6, ("a", "2"): 0.7, ("b", "2"): 0.8, ("b", "1"): 0.9, ("b", "3"): 1.0}
    for item in ("x", "y"):
        for (system, number), seconds in lengths.items():
            (tmp_path / system).mkdir(exist_ok=True)
            vl.Clip(speechlike(seconds, noise=1e-4), RATE).save(tmp_path / system / f"{item}_{number}.wav")
    systems = vl.collect(f"{tmp_path}/{{system}}/{{item}}_{{repeat}}.wav", metrics=["duration"])
    assert systems.notes == ("Items excluded because a system lacks them: x, 3 (not in a), y, 3 (not in a).",)
    for row in systems.frame().to_dict("records"):
        assert row["duration"] == pytest.approx(lengths[row["system"], row["repeat"]], abs=1e-3)
    assert set(systems.frame()["repeat"]) == {"1", "2"}
    clips = systems.clips("x", repeat="2")
    assert [round(clip.duration, 1) for clip in clips.values()] == [0.7, 0.8]
    assert [round(clip.duration, 1) for clip in systems.clips(1).values()] == [0.6, 0.9]
    assert systems.factors() == (["system"], ["item"])  # takes of one item are no items of their own in the statistics


def test_columns_with_names_in_use_keep_their_values(folder: Path, tmp_path: Path) -> None:
    own = table(folder).drop(columns="length")
    own = own.assign(duration=np.arange(len(own)), seed=np.arange(len(own)) + 100, take="t", cell="c", key="k")
    systems = vl.collect(own, metrics=["duration"])
    assert names_of(systems) == ["item", "speaker", "mood", "system"]
    own_values(systems.frame())
    frame = systems.frame("duration")
    assert set(frame["source_duration"]) == set(range(len(own)))
    assert set(frame["source_seed"]) == set(range(100, 100 + len(own)))
    assert {"duration is source_duration", "seed is source_seed"} <= set(
        systems.notes[0].rstrip(".").split(": ")[1].split(", ")
    )
    kept = vl.load(systems.export(tmp_path / "run", "run").parent).frame()
    assert (set(kept["take"]), set(kept["source_cell"])) == ({"t"}, {"c"})


def test_every_layout_keeps_the_keys(folder: Path, tmp_path: Path) -> None:
    systems = vl.collect(f"{folder}/{{system}}/{{speaker}}/{{mood}}/{{item}}.wav", metrics=["duration"])
    hugging = systems.export(tmp_path / "hf", "audiofolder").parent
    for source in (hugging, systems.export(tmp_path / "takes")):
        again = vl.collect(source, metrics=["duration"])
        own_values(again.frame())
        own_pairs(again.listening_test("AB"))
    listed = pd.read_csv(hugging / "metadata.csv", dtype=str)
    for row in listed.to_dict("records"):
        key = (row["system"], unicodedata.normalize("NFC", row["speaker"]), row["mood"], row["item"])
        assert vl.Clip.load(hugging / row["file_name"]).duration == pytest.approx(DURATIONS[key], abs=1e-3)
    run = vl.load(systems.export(tmp_path / "run", "run").parent)
    own_values(run.frame())
    own_pairs(run.listening_test("AB"))
    for layout, file in (("ljspeech", "metadata.csv"), ("kaldi", "wav.scp")):
        text = (systems.export(tmp_path / layout, layout).parent / file).read_text()
        assert all(f"-{speaker}-{mood}" in unicodedata.normalize("NFC", text) for speaker in SPEAKERS for mood in MOODS)
    speakers = (tmp_path / "kaldi" / "spk2utt").read_text().splitlines()
    assert len(speakers) == len(SYSTEMS) * len(SPEAKERS)
    test = vl.collect(systems.export(tmp_path / "mushra", "webmushra"), metrics=["duration"])
    assert len(test) == len(DURATIONS)
    page = systems.page(tmp_path / "page.html").read_text()
    assert page.count("<audio") == len(DURATIONS)
    assert all(f'data-value="{speaker}"' in unicodedata.normalize("NFC", page) for speaker in SPEAKERS)


def test_texts_belong_to_a_key_and_not_to_an_item(tmp_path: Path) -> None:
    """Utterance 1 of one speaker says something else than that of another."""
    texts = {"ana": "One two three.", "ben": "Four five six."}
    for system in SYSTEMS:
        for speaker, text in texts.items():
            (tmp_path / system / speaker).mkdir(parents=True)
            vl.Clip(speechlike(0.8), RATE).save(tmp_path / system / speaker / "1.wav")
            (tmp_path / "ours" / speaker / "1.txt").write_text(text)
    systems = vl.collect(f"{tmp_path}/{{system}}/{{speaker}}/{{item}}.wav", metrics=["words"])
    assert {row.speaker: row.text for row in systems.frame().itertuples()} == texts
    again = vl.collect(systems.export(tmp_path / "hf", "audiofolder").parent, metrics=["words"])
    assert {row.speaker: row.text for row in again.frame().itertuples()} == texts
