"""Takes as a design of factors, and the tests of an effect: Welch's, over texts, and by permutation within strata."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
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
    """Takes that have a value of one metric.

    ``values`` (takes,); ``codes`` (factors, takes) the level of every factor: the axes, then, where there are blocks,
    the block that a take is in: what all of their columns say together. ``levels`` the names of the levels of each axis.
    ``texts`` (takes,) the text of each take, where texts are a block.
    """

    values: _Floats
    codes: _Codes
    levels: tuple[tuple[Any, ...], ...]
    texts: _Codes | None = None

    @property
    def factors(self) -> range:
        """The numbers of all factors."""
        return range(self.codes.shape[0])

    @property
    def cells(self) -> _Codes:
        """The cell of each take: takes of one cell share all levels, and are repeats. Shape (takes,)."""
        return _combine(self.codes)

    def strata(self, axis: int) -> _Codes:
        """Within what the takes are exchangeable when ``axis`` does nothing: all other factors' cells."""
        return _combine(np.delete(self.codes, axis, axis=0))

    def dummies(self, factors: Sequence[int]) -> _Floats:
        """Return the additive model's columns, (takes, columns): a constant, and all levels but the first."""
        columns = [np.ones((self.values.size, 1))]
        for factor in factors:
            present = np.unique(self.codes[factor])
            columns.append((self.codes[factor][:, None] == present[None, 1:]).astype(np.float64))
        return np.concatenate(columns, axis=1)


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


def build(frame: pd.DataFrame, axes: Sequence[str], blocks: Sequence[str], metric: str, texts: str = "") -> Design:
    """Return the design of the rows in which ``metric`` is a finite number, the same whatever their order.

    Levels of an axis are in ascending order where they are numbers, in that of their categories where they have
    some, else in order of appearance. Raises ArgumentError for a metric that is not numeric.
    """
    import pandas as pd

    column = pd.to_numeric(frame[metric], errors="coerce").to_numpy(np.float64, na_value=np.nan)
    if frame[metric].notna().sum() > np.isfinite(column).sum() and not np.isfinite(column).any():
        raise ArgumentError.of("metrics", f"{metric!r} has no numbers in it")
    kept = np.isfinite(column)
    codes, levels, places = [], [], []
    for factor in (*axes, *blocks):
        values = frame[factor]
        ordered = pd.api.types.is_numeric_dtype(values) or isinstance(values.dtype, pd.CategoricalDtype)
        if not ordered:
            # Lists and records are levels too, and cannot be hashed.
            values = values.map(lambda value: value if isinstance(value, str | int | float | bool) else repr(value))
        code, names = pd.factorize(values, sort=ordered, use_na_sentinel=False)
        codes.append(np.asarray(code, np.intp)[kept])
        levels.append(tuple(name.item() if isinstance(name, np.generic) else name for name in names))
        # Not the codes themselves: those of words depend on which row comes first.
        by_name = sorted(range(len(names)), key=list(map(repr, levels[-1])).__getitem__)
        places.append(np.argsort(by_name)[codes[-1]])
    values = column[kept]
    # Resampling draws by place, and the order in which takes were rendered must not decide a p-value.
    order = np.lexsort((values, *reversed(places)))
    together = np.stack(codes)[:, order]
    varied, held = together[: len(axes)], together[len(axes) :]
    block = [_combine(held)] if len(held) else []
    text = held[blocks.index(texts)] if texts in blocks else None
    return Design(values[order], np.stack([*varied, *block]), tuple(levels[: len(axes)]), text)


def without_rounding(residuals: _Floats, values: _Floats) -> _Floats:
    """Return residuals of ``values`` with those that only the arithmetic made set to zero."""
    cleaned: _Floats = np.where(np.abs(residuals) <= 1e-12 * np.abs(values).max(initial=0.0), 0.0, residuals)
    return cleaned


