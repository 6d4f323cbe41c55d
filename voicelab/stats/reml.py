"""REML of linear mixed models with crossed random effects, and Satterthwaite's degrees of freedom."""

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

# Smaller variance ratios count as 0, the lower bound.
AT_BOUND = 1e-6
_MAX_SLOPE = 1e-2


@dataclass(frozen=True, slots=True)
class Fit:
    """Fit at given variance ratios: ``deviance`` with ``gradient``, and fixed effects ``mean`` with ``covariance``.

    ``residual`` is the residual variance.
    """

    deviance: float
    gradient: Floats
    mean: Floats
    covariance: Floats
    residual: float


class RestrictedLikelihood:
    """Restricted likelihood (H. D. Patterson & R. Thompson, Biometrika 58, 1971) with a profiled residual variance.

    Its arguments are the ratios of the random effects' variances to the residual variance, as in D. Bates et al.,
    "Fitting linear mixed-effects models using lme4", Journal of Statistical Software 67 (2015). The gradient is that of
    D. A. Harville, JASA 72 (1977). ``groups`` are the indicator matrices (n, levels) of the random effects, and
    ``design`` is the matrix of fixed effects. Raises ArgumentError for a saturated model.
    """

    def __init__(self, groups: list[Floats], design: Floats, values: Floats) -> None:
        from scipy.linalg import lstsq
        from scipy.sparse import csr_array, hstack

        # The largest group is first, as ``at`` eliminates it in closed form.
        self.order = np.argsort([-group.shape[1] for group in groups], kind="stable").astype(np.intp)
        columns = hstack(
            [csr_array(part) for part in (*(groups[index] for index in self.order), design, values[:, None])]
        )
        self.products: Floats = (columns.T @ columns).toarray()
        self.sizes = [groups[index].shape[1] for index in self.order]
        self.residual_df = values.size - design.shape[1]
        explained = self.products[:-1, -1]
        solution, _, rank, _ = lstsq(self.products[:-1, :-1], explained, cond=1e-10, lapack_driver="gelsy")
        residual = self.products[-1, -1] - explained @ solution
        # The likelihood of a saturated model is unbounded.
        if rank < values.size and residual < 1e-9 * self.products[-1, -1]:
            message = "systems, listeners and items explain every rating, so there is no residual variance"
            raise ArgumentError.of("rating", f"{message}; crossed_mean (result.crossed of analyze) tests such ratings")

    def at(self, ratios: Floats) -> Fit:
        """Evaluate the likelihood at variance ratios (groups,)."""
        from scipy.linalg import cho_solve, cholesky, solve_triangular

        random, unchecked = sum(self.sizes), {"lower": True, "check_finite": False}
        largest, ordered = (self.sizes or [0])[0], ratios[self.order]
        # Levels of a group have no rating in common, so the products within the largest group are diagonal.
        counts, links = self.products.diagonal()[:largest], self.products[:largest, largest:]
        ratio = ordered[0] if largest else 0.0
        shrinkage = 1.0 / (1.0 + ratio * counts)
        rest = self.products[largest:, largest:] - links.T @ (links * (ratio * shrinkage)[:, None])
        columns = np.hstack([(links * shrinkage[:, None]).T, rest])
        scale, others = np.sqrt(np.repeat(ordered, self.sizes))[:, None], random - largest
        scales = scale[largest:]
        root = cholesky(scales * rest[:others, :others] * scales.T + np.eye(others), **unchecked)
        inner = solve_triangular(root, scales * columns[:others], **unchecked)
        # Products weighted by the inverse covariance of the values; then the fixed effects are projected out.
        weighted = columns[others:] - inner[:, random:].T @ inner
        fixed = cholesky(weighted[:-1, random:-1], **unchecked)
        means = solve_triangular(fixed, weighted[:-1], **unchecked)
        diagonal = np.concatenate([counts * shrinkage, rest.diagonal()])
        projected = diagonal - np.square(inner).sum(axis=0) - np.square(means).sum(axis=0)
        scores = (weighted[-1] - means[:, -1] @ means)[:random]
        residual = float(projected[-1]) / self.residual_df
        deviance = 2.0 * float(np.log(root.diagonal()).sum() + np.log(fixed.diagonal()).sum())
        deviance += self.residual_df * math.log(residual) - float(np.log(shrinkage).sum())
        gradient = np.zeros(len(self.sizes))
        if random:
            starts = np.cumsum([0, *self.sizes])[:-1]
            gradient[self.order] = np.add.reduceat(projected[:random] - np.square(scores) / residual, starts)
        mean = cho_solve((fixed, True), weighted[:-1, -1])
        covariance = residual * cho_solve((fixed, True), np.eye(len(fixed)))
        return Fit(deviance, gradient, mean, covariance, residual)

    def maximum(self, start: Floats | None = None) -> tuple[Floats, bool]:
        """Maximize the likelihood; return the variance ratios and whether the search converged."""
        from scipy.optimize import minimize

        if not self.sizes:
            return np.zeros(0), True

        def objective(ratios: Floats) -> tuple[float, Floats]:
            fit = self.at(ratios)
            return fit.deviance, fit.gradient

        best = minimize(
            objective,
            np.full(len(self.sizes), 0.5) if start is None else start,
            method="L-BFGS-B",
            jac=True,
            bounds=[(0.0, None)] * len(self.sizes),
            options={"ftol": 1e-12, "gtol": 1e-5, "maxiter": 1000},
        )
        # At floating-point precision, the line search reports an error at the optimum.
        slopes = np.where(best.x > 0.0, np.abs(best.jac), -np.minimum(best.jac, 0.0))
        return np.asarray(np.maximum(best.x, 0.0), np.float64), bool(best.success or slopes.max() < _MAX_SLOPE)

    def degrees(self, ratios: Floats) -> Callable[[Floats], float]:
        """Return a function that computes the degrees of freedom of a contrast of the fixed effects (columns,).

        This is Satterthwaite's approximation (Biometrics Bulletin 2, 1946) for mixed models, as in A. Kuznetsova et
        al., "lmerTest package", Journal of Statistical Software 82 (2017): 2 v² / Var(v), where v is the estimated
        variance of the contrast. Var(v) is computed by the delta method from the covariance of the variance components,
        with derivatives by central differences. Components that are estimated as 0 are held fixed.
        """
        active = np.flatnonzero(ratios > AT_BOUND)
        steps = []
        for index in active:
            step = np.zeros(ratios.size)
            step[index] = 1e-3 * ratios[index]
            above, below = self.at(ratios + step), self.at(ratios - step)
            width = 2.0 * float(step[index])
            steps.append(((above.gradient - below.gradient)[active] / width, above.covariance, below.covariance, width))
        curvature = np.array([row for row, *_ in steps]).reshape(active.size, active.size)
        # The covariance of the ratios is twice the inverse of the deviance's curvature.
        covariance = np.linalg.pinv((curvature + curvature.T) / 2.0, hermitian=True)
        minimum = 1.0 / self.residual_df

        def of(contrast: Floats) -> float:
            ratios = [(contrast @ above @ contrast) / (contrast @ below @ contrast) for _, above, below, _ in steps]
            gradient = np.array([math.log(ratio) / step[3] for ratio, step in zip(ratios, steps, strict=True)])
            inverse = minimum + max(0.0, float(gradient @ covariance @ gradient))
            return 1.0 / inverse if inverse > 0.0 else math.inf

        return of


