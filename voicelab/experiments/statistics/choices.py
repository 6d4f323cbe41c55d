"""Choices between two: AB and ABX tests by the binomial, and the strengths of many systems from their pairs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

import numpy as np
import numpy.typing as npt

from voicelab.errors import RequestInvalid
from voicelab.experiments.statistics.result import Estimate, Test, between, whole

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["BradleyTerry", "binomial", "bradley_terry"]

_Floats = npt.NDArray[np.float64]
_ELO = 400.0 / math.log(10.0)
_ELO_MEAN = 1500.0


def binomial(
    successes: int,
    trials: int,
    *,
    chance: float = 0.5,
    alternative: Literal["two-sided", "greater", "less"] = "two-sided",
    interval: Literal["exact", "wilson"] = "exact",
    confidence: float = 0.95,
) -> Test:
    """Test whether ``successes`` of ``trials`` are more than ``chance``; the estimate is their share.

    AB: preferences for A, two-sided. ABX: right answers, alternative "greater". The p-value is the exact
    binomial's; ``interval`` is always two-sided: "exact" is Clopper & Pearson's (Biometrika 26, 1934), which
    covers at least ``confidence``, "wilson" E. B. Wilson's (JASA 22, 1927), which covers it on average. By scipy.
    Trials of one listener are taken as independent. Raises RequestInvalid.
    """
    from scipy.stats import binomtest

    whole(trials, "trials", 1)
    if whole(successes, "successes", 0) > trials:
        raise RequestInvalid.of("successes", f"{successes} of {trials} trials cannot be")
    if alternative not in ("two-sided", "greater", "less"):
        raise RequestInvalid.of("alternative", f"{alternative!r} is not 'two-sided', 'greater' or 'less'")
    if interval not in ("exact", "wilson"):
        raise RequestInvalid.of("interval", f"{interval!r} is not 'exact' or 'wilson'")
    between(chance, "chance", 0.0, 1.0)
    between(confidence, "confidence", 0.0, 1.0)
    found = binomtest(int(successes), int(trials), chance, alternative)
    two_sided = found if alternative == "two-sided" else binomtest(int(successes), int(trials), chance)
    limits = two_sided.proportion_ci(confidence, interval)
    estimate = Estimate(successes / trials, float(limits.low), float(limits.high), confidence, trials)
    return Test(f"exact binomial, {alternative}", float(successes), float(found.pvalue), estimate)


@dataclass(frozen=True, eq=False)
class BradleyTerry:
    """Strengths of systems: ``strength`` (systems,) natural log odds with mean 0, ``covariance`` of them.

    The chance that system a is preferred to b is 1 / (1 + exp(b - a)).
    """

    names: tuple[str, ...]
    strength: _Floats = field(repr=False)
    covariance: _Floats = field(repr=False)
    comparisons: float

    def probability(self, first: str, second: str) -> float:
        """Return the chance that ``first`` is preferred to ``second``."""
        a, b = (self.names.index(name) for name in (first, second))
        return 1.0 / (1.0 + math.exp(float(self.strength[b] - self.strength[a])))

    def difference(self, first: str, second: str, confidence: float = 0.95) -> Estimate:
        """Return how far ``first`` is above ``second`` on the Elo scale, with Wald's interval."""
        from scipy.stats import norm

        a, b = (self.names.index(name) for name in (first, second))
        value = float(self.strength[a] - self.strength[b])
        variance = self.covariance[a, a] + self.covariance[b, b] - 2.0 * self.covariance[a, b]
        reach = float(norm.ppf((1.0 + confidence) / 2.0)) * math.sqrt(max(float(variance), 0.0))
        return Estimate(_ELO * value, _ELO * (value - reach), _ELO * (value + reach), confidence, int(self.comparisons))

    def frame(self, confidence: float = 0.95) -> pd.DataFrame:
        """Return a row for each system, best first: ``elo`` (mean 1500), its interval, and ``strength`` and ``se``.

        A. E. Elo's scale: 400 points are odds of 10 to 1. The intervals are of each system against the mean of all.
        """
        import pandas as pd
        from scipy.stats import norm

        se = np.sqrt(np.maximum(np.diag(self.covariance), 0.0))
        reach = float(norm.ppf((1.0 + between(confidence, "confidence", 0.0, 1.0)) / 2.0)) * se
        elo = [_ELO_MEAN + _ELO * (self.strength + sign * reach) for sign in (0.0, -1.0, 1.0)]
        columns = {"elo": elo[0], "low": elo[1], "high": elo[2], "strength": self.strength, "se": se}
        table = pd.DataFrame({"system": self.names, **columns})
        return table.sort_values("elo", ascending=False, kind="stable", ignore_index=True)


def bradley_terry(wins: npt.ArrayLike, names: Sequence[str] | None = None) -> BradleyTerry:
    """Fit the model of R. A. Bradley & M. E. Terry (Biometrika 39, 1952) by maximum likelihood.

    ``wins[a, b]`` is how often a was preferred to b, shape (systems, systems); a tie counts half for both. Newton's
    method on the log odds; the covariance is the inverse of the Fisher information under mean 0. Comparisons are
    taken as independent: with many from few listeners the intervals are too narrow.

    Raises RequestInvalid for anything but counts, and when no finite strengths exist: L. R. Ford's condition (1957),
    every system must be reachable from every other by wins.
    """
    from scipy.sparse.csgraph import connected_components

    counts = np.asarray(wins, np.float64)
    if counts.ndim != 2 or counts.shape[0] != counts.shape[1] or counts.shape[0] < 2:
        raise RequestInvalid.of("wins", f"Input should have shape (systems, systems), got {counts.shape}")
    if not np.isfinite(counts).all() or (counts < 0.0).any() or np.diag(counts).any():
        raise RequestInvalid.of("wins", "Input should be counts from 0, with zeros on the diagonal")
    labels = tuple(names) if names is not None else tuple(str(number) for number in range(len(counts)))
    if len(labels) != len(counts) or len(set(labels)) < len(labels):
        raise RequestInvalid.of("names", f"Input should be {len(counts)} different names")
    parts, _ = connected_components(counts > 0.0, directed=True, connection="strong")
    if parts > 1:
        raise RequestInvalid.of("wins", "some systems never lose, or never win, against the rest: no finite strengths")
    both = counts + counts.T
    strength = np.zeros(len(counts))
    for _ in range(100):
        chance = 1.0 / (1.0 + np.exp(strength[None, :] - strength[:, None]))
        gradient = (counts - both * chance).sum(axis=1)
        weight = both * chance * (1.0 - chance)
        information = np.diag(weight.sum(axis=1)) - weight
        step = np.linalg.pinv(information, hermitian=True) @ gradient
        # Far from the solution a full step may overshoot.
        strength = strength + step * min(1.0, 2.0 / max(float(np.abs(step).max()), 1e-300))
        if np.abs(step).max() < 1e-10:
            break
    strength = strength - strength.mean()
    covariance = np.asarray(np.linalg.pinv(information, hermitian=True), np.float64)
    return BradleyTerry(labels, strength, covariance, float(counts.sum()))
