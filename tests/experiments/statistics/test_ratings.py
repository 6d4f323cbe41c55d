from __future__ import annotations

import math
from typing import Any, Literal

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from voicelab.errors import RequestInvalid
from voicelab.experiments.statistics import friedman, holm, mean_opinion_score, screen_mushra, wilcoxon

# M. Hollander & D. A. Wolfe, "Nonparametric Statistical Methods" (1973), table 3.1: depression of nine patients before
# and after a tranquilizer.
BEFORE = (1.83, 0.50, 1.62, 2.48, 1.68, 1.88, 1.55, 3.06, 1.30)
AFTER = (0.878, 0.647, 0.598, 2.05, 1.06, 1.29, 1.06, 3.14, 1.29)

# J. Demsar (JMLR 7, 2006), table 6: four variants of a classifier on 14 data sets. The two rounded 0.975 of "voting"
# have the ranks 2 and 3 there, so the first is written a little larger here.
DEMSAR = np.array(
    [
        [0.763, 0.768, 0.771, 0.798],
        [0.599, 0.591, 0.590, 0.569],
        [0.954, 0.971, 0.968, 0.967],
        [0.628, 0.661, 0.654, 0.657],
        [0.882, 0.888, 0.886, 0.898],
        [0.936, 0.931, 0.916, 0.931],
        [0.661, 0.668, 0.609, 0.685],
        [0.583, 0.583, 0.563, 0.625],
        [0.775, 0.838, 0.866, 0.875],
        [1.000, 1.000, 1.000, 1.000],
        [0.940, 0.962, 0.965, 0.962],
        [0.619, 0.666, 0.614, 0.669],
        [0.972, 0.981, 0.9751, 0.975],
        [0.957, 0.978, 0.946, 0.970],
    ]
)


def test_a_mean_opinion_score_is_scipys_t_interval() -> None:
    votes = [4, 5, 3, 4, 2, 5, 4, 4]
    found = mean_opinion_score(votes)
    theirs = stats.t.interval(0.95, 7, np.mean(votes), stats.sem(votes))
    assert (found.value, found.low, found.high) == pytest.approx((3.875, *theirs))
    assert found.n == 8


def test_a_bootstrapped_score_is_close_to_it_and_repeats() -> None:
    votes = np.random.default_rng(0).integers(1, 6, 200)
    plain, drawn = mean_opinion_score(votes), mean_opinion_score(votes, interval="bootstrap", seed=3)
    assert (drawn.low, drawn.high) == pytest.approx((plain.low, plain.high), abs=0.02)
    assert drawn == mean_opinion_score(votes, interval="bootstrap", seed=3)
    assert drawn != mean_opinion_score(votes, interval="bootstrap", seed=4)


def test_votes_of_one_listener_count_once() -> None:
    listeners = np.repeat(np.arange(10), 30)
    rng = np.random.default_rng(1)
    votes = np.clip(np.round(3 + rng.normal(0, 0.8, 10)[listeners] + rng.normal(0, 0.3, 300)), 1, 5)
    found = mean_opinion_score(votes, listeners=listeners.tolist())
    means = votes.reshape(10, 30).mean(axis=1)
    assert (found.low, found.high) == pytest.approx(stats.t.interval(0.95, 9, means.mean(), stats.sem(means)))
    assert found.n == 10
    assert found.high - found.low > 3 * (mean_opinion_score(votes).high - mean_opinion_score(votes).low)


def test_everybody_agreeing_has_no_spread() -> None:
    assert (mean_opinion_score([4, 4, 4]).low, mean_opinion_score([4, 4, 4]).high) == (4.0, 4.0)


@pytest.mark.parametrize(
    "wrong",
    [
        {"votes": [3]},
        {"votes": [3, 6]},
        {"votes": [0, 5]},
        {"votes": [3, math.nan]},
        {"votes": ["good", "bad"]},
        {"votes": [3, 4], "listeners": ["a"]},
        {"votes": [3, 4], "listeners": ["a", "a"]},
        {"votes": [3, 4], "interval": "z"},
        {"votes": [3, 4], "confidence": 1.0},
    ],
)
def test_impossible_votes_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(RequestInvalid):
        mean_opinion_score(**wrong)