def permutation_p(design: Design, axis: int, permutations: int, rng: np.random.Generator) -> float:
    """Return p of the hypothesis that an axis does nothing, not even to how much takes differ.

    The levels are exchanged between the takes of each stratum, within which nothing but this axis differs; the
    statistic is the sum of squares between the levels after each stratum's mean is taken out. The observed
    arrangement counts as one of the permutations (B. Phipson & G. K. Smyth, "Permutation p-values should never
    be zero", 2010), so that the test is exact: p is at most alpha with a chance of at most alpha. Where levels differ in
    their number of takes and in their spread it is not a test of their means.
    """
    strata = design.strata(axis)
    order = np.argsort(strata, kind="stable")
    strata, levels, values = strata[order], design.codes[axis][order], design.values[order]
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

    ``residuals`` (takes,), ``df`` their degrees of freedom, ``basis`` (takes, rank) an orthonormal basis of the
    model; ``repeats`` says whether the model is the cells themselves, or, where no cell has two takes, the sum of
    the factors' effects, so that interactions count as noise.
    """

    residuals: _Floats
    df: int
    basis: _Floats
    repeats: bool

    @property
    def sum_sq(self) -> float:
        """Sum of the residuals' squares."""
        return float(self.residuals @ self.residuals)

    @property
    def sd(self) -> float:
        """Standard deviation of ``residuals``, in the metric's unit; NaN without degrees of freedom."""
        return math.sqrt(self.sum_sq / self.df) if self.df > 0 else math.nan


@dataclass(frozen=True, eq=False)
class OverTexts:
    """What an axis does in texts like these: its ``contrasts``, by the ``count`` texts that have all levels."""

    count: int
    contrasts: Contrasts


def over_texts(design: Design, axis: int) -> OverTexts | None:
    """Return what an axis does in texts of which these are a sample; None without two texts that can be compared.

    Each text has one difference of each level from the first, adjusted for all else that differs within it, so that
    texts may have other numbers of takes. Contrasts: Student's t over the texts. p: the analysis of variance with repeated
    measures, its degrees of freedom lessened after S. W. Greenhouse & S. Geisser (Psychometrika 24, 1959); of two levels
    that is the t-test.
    """
    from scipy import stats

    if design.texts is None:
        return None
    levels = np.unique(design.codes[axis])
    rows = []
    for text in np.unique(design.texts):
        part = design.texts == text
        own = Design(design.values[part], design.codes[:, part], design.levels)
        if np.array_equal(np.unique(own.codes[axis]), levels):
            model = own.dummies([axis, *(other for other in own.factors if other != axis)])
            weights = np.linalg.pinv(model, rcond=_RANK)[1 : levels.size]
            if (np.einsum("ij,ji->i", weights, model[:, 1 : levels.size]) > 1.0 - _ROUNDING).all():
                rows.append(weights @ own.values)
    if len(rows) < 2:
        return None
    apart, count = np.array(rows), len(rows)
    mean, error = apart.mean(axis=0), apart.std(axis=0, ddof=1) / math.sqrt(count)
    profile = np.concatenate((np.zeros((count, 1)), apart), axis=1)
    profile -= profile.mean(axis=1, keepdims=True)
    middle, free = profile.mean(axis=0), levels.size - 1
    left = without_rounding((profile - middle).ravel(), design.values).reshape(profile.shape)
    between, within = count * float(middle @ middle), float(np.square(left).sum())
    if within == 0.0:
        p = math.nan if between else 1.0
    else:
        spread = left.T @ left
        narrowed = float(np.trace(spread)) ** 2 / (free * float(np.square(spread).sum()))
        f = between / within * (count - 1)
        p = float(stats.f.sf(f, free * narrowed, free * (count - 1) * narrowed))
    return OverTexts(count, Contrasts(mean, error, np.full(mean.size, count - 1.0), p))


def noise_of(design: Design) -> Noise:
    """Return the sampling noise around the cells' means, or around the additive model where nothing repeats."""
    cells = design.cells
    sizes = np.bincount(cells)
    repeats = bool(design.values.size > sizes.size)
    if repeats:
        basis = (cells[:, None] == np.arange(sizes.size)[None]) / np.sqrt(sizes)
    else:
        model = design.dummies(design.factors)
        left, strength, _ = np.linalg.svd(model, full_matrices=False)
        basis = left[:, strength > strength.max(initial=0.0) * _RANK]
    residuals = without_rounding(design.values - basis @ (basis.T @ design.values), design.values)
    return Noise(residuals, design.values.size - basis.shape[1], basis, repeats)


