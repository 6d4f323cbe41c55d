"""Factorial designs of takes, and tests of main effects: tests with a pooled variance, Welch's test, tests with texts
as a random effect, and permutation tests.

Metrics that are defined for the same takes share a design, so values have shape (takes, metrics).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from voicelab.errors import ArgumentError, suggestion

if TYPE_CHECKING:
    import pandas as pd

_Codes = npt.NDArray[np.intp]
_Floats = npt.NDArray[np.float64]

# Maximum number of permuted values at a time: 32 MB.
_MAX_VALUES = 4_000_000
_ARRANGEMENTS = 9_999
# More texts would not change the distribution of p-values.
_MAX_TEXTS = 60
_ROUNDING = 1e-9
_RANK_TOLERANCE = 1e-10


@dataclass(frozen=True, eq=False)
class Design:
    """Factorial design of takes, whose order depends only on their levels.

    ``codes`` (factors, takes) has the index of each take's level on each axis and, if there are blocks, a last row with the
    index of its combination of block levels. ``levels`` has the level names of each axis; ``texts`` (takes,) has the text
    index of each take if texts are a block.
    """

    codes: _Codes
    levels: tuple[tuple[Any, ...], ...]
    texts: _Codes | None = None

    @property
    def takes(self) -> int:
        """Number of takes."""
        return int(self.codes.shape[1])

    @property
    def factors(self) -> range:
        """Factor indices."""
        return range(self.codes.shape[0])

    @cached_property
    def cells(self) -> _Codes:
        """Cell index of each take, shape (takes,); takes of a cell have the same levels and are repeats."""
        return _combine(self.codes)

    def strata(self, axis: int) -> _Codes:
        """Return the stratum index (takes,) of each take: its combination of levels of all factors except ``axis``.

        Under the null hypothesis, takes of a stratum are exchangeable.
        """
        return _combine(np.delete(self.codes, axis, axis=0))

    def crossed(self, first: int, second: int) -> Design | None:
        """Return a design in which two axes are combined into one; it comes first, and its levels are pairs of codes.

        Returns None if a combination of levels has no takes.
        """
        pairs, codes = np.unique(self.codes[[first, second]], axis=1, return_inverse=True)
        if pairs.shape[1] < np.prod([np.unique(axis).size for axis in pairs]):
            return None
        levels = (level for number, level in enumerate(self.levels) if number not in {first, second})
        rest = np.delete(self.codes, [first, second], axis=0)
        return Design(np.vstack([codes.reshape(1, -1), rest]), (tuple(map(tuple, pairs.T)), *levels), self.texts)

    def within(self, factors: Sequence[int]) -> tuple[_Codes, _Floats]:
        """Return the block index of each take, and the factors' dummy variables (takes, columns) minus their block means.

        Each level except the first has a dummy variable. The last factor is that of the blocks; if it is not among
        ``factors``, all takes are in one block.
        """
        blocked = len(self.levels) in factors
        block = _combine(self.codes[-1:]) if blocked else np.zeros(self.takes, np.intp)
        columns = [np.zeros((self.takes, 0))]
        for factor in factors:
            if factor < len(self.levels):
                present = np.unique(self.codes[factor])
                columns.append((self.codes[factor][:, None] == present[None, 1:]).astype(np.float64))
        return block, _centered(np.concatenate(columns, axis=1), block)

    def residuals(self, factors: Sequence[int], values: _Floats) -> tuple[_Floats, int, _Floats]:
        """Return the residuals of the additive model (takes, metrics), its rank, and the leverage of each take."""
        block, dummies = self.within(factors)
        vectors, singular, _ = np.linalg.svd(dummies, full_matrices=False)
        basis = vectors[:, singular > max(singular.max(initial=0.0), 1.0) * _RANK_TOLERANCE]
        centered, sizes = _centered(values, block), np.bincount(block)
        leverage = 1.0 / sizes[block] + np.square(basis).sum(axis=1)
        return centered - basis @ (basis.T @ centered), sizes.size + basis.shape[1], leverage

    def differences(self, axis: int) -> tuple[_Floats, npt.NDArray[Any]]:
        """Return the weights (levels - 1, takes) of takes in the least-squares differences from the first level.

        The second array (levels - 1,) marks estimable differences, which are not confounded with other factors.
        """
        count = np.unique(self.codes[axis]).size
        _, model = self.within([axis, *(factor for factor in self.factors if factor != axis)])
        weights = np.asarray(np.linalg.pinv(model, rcond=_RANK_TOLERANCE)[: count - 1], np.float64)
        weights = np.where(np.abs(weights) > _RANK_TOLERANCE * np.abs(weights).max(initial=0.0), weights, 0.0)
        # If factors are confounded, the minimum-norm solution estimates another contrast.
        return weights, np.einsum("ij,ji->i", weights, model[:, : count - 1]) > 1.0 - _ROUNDING


def _centered(values: _Floats, groups: _Codes) -> _Floats:
    """Subtract the group means from values (takes, columns)."""
    sums = np.zeros((int(groups.max(initial=-1)) + 1, values.shape[1]))
    np.add.at(sums, groups, values)
    centered: _Floats = values - (sums / np.bincount(groups)[:, None])[groups]
    return centered


def _combine(codes: _Codes) -> _Codes:
    """Assign an integer to each distinct column of ``codes``, in order of appearance."""
    cells = np.zeros(codes.shape[1], np.intp)
    for row in codes:
        cells = np.unique(cells * (row.max(initial=0) + 1) + row, return_inverse=True)[1]
    _, index, cells = np.unique(cells, return_index=True, return_inverse=True)
    return np.asarray(np.argsort(np.argsort(index))[cells], np.intp)


def columns_of(frame: pd.DataFrame, columns: Sequence[str] | str, name: str) -> list[str]:
    """Validate column names. Raises ArgumentError for the argument ``name``."""
    names = [str(column) for column in frame.columns]
    columns = [columns] if isinstance(columns, str) else list(columns)
    for column in columns:
        if column not in frame.columns:
            near = suggestion(column, names) or f"; there are {', '.join(names)}"
            raise ArgumentError.of(name, f"there is no column {column!r}{near}")
    if len(set(columns)) < len(columns):
        raise ArgumentError.of(name, f"columns must be distinct, got {', '.join(map(str, columns))}")
    return columns


def values_of(frame: pd.DataFrame, metrics: Sequence[str]) -> _Floats:
    """Return values (takes, metrics), NaN if undefined. Raises ArgumentError for a metric that has no numbers."""
    import pandas as pd

    values = np.empty((len(frame), len(metrics)))
    for index, metric in enumerate(metrics):
        column = pd.to_numeric(frame[metric], errors="coerce").to_numpy(np.float64, na_value=np.nan)
        values[:, index] = np.where(np.isfinite(column), column, np.nan)
        if frame[metric].notna().any() and not np.isfinite(column).any():
            raise ArgumentError.of("metrics", f"{metric!r} has no numeric values")
    return values


def build(frame: pd.DataFrame, axes: Sequence[str], blocks: Sequence[str], texts: str = "") -> tuple[Design, _Codes]:
    """Build the design of a table, and the row index of each take; the design does not depend on the order of rows.

    Numeric levels are sorted, categorical levels are in category order, and other levels in order of appearance.
    """
    import pandas as pd

    codes, levels, ranks = [], [], []
    for factor in (*axes, *blocks):
        values = frame[factor]
        ordered = pd.api.types.is_numeric_dtype(values) or isinstance(values.dtype, pd.CategoricalDtype)
        if not ordered:
            # Lists and records are unhashable levels.
            values = values.map(lambda value: value if isinstance(value, str | int | float | bool) else repr(value))
        code, names = pd.factorize(values, sort=ordered, use_na_sentinel=False)
        codes.append(np.asarray(code, np.intp))
        levels.append(tuple(name.item() if isinstance(name, np.generic) else name for name in names))
        # Codes of text levels depend on row order; ranks of their names do not.
        by_name = sorted(range(len(names)), key=list(map(repr, levels[-1])).__getitem__)
        ranks.append(np.argsort(by_name)[codes[-1]])
    order = np.asarray(np.lexsort(ranks[::-1]), np.intp)
    factors = np.stack(codes)[:, order]
    axis_codes, block_codes = factors[: len(axes)], factors[len(axes) :]
    block = [_combine(block_codes)] if len(block_codes) else []
    text = block_codes[blocks.index(texts)] if texts in blocks else None
    return Design(np.stack([*axis_codes, *block]), tuple(levels[: len(axes)]), text), order


def without_rounding(results: _Floats, values: _Floats) -> _Floats:
    """Set results that are only rounding errors of sums of ``values`` (takes, …) to zero."""
    cleaned: _Floats = np.where(np.abs(results) <= 1e-12 * np.abs(values).max(axis=0, initial=0.0), 0.0, results)
    return cleaned


def cell_medians(design: Design, values: _Floats) -> _Floats:
    """Return the median of each take's cell, shape (takes, metrics)."""
    import pandas as pd

    return np.asarray(pd.DataFrame(values).groupby(design.cells).transform("median"), np.float64)


