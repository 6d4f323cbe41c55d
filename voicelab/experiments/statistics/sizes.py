"""How large a difference is, with its interval, in units that do not depend on the scale it was measured on."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from voicelab.experiments.statistics.estimate import Estimate, between, numbers

__all__ = ["cliff_delta", "mean_delta", "odds", "standardised_difference", "superiority"]


def standardised_difference(
    difference: float, error: float, df: float, sd: float, *, n: int, confidence: float = 0.95
) -> Estimate:
    """Return a difference in units of ``sd``, with the interval that follows from its t.

    ``error`` is the difference's standard error and ``df`` its degrees of freedom. The interval has the noncentral t
    distributions in whose tails the observed t lies: G. Cumming & S. Finch, Educational and Psychological Measurement 61
    (2001). With the sd of single ratings it is what J. Westfall, D. A. Kenny & C. M. Judd, Journal of Experimental
    Psychology: General 143 (2014), call d. NaN without spread.
    """
    from scipy.special import nctdtrinc
    from scipy.stats import norm

    tail = (1.0 - between(confidence, "confidence", 0.0, 1.0)) / 2.0
    if not (sd > 0.0 and error > 0.0 and df > 0.0):
        return Estimate(math.nan, math.nan, math.nan, confidence, n)
    t, unit = difference / error, error / sd
    low, high = (float(nctdtrinc(df, share, t)) for share in (1.0 - tail, tail))
    if not low < t < high:
        # Out of the reach of that function: there the noncentral t is nearly normal.
        reach = float(norm.isf(tail)) * math.sqrt(1.0 + t * t / (2.0 * df))
        low, high = t - reach, t + reach
    return Estimate(t * unit, low * unit, high * unit, confidence, n)


def cliff_delta(
    first: Sequence[float] | npt.ArrayLike, second: Sequence[float] | npt.ArrayLike, *, confidence: float = 0.95
) -> Estimate:
    """Return how much more often a value of ``first`` is above one of ``second`` than below, from -1 to 1.

    N. Cliff, "Dominance statistics", Psychological Bulletin 114 (1993); his asymmetric interval with Student's t, as D. Feng
    & N. Cliff, Journal of Modern Applied Statistical Methods 3 (2004). All values are taken as independent. ``superiority``
    turns it into a probability. Raises ArgumentError for fewer than two values of either.
    """
    from scipy.stats import t

    ours, theirs = numbers(first, "first", 2), numbers(second, "second", 2)
    above = np.sign(ours[:, None] - theirs[None, :])
    delta, (one, two) = float(above.mean()), above.shape
    tail = (1.0 + between(confidence, "confidence", 0.0, 1.0)) / 2.0
    if abs(delta) == 1.0:
        # No pair the other way: Clopper and Pearson's bound on those of the smaller group that would be.
        reach = 2.0 * (1.0 - (1.0 - tail) ** (1.0 / min(one, two)))
        return Estimate(delta, max(-1.0, delta - reach), min(1.0, delta + reach), confidence, one + two)
    rows, columns = np.square(above.mean(axis=1) - delta).sum(), np.square(above.mean(axis=0) - delta).sum()
    every = np.square(above - delta).sum()
    variance = (two**2 * rows + one**2 * columns - every) / (one * two * (one - 1) * (two - 1))
    variance = max(float(variance), (1.0 - delta**2) / (one * two - 1))
    reach = float(t.ppf(tail, one + two - 2))
    root, least = reach * math.sqrt(variance * ((1.0 - delta**2) ** 2 + reach**2 * variance)), 1.0 - delta**2
    low, high = ((delta - delta**3 + sign * root) / (least + reach**2 * variance) for sign in (-1.0, 1.0))
    return Estimate(delta, max(-1.0, low), min(1.0, high), confidence, one + two)


def mean_delta(deltas: Sequence[float], confidence: float) -> Estimate:
    """Return the mean of Cliff's deltas of independent texts or strata, with Student's interval; NaN for one alone."""
    from scipy.stats import t

    tail, count = (1.0 + confidence) / 2.0, len(deltas)
    mean = sum(deltas) / count if count else math.nan
    if count < 2:
        return Estimate(mean, math.nan, math.nan, confidence, count)
    reach = float(t.ppf(tail, count - 1)) * float(np.std(deltas, ddof=1)) / math.sqrt(count)
    # All alike: Clopper and Pearson's bound on those that would be the other way.
    reach = reach or 2.0 * (1.0 - (1.0 - tail) ** (1.0 / count))
    return Estimate(mean, max(-1.0, mean - reach), min(1.0, mean + reach), confidence, count)


def superiority(delta: Estimate) -> Estimate:
    """Return Cliff's delta as the probability that the first is better, ties counted half: 0.5 is no difference.

    K. O. McGraw & S. P. Wong's common language effect size, as A. Vargha & H. D. Delaney, Journal of Educational and
    Behavioral Statistics 25 (2000), have it for any scale.
    """
    value, low, high = ((1.0 + share) / 2.0 for share in (delta.value, delta.low, delta.high))
    return Estimate(value, low, high, delta.confidence, delta.n)


def odds(share: Estimate) -> Estimate:
    """Return a share as odds: 0.6 is 1.5 to 1; of choices between two systems that is the odds ratio."""
    value, low, high = (end / (1.0 - end) if end < 1.0 else math.inf for end in (share.value, share.low, share.high))
    return Estimate(value, low, high, share.confidence, share.n)
