"""Estimates with intervals, test results, corrected p-values, effect sizes, and argument checks."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

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
        return f"{self.value:.3g} {interval(self.low, self.high)} ({percent(self.confidence)}, n = {self.n})"


@dataclass(frozen=True, slots=True)
class Test:
    """A hypothesis test: name, statistic, p-value, and the estimate of the tested parameter."""

    __test__ = False  # keeps pytest from collecting the class

    name: str
    statistic: float
    p: float
    estimate: Estimate

    def __str__(self) -> str:
        return f"{self.name}: statistic {self.statistic:.4g}, {p_text(self.p)}; {self.estimate}"


def holm(p_values: npt.ArrayLike) -> _Floats:
    """Adjust p-values (tests,) by Holm's method, which controls the family-wise error rate.

    NaN represents a test that was not performed, and is not counted as a test. S. Holm, "A simple sequentially
    rejective multiple test procedure", Scandinavian Journal of Statistics 6 (1979). It is implemented here because
    scipy lacks it and statsmodels takes 2 s to import. Raises ArgumentError for values outside 0 to 1.
    """
    values, valid = _p_values(p_values)
    order = np.flatnonzero(valid)[np.argsort(values[valid], kind="stable")]
    values[order] = np.minimum(np.maximum.accumulate(values[order] * np.arange(order.size, 0, -1.0)), 1.0)
    return values


def benjamini_hochberg(p_values: npt.ArrayLike) -> _Floats:
    """Adjust p-values (tests,) to control the false discovery rate, by scipy.

    NaN is treated as in ``holm``. Valid for independent or positively dependent tests. Y. Benjamini & Y. Hochberg,
    "Controlling the false discovery rate", Journal of the Royal Statistical Society B 57 (1995).
    """
    from scipy.stats import false_discovery_control

    values, valid = _p_values(p_values)
    if valid.any():
        values[valid] = false_discovery_control(values[valid])
    return values


def _p_values(p_values: npt.ArrayLike) -> tuple[_Floats, npt.NDArray[np.bool_]]:
    values = np.array(p_values, np.float64)
    valid = np.isfinite(values)
    if values.ndim != 1 or ((values[valid] < 0.0) | (values[valid] > 1.0)).any():
        raise ArgumentError.of("p_values", "must be numbers from 0 to 1, shape (tests,)")
    return values, valid


def interval(low: float, high: float, form: str = ".3g") -> str:
    """Format an interval as "[1, 2]", or, if it is undefined, as a remark that there are too few takes or responses."""
    if not (math.isfinite(low) or math.isfinite(high)):
        return "[too few for an interval]"
    return f"[{low:{form}}, {high:{form}}]"


def p_text(value: float) -> str:
    """Format a p-value: "p 0.031", or "p < 0.0001", because smaller values are not accurate here."""
    return f"p {value:.4g}" if not value < 0.0001 else "p < 0.0001"


def percent(share: float) -> str:
    """Format a share as a percentage: 95%, 99.9%."""
    return f"{share * 100:g}%"


def numbers(values: Iterable[float] | npt.ArrayLike, name: str, minimum: int) -> _Floats:
    """Convert values to an array (n,). Raises ArgumentError for ``name`` unless all are finite and n >= ``minimum``."""
    try:
        array = np.asarray(values if hasattr(values, "__len__") else list(values), np.float64)  # type: ignore[arg-type]
    except (TypeError, ValueError) as error:
        raise ArgumentError.of(name, f"must be numbers: {error}") from error
    if array.ndim != 1 or array.size < minimum:
        raise ArgumentError.of(name, f"must be at least {minimum} numbers of shape (n,), got shape {array.shape}")
    if not np.isfinite(array).all():
        raise ArgumentError.of(name, "must be finite, got NaN or infinity")
    return array


def varies(values: npt.ArrayLike) -> bool:
    """Test whether values differ by more than floating-point rounding."""
    array = np.asarray(values, np.float64)
    return bool(np.ptp(array) > 1e-12 * np.abs(array).max())


def whole(value: object, name: str, minimum: int) -> int:
    """Validate an integer. Raises ArgumentError for ``name`` unless it is at least ``minimum``."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < minimum:
        raise ArgumentError.of(name, f"must be an integer of at least {minimum}, got {value!r}")
    return int(value)


def between(value: Any, name: str, low: float, high: float) -> float:
    """Validate a number. Raises ArgumentError for ``name`` unless ``low`` < ``value`` < ``high``."""
    if not (isinstance(value, int | float | np.number) and math.isfinite(value) and low < value < high):
        ends = [f"{word} {end:g}" for word, end in (("above", low), ("below", high)) if math.isfinite(end)]
        raise ArgumentError.of(name, f"must be {' and '.join(ends) or 'a finite number'}, got {value!r}")
    return float(value)


def one_of(value: str, name: str, choices: tuple[str, ...]) -> None:
    """Raise ArgumentError for ``name`` unless ``value`` is among the ``choices``."""
    if value not in choices:
        raise ArgumentError.of(name, f"must be {', '.join(map(repr, choices[:-1]))} or {choices[-1]!r}, got {value!r}")


