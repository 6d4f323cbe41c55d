from __future__ import annotations

import numpy as np
import pytest
from statsmodels.stats.multitest import multipletests

from voicelab.errors import ArgumentError
from voicelab.experiments.statistics import benjamini_hochberg, holm
from voicelab.experiments.statistics.estimate import Estimate, interval


def test_the_example_of_benjamini_and_hochberg() -> None:
    # Benjamini & Hochberg (1995), section 3.2: 15 p-values of a thrombolysis study; at 0.05 their procedure rejects
    # four, Bonferroni's (and Holm's) three.
    p = [0.0001, 0.0004, 0.0019, 0.0095, 0.0201, 0.0278, 0.0298, 0.0344, 0.0459, 0.3240, 0.4262, 0.5719, 0.6528, 0.7590]
    p.append(1.0)
    assert (benjamini_hochberg(p) <= 0.05).sum() == 4
    assert (holm(p) <= 0.05).sum() == 3


@pytest.mark.parametrize("seed", range(5))
def test_both_agree_with_statsmodels(seed: int) -> None:
    p = np.random.default_rng(seed).beta(0.4, 2.0, 1 + seed * 7).round(2)
    assert holm(p) == pytest.approx(multipletests(p, method="holm")[1])
    assert benjamini_hochberg(p) == pytest.approx(multipletests(p, method="fdr_bh")[1])


@pytest.mark.parametrize(
    ("low", "high", "text"),
    [(1.0, 2.5, "[1, 2.5]"), (-np.inf, np.inf, "[too few for an interval]"), (np.nan, np.nan, "[too few for an interval]"),
     (2.0, np.inf, "[2, inf]")],
)  # fmt: skip
def test_an_interval_without_ends_says_why(low: float, high: float, text: str) -> None:
    assert interval(low, high) == text
    assert str(Estimate(1.0, low, high, 0.95, 3)) == f"1 {text} (95%, n = 3)"


def test_a_test_that_was_not_made_does_not_count() -> None:
    assert holm([0.01, np.nan, 0.03]).tolist() == pytest.approx([0.02, np.nan, 0.03], nan_ok=True)
    assert benjamini_hochberg([]).size == 0


@pytest.mark.parametrize("p", [[1.2], [-0.1], [[0.5]]])
def test_what_is_no_p_is_refused(p: list[float]) -> None:
    with pytest.raises(ArgumentError, match="p_values"):
        holm(p)
