"""Words as files: what is written is read again, and what other tools write too."""

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
def test_what_is_saved_is_loaded_again(suffix: str, tmp_path: Path) -> None:
    path = WORDS.save(tmp_path / f"a.{suffix}")
    clip = Clip(np.zeros(8000, np.float32), 8000)
    loaded = Clip.load(clip.to_bytes(), words=path)
    assert loaded.words == WORDS
    assert pickle.loads(pickle.dumps(loaded)).words == WORDS  # noqa: S301 (our own)


def test_a_textgrid_states_the_clips_length_and_has_no_holes() -> None:
    assert Words((WordTime("a", 0.1, 0.2),), 0.5).duration == 0.5
    assert Clip(np.zeros(8000, np.float32), 8000, Words((WordTime("a", 0.1, 0.2),))).words.duration == 1.0


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_the_short_form_of_praat_is_read_in_its_encodings(encoding: str, tmp_path: Path) -> None:
    path = tmp_path / "short.TextGrid"
    path.write_bytes(SHORT.replace("\n", "\r\n").encode(encoding))
    assert Words.load(path) == (WordTime("one", 0.75, 2.0),)


def test_cues_of_others_are_read(tmp_path: Path) -> None:
    path = tmp_path / "cues.vtt"
    path.write_text("WEBVTT\n\nNOTE by hand\n\n1\n00:01.000 --> 00:02.500 align:start\n<v Ann>Good\nmorning\n", "utf-8")
    assert Words.load(path) == (WordTime("Good morning", 1.0, 2.5),)


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("a.txt", "", "does not end in"),
        ("a.srt", "nothing", "no srt file"),
        ("a.TextGrid", "nothing", "no TextGrid file"),
        ("a.TextGrid", SHORT[:-20], "no TextGrid file"),
        ("a.srt", "1\n00:00:02,000 --> 00:00:01,000\nback\n", "no srt file"),
    ],
)
def test_what_is_none_of_these_is_named(name: str, text: str, said: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text, encoding="utf-8")
    with pytest.raises(AudioError, match=said):
        Words.load(tmp_path / name)


def test_a_textgrid_has_a_tier_for_each_kind_and_no_overlaps() -> None:
    regions = Words((WordTime("all", 0.5, 1.5), WordTime('"a" part', 1.0, 2.0)), 3.0)
    text = textgrid({"words": Words((WordTime("one", 0.1, 0.4),)), "regions": regions})
    assert text.count("xmax = 3.000000") == 5, "all tiers are as long as the sound"
    assert 'name = "regions"' in text
    assert 'xmin = 1.500000\nxmax = 2.000000\ntext = """a"" part"' in text
