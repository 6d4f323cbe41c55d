"""Ratings by a linear mixed model, in which listeners and items are samples of those that there are."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from voicelab.errors import ArgumentError
from voicelab.experiments.statistics.estimate import Estimate, Test, between, holm, numbers

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["MixedModel", "crossed_mean", "mixed_model"]

_Codes = npt.NDArray[np.intp]
_Floats = npt.NDArray[np.float64]

# A variance in units of the residual's that is at its bound of 0.
_AT_BOUND = 1e-6


@dataclass(frozen=True, eq=False)
class MixedModel:
    """Mean ratings of systems, freed of who rated which item, and what differs besides.

    ``scores`` has each system's mean with its interval; ``statistic`` is Wald's F of the hypothesis that all are equal,
    with ``df`` degrees of freedom, and ``p`` its p-value (NaN for one system). ``pairs`` has a row for each pair:
    ``first``, ``second``, ``difference`` (first less second), ``low``, ``high``, ``p`` and ``p_holm``. ``sd`` has the
    standard deviations, in the rating's unit: ``listener``, ``item``, ``listener x system`` (how much listeners differ in
    what they like), ``item x system`` (how much a system's lead depends on the sentence) and ``residual``. ``notes`` say
    what the reader should know.
    """

    scores: dict[str, Estimate]
    statistic: float
    df: tuple[int, int]
    p: float
    pairs: pd.DataFrame = field(repr=False)
    sd: dict[str, float]
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        lines = [f"{name}: {score}" for name, score in self.scores.items()]
        if math.isfinite(self.p):
            lines.append(f"all equal: F({self.df[0]}, {self.df[1]}) {self.statistic:.4g}, p {self.p:.4g}")
        lines += [
            f"{row['first']} - {row['second']}: {row['difference']:+.3g} [{row['low']:+.3g}, {row['high']:+.3g}], "
            f"p {row['p_holm']:.4g} after Holm"
            for row in self.pairs.to_dict("records")
        ]
        lines.append("sd: " + ", ".join(f"{name} {value:.3g}" for name, value in self.sd.items()))
        return "\n".join([*lines, *self.notes])


def mixed_model(
    frame: pd.DataFrame,
    *,
    rating: str = "rating",
    system: str = "system",
    listener: str = "listener",
    item: str | None = "item",
    confidence: float = 0.95,
) -> MixedModel:
    """Fit ``rating ~ system`` with crossed random effects of listeners and items, by REML.

    As R. H. Baayen, D. J. Davidson & D. M. Bates, "Mixed-effects modeling with crossed random effects for subjects and
    items", Journal of Memory and Language 59 (2008). Where a listener, or an item, has a system more than once, how
    systems differ for that listener (listener x system), or on that item (item x system), is random too, without which p
    is far too small: D. J. Barr et al., "Random effects structure for confirmatory hypothesis testing", ibid. 68 (2013).

    Degrees of freedom are on the safe side: of the two by which a complete table of L listeners, I items and S systems
    would be judged, by listeners (L - 1)(S - 1) and by items (I - 1)(S - 1), the smaller (H. H. Clark, "The
    language-as-fixed-effect fallacy", Journal of Verbal Learning and Verbal Behavior 12, 1973); a table with gaps has
    what is left when systems and listeners, or systems and items, are taken out of its cells. Intervals of ``scores`` have
    the smaller of L and I less 1. So with few items little can be shown, however many listeners rate them.

    Unlike Friedman's test it takes gaps, several ratings of one cell, and each listener's use of the scale; it takes a
    rating for a number with even steps and normal noise.

    Args:
        frame: a row for each rating, such as ``ListeningResult.frame``.
        rating: column of the ratings, numbers.
        system: column of what was rated.
        listener: column of who rated it.
        item: column of the sentence (or the like) it was rated on; None when there is but one.
        confidence: of the intervals.

    Raises ArgumentError for a missing column; ratings that are no numbers, or that systems, listeners and items explain
    without rest, such as when all are equal; fewer than two listeners, or two who rated the same systems; systems that
    no listener rated beside the others, or that each have a sentence of their own.
    """
    import pandas as pd

    between(confidence, "confidence", 0.0, 1.0)
    given = {"rating": rating, "system": system, "listener": listener, **({"item": item} if item is not None else {})}
    for argument, column in given.items():
        if column not in frame.columns:
            raise ArgumentError.of(argument, f"there is no column {column!r}")
    table = pd.DataFrame({name: frame[column].to_numpy() for name, column in given.items()})
    table["rating"] = pd.to_numeric(table["rating"], errors="coerce")
    if not np.isfinite(table["rating"]).all():
        raise ArgumentError.of("rating", "there are ratings that are no numbers")
    if table["listener"].nunique() < 2:
        raise ArgumentError.of("listener", "one listener is no sample of listeners; two or more are needed")
    if table["rating"].nunique() < 2:
        raise ArgumentError.of("rating", "all ratings are equal: there is nothing to explain")
    return _Fit(table).result(confidence)


class _Fit:
    """The model of one table with the columns rating, system, listener and perhaps item."""

    def __init__(self, table: pd.DataFrame) -> None:
        systems = _codes(table["system"])
        named = {name: _codes(table[name]) for name in ("listener", "item") if name in table}
        groups = {name: code for name, code in named.items() if _count(code) > 1}
        self.names = [str(name) for name in table["system"].unique()]
        self.listeners = _count(named["listener"])
        self.notes: list[str] = []
        self.outer = min(map(_count, groups.values())) - 1
        additive = np.hstack([_indicators(code) for code in (systems, *groups.values())])
        self.inner = len(table) - int(np.linalg.matrix_rank(additive.T @ additive))
        if self.inner < 1:
            raise ArgumentError.of(
                "frame", "too few ratings: listeners' own differences cannot be separated from chance"
            )
        if len(self.names) > 1:
            groups |= self._own_preferences(groups, systems)
        self.mean, self.covariance, self.sd = self._fitted(table["rating"].to_numpy(np.float64), systems, groups)

    def _own_preferences(self, groups: Mapping[str, _Codes], systems: _Codes) -> dict[str, _Codes]:
        """Return the interactions with systems that can be estimated, and lower ``inner`` to their degrees of freedom."""
        interactions = {}
        for name, code in groups.items():
            cells = _codes(code * len(self.names) + systems)
            parts, left = _overlap(code, systems)
            if name == "listener" and (parts > 1 or left < 1):
                message = "too few rated the same systems: what differs may be the listeners"
                raise ArgumentError.of("listener", message)
            # Items that each have one system only are what that system is judged by.
            free = max(left, _count(code) - len(self.names))
            if free < 1:
                raise ArgumentError.of(
                    "item", "each system has a sentence of its own: what differs may be the sentences"
                )
            self.inner = min(self.inner, free)
            if left and _count(cells) < cells.size:
                interactions[f"{name} x system"] = cells
        return interactions

    def _fitted(
        self, values: _Floats, systems: _Codes, groups: Mapping[str, _Codes]
    ) -> tuple[_Floats, _Floats, dict[str, float]]:
        middle = float(values.mean())
        likelihood = _Likelihood([_indicators(code) for code in groups.values()], _indicators(systems), values - middle)
        ratios, settled = likelihood.maximum()
        if not settled:
            self.notes.append("The fit did not settle: take these figures with care.")
        _, _, mean, covariance, residual = likelihood.deviance(ratios)
        sd = {name: math.sqrt(ratio * residual) for name, ratio in zip(groups, ratios, strict=True)}
        self.notes += [
            f"Nothing is left for {name}: its sd is at the bound of 0."
            for name, ratio in zip(groups, ratios, strict=True)
            if ratio < _AT_BOUND
        ]
        self.degrees = likelihood.degrees(ratios)
        return mean + middle, covariance, {**sd, "residual": math.sqrt(residual)}

    def result(self, confidence: float) -> MixedModel:
        """Return means, tests and what differs."""
        import pandas as pd
        from scipy import stats

        tail = (1.0 + confidence) / 2.0
        reach = float(stats.t.ppf(tail, self.outer)) * np.sqrt(np.diag(self.covariance))
        scores = {
            name: Estimate(float(mean), float(mean - half), float(mean + half), confidence, self.listeners)
            for name, mean, half in zip(self.names, self.mean, reach, strict=True)
        }
        first, second = np.triu_indices(len(self.names), 1)
        contrasts = np.eye(len(self.names))[first] - np.eye(len(self.names))[second]
        apart = contrasts @ self.mean
        error = np.sqrt(np.einsum("ij,jk,ik->i", contrasts, self.covariance, contrasts))
        p = 2.0 * stats.t.sf(np.abs(apart) / error, self.inner)
        half = float(stats.t.ppf(tail, self.inner)) * error
        columns: dict[str, Iterable[Any]] = {
            "first": [self.names[place] for place in first],
            "second": [self.names[place] for place in second],
            "difference": apart,
            "low": apart - half,
            "high": apart + half,
            "p": p,
            "p_holm": holm(p),
        }
        between_all = len(self.names) - 1
        statistic, overall = math.nan, math.nan
        if between_all:
            basis = contrasts[:between_all]
            spread = basis @ self.covariance @ basis.T
            statistic = float((basis @ self.mean) @ np.linalg.solve(spread, basis @ self.mean)) / between_all
            overall = float(stats.f.sf(statistic, between_all, self.inner))
        return MixedModel(
            scores, statistic, (between_all, self.inner), overall, pd.DataFrame(columns), self.sd, tuple(self.notes)
        )


class _Likelihood:
    """The restricted likelihood of ratings (H. D. Patterson & R. Thompson, Biometrika 58, 1971), residual profiled out.

    Its arguments are the variances of the random effects in units of the residual's, as D. Bates et al., "Fitting linear
    mixed-effects models using lme4", Journal of Statistical Software 67 (2015); slopes as D. A. Harville, JASA 72 (1977).
    ``parts`` are the indicators of each random effect, (ratings, levels); ``design`` those of the systems.
    """

    def __init__(self, parts: list[_Floats], design: _Floats, values: _Floats) -> None:
        everything = np.hstack([*parts, design, values[:, None]])
        self.products = everything.T @ everything
        self.sizes = [part.shape[1] for part in parts]
        self.free = values.size - design.shape[1]
        explained = self.products[:-1, -1]
        weights, _, rank, _ = np.linalg.lstsq(self.products[:-1, :-1], explained, rcond=1e-10)
        left = self.products[-1, -1] - explained @ weights
        # Without anything left the likelihood has no greatest value.
        if rank < values.size and left < 1e-9 * self.products[-1, -1]:
            message = "systems, listeners and items explain every rating: nothing is left to weigh differences by"
            raise ArgumentError.of("rating", message)

    def deviance(self, ratios: _Floats) -> tuple[float, _Floats, _Floats, _Floats, float]:
        """Return the deviance and its slopes; then the systems' means, their covariance, and the residual variance."""
        from scipy.linalg import cho_solve, cholesky, solve_triangular

        random = sum(self.sizes)
        scale = np.sqrt(np.repeat(ratios, self.sizes))[:, None]
        root = cholesky(scale * self.products[:random, :random] * scale.T + np.eye(random), lower=True)
        inner = solve_triangular(root, scale * self.products[:random], lower=True)
        # Products weighted by the inverse covariance of the ratings; then with the systems' means taken out.
        weighted = self.products[random:] - inner[:, random:].T @ inner
        fixed = cholesky(weighted[:-1, random:-1], lower=True)
        means = solve_triangular(fixed, weighted[:-1], lower=True)
        left = self.products.diagonal() - np.square(inner).sum(axis=0) - np.square(means).sum(axis=0)
        pull = weighted[-1] - means[:, -1] @ means
        residual = float(left[-1]) / self.free
        deviance = 2.0 * float(np.log(root.diagonal()).sum() + np.log(fixed.diagonal()).sum())
        starts = np.cumsum([0, *self.sizes])[:-1]
        slopes = np.add.reduceat((left - np.square(pull) / residual)[:random], starts) if random else np.zeros(0)
        mean = cho_solve((fixed, True), weighted[:-1, -1])
        covariance = residual * cho_solve((fixed, True), np.eye(len(fixed)))
        return deviance + self.free * math.log(residual), slopes, mean, covariance, residual

    def maximum(self) -> tuple[_Floats, bool]:
        """Return the ratios of the greatest likelihood, and whether the search for them settled."""
        from scipy.optimize import minimize

        best = minimize(
            lambda ratios: self.deviance(ratios)[:2],
            np.full(len(self.sizes), 0.5),
            method="SLSQP",
            jac=True,
            bounds=[(0.0, None)] * len(self.sizes),
            options={"ftol": 1e-9, "maxiter": 1000},
        )
        return np.asarray(best.x, np.float64), bool(best.success)

    def degrees(self, ratios: _Floats) -> Callable[[_Floats], float]:
        """Return what gives a contrast of the systems' means, (systems,), its degrees of freedom.

        F. E. Satterthwaite (Biometrics Bulletin 2, 1946) for mixed models, as A. Kuznetsova et al., "lmerTest package",
        Journal of Statistical Software 82 (2017): twice the squared variance of the contrast over the variance of its
        estimate, by the information of the variances. Slopes by central differences; variances at 0 are taken as known.
        """
        active = np.flatnonzero(ratios > _AT_BOUND)
        steps = []
        for place in active:
            reach = np.zeros(ratios.size)
            reach[place] = 1e-3 * ratios[place]
            above, below = self.deviance(ratios + reach), self.deviance(ratios - reach)
            width = 2.0 * float(reach[place])
            steps.append(((above[1] - below[1])[active] / width, (above[3], below[3]), width))
        curvature = np.array([slope for slope, _, _ in steps]).reshape(active.size, active.size)
        # Twice the inverse of the deviance's curvature is the covariance of the ratios.
        spread = np.linalg.pinv((curvature + curvature.T) / 2.0, hermitian=True)

        def of(contrast: _Floats) -> float:
            slopes = np.array(
                [
                    math.log((contrast @ above @ contrast) / (contrast @ below @ contrast)) / width
                    for _, (above, below), width in steps
                ]
            )
            return float(1.0 / (1.0 / self.free + max(0.0, float(slopes @ spread @ slopes))))

        return of


def crossed_mean(
    values: npt.ArrayLike,
    listeners: Sequence[object],
    items: Sequence[object],
    *,
    null: float = 0.0,
    alternative: Literal["two-sided", "greater"] = "two-sided",
    scale: tuple[float, float] = (-math.inf, math.inf),
    confidence: float = 0.95,
) -> Test:
    """Test whether a mean differs from ``null`` in listeners and sentences like these, which are samples of both.

    ``values`` (n,) are ratings, differences between two systems' ratings, or choices (0 or 1), each of one of the
    ``listeners`` on one of the ``items``: a mean with crossed random effects, by REML, its t and interval with
    Satterthwaite's degrees of freedom. ``scale`` is what the interval cannot leave. Raises ArgumentError with fewer than
    two listeners or items, and when all values are equal, or listeners and items explain them without rest.
    """
    from scipy import stats

    array = numbers(values, "values", 3)
    groups = [_codes(np.asarray(list(map(str, names)), object)) for names in (listeners, items)]
    for name, code in zip(("listeners", "items"), groups, strict=True):
        if code.size != array.size:
            raise ArgumentError.of(name, f"there are {code.size} for {array.size} values")
        if _count(code) < 2:
            raise ArgumentError.of(name, "one is no sample; two or more are needed")
    if not np.ptp(array):
        raise ArgumentError.of("values", "all are equal: there is no chance to weigh them by")
    # Those who gave one value each cannot be separated from the rest of chance.
    crossed = [code for code in groups if _count(code) < array.size]
    middle = float(array.mean())
    likelihood = _Likelihood([_indicators(code) for code in crossed], np.ones((array.size, 1)), array - middle)
    ratios, _ = likelihood.maximum() if crossed else (np.zeros(0), True)
    _, _, mean, covariance, _ = likelihood.deviance(ratios)
    error, df = math.sqrt(float(covariance[0, 0])), likelihood.degrees(ratios)(np.ones(1))
    value = float(mean[0]) + middle
    t = (value - null) / error
    p = float(stats.t.sf(t, df) if alternative == "greater" else 2.0 * stats.t.sf(abs(t), df))
    reach = float(stats.t.ppf((1.0 + between(confidence, "confidence", 0.0, 1.0)) / 2.0, df)) * error
    estimate = Estimate(
        value, max(scale[0], value - reach), min(scale[1], value + reach), confidence, _count(groups[0])
    )
    return Test(
        f"crossed random effects of {_count(groups[0])} listeners and {_count(groups[1])} items", t, p, estimate
    )


def _codes(column: pd.Series[Any] | _Codes) -> _Codes:
    import pandas as pd

    return np.asarray(pd.factorize(column, use_na_sentinel=False)[0], np.intp)


def _count(codes: _Codes) -> int:
    return int(codes.max()) + 1


def _indicators(codes: _Codes) -> _Floats:
    columns: _Floats = (codes[:, None] == np.arange(_count(codes))[None]).astype(np.float64)
    return columns


def _overlap(group: _Codes, systems: _Codes) -> tuple[int, int]:
    """Return into how many parts without a link groups and systems fall, and what both leave free of their cells."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    levels, count = _count(group), _count(systems)
    one, two = np.unique(np.stack([group, systems]), axis=1)
    links = coo_array((np.ones(one.size), (one, levels + two)), shape=(levels + count, levels + count))
    parts = int(connected_components(links, directed=False)[0])
    return parts, one.size - levels - count + parts
