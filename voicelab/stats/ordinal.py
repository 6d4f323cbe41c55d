"""Ratings as ordered categories: a cumulative link model with crossed random effects, beside the linear one."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from voicelab.errors import ArgumentError
from voicelab.stats.estimate import between, interval
from voicelab.stats.reml import Codes, Floats, codes_of, count_of, indicators, pairs_of

if TYPE_CHECKING:
    import pandas as pd

_MOST_CATEGORIES = 20
_STEPS = 100
# Odds of three million to one.
_LARGEST_LOGIT = 15.0


@dataclass(frozen=True, eq=False)
class OrdinalModel:
    """What systems do to the odds of a higher category.

    ``thresholds`` (categories - 1,) on the scale of logits, for the first system; ``pairs`` has a row for each pair:
    ``log_odds`` of a higher category for ``first`` over ``second``, with ``error``, ``low``, ``high``, ``p`` (Wald's, of a
    normal z) and ``p_holm``. ``sd`` are those of the random effects; ``log_likelihood`` is Laplace's approximation.
    """

    thresholds: Floats = field(repr=False)
    pairs: pd.DataFrame = field(repr=False)
    sd: dict[str, float]
    log_likelihood: float

    def __str__(self) -> str:
        lines = [
            f"{row['first']} - {row['second']}: odds of a higher category × {math.exp(row['log_odds']):.3g} "
            f"{interval(math.exp(row['low']), math.exp(row['high']))}, p {row['p_holm']:.4g} after Holm"
            for row in self.pairs.to_dict("records")
        ]
        return "\n".join([*lines, "sd: " + ", ".join(f"{name} {value:.3g}" for name, value in self.sd.items())])


def ordinal_model(frame: pd.DataFrame, *, interactions: bool = True, confidence: float = 0.95) -> OrdinalModel:
    """Fit a proportional odds model of ratings with crossed random effects of listeners and items.

    For a sensitivity analysis: a rating of 1 to 5 has an order, and no even steps. P. McCullagh, "Regression models for
    ordinal data", JRSS B 42 (1980), with random effects by Laplace's approximation, as R's ordinal::clmm. Its p is Wald's,
    which with few listeners or items is too small: what it should agree on with ``mixed_model`` is the order and the size.

    Args:
        frame: a row for each rating, with the columns rating, system, listener and item.
        interactions: whether listeners and items also differ in what they like (listener x system, item x system).
        confidence: of the intervals.

    Raises ArgumentError for a missing column, one system, one category, or more than 20 of them, and where ratings of
    systems do not overlap, so that no finite odds exist.
    """
    between(confidence, "confidence", 0.0, 1.0)
    for column in ("rating", "system", "listener", "item"):
        if column not in frame.columns:
            raise ArgumentError.of(column, f"there is no column {column!r}")
    categories, ratings = np.unique(frame["rating"].to_numpy(np.float64), return_inverse=True)
    if not 2 <= categories.size <= _MOST_CATEGORIES:
        message = f"there are {categories.size} categories; 2 to {_MOST_CATEGORIES} can be ordered"
        raise ArgumentError.of("rating", message)
    systems = codes_of(frame["system"])
    names = [str(name) for name in frame["system"].unique()]
    if len(names) < 2:
        raise ArgumentError.of("system", "one system has nothing to be compared with")
    groups = {name: codes_of(frame[name]) for name in ("listener", "item")}
    groups = {name: code for name, code in groups.items() if count_of(code) > 1}
    if interactions:
        crossed = {f"{name} x system": codes_of(code * len(names) + systems) for name, code in groups.items()}
        groups |= {name: code for name, code in crossed.items() if count_of(code) < code.size}
    model = CumulativeLink(np.asarray(ratings, np.intp), indicators(systems)[:, 1:], list(groups.values()))
    roots, effects, covariance, likelihood = model.fit()
    own = np.concatenate(([0.0], effects[categories.size - 1 :]))
    if np.ptp(own) > _LARGEST_LOGIT:
        raise ArgumentError.of("rating", "ratings of systems do not overlap: no finite odds, and nothing to test by")
    spread = np.zeros((len(names), len(names)))
    spread[1:, 1:] = covariance[categories.size - 1 :, categories.size - 1 :]
    pairs = pairs_of(names, own, spread, lambda _: math.inf, confidence, "log_odds")
    sd = dict(zip(groups, map(float, roots), strict=True))
    return OrdinalModel(effects[: categories.size - 1], pairs, sd, likelihood)


class CumulativeLink:
    """The likelihood of ordered categories: logit P(y <= j) = threshold_j - design @ beta - the random effects.

    ``ratings`` (n,) are numbers of categories from 0, ``design`` (n, columns), ``groups`` the codes of each random effect.
    Thresholds are kept in order by estimating the first, and the logarithms of the steps.
    """

    def __init__(self, ratings: Codes, design: Floats, groups: list[Codes]) -> None:
        self.ratings, self.design = ratings, design
        self.categories = count_of(ratings)
        self.parts = [indicators(code) for code in groups]
        self.random = np.hstack([*self.parts, np.zeros((ratings.size, 0))])
        self.sizes = [part.shape[1] for part in self.parts]
        self._modes = np.zeros(sum(self.sizes))

    def fit(self) -> tuple[Floats, Floats, Floats, float]:
        """Return the random effects' sd, thresholds with beta, the covariance of these, and the log likelihood."""
        from scipy.optimize import approx_fprime, minimize

        shares = np.cumsum(np.bincount(self.ratings))[:-1] / self.ratings.size
        cuts = np.log(shares / (1.0 - shares))
        start = [cuts[0], *np.log(np.diff(cuts)), *np.zeros(self.design.shape[1]), *np.full(len(self.sizes), -0.5)]
        bounds = [(None, None)] * (len(start) - len(self.sizes)) + [(-7.0, 3.0)] * len(self.sizes)
        best = minimize(self._deviance, np.array(start), method="L-BFGS-B", bounds=bounds, options={"maxiter": 400})
        place = np.asarray(best.x, np.float64)
        # An sd at its lower bound is 0, and has no slope.
        kept = np.flatnonzero([low is None or value > low + 0.5 for value, (low, _) in zip(place, bounds, strict=True)])

        def slopes(part: Floats) -> Floats:
            whole = place.copy()
            whole[kept] = part
            return np.asarray(approx_fprime(whole, self._deviance, 1e-5)[kept], np.float64)

        step = 1e-3
        around = np.array(
            [(slopes(place[kept] + step * one) - slopes(place[kept] - step * one)) for one in np.eye(kept.size)]
        )
        curvature = (around + around.T) / (4.0 * step)
        fixed = self.categories - 1 + self.design.shape[1]
        covariance = 2.0 * np.linalg.pinv(curvature, hermitian=True)[:fixed, :fixed]
        jacobian = np.eye(fixed)
        steps = np.exp(place[1 : self.categories - 1])
        for row in range(1, self.categories - 1):
            jacobian[row, 0], jacobian[row, 1 : row + 1] = 1.0, steps[:row]
        effects = np.concatenate((self._thresholds(place), place[self.categories - 1 : fixed]))
        roots = np.where(place[fixed:] > -6.5, np.exp(place[fixed:]), 0.0)
        return roots, effects, jacobian @ covariance @ jacobian.T, -float(best.fun) / 2.0

    def _thresholds(self, place: Floats) -> Floats:
        steps = np.exp(np.clip(place[1 : self.categories - 1], -30.0, 30.0))
        return np.asarray(place[0] + np.concatenate(([0.0], np.cumsum(steps))), np.float64)

    def _deviance(self, place: Floats) -> float:
        """Return minus twice Laplace's log likelihood, at the mode of the random effects, by Newton's method."""
        from scipy.linalg import cho_factor, cho_solve

        fixed = self.categories - 1 + self.design.shape[1]
        cuts = np.concatenate(([-np.inf], self._thresholds(place), [np.inf]))
        middle = self.design @ place[self.categories - 1 : fixed]
        scale = np.repeat(np.exp(place[fixed:]), self.sizes)
        random, modes = self.random * scale, self._modes.copy()
        value = self._joint(cuts, middle + random @ modes, modes)[0]
        for _ in range(_STEPS):
            _, pull, weights = self._joint(cuts, middle + random @ modes, modes)
            hessian = random.T @ (random * weights[:, None]) + np.eye(modes.size)
            factor = cho_factor(hessian, lower=True, check_finite=False)
            move = cho_solve(factor, random.T @ pull - modes, check_finite=False)
            rate = 1.0
            while rate > 1e-4:
                moved = modes + rate * move
                after = self._joint(cuts, middle + random @ moved, moved)[0]
                if after <= value + 1e-12:
                    break
                rate /= 2.0
            gain, modes, value = value - after, moved, after
            if gain < 1e-10:
                break
        self._modes = modes
        _, _, weights = self._joint(cuts, middle + random @ modes, modes)
        hessian = random.T @ (random * weights[:, None]) + np.eye(modes.size)
        return 2.0 * value + float(np.linalg.slogdet(hessian)[1])

    def _joint(self, cuts: Floats, middle: Floats, modes: Floats) -> tuple[float, Floats, Floats]:
        """Return minus the log of the joint density, its slope along the linear predictor, and its curvature there."""
        above = 1.0 / (1.0 + np.exp(np.clip(middle - cuts[self.ratings + 1], -700, 700)))
        below = 1.0 / (1.0 + np.exp(np.clip(middle - cuts[self.ratings], -700, 700)))
        chance = np.maximum(above - below, 1e-300)
        slope_above, slope_below = above * (1.0 - above), below * (1.0 - below)
        # d log(chance) / d predictor is above + below - 1, for the logistic link.
        pull = above + below - 1.0
        value = -float(np.log(chance).sum()) + 0.5 * float(modes @ modes)
        return value, pull, slope_above + slope_below
