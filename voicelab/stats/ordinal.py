"""Cumulative link model of ordinal ratings with crossed random effects."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from voicelab.errors import ArgumentError
from voicelab.stats.estimate import between, interval, p_text
from voicelab.stats.reml import Codes, Floats, codes_of, count_of, indicators, pairs_of

if TYPE_CHECKING:
    import pandas as pd

_MAX_CATEGORIES = 20
_MAX_ITERATIONS = 100
# Odds of three million to one.
_MAX_LOGIT = 15.0


@dataclass(frozen=True, eq=False)
class OrdinalModel:
    """Effects of systems on the odds of a higher rating category.

    ``thresholds`` (categories - 1,) in logits, for the first system; ``pairs``: a row per pair with the ``log_odds`` ratio of
    a higher category for ``first`` over ``second``, ``error``, ``low``, ``high``, ``p`` (Wald's z) and ``p_holm``. ``sd`` are
    the SDs of the random effects; ``log_likelihood`` is Laplace's approximation.
    """

    thresholds: Floats = field(repr=False)
    pairs: pd.DataFrame = field(repr=False)
    sd: dict[str, float]
    log_likelihood: float

    def __str__(self) -> str:
        lines = [
            f"{row['first']} - {row['second']}: odds of a higher category × {_odds(row['log_odds']):.3g} "
            f"{interval(_odds(row['low']), _odds(row['high']))}, Holm-corrected {p_text(row['p_holm'])}"
            for row in self.pairs.to_dict("records")
        ]
        return "\n".join([*lines, "SD: " + ", ".join(f"{name} {value:.3g}" for name, value in self.sd.items())])


def _odds(logit: float) -> float:
    return math.exp(logit) if logit < 700.0 else math.inf


def ordinal_model(frame: pd.DataFrame, *, interactions: bool = True, confidence: float = 0.95) -> OrdinalModel:
    """Fit a proportional odds model of ratings with crossed random effects of listeners and items.

    It is a sensitivity analysis, since ratings from 1 to 5 are ordinal. P. McCullagh, "Regression models for ordinal data",
    JRSS B 42 (1980), with random effects by Laplace's approximation, as in R's ordinal::clmm. p is Wald's, which is too small
    if there are few listeners or items; compare the order and size of differences with ``mixed_model``.

    Args:
        frame: a row per rating, with the columns rating, system, listener and item.
        interactions: include listener x system and item x system.
        confidence: level of the intervals.

    Raises ArgumentError for a missing column, a single system, fewer than 2 or more than 20 categories, and for systems
    whose ratings do not overlap, since no finite odds exist.
    """
    between(confidence, "confidence", 0.0, 1.0)
    for column in ("rating", "system", "listener", "item"):
        if column not in frame.columns:
            raise ArgumentError.of("frame", f"must have a column {column!r}, got {list(frame.columns)}")
    categories, ratings = np.unique(frame["rating"].to_numpy(np.float64), return_inverse=True)
    if not 2 <= categories.size <= _MAX_CATEGORIES:
        raise ArgumentError.of("rating", f"must have 2 to {_MAX_CATEGORIES} categories, got {categories.size}")
    systems = codes_of(frame["system"])
    names = [str(name) for name in frame["system"].unique()]
    if len(names) < 2:
        raise ArgumentError.of("system", f"must have two or more systems, got {names[0]!r} only")
    groups = {name: codes_of(frame[name]) for name in ("listener", "item")}
    groups = {name: code for name, code in groups.items() if count_of(code) > 1}
    if interactions:
        crossed = {f"{name} x system": codes_of(code * len(names) + systems) for name, code in groups.items()}
        groups |= {name: code for name, code in crossed.items() if count_of(code) < code.size}
    model = CumulativeLink(np.asarray(ratings, np.intp), indicators(systems)[:, 1:], list(groups.values()))
    roots, effects, covariance, likelihood = model.fit()
    logits = np.concatenate(([0.0], effects[categories.size - 1 :]))
    if np.ptp(logits) > _MAX_LOGIT:
        raise ArgumentError.of("rating", "ratings of systems must overlap: the odds are infinite; use mixed_model")
    system_covariance = np.zeros((len(names), len(names)))
    system_covariance[1:, 1:] = covariance[categories.size - 1 :, categories.size - 1 :]
    pairs = pairs_of(names, logits, system_covariance, lambda _: math.inf, confidence, "log_odds")
    sd = dict(zip(groups, map(float, roots), strict=True))
    return OrdinalModel(effects[: categories.size - 1], pairs, sd, likelihood)


class CumulativeLink:
    """Likelihood of ordered categories: logit P(y <= j) = threshold_j - design @ beta - random effects.

    ``ratings`` (n,) are category indices from 0; ``design`` (n, columns); ``groups`` the codes of each random effect.
    Parameters: the lowest threshold and the logarithms of the steps, so that thresholds are ordered; coefficients; log SDs.
    """

    def __init__(self, ratings: Codes, design: Floats, groups: list[Codes]) -> None:
        self.ratings, self.design = ratings, design
        self.categories = count_of(ratings)
        matrices = [indicators(code) for code in groups]
        self.random = np.hstack([*matrices, np.zeros((ratings.size, 0))])
        self.sizes = [matrix.shape[1] for matrix in matrices]
        self._modes = np.zeros(sum(self.sizes))

    def fit(self) -> tuple[Floats, Floats, Floats, float]:
        """Return the SDs of random effects, thresholds with coefficients and their covariance, and the log likelihood."""
        from scipy.optimize import approx_fprime, minimize

        shares = np.cumsum(np.bincount(self.ratings))[:-1] / self.ratings.size
        cuts = np.log(shares / (1.0 - shares))
        start = [cuts[0], *np.log(np.diff(cuts)), *np.zeros(self.design.shape[1]), *np.full(len(self.sizes), -0.5)]
        bounds = [(None, None)] * (len(start) - len(self.sizes)) + [(-7.0, 3.0)] * len(self.sizes)
        best = minimize(self._deviance, np.array(start), method="L-BFGS-B", bounds=bounds, options={"maxiter": 400})
        optimum = np.asarray(best.x, np.float64)
        # An SD at its lower bound represents 0 and has a zero gradient.
        free = np.flatnonzero(
            [low is None or value > low + 0.5 for value, (low, _) in zip(optimum, bounds, strict=True)]
        )

        def gradient(values: Floats) -> Floats:
            parameters = optimum.copy()
            parameters[free] = values
            return np.asarray(approx_fprime(parameters, self._deviance, 1e-5)[free], np.float64)

        step = 1e-3
        differences = np.array(
            [
                gradient(optimum[free] + step * axis) - gradient(optimum[free] - step * axis)
                for axis in np.eye(free.size)
            ]
        )
        curvature = (differences + differences.T) / (4.0 * step)
        fixed = self.categories - 1 + self.design.shape[1]
        covariance = 2.0 * np.linalg.pinv(curvature, hermitian=True)[:fixed, :fixed]
        jacobian = np.eye(fixed)
        steps = np.exp(optimum[1 : self.categories - 1])
        for row in range(1, self.categories - 1):
            jacobian[row, 0], jacobian[row, 1 : row + 1] = 1.0, steps[:row]
        effects = np.concatenate((self._thresholds(optimum), optimum[self.categories - 1 : fixed]))
        roots = np.where(optimum[fixed:] > -6.5, np.exp(optimum[fixed:]), 0.0)
        return roots, effects, jacobian @ covariance @ jacobian.T, -float(best.fun) / 2.0

    def _thresholds(self, parameters: Floats) -> Floats:
        steps = np.exp(np.clip(parameters[1 : self.categories - 1], -30.0, 30.0))
        return np.asarray(parameters[0] + np.concatenate(([0.0], np.cumsum(steps))), np.float64)

    def _deviance(self, parameters: Floats) -> float:
        """Compute -2 times Laplace's log likelihood at the mode of the random effects, by Newton's method."""
        from scipy.linalg import cho_factor, cho_solve

        fixed = self.categories - 1 + self.design.shape[1]
        cuts = np.concatenate(([-np.inf], self._thresholds(parameters), [np.inf]))
        predictor = self.design @ parameters[self.categories - 1 : fixed]
        scale = np.repeat(np.exp(parameters[fixed:]), self.sizes)
        random, modes = self.random * scale, self._modes.copy()
        value = self._joint(cuts, predictor + random @ modes, modes)[0]
        for _ in range(_MAX_ITERATIONS):
            _, score, weights = self._joint(cuts, predictor + random @ modes, modes)
            hessian = random.T @ (random * weights[:, None]) + np.eye(modes.size)
            factor = cho_factor(hessian, lower=True, check_finite=False)
            direction = cho_solve(factor, random.T @ score - modes, check_finite=False)
            rate = 1.0
            while rate > 1e-4:
                candidate = modes + rate * direction
                after = self._joint(cuts, predictor + random @ candidate, candidate)[0]
                if after <= value + 1e-12:
                    break
                rate /= 2.0
            gain, modes, value = value - after, candidate, after
            if gain < 1e-10:
                break
        self._modes = modes
        _, _, weights = self._joint(cuts, predictor + random @ modes, modes)
        hessian = random.T @ (random * weights[:, None]) + np.eye(modes.size)
        return 2.0 * value + float(np.linalg.slogdet(hessian)[1])

    def _joint(self, cuts: Floats, predictor: Floats, modes: Floats) -> tuple[float, Floats, Floats]:
        """Return the negative log joint density, the score of the linear predictor, and its information."""
        above = 1.0 / (1.0 + np.exp(np.clip(predictor - cuts[self.ratings + 1], -700, 700)))
        below = 1.0 / (1.0 + np.exp(np.clip(predictor - cuts[self.ratings], -700, 700)))
        probability = np.maximum(above - below, 1e-300)
        slope_above, slope_below = above * (1.0 - above), below * (1.0 - below)
        # d log(probability) / d predictor, for the logistic link.
        score = above + below - 1.0
        value = -float(np.log(probability).sum()) + 0.5 * float(modes @ modes)
        return value, score, slope_above + slope_below
