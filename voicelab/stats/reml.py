"""The restricted likelihood of a linear mixed model whose random effects may be crossed, and Satterthwaite's degrees."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from voicelab.errors import ArgumentError
from voicelab.stats.estimate import holm

if TYPE_CHECKING:
    import pandas as pd

Codes = npt.NDArray[np.intp]
Floats = npt.NDArray[np.float64]

# A variance in units of the residual's that is at its bound of 0.
AT_BOUND = 1e-6
_STEPS = 60
# Odds of 3,000 to 1: answers that have no spread on the scale of logits.
_LARGEST_LOGIT = 8.0


@dataclass(frozen=True, slots=True)
class Fit:
    """The likelihood at given variances: ``deviance`` and its ``slopes``, and the fixed effects, ``mean``.

    ``covariance`` is theirs, ``residual`` the residual variance, ``effects`` the predicted random effects.
    """

    deviance: float
    slopes: Floats
    mean: Floats
    covariance: Floats
    residual: float
    effects: Floats


class RestrictedLikelihood:
    """The restricted likelihood of numbers (H. D. Patterson & R. Thompson, Biometrika 58, 1971), residual profiled out.

    Its arguments are the variances of the random effects in units of the residual's, as D. Bates et al., "Fitting linear
    mixed-effects models using lme4", Journal of Statistical Software 67 (2015); slopes as D. A. Harville, JASA 72 (1977).
    ``parts`` are the indicators of each random effect, (n, levels); ``design`` the fixed effects' columns. With
    ``weights`` (n,) the residual variance is 1 / weights, and nothing is profiled out. Raises ArgumentError where the
    effects explain every value.
    """

    def __init__(self, parts: list[Floats], design: Floats, values: Floats, weights: Floats | None = None) -> None:
        everything = np.hstack([*parts, design, values[:, None]])
        self.products = everything.T @ (everything if weights is None else everything * weights[:, None])
        self.sizes = [part.shape[1] for part in parts]
        self.free = values.size - design.shape[1]
        self.known = weights is not None
        if self.known:
            return
        explained = self.products[:-1, -1]
        solution, _, rank, _ = np.linalg.lstsq(self.products[:-1, :-1], explained, rcond=1e-10)
        left = self.products[-1, -1] - explained @ solution
        # Without anything left the likelihood has no greatest value.
        if rank < values.size and left < 1e-9 * self.products[-1, -1]:
            message = "systems, listeners and items explain every rating: nothing is left to weigh differences by"
            raise ArgumentError.of("rating", message)

    def at(self, ratios: Floats) -> Fit:
        """Return the likelihood where the random effects have these variances in units of the residual's."""
        from scipy.linalg import cho_solve, cholesky, solve_triangular

        random, unchecked = sum(self.sizes), {"lower": True, "check_finite": False}
        scale = np.sqrt(np.repeat(ratios, self.sizes))[:, None]
        root = cholesky(scale * self.products[:random, :random] * scale.T + np.eye(random), **unchecked)
        inner = solve_triangular(root, scale * self.products[:random], **unchecked)
        # Products weighted by the inverse covariance of the values; then with the fixed effects taken out.
        weighted = self.products[random:] - inner[:, random:].T @ inner
        fixed = cholesky(weighted[:-1, random:-1], **unchecked)
        means = solve_triangular(fixed, weighted[:-1], **unchecked)
        left = self.products.diagonal() - np.square(inner).sum(axis=0) - np.square(means).sum(axis=0)
        pull = (weighted[-1] - means[:, -1] @ means)[:random]
        residual = 1.0 if self.known else float(left[-1]) / self.free
        deviance = 2.0 * float(np.log(root.diagonal()).sum() + np.log(fixed.diagonal()).sum())
        deviance += float(left[-1]) if self.known else self.free * math.log(residual)
        starts = np.cumsum([0, *self.sizes])[:-1]
        slopes = np.add.reduceat(left[:random] - np.square(pull) / residual, starts) if random else np.zeros(0)
        mean = cho_solve((fixed, True), weighted[:-1, -1])
        covariance = residual * cho_solve((fixed, True), np.eye(len(fixed)))
        return Fit(deviance, slopes, mean, covariance, residual, scale[:, 0] ** 2 * pull)

    def maximum(self, start: Floats | None = None) -> tuple[Floats, bool]:
        """Return the ratios of the greatest likelihood, and whether the search for them settled."""
        from scipy.optimize import minimize

        if not self.sizes:
            return np.zeros(0), True

        def objective(ratios: Floats) -> tuple[float, Floats]:
            fit = self.at(ratios)
            return fit.deviance, fit.slopes

        best = minimize(
            objective,
            np.full(len(self.sizes), 0.5) if start is None else start,
            method="SLSQP",
            jac=True,
            bounds=[(0.0, None)] * len(self.sizes),
            options={"ftol": 1e-9, "maxiter": 1000},
        )
        return np.asarray(np.maximum(best.x, 0.0), np.float64), bool(best.success)

    def degrees(self, ratios: Floats) -> Callable[[Floats], float]:
        """Return what gives a contrast of the fixed effects, (columns,), its degrees of freedom.

        F. E. Satterthwaite (Biometrics Bulletin 2, 1946) for mixed models, as A. Kuznetsova et al., "lmerTest package",
        Journal of Statistical Software 82 (2017): twice the squared variance of the contrast over the variance of its
        estimate, by the information of the variances. Slopes by central differences; variances at 0 are taken as known.
        """
        active = np.flatnonzero(ratios > AT_BOUND)
        steps = []
        for place in active:
            reach = np.zeros(ratios.size)
            reach[place] = 1e-3 * ratios[place]
            above, below = self.at(ratios + reach), self.at(ratios - reach)
            width = 2.0 * float(reach[place])
            steps.append(((above.slopes - below.slopes)[active] / width, above.covariance, below.covariance, width))
        curvature = np.array([step[0] for step in steps]).reshape(active.size, active.size)
        # Twice the inverse of the deviance's curvature is the covariance of the ratios.
        spread = np.linalg.pinv((curvature + curvature.T) / 2.0, hermitian=True)
        least = 0.0 if self.known else 1.0 / self.free

        def of(contrast: Floats) -> float:
            ratios = [(contrast @ above @ contrast) / (contrast @ below @ contrast) for _, above, below, _ in steps]
            slopes = np.array([math.log(ratio) / step[3] for ratio, step in zip(ratios, steps, strict=True)])
            inverse = least + max(0.0, float(slopes @ spread @ slopes))
            return 1.0 / inverse if inverse > 0.0 else math.inf

        return of


