"""Takes as a design of factors, and the tests of an effect: by one variance or Welch's, over texts, by permutation.

Metrics that have values in the same takes share their design, so values are (takes, metrics) and all is worked out at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from voicelab.call import field_name, short_name
from voicelab.errors import ArgumentError, suggestion

if TYPE_CHECKING:
    import pandas as pd

_Codes = npt.NDArray[np.intp]
_Floats = npt.NDArray[np.float64]

# Numbers held at once while resampling: 32 MB.
_HELD = 4_000_000
_ROUNDING = 1e-9
_RANK = 1e-10


@dataclass(frozen=True, eq=False)
class Design:
    """Takes that have values, in an order that depends on their levels alone.

    ``codes`` (factors, takes) the level of every factor: the axes, then, where there are blocks, the block that a take is
    in: what all of their columns say together. ``levels`` the names of the levels of each axis. ``texts`` (takes,) the text
    of each take, where texts are a block.
    """

    codes: _Codes
    levels: tuple[tuple[Any, ...], ...]
    texts: _Codes | None = None

    @property
    def takes(self) -> int:
        """How many there are."""
        return int(self.codes.shape[1])

    @property
    def factors(self) -> range:
        """The numbers of all factors."""
        return range(self.codes.shape[0])

    @cached_property
    def cells(self) -> _Codes:
        """The cell of each take: takes of one cell share all levels, and are repeats. Shape (takes,)."""
        return _combine(self.codes)

    def strata(self, axis: int) -> _Codes:
        """Within what the takes are exchangeable when ``axis`` does nothing: all other factors' cells."""
        return _combine(np.delete(self.codes, axis, axis=0))

    def dummies(self, factors: Sequence[int]) -> _Floats:
        """Return the additive model's columns, (takes, columns): a constant, and all levels but the first."""
        columns = [np.ones((self.takes, 1))]
        for factor in factors:
            present = np.unique(self.codes[factor])
            columns.append((self.codes[factor][:, None] == present[None, 1:]).astype(np.float64))
        return np.concatenate(columns, axis=1)

    def differences(self, axis: int) -> tuple[_Floats, npt.NDArray[Any]]:
        """Return what turns values into each level's difference from the first, (levels - 1, takes), by least squares.

        And which of them the design can tell from those of other factors.
        """
        count = np.unique(self.codes[axis]).size
        model = self.dummies([axis, *(other for other in self.factors if other != axis)])
        weights = np.asarray(np.linalg.pinv(model, rcond=_RANK)[1:count], np.float64)
        weights = np.where(np.abs(weights) > _RANK * np.abs(weights).max(), weights, 0.0)
        # Where factors are confounded, the shortest of the least squares' solutions estimates something else.
        return weights, np.einsum("ij,ji->i", weights, model[:, 1:count]) > 1.0 - _ROUNDING


def _combine(codes: _Codes) -> _Codes:
    """Number the different columns of ``codes`` from 0 in the order in which they come first."""
    if not codes.shape[0]:
        return np.zeros(codes.shape[1], np.intp)
    _, first, cells = np.unique(codes, axis=1, return_index=True, return_inverse=True)
    return np.asarray(np.argsort(np.argsort(first))[cells.reshape(-1)], np.intp)


def columns_of(frame: pd.DataFrame, given: Sequence[str] | str, name: str) -> list[str]:
    """Return column names after checking them, ``speed`` for ``prosody.speed``; raises ArgumentError, naming the argument."""
    names = [str(column) for column in frame.columns]
    columns = [given] if isinstance(given, str) else list(given)
    columns = [field_name(column) if field_name(column) in names else column for column in columns]
    for column in columns:
        if column not in frame.columns:
            near = suggestion(column, [*names, *map(short_name, names)]) or f"; there are {', '.join(names)}"
            raise ArgumentError.of(name, f"there is no column {column!r}{near}")
    if len(set(columns)) < len(columns):
        raise ArgumentError.of(name, "a column is there twice")
    return columns


def values_of(frame: pd.DataFrame, metrics: Sequence[str]) -> _Floats:
    """Return the metrics' values, (takes, metrics), NaN where there is none; raises ArgumentError for one without numbers."""
    import pandas as pd

    values = np.empty((len(frame), len(metrics)))
    for place, metric in enumerate(metrics):
        column = pd.to_numeric(frame[metric], errors="coerce").to_numpy(np.float64, na_value=np.nan)
        values[:, place] = np.where(np.isfinite(column), column, np.nan)
        if frame[metric].notna().any() and not np.isfinite(column).any():
            raise ArgumentError.of("metrics", f"{metric!r} has no numbers in it")
    return values