def permutation_p(design: Design, values: _Floats, axis: int, *, ranks: bool = False) -> float:
    """Compute the permutation p-value for the null hypothesis that an axis does not affect a metric, ``values`` (takes,).

    Levels are permuted 9,999 times within strata, which are the cells of the other factors. The statistic is the sum of
    squares between levels after subtraction of the stratum means. It is computed from ``values`` or, with ``ranks``,
    from their aligned ranks: the ranks of the distances from the stratum medians. The test is exact because the
    observed arrangement is included (B. Phipson & G. K. Smyth, "Permutation p-values should never be zero", 2010). If
    levels differ both in the number of takes and in variance, it is not a test of means.
    """
    rng = np.random.default_rng(0)
    if ranks:
        values = _aligned_ranks(values, design.strata(axis))
    # Permutations are by index, so takes are sorted first: p must not depend on the order of synthesis.
    order = np.lexsort((values, design.cells, design.strata(axis)))
    strata, levels, values = design.strata(axis)[order], design.codes[axis][order], values[order]
    centered = without_rounding(values - (np.bincount(strata, values) / np.bincount(strata))[strata], values)
    names, levels = np.unique(levels, return_inverse=True)
    member = (levels[:, None] == np.arange(names.size)[None]).astype(np.float64)
    sizes = member.sum(axis=0)

    def statistic(rows: _Floats) -> _Floats:
        between: _Floats = (np.square(rows @ member) / sizes).sum(axis=-1)
        return between

    observed = float(statistic(centered))
    # Rounding must not break ties.
    threshold = observed - 1e-9 * max(observed, float(centered @ centered) * 1e-3)
    exceeding, done = 0, 0
    while done < _ARRANGEMENTS:
        count = min(_ARRANGEMENTS - done, max(1, _MAX_VALUES // centered.size))
        shuffled = np.argsort(rng.random((count, centered.size)) + strata, axis=1)
        exceeding += int((statistic(centered[shuffled]) >= threshold).sum())
        done += count
    return (exceeding + 1) / (_ARRANGEMENTS + 1)


def least_p(design: Design, axis: int) -> float:
    """Return the smallest possible p-value of ``permutation_p``.

    Permutations that exchange levels with equal numbers of takes in all strata have the observed statistic, too.
    """
    from scipy.special import gammaln

    strata, levels = design.strata(axis), np.unique(design.codes[axis], return_inverse=True)[1]
    sizes = np.zeros((int(strata.max()) + 1, int(levels.max()) + 1), np.intp)
    np.add.at(sizes, (strata, levels), 1)
    arrangements = gammaln(sizes.sum(axis=1) + 1.0).sum() - gammaln(sizes + 1.0).sum()
    swaps = gammaln(np.unique(sizes, axis=1, return_counts=True)[1] + 1.0).sum()
    return max(1.0 / (_ARRANGEMENTS + 1), float(np.exp(swaps - arrangements)))


def _aligned_ranks(values: _Floats, strata: _Codes) -> _Floats:
    import pandas as pd

    column = pd.Series(values)
    distances = without_rounding((column - column.groupby(strata).transform("median")).to_numpy(), values)
    return np.asarray(pd.Series(distances).rank(), np.float64)


def exchanged_p(
    design: Design, values: _Floats, axis: int, profiles: _Floats | None, *, ranks: bool = False
) -> tuple[float, float]:
    """Compute ``permutation_p`` and ``least_p`` of a metric, ``values`` (takes,).

    If texts are random, the values in ``profiles`` (texts, levels) are permuted within each text instead. The aligned ranks
    are hardly affected by single outliers; with two levels, their test is close to Wilcoxon's signed-rank test.
    """
    if profiles is not None:
        texts, levels = np.indices(profiles.shape).reshape(2, -1)
        design, values, axis = Design(np.stack([levels, texts]), ((),)), profiles.ravel(), 0
    least = least_p(design, axis)
    # Of random arrangements, fewer may reach the statistic than of all.
    return max(permutation_p(design, values, axis, ranks=ranks), least), least


@dataclass(frozen=True, eq=False)
class Noise:
    """Residual variance of a design.

    ``residuals`` (takes, metrics) have ``df`` degrees of freedom, to which each take contributes ``take_df`` (takes,). If
    ``repeats`` is True, the model consists of the cell means. If it is False, no cell has two takes and the model is
    additive, so interactions count as residual variance. ``sum_sq`` (metrics,) is the residual sum of squares, and ``sd``
    (metrics,) the residual SD in the metric's unit, NaN if there are no degrees of freedom.
    """

    residuals: _Floats
    df: int
    take_df: _Floats
    repeats: bool
    sum_sq: _Floats
    sd: _Floats


def noise_of(design: Design, values: _Floats) -> Noise:
    """Compute residuals from the cell means or, if there are no repeats, from the additive model."""
    cells = design.cells
    sizes = np.bincount(cells)
    repeats = bool(design.takes > sizes.size)
    if repeats:
        residuals, rank, leverage = _centered(values, cells), int(sizes.size), 1.0 / sizes[cells]
    else:
        residuals, rank, leverage = design.residuals(design.factors, values)
    residuals = without_rounding(residuals, values)
    df, sum_sq = design.takes - rank, np.square(residuals).sum(axis=0)
    sd = np.sqrt(sum_sq / df) if df > 0 else np.full(sum_sq.shape, np.nan)
    return Noise(residuals, df, 1.0 - leverage, repeats, sum_sq, sd)


@dataclass(frozen=True, eq=False)
class Contrasts:
    """Differences of an axis' levels from its first, (levels - 1, metrics): ``estimate``, standard ``error`` and ``df``.

    Values are NaN if a level is confounded with another factor or there are no residual degrees of freedom. ``p`` (metrics,)
    is the p-value of the null hypothesis that all differences are 0, from the test ``test``. If the residual variance is 0,
    the error is 0, and p and the interval are NaN. Intervals are simultaneous. They are computed from ``null`` (draws,), the
    sorted smallest p-values of all differences in draws of simulated normal noise; ``null`` is empty for a single
    difference. ``wide`` is the standard error of simultaneous intervals.
    """

    estimate: _Floats
    error: _Floats
    df: _Floats
    p: _Floats
    test: str
    wide: _Floats
    null: _Floats

    @classmethod
    def simultaneous(
        cls, estimate: _Floats, errors: tuple[_Floats, _Floats], df: _Floats, test: str, null: _Floats
    ) -> Contrasts:
        """Create contrasts with a p-value that is at most 5 % if and only if at least one 95 % interval excludes 0."""
        contrasts = cls(estimate, errors[0], df, np.full(estimate.shape[1], np.nan), test, errors[1], null)
        tested = np.isfinite(contrasts.error).any(axis=1)
        return replace(contrasts, p=contrasts.p_each[tested].min(axis=0)) if tested.any() else contrasts

    def half_width(self, confidence: float) -> _Floats:
        """Compute the half width of the simultaneous intervals."""
        from scipy.stats import t

        limit = largest_p(self.null, self._count, 1.0 - confidence)
        width: _Floats = t.isf(limit / 2.0, self.df) * _positive(self.wide)
        return width

    @property
    def p_each(self) -> _Floats:
        """P-value of each difference, adjusted for the number of differences; it agrees with the simultaneous interval."""
        from scipy.stats import t

        p: _Floats = 2.0 * t.sf(np.abs(self.estimate) / _positive(self.wide), self.df)
        if self.null.size:
            exceeding = 1.0 + np.searchsorted(self.null, p, side="right")
            # Few draws are below a small p, so the smaller of this and C. E. Bonferroni's bound is used, which is then
            # close.
            p = np.where(np.isnan(p), p, np.minimum(exceeding / (self.null.size + 1), p * self._count))
        return p

    @property
    def _count(self) -> int:
        return int(np.isfinite(self.error).any(axis=1).sum())


def largest_p(null: _Floats, count: int, level: float) -> float:
    """Return the threshold below which the p-value of one of ``count`` differences is significant at a family-wise level."""
    rank = int(round(level * (null.size + 1), 6))
    return max(level / count, float(null[rank - 1]) if null.size and rank else 0.0) if count > 1 else level


@lru_cache(maxsize=64)
def smallest_p_of_takes(shares: bytes, level_df: tuple[float, ...], df: float, shift: float = 0.0) -> _Floats:
    """Simulate normal noise of SD 1, and return the smallest p-value of the contrasts in each draw, sorted (draws,).

    ``shares`` are bytes of an array (levels, contrasts, contrasts): each level's contribution to the covariance.
    ``level_df`` are the degrees of freedom of the levels' variances, and ``df`` those of a pooled variance, 0 for Welch's
    test. The true value of the first contrast is ``shift``; the others are 0.
    """
    from scipy.stats import t

    rng, numbers = np.random.default_rng(0), np.frombuffer(shares)
    count = int(np.sqrt(numbers.size / len(level_df)))
    parts = numbers.reshape(len(level_df), count, count)
    root, levels = np.linalg.cholesky(parts.sum(axis=0)), np.einsum("lcc->lc", parts)
    draws = np.abs(rng.standard_normal((_ARRANGEMENTS, count)) @ root.T + shift * (np.arange(count) == 0))
    if df:
        variance = levels.sum(axis=0) * (rng.chisquare(df, (_ARRANGEMENTS, 1)) / df)
        return np.sort(2.0 * t.sf((draws / np.sqrt(variance)).max(axis=1), df))
    variances = rng.chisquare(level_df, (_ARRANGEMENTS, len(level_df))) / level_df
    variance = variances @ levels
    dfs = np.square(variance) / ((np.square(variances) / level_df) @ np.square(levels))
    return np.sort(2.0 * t.sf(draws / np.sqrt(variance), dfs).min(axis=1))


def _positive(values: _Floats) -> _Floats:
    """Replace errors or variances of zero with NaN."""
    return np.where(values > 0.0, values, np.nan)


def min_level_df(takes: _Floats) -> int:
    """Return the minimum residual degrees of freedom per level for Welch's test; ``takes`` (levels,).

    With fewer degrees of freedom, the type I error of Welch's test reaches 14 % at a level of 5 %, so a pooled variance is
    used. If levels are balanced, the F test with a pooled variance tolerates an SD ratio of 1 : 3. It does not if a level
    has 1.5 times as many takes as another, so the minimum is then lower (simulations: bench/inference.py).
    """
    return takes.size + 2 if takes.max() < 1.5 * takes.min() else max(2, takes.size - 1)


def small_levels(takes: _Floats, level_df: _Floats) -> npt.NDArray[np.bool_]:
    """Return a mask (levels,) of levels with too few takes for a variance and at most half the takes of another level.

    Such levels are not tested: if their SD is 3 times that of the other level, the type I error of the F test is 32 % with 2
    and 9 takes, and 44 % with 1 and 8 takes.
    """
    too_small = level_df < max(2, takes.size - 1) - _ROUNDING
    return np.asarray(too_small & (2.0 * takes <= takes.max()), np.bool_)


def contrasts_of(
    design: Design, values: _Floats, axis: int, noise: Noise, combined: tuple[_Floats, float] | None = None
) -> Contrasts:
    """Estimate and test each level's difference from the first, adjusted for other factors by least squares.

    The choice of the test depends only on the design. If there are no repeats, or a level has fewer residual degrees of
    freedom than ``min_level_df``, one variance is pooled over all levels (C. W. Dunnett, JASA 50, 1955; exact for normal
    residuals). Otherwise every level has its own variance (B. L. Welch, Biometrika 34, 1947). Cells, and therefore texts,
    are fixed. ``small_levels`` are not tested. If ``combined`` is given, its contrasts (contrasts, levels) replace the
    differences; it also has the minimum degrees of freedom of their levels for Welch's test.
    """
    names, level = np.unique(design.codes[axis], return_inverse=True)
    weights, estimable = design.differences(axis)
    weights = np.vstack([np.zeros(design.takes), weights])
    differences = np.hstack([-np.ones((names.size - 1, 1)), np.eye(names.size - 1)])
    if combined is not None:
        differences, estimable = combined[0], np.full(len(combined[0]), estimable.all())
    estimate = np.where(estimable[:, None], without_rounding(differences @ weights @ values, values), np.nan)
    if noise.df < 1:
        unknown = np.full(estimate.shape, np.nan)
        return Contrasts.simultaneous(estimate, (unknown, unknown), unknown, "none", unknown[:0, 0])
    member = (level[:, None] == np.arange(names.size)[None]).astype(np.float64)
    takes, level_df = member.sum(axis=0), noise.take_df @ member
    small = small_levels(takes, level_df) & noise.repeats
    least_df = min_level_df(takes[~small]) if combined is None else combined[1]
    welch = noise.repeats and level_df[~small].min() > least_df - _ROUNDING
    variances = np.tile(noise.sum_sq / noise.df, (names.size, 1))
    if welch:
        variances[~small] = (member.T @ np.square(noise.residuals))[~small] / level_df[~small, None]
    level_df = np.maximum(level_df, 1.0)
    tested = estimable & ~np.asarray((differences[:, small] != 0.0).any(axis=1))
    weights = differences @ weights
    level_variances = (np.square(weights) @ member)[:, :, None] * variances
    variance = level_variances.sum(axis=1)
    df = np.full(variance.shape, float(noise.df))
    if welch:
        satterthwaite = (np.square(level_variances) / level_df[:, None]).sum(axis=1)
        np.divide(np.square(variance), satterthwaite, out=df, where=variance > 0.0)
        if names.size == 2 and level_df.min() < 4.0 - _ROUNDING:
            df = np.floor(df + _ROUNDING)  # 9 takes of SD 1 against 3 of SD 3: type I error .058 instead of .070
    error = np.where(tested[:, None], np.sqrt(variance), np.nan)
    weights, name = weights[tested], "Welch" if welch else "pooled"
    shares = np.stack([block @ block.T for block in (weights[:, level == code] for code in range(names.size))])
    key = np.ascontiguousarray(shares).tobytes(), tuple(map(float, level_df)), 0.0 if welch else float(noise.df)
    # Welch's t of few takes in four cells is far from Student's, even for a single contrast.
    least_count = 1 if welch and combined is not None else 2
    null = smallest_p_of_takes(*key) if len(weights) >= least_count else np.zeros(0)
    return Contrasts.simultaneous(estimate, (error, error), df, name, null)


def text_profiles(
    design: Design, values: _Floats, axis: int, totals: _Floats | None = None
) -> tuple[_Floats, _Floats] | None:
    """Return the adjusted differences (texts, levels, metrics) of all levels from the first, and the weights of texts.

    The weights (texts, metrics) sum to 1 and are equal, or proportional to ``totals`` (takes, metrics), such as the
    number of words. Only texts that have all levels are included; the result is None if there are fewer than two.
    """
    if design.texts is None:
        return None
    levels, rows, sums = np.unique(design.codes[axis]), [], []
    order = np.argsort(design.texts, kind="stable")
    weights_of: dict[bytes, _Floats | None] = {}  # most texts have the same takes
    for takes in np.split(order, np.flatnonzero(np.diff(design.texts[order])) + 1):
        codes = np.vstack([design.codes[:-1, takes], _combine(design.codes[-1:, takes])])  # blocks differ between texts
        key = codes.tobytes()
        if key not in weights_of:
            complete = np.array_equal(np.unique(codes[axis]), levels)
            weights, estimable = Design(codes, design.levels).differences(axis) if complete else (None, np.zeros(1))
            weights_of[key] = weights if estimable.all() else None
        if (weights := weights_of[key]) is not None:
            rows.append(weights @ values[takes])
            sums.append(np.ones(values.shape[1]) if totals is None else totals[takes].sum(axis=0))
    if len(rows) < 2:
        return None
    profiles = without_rounding(np.pad(np.array(rows), ((0, 0), (1, 0), (0, 0))), values)
    return profiles, np.array(sums) / np.sum(sums, axis=0)


def over_texts(
    profiles: tuple[_Floats, _Floats] | None, values: _Floats, grid: tuple[int, ...] = (-1,)
) -> Contrasts | None:
    """Return the contrasts of an axis with texts as a random effect, or None if there are no ``text_profiles``.

    Each text contributes one adjusted difference per level, regardless of its number of takes. A single difference is tested
    by Student's t over texts. With several levels, few texts give inaccurate variances of the differences, so a simultaneous
    interval uses the variance of its difference or the mean of all variances, whichever is larger. If the levels are a
    ``grid`` of combinations, the contrasts are those of the interaction.
    """
    if profiles is None:
        return None
    cells, weights = profiles
    grid = grid if len(grid) > 1 else cells.shape[1:2]
    estimate, error, wide, df = _means(_from_first(cells, grid), weights)
    estimate, error, wide = (without_rounding(result, values) for result in (estimate, error, wide))
    null = np.zeros(0)
    if len(estimate) > 1:
        null = smallest_p_of_texts(min(_MAX_TEXTS, round(float(df.mean())) + 1), grid)
    return Contrasts.simultaneous(estimate, (error, wide), np.tile(df, (len(estimate), 1)), "texts", null)


def _from_first(cells: _Floats, grid: tuple[int, ...]) -> _Floats:
    """Return the differences (texts, contrasts, metrics) from the first level; for a grid, differences of differences."""
    differences = cells.reshape(len(cells), *grid, cells.shape[-1])
    for axis, count in enumerate(grid, 1):
        differences = differences.take(range(1, count), axis) - differences.take([0], axis)
    return differences.reshape(len(cells), -1, cells.shape[-1])


def _means(differences: _Floats, weights: _Floats) -> tuple[_Floats, _Floats, _Floats, _Floats]:
    """Return weighted means with two standard errors, each (contrasts, metrics), and df (metrics,).

    The first standard error is for single differences, the second for simultaneous intervals. If the mean is a ratio of
    sums over texts, which are clusters, error and df are those of R. M. Bell & D. F. McCaffrey (Survey Methodology 28,
    2002); if weights are equal, those of Student's t.
    """
    mean = np.einsum("tm,tcm->cm", weights, differences)
    squares = np.square(weights) / (1.0 - weights)
    alone = np.einsum("tm,tcm->cm", squares, np.square(differences - mean))
    df = np.full(weights.shape[1], len(weights) - 1.0)
    for index in np.flatnonzero(np.ptp(weights, axis=0) > _ROUNDING):
        centering = np.eye(len(weights)) - weights[:, index]
        form = centering.T @ (squares[:, index, None] * centering)
        df[index] = np.trace(form) ** 2 / np.square(form).sum()
    return mean, np.sqrt(alone), np.sqrt(np.maximum(alone, alone.mean(axis=0))), df


@lru_cache(maxsize=64)
def smallest_p_of_texts(texts: int, grid: tuple[int, ...], shift: float = 0.0) -> _Floats:
    """Simulate normal noise of SD 1; return the smallest p-value of a grid's contrasts over texts per draw, sorted (draws,).

    ``shift`` is added to the second level of the first axis.
    """
    from scipy.stats import t

    rng, done, smallest = np.random.default_rng(0), 0, []
    cells = int(np.prod(grid))
    level = np.arange(cells) * grid[0] // cells == 1
    while done < _ARRANGEMENTS:
        count = min(_ARRANGEMENTS - done, max(1, _MAX_VALUES // (texts * cells)))
        noise = rng.standard_normal((texts, cells, count)) + shift * level[:, None]
        estimate, _, wide, _ = _means(_from_first(noise, grid), np.full((texts, count), 1.0 / texts))
        smallest.append(2.0 * t.sf(np.abs(estimate / wide).max(axis=0), texts - 1.0))
        done += count
    return np.sort(np.concatenate(smallest))
