from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from scipy import stats

from tests.stats.test_mixed import PENICILLIN
from voicelab.errors import ArgumentError
from voicelab.stats import crossed_mean, crossed_share
from voicelab.stats.crossed import complete_tables
from voicelab.stats.mixed import RestrictedLikelihood, indicators


def test_satterthwaite_df_of_penicillin_data() -> None:
    # lmerTest prints 5.49 degrees of freedom for the mean of lme4's model, whose error is 0.8086.
    zones = [float(row[place : place + 2]) for row in PENICILLIN.split() for place in range(0, 12, 2)]
    found = crossed_mean(zones, np.repeat(np.arange(24), 6), list("ABCDEF") * 24, null=20.0)
    reach = (found.estimate.high - found.estimate.low) / 2
    assert found.statistic == pytest.approx((22.9722 - 20) / 0.8086, rel=1e-3)
    assert reach / 0.8086 == pytest.approx(stats.t.ppf(0.975, 5.49), rel=2e-3)
    # Clark's quasi F of the mean has Satterthwaite's degrees of freedom in closed form.
    cells = np.array(zones).reshape(24, 6)
    rest = cells - cells.mean(1, keepdims=True) - cells.mean(0, keepdims=True) + cells.mean()
    rows, columns = 6 * cells.mean(1).var(ddof=1), 24 * cells.mean(0).var(ddof=1)
    residual = np.square(rest).sum() / (23 * 5)
    df = (rows + columns - residual) ** 2 / (rows**2 / 23 + columns**2 / 5 + residual**2 / 115)
    assert reach / 0.8086 == pytest.approx(stats.t.ppf(0.975, df), rel=2e-3)


@pytest.mark.parametrize(
    ("values", "listeners", "items", "argument"),
    [
        ([1, 2, 3], "abc", "xxx", "items"),
        ([1, 2, 3], "aaa", "xyz", "listeners"),
        ([2, 2, 2], "abc", "xyz", "values"),
        ([1, 2, 3], "ab", "xyz", "listeners"),
        ([1, math.nan, 3], "abc", "xyz", "values"),
    ],
)
def test_single_listeners_and_items_are_rejected(values: Any, listeners: str, items: str, argument: str) -> None:
    with pytest.raises(ArgumentError, match=f"^{argument}: "):
        crossed_mean(values, list(listeners), list(items))


def test_one_value_per_listener_and_item_agrees_with_student() -> None:
    values = [0.3, 1.2, 0.8, 1.9, -0.4]
    found = crossed_mean(values, range(5), range(5))
    theirs = stats.ttest_1samp(values, 0.0)
    assert (found.statistic, found.p) == pytest.approx((theirs.statistic, theirs.pvalue))


def votes(seed: int, listeners: int, items: int, spread: float, lead: float = 0.0) -> tuple[Any, Any, Any]:
    """Return choices of a logistic model, with who chose and on what."""
    rng = np.random.default_rng(seed)
    who, what = (axis.ravel() for axis in np.indices((listeners, items)))
    own, its = rng.normal(0, spread, listeners)[who], rng.normal(0, spread, items)[what]
    return (own + its + rng.logistic(lead, 1, who.size) > 0).astype(float), who, what


def test_share_recovers_the_planted_value() -> None:
    tested = crossed_share(*votes(1, 60, 60, 1.0, lead=0.8))
    # The mean of the logistic function over the normal spread of both.
    logits = 0.8 + np.random.default_rng(0).normal(0, math.sqrt(2), 200_000)
    assert tested.estimate.low < np.mean(1 / (1 + np.exp(-logits))) < tested.estimate.high
    assert tested.name == "crossed random effects of 60 listeners and 60 items, two-sided"
    # p and interval are one.
    edge = tested.interval(1 - tested.p)
    assert min(abs(edge.low - 0.5), abs(edge.high - 0.5)) == pytest.approx(0, abs=1e-6)
    assert tested.p_above(0.5) == pytest.approx(tested.p / 2)


def test_share_of_constant_listeners_agrees_with_student() -> None:
    # Each listener always answers alike, on many sentences.
    chosen = np.repeat([1.0, 1, 1, 1, 1, 0], 400)
    tested = crossed_share(chosen, np.repeat(np.arange(6), 400), np.tile(np.arange(400), 6))
    theirs = stats.ttest_1samp([1.0, 1, 1, 1, 1, 0], 0.5)
    assert (tested.p, tested.df) == pytest.approx((theirs.pvalue, 5))
    assert tested.estimate.high == 1.0