def build(frame: pd.DataFrame, axes: Sequence[str], blocks: Sequence[str], texts: str = "") -> tuple[Design, _Codes]:
    """Return the design of a table's takes, the same whatever their order, and the rows that they stand in.

    Levels of an axis are in ascending order where they are numbers, in that of their categories where they have
    some, else in order of appearance.
    """
    import pandas as pd

    codes, levels, places = [], [], []
    for factor in (*axes, *blocks):
        values = frame[factor]
        ordered = pd.api.types.is_numeric_dtype(values) or isinstance(values.dtype, pd.CategoricalDtype)
        if not ordered:
            # Lists and records are levels too, and cannot be hashed.
            values = values.map(lambda value: value if isinstance(value, str | int | float | bool) else repr(value))
        code, names = pd.factorize(values, sort=ordered, use_na_sentinel=False)
        codes.append(np.asarray(code, np.intp))
        levels.append(tuple(name.item() if isinstance(name, np.generic) else name for name in names))
        # Not the codes themselves: those of words depend on which row comes first.
        by_name = sorted(range(len(names)), key=list(map(repr, levels[-1])).__getitem__)
        places.append(np.argsort(by_name)[codes[-1]])
    order = np.asarray(np.lexsort(places[::-1]), np.intp)
    together = np.stack(codes)[:, order]
    varied, held = together[: len(axes)], together[len(axes) :]
    block = [_combine(held)] if len(held) else []
    text = held[blocks.index(texts)] if texts in blocks else None
    return Design(np.stack([*varied, *block]), tuple(levels[: len(axes)]), text), order


def without_rounding(results: _Floats, values: _Floats) -> _Floats:
    """Return sums of ``values`` (takes, …) with those that only the arithmetic made set to zero."""
    cleaned: _Floats = np.where(np.abs(results) <= 1e-12 * np.abs(values).max(axis=0, initial=0.0), 0.0, results)
    return cleaned


