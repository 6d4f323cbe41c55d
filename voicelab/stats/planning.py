"""Before listeners are asked: how many are needed, and when to stop."""

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

_MOST = 1_000_000
_SLACK = 0.02
_STAKES = np.linspace(0.05, 0.95, 19)


def choice_power(
    trials: int,
    share: float,
    *,
    chance: float = 0.5,
    alpha: float = 0.05,
    alternative: Literal["two-sided", "greater"] = "two-sided",
) -> float:
    """Return the chance that an exact binomial test of ``trials`` choices finds a true ``share``.

    AB: ``share`` prefer A, two-sided. ABX: alternative "greater", and ``share`` = 0.5 + d / 2 when a share d of the
    answers is heard and the rest guessed. Two-sided is alpha / 2 on either side, which is what "two-sided" means where
    chance is 0.5. Answers are taken as independent: of AB, one from each listener. What ``analyze`` finds of several answers
    is for ``plan_test`` to say. Raises ArgumentError.
    """
    whole(trials, "trials", 1)
    _check(share, chance, alpha, alternative)
    return float(_powers(np.array([trials]), share, chance, alpha, alternative)[0])


def trials_needed(
    share: float,
    *,
    power: float = 0.8,
    chance: float = 0.5,
    alpha: float = 0.05,
    alternative: Literal["two-sided", "greater"] = "two-sided",
) -> int:
    """Return the least number of trials from which on ``choice_power`` is at least ``power``.

    From which on: the power of a test on counts goes up in a sawtooth, and a number that only just reaches it may be
    followed by ones that do not.

    For AB it is the number of listeners who answer once each. Several answers of one listener to a pair are not
    independent, and ten listeners with 21 answers are not 210: plan their number with ``ratings_needed``, where the
    difference is ``share`` less one half, and ``sd`` that of the listeners' shares: about the root of t² + s (1 - s) / n,
    where listeners' preferences spread by t around the share s, and each answers n times.

    Raises ArgumentError, also when more than a million are needed.
    """
    _check(share, chance, alpha, alternative)
    between(power, "power", 0.0, 1.0)
    if share == chance or (alternative == "greater" and share < chance):
        raise ArgumentError.of("share", "Input should differ from chance, or no number of trials shows it")
    from scipy.stats import norm

    tail = alpha / 2.0 if alternative == "two-sided" else alpha
    reach = float(norm.isf(tail)) * math.sqrt(chance * (1 - chance))
    reach += max(0.0, float(norm.ppf(power))) * math.sqrt(share * (1 - share))
    about = int((reach / (share - chance)) ** 2)
    if about > _MOST:
        raise ArgumentError.of("share", f"about {about} trials would be needed")
    counts = np.arange(1, 2 * about + 100)
    short = np.flatnonzero(_powers(counts, share, chance, alpha, alternative) < power)
    return int(counts[short[-1]] + 1) if short.size else 1


def _check(share: float, chance: float, alpha: float, alternative: str) -> None:
    between(share, "share", 0.0, 1.0)
    between(chance, "chance", 0.0, 1.0)
    between(alpha, "alpha", 0.0, 1.0)
    one_of(alternative, "alternative", ("two-sided", "greater"))


def _powers(
    trials: npt.NDArray[np.int_], share: float, chance: float, alpha: float, alternative: str
) -> npt.NDArray[np.float64]:
    from scipy.stats import binom

    tail = alpha / 2.0 if alternative == "two-sided" else alpha
    above = binom.isf(tail, trials, chance)
    power = binom.sf(above, trials, share)
    if alternative == "two-sided":
        below = binom.ppf(tail, trials, chance)
        below = below - (binom.cdf(below, trials, chance) > tail)
        power = power + np.where(below >= 0, binom.cdf(below, trials, share), 0.0)
    return np.asarray(power, np.float64)


def rating_power(listeners: int, difference: float, sd: float, *, paired: bool = True, alpha: float = 0.05) -> float:
    """Return the chance that a two-sided t-test finds a true ``difference`` of mean opinion scores.

    ``paired``: every listener rates both, and ``sd`` is of the differences between a listener's two means; else two
    groups of ``listeners`` each, and ``sd`` is of the listeners' means in each. By the noncentral t distribution (J.
    Cohen, "Statistical Power Analysis for the Behavioral Sciences", 1988, chapter 2). Raises ArgumentError.
    """
    count = whole(listeners, "listeners", 2)
    if not (math.isfinite(difference) and math.isfinite(sd) and sd > 0.0):
        raise ArgumentError.of("sd", "Input should be a number above 0, and difference a number")
    away = abs(difference) / sd * math.sqrt(count if paired else count / 2.0)
    return t_power(away, count - 1 if paired else 2 * (count - 1), between(alpha, "alpha", 0.0, 1.0))


def t_power(away: float, df: float, alpha: float = 0.05) -> float:
    """Return the chance that a two-sided t-test finds a difference of ``away``, above 0, standard errors."""
    from scipy.stats import nct, t

    limit = float(t.isf(alpha / 2.0, df))
    below = float(nct.cdf(-limit, df, away))
    return float(nct.sf(limit, df, away)) + (below if math.isfinite(below) else 0.0)


