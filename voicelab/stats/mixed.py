"""Linear mixed model of ratings with random effects of listeners and items."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from voicelab.errors import ArgumentError
from voicelab.stats.estimate import Estimate, between, interval, p_text, varies
from voicelab.stats.reml import (
    AT_BOUND,
    Codes,
    Floats,
    RestrictedLikelihood,
    codes_of,
    count_of,
    indicators,
    pairs_of,
)

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, eq=False)
class MixedModel:
    """Fitted mean ratings of systems, adjusted for listener and item effects, and variance components.

    ``scores`` has each system's mean with its interval. ``statistic``, ``df`` and ``p`` are those of Wald's F test of
    equal means (NaN for one system). ``pairs`` has a row per pair with ``first``, ``second``, ``difference`` (first
    minus second), ``error``, ``low``, ``high``, ``df``, ``p`` and ``p_holm``. ``sd`` has the SDs of ``listener``,
    ``item``, ``listener x system``, ``item x system`` and ``residual`` in the rating's unit. ``notes`` state
    limitations of the fit.
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
    interactions with the system are also random effects. Without these, p would be far too small (D. J. Barr et al.,
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
    if not np.isfinite(table["rating"]).all():
        raise ArgumentError.of("rating", "must be numbers")
    if table["listener"].nunique() < 2:
        raise ArgumentError.of("listener", f"must have two or more listeners, got {table['listener'].nunique()}")
    if not varies(table["rating"]):
        raise ArgumentError.of("rating", f"must not all be equal, got {table['rating'].iloc[0]:g} only")
    return _RatingModel(table).result(confidence)


class _RatingModel:
    """Fit of a table with the columns rating, system, listener and item."""

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
                    "listener", "too few rated the same systems: listeners and systems are confounded"
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