def permutation_p(design: Design, values: _Floats, axis: int, permutations: int, rng: np.random.Generator) -> float:
    """Return p of the hypothesis that an axis does nothing to one metric, (takes,), not even to how much takes differ.

    The levels are exchanged between the takes of each stratum, within which nothing but this axis differs; the
    statistic is the sum of squares between the levels after each stratum's mean is taken out. The observed
    arrangement counts as one of the permutations (B. Phipson & G. K. Smyth, "Permutation p-values should never
    be zero", 2010), so that the test is exact: p is at most alpha with a chance of at most alpha. Where levels differ in
    their number of takes and in their spread it is not a test of their means.
    """
    # Resampling draws by place, and the order in which takes were rendered must not decide a p-value.
    order = np.lexsort((values, design.cells, design.strata(axis)))
    strata, levels, values = design.strata(axis)[order], design.codes[axis][order], values[order]
    centred = without_rounding(values - (np.bincount(strata, values) / np.bincount(strata))[strata], values)
    names, levels = np.unique(levels, return_inverse=True)
    member = (levels[:, None] == np.arange(names.size)[None]).astype(np.float64)
    sizes = member.sum(axis=0)

    def statistic(rows: _Floats) -> _Floats:
        between: _Floats = (np.square(rows @ member) / sizes).sum(axis=-1)
        return between

    observed = float(statistic(centred))
    # Ties in exact arithmetic must stay ties.
    threshold = observed - 1e-9 * max(observed, float(centred @ centred) * 1e-3)
    reached, done = 0, 0
    while done < permutations:
        count = min(permutations - done, max(1, _HELD // centred.size))
        shuffled = np.argsort(rng.random((count, centred.size)) + strata, axis=1)
        reached += int((statistic(centred[shuffled]) >= threshold).sum())
        done += count
    return (reached + 1) / (permutations + 1)


@dataclass(frozen=True, eq=False)
class Noise:
    """The sampling noise of a design: what a model leaves over.

    ``residuals`` (takes, metrics), ``df`` their degrees of freedom, ``own`` (takes,) each take's share of them;
    ``repeats`` says whether the model is the cells themselves, or, where no cell has two takes, the sum of
    the factors' effects, so that interactions count as noise. ``sum_sq`` (metrics,) is the sum of the residuals' squares, and
    ``sd`` (metrics,) their standard deviation in the metric's unit, NaN without degrees of freedom.
    """

    residuals: _Floats
    df: int
    own: _Floats
    repeats: bool
    sum_sq: _Floats
    sd: _Floats


def noise_of(design: Design, values: _Floats) -> Noise:
    """Return the sampling noise around the cells' means, or around the additive model where nothing repeats."""
    cells = design.cells
    sizes = np.bincount(cells)
    repeats = bool(design.takes > sizes.size)
    if repeats:
        basis = (cells[:, None] == np.arange(sizes.size)[None]) / np.sqrt(sizes)
    else:
        left, strength, _ = np.linalg.svd(design.dummies(design.factors), full_matrices=False)
        basis = left[:, strength > strength.max(initial=0.0) * _RANK]
    residuals = without_rounding(values - basis @ (basis.T @ values), values)
    df, sum_sq = design.takes - basis.shape[1], np.square(residuals).sum(axis=0)
    sd = np.sqrt(sum_sq / df) if df > 0 else np.full(sum_sq.shape, np.nan)
    return Noise(residuals, df, 1.0 - np.square(basis).sum(axis=1), repeats, sum_sq, sd)


@dataclass(frozen=True, eq=False)
class Contrasts:
    """Differences of an axis' levels from its first, (levels - 1, metrics): ``estimate``, its standard ``error`` and ``df``.

    NaN where the design cannot tell a level's difference from that of another factor, or has no noise to judge it by.
    ``p`` (metrics,) is of the hypothesis that all are 0. Without residual variance the error is 0, and p and the interval
    are NaN. ``test`` says which it is of.
    """

    estimate: _Floats
    error: _Floats
    df: _Floats
    p: _Floats
    test: str

    def reach(self, confidence: float) -> _Floats:
        """Return how far the intervals reach to each side, by Student's t."""
        from scipy.stats import t

        far: _Floats = t.ppf((1.0 + confidence) / 2.0, self.df) * _above_0(self.error)
        return far

    @property
    def p_each(self) -> _Floats:
        """P of each being 0, at most 1 less the confidence just where the interval leaves out 0."""
        from scipy.stats import t

        p: _Floats = 2.0 * t.sf(np.abs(self.estimate) / _above_0(self.error), self.df)
        return p


def _above_0(values: _Floats) -> _Floats:
    """Return errors or variances with NaN for 0, by which nothing can be tested."""
    return np.where(values > 0.0, values, np.nan)


def free_needed(takes: _Floats) -> int:
    """Return from how many degrees of freedom of each level's own takes on its spread is its own; ``takes`` (levels,).

    Fewer tell too little: Welch's test then errs in up to a seventh of the tables without an effect. One variance for all
    bears even spreads of 1 : 3 where levels have about equally many takes, and does not where one has half as many again as
    another: there Welch's is the lesser evil sooner. By simulation, bench/inference.py.
    """
    return takes.size + 2 if takes.max() < 1.5 * takes.min() else max(2, takes.size - 1)


def contrasts_of(design: Design, values: _Floats, axis: int, noise: Noise) -> Contrasts:
    """Return each level's difference from the first, adjusted for the other factors, and p that there is none.

    The estimate is the additive model's by least squares. Which test it is depends on the design alone, never on values:
    without repeats, or with less than ``free_needed``, the F test with one variance for all levels, exact for normal noise;
    else each level has a noise of its own: B. L. Welch's t (Biometrika 34, 1947), over all levels S. Johansen's form of it
    (Biometrika 67, 1980), which of two levels is that t. It speaks of these cells, not of other texts.
    """
    names, level = np.unique(design.codes[axis], return_inverse=True)
    weights, estimable = design.differences(axis)
    estimate = np.where(estimable[:, None], without_rounding(weights @ values, values), np.nan)
    if noise.df < 1:
        unknown = np.full(estimate.shape, np.nan)
        return Contrasts(estimate, unknown, unknown, unknown[0], "none")
    member = (level[:, None] == np.arange(names.size)[None]).astype(np.float64)
    takes, free = member.sum(axis=0), noise.own @ member
    welch = noise.repeats and free.min() > free_needed(takes) - _ROUNDING
    if welch:
        variances = (member.T @ np.square(noise.residuals)) / free[:, None]
    else:
        variances = np.tile(noise.sum_sq / noise.df, (names.size, 1))
    parts = (np.square(weights) @ member)[:, :, None] * variances
    spread = parts.sum(axis=1)
    df = np.full(spread.shape, float(noise.df))
    if welch:
        np.divide(np.square(spread), (np.square(parts) / free[:, None]).sum(axis=1), out=df, where=spread > 0.0)
    error = np.where(estimable[:, None], np.sqrt(spread), np.nan)
    able, apart = weights[estimable], estimate[estimable]
    shares = np.stack([(able * own) @ able.T for own in member.T])
    if not len(able):
        p = np.full(values.shape[1], np.nan)
    elif welch:
        p = np.array([_johansen(*one, shares, free) for one in zip(apart.T, variances.T, strict=True)])
    else:
        p = _f_test(apart, variances[0], shares.sum(axis=0), noise.df)
    return Contrasts(estimate, error, df, p, "Welch" if welch else "F")


def _f_test(estimate: _Floats, variance: _Floats, shape: _Floats, df: int) -> _Floats:
    """Return p that contrasts (contrasts, metrics) of covariance ``shape`` times ``variance`` are 0."""
    from scipy.stats import f

    count = len(estimate)
    square = (estimate * np.linalg.solve(shape, estimate)).sum(axis=0) / count
    p: _Floats = f.sf(square / _above_0(variance), count, df)
    return p


def _johansen(estimate: _Floats, variances: _Floats, shares: _Floats, free: _Floats) -> float:
    """Return Johansen's p that contrasts are 0; ``variances`` (levels,) are those of each level's own takes.

    NaN where some contrast has no variance.
    """
    from scipy.stats import f

    count = len(estimate)
    shares = shares * variances[:, None, None]
    whole = shares.sum(axis=0)
    if not np.linalg.eigvalsh(whole)[0] > _ROUNDING * max(float(np.trace(whole)), 1e-300):
        return np.nan
    parts = shares @ np.linalg.inv(whole)
    traces = np.trace(parts, axis1=1, axis2=2)
    loss = float(((np.einsum("lij,lji->l", parts, parts) + np.square(traces)) / free).sum()) / 2.0
    statistic = float(estimate @ np.linalg.solve(whole, estimate))
    scale = count + 2.0 * loss - 6.0 * loss / (count + 2.0)
    return float(f.sf(statistic / scale, count, count * (count + 2.0) / (3.0 * loss)))


def over_texts(design: Design, values: _Floats, axis: int) -> tuple[int, Contrasts] | None:
    """Return in how many texts all levels are, and what an axis does in texts of which these are a sample.

    None without two texts that can be compared. Each text has one difference of each level from the first, adjusted for all
    else that differs within it, so that texts may have other numbers of takes. Contrasts: Student's t over the texts. p:
    the analysis of variance with repeated measures, its degrees of freedom lessened after S. W. Greenhouse & S. Geisser
    (Psychometrika 24, 1959); of two levels that is the t-test.
    """
    from scipy.stats import f

    if design.texts is None:
        return None
    levels = np.unique(design.codes[axis])
    rows = []
    for text in np.unique(design.texts):
        part = design.texts == text
        own = Design(design.codes[:, part], design.levels)
        if np.array_equal(np.unique(own.codes[axis]), levels):
            weights, estimable = own.differences(axis)
            if estimable.all():
                rows.append(without_rounding(weights @ values[part], values))
    if len(rows) < 2:
        return None
    apart, count, free = np.array(rows), len(rows), levels.size - 1
    mean = without_rounding(apart.mean(axis=0), values)
    error = without_rounding(apart.std(axis=0, ddof=1) / np.sqrt(count), values)
    profile = np.concatenate((np.zeros((count, 1, values.shape[1])), apart), axis=1)
    profile -= profile.mean(axis=1, keepdims=True)
    middle = profile.mean(axis=0)
    left = without_rounding(profile - middle, values)
    between, within = count * np.square(middle).sum(axis=0), _above_0(np.square(left).sum(axis=(0, 1)))
    spread = np.einsum("tim,tjm->mij", left, left)
    with np.errstate(divide="ignore", invalid="ignore"):
        narrowed = np.square(np.trace(spread, axis1=1, axis2=2)) / (free * np.square(spread).sum(axis=(1, 2)))
        p = f.sf(between / within * (count - 1), free * narrowed, free * (count - 1) * narrowed)
    return count, Contrasts(mean, error, np.full(mean.shape, count - 1.0), p, "texts")
