"""Power, sample sizes, and sequential tests for listening tests."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from voicelab.errors import ArgumentError
from voicelab.stats.crossed import CrossedTest
from voicelab.stats.estimate import Estimate, between, one_of, whole

_MAX_SAMPLE = 1_000_000
_CHANCE = 0.5
_ALPHA = 0.05


def choice_power(trials: int, share: float, *, alternative: Literal["two-sided", "greater"] = "two-sided") -> float:
    """Compute the power of an exact binomial test of ``trials`` choices at the 5 % level for a true ``share``.

    In AB, ``share`` is the share of preferences for A, and the test is two-sided, at 2.5 % per side. In ABX, the
    alternative is "greater", and ``share`` is 0.5 + d / 2 for a proportion d of discriminators. Responses are assumed
    to be independent, so AB must have one response per listener; for several, see ``plan_test``. Raises ArgumentError
    for invalid arguments.
    """
    whole(trials, "trials", 1)
    _check(share, alternative)
    return float(_powers(np.array([trials]), share, alternative)[0])


def trials_needed(
    share: float,
    *,
    power: float = 0.8,
    alternative: Literal["two-sided", "greater"] = "two-sided",
) -> int:
    """Compute the number of trials from which ``choice_power`` stays at or above ``power``.

    The power of a test of counts is a sawtooth function of the number of trials, so some smaller numbers may also reach
    ``power``. For AB, the result is the number of listeners with one response each. Repeated responses of a listener are not
    independent: plan them by ``ratings_needed``, with ``share`` - 0.5 as the difference and the SD of the listeners' shares
    as ``sd``. If the preferences of listeners have mean s and SD t, and each gives n responses, this SD is about sqrt(t² + s
    (1 - s) / n).

    Raises ArgumentError for invalid arguments, and if more than a million trials are needed.
    """
    _check(share, alternative)
    between(power, "power", 0.0, 1.0)
    if share == _CHANCE or (alternative == "greater" and share < _CHANCE):
        allowed = "be above 0.5" if alternative == "greater" else "differ from 0.5"
        raise ArgumentError.of("share", f"must {allowed}, got {share:g}")
    from scipy.stats import norm

    distance = float(norm.isf(_tail(alternative))) * math.sqrt(_CHANCE * (1 - _CHANCE))
    distance += max(0.0, float(norm.ppf(power))) * math.sqrt(share * (1 - share))
    estimate = int((distance / (share - _CHANCE)) ** 2)
    if estimate > _MAX_SAMPLE:
        raise ArgumentError.of("share", f"needs about {estimate} trials, more than {_MAX_SAMPLE:,}")
    counts = np.arange(1, 2 * estimate + 100)
    underpowered = np.flatnonzero(_powers(counts, share, alternative) < power)
    return int(counts[underpowered[-1]] + 1) if underpowered.size else 1


def _check(share: float, alternative: str) -> None:
    between(share, "share", 0.0, 1.0)
    one_of(alternative, "alternative", ("two-sided", "greater"))


def _tail(alternative: str) -> float:
    return _ALPHA / 2.0 if alternative == "two-sided" else _ALPHA


def _powers(trials: npt.NDArray[np.int_], share: float, alternative: str) -> npt.NDArray[np.float64]:
    from scipy.stats import binom

    tail = _tail(alternative)
    above = binom.isf(tail, trials, _CHANCE)
    power = binom.sf(above, trials, share)
    if alternative == "two-sided":
        below = binom.ppf(tail, trials, _CHANCE)
        below = below - (binom.cdf(below, trials, _CHANCE) > tail)
        power = power + np.where(below >= 0, binom.cdf(below, trials, share), 0.0)
    return np.asarray(power, np.float64)


def rating_power(listeners: int, difference: float, sd: float) -> float:
    """Compute the power of a paired two-sided t-test at the 5 % level for a true ``difference`` in MOS.

    Every listener rates both systems, and ``sd`` is the SD of the listeners' differences. Uses the noncentral t
    distribution (J. Cohen, "Statistical Power Analysis for the Behavioral Sciences", 1988, chapter 2). Raises
    ArgumentError for invalid arguments.
    """
    count = whole(listeners, "listeners", 2)
    if not (math.isfinite(difference) and math.isfinite(sd) and sd > 0.0):
        raise ArgumentError.of("sd", f"must be a finite number above 0, and difference finite, got {sd}, {difference}")
    return t_power(abs(difference) / sd * math.sqrt(count), count - 1)


def t_power(noncentrality: float, df: float, level: float = _ALPHA) -> float:
    """Compute the power of a two-sided t-test for a difference of ``noncentrality`` standard errors."""
    from scipy.stats import nct, t

    limit = float(t.isf(level / 2.0, df))
    below = float(nct.cdf(-limit, df, noncentrality))
    return float(nct.sf(limit, df, noncentrality)) + (below if math.isfinite(below) else 0.0)


def ratings_needed(difference: float, sd: float, *, power: float = 0.8) -> int:
    """Compute the minimum number of listeners for which ``rating_power`` is at least ``power``.

    Raises ArgumentError for invalid arguments, and if more than a million listeners are needed.
    """
    between(power, "power", 0.0, 1.0)
    if difference == 0.0:
        raise ArgumentError.of("difference", "must not be 0, got 0")
    low, high = 1, 2
    while rating_power(high, difference, sd) < power:
        low, high = high, 2 * high
        if high > _MAX_SAMPLE:
            raise ArgumentError.of("difference", f"needs more than {_MAX_SAMPLE:,} listeners")
    while high - low > 1:
        middle = (low + high) // 2
        sufficient = rating_power(middle, difference, sd) >= power
        low, high = (low, middle) if sufficient else (middle, high)
    return high


@dataclass(frozen=True, slots=True)
class SequentialTest:
    """Sequential test for all kinds of listening tests, with listeners and items as random effects.

    The study may be analyzed, and stopped, at any time: with a probability of at least 1 - ``alpha``, the interval contains
    the true difference (or share) at all interim analyses. It is the t confidence sequence of H. Wang & A. Ramdas,
    "Anytime-valid t-tests and confidence sequences for Gaussian means with unknown variance" (arXiv:2310.03722, 2023), with
    the standard error and the degrees of freedom of crossed random effects. The decision is "effect" if the interval
    excludes the null hypothesis, "equivalent" if it lies within the optional ``margin`` of the null hypothesis (not if all
    responses are equal), and "no effect" at ``max_listeners``. Raises ArgumentError for invalid fields.
    """

    alpha: float = 0.05
    max_listeners: int = 100
    margin: float | None = None

    def __post_init__(self) -> None:
        between(self.alpha, "alpha", 0.0, 0.5)
        whole(self.max_listeners, "max_listeners", 2)
        if self.margin is not None:
            between(self.margin, "margin", 0.0, math.inf)

    def interval(self, test: CrossedTest) -> Estimate:
        """Return the estimate with its anytime-valid interval.

        The interval is infinite, or the whole scale, if there are too few listeners or items.

        ``test`` is a value of ``ListeningResult.crossed``.
        """
        # Satterthwaite's degrees of freedom are too many while the variance of few listeners is estimated as 0. The
        # mixture over effects has the variance of one listener.
        df = min(test.df, test.estimate.n - 1.0)
        count = df + 1.0
        shrinkage = 1.0 / (1.0 + count)
        ratio = (1.0 / (self.alpha * math.sqrt(shrinkage))) ** (2.0 / count)
        half_width = math.inf
        if shrinkage * ratio < 1.0:
            half_width = test.error * math.sqrt(df * (ratio - 1.0) / (1.0 - shrinkage * ratio))
        value, (lower, upper) = test.estimate.value, test.scale
        low, high = max(lower, value - half_width), min(upper, value + half_width)
        return Estimate(value, low, high, 1.0 - self.alpha, test.estimate.n)

    def decide(self, test: CrossedTest) -> Literal["continue", "effect", "equivalent", "no effect"]:
        """Decide from the responses so far; the first decision other than "continue" is final."""
        interval = self.interval(test)
        if not interval.low <= test.null <= interval.high:
            return "effect"
        # Constant responses cannot be tested against a margin, as in ``equivalence``.
        varied = test.sd[2] > 0.0
        if (
            varied
            and self.margin is not None
            and max(interval.high - test.null, test.null - interval.low) < self.margin
        ):
            return "equivalent"
        return "no effect" if interval.n >= self.max_listeners else "continue"

    def advice(self, test: CrossedTest) -> str:
        """State whether more listeners or more items would shorten the interval most."""
        listeners, items = (sd**2 / count for sd, count in zip(test.sd, (test.estimate.n, test.items), strict=False))
        source, variance = ("items", items) if items > listeners else ("listeners", listeners)
        share = variance / test.error**2 if test.error > 0.0 else 0.0
        return f"more {source} shorten the interval most: they cause {min(share, 1.0):.0%} of its variance"
