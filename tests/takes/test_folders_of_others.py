"""Folders as they are in laboratories: system files, links, damaged files, data sets, archives of other systems."""

from __future__ import annotations

import os
import shutil
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import voicelab as vl
from tests.speechlike import RATE, speechlike
from tests.takes.test_collection import in_container
from tests.tones import ToneBackend
from voicelab.clip import UNKNOWN_TEXT
from voicelab.errors import ArgumentError, AudioError, StoreError

CLIP = vl.Clip(speechlike(1.2, 150, noise=1e-4), RATE)
WAV = CLIP.to_bytes("wav")
DAMAGED = {
    "empty.wav": (b"", "the file is empty"),
    "page.wav": (b"\r\n<!DOCTYPE html><html>404", "the file is an HTML page (a download that failed?)"),
    "cut.wav": (WAV[: len(WAV) // 2], "the audio is truncated or damaged after 0.60 s of 1.20 s"),
    "half.mp3": (CLIP.to_bytes("mp3")[:9000], "the audio is truncated or damaged after 0."),
    "head.flac": (b"fLaC\0\0\0", "the audio is truncated or damaged before its first sample"),
    "zeros.wav": (bytes(999), "the file consists of 999 zero bytes"),
    "pointer.wav": (b"version https://git-lfs.github.com/spec/v1\n", "the file is a Git LFS pointer: run git lfs pull"),
    "words.wav": ("Grüße\n".encode() * 9, "the file is text, not audio"),
    "archive.wav": (b"PK\3\4" + bytes(99), "the file is a ZIP archive: unpack it"),
    "train.wav": (b"PAR1" + bytes(99), "the file is a Parquet table: pass pandas.read_parquet(…) of it"),
    "noise.wav": (np.random.default_rng(1).bytes(3000), "the file is not in a known audio format"),
}


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three systems (one a link, one with capital suffixes) among files of macOS, Windows, Jupyter, Git and NAS."""
    root = tmp_path_factory.mktemp("lab")
    folder = root / "samples"
    for system in ("samples/ours", "samples/theirs", "elsewhere"):
        for item in "ab":
            path = root / system / f"{item}.{'WAV' if system.endswith('theirs') else 'wav'}"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(WAV)
            path.with_suffix(".txt").write_bytes("Größe".encode("cp1252"))
    for name in ("ours/._a.wav", "__MACOSX/._a.wav", ".git/a.wav", ".Trash-1000/q.wav", "ours/.ipynb_checkpoints/a.wav",
                 "@eaDir/a.wav", "ours/Thumbs.db", "ours/paper.pdf", "ours/b.wav.part"):  # fmt: skip
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(WAV if name.endswith("a.wav") else b"x")
    (folder / "linked").symlink_to(root / "elsewhere")
    (folder / "ours" / "loop").symlink_to(folder)
    (folder / "ours" / "gone.wav").symlink_to(root / "nowhere.wav")
    return folder


def test_files_of_systems_are_skipped_and_counted_and_links_followed(tree: Path) -> None:
    for source in (tree, f"{tree}/{{system}}/{{item}}.wav"):
        systems = vl.collect(source, metrics=["duration"])
        assert set(systems.systems) == {"ours", "theirs", "linked"}
        assert len(systems) == 6
        assert set(systems.frame()["text"]) == {"Größe"}
    systems = vl.collect(tree, metrics=["duration"])
    note, same = systems.notes
    assert (
        same
        == "Recordings of different systems have identical samples: a (linked = ours = theirs), b (linked = ours = theirs)."
    )
    for count in ("7 × hidden or system file", "1 × a link to a folder above it", "1 × not a sound file (.pdf)"):
        assert count in note
    reasons = {Path(str(file["file"])).name: file["reason"] for file in systems.excluded}
    assert reasons["gone.wav"] == "a link to a file that does not exist"
    pattern = vl.collect(f"{tree}/{{system}}/{{item}}.wav", metrics=["duration"]).excluded
    assert reasons["gone.wav"] in [file["reason"] for file in pattern]
    assert reasons["b.wav.part"] == "not a sound file (.part)"
    assert len(vl.measure(tree, ["duration"])) == 6
    assert len(vl.measure(tree, ["duration"]).attrs["excluded"]) == len(systems.excluded)
    with pytest.raises(StoreError, match=r"contains no sound files .* got 1 × hidden or system file"):
        vl.collect(tree / "__MACOSX")


def test_names_of_systems_that_differ_in_case_are_noted(tmp_path: Path) -> None:
    for name in ("Alpha/a.wav", "alpha/a.wav", "beta/a.wav"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_bytes(WAV)
    note = "Names of systems differ only in case, spaces, hyphens or underscores: Alpha, alpha."
    assert note in vl.collect(tmp_path, metrics=["duration"]).notes
    (tmp_path / "alpha" / "a.wav").rename(tmp_path / "alpha" / "b.wav")
    with pytest.raises(ArgumentError, match=f"at least one item must have recordings of all systems.*{note}"):
        vl.collect(tmp_path)


def test_another_suffix_than_that_of_the_pattern_is_named(tmp_path: Path) -> None:
    for name in ("ours/a.wav", "theirs/a.flac"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_bytes(WAV)
    systems = vl.collect(f"{tmp_path}/{{system}}/{{item}}.wav")
    assert systems.excluded == ({"file": str(tmp_path / "theirs" / "a.flac"), "reason": "its suffix is not .wav"},)


@pytest.fixture(scope="module")
def damaged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("damaged")
    for name, (data, _) in DAMAGED.items():
        (folder / name).write_bytes(data)
    CLIP.save(folder / "good.wav")
    return folder


# Files of collect are read in this process.
@pytest.mark.parametrize(("read", "jobs"), [(vl.collect, 1), (vl.measure, 1), (vl.measure, 2)])
def test_all_damaged_files_are_reported_at_once(damaged: Path, read: Callable[..., object], jobs: int) -> None:
    with pytest.raises(
        AudioError, match=rf'{len(DAMAGED)} of {len(DAMAGED) + 1} files cannot be read; on_error="skip"'
    ) as caught:
        read(damaged, metrics=["duration"], jobs=jobs)
    for name, (_, reason) in DAMAGED.items():
        assert caught.value.files[str(damaged / name)].startswith(reason), name
        assert f"{name}: {reason}" in str(caught.value)
    with pytest.raises(ArgumentError, match=r"on_error: must be .*got 'ignore'"):
        read(damaged, on_error="ignore")


def test_damaged_files_are_excluded_on_demand(damaged: Path, tmp_path: Path) -> None:
    systems = vl.collect(damaged, metrics=["duration"], on_error="skip")
    assert [take.source for take in systems] == ["good.wav"]
    assert len(systems.excluded) == len(DAMAGED)
    assert f"{len(DAMAGED)} of {len(DAMAGED) + 1} files cannot be read (all in table.excluded)" in systems.notes[0]
    measured = vl.measure(damaged, ["duration"], on_error="skip").set_index("file")
    assert measured["duration"].notna().sum() == 1
    assert measured["undefined"][str(damaged / "empty.wav")] == "the file is empty"
    for system in ("ours", "theirs"):
        for item in "ab":
            (tmp_path / system).mkdir(exist_ok=True)
            (tmp_path / system / f"{item}.wav").write_bytes(b"" if (system, item) == ("ours", "a") else WAV)
    (tmp_path / "ours" / "c.wav").write_bytes(b"")  # theirs has no c.wav
    systems = vl.collect(tmp_path, on_error="skip")
    reasons = ["the file is empty", "the file is empty", "the item is not in ours"]
    assert [file["reason"] for file in systems.excluded] == reasons
    with pytest.raises(AudioError, match="2 of 5 files cannot be read"):
        vl.collect(tmp_path)
    with pytest.raises(ArgumentError, match="missing: every system must have every item"):
        vl.collect(tmp_path, on_error="skip", missing="refuse")
    with pytest.raises(
        ArgumentError, match="source: must have readable recordings, got none; 1 of 1 files cannot be read"
    ):
        vl.collect([tmp_path / "ours" / "a.wav"], on_error="skip")


def test_addresses_and_tables_are_no_sounds(tmp_path: Path) -> None:
    (tmp_path / "list.csv").write_text("path,text\n")
    with pytest.raises(ArgumentError, match=r"source: must have readable recordings, got none$"):
        vl.collect(tmp_path / "list.csv")
    (tmp_path / "list.csv").write_text("path\nhttps://example.org/a.wav\n")
    for source in (tmp_path / "list.csv", "https://example.org/a.wav"):
        with pytest.raises(
            StoreError, match=r"^https://example\.org/a\.wav cannot be read: it is an address, not a file"
        ):
            vl.collect(source)
    with pytest.raises(StoreError, match=r"list\.csv is a table, not audio; vl\.collect and voicelab compare read it"):
        vl.measure(tmp_path / "list.csv")


@pytest.mark.parametrize("layout", ["files", "run", "audiofolder", "kaldi"])
def test_an_export_replaces_only_the_same_takes(layout: str, tmp_path: Path) -> None:
    rows = [
        {"path": CLIP.save(tmp_path / f"{index}.wav"), "system": system, "item": str(index), "mood": "=calm"}
        for index, system in enumerate(["ours"] * 11)
    ]
    few, all_takes = (vl.collect(listed, metrics=["duration"]) for listed in (rows[:2], rows))
    for table in (*[few, few] * (layout != "run"), all_takes, all_takes):  # a larger system has another fingerprint
        folder = table.export(tmp_path / "set", layout).parent
    with pytest.raises(
        StoreError, match="set must be new or contain an earlier export of the same takes, got other rows"
    ):
        few.export(folder, layout)
    assert len(vl.load(folder) if layout == "run" else vl.collect(folder)) == 11
    if layout == "files":  # two were 0.wav and 1.wav, eleven are 00.wav to 10.wav
        assert len([*(folder / "audio").iterdir()]) == 11


@pytest.mark.parametrize("layout", ["files", "audiofolder", "kaldi"])
def test_an_export_of_a_sweep_replaces_only_its_own_texts(layout: str, tmp_path: Path) -> None:
    lab, folder = vl.Lab(ToneBackend()), tmp_path / "set"
    for texts in ("{tag}No,\n  no.", ["Yes,  yes.", " =1+1 "]):
        made = lab.sweep(
            texts, extra={"tag": ["", "[sad]"]} if isinstance(texts, str) else None, temperature=[0.5, 1]
        ).run()
        for _ in range(2):
            made.export(folder / str(len(texts)), layout)
    with pytest.raises(StoreError, match=r"got other rows in \w+\.csv: .*; export to a new folder$"):
        lab.sweep("One.", temperature=[0.5, 1]).run().export(folder / "2", layout)
    table = tmp_path / ("metadata.csv" if layout == "audiofolder" else "takes.csv")
    table.write_text("name,words\na.wav,Of another program.\n")
    with pytest.raises(StoreError, match=r"got other rows in \w+\.csv: a\.wav, Of another program\.; export"):
        made.export(tmp_path, layout)
    lab.sweep("One.", temperature=[0.5, 1]).run().export(tmp_path / "one", layout)
    with pytest.raises(StoreError, match="got other rows in"):  # the same axes
        lab.sweep("Two.", temperature=[0.5, 1]).run().export(tmp_path / "one", layout)


@pytest.mark.parametrize(
    ("layout", "name"), [("ljspeech", "metadata.csv"), ("kaldi", "text"), ("vctk", "txt/ours/ours_001.txt")]
)
def test_an_export_leaves_tables_of_others_unchanged(layout: str, name: str, tmp_path: Path) -> None:
    clip = CLIP.save(tmp_path / "a.wav")
    table = vl.collect([{"path": clip, "system": "ours", "text": "One."}], metrics=["duration"])
    for number, other in enumerate((name, "README.md")):
        original = tmp_path / f"set{number}" / other
        original.parent.mkdir(parents=True)
        original.write_text("Of somebody else.")
        with pytest.raises(StoreError, match=f"same takes, got {other} without takes.csv; export to a new folder$"):
            table.export(tmp_path / f"set{number}", layout)
        assert original.read_text() == "Of somebody else."
        assert not [*tmp_path.glob("set*/**/*.wav")]
    failed = vl.connect(lambda text: 1 / 0).sweep("One.").run()
    with pytest.raises(ArgumentError, match=f"takes: must be one or more for layout '{layout}', got none .1 failed"):
        failed.export(tmp_path / "failed", layout)


@pytest.mark.parametrize("layout", ["files", "audiofolder", "vctk"])
def test_an_export_never_replaces_recordings_and_files_of_others(layout: str, tmp_path: Path) -> None:
    folder, names = (
        tmp_path / "set",
        {"files": "audio/0.wav", "audiofolder": "audio/0.wav", "vctk": "wav48/b/b_001.wav"},
    )
    for name in ("a/1.wav", "a/2.wav", names[layout]):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        CLIP.save(folder / name)
    rows = [{"path": folder / f"a/{item}.wav", "system": "b", "item": item} for item in "12"]
    contents = {path: path.read_bytes() for path in folder.rglob("*.wav")}
    with pytest.raises(StoreError, match=r"got the files .*a/1\.wav, a/2\.wav; export to a new folder$"):
        vl.collect(rows, metrics=["duration"]).export(folder, layout)
    other = vl.collect([{"path": CLIP.save(tmp_path / "c.wav"), "system": "b"}], metrics=["duration"])
    with pytest.raises(StoreError, match=f"got the files {names[layout]}; export to a new folder$"):
        other.export(folder, layout)
    assert {path: path.read_bytes() for path in contents} == contents
    # An export may be collected and exported again, in the same order.
    first = other.export(tmp_path / "new", layout).parent
    vl.collect(first, metrics=["duration"]).export(first, layout)


def test_missing_files_of_a_table_are_named_together_and_load_names_one(tmp_path: Path) -> None:
    with pytest.raises(
        StoreError, match=r"2 of 2 files cannot be read(.|\n)*1\.wav: cannot be read: No such file(.|\n)*2\.wav"
    ):
        vl.collect([tmp_path / "1.wav", tmp_path / "2.wav"])
    for names in (["1.wav"], ["1.wav", "2.wav"]):
        with pytest.raises(StoreError) as caught:
            vl.measure([tmp_path / name for name in names])
        assert caught.value.files == {
            str(tmp_path / name): "cannot be read: No such file or directory" for name in names
        }
    with pytest.raises(StoreError, match=r"none\.wav cannot be read: No such file"):
        vl.load(tmp_path / "none.wav")
    (tmp_path / "cut.wav").write_bytes(WAV[:9000])
    with pytest.raises(AudioError, match=r"cut\.wav: the audio is truncated or damaged after 0\.\d+ s of 1\.20 s$"):
        vl.load(tmp_path / "cut.wav")


def test_levels_before_matching_channels_and_padding_are_noted(tmp_path: Path) -> None:
    for system, gain in (("loud", 1.0), ("soft", 0.25)):
        (tmp_path / system).mkdir()
        vl.Clip(CLIP.samples * np.float32(gain), RATE).save(tmp_path / system / "a.wav")
    systems = vl.collect(tmp_path, metrics=["loudness"])
    table = systems.frame().set_index("system")
    assert table["file_loudness"]["loud"] - table["file_loudness"]["soft"] == pytest.approx(12.04, abs=0.05)
    assert np.ptp(table["loudness"]) < 0.01
    assert "The files differ in loudness" in systems.notes[0]
    (tmp_path / "soft" / "a.wav").write_bytes(in_container(CLIP.resample(8000), "wav", "pcm_s16le", channels=2))
    assert any("files differ in sample rate" in note and "soft 8000 Hz" in note for note in vl.collect(tmp_path).notes)
    (tmp_path / "soft" / "b.m4a").write_bytes(in_container(CLIP, "mp4", "aac"))
    stereo, padded = vl.measure(tmp_path / "soft", ["loudness"])["notes"]
    assert "It has 2 channels, which were averaged." in stereo
    assert "AAC, pads the audio" in padded
    both = vl.measure([tmp_path / "soft" / "a.wav", tmp_path / "loud" / "a.wav"], ["duration"])
    assert both["notes"].tolist() == [stereo, ""]
    assert "notes" not in vl.measure(tmp_path / "loud", ["loudness"])


@pytest.mark.parametrize("layout", ["files", "audiofolder", "ljspeech", "kaldi", "librispeech", "libritts", "vctk"])
def test_what_is_exported_is_collected_again(layout: str, tmp_path: Path) -> None:
    rows = []
    for system in ("ours", "theirs"):
        for item, text in (("x 1", "=One, “two”"), ("y", 'He said "three".')):
            (tmp_path / system).mkdir(exist_ok=True)
            path = CLIP.save(tmp_path / system / f"{item}.wav")
            rows.append({"path": path, "system": system, "item": item, "text": text, "mood": "calm"})
    systems = vl.collect(rows, metrics=["duration"])
    folder = systems.export(tmp_path / layout, layout).parent
    again = vl.collect(folder, metrics=["duration"])
    columns = ["item", "system", "repeat", "text", "mood", "duration"]
    pd.testing.assert_frame_equal(again.frame()[columns], systems.frame()[columns])
    if layout not in {"files", "audiofolder"}:  # as other programs write it
        (folder / "takes.csv").unlink()
        again = vl.collect({layout: folder}, metrics=["duration"])
        assert sorted(again.frame()["text"]) == sorted(row["text"] for row in rows)
        assert again.systems == (layout,)
    if layout == "librispeech":
        assert sorted(path.name for path in folder.glob("*/*/*.flac"))[::3] == ["1-1-0001.flac", "2-1-0004.flac"]
        assert "notes" not in vl.measure(folder, ["duration"])  # mono, as in LibriSpeech
        assert (folder / "2" / "1" / "2-1.trans.txt").read_text().startswith("2-1-0002 =One, “two”\n")
    if layout == "libritts":  # as torchaudio and lhotse parse it
        sounds = {tuple(map(int, path.stem.split("_"))): path for path in folder.glob("[0-9]*/[0-9]*/*.wav")}
        assert sorted(sounds) == [(1, 1, 1, 0), (1, 1, 3, 0), (2, 1, 2, 0), (2, 1, 4, 0)]
        transcripts = (folder / "1" / "1" / "1_1.trans.tsv").read_text().splitlines()
        assert transcripts[0].split("\t") == ["1_1_000001_000000", "=One, “two”", "=One, “two”"]
        assert (folder / "speakers.tsv").read_text().splitlines()[2] == "2\t\t\ttheirs"


def test_a_run_is_loaded_and_not_collected_as_a_folder_of_sounds(tmp_path: Path) -> None:
    rows = [{"path": CLIP.save(tmp_path / f"{name}.wav"), "system": name, "item": "x"} for name in ("ours", "theirs")]
    folder = vl.collect(rows, metrics=["duration"]).save(tmp_path / "run")
    with pytest.raises(vl.ArgumentError, match=r"is a run folder: use vl\.load"):
        vl.collect(folder)
    assert vl.load(folder).systems == ("ours", "theirs")


def test_data_sets_of_others(tmp_path: Path) -> None:
    ljspeech, kaldi, libri = (tmp_path / name for name in ("LJSpeech-1.1", "kaldi", "LibriTTS"))
    for folder in (ljspeech / "wavs", kaldi, libri / "84" / "121123", tmp_path / "VCTK" / "wav48" / "p225"):
        folder.mkdir(parents=True)
    for path in (
        ljspeech / "wavs" / "LJ001-0001.wav",
        kaldi / "talk.wav",
        libri / "84" / "121123" / "84_121123_000007.wav",
    ):
        path.write_bytes(WAV)
    (ljspeech / "metadata.csv").write_text('LJ001-0001|In 1984, "he" said|In nineteen eighty four, "he" said\n')
    (take,) = vl.collect(ljspeech)
    assert (take.request.text, take.source) == ('In nineteen eighty four, "he" said', "LJ001-0001.wav")
    assert vl.collect(ljspeech).frame("duration")["written_text"].tolist() == ['In 1984, "he" said']
    (kaldi / "wav.scp").write_text("rec1 talk.wav\n")
    (kaldi / "segments").write_text("u1 rec1 0.0 0.5\nu2 rec1 0.5 1.1\n")
    (kaldi / "text").write_text("u1 one two\nu2\n")
    (kaldi / "utt2spk").write_text("u1 ann\nu2 ben\n")
    table = vl.collect(kaldi / "wav.scp", metrics=["duration"]).frame()
    assert table["item"].tolist() == ["u1", "u2"]
    assert table["text"].tolist() == ["one two", "…"]
    assert table["speaker"].tolist() == ["ann", "ben"]
    assert table["duration"].tolist() == pytest.approx([0.5, 0.6], abs=1e-3)
    (kaldi / "wav.scp").write_text("rec1 talk.wav\nrec2 sph2pipe -f wav talk.sph |\n")
    (kaldi / "segments").write_text("u1 rec1 0.0 0.5\nu2 rec2 0.5 1.1\nu3 rec3 0 1\n")
    systems = vl.collect(kaldi, on_error="skip")
    assert [take.source for take in systems] == ["talk.wav#t=0,0.5"]
    assert [tuple(record.values()) for record in systems.excluded] == [
        ("sph2pipe -f wav talk.sph |", "cannot be read: it is a command, which is not run; save its output as a file"),
        (str(kaldi / "rec3 (not in wav.scp)"), "cannot be read: No such file or directory"),
    ]
    with pytest.raises(StoreError, match=r"sph2pipe .*\|: cannot be read: it is a command"):
        vl.collect(kaldi)
    (libri / "84" / "121123" / "84_121123_000007.normalized.txt").write_text("A sentence.")
    (take,) = vl.collect(f"{libri}/{{speaker}}/{{chapter}}/{{item}}.wav")
    assert take.request.text == "A sentence."


@pytest.fixture(scope="module")
def corpora(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tables and lists as other programs write them, with two recordings of 1.2 s."""
    root = tmp_path_factory.mktemp("corpora")
    for name in ("cv/clips/a.wav", "cv/clips/b.wav", "espnet/dump/raw/a.wav", "espnet/dump/raw/b.wav"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(WAV)
    sounds = root / "cv" / "clips"
    for name, text in {
        "cv/validated.tsv": "client_id\tpath\tsentence\nx\ta.wav\tone\ny\tb.wav\ttwo\n",
        "cv/windows.csv": "path;text\nclips\\a.wav;one\nclips\\b.wav;two\n",
        "cv/nemo.jsonl": f'{{"audio_filepath": "{sounds}/a.wav", "text": "one"}}\n'
        f'{{"audio_filepath": "{sounds}/b.wav", "text": "two"}}\n',
        "espnet/dump/eval/wav.scp": "a dump/raw/a.wav\nb dump/raw/b.wav\n",
        "espnet/dump/eval/text": "a one\nb two\n",
    }.items():
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_text(text)
    return root


@pytest.mark.parametrize("name", ["cv/validated.tsv", "cv/windows.csv", "cv/nemo.jsonl", "espnet/dump/eval"])
def test_paths_of_tables_are_found_as_their_programs_find_them(
    corpora: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir((corpora / name).parent)
    for source in (corpora / name, Path(name).name):
        frame = vl.collect(source, metrics=["duration"]).frame()
        assert frame[["item", "text", "duration"]].to_numpy().tolist() == [["a", "one", 1.2], ["b", "two", 1.2]]


def test_tables_of_a_folder_that_are_not_read_are_noted(corpora: Path) -> None:
    (note,) = vl.collect(corpora / "cv", metrics=["duration"]).notes
    assert "not read: nemo.jsonl, validated.tsv, windows.csv; pass one as the source" in note


def test_offset_and_duration_are_an_interval(corpora: Path, tmp_path: Path) -> None:
    path = tmp_path / "manifest.json"
    row = f'{{"audio_filepath": "{corpora}/cv/clips/a.wav", "offset": %s, "duration": 0.5, "text": "%s"}}\n'
    path.write_text(row % (0, "one") + row % (0.5, "two"))
    (first, second) = vl.collect(path, metrics=["duration"])
    assert (first.source, second.source) == ("a.wav#t=0,0.5", "a.wav#t=0.5,1")
    path.write_text(row % ('"?"', "one"))
    with pytest.raises(ArgumentError, match=r"start and end in seconds; row 1 has offset '\?'"):
        vl.collect(path)


def test_tables_that_lack_paths_or_systems_say_in_which_row(corpora: Path, tmp_path: Path) -> None:
    samples = pd.DataFrame({"audio": [{"bytes": WAV, "path": "a.wav"}], "text": ["one"]})  # of Hugging Face
    with pytest.raises(ArgumentError, match="row 1 has a dict in audio, not a path: write its samples to a file"):
        vl.collect(samples)
    paths = [f"{corpora}/cv/clips/{item}.wav" for item in "ab"]
    with pytest.raises(ArgumentError, match="a system in every row or in none; row 2 has none"):
        vl.collect([{"path": paths[0], "system": "ours"}, {"path": paths[1], "system": None}])
    with pytest.raises(StoreError, match="too long"):
        vl.collect([{"path": "a sentence " * 30}])
    for name, text in {"wav.scp": "a raw.1.ark:17\n", "windows.csv": "path\nC:\\corpus\\a.wav\n"}.items():
        (tmp_path / name).write_text(text)
    with pytest.raises(StoreError, match=r"raw\.1\.ark:17 cannot be read: it is in a Kaldi archive"):
        vl.collect(tmp_path / "wav.scp")
    if sys.platform != "win32":
        with pytest.raises(StoreError, match=r"^C:\\corpus\\a\.wav cannot be read"):
            vl.collect(tmp_path / "windows.csv")


def test_title_rows_and_merged_cells_of_excel(corpora: Path) -> None:
    import openpyxl

    book = openpyxl.Workbook()
    sheet = book.active
    assert sheet is not None
    for cells in (["Corpus of 2024", None, None], ["File", None, "Content"], ["Path", "System", "Text"],
                  ["clips/a.wav", "ours", "one"], ["clips/b.wav", None, "two"]):  # fmt: skip
        sheet.append(cells)
    for merged in ("A1:C1", "A2:B2", "B4:B5", "F9:G9"):
        sheet.merge_cells(merged)
    book.save(corpora / "cv" / "list.xlsx")
    systems = vl.collect(corpora / "cv" / "list.xlsx", metrics=["duration"])
    assert systems.frame()[["item", "system", "text"]].to_numpy().tolist() == [
        ["a", "ours", "one"],
        ["b", "ours", "two"],
    ]
    assert systems.notes == ("list.xlsx: the header is Path, System, Text; rows above it are not read.",)
    sheet.append([])
    sheet.append(["clips/c.wav"])
    book.save(corpora / "cv" / "list.xlsx")
    with pytest.raises(ArgumentError, match="a system in every row or in none; row 11 has none"):
        vl.collect(corpora / "cv" / "list.xlsx")


def test_numbers_in_further_columns_are_numbers(corpora: Path) -> None:
    rows = ["path;mos;votes;year;id;note", "clips/a.wav;3,5;4;2024;001;1", "clips/b.wav;2;;2025;002;x"]
    (corpora / "cv" / "list.csv").write_text("\n".join(rows))
    table = vl.collect(corpora / "cv" / "list.csv").frame("duration")
    assert (table["mos"].mean(), table["votes"].sum(), table["year"].tolist()) == (2.75, 4, [2024, 2025])
    assert (table["item"].tolist(), table["note"].tolist()) == (["001", "002"], ["1", "x"])


@pytest.mark.parametrize("suffix", ["txt", "lab"])
@pytest.mark.parametrize("track", ["0.000000\t1.100000\trice\n", "0 2500000 sil\n2500000 9000000 ah\n"])
def test_label_tracks_are_not_texts(tmp_path: Path, track: str, suffix: str) -> None:
    CLIP.save(tmp_path / "a.wav")
    (tmp_path / f"a.{suffix}").write_text(track)
    assert vl.collect(tmp_path, metrics=["duration"]).frame()["text"].tolist() == [UNKNOWN_TEXT]
    (tmp_path / f"a.{suffix}").write_text("10 20 thirty\n")
    assert vl.collect(tmp_path, metrics=["duration"]).frame()["text"].tolist() == ["10 20 thirty"]


def test_sources_are_columns_of_takes(corpora: Path) -> None:
    frame = vl.collect(corpora / "cv" / "clips", metrics=["duration"]).frame(also=["source", "notes"])
    assert frame["source"].tolist() == ["a.wav", "b.wav"]


def test_wav_with_64_bit_sizes_is_read(tmp_path: Path) -> None:
    sizes = (
        b"ds64\x1c\0\0\0" + (len(WAV) + 28).to_bytes(8, "little") + (len(WAV) - 44).to_bytes(8, "little") + bytes(12)
    )
    data = b"RF64\xff\xff\xff\xffWAVE" + sizes + WAV[12:40] + b"\xff\xff\xff\xff" + WAV[44:]
    (tmp_path / "long.wav").write_bytes(data)
    assert vl.load(tmp_path / "long.wav") == vl.Clip.load(WAV)
    (tmp_path / "long.wav").write_bytes(data[:-20_000])
    with pytest.raises(AudioError, match=r"20000 bytes are missing|truncated"):
        vl.load(tmp_path / "long.wav")


@pytest.mark.skipif(sys.platform != "linux", reason="other systems refuse such names")
def test_names_that_are_not_utf_8_are_escaped(tmp_path: Path) -> None:
    path = os.fsencode(tmp_path) + b"/Gr\x81\xe1e.wav"  # in code page 437, unpacked byte by byte
    Path(os.fsdecode(path)).write_bytes(WAV)
    systems = vl.collect(tmp_path, metrics=["duration"])
    assert systems.frame()["item"].tolist() == [r"Gr\x81\xe1e"]
    assert systems.takes[0].source == r"Gr\x81\xe1e.wav"
    saved = vl.load(systems.save(tmp_path / "kept"))
    assert saved.frame("duration")["item"].tolist() == [r"Gr\x81\xe1e"]
    shutil.rmtree(tmp_path / "kept")
    assert vl.measure(tmp_path, ["duration"])["file"].tolist() == [f"{tmp_path}/Gr\\x81\\xe1e.wav"]
    assert r"Gr\x81" in systems.page(tmp_path / "page.html").read_text()


def test_an_archive_of_macos_and_an_excel_table_of_a_colleague(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as archive:
        for name in ("Prüfung/Satz 1.WAV", "__MACOSX/Prüfung/._Satz 1.WAV", "Prüfung/.DS_Store"):
            archive.writestr(name, WAV if "MACOSX" not in name else b"\0\5\x16\7")
    with zipfile.ZipFile(tmp_path / "x.zip") as archive:
        archive.extractall(tmp_path)
    pd.DataFrame(
        {"File Name": ["Prüfung/Satz 1.WAV"], "TEXT": ["Größe"], "Note (1-5)": [4.5], "Start": [0.1]}
    ).to_excel(tmp_path / "Liste.xlsx", index=False)
    table = vl.collect(tmp_path / "Liste.xlsx", metrics=["duration"]).frame()
    assert table[["item", "system", "text", "Note (1-5)"]].to_numpy().tolist() == [
        ["Satz 1 0.1", "Prüfung", "Größe", 4.5]
    ]
    assert table["duration"][0] == pytest.approx(1.1, abs=1e-3)


def test_many_recordings_are_shown_before_they_are_measured_and_a_page_has_its_sounds_beside_it(tmp_path: Path) -> None:
    for system in ("ours", "theirs"):
        (tmp_path / system).mkdir()
        for item in range(160):
            (tmp_path / system / f"{item}.wav").write_bytes(WAV)
    systems = vl.collect(tmp_path, metrics=["duration"])
    bundle = systems._repr_mimebundle_()
    assert not systems.is_measured
    assert bundle["text/html"].count("<audio") == 12
    assert "summary() measures all 320 takes and compares the systems" in bundle["text/html"]
    page = systems.select(item=["1", "2"]).page(tmp_path / "a page.html", sounds="beside")
    assert page.read_text().count('src="a%20page-sounds/0000') == 4
    assert [path.name for path in sorted((tmp_path / "a page-sounds").iterdir())] == [f"0000{n}.mp3" for n in range(4)]
    assert vl.load(tmp_path / "a page-sounds" / "00003.mp3").duration == pytest.approx(1.2, abs=0.01)
    with pytest.raises(ArgumentError, match="sounds: must be 'inside' or 'beside', got 'folder'"):
        systems.page(page, sounds="folder")  # type: ignore[arg-type]
    systems.frame()
    assert "difference" in systems._repr_mimebundle_()["text/html"]


@pytest.mark.parametrize(
    ("sound", "text", "content"),
    [
        (
            "LibriSpeech/84/121/84-121-0001.wav",
            "LibriSpeech/84/121/84-121.trans.txt",
            "84-121-0000 no\n84-121-0001 GO ON\n",
        ),
        ("VCTK/wav48/p225/p225_001.wav", "VCTK/txt/p225/p225_001.txt", "GO ON\n"),
        ("VCTK/wav48_silence_trimmed/p225/p225_001_mic2.wav", "VCTK/txt/p225/p225_001.txt", "GO ON\n"),
        ("mine/wav/a.wav", "mine/txt/a.txt", "GO  ON"),
    ],
)
def test_texts_of_corpora(tmp_path: Path, sound: str, text: str, content: str) -> None:
    for name in (sound, text):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
    CLIP.save(tmp_path / sound)
    (tmp_path / text).write_text(content)
    corpus = Path(sound).parts[0]
    assert vl.collect({"natural": tmp_path / corpus}, metrics=["duration"]).frame()["text"].tolist() == ["GO ON"]


def test_a_pattern_of_one_corpus_is_one_system(tmp_path: Path) -> None:
    for name in ("84/121/84-121-0000", "84/121/84-121-0001", "174/50/174-50-0000"):
        path = tmp_path / "dev" / f"{name}.wav"
        path.parent.mkdir(parents=True, exist_ok=True)
        CLIP.save(path)
    (tmp_path / "dev/84/121/84-121.trans.txt").write_text("84-121-0000 ONE\n84-121-0001 TWO\n")
    frame = vl.collect(f"{tmp_path}/dev/{{speaker}}/{{chapter}}/{{item}}.wav", metrics=["duration"]).frame()
    assert set(frame["system"]) == {"dev"}
    assert set(frame["text"]) == {"ONE", "TWO", UNKNOWN_TEXT}
    assert set(frame["speaker"].astype(str)) == {"84", "174"}
