"""Word errors of known strings, and intervals that behave as intervals must."""

from __future__ import annotations

import numpy as np
import pytest
import stats
from hypothesis import given
from hypothesis import strategies as st
from stats import Score, mean_interval, rate, rate_interval, ratio, word_errors


@pytest.mark.parametrize(
    ("reference", "hypothesis", "errors"),
    [
        ("the cat sat", "the cat sat", 0),
        ("the cat sat", "the bat sat", 1),
        ("the cat sat", "the sat", 1),
        ("the cat sat", "the big cat sat", 1),
        ("the cat sat", "", 3),
        ("", "the cat", 2),
        ("a b c d", "b c d e", 2),
        ("roller blade", "rollerblade", 2),
    ],
)
def test_word_errors(reference: str, hypothesis: str, errors: int) -> None:
    assert word_errors(reference.split(), hypothesis.split()) == Score(errors, len(reference.split()))


_WORDS = st.lists(st.sampled_from("abc"), max_size=8)


@given(_WORDS, _WORDS, _WORDS)
def test_word_errors_are_a_distance(a: list[str], b: list[str], c: list[str]) -> None:
    assert word_errors(a, a).errors == 0
    assert word_errors(a, b).errors == word_errors(b, a).errors
    assert word_errors(a, c).errors <= word_errors(a, b).errors + word_errors(b, c).errors


def test_rate_weighs_sentences_by_their_words() -> None:
    assert rate([Score(1, 1), Score(0, 9)]) == pytest.approx(0.1)


def _draw(error_rate: float, seed: int, count: int = 300) -> list[Score]:
    return [Score(int(e), 8) for e in np.random.default_rng(seed).binomial(8, error_rate, count)]


def test_the_interval_covers_the_true_rate_about_as_often_as_it_says() -> None:
    inside = 0
    for seed in range(100):
        found = rate_interval(_draw(0.15, seed, 80), repeats=300, seed=seed)
        inside += found.low <= 0.15 <= found.high
    assert 86 <= inside <= 100


def test_the_ratio_of_a_system_to_itself_is_one_without_doubt() -> None:
    scores = _draw(0.1, 1)
    assert ratio(scores, scores).rounded() == {"value": 1.0, "low": 1.0, "high": 1.0}


def test_a_system_twice_as_bad_is_found_so() -> None:
    found = ratio(_draw(0.24, 1), _draw(0.12, 2))
    assert found.low > 1.5
    assert found.high < 2.7
    assert found.low < found.value < found.high


def test_pairing_narrows_the_interval() -> None:
    """When both systems fail on the same hard sentences, most of the doubt falls out of their ratio."""
    rng = np.random.default_rng(0)
    hard = rng.beta(0.5, 3.0, 300)
    baseline = [Score(int(e), 8) for e in rng.binomial(8, hard)]
    worse = [Score(min(8, s.errors + int(rng.random() < 0.3)), 8) for s in baseline]
    paired = ratio(worse, baseline)
    shuffled = ratio([worse[int(i)] for i in rng.permutation(300)], baseline)
    assert paired.high - paired.low < 0.75 * (shuffled.high - shuffled.low)


def test_different_sentences_are_refused() -> None:
    with pytest.raises(SystemExit, match="same sentences"):
        ratio([Score(0, 3)], [Score(0, 4)])


def test_the_same_seed_gives_the_same_interval() -> None:
    scores = _draw(0.2, 3, 50)
    assert stats.rate_interval(scores, seed=4) == stats.rate_interval(scores, seed=4)


def test_the_interval_of_a_mean_narrows_with_more_sentences() -> None:
    values = np.random.default_rng(1).normal(3.0, 0.5, 400)
    few, many = mean_interval(values[:25]), mean_interval(values)
    assert many.low < 3.0 < many.high
    assert many.value == pytest.approx(values.mean())
    assert 3 < (few.high - few.low) / (many.high - many.low) < 5
    assert many.high - many.low == pytest.approx(2 * 1.96 * 0.5 / 20, rel=0.15)
