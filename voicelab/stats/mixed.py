"""Linear mixed model of ratings with random effects of listeners and items, fitted by restricted maximum likelihood."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from voicelab.errors import ArgumentError
from voicelab.stats.estimate import Estimate, between, holm, interval, p_text, varies

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

    The likelihood is a function of the ratios of the random effects' variances to the residual variance, as in D. Bates et
    al., "Fitting linear mixed-effects models using lme4", Journal of Statistical Software 67 (2015). The gradient is that of
    D. A. Harville, JASA 72 (1977). ``groups`` are the indicator matrices (n, levels) of the random effects, and ``design``
    is the matrix of fixed effects. Raises ArgumentError for a saturated model.
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
            raise ArgumentError.of(
                "rating", f"{message}; use crossed_mean (result.crossed of analyze) for such ratings"
            )

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


@dataclass(frozen=True, eq=False)
class MixedModel:
    """Fitted mean ratings of systems, adjusted for listener and item effects, and variance components.

    ``scores`` has each system's mean with its interval. ``statistic``, ``df`` and ``p`` are those of Wald's F test of equal
    means (NaN for one system). ``pairs`` has a row per pair with ``first``, ``second``, ``difference`` (first minus second),
    ``error``, ``low``, ``high``, ``df``, ``p`` and ``p_holm``. ``sd`` has the SDs of ``listener``, ``item``, ``listener x
    system``, ``item x system`` and ``residual``, in points of the scale. ``notes`` state limitations of the fit.
    """

    scores: dict[str, Estimate]
    statistic: float
    df: tuple[int, float]
    p: float
    pairs: pd.DataFrame = field(repr=False)
    sd: dict[str, float]
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        lines = [f"{name}: {score}" for name, score in self.scores.items()]
        if math.isfinite(self.p):
            lines.append(f"equal means: F({self.df[0]}, {self.df[1]:.4g}) {self.statistic:.4g}, {p_text(self.p)}")
        lines += [
            f"{row['first']} - {row['second']}: {row['difference']:+.3g} {interval(row['low'], row['high'], '+.3g')}, "
            f"Holm-corrected {p_text(row['p_holm'])}"
            for row in self.pairs.to_dict("records")
        ]
        lines.append("SD: " + ", ".join(f"{name} {value:.3g}" for name, value in self.sd.items()))
        return "\n".join([*lines, *self.notes])


def mixed_model(frame: pd.DataFrame, *, confidence: float = 0.95) -> MixedModel:
    """Fit ``rating ~ system`` with crossed random effects of listeners and items, by REML.

    Follows R. H. Baayen, D. J. Davidson & D. M. Bates, "Mixed-effects modeling with crossed random effects for subjects
    and items", Journal of Memory and Language 59 (2008). If listeners or items have several ratings of a system, their
    interactions with the system are also random effects. If these were omitted, p would be far too small (D. J. Barr et al.,
    "Random effects structure for confirmatory hypothesis testing", ibid. 68, 2013).

    Degrees of freedom are F. E. Satterthwaite's, as in R's lmerTest. In a complete table, they are those of H. H.
    Clark's quasi-F ("The language-as-fixed-effect fallacy", Journal of Verbal Learning and Verbal Behavior 12, 1973).
    If there are few items, they therefore limit the power, regardless of the number of listeners.

    Unlike Friedman's test, the model allows missing ratings, replicates, and listeners who use the scale differently,
    but it assumes an interval scale and normal residuals.

    Args:
        frame: a row per rating, such as ``ListeningResult.frame``, with the columns rating (numeric), system, listener
            and item. The item is, for example, the sentence; if there is a single item, the column has one value.
        confidence: level of the intervals.

    Raises ArgumentError if a column is missing, ratings are not numeric or leave no residual variance, there are fewer
    than two listeners, or systems are confounded with listeners or items.
    """
    import pandas as pd

    between(confidence, "confidence", 0.0, 1.0)
    for column in (columns := ["rating", "system", "listener", "item"]):
        if column not in frame.columns:
            raise ArgumentError.of("frame", f"must have a column {column!r}, got {list(frame.columns)}")
    table = frame[columns].reset_index(drop=True)
    table["rating"] = pd.to_numeric(table["rating"], errors="coerce")
    if not (numeric := np.isfinite(table["rating"])).all():
        raise ArgumentError.of("rating", f"must be numbers, got {frame['rating'].iloc[int(np.argmin(numeric))]!r}")
    if table["listener"].nunique() < 2:
        raise ArgumentError.of("listener", f"must have two or more listeners, got {table['listener'].nunique()}")
    if not varies(table["rating"]):
        raise ArgumentError.of("rating", f"must vary, got only {table['rating'].iloc[0]:g}")
    return _RatingModel(table).result(confidence)


class _RatingModel:
    """Mixed model fitted to a table with the columns rating, system, listener and item."""

    def __init__(self, table: pd.DataFrame) -> None:
        systems = codes_of(table["system"])
        codes = {name: codes_of(table[name]) for name in ("listener", "item")}
        groups = {name: code for name, code in codes.items() if count_of(code) > 1}
        self.names = [str(name) for name in table["system"].unique()]
        self.listeners = count_of(codes["listener"])
        self.notes: list[str] = []
        additive = np.hstack([indicators(code) for code in (systems, *groups.values())])
        if len(table) - int(np.linalg.matrix_rank(additive.T @ additive)) < 1:
            raise ArgumentError.of("frame", "too few ratings: listeners are confounded with the residual")
        if len(self.names) > 1:
            groups |= self._interactions(groups, systems)
        values = table["rating"].to_numpy(np.float64)
        center, matrices = float(values.mean()), [indicators(code) for code in groups.values()]
        likelihood = RestrictedLikelihood(matrices, indicators(systems), values - center)
        ratios, converged = likelihood.maximum()
        if not converged:
            self.notes.append("The fit did not converge: interpret these figures with care.")
        at_bound = [name for name, ratio in zip(groups, ratios, strict=True) if ratio < AT_BOUND]
        self.notes += [f"The variance of {name} is 0 (singular fit)." for name in at_bound]
        fit, self.degrees = likelihood.at(ratios), likelihood.degrees(ratios)
        self.mean, self.covariance = fit.mean + center, fit.covariance
        roots = map(math.sqrt, [*(ratios * fit.residual), fit.residual])
        self.sd = dict(zip([*groups, "residual"], roots, strict=True))

    def _interactions(self, groups: Mapping[str, Codes], systems: Codes) -> dict[str, Codes]:
        """Return the estimable interactions with systems."""
        interactions = {}
        for name, code in groups.items():
            cells = codes_of(code * len(self.names) + systems)
            components, df = _overlap(code, systems)
            if name == "listener" and (components > 1 or df < 1):
                raise ArgumentError.of(
                    "listener", "too few listeners rated the same systems: listeners and systems are confounded"
                )
            # If each item has one system, systems are compared between items.
            if max(df, count_of(code) - len(self.names)) < 1:
                raise ArgumentError.of("item", "each system has a different sentence: items and systems are confounded")
            if df and count_of(cells) < cells.size:
                interactions[f"{name} x system"] = cells
        return interactions

    def result(self, confidence: float) -> MixedModel:
        """Compute means, tests and variance components."""
        from scipy import stats

        count, tail = len(self.names), (1.0 + confidence) / 2.0
        df = np.array([self.degrees(system) for system in np.eye(count)])
        half_widths = stats.t.ppf(tail, df) * np.sqrt(np.diag(self.covariance))
        scores = {
            name: Estimate(float(mean), float(mean - half), float(mean + half), confidence, self.listeners)
            for name, mean, half in zip(self.names, self.mean, half_widths, strict=True)
        }
        pairs = pairs_of(self.names, self.mean, self.covariance, self.degrees, confidence)
        statistic, p, f_df = math.nan, math.nan, (count - 1, math.nan)
        if count > 1:
            statistic, f_df = self._wald(np.eye(count)[:1] - np.eye(count)[1:])
            p = float(stats.f.sf(statistic, *f_df))
        return MixedModel(scores, statistic, f_df, p, pairs, self.sd, tuple(self.notes))

    def _wald(self, basis: Floats) -> tuple[float, tuple[int, float]]:
        """Compute Wald's F and its df for the null hypothesis that the contrasts (contrasts, systems) are 0.

        The denominator df are those of A. H. Fai & P. L. Cornelius, Journal of Statistical Computation and Simulation
        54 (1996), as in lmerTest.
        """
        count = len(basis)
        values, vectors = np.linalg.eigh(basis @ self.covariance @ basis.T)
        contrasts = vectors.T @ basis
        statistic = float((np.square(contrasts @ self.mean) / values).sum()) / count
        df = np.array([self.degrees(contrast) for contrast in contrasts])
        if np.ptp(df) < 1e-6 * df.mean():
            return statistic, (count, float(df.mean()))
        expected = float((df / (df - 2.0))[df > 2.0].sum())
        return statistic, (count, max(1.0, 2.0 * expected / (expected - count)) if expected > count else 2.0)


def _overlap(group: Codes, systems: Codes) -> tuple[int, int]:
    """Return the number of connected components of groups and systems, and the df of their interaction."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    levels, count = count_of(group), count_of(systems)
    rows, columns = np.unique(np.stack([group, systems]), axis=1)
    links = coo_array((np.ones(rows.size), (rows, levels + columns)), shape=(levels + count, levels + count))
    components = int(connected_components(links, directed=False)[0])
    return components, rows.size - levels - count + components