@dataclass(frozen=True, eq=False)
class Contrasts:
    """Differences of an axis' levels from its first, each (levels - 1,): ``estimate``, its standard ``error`` and ``df``.

    NaN where the design cannot tell a level's difference from that of another factor, or has no noise to judge it by; an
    error of 0 where takes never differ. ``p`` is of the hypothesis that all are 0.
    """

    estimate: _Floats
    error: _Floats
    df: _Floats
    p: float

    def interval(self, confidence: float) -> tuple[_Floats, _Floats]:
        """Return the ends of the intervals, by Student's t."""
        from scipy.stats import t

        reach = np.where(self.error > 0.0, t.ppf((1.0 + confidence) / 2.0, self.df), 0.0) * self.error
        return self.estimate - reach, self.estimate + reach

    @property
    def p_each(self) -> _Floats:
        """P of each being 0, at most 1 less the confidence just where the interval leaves out 0."""
        return p_beyond(self.estimate, self.error, self.df)


def p_beyond(away: _Floats, error: _Floats, df: _Floats) -> _Floats:
    """Return the two-sided p of Student's t; 0 or 1 where nothing differs by chance."""
    from scipy.stats import t

    with np.errstate(divide="ignore", invalid="ignore"):
        p = 2.0 * t.sf(np.abs(away) / error, df)
    exact: _Floats = np.where(error > 0.0, p, np.where(error == 0.0, np.where(away == 0.0, 1.0, 0.0), np.nan))
    return exact


def welch_contrasts(design: Design, axis: int, noise: Noise) -> Contrasts:
    """Return each level's difference from the first, adjusted for the other factors, and p that there is none.

    The estimate is the additive model's by least squares. Each level has a noise of its own, since a parameter may change
    how much takes differ, and levels may have any number of takes: B. L. Welch's t (Biometrika 34, 1947), over all levels
    S. Johansen's form of it (Biometrika 67, 1980), which of two levels is that t. It speaks of these cells, not of other
    texts.
    """
    factors = [axis, *(other for other in design.factors if other != axis)]
    names, level = np.unique(design.codes[axis], return_inverse=True)
    model = design.dummies(factors)
    weights = np.linalg.pinv(model, rcond=_RANK)[1 : names.size]
    # Where factors are confounded, the shortest of the least squares' solutions estimates something else.
    estimable = np.einsum("ij,ji->i", weights, model[:, 1 : names.size]) > 1.0 - _ROUNDING
    estimate = np.where(estimable, weights @ design.values, np.nan)
    unknown = np.full(estimate.size, np.nan)
    if noise.df < 1:
        return Contrasts(estimate, unknown, unknown, math.nan)
    member = (level[:, None] == np.arange(names.size)[None]).astype(np.float64)
    # Degrees of freedom of each level: its takes less its share of the model.
    free = member.sum(axis=0) - (np.square(noise.basis).sum(axis=1) @ member)
    own = (np.square(noise.residuals) @ member) / np.maximum(free, 1e-9)
    # A level without repeats of its own borrows the noise of all.
    borrows = free < 1.0 - 1e-6
    variances, free = np.where(borrows, noise.sum_sq / noise.df, own), np.where(borrows, noise.df, free)
    parts = (np.square(weights) @ member) * variances
    spread = parts.sum(axis=1)
    with np.errstate(invalid="ignore"):
        df = np.where(spread > 0.0, np.square(spread) / (np.square(parts) / free).sum(axis=1), noise.df)
    error = np.where(estimable, np.sqrt(spread), np.nan)
    return Contrasts(estimate, error, df, _all_zero(weights[estimable], estimate[estimable], member * variances, free))


def _all_zero(weights: _Floats, estimate: _Floats, variances: _Floats, free: _Floats) -> float:
    """Return Johansen's p that contrasts are 0; ``variances`` (takes, levels) are those of each level's own takes."""
    from scipy.stats import f

    count = len(estimate)
    if not count:
        return math.nan
    shares = np.einsum("in,nl,jn->lij", weights, variances, weights)
    whole = shares.sum(axis=0)
    if not np.linalg.eigvalsh(whole)[0] > _ROUNDING * max(float(np.trace(whole)), 1e-300):
        # Some contrast has no noise: it is 0, or it is not.
        still = np.diag(whole) <= _ROUNDING * np.trace(whole)
        return 0.0 if estimate[still].any() else 1.0 if not estimate.any() else math.nan
    parts = shares @ np.linalg.inv(whole)
    traces = np.trace(parts, axis1=1, axis2=2)
    loss = float(((np.einsum("lij,lji->l", parts, parts) + np.square(traces)) / free).sum()) / 2.0
    statistic = float(estimate @ np.linalg.solve(whole, estimate))
    scale = count + 2.0 * loss - 6.0 * loss / (count + 2.0)
    return float(f.sf(statistic / scale, count, count * (count + 2.0) / (3.0 * loss)))
