"""Choices of single listeners: shares, sensitivity, and variance between listeners."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from voicelab.stats import binomial

if TYPE_CHECKING:
    import pandas as pd

_MAX_DPRIME: Final = 20.0
_DRAWS: Final = 999


def by_listener(choices: pd.DataFrame, *, abx: bool, confidence: float) -> pd.DataFrame:
    """Tabulate the ``choices`` (columns listener and value, 0 or 1) of each listener: see ``ListeningResult.by_listener``."""
    import pandas as pd

    rows, sided = [], max(0.01, 2.0 * confidence - 1.0) if abx else confidence
    for name, values in choices.groupby("listener", sort=False)["value"]:
        test = binomial(int(values.sum()), len(values), alternative="greater" if abx else "two-sided", confidence=sided)
        share = test.estimate
        row = {"listener": name, "responses": len(values), "share": share.value, "low": share.low, "high": share.high}
        row["p"] = test.p
        if abx:
            ends = (share.value, share.low, share.high)
            row |= dict(zip(("d'", "d' low", "d' high"), map(sensitivity, ends), strict=True))
        rows.append(row)
    return pd.DataFrame(rows)


def sensitivity(share: float) -> float:
    """Return d' of ABX for a share of correct responses: 0 at 0.5 or less, infinite at 1.

    Assumes an unbiased listener with the differencing strategy (N. A. Macmillan & C. D. Creelman, "Detection Theory",
    2nd ed., 2005, chapter 9): because the sounds vary between trials, listeners compare X with A and with B.
    """
    from scipy.optimize import brentq
    from scipy.special import ndtr

    def excess(dprime: float) -> float:
        # The response is correct if the comparison of A with B and that of X with their mean are both right or both
        # wrong.
        between, with_x = ndtr(dprime / math.sqrt(2.0)), ndtr(dprime / math.sqrt(6.0))
        return float(between * with_x + (1.0 - between) * (1.0 - with_x)) - share

    if share <= 0.5:
        return 0.0
    return float(brentq(excess, 0.0, _MAX_DPRIME)) if excess(_MAX_DPRIME) > 0.0 else math.inf


def discriminators(share: float) -> float:
    """Return the proportion of trials in which X was recognized, assuming that listeners guessed in the others."""
    return max(0.0, 2.0 * share - 1.0)


def dispersion(counts: npt.ArrayLike, trials: npt.ArrayLike) -> tuple[float, float]:
    """Return the ratio of the variance between listeners to the binomial variance, and the p-value for a ratio above 1.

    ``counts`` (listeners,) are the numbers of choices of 1 among ``trials`` (listeners,). The ratio is Pearson's chi
    squared divided by its degrees of freedom. p is from the conditional permutation test of this statistic, with 999
    random exchanges of responses between listeners. Both are NaN for a single listener and for unanimous responses.
    """
    ones, sizes = np.asarray(counts, np.int64), np.asarray(trials, np.int64)
    share, df = ones.sum() / sizes.sum(), ones.size - 1
    if not df or share in {0.0, 1.0}:
        return math.nan, math.nan
    draws = np.random.default_rng(0).multivariate_hypergeometric(sizes, int(ones.sum()), _DRAWS, method="marginals")
    # The observed arrangement is included among the exchanges.
    squares = np.square(np.vstack([ones, draws]) - sizes * share) / (sizes * share * (1.0 - share))
    statistics = squares.sum(axis=1) / df
    return float(statistics[0]), float((statistics >= statistics[0] - 1e-9).mean())
