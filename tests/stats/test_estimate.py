from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats
from statsmodels.stats.multitest import multipletests

from tests.listening.test_design import listening_test
from tests.listening.test_results import choices, rated
from voicelab.errors import ArgumentError
from voicelab.listening.results import analyze
from voicelab.stats import benjamini_hochberg, cliff_delta, holm, standardized_difference, superiority
from voicelab.stats.estimate import Estimate, interval, mean_delta


def test_benjamini_hochberg_example() -> None:
    # Benjamini & Hochberg (1995), section 3.2: 15 p-values of a thrombolysis study; at 0.05 their procedure rejects
    # four, Bonferroni's (and Holm's) three.
    p = [0.0001, 0.0004, 0.0019, 0.0095, 0.0201, 0.0278, 0.0298, 0.0344, 0.0459, 0.3240, 0.4262, 0.5719, 0.6528, 0.7590]
    p.append(1.0)
    assert (benjamini_hochberg(p) <= 0.05).sum() == 4
    assert (holm(p) <= 0.05).sum() == 3


@pytest.mark.parametrize("seed", range(5))
def test_holm_and_benjamini_hochberg_agree_with_statsmodels(seed: int) -> None:
    p = np.random.default_rng(seed).beta(0.4, 2.0, 1 + seed * 7).round(2)
    assert holm(p) == pytest.approx(multipletests(p, method="holm")[1])
    assert benjamini_hochberg(p) == pytest.approx(multipletests(p, method="fdr_bh")[1])


@pytest.mark.parametrize(
    ("low", "high", "text"),
    [(1.0, 2.5, "[1, 2.5]"), (-np.inf, np.inf, "[too few for an interval]"), (np.nan, np.nan, "[too few for an interval]"),
     (2.0, np.inf, "[2, inf]")],
)  # fmt: skip
def test_undefined_interval_is_formatted_with_the_reason(low: float, high: float, text: str) -> None:
    assert interval(low, high) == text
    assert str(Estimate(1.0, low, high, 0.95, 3)) == f"1 {text} (95%, n = 3)"


def test_nan_p_values_do_not_count() -> None:
    assert holm([0.01, np.nan, 0.03]).tolist() == pytest.approx([0.02, np.nan, 0.03], nan_ok=True)
    assert benjamini_hochberg([]).size == 0


@pytest.mark.parametrize("p", [[1.2], [-0.1], [[0.5]]])
def test_invalid_p_values_are_rejected(p: list[float]) -> None:
    with pytest.raises(ArgumentError, match="p_values"):
        holm(p)


def test_cliff_delta_agrees_with_effsize_in_r() -> None:
    # The example of its cliff.delta prints -0.25, from -0.7265846 to 0.3890062.
    delta = cliff_delta([10, 10, 20, 20, 20, 30, 30, 30, 40, 50], [10, 20, 30, 40, 40, 50])
    assert (delta.value, delta.low, delta.high) == pytest.approx((-0.25, -0.7265846, 0.3890062))
    chance = superiority(delta)
    assert (chance.value, chance.low) == pytest.approx((0.375, (1 - 0.7265846) / 2))
    apart = cliff_delta([4, 5, 6], [1, 2, 3])
    assert (apart.value, apart.high) == (1.0, 1.0)
    assert -1.0 < apart.low < 1.0


@pytest.mark.parametrize(("t", "df"), [(2.5, 20.5), (-3.0, 2.05), (0.01, 7.0), (40.0, 5.0)])
def test_standardized_difference_has_a_noncentral_t_interval(t: float, df: float) -> None:
    size = standardized_difference(t * 0.5, 0.5, df, 2.0, n=9)
    assert size.value == pytest.approx(t / 4)
    assert stats.nct.cdf(t, df, size.low * 4) == pytest.approx(0.975, abs=1e-4)
    assert stats.nct.cdf(t, df, size.high * 4) == pytest.approx(0.025, abs=1e-4)


def test_standardized_difference_without_variance_is_nan() -> None:
    assert math.isnan(standardized_difference(1.0, 0.0, 5, 0.0, n=3).value)


def test_deltas_of_texts_are_averaged() -> None:
    delta = mean_delta([0.2, 0.6, 0.4, 0.0], 0.95)
    theirs = stats.ttest_1samp([0.2, 0.6, 0.4, 0.0], 0.0).confidence_interval()
    assert (delta.value, delta.low, delta.high) == pytest.approx((0.3, theirs.low, theirs.high))
    # Clopper and Pearson's bound of 6 of 6, from -1 to 1.
    assert mean_delta([1.0] * 6, 0.95).low == pytest.approx(2 * 0.025 ** (1 / 6) - 1)


def test_listening_tests_have_effect_sizes() -> None:
    table = rated("MOS", {"a": [3.0] * 12, "b": [3.0] * 12}, 8)
    rng = np.random.default_rng(0)
    table["rating"] += rng.normal(0, 0.5, len(table)) + 0.4 * (table.system == "a")
    result = analyze(listening_test("MOS", "ab", items=8), table)
    sizes = result.sizes["a", "b"]
    # 0.4 of an sd of 0.5; a normal a is above a normal b with a chance of Phi(0.8 / sqrt 2).
    assert sizes["standardized difference"].low < 0.8 < sizes["standardized difference"].high
    superior = sizes["probability of superiority"]
    assert superior.low < stats.norm.cdf(0.8 / math.sqrt(2)) < superior.high
    assert superior.value == pytest.approx((1 + sizes["Cliff's delta"].value) / 2)
    assert f"    standardized difference: {sizes['standardized difference']}" in str(result)
    always = analyze(
        listening_test("MOS", "ab", items=8),
        table.assign(rating=np.where(table.system == "a", 5.0, table.rating.clip(upper=4.0))),
    )
    # The interval of unanimous signs agrees with their test: a variance of 1 / 12 and 18 degrees of freedom.
    low = 1.0 - stats.t.isf(0.025, 18) / math.sqrt(12 * 12 * 8)
    assert always.sizes["a", "b"]["Cliff's delta"].low == pytest.approx(low)
    votes = analyze(listening_test("AB", items=8), choices(rng.random((12, 8)) < 0.7))
    ratio, share = votes.sizes["a", "b"]["odds ratio"], votes.crossed["a", "b"].estimate
    assert (ratio.value, ratio.low) == pytest.approx((share.value / (1 - share.value), share.low / (1 - share.low)))