def codes_of(column: pd.Series[Any] | Codes) -> Codes:
    """Encode values as integers in order of appearance."""
    import pandas as pd

    return np.asarray(pd.factorize(column, use_na_sentinel=False)[0], np.intp)


def count_of(codes: Codes) -> int:
    """Return the number of distinct codes."""
    return int(codes.max()) + 1


def indicators(codes: Codes) -> Floats:
    """Return the indicator matrix, shape (n, codes)."""
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
    """Tabulate the differences of all pairs of systems, ``first`` minus ``second``, by Student's t (z if df is infinite)."""
    import pandas as pd
    from scipy.stats import t

    i, j = np.triu_indices(len(names), 1)
    contrasts = np.eye(len(names))[i] - np.eye(len(names))[j]
    difference, df = contrasts @ means, np.array([degrees(contrast) for contrast in contrasts])
    error = np.sqrt(np.einsum("ij,jk,ik->i", contrasts, covariance, contrasts))
    p, half = 2.0 * t.sf(np.abs(difference) / error, df), t.ppf((1.0 + confidence) / 2.0, df) * error
    systems = {"first": np.array(names, object)[i], "second": np.array(names, object)[j]}
    estimates = {column: difference, "error": error, "low": difference - half, "high": difference + half}
    return pd.DataFrame({**systems, **estimates, "df": df, "p": p, "p_holm": holm(p)})
