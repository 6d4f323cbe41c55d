from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from voicelab.audio.clip import Clip, Provenance, Timing, WordTime
from voicelab.errors import RequestInvalid
from voicelab.experiments.comparison.alignment import align
from voicelab.experiments.comparison.comparison import compare
from voicelab.experiments.metrics import measure
from voicelab.lab import Lab, connect
from voicelab.schema import TTSRequest

TEXT = "The birch canoe slid on the smooth planks."


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    with connect() as lab:
        yield lab


def without_words(clip: Clip) -> Clip:
    return replace(clip, words=())


def moments(one: Clip, two: Clip) -> list[tuple[float, float]]:
    """Return the beginnings of the words in both: what an alignment should find."""
    return [(a.start, b.start) for a, b in zip(one.words, two.words, strict=True)]


def test_features_find_the_words(lab: Lab) -> None:
    errors: list[float] = []
    in_step: list[float] = []
    for seed in range(3):
        one = lab.speak(TEXT, seed=seed)
        two = lab.speak(TEXT, seed=seed + 10, temperature=1.0, prosody={"speed": 0.8}, voice=lab.voices[1])
        found = align(without_words(one), without_words(two))
        assert found.method == "features"
        errors += [abs(found.to_second(a) - b) for a, b in moments(one, two)]
        in_step += [abs(a * two.duration / one.duration - b) for a, b in moments(one, two)]
    assert np.median(errors) < 0.05
    assert max(errors) < 0.2
    assert np.mean(errors) < 0.5 * np.mean(in_step)


def test_the_voices_own_words_are_used(lab: Lab) -> None:
    one, two = lab.speak(TEXT, seed=1), lab.speak(TEXT, seed=2, prosody={"speed": 0.8})
    found = align(one, two)
    assert found.method == "words"
    assert all(found.to_second(a) == pytest.approx(b, abs=2e-3) for a, b in moments(one, two))


def test_there_and_back_it_rises(lab: Lab) -> None:
    one, two = lab.speak(TEXT, seed=1), lab.speak(TEXT, seed=3)
    for found in (align(one, two), align(without_words(one), without_words(two))):
        times = np.linspace(0, one.duration, 300)
        there = np.array([found.to_second(time) for time in times])
        assert (np.diff(there) > 0).all()
        assert (there[0], there[-1]) == (0.0, pytest.approx(two.duration))
        np.testing.assert_allclose([found.to_first(time) for time in there], times, atol=1e-6)


def test_words_are_exact() -> None:
    noise = np.random.default_rng(0).standard_normal(48_000).astype(np.float32) * 0.1
    first = Clip(noise[:24_000], 24_000, words=(WordTime("The", 0.1, 0.3), WordTime("birch", 0.4, 0.9)))
    second = Clip(noise, 24_000, words=(WordTime("the", 0.5, 0.8), WordTime("birch", 1.0, 1.9)))
    found = align(first, second)
    assert found.method == "words"
    assert found.to_second(0.65) == pytest.approx(1.45)
    assert found.to_first(1.45) == pytest.approx(0.65)


def test_silence_runs_in_step(lab: Lab) -> None:
    clip = without_words(lab.speak(TEXT, seed=1))
    found = align(clip, Clip(np.zeros(22_050, np.float32), 22_050))
    assert found.method == "time"
    assert found.reason
    assert found.to_second(clip.duration / 2) == pytest.approx(0.5)


def saying(text: str, clip: Clip) -> Clip:
    request = TTSRequest(text=text, format="wav")
    return replace(clip, provenance=Provenance(request, "s1", "test", "test", None, Timing(0.0, 0.0, ())))


def test_different_texts_have_no_words_in_common(lab: Lab) -> None:
    clip = lab.speak(TEXT, seed=1)
    other = without_words(saying("These days a chicken leg is a rare dish, as everybody knows.", clip))
    with pytest.raises(RequestInvalid, match=r"they say different texts, 'The birch canoe") as caught:
        align(clip, other)
    assert caught.value.errors[0].field == "text"
    # Signs and capitals are not heard.
    assert align(clip, saying("the birch canoe slid, on the smooth planks", clip)).method == "words"
    # Side by side they can be heard all the same, and it is told.
    both = compare(clip, other)
    assert (both.same_text, both.alignments["B"].method) == (False, "time")
    assert "different texts" in both.alignments["B"].reason
    assert repr(both).endswith("; different texts, which run in step)")
    row = measure([other], ["mcd", "log_f0_rmse"], reference=clip).iloc[0]
    assert np.isnan(row.mcd)
    assert np.isnan(row.log_f0_rmse)
    assert "mcd: what is said cannot be aligned: they say different texts" in row.undefined