def pseudo_likelihood(
    parts: list[Floats], design: Floats, chosen: Floats
) -> tuple[RestrictedLikelihood, Floats] | None:
    """Return the likelihood and the variances of a logistic mixed model of ``chosen`` (n,), 0 or 1; None without end.

    By restricted pseudo-likelihood: R. Wolfinger & M. O'Connell, Journal of Statistical Computation and Simulation 48
    (1993): a linear mixed model of the logits' first-order expansion, made anew until the fixed effects stay.
    """
    effects = np.hstack([*parts, design])
    share = float(chosen.mean())
    logits, ratios = np.full(chosen.size, math.log(share / (1.0 - share))), np.full(len(parts), 0.5)
    before = np.full(design.shape[1], math.inf)
    for _ in range(_STEPS):
        chance = 1.0 / (1.0 + np.exp(-logits))
        weights = chance * (1.0 - chance)
        likelihood = RestrictedLikelihood(parts, design, logits + (chosen - chance) / weights, weights)
        ratios, _ = likelihood.maximum(ratios)
        fit = likelihood.at(ratios)
        logits = effects @ np.concatenate((fit.effects, fit.mean))
        if np.abs(logits).max() > _LARGEST_LOGIT:
            return None
        if np.abs(fit.mean - before).max() < 1e-6:
            return likelihood, ratios
        before = fit.mean
    return None


def codes_of(column: pd.Series[Any] | Codes) -> Codes:
    """Number the different values from 0 in the order in which they come first."""
    import pandas as pd

    return np.asarray(pd.factorize(column, use_na_sentinel=False)[0], np.intp)


def count_of(codes: Codes) -> int:
    """Return how many different ones there are."""
    return int(codes.max()) + 1


def indicators(codes: Codes) -> Floats:
    """Return a column for each code, 1 where it is, shape (n, codes)."""
    columns: Floats = (codes[:, None] == np.arange(count_of(codes))[None]).astype(np.float64)
    return columns


def pairs_of(
    names: Sequence[str],
    means: Floats,
    covariance: Floats,
    degrees: Callable[[Floats], float],
    confidence: float,
    column: str = "difference",
) -> pd.DataFrame:
    """Return a row for each pair of systems: how far ``first`` is above ``second``, by Student's t or, with inf df, by z."""
    import pandas as pd
    from scipy.stats import t

    first, second = np.triu_indices(len(names), 1)
    contrasts = np.eye(len(names))[first] - np.eye(len(names))[second]
    apart, df = contrasts @ means, np.array([degrees(contrast) for contrast in contrasts])
    error = np.sqrt(np.einsum("ij,jk,ik->i", contrasts, covariance, contrasts))
    p, half = 2.0 * t.sf(np.abs(apart) / error, df), t.ppf((1.0 + confidence) / 2.0, df) * error
    ends = {column: apart, "error": error, "low": apart - half, "high": apart + half}
    named = {"first": np.array(names, object)[first], "second": np.array(names, object)[second]}
    return pd.DataFrame({**named, **ends, "df": df, "p": p, "p_holm": holm(p)})