def test_hollander_and_wolfes_patients() -> None:
    # Printed there: the sum of ranks 40, P = 0.019 one-sided, an estimate of 0.46, an interval from 0.010 to 0.786.
    found = wilcoxon(BEFORE, AFTER, alternative="greater")
    assert found.statistic == 40
    assert found.p == pytest.approx(0.01953125)
    assert found.estimate.value == pytest.approx(0.46)
    assert (found.estimate.low, found.estimate.high) == pytest.approx((0.010, 0.786))
    assert wilcoxon(BEFORE, AFTER).p == pytest.approx(stats.wilcoxon(BEFORE, AFTER).pvalue)


@pytest.mark.parametrize("alternative", ["two-sided", "greater", "less"])
def test_wilcoxon_of_few_pairs_with_ties_is_exact(alternative: Literal["two-sided", "greater", "less"]) -> None:
    # As ratings of one to five by a dozen listeners are. scipy counts all signs of up to 13 pairs.
    rng = np.random.default_rng(3)
    for pairs in (4, 8, 12):
        differences = rng.integers(1, 6, pairs) - rng.integers(1, 5, pairs)
        differences = differences[differences != 0]
        counted = stats.wilcoxon(
            differences, alternative=alternative, method=stats.PermutationMethod(n_resamples=10**6)
        )
        found = wilcoxon(differences, np.zeros(differences.size), alternative=alternative)
        assert found.p == pytest.approx(counted.pvalue, abs=1e-12)


def test_wilcoxon_with_ties_and_zeros_is_scipys() -> None:
    rng = np.random.default_rng(2)
    ours, theirs = rng.integers(1, 6, (2, 80))
    found = stats.wilcoxon(ours, theirs, method="asymptotic")
    assert wilcoxon(ours, theirs).p == pytest.approx(found.pvalue)
    # In floating point 4.1 - 4.0 and 3.1 - 3.0 differ; they are ties all the same.
    assert wilcoxon(ours + 0.1, theirs).p == wilcoxon(ours * 10 + 1, theirs * 10).p


def test_wilcoxon_of_few_pairs_has_no_limits_and_of_equal_pairs_no_effect() -> None:
    few = wilcoxon([1, 2, 4], [2, 4, 1])
    assert (few.estimate.low, few.estimate.high) == (-math.inf, math.inf)
    same = wilcoxon([3, 4, 4], [3, 4, 4])
    assert (same.p, same.estimate.value) == (1.0, 0.0)


def test_the_interval_of_many_pairs_goes_on_where_the_exact_one_ends() -> None:
    rng = np.random.default_rng(5)
    ours, theirs = rng.normal(0.5, 1, 61), rng.normal(0, 1, 61)
    many, fewer = wilcoxon(ours, theirs).estimate, wilcoxon(ours[:60], theirs[:60]).estimate
    assert (many.low, many.high) == pytest.approx((fewer.low, fewer.high), abs=0.06)


def test_wilcoxon_refuses_what_is_not_paired() -> None:
    with pytest.raises(RequestInvalid, match="second"):
        wilcoxon([1, 2, 3], [1, 2])
    with pytest.raises(RequestInvalid, match="alternative"):
        wilcoxon([1, 2, 3], [1, 2, 4], alternative="bigger")  # type: ignore[arg-type]


