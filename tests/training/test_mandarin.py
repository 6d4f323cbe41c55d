"""The Mandarin teacher says what our front end reads, and tells when."""

from __future__ import annotations

import ctypes
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from training import mandarin, mixed
from training.speakers import all_speakers
from voicelab.engine.pointer.english import Lexicon, load_guess
from voicelab.engine.pointer.front import FrontEnd
from voicelab.engine.pointer.mandarin import Syllable
from voicelab.engine.pointer.phones import ALL_PHONES
from voicelab.engine.text.normalize import normalize


def _installed() -> bool:
    try:
        ctypes.CDLL("libespeak-ng.so.1")
    except OSError:
        return False
    return True


needs_teacher = pytest.mark.skipif(not _installed(), reason="libespeak-ng1 is not installed")


@pytest.mark.parametrize(
    ("initial", "final", "spelled"),
    [
        ("j", "van", "juan3"),
        ("x", "v", "xu3"),
        ("n", "v", "nv3"),
        ("l", "ve", "lve3"),
        ("l", "iou", "liu3"),
        ("g", "uei", "gui3"),
        ("q", "vn", "qun3"),
        ("zh", "ir", "zhi3"),
        ("c", "iz", "ci3"),
        ("", "i", "yi3"),
        ("", "iong", "yong3"),
        ("", "ing", "ying3"),
        ("", "u", "wu3"),
        ("", "uen", "wen3"),
        ("", "van", "yuan3"),
        ("", "er", "er3"),
        ("ch", "uang", "chuang3"),
    ],
)
def test_a_syllable_is_spelled_as_in_pinyin(initial: str, final: str, spelled: str) -> None:
    assert mandarin.pinyin(Syllable("", initial, final, 3)) == spelled


def test_its_speakers_are_nobody_elses() -> None:
    mine, others = {s.id for s in mandarin.speakers()}, {s.id for s in all_speakers()}
    assert len(mine) == mandarin.SPEAKERS
    assert not mine & others
    assert mandarin.speakers() == mandarin.speakers()


@needs_teacher
@pytest.mark.parametrize(
    "text",
    [
        "我们今天去学校，玩儿一会儿好吗？",
        "你好。再见！",
        "百分之三十五的葡萄、女儿和花儿。",
        "我用Python写hello world，好吗？",
        "OK, the 鱼.",
    ],
)
def test_phones_are_those_of_the_front_end_and_their_times_fill_the_audio(text: str) -> None:
    speaker = mandarin.speakers()[9]
    rng = np.random.default_rng(0)
    both = any(c.isascii() for c in text)
    said = mixed.speak(text, speaker, rng, mixed.front()) if both else mandarin.speak(text, speaker, rng)
    assert said is not None
    front = FrontEnd(Lexicon(load_guess()), ("en", "zh"))
    told = [ALL_PHONES[i] for i in front.read(normalize(text, front.languages).text).phones]
    # The teacher hears no word after its own stretch: "the" before a vowel.
    assert [p.name for p in said.phones] == told
    ends = [p.end for p in said.phones]
    assert all(a < b for a, b in pairwise(ends))
    assert ends[-1] == pytest.approx(said.audio(speaker).size / 44_100, abs=1e-3)


@needs_teacher
def test_a_text_that_it_cannot_read_is_dropped() -> None:
    rng = np.random.default_rng(0)
    assert mandarin.speak("你好 hello", mandarin.speakers()[0], rng) is None
    assert mandarin.speak("...", mandarin.speakers()[0], rng) is None


@needs_teacher
def test_tones_are_heard_in_the_pitch() -> None:
    """The first tone ends higher than the third, the second rises and the fourth falls."""
    from voicelab.audio.analysis import f0
    from voicelab.audio.clip import Clip

    speaker = mandarin.speakers()[9]
    said = mandarin.speak("衣，移，椅，意。", speaker, np.random.default_rng(0))
    assert said is not None
    contour = f0(Clip(samples=said.audio(speaker), rate=44_100))
    found = {}
    begin = 0.0
    for phone in said.phones:
        if phone.name.startswith("zh_i"):
            inside = (contour.times > begin + 0.03) & (contour.times < phone.end - 0.03)
            found[int(phone.name[-1])] = 12 * np.log2(contour.values[inside & ~np.isnan(contour.values)])
        begin = phone.end
    assert found[1].mean() > found[3].mean() + 3
    assert found[2][-1] > found[2][0] + 1.5
    assert found[4][-1] < found[4][0] - 2


@needs_teacher
def test_its_speakers_read_english_to_be_compared_with() -> None:
    fast, slow = (replace(mandarin.speakers()[0], stretch=stretch) for stretch in (0.8, 1.6))
    said = [mixed.english("The birch canoe slid on the smooth planks.", who).audio(who) for who in (fast, slow)]
    assert all(np.abs(samples).max() > 0.1 for samples in said)
    assert said[1].size > 1.5 * said[0].size
