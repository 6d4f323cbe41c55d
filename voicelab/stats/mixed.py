"""Ratings by a linear mixed model, in which listeners and items are samples of those that there are."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from voicelab.errors import ArgumentError
from voicelab.stats.estimate import Estimate, between, interval, varies
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
    """Mean ratings of systems, freed of who rated which item, and what differs besides.

    ``scores`` has each system's mean with its interval; ``statistic`` is Wald's F of the hypothesis that all are equal,
    with ``df`` degrees of freedom, and ``p`` its p-value (NaN for one system). ``pairs`` has a row for each pair:
    ``first``, ``second``, ``difference`` (first less second), its ``error``, ``low``, ``high``, ``df``, ``p``, ``p_holm``.
    ``sd`` has the standard deviations, in the rating's unit: ``listener``, ``item``, ``listener x system`` (how much
    listeners differ in what they like), ``item x system`` (how much a system's lead depends on the sentence) and
    ``residual``. ``notes`` say what the reader should know.
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
            lines.append(f"all equal: F({self.df[0]}, {self.df[1]:.4g}) {self.statistic:.4g}, p {self.p:.4g}")
        lines += [
            f"{row['first']} - {row['second']}: {row['difference']:+.3g} {interval(row['low'], row['high'], '+.3g')}, "
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

    Degrees of freedom are F. E. Satterthwaite's, as R's lmerTest has them: in a complete table those of H. H. Clark's quasi
    F ("The language-as-fixed-effect fallacy", Journal of Verbal Learning and Verbal Behavior 12, 1973). So with few items
    little can be shown, however many listeners rate them.

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
    if not varies(table["rating"]):
        raise ArgumentError.of("rating", "all ratings are equal: there is nothing to explain")
    return _Fit(table).result(confidence)


class _Fit:
    """The model of one table with the columns rating, system, listener and perhaps item."""

    def __init__(self, table: pd.DataFrame) -> None:
        systems = codes_of(table["system"])
        named = {name: codes_of(table[name]) for name in ("listener", "item") if name in table}
        groups = {name: code for name, code in named.items() if count_of(code) > 1}
        self.names = [str(name) for name in table["system"].unique()]
        self.listeners = count_of(named["listener"])
        self.notes: list[str] = []
        additive = np.hstack([indicators(code) for code in (systems, *groups.values())])
        if len(table) - int(np.linalg.matrix_rank(additive.T @ additive)) < 1:
            message = "too few ratings: listeners' own differences cannot be separated from chance"
            raise ArgumentError.of("frame", message)
        if len(self.names) > 1:
            groups |= self._own_preferences(groups, systems)
        values = table["rating"].to_numpy(np.float64)
        middle, parts = float(values.mean()), [indicators(code) for code in groups.values()]
        likelihood = RestrictedLikelihood(parts, indicators(systems), values - middle)
        ratios, settled = likelihood.maximum()
        if not settled:
            self.notes.append("The fit did not settle: take these figures with care.")
        at_bound = [name for name, ratio in zip(groups, ratios, strict=True) if ratio < AT_BOUND]
        self.notes += [f"Nothing is left for {name}: its sd is at the bound of 0." for name in at_bound]
        fit, self.degrees = likelihood.at(ratios), likelihood.degrees(ratios)
        self.mean, self.covariance = fit.mean + middle, fit.covariance
        roots = map(math.sqrt, [*(ratios * fit.residual), fit.residual])
        self.sd = dict(zip([*groups, "residual"], roots, strict=True))

    def _own_preferences(self, groups: Mapping[str, Codes], systems: Codes) -> dict[str, Codes]:
        """Return the interactions with systems that can be estimated."""
        interactions = {}
        for name, code in groups.items():
            cells = codes_of(code * len(self.names) + systems)
            parts, left = _overlap(code, systems)
            if name == "listener" and (parts > 1 or left < 1):
                message = "too few rated the same systems: what differs may be the listeners"
                raise ArgumentError.of("listener", message)
            # Items that each have one system only are what that system is judged by.
            if max(left, count_of(code) - len(self.names)) < 1:
                message = "each system has a sentence of its own: what differs may be the sentences"
                raise ArgumentError.of("item", message)
            if left and count_of(cells) < cells.size:
                interactions[f"{name} x system"] = cells
        return interactions

    def result(self, confidence: float) -> MixedModel:
        """Return means, tests and what differs."""
        from scipy import stats

        count, tail = len(self.names), (1.0 + confidence) / 2.0
        free = np.array([self.degrees(system) for system in np.eye(count)])
        reach = stats.t.ppf(tail, free) * np.sqrt(np.diag(self.covariance))
        scores = {
            name: Estimate(float(mean), float(mean - half), float(mean + half), confidence, self.listeners)
            for name, mean, half in zip(self.names, self.mean, reach, strict=True)
        }
        pairs = pairs_of(self.names, self.mean, self.covariance, self.degrees, confidence)
        statistic, overall, between_all = math.nan, math.nan, (count - 1, math.nan)
        if count > 1:
            statistic, between_all = self._all_equal(np.eye(count)[:1] - np.eye(count)[1:])
            overall = float(stats.f.sf(statistic, *between_all))
        return MixedModel(scores, statistic, between_all, overall, pairs, self.sd, tuple(self.notes))

    def _all_equal(self, basis: Floats) -> tuple[float, tuple[int, float]]:
        """Return Wald's F that contrasts (contrasts, systems) are all 0, and its degrees of freedom.

        Those of F are such that its mean is that of the squares of independent t: A. H. Fai & P. L. Cornelius, Journal of
        Statistical Computation and Simulation 54 (1996), as in lmerTest.
        """
        count = len(basis)
        values, vectors = np.linalg.eigh(basis @ self.covariance @ basis.T)
        apart = vectors.T @ basis
        statistic = float((np.square(apart @ self.mean) / values).sum()) / count
        free = np.array([self.degrees(contrast) for contrast in apart])
        if np.ptp(free) < 1e-6 * free.mean():
            return statistic, (count, float(free.mean()))
        expected = float((free / (free - 2.0))[free > 2.0].sum())
        return statistic, (count, max(1.0, 2.0 * expected / (expected - count)) if expected > count else 2.0)


def _overlap(group: Codes, systems: Codes) -> tuple[int, int]:
    """Return into how many parts without a link groups and systems fall, and what both leave free of their cells."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    levels, count = count_of(group), count_of(systems)
    one, two = np.unique(np.stack([group, systems]), axis=1)
    links = coo_array((np.ones(one.size), (one, levels + two)), shape=(levels + count, levels + count))
    parts = int(connected_components(links, directed=False)[0])
    return parts, one.size - levels - count + parts
