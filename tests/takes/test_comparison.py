from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from tests.speechlike import RATE, speechlike
from voicelab.audio.words import Words, WordTime
from voicelab.call import Call
from voicelab.clip import Clip, Take
from voicelab.errors import ArgumentError
from voicelab.lab import Lab, connect
from voicelab.metrics import measure
from voicelab.metrics.level import loudness
from voicelab.metrics.metric import Subject
from voicelab.schema import TTSRequest
from voicelab.takes.comparison import Alignment, Comparison, align, compare

SHORT_TEXT = "Glue the sheet."


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    with connect() as lab:
        yield lab


@pytest.fixture(scope="module")
def comparison(lab: Lab) -> Comparison:
    return compare(
        lab.speak(SHORT_TEXT, seed=1),
        lab.speak(SHORT_TEXT, seed=1, temperature=1.0, prosody={"volume": 6}),
        hot=lab.speak(SHORT_TEXT, seed=2),
    )


def test_names_differences_and_figures(comparison: Comparison) -> None:
    assert comparison.names == ("A", "B", "hot")
    assert comparison.same_text
    table = comparison.differences()
    assert set(table.index) == {"temperature", "prosody.volume", "seed"}
    assert list(table.loc["seed"]) == [1, 1, 2]
    figures = comparison.metrics()
    assert list(figures.index) == ["A", "B", "hot"]
    assert figures["duration"].to_list() == pytest.approx([clip.duration for clip in comparison.clips.values()])
    assert repr(comparison).startswith("Comparison(A ")


def test_distances_are_from_the_first() -> None:
    # Two semitones higher, and five.
    voices = [Clip(speechlike(2.0, pitch=140 * 2 ** (up / 12)), RATE) for up in (0, 2, 5)]
    table = compare(*voices).metrics("log_f0_rmse", "mfcc_distance", "duration")
    assert table["log_f0_rmse"].tolist() == pytest.approx([0.0, 2.0, 5.0], abs=0.25)
    assert table["mfcc_distance"]["A"] == 0.0
    assert (table["mfcc_distance"][["B", "C"]] > 0.0).all()
    assert (table["undefined"] == "").all()


def test_one_loudness_and_the_same_words(comparison: Comparison) -> None:
    levels = [loudness(Subject(clip)) for clip in comparison.matched.clips.values()]
    assert np.ptp(levels) < 0.05
    assert comparison.matched.gains["A"] - comparison.matched.gains["B"] > 3
    assert {name: found.method for name, found in comparison.alignments.items()} == {"B": "words", "hot": "words"}


def test_what_stays_without_a_kernel(comparison: Comparison) -> None:
    bundle = comparison._repr_mimebundle_()
    assert set(bundle) == {"text/html", "image/png", "text/plain"}
    assert bundle["text/html"].count("<audio controls ") == 3
    assert "temperature" in bundle["text/html"]
    assert "Loudness, LUFS" in bundle["text/html"]
    assert bundle["text/plain"] == repr(comparison)
    assert comparison._repr_mimebundle_() == bundle


def test_a_blind_test_of_it(comparison: Comparison) -> None:
    test = comparison.listening_test("AB", seed=1)
    assert test.name == "Listening test"  # the title that listeners read
    assert test.systems == comparison.names
    assert len(test.trials(0)) == 3


def test_what_cannot_be_compared(lab: Lab) -> None:
    clip = Clip(np.zeros(100, np.float32), 24_000)
    for clips in ((clip,), (clip,) * 9):
        with pytest.raises(ArgumentError, match="must be 2 to 8 clips"):
            compare(*clips)
    with pytest.raises(ArgumentError, match="names of clips must be unique, got"):
        compare(clip, clip, A=clip)
    with pytest.raises(ArgumentError, match="names of clips must be unique"):
        compare({"A": clip}, clip)
    with pytest.raises(ArgumentError, match=r"must be a Clip .*, got int"):
        compare({"one": clip, "two": 2})  # type: ignore[dict-item]
    assert compare({"take 1": clip, "take 2": clip}).names == ("take 1", "take 2")
    with pytest.raises(ArgumentError, match=r"must be a Clip .*, got str"):
        compare(clip, b="text")  # type: ignore[arg-type]
    assert compare(clip, clip).differences().empty


TEXT = "The birch canoe slid on the smooth planks."


def without_words(clip: Clip) -> Clip:
    return replace(clip, words=Words())


def moments(one: Clip, two: Clip) -> list[tuple[float, float]]:
    """Return the beginnings of the words in both: what an alignment should find."""
    return [(a.start, b.start) for a, b in zip(one.words, two.words, strict=True)]


def to_second(found: Alignment, seconds: float) -> float:
    """Where in the second clip a moment of the first is."""
    return float(np.interp(seconds, found.first, found.second))


def test_features_find_the_words(lab: Lab) -> None:
    errors: list[float] = []
    in_step: list[float] = []
    for seed in range(3):
        one = lab.speak(TEXT, seed=seed)
        two = lab.speak(TEXT, seed=seed + 10, temperature=1.0, prosody={"speed": 0.8}, voice="iris")
        found = align(without_words(one), without_words(two))
        assert found.method == "features"
        errors += [abs(to_second(found, a) - b) for a, b in moments(one, two)]
        in_step += [abs(a * two.duration / one.duration - b) for a, b in moments(one, two)]
    assert np.median(errors) < 0.05
    assert max(errors) < 0.2
    assert np.mean(errors) < 0.5 * np.mean(in_step)