def standardized_difference(
    difference: float, error: float, df: float, sd: float, *, n: int, confidence: float = 0.95
) -> Estimate:
    """Standardize a difference by ``sd``, with an interval from the noncentral t distribution.

    ``error`` is the standard error of the difference and ``df`` its degrees of freedom. Interval: G. Cumming & S. Finch,
    Educational and Psychological Measurement 61 (2001). With the SD of single ratings, the result is the d of J. Westfall, D.
    A. Kenny & C. M. Judd, Journal of Experimental Psychology: General 143 (2014). The result is NaN if there is no variance.
    """
    from scipy.special import nctdtrinc
    from scipy.stats import norm

    tail = (1.0 - between(confidence, "confidence", 0.0, 1.0)) / 2.0
    if not (sd > 0.0 and error > 0.0 and df > 0.0):
        return Estimate(math.nan, math.nan, math.nan, confidence, n)
    t, unit = difference / error, error / sd
    low, high = (float(nctdtrinc(df, probability, t)) for probability in (1.0 - tail, tail))
    if not low < t < high:
        # Beyond the range of nctdtrinc, the noncentral t distribution is nearly normal.
        half_width = float(norm.isf(tail)) * math.sqrt(1.0 + t * t / (2.0 * df))
        low, high = t - half_width, t + half_width
    return Estimate(t * unit, low * unit, high * unit, confidence, n)


def cliff_delta(
    first: Sequence[float] | npt.ArrayLike, second: Sequence[float] | npt.ArrayLike, *, confidence: float = 0.95
) -> Estimate:
    """Compute Cliff's delta, P(first > second) - P(first < second), from -1 to 1.

    N. Cliff, "Dominance statistics", Psychological Bulletin 114 (1993), with the asymmetric interval (Student's t) of D. Feng
    & N. Cliff, Journal of Modern Applied Statistical Methods 3 (2004). Values are assumed to be independent. ``superiority``
    converts it to a probability. Raises ArgumentError for a sample of fewer than two values.
    """
    from scipy.stats import t

    ours, theirs = numbers(first, "first", 2), numbers(second, "second", 2)
    above = np.sign(ours[:, None] - theirs[None, :])
    delta, (n, m) = float(above.mean()), above.shape
    tail = (1.0 + between(confidence, "confidence", 0.0, 1.0)) / 2.0
    if abs(delta) == 1.0:
        # Complete separation: the Clopper-Pearson bound for the smaller sample.
        half_width = 2.0 * (1.0 - (1.0 - tail) ** (1.0 / min(n, m)))
        return Estimate(delta, max(-1.0, delta - half_width), min(1.0, delta + half_width), confidence, n + m)
    rows, columns = np.square(above.mean(axis=1) - delta).sum(), np.square(above.mean(axis=0) - delta).sum()
    total = np.square(above - delta).sum()
    variance = (m**2 * rows + n**2 * columns - total) / (n * m * (n - 1) * (m - 1))
    variance = max(float(variance), (1.0 - delta**2) / (n * m - 1))
    quantile, complement = float(t.ppf(tail, n + m - 2)), 1.0 - delta**2
    root = quantile * math.sqrt(variance * (complement**2 + quantile**2 * variance))
    low, high = ((delta - delta**3 + sign * root) / (complement + quantile**2 * variance) for sign in (-1.0, 1.0))
    return Estimate(delta, max(-1.0, low), min(1.0, high), confidence, n + m)


@lru_cache(maxsize=64)
def _t_quantile(probability: float, df: int) -> float:
    from scipy.stats import t

    return float(t.ppf(probability, df))


def mean_delta(deltas: Sequence[float], confidence: float) -> Estimate:
    """Average Cliff's deltas over independent texts or strata, with Student's t interval, which is NaN for one delta."""
    tail, count = (1.0 + confidence) / 2.0, len(deltas)
    mean = sum(deltas) / count if count else math.nan
    if count < 2:
        return Estimate(mean, math.nan, math.nan, confidence, count)
    half_width = _t_quantile(tail, count - 1) * float(np.std(deltas, ddof=1)) / math.sqrt(count)
    # Equal deltas: the Clopper-Pearson bound.
    half_width = half_width or 2.0 * (1.0 - (1.0 - tail) ** (1.0 / count))
    return Estimate(mean, max(-1.0, mean - half_width), min(1.0, mean + half_width), confidence, count)


def superiority(delta: Estimate) -> Estimate:
    """Convert Cliff's delta to the probability of superiority, counting ties half; 0.5 means no difference.

    This is the common language effect size of K. O. McGraw & S. P. Wong, extended to any scale by A. Vargha & H. D. Delaney,
    Journal of Educational and Behavioral Statistics 25 (2000).
    """
    value, low, high = ((1.0 + share) / 2.0 for share in (delta.value, delta.low, delta.high))
    return Estimate(value, low, high, delta.confidence, delta.n)


def odds(share: Estimate) -> Estimate:
    """Convert a share to odds: 0.6 is 1.5 to 1. For a preference between two systems, this is the odds ratio."""
    value, low, high = (end / (1.0 - end) if end < 1.0 else math.inf for end in (share.value, share.low, share.high))
    return Estimate(value, low, high, share.confidence, share.n)
