from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.integrate import quad
from scipy.stats import binom, binomtest, nct, norm, t
from statsmodels.stats.power import TTestPower

from voicelab.errors import ArgumentError
from voicelab.stats import (
    CrossedTest,
    Estimate,
    SequentialTest,
    choice_power,
    rating_power,
    ratings_needed,
    trials_needed,
)
from voicelab.stats.crossed import complete_tables, crossed_mean


@pytest.mark.parametrize("trials", [1, 5, 6, 16, 100])
@pytest.mark.parametrize("alternative", ["greater", "two-sided"])
def test_choice_power_agrees_with_the_binomial_test(trials: int, alternative: Any) -> None:
    counts = np.arange(trials + 1)
    significant = np.array([binomtest(int(k), trials, 0.5, alternative).pvalue <= 0.05 for k in counts])
    assert choice_power(trials, 0.7, alternative=alternative) == pytest.approx(
        float(binom.pmf(counts, trials, 0.7)[significant].sum())
    )


@pytest.mark.parametrize("alternative", ["greater", "two-sided"])
@pytest.mark.parametrize("share", [0.6, 0.75, 0.95])
def test_trials_needed_keep_the_power_for_larger_samples(share: float, alternative: Any) -> None:
    count = trials_needed(share, alternative=alternative)
    assert choice_power(count - 1, share, alternative=alternative) < 0.8
    after = [choice_power(count + more, share, alternative=alternative) for more in range(60)]
    assert min(after) >= 0.8


def test_share_below_chance_has_power_two_sided_only() -> None:
    assert trials_needed(0.3) == trials_needed(0.7)
    with pytest.raises(ArgumentError, match=r"share: must be above 0\.5, got 0\.3"):
        trials_needed(0.3, alternative="greater")


@pytest.mark.parametrize("listeners", [3, 12, 60])
def test_rating_power_agrees_with_statsmodels(listeners: int) -> None:
    theirs = TTestPower().power(0.6, listeners, 0.05)
    assert rating_power(listeners, 0.3, 0.5) == pytest.approx(theirs, abs=1e-6)


def test_ratings_needed_is_the_smallest_number_with_the_power() -> None:
    count = ratings_needed(0.2, 0.7)
    assert rating_power(count - 1, 0.2, 0.7) < 0.8 <= rating_power(count, 0.2, 0.7)


@pytest.mark.parametrize(
    "call",
    [
        lambda: trials_needed(0.5),
        lambda: trials_needed(0.5001),
        lambda: trials_needed(0.7, power=1.0),
        lambda: choice_power(0, 0.7),
        lambda: choice_power(10, 1.0),
        lambda: choice_power(10, 0.7, alternative="less"),  # type: ignore[arg-type]
        lambda: rating_power(1, 0.5, 1.0),
        lambda: rating_power(10, 0.5, 0.0),
        lambda: ratings_needed(0.0, 1.0),
        lambda: ratings_needed(1e-6, 1.0),
        lambda: SequentialTest(alpha=0.6),
        lambda: SequentialTest(max_listeners=1),
        lambda: SequentialTest(margin=0.0),
    ],
)
def test_invalid_plans_are_rejected(call: Any) -> None:
    with pytest.raises(ArgumentError):
        call()


def crossed(estimate: float, error: float, df: float, listeners: int = 12, **options: Any) -> CrossedTest:
    """Return a crossed test of a difference with these figures, of 8 items."""
    point = Estimate(estimate, estimate, estimate, 0.95, listeners)
    return CrossedTest("", 0.0, 0.0, point, error, df, **{"sd": (0.5, 0.5, 0.7), "items": 8, **options})


@pytest.mark.parametrize("df", [5.0, 11.0, 40.0])
def test_sequential_interval_ends_where_the_mixture_reaches_its_limit(df: float) -> None:
    # Wang and Ramdas: the likelihood ratio of t, mixed over normal effects with an SD of one, is 1 / alpha.
    high = SequentialTest().interval(crossed(0.0, 1.0, df, 50)).high
    assert SequentialTest().interval(crossed(0.0, 1.0, 100.0, round(df) + 1)).high == high
    ratio, _ = quad(lambda d: nct.pdf(high, df, d * (df + 1) ** 0.5) * norm.pdf(d), -5, 5, epsrel=1e-6)
    assert ratio / t.pdf(high, df) == pytest.approx(20.0, rel=1e-3)
    assert high > t.ppf(0.975, df)


