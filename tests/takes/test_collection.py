"""Recordings of one's own: every kind of source, what is odd, what is left out, and what can be done with them then."""

from __future__ import annotations

import io
import itertools
import json
import time
import wave
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import av
import numpy as np
import pandas as pd
import pytest

import voicelab as vl
from tests.speechlike import RATE, speechlike
from voicelab.errors import ArgumentError, AudioError, StoreError
from voicelab.listening.webmushra import export_webmushra
from voicelab.metrics import level
from voicelab.views.sweep_tables import table_bundle

TEXTS = {"s1": "Rice tastes good today.", "s2": "Glue dries fast.", "s3": "Birds sing early every morning."}
PITCH = {"low": 110.0, "high": 220.0}


def spoken(item: str, pitch: float) -> vl.Clip:
    return vl.Clip(speechlike(1.0 + int(item[1:]) / 10, pitch, noise=1e-4), RATE)


def in_container(clip: vl.Clip, container: str, codec: str, channels: int = 1) -> bytes:
    """The clip as other programs keep it."""
    layout = "mono" if channels == 1 else "stereo"
    data = io.BytesIO()
    with av.open(data, "w", format=container) as target:
        stream = target.add_stream(codec, rate=clip.rate, layout=layout)
        assert isinstance(stream, av.AudioStream)
        frame = av.AudioFrame.from_ndarray(np.tile(clip.samples[None], (channels, 1)), format="fltp", layout=layout)
        frame.sample_rate = clip.rate
        resampler = av.AudioResampler(format=stream.codec_context.format, layout=layout, rate=clip.rate)
        for piece in [*resampler.resample(frame), *resampler.resample(None)]:
            target.mux(stream.encode(piece))
        target.mux(stream.encode(None))
    return data.getvalue()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two systems, three items; texts beside the recordings of one."""
    for system, pitch in PITCH.items():
        for item, text in TEXTS.items():
            (tmp_path / "samples" / system).mkdir(parents=True, exist_ok=True)
            spoken(item, pitch).save(tmp_path / "samples" / system / f"{item}.wav")
            if system == "high":
                (tmp_path / "samples" / system / f"{item}.lab").write_text(text + "\n")
    return tmp_path / "samples"


def test_a_pattern_makes_systems_that_are_compared_like_any_others(folder: Path, tmp_path: Path) -> None:
    systems = vl.collect(folder / "{system}" / "{item}.wav", metrics=("duration", "loudness", "words", "first_audio_s"))
    assert systems.systems == ("high", "low")
    assert repr(systems) == "TakeTable(item: 3, system: 2; 6 takes)"
    frame = systems.frame().set_index(["item", "system"])
    assert frame["text"].tolist() == [text for text in TEXTS.values() for _ in PITCH]
    assert frame.index.tolist() == [(item, system) for item in TEXTS for system in ("high", "low")]
    assert not {"seed", "first_audio_s", "cached", "error"} & set(systems.frame("duration"))  # nothing was synthesized
    assert set(frame["words"]) == {3.0, 4.0, 5.0}  # of the texts beside the other system's recordings
    assert "has no chunk arrival times" in frame["undefined"].iloc[0]
    assert frame["duration"]["s1"].nunique() == 1
    for _, one in frame["loudness"].groupby("item"):
        assert np.ptp(one) < 0.01
    assert systems.summary().loc["duration", "low difference"] == pytest.approx(0)
    assert systems.compare("s2").names == ("high", "low")
    assert systems.compare("s2").differences().empty  # nothing was asked for
    assert len(systems.listening_test("AB").items) == len(TEXTS)
    page = systems.page(tmp_path / "page.html").read_text()
    assert page.count("<audio") == 6
    assert "loudness-matched" in page


def test_repeats_of_recordings_without_texts_are_one_text_of_a_listening_test(tmp_path: Path) -> None:
    for speaker, item, repeat, system in itertools.product("xy", ("s1", "s2"), (1, 2), PITCH):
        path = tmp_path / system / f"{speaker}-{item}-{repeat}.wav"
        path.parent.mkdir(exist_ok=True)
        spoken(item, PITCH[system] + repeat).save(path)
    systems = vl.collect(tmp_path / "{system}" / "{speaker}-{item}-{repeat}.wav")
    test = systems.listening_test("AB")
    assert len(test.items) == 8
    assert [*test.texts.values()] == [f"{item}, {speaker}" for item in ("s1", "s2") for speaker in "xy" for _ in (1, 2)]
    assert not systems.select(repeat=systems.column("repeat").values[0]).listening_test("AB").texts


def test_files_are_decoded_and_filtered_once_per_measurement(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    systems = vl.collect(folder, metrics=("duration", "loudness", "true_peak"))
    calls: Counter[str] = Counter()
    for owner, name in ((vl.Take, "clip"), (level, "_block_powers"), (level, "_interpolated_peak")):
        work = getattr(owner, name)

        def counted(subject: object, name: str = name, work: Callable[[object], object] = work) -> object:
            calls[name] += 1
            return work(subject)

        monkeypatch.setattr(owner, name, counted)
    frame = systems.frame()
    assert dict(calls) == {"clip": 6, "_block_powers": 6, "_interpolated_peak": 6}
    monkeypatch.undo()
    assert frame["duration_s"].tolist() == frame["duration"].tolist()
    computed = vl.measure([systems.clip_of(row) for row in systems.rows], ["loudness", "true_peak"])
    np.testing.assert_allclose(frame[["loudness", "true_peak"]], computed[["loudness", "true_peak"]], atol=1e-4)


def test_further_fields_are_columns(folder: Path) -> None:
    for file in folder.rglob("*.wav"):
        file.rename(file.with_name(f"anna_{file.name}"))
    for system in ("high", "low"):
        spoken("s1", 100.0).save(folder / system / "ben_s1.wav")
    systems = vl.collect(f"{folder}/{{system}}/{{speaker}}_{{sentence}}.wav", metrics=["duration"])
    assert set(systems.frame()["speaker"]) == {"anna", "ben"}
    assert set(systems.frame()["item"]) == {"anna s1", "anna s2", "anna s3", "ben s1"}


def sources(folder: Path, tmp_path: Path) -> Mapping[str, object]:
    files = [(path, path.parent.name, path.stem) for path in sorted(folder.rglob("*.wav"))]
    rows = [{"path": str(path), "system": system, "item": item, "text": TEXTS[item]} for path, system, item in files]
    pd.DataFrame(rows).to_csv(tmp_path / "list.csv", index=False)
    lines = [json.dumps({**row, "file_name": row.pop("path"), "mood": "calm"}) for row in map(dict, rows)]
    (folder / "metadata.jsonl").write_text("\n".join(lines))
    test = vl.ListeningTest(
        "ours", "MOS", {item: {name: spoken(item, pitch) for name, pitch in PITCH.items()} for item in TEXTS}
    )
    return {
        "folders": {name: folder / name for name in PITCH},
        "paths": [path for path, _, _ in files],
        "rows": rows,
        "frame": pd.DataFrame(rows),
        "csv": tmp_path / "list.csv",
        "audiofolder": folder,
        "webmushra": export_webmushra(test, tmp_path / "test"),
    }


def test_every_kind_of_source_gives_the_same_systems(folder: Path, tmp_path: Path) -> None:
    pairs = vl.collect(folder, metrics=["duration"])
    assert (set(pairs.systems), len(pairs)) == (set(PITCH), 6)
    for kind, source in sources(folder, tmp_path).items():
        systems = vl.collect(source, metrics=["duration"])
        assert set(systems.systems) == set(PITCH), kind
        durations = systems.frame().set_index(["system", "item"])["duration"].sort_index()
        # Files of webMUSHRA's have one length in each item, and one rate.
        theirs = pairs.frame().set_index(["system", "item"])["duration"].sort_index()
        pd.testing.assert_series_equal(durations, theirs, atol=1e-3)
    assert set(vl.collect(folder, metrics=["duration"]).frame()["mood"]) == {"calm"}


def test_a_missing_file_is_named_and_its_item_left_out_or_refused(folder: Path) -> None:
    (folder / "low" / "s2.wav").unlink()
    systems = vl.collect(folder, metrics=["duration"])
    assert systems.notes == ("Items excluded because a system lacks them: s2 (not in low).",)
    file = str(folder / "high" / "s2.wav")
    assert systems.excluded == ({"item": "s2", "system": "high", "file": file, "reason": "the item is not in low"},)
    assert set(systems.frame()["item"]) == {"s1", "s3"}
    assert "s2 (not in low)" in table_bundle(systems)["text/html"]
    with pytest.raises(ArgumentError, match=r"missing: .* s2 \(not in low\)"):
        vl.collect(folder, missing="refuse")
    with pytest.raises(ArgumentError, match="at least one item must have recordings of all systems"):
        vl.collect({"a": folder / "low" / "s1.wav", "b": folder / "low" / "s3.wav"})


def test_a_listed_file_that_does_not_exist_is_unreadable(folder: Path) -> None:
    missing, listed = folder / "mid" / "s1.wav", [folder / "high" / "s1.wav"]
    with pytest.raises(StoreError, match=f"^{missing} cannot be read: No such file"):
        vl.collect([*listed, missing])
    with pytest.raises(ArgumentError, match=r"s1 \(not in mid\).* 1 of 2 files cannot be read"):
        vl.collect([*listed, missing], on_error="skip")
    with pytest.raises(StoreError, match=f"^{folder / 'mid'} cannot be read: No such file"):
        vl.collect({"high": folder / "high", "mid": folder / "mid"})
    systems = vl.collect([*listed, folder / "low" / "s1.wav", missing.with_name("low") / "s9.wav"], on_error="skip")
    assert [row["reason"] for row in systems.excluded] == ["cannot be read: No such file or directory"]


def test_what_is_odd_is_noted_and_measured_all_the_same(folder: Path) -> None:
    clip = spoken("s1", 110)
    vl.Clip(np.zeros(RATE, np.float32), RATE).save(folder / "low" / "s1.wav")
    (folder / "low" / "s2.wav").write_bytes(in_container(clip.resample(8000), "wav", "pcm_s16le", channels=2))
    vl.Clip(np.clip(clip.samples * 50, -1, 1), RATE).save(folder / "low" / "s3.wav")
    systems = vl.collect(folder, metrics=["duration", "loudness"])
    notes = "\n".join(systems.notes)
    for words in (
        'low: note on 1 recording, "It is silent": s1.wav.',
        'low: note on 1 recording, "It is clipped": s3.wav.',
        '"It has 2 channels, which were averaged": s2.wav.',
        '"It has a sample rate of 8000 Hz, so its bandwidth ends at 4000 Hz": s2.wav.',
    ):
        assert words in notes
    assert systems.frame().set_index(["item", "system"])["loudness"].isna().to_dict()[("s1", "low")]


def test_antiphase_channels_and_dc_offsets_are_noted(tmp_path: Path) -> None:
    clip = spoken("s1", 110)
    vl.Clip(np.clip(clip.samples - 0.02, -1, 1), RATE).save(tmp_path / "dc.wav")
    with wave.open(str(tmp_path / "antiphase.wav"), "wb") as file:
        file.setparams((2, 2, RATE, 0, "NONE", ""))
        mono = (clip.samples * 16_000).astype("<i2")
        file.writeframes(np.stack([mono, -mono], axis=1).tobytes())
    wordings = {
        "dc.wav": "a DC offset of -2 % of full scale, which lowers SNR and changes pauses and F0",
        "antiphase.wav": "channels are in antiphase and cancel when averaged",
    }
    frame = vl.measure(tmp_path, ["duration"])
    notes = dict(zip(frame["file"], frame["notes"], strict=True))
    collected = vl.collect(tmp_path, metrics=["duration"]).notes
    for name, wording in wordings.items():
        assert wording in notes[str(tmp_path / name)]
        assert any(wording in note and name in note for note in collected)


def test_an_untested_metric_stays_in_the_summary_with_the_reason(folder: Path) -> None:
    for item in TEXTS:
        vl.Clip(np.random.default_rng(0).standard_normal(RATE, np.float32) * np.float32(0.1), RATE).save(
            folder / "low" / f"{item}.wav"
        )
    systems = vl.collect(folder, metrics=["duration", "jitter", "loudness"])
    summary, found = systems.summary(), systems.effects()
    assert list(summary.index) == ["duration", "jitter", "loudness"]
    undefined = [column for column in summary.columns if column != "high"]
    assert summary.loc["jitter", undefined].isna().all()
    for note in (
        "jitter is not tested: low has 0 of the 2 required values (no voiced interval",
        "loudness is measured after it was matched",
    ):
        assert note in summary.attrs["note"]
        assert note in " ".join(found.notes)
        assert note in systems.page(folder / "a.html").read_text()


@pytest.mark.parametrize(("container", "codec"), [("mp4", "aac"), ("aiff", "pcm_s16be"), ("webm", "libopus")])
def test_other_formats_are_read_and_damage_names_the_file(tmp_path: Path, container: str, codec: str) -> None:
    clip = spoken("s3", 150).resample(48_000)
    file = tmp_path / f"a.{container}"
    file.write_bytes(in_container(clip, container, codec))
    (take,) = vl.collect([file])
    assert take.clip().rate == 48_000
    assert take.clip().duration == pytest.approx(clip.duration, abs=0.06)
    assert take.suffix == container
    file.write_bytes(file.read_bytes()[: file.stat().st_size * 2 // 3])
    with pytest.raises(StoreError, match=f"a.{container} has changed since it was collected"):
        take.clip()
    with pytest.raises(AudioError, match=f"a.{container}: "):
        vl.collect([file])


def test_bytes_that_name_other_files_are_none(tmp_path: Path) -> None:
    clip = spoken("s1", 150).save(tmp_path / "secret.wav")
    for text in (f"ffconcat version 1.0\nfile '{clip}'\n", f"#EXTM3U\n#EXTINF:1,\n{clip}\n"):
        (tmp_path / "list.wav").write_text(text)
        with pytest.raises(AudioError, match=r"list\.wav"):
            vl.collect([tmp_path / "list.wav"])


def test_a_long_file_is_cut_by_regions(tmp_path: Path) -> None:
    long = vl.Clip(np.concatenate([spoken(item, 150).samples for item in TEXTS]), RATE)
    long.save(tmp_path / "talk.flac.wav")
    rows = [
        {"path": tmp_path / "talk.flac.wav", "item": "a", "start": 0, "end": 1.1, "text": "One."},
        {"path": tmp_path / "talk.flac.wav", "item": "b", "start": 1.1, "end": float("nan"), "text": "Two."},
    ]
    first, second = vl.collect(rows)
    assert first.source == "talk.flac.wav#t=0,1.1"
    assert first.clip() == vl.Clip.load(long.slice(0, 1.1).to_bytes())
    assert second.clip().duration == pytest.approx(long.duration - 1.1, abs=1e-3)
    for start, end, listed in ((9, None, "9.0 s to the end"), (-1, 1, "-1.0 s to 1.0 s"), (1, 0.5, "1.0 s to 0.5 s")):
        with pytest.raises(AudioError, match=rf"talk\.flac\.wav: {listed} must be an interval of its \d"):
            vl.collect([{**rows[0], "start": start, "end": end}])
    with pytest.raises(ArgumentError, match="source: must be a pattern, folder, table or list of paths"):
        vl.collect(5)
    with pytest.raises(
        ArgumentError, match="must have start and end in seconds; row 1 has start 'early'; row 2 has end '5 s'"
    ):
        vl.collect([{**rows[0], "start": "early"}, {**rows[0], "end": "5 s"}])


def test_texts_that_are_nowhere_are_unknown_or_recognised_and_it_says_by_whom(folder: Path) -> None:
    class Ears:
        name = "these ears"

        def recognise(self, samples: np.ndarray, rate: int) -> str:
            return "good day"

    unknown = vl.collect(folder / "low", metrics=["words"])
    assert unknown.frame()["undefined"].eq("words: the clip's text is unknown").all()
    heard = vl.collect(folder / "low", metrics=["words"], transcribe=Ears())
    assert heard.frame()["words"].eq(2).all()
    assert heard.frame()["text_by"].eq("recognized by these ears").all()
    assert "Its text was recognized by these ears." in heard.takes[0].notes
    given = vl.collect(folder, transcribe=Ears())
    assert "text_by" not in given.frame("duration")


def test_two_texts_of_one_item_are_refused(folder: Path) -> None:
    (folder / "low" / "s1.txt").write_text("Something else.")
    with pytest.raises(
        ArgumentError, match="text: must be the same in all recordings of an item, got 'Rice tastes good today"
    ):
        vl.collect(folder)


def test_what_is_no_source(tmp_path: Path) -> None:
    for source, match in ((tmp_path, "contains no sound files"), (tmp_path / "{system}.wav", "no sound file matches")):
        with pytest.raises(StoreError, match=match):
            vl.collect(source)
    with pytest.raises(
        ArgumentError,
        match=r"must have a file in every row, in a column path, file, .*; rows 1, 3 have item; row 2 has none",
    ):
        vl.collect([{"item": "a"}, {"path": ""}, {"item": "b", "text": None}])
    with pytest.raises(StoreError, match=r"a\.wav cannot be read"):
        vl.collect([tmp_path / "a.wav"])
    with pytest.raises(StoreError, match="none cannot be read: No such file"):
        vl.collect({"ours": tmp_path / "none", "theirs": tmp_path / "a.wav"})


def test_a_run_keeps_them_with_their_digests(folder: Path, tmp_path: Path) -> None:
    systems = vl.collect(folder)
    kept = vl.load(systems.export(tmp_path / "run", "run").parent)
    assert kept.run.problems == ()
    assert [take.digest for take in kept.takes] == [take.digest for take in systems.takes]
    assert kept.takes[0].clip() == systems.takes[0].clip()
    assert kept.takes[0].source == "s1.wav"
    assert list(kept.frame("duration")["item"]) == list(systems.frame("duration")["item"])


def test_exports_are_read_back(folder: Path, tmp_path: Path) -> None:
    systems = vl.collect(folder, metrics=["duration"])
    again = vl.collect(systems.export(tmp_path / "hf", "audiofolder").parent, metrics=["duration"])
    columns = ["item", "system", "repeat", "text", "duration"]
    pd.testing.assert_frame_equal(again.frame()[columns], systems.frame()[columns])
    yaml = systems.export(tmp_path / "mushra", "webmushra", name="ours")
    assert set(vl.collect(yaml).systems) == set(PITCH)
    lines = systems.export(tmp_path / "lj", "ljspeech").read_text().splitlines()
    assert lines[0] == "0-s1|Rice tastes good today.|Rice tastes good today."
    assert (tmp_path / "lj" / "wavs" / "0-s1.wav").is_file()
    kaldi = systems.export(tmp_path / "kaldi", "kaldi").parent
    ids = [line.split()[0] for line in (kaldi / "wav.scp").read_text().splitlines()]
    assert ids == sorted(ids)
    assert [line.split()[0] for line in (kaldi / "text").read_text().splitlines()] == ids
    card = (kaldi / "README.md").read_text()
    assert "6 recordings" in card
    assert "| high | 3 |" in card
    assert len((kaldi / "SHA256SUMS").read_text().splitlines()) == 6
    assert systems.export(tmp_path / "plain").name == "takes.csv"
    with pytest.raises(ArgumentError, match=r"layout: must be one of files, run, audiofolder.* got 'zip'"):
        systems.export(tmp_path / "zip", "zip")


@pytest.mark.thorough
def test_a_thousand_files_are_collected_and_measured_in_a_minute(tmp_path: Path) -> None:
    """As slowly as two cores do it beside other work; the files last 2.5 s each."""
    clip = vl.Clip(speechlike(2.5, noise=1e-3), RATE)
    for system in "abcde":
        (tmp_path / system).mkdir()
        for item in range(200):
            clip.save(tmp_path / system / f"{item}.wav")
    shown: list[str] = []

    def progress(items: Iterable[object], about: str, *, total: int) -> Iterable[object]:
        shown.append(f"{total} {about}")
        return items

    began = time.monotonic()
    systems = vl.collect(tmp_path, jobs=2, progress=progress)
    assert len(systems.frame()) == 1000
    assert time.monotonic() - began < 60
    assert shown == ["1000 files", "1000 clips"]