def test_demsars_classifiers() -> None:
    # Printed there: mean ranks 3.143, 2.000, 2.893, 1.964; chi squared 9.28 without correction for ties; a critical
    # difference of 1.25 at 0.05 and 1.12 at 0.10, where the first differs from the second and the last.
    found = friedman(DEMSAR, ["C4.5", "C4.5+m", "C4.5+cf", "C4.5+m+cf"], alpha=0.10)
    assert found.mean_ranks == pytest.approx([3.143, 2.000, 2.893, 1.964], abs=0.0006)
    assert 12 * 14 / 20 * (np.square(found.mean_ranks).sum() - 4 * 25 / 4) == pytest.approx(9.28, abs=0.01)
    assert found.critical_difference == pytest.approx(1.12, abs=0.005)
    assert friedman(DEMSAR).critical_difference == pytest.approx(1.25, abs=0.005)
    sure = found.pairs[found.pairs.p_nemenyi <= 0.10]
    assert list(zip(sure["first"], sure["second"], strict=True)) == [("C4.5", "C4.5+m"), ("C4.5", "C4.5+m+cf")]
    theirs = stats.friedmanchisquare(*DEMSAR.T)
    assert (found.statistic, found.p) == pytest.approx((theirs.statistic, theirs.pvalue))
    tests = [wilcoxon(DEMSAR[:, a], DEMSAR[:, b]).p for a in range(4) for b in range(a + 1, 4)]
    assert found.pairs.p_holm.to_numpy() == pytest.approx(holm(tests))


def test_friedman_without_differences_finds_none() -> None:
    found = friedman(np.full((6, 3), 4.0))
    assert (found.statistic, found.p) == (0.0, 1.0)
    assert (found.pairs.p_nemenyi > 0.99).all()


@pytest.mark.parametrize("ratings", [[[1, 2]], [[1, 2, 3]], [[1, 2], [3, 4]], [[1, 2, math.nan], [1, 2, 3]]])
def test_friedman_refuses_too_few(ratings: Any) -> None:
    with pytest.raises(RequestInvalid, match="ratings"):
        friedman(ratings)


def panel(**scores: list[tuple[float, float]]) -> pd.DataFrame:
    """Return ratings of ten items: for each listener (reference, mid-range anchor) of each item."""
    return pd.DataFrame(
        [
            {"listener": name, "item": item, "stimulus": stimulus, "rating": rating}
            for name, rows in scores.items()
            for item, pair in enumerate(rows)
            for stimulus, rating in zip(("reference", "mid"), pair, strict=True)
        ]
    )


GOOD = [(100.0, 40.0)] * 10


def test_the_standards_rule_of_fifteen_percent() -> None:
    once, twice = [(89.0, 40.0), *GOOD[1:]], [(89.0, 40.0)] * 2 + GOOD[2:]
    found = screen_mushra(panel(ann=GOOD, ben=once, cid=twice), reference="reference")
    assert found.kept == ("ann", "ben")
    assert "20%" in found.excluded["cid"]
    assert set(found.frame.listener) == {"ann", "ben"}
    # 90 is not below 90.
    edge = screen_mushra(panel(ann=[(90.0, 40.0)] * 10), reference="reference")
    assert edge.excluded == {}


def test_an_anchor_rated_high_excludes_unless_the_item_hides_it() -> None:
    deaf = [(100.0, 95.0)] * 2 + GOOD[2:]
    listeners = {"deaf": deaf, **dict.fromkeys("abcdefg", GOOD)}
    assert set(screen_mushra(panel(**listeners), reference="reference", anchor="mid").excluded) == {"deaf"}
    # More than a quarter of all listeners did the same with these items: the items are to blame.
    many = {**listeners, "a": deaf, "b": deaf}
    assert screen_mushra(panel(**many), reference="reference", anchor="mid").excluded == {}
    assert screen_mushra(panel(**listeners), reference="reference").excluded == {}


def test_screening_refuses_a_table_that_is_none() -> None:
    table = panel(ann=GOOD)
    with pytest.raises(RequestInvalid, match="rating"):
        screen_mushra(table.drop(columns="rating"), reference="reference")
    with pytest.raises(RequestInvalid, match="0 to 100"):
        screen_mushra(table.assign(rating=120.0), reference="reference")
    with pytest.raises(RequestInvalid, match="never rated 'ref'"):
        screen_mushra(table, reference="ref")
    with pytest.raises(RequestInvalid, match="anchor"):
        screen_mushra(table, reference="reference", anchor="low")
