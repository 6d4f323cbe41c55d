from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from statsmodels.stats.proportion import proportion_confint

from voicelab.errors import ArgumentError
from voicelab.stats import (
    binomial,
    intraclass_correlation,
    krippendorff_alpha,
    mean_opinion_score,
    screen_mushra,
    wilcoxon,
)

# M. Hollander & D. A. Wolfe, "Nonparametric Statistical Methods" (1973), table 3.1: depression of nine patients before
# and after a tranquilizer.
BEFORE = (1.83, 0.50, 1.62, 2.48, 1.68, 1.88, 1.55, 3.06, 1.30)
AFTER = (0.878, 0.647, 0.598, 2.05, 1.06, 1.29, 1.06, 3.14, 1.29)


def test_a_mean_opinion_score_is_scipys_t_interval() -> None:
    votes = [4, 5, 3, 4, 2, 5, 4, 4]
    found = mean_opinion_score(votes)
    theirs = stats.t.interval(0.95, 7, np.mean(votes), stats.sem(votes))
    assert (found.value, found.low, found.high) == pytest.approx((3.875, *theirs))
    assert found.n == 8


def test_votes_of_one_listener_count_once() -> None:
    listeners = np.repeat(np.arange(10), 30)
    rng = np.random.default_rng(1)
    votes = np.clip(np.round(3 + rng.normal(0, 0.8, 10)[listeners] + rng.normal(0, 0.3, 300)), 1, 5)
    found = mean_opinion_score(votes, listeners=listeners.tolist())
    means = votes.reshape(10, 30).mean(axis=1)
    assert (found.low, found.high) == pytest.approx(stats.t.interval(0.95, 9, means.mean(), stats.sem(means)))
    assert found.n == 10
    assert found.high - found.low > 3 * (mean_opinion_score(votes).high - mean_opinion_score(votes).low)


def test_agreement_is_no_certainty_and_no_interval_leaves_the_scale() -> None:
    # With three who agree, up to 1 - 0.025 ** (1 / 3) of all others may vote otherwise (Clopper & Pearson).
    share = binomial(0, 3).estimate.high
    agreed = mean_opinion_score([4, 4, 4])
    assert (agreed.low, agreed.high) == pytest.approx((4.0 - share, 4.0 + share))
    assert mean_opinion_score([5, 5, 5]).high == mean_opinion_score([5, 5, 5, 4]).high == 5.0
    assert mean_opinion_score([1, 1, 2]).low == 1.0


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