def test_there_and_back_it_rises(lab: Lab) -> None:
    one, two = lab.speak(TEXT, seed=1), lab.speak(TEXT, seed=3)
    for found in (align(one, two), align(without_words(one), without_words(two))):
        times = np.linspace(0, one.duration, 300)
        there = np.array([to_second(found, time) for time in times])
        assert (np.diff(there) > 0).all()
        assert (there[0], there[-1]) == (0.0, pytest.approx(two.duration))
        assert (np.diff(found.first) > 0).all()


def test_words_are_exact() -> None:
    noise = np.random.default_rng(0).standard_normal(48_000).astype(np.float32) * 0.1
    first = Clip(noise[:24_000], 24_000, words=Words((WordTime("The", 0.1, 0.3), WordTime("birch", 0.4, 0.9))))
    second = Clip(noise, 24_000, words=Words((WordTime("the", 0.5, 0.8), WordTime("birch", 1.0, 1.9))))
    found = align(first, second)
    assert found.method == "words"
    assert to_second(found, 0.65) == pytest.approx(1.45)


def test_silence_runs_in_step(lab: Lab) -> None:
    clip = without_words(lab.speak(TEXT, seed=1))
    found = align(clip, Clip(np.zeros(22_050, np.float32), 22_050))
    assert found.method == "time"
    assert found.reason
    assert to_second(found, clip.duration / 2) == pytest.approx(0.5)


def saying(text: str, clip: Clip) -> Clip:
    request = TTSRequest(text=text, format="wav")
    return replace(clip, take=Take(Call(request, "s1"), b""))


def test_different_texts_have_no_words_in_common(lab: Lab) -> None:
    clip = lab.speak(TEXT, seed=1)
    other = without_words(saying("These days a chicken leg is a rare dish, as everybody knows.", clip))
    with pytest.raises(ArgumentError, match=r"the clips have different texts, 'The birch canoe") as caught:
        align(clip, other)
    assert caught.value.argument == "second"
    # Signs and capitals are not heard.
    assert align(clip, saying("the birch canoe slid, on the smooth planks", clip)).method == "words"
    # Side by side they can be heard all the same, and it is told.
    both = compare(clip, other)
    assert (both.same_text, both.alignments["B"].method) == (False, "time")
    assert "different texts" in both.alignments["B"].reason
    assert repr(both).endswith("; different texts, aligned by time)")
    row = measure([other], ["mfcc_distance", "log_f0_rmse"], reference=clip).iloc[0]
    assert np.isnan(row.mfcc_distance)
    assert np.isnan(row.log_f0_rmse)
    assert "mfcc_distance: the clips cannot be aligned: the clips have different texts" in row.undefined


TONE_RATE = 16_000


def tone(hertz: float, level: float, seconds: float = 1.0) -> Clip:
    """A tone between two pauses of a quarter of its length, that calls itself a word."""
    time = np.arange(round(seconds * TONE_RATE)) / TONE_RATE
    sound = level * np.sin(2 * np.pi * hertz * time)
    quiet = np.zeros(round(seconds / 4 * TONE_RATE))
    samples = np.concatenate([quiet, sound, quiet]).astype(np.float32)
    return Clip(samples, TONE_RATE, words=Words((WordTime("tone", seconds / 4, seconds * 1.25),)))


def test_an_octave_and_six_decibels_at_the_same_word() -> None:
    found = compare(tone(200, 0.2), slow=tone(400, 0.4, 2.0)).contours["slow"]
    assert found.times.shape == found.f0.shape == found.energy.shape == (150,)
    inside = slice(32, 118)
    assert found.f0[inside] == pytest.approx(12.0, abs=0.05)
    assert found.energy[inside] == pytest.approx(6.02, abs=0.05)
    # Nothing is voiced in a pause, and how quiet a pause is does not count.
    assert np.isnan(found.f0[:15]).all()
    assert found.energy[:15] == pytest.approx(6.02, abs=0.05)


def test_octave_errors_of_a_few_frames_are_no_difference() -> None:
    low, high = tone(200, 0.2), tone(400, 0.6)
    samples = low.samples.copy()
    errors = slice(round(0.7 * TONE_RATE), round(0.76 * TONE_RATE))
    samples[errors] = high.samples[errors]
    found = compare(low, B=Clip(samples, TONE_RATE, words=low.words)).contours["B"]
    assert np.nanmax(np.abs(found.f0)) < 2
    assert np.isfinite(found.f0[32:65]).mean() > 0.9


def test_silence_has_no_pitch_to_differ_from() -> None:
    silent = Clip(np.zeros(TONE_RATE, np.float32), TONE_RATE)
    found = compare(silent, tone(200, 0.2)).contours["B"]
    assert np.isnan(found.f0).all()
    assert np.isfinite(found.energy).all()
