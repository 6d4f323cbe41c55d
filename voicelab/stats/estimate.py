"""What a statistic returns: an estimate with its interval, a test, corrected p-values, and effect sizes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from voicelab.errors import ArgumentError

_Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Estimate:
    """A value with its confidence interval: ``low`` to ``high`` at ``confidence``, from ``n`` observations."""

    value: float
    low: float
    high: float
    confidence: float
    n: int

    def __str__(self) -> str:
        within = interval(self.low, self.high)
        return f"{self.value:.3g} {within} ({percent(self.confidence)}, n = {self.n})"


@dataclass(frozen=True, slots=True)
class Test:
    """A test of a hypothesis: its name, statistic, p-value, and the estimate of what it is about."""

    __test__ = False  # pytest is not meant

    name: str
    statistic: float
    p: float
    estimate: Estimate

    def __str__(self) -> str:
        return f"{self.name}: statistic {self.statistic:.4g}, p {self.p:.4g}; {self.estimate}"


def holm(p_values: npt.ArrayLike) -> _Floats:
    """Return Holm's adjusted p-values, which control the chance of any false positive in the family.

    ``p_values`` is (tests,); NaN stands for a test that was not made, stays NaN and does not count. S. Holm, "A
    simple sequentially rejective multiple test procedure", Scandinavian Journal of Statistics 6 (1979). Ours: scipy has
    it not, and statsmodels takes 2 s to import for these three lines. Raises ArgumentError for anything outside 0 to 1.
    """
    given, valid = _p_values(p_values)
    order = np.flatnonzero(valid)[np.argsort(given[valid], kind="stable")]
    given[order] = np.minimum(np.maximum.accumulate(given[order] * np.arange(order.size, 0, -1.0)), 1.0)
    return given


def benjamini_hochberg(p_values: npt.ArrayLike) -> _Floats:
    """Return adjusted p-values that control the expected share of false positives among the positives, by scipy.

    As ``holm``; for independent or positively dependent tests. Y. Benjamini & Y. Hochberg, "Controlling the false
    discovery rate", Journal of the Royal Statistical Society B 57 (1995).
    """
    from scipy.stats import false_discovery_control

    given, valid = _p_values(p_values)
    if valid.any():
        given[valid] = false_discovery_control(given[valid])
    return given


def _p_values(p_values: npt.ArrayLike) -> tuple[_Floats, npt.NDArray[np.bool_]]:
    given = np.array(p_values, np.float64)
    valid = np.isfinite(given)
    if given.ndim != 1 or ((given[valid] < 0.0) | (given[valid] > 1.0)).any():
        raise ArgumentError.of("p_values", "Input should be numbers from 0 to 1, shape (tests,)")
    return given, valid


def interval(low: float, high: float, form: str = ".3g") -> str:
    """Return an interval as people write it, "[1, 2]"; one without ends was made of too few takes, or answers."""
    if not (math.isfinite(low) or math.isfinite(high)):
        return "[too few for an interval]"
    return f"[{low:{form}}, {high:{form}}]"


def percent(share: float) -> str:
    """Return a share as people write it: 95%, 99.9%."""
    return f"{share * 100:g}%"


def numbers(values: Iterable[float] | npt.ArrayLike, name: str, least: int) -> _Floats:
    """Return ``values`` as an array (n,); raises ArgumentError, which names them, unless finite and enough."""
    try:
        array = np.asarray(values if hasattr(values, "__len__") else list(values), np.float64)  # type: ignore[arg-type]
    except (TypeError, ValueError) as error:
        raise ArgumentError.of(name, f"Input should be numbers: {error}") from error
    if array.ndim != 1 or array.size < least:
        raise ArgumentError.of(name, f"Input should be {least} numbers or more, shape (n,), got {array.shape}")
    if not np.isfinite(array).all():
        raise ArgumentError.of(name, "there are values that are not finite")
    return array


def varies(values: npt.ArrayLike) -> bool:
    """Return whether values differ by more than floating-point rounding."""
    array = np.asarray(values, np.float64)
    return bool(np.ptp(array) > 1e-12 * np.abs(array).max())


def whole(value: object, name: str, least: int) -> int:
    """Return ``value``; raises ArgumentError, which names it, unless it is a whole number from ``least``."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        raise ArgumentError.of(name, f"Input should be a whole number from {least}")
    return int(value)


def between(value: float, name: str, low: float, high: float) -> float:
    """Return ``value``; raises ArgumentError, which names it, unless it lies inside ``low`` to ``high``."""
    if not (math.isfinite(value) and low < value < high):
        raise ArgumentError.of(name, f"Input should be between {low:g} and {high:g}")
    return float(value)


def one_of(value: str, name: str, choices: tuple[str, ...]) -> None:
    """Raise ArgumentError, which names the argument, unless ``value`` is one of the ``choices``."""
    if value not in choices:
        *others, last = map(repr, choices)
        raise ArgumentError.of(name, f"{value!r} is not {', '.join(others)} or {last}")


# ---- how large a difference is, in units that do not depend on the scale it was measured on


def standardized_difference(
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
