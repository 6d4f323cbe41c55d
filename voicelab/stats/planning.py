"""Power, sample sizes, and sequential tests for listening tests."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from voicelab.errors import ArgumentError
from voicelab.stats.estimate import between, numbers, one_of, whole

_MAX_SAMPLE = 1_000_000
_POWER_TOLERANCE = 0.02
_CHANCE = 0.5
_ALPHA = 0.05
_STAKES = np.linspace(0.05, 0.95, 19)


def choice_power(trials: int, share: float, *, alternative: Literal["two-sided", "greater"] = "two-sided") -> float:
    """Compute the power of an exact binomial test at the 5 % level of ``trials`` choices with a true ``share``.

    AB: ``share`` prefer A, two-sided. ABX: alternative "greater", and ``share`` = 0.5 + d / 2 for a proportion d of
    discriminators. A two-sided test has 2.5 % per side. Responses are assumed independent: in AB, one per listener; for
    several per listener see ``plan_test``. Raises ArgumentError.
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

    The power of a test on counts is a sawtooth function of the number of trials, so some smaller numbers may also reach it.
    For AB, the result is the number of listeners with one response each. Repeated responses of a listener are not
    independent: plan them by ``ratings_needed`` with a difference of ``share`` - 0.5 and the SD of the listeners' shares as
    ``sd``, about sqrt(t² + s (1 - s) / n) for preferences with mean s and SD t between listeners and n responses each.

    Raises ArgumentError, also for more than a million trials.
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
    """Compute the power of a paired two-sided t-test at the 5 % level of a true ``difference`` of mean opinion scores.

    Every listener rates both systems, and ``sd`` is the SD of the listeners' differences. Uses the noncentral t
    distribution (J. Cohen, "Statistical Power Analysis for the Behavioral Sciences", 1988, chapter 2). Raises
    ArgumentError.
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
    """Compute the minimum number of listeners with a ``rating_power`` of ``power``.

    Raises ArgumentError, also for more than a million listeners.
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
class Sprt:
    """Truncated sequential probability ratio test of choices (A. Wald, Ann. Math. Stat. 16, 1945).

    It decides between ``chance`` and a higher ``share`` after every response, with error rates of about ``alpha`` (type I)
    and ``beta`` (type II), and stops with "no effect" at ``most`` trials. ``operating`` computes the exact error rates; a
    warning is issued if truncation raises the type II error above ``beta``.

    Responses are assumed to be independent: those of ABX tests, or one per listener. Repeated preferences of a listener are
    dependent and would quadruple the type I error: use ``BettingTest`` for them.

    Raises ArgumentError.
    """

    share: float
    chance: float = 0.5
    alpha: float = 0.05
    beta: float = 0.2
    most: int = 200

    def __post_init__(self) -> None:
        between(self.chance, "chance", 0.0, 1.0)
        between(self.share, "share", self.chance, 1.0)
        between(self.alpha, "alpha", 0.0, 0.5)
        between(self.beta, "beta", 0.0, 0.5)
        whole(self.most, "most", 1)
        if self.most > 10_000:
            raise ArgumentError.of("most", f"must be at most 10000, got {self.most}")
        power = self.operating(self.share)[0]
        if power < 1.0 - self.beta - _POWER_TOLERANCE:
            message = (
                f"most={self.most} gives a power of {power:.0%}, below the {1.0 - self.beta:.0%} of beta={self.beta:g}"
            )
            warnings.warn(message, UserWarning, stacklevel=3)

    def decide(self, successes: int, trials: int) -> Literal["continue", "effect", "no effect"]:
        """Decide after ``trials`` responses, of which ``successes`` are correct (or preferences for A).

        Call it after every response; the first decision other than "continue" is final. Raises ArgumentError.
        """
        whole(trials, "trials", 0)
        if whole(successes, "successes", 0) > trials:
            raise ArgumentError.of("successes", f"must be at most trials={trials}, got {successes}")
        ratio = self._ratio(successes, trials)
        if ratio >= math.log((1.0 - self.beta) / self.alpha):
            return "effect"
        if ratio <= math.log(self.beta / (1.0 - self.alpha)) or trials >= self.most:
            return "no effect"
        return "continue"

    def operating(self, true_share: float) -> tuple[float, float]:
        """Compute the probability of "effect" and the expected number of trials for a ``true_share``.

        Both are exact. The probability is the true alpha at ``chance`` and the power at ``share``.
        """
        if not 0.0 <= true_share <= 1.0:
            raise ArgumentError.of("true_share", f"must be from 0 to 1, got {true_share:g}")
        active = np.ones(1)
        effects, expected = 0.0, 0.0
        for trials in range(1, self.most + 1):
            expected += float(active.sum())
            active = np.concatenate((active * (1.0 - true_share), [0.0])) + np.concatenate(([0.0], active * true_share))
            ratios = self._ratio(np.arange(trials + 1), trials)
            effect = ratios >= math.log((1.0 - self.beta) / self.alpha)
            effects += float(active[effect].sum())
            active[effect | (ratios <= math.log(self.beta / (1.0 - self.alpha)))] = 0.0
        return effects, expected

    def _ratio(self, successes: int | npt.NDArray[np.int_], trials: int) -> npt.NDArray[np.float64]:
        success = math.log(self.share / self.chance)
        failure = math.log((1.0 - self.share) / (1.0 - self.chance))
        return np.asarray(successes * success + (trials - np.asarray(successes)) * failure, np.float64)


@dataclass(frozen=True, slots=True)
class BettingTest:
    """Anytime-valid sequential test of listeners with several, possibly dependent, responses each.

    Under the null hypothesis that the mean share is at most ``chance``, the wealth of a bet against it ever reaches 1 /
    ``alpha`` with a probability of at most ``alpha`` (J. Ville, 1939). Follows I. Waudby-Smith & A. Ramdas, "Estimating means
    of bounded random variables by betting", Journal of the Royal Statistical Society B 86 (2024). Sentences are fixed. The
    test stops at ``most`` listeners. Raises ArgumentError.
    """

    chance: float = 0.5
    alpha: float = 0.05
    most: int = 100

    def __post_init__(self) -> None:
        between(self.chance, "chance", 0.0, 1.0)
        between(self.alpha, "alpha", 0.0, 0.5)
        whole(self.most, "most", 1)

    def decide(self, shares: Sequence[float]) -> Literal["continue", "effect", "no effect"]:
        """Decide from the listeners' ``shares`` of correct responses (or preferences for A), in the order of listeners."""
        values = numbers(shares, "shares", 0) - self.chance
        if ((values < -self.chance) | (values > 1.0 - self.chance)).any():
            raise ArgumentError.of("shares", f"must be from 0 to 1, got {min(shares):g} to {max(shares):g}")
        # Uniform mixture of stakes, all below the stake that risks ruin.
        wealth = np.cumprod(1.0 + np.outer(values, _STAKES / self.chance), axis=0).mean(axis=1)
        if (wealth >= 1.0 / self.alpha).any():
            return "effect"
        return "no effect" if values.size >= self.most else "continue"
