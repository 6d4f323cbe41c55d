"""Ratings by a linear mixed model, in which listeners and items are samples of those that there are."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from voicelab.errors import MissingExtra, RequestInvalid
from voicelab.experiments.statistics.multiple import holm
from voicelab.experiments.statistics.result import Estimate, between

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["MixedModel", "mixed_model"]

_Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class MixedModel:
    """Mean ratings of systems, freed of who rated which item, and what differs besides.

    ``scores`` has each system's mean with its interval; ``statistic`` is Wald's F of the hypothesis that all are equal,
    with ``df`` degrees of freedom, and ``p`` its p-value (NaN for one system). ``pairs`` has a row for each pair:
    ``first``, ``second``, ``difference`` (first less second), ``low``, ``high``, ``p`` and ``p_holm``. ``sd`` has the
    standard deviations, in the rating's unit: ``listener``, ``item``, ``listener x system`` (how much listeners differ in
    what they like) and ``residual``. ``notes`` say what the reader should know.
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
    """Fit ``rating ~ system`` with crossed random intercepts of listeners and items, by REML, with statsmodels.

    As R. H. Baayen, D. J. Davidson & D. M. Bates, "Mixed-effects modeling with crossed random effects for subjects and
    items", Journal of Memory and Language 59 (2008). Where a listener rates a system more than once, each listener's own
    preference (listener x system) is random too, without which p is far too small: D. J. Barr et al., "Random effects
    structure for confirmatory hypothesis testing", ibid. 68 (2013). Degrees of freedom are those of the analysis of
    variance of a complete table. Unlike Friedman's test it takes gaps, several ratings of one cell, and each listener's
    use of the scale; it takes a rating for a number with even steps and normal noise.

    Args:
        frame: a row for each rating, such as ``ListeningResult.frame``.
        rating: column of the ratings, numbers.
        system: column of what was rated.
        listener: column of who rated it.
        item: column of the sentence (or the like) it was rated on; None when there is but one.
        confidence: of the intervals.

    Raises MissingExtra without statsmodels; RequestInvalid for a missing column, ratings that are no numbers or all
    equal, fewer than two listeners, or a system that no listener shares with another.
    """
    import pandas as pd

    if find_spec("statsmodels") is None:
        raise MissingExtra.of("statistics", "a mixed model")
    between(confidence, "confidence", 0.0, 1.0)
    given = {"rating": rating, "system": system, "listener": listener, **({"item": item} if item is not None else {})}
    for argument, column in given.items():
        if column not in frame.columns:
            raise RequestInvalid.of(argument, f"there is no column {column!r}")
    table = pd.DataFrame({name: frame[column].to_numpy() for name, column in given.items()})
    table["rating"] = pd.to_numeric(table["rating"], errors="coerce")
    if not np.isfinite(table["rating"]).all():
        raise RequestInvalid.of("rating", "there are ratings that are no numbers")
    if table["listener"].nunique() < 2:
        raise RequestInvalid.of("listener", "one listener stands for nobody else; two or more are needed")
    if table["rating"].nunique() < 2:
        raise RequestInvalid.of("rating", "all ratings are equal: there is nothing to explain")
    return _Fit(table).result(confidence)


class _Fit:
    """The model of one table with the columns rating, system, listener and perhaps item."""

    def __init__(self, table: pd.DataFrame) -> None:
        self.names = [str(name) for name in dict.fromkeys(table["system"])]
        self.listeners = int(table["listener"].nunique())
        self.notes: list[str] = []
        groups = ["listener"]
        if "item" in table and table["item"].nunique() > 1:
            groups.append("item")
        if len(self.names) > 1 and table.duplicated(["listener", "system"]).any():
            table["listener x system"] = [f"{a} {b}" for a, b in zip(table["listener"], table["system"], strict=True)]
            groups.append("listener x system")
        codes = [list(dict.fromkeys(table["system"])).index(name) for name in table["system"]]
        design = (np.array(codes)[:, None] == np.arange(len(self.names))[None]).astype(np.float64)
        parts = {name: _indicators(table[name]) for name in groups}
        self.size = len(table)
        self.mean, self.covariance, self.sd = self._fitted(table["rating"].to_numpy(np.float64), design, parts)
        levels = sum(part.shape[1] - 1 for name, part in parts.items() if name != "listener x system")
        inner = (self.listeners - 1) * (len(self.names) - 1)
        self.inner = inner if "listener x system" in groups else max(1, self.size - len(self.names) - levels)

    def _fitted(
        self, values: _Floats, design: _Floats, parts: dict[str, _Floats]
    ) -> tuple[_Floats, _Floats, dict[str, float]]:
        from statsmodels.regression.mixed_linear_model import MixedLM, VCSpec

        # All ratings are one group, within which the random effects are crossed.
        names = list(parts)
        labels = [[[f"{number}" for number in range(part.shape[1])]] for part in parts.values()]
        crossed = VCSpec(names, labels, [[part] for part in parts.values()])
        try:
            with warnings.catch_warnings(record=True) as told:
                warnings.simplefilter("always")
                model = MixedLM(values, design, np.zeros(values.size), exog_vc=crossed)
                fitted = model.fit(reml=True, method=["lbfgs", "powell"])
        except (np.linalg.LinAlgError, ValueError) as error:
            raise RequestInvalid.of("frame", f"the model cannot be fitted to these ratings: {error}") from error
        spread = [math.sqrt(max(float(value), 0.0)) for value in (*fitted.vcomp, fitted.scale)]
        found = dict(zip([*names, "residual"], spread, strict=True))
        if not fitted.converged or any("converge" in str(item.message) for item in told):
            self.notes.append("The fit did not settle: take these figures with care.")
        self.notes += [
            f"Nothing is left for {name}: its sd is at the bound of 0."
            for name in names
            if found[name] < 1e-3 * found["residual"]
        ]
        count = design.shape[1]
        covariance = np.asarray(fitted.cov_params(), np.float64)[:count, :count]
        return np.asarray(fitted.fe_params, np.float64), covariance, found

    def result(self, confidence: float) -> MixedModel:
        """Return means, tests and what differs."""
        import pandas as pd
        from scipy import stats

        tail = (1.0 + confidence) / 2.0
        outer = self.listeners - 1
        reach = float(stats.t.ppf(tail, outer)) * np.sqrt(np.diag(self.covariance))
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


def _indicators(column: pd.Series[Any]) -> _Floats:
    import pandas as pd

    codes, names = pd.factorize(column)
    found: _Floats = (np.asarray(codes)[:, None] == np.arange(len(names))[None]).astype(np.float64)
    return found