def test_sequential_decisions() -> None:
    rule = SequentialTest(max_listeners=20, margin=0.5)
    half_width = rule.interval(crossed(0.0, 1.0, 11.0)).high
    assert rule.decide(crossed(half_width * 1.01, 1.0, 11.0)) == "effect"
    assert rule.decide(crossed(half_width * 0.99, 1.0, 11.0)) == "continue"
    assert rule.decide(crossed(0.0, 0.49 / half_width, 11.0)) == "equivalent"
    assert SequentialTest(max_listeners=12).decide(crossed(0.0, 1.0, 11.0)) == "no effect"
    # Two listeners tell nothing; shares stay from 0 to 1, and their null is 0.5.
    early = rule.interval(crossed(0.9, 0.01, 20.0, 2, scale=(0.0, 1.0)))
    assert (early.low, early.high) == (0.0, 1.0)
    assert rule.decide(crossed(0.99, 0.01, 30.0, scale=(0.0, 1.0))) == "effect"
    assert rule.advice(crossed(0.0, 0.25, 11.0, sd=(0.2, 0.5, 0.1))).startswith(
        "more items shorten the interval most: "
    )
    assert "more listeners" in rule.advice(crossed(0.0, 0.25, 11.0, sd=(0.9, 0.2, 0.1)))


@pytest.mark.parametrize("kind", ["MOS", "AB"])
def test_sequential_test_keeps_its_level_at_every_listener(kind: str) -> None:
    rng, rule, stopped = np.random.default_rng(3), SequentialTest(max_listeners=30), {0.0: 0, 1.0: 0}
    for difference in stopped:
        effects = rng.normal(0, 0.8, (150, 30, 1)) + rng.normal(0, 0.8, (150, 1, 8)) + difference
        tables = np.rint(effects + rng.normal(0, 1, (150, 30, 8)))
        if kind == "AB":
            tables = (effects + rng.logistic(size=(150, 30, 8)) > 0).astype(float)
        scale, stop = ((0.0, 1.0) if kind == "AB" else (-math.inf, math.inf)), np.zeros(150, bool)
        for listeners in range(2, 31):
            mean, error, df, _ = complete_tables(tables[:, :listeners], 1.0)
            studies = zip(mean, error, df, strict=True)
            tests = (crossed(float(m), float(e), float(d), listeners, scale=scale) for m, e, d in studies)
            stop |= [rule.decide(test) == "effect" for test in tests]
        stopped[difference] = int(stop.sum())
    # 0.05 of 150 exceeds 16 once in 1,000 times.
    assert stopped[0.0] <= 16
    assert stopped[1.0] > 45


@pytest.mark.thorough  # the nightly run installs anytimemonitor
def test_sequential_intervals_agree_with_anytimemonitor() -> None:
    package = pytest.importorskip("anytimemonitor")
    rng, shape = np.random.default_rng(53), (2, 40, 24)
    level = 3 + rng.normal(0, 0.35, (2, 40, 1)) + rng.normal(0, 0.2, (2, 1, 24)) + rng.normal(0, 0.4, shape[1:])
    ratings = np.clip(np.rint(level + np.array([0.8, 0.0])[:, None, None] + rng.normal(0, 0.7, shape)), 1, 5)
    system, listener, item = map(np.ravel, np.indices(shape))
    columns = {"listener_id": listener, "item": item, "system": system, "rating": ratings.ravel()}
    monitor = package.AnytimeMonitor(0.5, avci_n_planned=24)
    monitor.add_ratings(pd.DataFrame(columns))
    theirs = monitor.decision(0, 1)
    ours = crossed_mean((ratings[0] - ratings[1]).ravel(), listener[:960], item[:960], step=1.0)
    interval = SequentialTest().interval(ours)
    assert theirs.diff_mean == pytest.approx(interval.value)
    assert (theirs.verdict, SequentialTest().decide(ours)) == ("STOP", "effect")
    assert 0 < max(theirs.ci_lo, interval.low) < 0.8 < min(theirs.ci_hi, interval.high)
    assert interval.high - interval.low == pytest.approx(theirs.ci_hi - theirs.ci_lo, rel=0.3)