@pytest.mark.parametrize(("listeners", "items", "own", "lead"), [(5, 8, 0.5, 0.5), (12, 5, 0.1, 1.0), (4, 4, 0.0, 0.0)])
def test_complete_tables_agree_with_reml(listeners: int, items: int, own: float, lead: float) -> None:
    rng = np.random.default_rng(listeners)
    tables = rng.normal(0, own, (8, listeners, 1)) + rng.normal(0, lead, (8, 1, items))
    tables = tables + rng.normal(0, 1, (8, listeners, items))
    mean, error, df, sd = complete_tables(tables)
    who, what = (axis.ravel() for axis in np.indices((listeners, items)))
    parts = [indicators(who), indicators(what)]
    for place, table in enumerate(tables):
        likelihood = RestrictedLikelihood(parts, np.ones((who.size, 1)), table.ravel())
        ratios, _ = likelihood.maximum()
        fit = likelihood.at(ratios)
        assert (fit.mean[0], fit.covariance[0, 0]) == pytest.approx((mean[place], error[place] ** 2), rel=1e-3)
        assert likelihood.degrees(ratios)(np.ones(1)) == pytest.approx(df[place], rel=1e-2)
        assert np.sqrt([*(ratios * fit.residual), fit.residual]) == pytest.approx(
            [float(part[place]) for part in sd], rel=1e-2, abs=1e-2
        )


@pytest.mark.parametrize("shape", [(6, 5), (5, 6), (7, 3), (12, 8)])
def test_single_deviating_response_has_no_variance_components(shape: tuple[int, int]) -> None:
    # All mean squares are equal but for rounding, which once took one of them for a variance: 4 degrees of freedom.
    for place in range(shape[0] * shape[1]):
        table = np.full(shape, 0.5)
        table.flat[place] = -0.5
        _, error, df, (own, lead, _) = complete_tables(table)
        assert [float(df), float(own), float(lead)] == [table.size - 1, 0.0, 0.0]
        assert error == pytest.approx(table.std(ddof=1) / math.sqrt(table.size))


@pytest.mark.parametrize("shape", [(6, 6), (12, 8)])
def test_type_i_error_of_equal_shares(shape: tuple[int, int]) -> None:
    # At 0.05, 10 of 60 come once in 1,000 times; with the items taken as fixed there were 22 and 29.
    assert sum(crossed_share(*votes(seed, *shape, 1.0)).p < 0.05 for seed in range(60)) < 10


@pytest.mark.parametrize("gaps", [False, True])
@pytest.mark.parametrize(("listeners", "items"), [(24, 12), (12, 4), (2, 12), (60, 6)])
def test_unanimous_values_have_the_least_p(listeners: int, items: int, gaps: bool) -> None:
    who, what = (axis.ravel() for axis in np.indices((listeners, items)))
    rated = (np.arange(who.size) % 7 != 5) | ~np.full(who.size, gaps)
    ps = []
    for against in (5, 3, 2, 1, 0):
        values = (np.arange(who.size) * 5 % who.size >= against).astype(float)[rated]
        ps.append(crossed_share(values, who[rated], what[rated]).p)
        rounded = crossed_mean(3.0 * values, who[rated], what[rated], step=1.0)
        assert rounded.p < (0.3 if listeners == 2 else 0.01)
    assert min(ps) == ps[-1] < (0.02 if listeners == 2 else 0.001)
    assert rounded.p < 0.001
    assert rounded.estimate.low > 0.0
    # The least variance is that of rounding; with 0.5 as the distance.
    least = crossed_share(np.ones(rated.sum()), who[rated], what[rated])
    assert least.statistic == pytest.approx(0.5 / math.sqrt(1 / 12 / rated.sum()))
    fewest = min(listeners, items)
    assert (least.estimate.high, least.df) == (1.0, fewest if fewest <= 5 else listeners + items - 2)


def test_type_i_error_with_gaps_and_few_distinct_values() -> None:
    rng, hits = np.random.default_rng(3), 0
    who, what = (axis.ravel() for axis in np.indices((10, 8)))
    for _ in range(150):
        rated = rng.random(80) < 0.6
        values = rng.choice([-1.0, 0.0, 1.0], 80, p=[0.05, 0.9, 0.05])[rated]
        hits += crossed_mean(values, who[rated], what[rated], step=1.0).p <= 0.05
    assert hits <= 15
