"""Takes as a design of factors, and the two resamplings behind an effect: permutation within strata, and bootstrap."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from voicelab.errors import ArgumentError

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "Contrasts",
    "Design",
    "Noise",
    "OverTexts",
    "bootstrap_contrasts",
    "build",
    "columns_of",
    "noise_of",
    "over_texts",
    "permutation_p",
    "without_rounding",
]

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
    """Return column names after checking them; raises ArgumentError, which names the argument."""
    columns = [given] if isinstance(given, str) else list(given)
    for column in columns:
        if column not in frame.columns:
            raise ArgumentError.of(
                name, f"there is no column {column!r}; there are {', '.join(map(str, frame.columns))}"
            )
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


def permutation_p(design: Design, axis: int, permutations: int, rng: np.random.Generator) -> tuple[float, float]:
    """Return p of the hypothesis that an axis does nothing, and the number of arrangements with different statistics.

    The levels are exchanged between the takes of each stratum, within which nothing but this axis differs; the
    statistic is the sum of squares between the levels after each stratum's mean is taken out. The observed
    arrangement counts as one of the permutations (B. Phipson & G. K. Smyth, "Permutation p-values should never
    be zero", 2010), so that the test is exact: p is at most alpha with a chance of at most alpha. Arrangements that
    differ only by the names of levels with as many takes in every stratum have one statistic, and count as one.
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
    return (reached + 1) / (permutations + 1), _arrangements(strata, levels)


def _arrangements(strata: _Codes, levels: _Codes) -> float:
    table = np.zeros((levels.max() + 1, strata.max() + 1), np.intp)
    np.add.at(table, (levels, strata), 1)
    moving = table[:, (table > 0).sum(axis=0) > 1]
    kinds = np.column_stack((moving, table.sum(axis=1)))[moving.any(axis=1)]
    if len(kinds) == 2:
        kinds = kinds[:, :-1]  # the sums of two levels are opposite, however many takes of each stand still beside them
    alike = np.unique(kinds, axis=0, return_counts=True)[1]
    logarithm = _log_orders(table.sum(axis=0)) - _log_orders(table.ravel()) - _log_orders(alike)
    return float(round(math.exp(logarithm))) if logarithm < 700.0 else math.inf


def _log_orders(counts: npt.NDArray[np.intp]) -> float:
    return sum(math.lgamma(count + 1) for count in counts)


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
    """What an axis does in texts like these: ``p`` that it does nothing, and its ``contrasts`` from its first level.

    ``count`` is the number of texts in which all levels can be compared.
    """

    p: float
    count: int
    contrasts: Contrasts


def over_texts(design: Design, axis: int, confidence: float) -> OverTexts | None:
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
    reach = float(stats.t.ppf((1.0 + confidence) / 2.0, count - 1)) * error
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
    return OverTexts(p, count, Contrasts(mean, mean - reach, mean + reach))


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
    """Differences of an axis' levels from its first: ``estimate``, ``low`` and ``high``, each (levels - 1,).

    NaN where the design cannot tell a level's difference from that of another factor.
    """

    estimate: _Floats
    low: _Floats
    high: _Floats


def bootstrap_contrasts(
    design: Design, axis: int, noise: Noise, confidence: float, resamples: int, rng: np.random.Generator
) -> Contrasts:
    """Return each level's difference from the first, adjusted for the other factors, with its interval.

    The estimate is the additive model's by least squares. Interval: bootstrap-t (B. Efron & R. J. Tibshirani, "An
    Introduction to the Bootstrap", 1993, chapter 12) of the residuals, each level with a noise of its own, since
    a parameter may change how much takes differ; it speaks of these cells, whose takes are resampled, not of
    other texts.
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
        return Contrasts(estimate, unknown, unknown)
    member = (level[:, None] == np.arange(names.size)[None]).astype(np.float64)
    # Degrees of freedom of each level: its takes less its share of the model.
    free = member.sum(axis=0) - (np.square(noise.basis).sum(axis=1) @ member)
    free = np.maximum(free, 1e-9)
    pooled = noise.sum_sq / noise.df

    def variances(residuals: _Floats) -> _Floats:
        own: _Floats = (np.square(residuals) @ member) / free
        # A level without repeats of its own borrows the noise of all.
        return np.where(free >= 1.0 - 1e-6, own, pooled)

    def errors(by_level: _Floats) -> _Floats:
        standard: _Floats = np.sqrt(by_level @ (np.square(weights) @ member).T)
        return standard

    spread = variances(noise.residuals)
    error = errors(spread)
    if not (error > 0.0).any():
        return Contrasts(estimate, estimate, estimate)
    pool, own_sd = _pool(noise, spread[level]), np.sqrt(spread[level])
    ratios = []
    for begin in range(0, resamples, size := max(1, _HELD // level.size)):
        count = min(size, resamples - begin)
        drawn = pool[rng.integers(pool.size, size=(count, level.size))] * own_sd
        left = drawn - (drawn @ noise.basis) @ noise.basis.T
        moved, own = drawn @ weights.T, errors(variances(left))
        # So few takes that a resample has no noise of its own but rounding: it says nothing, which is infinitely far.
        noisy = own > _ROUNDING * error
        with np.errstate(divide="ignore", invalid="ignore"):
            ratios.append(np.where(noisy, moved / own, np.where(moved == 0.0, 0.0, np.copysign(np.inf, moved))))
    tail = (1.0 - confidence) / 2.0
    drawn_ratios = np.concatenate(ratios)
    # No interpolation: between a number and infinity there is none.
    lower = np.quantile(drawn_ratios, tail, axis=0, method="lower")
    upper = np.quantile(drawn_ratios, 1.0 - tail, axis=0, method="higher")
    with np.errstate(invalid="ignore"):
        low, high = (np.where(error > 0.0, estimate - ratio * error, estimate) for ratio in (upper, lower))
    return Contrasts(estimate, low, high)


def _pool(noise: Noise, variances: _Floats) -> _Floats:
    """Return the residuals with the mean 0 and the variance 1 of what they stand for; ``variances`` is (takes,)."""
    leverage = np.sqrt(np.maximum(1.0 - np.square(noise.basis).sum(axis=1), 1e-12))
    usable = (leverage > 1e-3) & (variances > 0.0)
    pool = noise.residuals[usable] / leverage[usable] / np.sqrt(variances[usable])
    pool = pool - pool.mean()
    scaled: _Floats = pool / (math.sqrt(float(np.mean(np.square(pool)))) or 1.0)
    return scaled