def ratings_needed(
    difference: float, sd: float, *, power: float = 0.8, paired: bool = True, alpha: float = 0.05
) -> int:
    """Return the least number of listeners (in each group, unless paired) with ``rating_power`` of ``power``.

    Raises ArgumentError, also when more than a million are needed.
    """
    between(power, "power", 0.0, 1.0)
    if difference == 0.0:
        raise ArgumentError.of("difference", "Input should not be 0, or no number of listeners shows it")
    low, high = 1, 2
    while rating_power(high, difference, sd, paired=paired, alpha=alpha) < power:
        low, high = high, 2 * high
        if high > _MOST:
            raise ArgumentError.of("difference", "more than a million listeners would be needed")
    while high - low > 1:
        middle = (low + high) // 2
        enough = rating_power(middle, difference, sd, paired=paired, alpha=alpha) >= power
        low, high = (low, middle) if enough else (middle, high)
    return high


@dataclass(frozen=True, slots=True)
class Sprt:
    """A stopping rule for choices: A. Wald's sequential probability ratio test (Ann. Math. Stat. 16, 1945), cut off.

    It decides between ``chance`` and ``share`` (above it) after every answer, with errors of about ``alpha`` (an
    effect is found where there is none) and ``beta`` (it is missed), and gives up as "no effect" at ``most`` trials.
    Wald's limits and the cut only keep the errors near; ``operating`` says what they are exactly, and a warning says so
    where ``most`` is so small that the effect is missed more often than ``beta``.

    Answers are taken as independent: those of an ABX test, or one of each listener. Several answers of one listener who
    prefers are not, and would raise its error fourfold: for them there is ``BettingTest``.

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
            raise ArgumentError.of("most", "Input should be 10000 or less")
        power = self.operating(self.share)[0]
        if power < 1.0 - self.beta - _SLACK:
            asked = f"where beta={self.beta:g} asks for {1.0 - self.beta:.0%}"
            warnings.warn(f"most={self.most} leaves a power of {power:.0%}, {asked}", UserWarning, stacklevel=3)

    def decide(self, successes: int, trials: int) -> Literal["continue", "effect", "no effect"]:
        """Return what to do after ``trials`` answers, of which ``successes`` were right (or preferred A).

        To be asked after every answer, in order: the first decision counts. Raises ArgumentError.
        """
        whole(trials, "trials", 0)
        if whole(successes, "successes", 0) > trials:
            raise ArgumentError.of("successes", f"{successes} of {trials} trials cannot be")
        ratio = self._ratio(successes, trials)
        if ratio >= math.log((1.0 - self.beta) / self.alpha):
            return "effect"
        if ratio <= math.log(self.beta / (1.0 - self.alpha)) or trials >= self.most:
            return "no effect"
        return "continue"

    def operating(self, true_share: float) -> tuple[float, float]:
        """Return the chance of "effect" and the mean number of trials when the share is ``true_share``.

        Exact, by following every count of successes. At ``chance`` the first is the true alpha, at ``share`` the power.
        """
        if not 0.0 <= true_share <= 1.0:
            raise ArgumentError.of("true_share", "Input should be from 0 to 1")
        going = np.ones(1)
        effects, expected = 0.0, 0.0
        for trials in range(1, self.most + 1):
            expected += float(going.sum())
            going = np.concatenate((going * (1.0 - true_share), [0.0])) + np.concatenate(([0.0], going * true_share))
            ratios = self._ratio(np.arange(trials + 1), trials)
            effect = ratios >= math.log((1.0 - self.beta) / self.alpha)
            effects += float(going[effect].sum())
            going[effect | (ratios <= math.log(self.beta / (1.0 - self.alpha)))] = 0.0
        return effects, expected

    def _ratio(self, successes: int | npt.NDArray[np.int_], trials: int) -> npt.NDArray[np.float64]:
        right = math.log(self.share / self.chance)
        wrong = math.log((1.0 - self.share) / (1.0 - self.chance))
        return np.asarray(successes * right + (trials - np.asarray(successes)) * wrong, np.float64)


@dataclass(frozen=True, slots=True)
class BettingTest:
    """A stopping rule for listeners with several answers each, however these hang together: a test by betting.

    A stake on the listeners' mean share being above ``chance`` is worth 1 / ``alpha`` at any time with a chance of at most
    ``alpha`` where it is not: J. Ville (1939), as I. Waudby-Smith & A. Ramdas, "Estimating means of bounded random variables
    by betting", Journal of the Royal Statistical Society B 86 (2024). It speaks of these sentences, and gives up at ``most``
    listeners. Raises ArgumentError.
    """

    chance: float = 0.5
    alpha: float = 0.05
    most: int = 100

    def __post_init__(self) -> None:
        between(self.chance, "chance", 0.0, 1.0)
        between(self.alpha, "alpha", 0.0, 0.5)
        whole(self.most, "most", 1)

    def decide(self, shares: Sequence[float]) -> Literal["continue", "effect", "no effect"]:
        """Return what to do after these listeners, in order: of each the share that was right (or preferred A)."""
        values = numbers(shares, "shares", 0) - self.chance
        if ((values < -self.chance) | (values > 1.0 - self.chance)).any():
            raise ArgumentError.of("shares", "Input should be from 0 to 1")
        # Stakes of many sizes, none of which can be lost whole, equally mixed.
        worth = np.cumprod(1.0 + np.outer(values, _STAKES / self.chance), axis=0).mean(axis=1)
        if (worth >= 1.0 / self.alpha).any():
            return "effect"
        return "no effect" if values.size >= self.most else "continue"
