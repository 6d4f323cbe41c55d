"""Word timestamps in TextGrid, SRT and WebVTT files, of voicelab and of other tools."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest

from voicelab.audio.words import Words, WordTime, textgrid
from voicelab.clip import Clip
from voicelab.errors import AudioError

WORDS = Words(
    (WordTime('say "hi"', 0.25, 0.5), WordTime("d\u00e9j\u00e0", 0.5, 1.125), WordTime("vu", 61.5, 62.0)), 63.0
)
SHORT = """File type = "ooTextFile"
Object class = "TextGrid"

0
2
<exists>
2
"TextTier"
"marks"
0
2
1
0.5
"5"
"IntervalTier"
"words"
0
2
2
0
0.75
""
0.75
2
"one"
"""


@pytest.mark.parametrize("suffix", ["TextGrid", "srt", "vtt"])
def test_save_load_round_trip(suffix: str, tmp_path: Path) -> None:
    path = WORDS.save(tmp_path / "new" / f"a.{suffix}")
    clip = Clip(np.zeros(8000, np.float32), 8000)
    loaded = Clip.load(clip.to_bytes(), words=path)
    assert loaded.words == WORDS
    assert pickle.loads(pickle.dumps(loaded)).words == WORDS  # noqa: S301 (created above)


def test_duration_is_that_of_the_clip() -> None:
    assert Words((WordTime("a", 0.1, 0.2),), 0.5).duration == 0.5
    assert Clip(np.zeros(8000, np.float32), 8000, Words((WordTime("a", 0.1, 0.2),))).words.duration == 1.0


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_short_textgrid_is_loaded_in_every_encoding(encoding: str, tmp_path: Path) -> None:
    path = tmp_path / "short.TextGrid"
    path.write_bytes(SHORT.replace("\n", "\r\n").encode(encoding))
    assert Words.load(path) == (WordTime("one", 0.75, 2.0),)


def test_vtt_with_notes_and_markup_is_loaded(tmp_path: Path) -> None:
    path = tmp_path / "cues.vtt"
    path.write_text("WEBVTT\n\nNOTE by hand\n\n1\n00:01.000 --> 00:02.500 align:start\n<v Ann>Good\nmorning\n", "utf-8")
    assert Words.load(path) == (WordTime("Good morning", 1.0, 2.5),)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.txt", "", "suffix must be"),
        ("a.srt", "nothing", "not a valid srt file"),
        (
            "a.TextGrid",
            "nothing",
            "not a valid TextGrid file: expected text in quotation marks, got the end of the file",
        ),
        ("a.TextGrid", SHORT[:-20], "not a valid TextGrid file"),
        ("a.TextGrid", SHORT.partition("<exists>")[0], "expected a number, got the end of the file"),
        ("a.TextGrid", SHORT.replace('"one"', "1"), "expected text in quotation marks, got 1.0"),
        ("a.srt", "1\n00:00:02,000 --> 00:00:01,000\nback\n", "not a valid srt file"),
    ],
)
def test_invalid_files_are_named(name: str, text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text, encoding="utf-8")
    with pytest.raises(AudioError, match=message):
        Words.load(tmp_path / name)


def test_textgrid_tiers_have_equal_duration_and_no_overlaps() -> None:
    regions = Words((WordTime("all", 0.5, 1.5), WordTime('"a" part', 1.0, 2.0)), 3.0)
    text = textgrid({"words": Words((WordTime("one", 0.1, 0.4),)), "regions": regions})
    assert text.count("xmax = 3.000000") == 5, "all tiers must have the duration of the clip"
    assert 'name = "regions"' in text
    assert 'xmin = 1.500000\nxmax = 2.000000\ntext = """a"" part"' in text
