"""Word errors of known strings, and properties of the intervals."""

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


def test_rate_weights_sentences_by_words() -> None:
    assert rate([Score(1, 1), Score(0, 9)]) == pytest.approx(0.1)


def _draw(error_rate: float, seed: int, count: int = 300) -> list[Score]:
    return [Score(int(e), 8) for e in np.random.default_rng(seed).binomial(8, error_rate, count)]


def test_coverage_of_the_rate_interval() -> None:
    inside = 0
    for seed in range(100):
        interval = rate_interval(_draw(0.15, seed, 80), repeats=300, seed=seed)
        inside += interval.low <= 0.15 <= interval.high
    assert 86 <= inside <= 100


def test_ratio_of_a_system_to_itself_is_1() -> None:
    scores = _draw(0.1, 1)
    assert ratio(scores, scores).rounded() == {"value": 1.0, "low": 1.0, "high": 1.0}


def test_ratio_of_a_system_with_twice_the_errors() -> None:
    interval = ratio(_draw(0.24, 1), _draw(0.12, 2))
    assert interval.low > 1.5
    assert interval.high < 2.7
    assert interval.low < interval.value < interval.high


def test_pairing_narrows_the_interval() -> None:
    """If both systems fail on the same sentences, the interval of their ratio is narrow."""
    rng = np.random.default_rng(0)
    hard = rng.beta(0.5, 3.0, 300)
    baseline = [Score(int(e), 8) for e in rng.binomial(8, hard)]
    worse = [Score(min(8, s.errors + int(rng.random() < 0.3)), 8) for s in baseline]
    paired = ratio(worse, baseline)
    shuffled = ratio([worse[int(i)] for i in rng.permutation(300)], baseline)
    assert paired.high - paired.low < 0.75 * (shuffled.high - shuffled.low)


def test_different_sentences_are_rejected() -> None:
    with pytest.raises(SystemExit, match="same sentences"):
        ratio([Score(0, 3)], [Score(0, 4)])


def test_interval_is_deterministic_by_seed() -> None:
    scores = _draw(0.2, 3, 50)
    assert stats.rate_interval(scores, seed=4) == stats.rate_interval(scores, seed=4)


def test_mean_interval_narrows_with_more_sentences() -> None:
    values = np.random.default_rng(1).normal(3.0, 0.5, 400)
    narrow_sample, wide_sample = mean_interval(values[:25]), mean_interval(values)
    assert wide_sample.low < 3.0 < wide_sample.high
    assert wide_sample.value == pytest.approx(values.mean())
    assert 3 < (narrow_sample.high - narrow_sample.low) / (wide_sample.high - wide_sample.low) < 5
    assert wide_sample.high - wide_sample.low == pytest.approx(2 * 1.96 * 0.5 / 20, rel=0.15)