def panel(**scores: list[tuple[float, float]]) -> pd.DataFrame:
    """Return ratings of ten items: for each listener (reference, mid-range anchor) of each item."""
    return pd.DataFrame(
        [
            {"listener": name, "item": item, "system": system, "rating": rating}
            for name, rows in scores.items()
            for item, pair in enumerate(rows)
            for system, rating in zip(("reference", "mid"), pair, strict=True)
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


def test_mushra_screening_without_references_or_anchors() -> None:
    table = panel(ann=GOOD, ben=[(80.0, 40.0)] * 10, cid=GOOD)
    some = table[~((table.listener == "cid") & (table.system == "reference"))]
    found = screen_mushra(some, reference="reference", anchor="low")
    assert (found.kept, set(found.excluded)) == (("ann", "cid"), {"ben"})
    assert found.notes == (
        "Listeners who did not rate the hidden reference 'reference', and are not screened by it: cid.",
        "Listeners who did not rate the mid-range anchor 'low', and are not screened by it: all listeners.",
    )
    none = screen_mushra(table[table.system != "reference"], reference="reference")
    assert (none.excluded, len(none.kept), len(none.notes)) == ({}, 3, 1)


def test_twelve_of_sixteen_is_the_classic_abx_result() -> None:
    # 2517 of the 65536 ways in which 16 answers can fall have 12 right or more.
    found = binomial(12, 16, alternative="greater")
    assert found.p == pytest.approx(2517 / 65536)
    assert found.estimate.value == 0.75
    assert binomial(11, 16, alternative="greater").p > 0.05
    assert "p 0.03841" in str(found)


@pytest.mark.parametrize(("successes", "trials"), [(0, 10), (10, 10), (7, 20), (263, 500)])
def test_intervals_agree_with_statsmodels(successes: int, trials: int) -> None:
    found = binomial(successes, trials, alternative="greater", confidence=0.9).estimate
    assert (found.low, found.high) == pytest.approx(proportion_confint(successes, trials, 0.1, "beta"), abs=1e-9)


# P. E. Shrout & J. L. Fleiss, Psychological Bulletin 86 (1979), table 2: six targets, four judges; results in table 4.
JUDGES = [[9, 2, 5, 8], [6, 1, 3, 2], [8, 4, 6, 8], [7, 1, 2, 6], [10, 5, 6, 9], [6, 2, 4, 7]]

# K. Krippendorff, "Computing Krippendorff's alpha-reliability" (2011), section C: four observers, twelve units.
_: float = math.nan
OBSERVERS: list[list[float]] = [
    [1, 2, 3, 3, 2, 1, 4, 1, 2, _, _, _],
    [1, 2, 3, 3, 2, 2, 4, 1, 2, 5, _, 3],
    [_, 3, 3, 3, 2, 3, 4, 2, 2, 5, 1, _],
    [1, 2, 3, 3, 2, 4, 4, 1, 2, 5, 1, _],
]


@pytest.mark.parametrize(("of_mean", "printed"), [(False, 0.29), (True, 0.62)])
def test_shrout_and_fleiss(of_mean: bool, printed: float) -> None:
    assert intraclass_correlation(JUDGES, of_mean=of_mean) == pytest.approx(printed, abs=0.0051)


@pytest.mark.parametrize(("level", "printed"), [("ordinal", 0.815), ("interval", 0.849)])
def test_krippendorffs_observers(level: Any, printed: float) -> None:
    assert krippendorff_alpha(OBSERVERS, level=level) == pytest.approx(printed, abs=0.0006)


def test_agreement_is_one_chance_is_zero_and_sameness_is_neither() -> None:
    table = np.tile(np.arange(1, 6), (4, 3))
    assert krippendorff_alpha(table) == pytest.approx(1.0)
    assert intraclass_correlation(table.T) == pytest.approx(1.0)
    noise = np.random.default_rng(0).integers(1, 6, (4, 3000))
    assert krippendorff_alpha(noise) == pytest.approx(0.0, abs=0.03)
    assert intraclass_correlation(noise.T) == pytest.approx(0.0, abs=0.03)
    assert math.isnan(krippendorff_alpha(np.full((3, 4), 2.0)))
    assert math.isnan(intraclass_correlation(np.full((3, 4), 2.0)))
    # The mean of twenty times 0.7 is not 0.7.
    assert math.isnan(intraclass_correlation(np.full((5, 4), 0.7)))


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda: mean_opinion_score([3]), "votes"),
        (lambda: mean_opinion_score([3, 6]), "votes"),
        (lambda: mean_opinion_score([0, 5]), "votes"),
        (lambda: mean_opinion_score([3, math.nan]), "votes"),
        (lambda: mean_opinion_score(["good", "bad"]), "votes"),
        (lambda: mean_opinion_score([3, 4], listeners=["a"]), "listeners"),
        (lambda: mean_opinion_score([3, 4], listeners=["a", "a"]), "listeners"),
        (lambda: mean_opinion_score([3, 4], confidence=1.0), "confidence"),
        (lambda: wilcoxon([1, 2, 3], [1, 2]), "second"),
        (lambda: wilcoxon([1, 2, 3], [1, 2, 4], alternative="bigger"), "alternative"),  # type: ignore[arg-type]
        (lambda: screen_mushra(panel(ann=GOOD).drop(columns="rating"), reference="reference"), "rating"),
        (lambda: screen_mushra(panel(ann=GOOD).assign(rating=120.0), reference="reference"), "0 to 100"),
        (lambda: binomial(5, 4), "successes"),
        (lambda: binomial(-1, 4), "successes"),
        (lambda: binomial(1, 0), "trials"),
        (lambda: binomial(1.5, 4), "successes"),  # type: ignore[arg-type]
        (lambda: binomial(1, 4, alternative="more"), "alternative"),  # type: ignore[arg-type]
        (lambda: binomial(1, 4, confidence=95), "confidence"),
        (lambda: krippendorff_alpha([[1, _], [_, 2]]), "two ratings"),
        (lambda: krippendorff_alpha([[1, 2], [1, 2]], level="cardinal"), "level"),  # type: ignore[arg-type]
        (lambda: intraclass_correlation(np.array([[1, _], [1, 2]])), "ratings"),
    ],
)
def test_invalid_arguments_are_rejected(call: Callable[[], object], match: str) -> None:
    with pytest.raises(ArgumentError, match=match):
        call()


def test_rounding_errors_are_no_variance() -> None:
    # The means of two and of six times 1.1 differ in the last bit.
    found = mean_opinion_score([1.1] * 8, listeners=["a"] * 2 + ["b"] * 6)
    assert found.high - found.value > 0.5
