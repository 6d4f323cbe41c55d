"""Tests of means and proportions with crossed random effects of listeners and items."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol, get_args

import numpy as np
import numpy.typing as npt

from voicelab.errors import ArgumentError
from voicelab.stats.estimate import Estimate, Test, between, numbers, p_text, varies
from voicelab.stats.mixed import (
    AT_BOUND,
    Codes,
    Floats,
    RestrictedLikelihood,
    codes_of,
    count_of,
    indicators,
)

Labels = Sequence[object] | npt.NDArray[Any]
_SMALL_SAMPLE = 5

Claim = Literal["better", "different", "not worse", "equivalent"]


def claims_of(kind: str) -> tuple[Claim, ...]:
    """Return the claims that can be tested in this kind of listening test; the claims of ABX have no direction."""
    return ("different", "equivalent") if kind == "ABX" else get_args(Claim)


class ComparedPairs(Protocol):
    """Protocol of results that have tests of pairs of systems, such as those of a listening test."""

    @property
    def kind(self) -> str:
        """Kind of the listening test."""

    @property
    def tests(self) -> Mapping[tuple[str, str], Test]:
        """Tests of all pairs."""

    @property
    def crossed(self) -> Mapping[tuple[str, str], CrossedTest]:
        """Tests with crossed random effects, by pair; pairs whose data do not allow such a test are missing."""

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes on pairs without a crossed test."""


@dataclass(frozen=True, slots=True)
class CrossedTest(Test):
    """Test with crossed random effects, from which p-values for other bounds and other intervals can be computed.

    The statistic is Student's t of the estimate, which has the standard error ``error`` and ``df`` degrees of freedom.
    ``sd`` are the SDs of listeners, items and residuals, ``scale`` the bounds of the interval, and ``items`` the number
    of items.
    """

    error: float
    df: float
    sd: tuple[float, float, float]
    scale: tuple[float, float] = (-math.inf, math.inf)
    items: int = 0

    def __str__(self) -> str:
        return f"{self.name}: t({self.df:.3g}) {self.statistic:.4g}, {p_text(self.p)}; {self.estimate}"

    @property
    def null(self) -> float:
        """Value under the null hypothesis: 0.5 for a share, 0 for a difference."""
        return 0.5 if self.scale == (0.0, 1.0) else 0.0

    def turned(self) -> CrossedTest:
        """Return the test of the same pair with the systems in the other order."""
        value, high, low = (
            2.0 * self.null - end for end in (self.estimate.value, self.estimate.low, self.estimate.high)
        )
        return replace(
            self, statistic=-self.statistic, estimate=replace(self.estimate, value=value, low=low, high=high)
        )

    def interval(self, confidence: float) -> Estimate:
        """Return the estimate with its interval at a confidence level."""
        from scipy.stats import t

        value = self.estimate.value
        half_width = float(t.ppf((1.0 + between(confidence, "confidence", 0.0, 1.0)) / 2.0, self.df)) * self.error
        low, high = max(self.scale[0], value - half_width), min(self.scale[1], value + half_width)
        return Estimate(value, low, high, confidence, self.estimate.n)

    def p_above(self, bound: float) -> float:
        """Return the one-sided p-value for the null hypothesis that the true value is at most ``bound``."""
        from scipy.stats import t

        return float(t.sf((self.estimate.value - bound) / self.error, self.df))

    def p_below(self, bound: float) -> float:
        """Return the one-sided p-value for the null hypothesis that the true value is at least ``bound``."""
        return self.turned().p_above(2.0 * self.null - bound)


def crossed_mean(
    values: npt.ArrayLike,
    listeners: Labels,
    items: Labels,
    *,
    null: float = 0.0,
    scale: tuple[float, float] = (-math.inf, math.inf),
    step: float = 0.0,
    alternative: Literal["two-sided", "greater"] = "two-sided",
    confidence: float = 0.95,
) -> CrossedTest:
    """Test whether a mean differs from ``null``, with random effects of listeners and items.

    ``values`` (n,) are ratings or rating differences with their ``listeners`` and ``items``. The mean is fitted by REML with
    crossed random effects and Satterthwaite's degrees of freedom; for complete tables a closed form is used. ``scale``
    bounds the interval. ``step`` is the distance between neighboring values of the scale. The variance of a value is assumed
    to be at least that of rounding to this step, step² / 12 (W. F. Sheppard, 1898), so that unanimous values also have a
    p-value and an interval. The degrees of freedom are then limited to those of listeners and items or, if there are five or
    fewer of either, to the smaller number. Raises ArgumentError for fewer than two listeners or items, and for equal values
    if ``step`` is 0.
    """
    array = numbers(values, "values", 2)
    codes = [codes_of(np.asarray(list(map(str, labels)), object)) for labels in (listeners, items)]
    for name, code in zip(("listeners", "items"), codes, strict=True):
        if code.size != array.size:
            raise ArgumentError.of(name, f"must be {array.size}, one per value, got {code.size}")
        if count_of(code) < 2:
            raise ArgumentError.of(name, f"must include at least two {name}, got 1")
    if not (step or varies(array)):
        raise ArgumentError.of("values", f"must vary unless step is above 0, got only {array[0]:g}")
    listener, item = codes
    shape = count_of(listener), count_of(item)
    if array.size == shape[0] * shape[1] and np.unique(listener * shape[1] + item).size == array.size:
        table = np.empty(shape)
        table[listener, item] = array
        mean, se, dof, sds = complete_tables(table, step)
        fitted = float(mean), float(se), float(dof), (float(sds[0]), float(sds[1]), float(sds[2]))
    else:
        fitted = _mean_with_gaps(array, (listener, item), step)
    value, error, df, sd = fitted
    if not error > 0.0:
        raise ArgumentError.of("values", "must have residual variance unless step is above 0")
    point = Estimate(value, value, value, confidence, shape[0])
    name = f"crossed random effects of {shape[0]} listeners and {shape[1]} items, {alternative}"
    test = CrossedTest(name, (value - null) / error, 0.0, point, error, df, sd, scale, shape[1])
    above = test.p_above(null)
    p = above if alternative == "greater" else 2.0 * min(above, test.p_below(null))
    return replace(test, p=p, estimate=test.interval(confidence))


def crossed_share(
    chosen: npt.ArrayLike,
    listeners: Labels,
    items: Labels,
    *,
    alternative: Literal["two-sided", "greater"] = "two-sided",
    confidence: float = 0.95,
) -> CrossedTest:
    """Test whether the share of ones among choices (n,) differs from 0.5, with random effects of listeners and items.

    A choice is 0 or 1, or the mean of repeated choices of a listener in an item. Applies ``crossed_mean`` to the choices
    with a step of 1. The p-value falls as the share over all listeners and items moves away from 0.5, up to unanimity,
    where a logit would be infinite. Raises the errors of ``crossed_mean``.
    """
    if not ((np.asarray(chosen) >= 0.0) & (np.asarray(chosen) <= 1.0)).all():
        raise ArgumentError.of("chosen", "must be from 0 to 1")
    options: dict[str, Any] = {"null": 0.5, "scale": (0.0, 1.0), "step": 1.0}
    return crossed_mean(chosen, listeners, items, alternative=alternative, confidence=confidence, **options)


def _at_least_rounding(variance: Any, df: Any, step: float, shape: tuple[int, ...]) -> tuple[Any, Any]:
    """Limit a variance from below to that of rounding, and the df from above to those of listeners and items.

    With five or fewer listeners or items, the df are limited to the smaller number: they would be too many if the estimated
    variance of listeners or items is 0.
    """
    fewest, rounding = min(shape), step**2 / 12.0
    bound = fewest if fewest <= _SMALL_SAMPLE else sum(shape) - 2.0
    return np.maximum(variance, rounding), np.where(variance > rounding, np.minimum(df, bound), bound)


_Fitted = tuple[float, float, float, tuple[float, float, float]]


def complete_tables(tables: Floats, step: float = 0.0) -> tuple[Floats, Floats, Floats, tuple[Floats, Floats, Floats]]:
    """Compute the means of tables (…, listeners, items), with standard errors, degrees of freedom and SDs.

    For a complete table, REML and Satterthwaite's formula have a closed form: an ANOVA in which a negative variance
    component is set to 0 and its mean square is pooled with the residual mean square. See ``crossed_mean`` for
    ``step``.
    """
    listeners, items = tables.shape[-2:]
    dfs = np.array([listeners - 1, items - 1, (listeners - 1) * (items - 1)], np.float64)
    mean = tables.mean(axis=(-2, -1))
    rows = tables.mean(axis=-1) - mean[..., None]
    columns = tables.mean(axis=-2) - mean[..., None]
    residuals = tables - mean[..., None, None] - rows[..., None] - columns[..., None, :]
    sums = [items * np.square(rows).sum(-1), listeners * np.square(columns).sum(-1), np.square(residuals).sum((-2, -1))]
    ms_listener, ms_item, ms_residual = (total / count for total, count in zip(sums, dfs, strict=True))
    pooled = [(sums[0] + sums[2]) / (dfs[0] + dfs[2]), (sums[1] + sums[2]) / (dfs[1] + dfs[2])]
    # The positive components may be none, listener, item, or both. Equal mean squares, as with a single deviating
    # choice, differ only by rounding errors.
    bound = 1.0 + AT_BOUND
    both = (ms_listener > bound * ms_residual) & (ms_item > bound * ms_residual)
    item_only = ~both & (ms_item > bound * pooled[0]) & (ms_listener <= bound * ms_residual)
    listener_only = ~both & (ms_listener > bound * pooled[1]) & (ms_item <= bound * ms_residual)
    cases = [both, item_only, listener_only]
    noise = np.select(cases, [ms_residual, pooled[0], pooled[1]], sum(sums) / dfs.sum())
    variance = np.select(cases, [ms_listener + ms_item - ms_residual, ms_item, ms_listener], noise)
    with np.errstate(divide="ignore", invalid="ignore"):
        mixed = variance**2 / (ms_listener**2 / dfs[0] + ms_item**2 / dfs[1] + ms_residual**2 / dfs[2])
    df = np.select(cases, [mixed, dfs[1] + 0 * mean, dfs[0] + 0 * mean], dfs.sum())
    if step:
        variance, df = _at_least_rounding(variance, df, step, tables.shape[-2:])
    sd = (
        np.sqrt(np.where(both | listener_only, (ms_listener - noise) / items, 0.0)),
        np.sqrt(np.where(both | item_only, (ms_item - noise) / listeners, 0.0)),
        np.sqrt(noise),
    )
    return mean, np.sqrt(variance / (listeners * items)), df, sd


def _mean_with_gaps(values: Floats, groups: tuple[Codes, Codes], step: float) -> _Fitted:
    # A group that has one value per level is confounded with the residual.
    crossed = [code for code in groups if count_of(code) < values.size]
    middle, count, shape = float(values.mean()), values.size, tuple(map(count_of, groups))
    try:
        if not varies(values):
            raise ArgumentError.of("values", "must differ")
        likelihood = RestrictedLikelihood(list(map(indicators, crossed)), np.ones((count, 1)), values - middle)
    except ArgumentError:
        # There is no residual variance, so the means of a group's levels vary only by the effect of the group.
        means = [np.bincount(code, values) / np.bincount(code) for code in groups]
        variances = np.array([np.var(group, ddof=1) if varies(group) else 0.0 for group in means])
        parts, dfs = variances / shape, np.subtract(shape, 1.0)
        variance, df = float(parts.sum()), float(np.square(parts.sum()) / max(np.square(parts) @ (1.0 / dfs), 1e-300))
        mean, sds = middle, (math.sqrt(variances[0]), math.sqrt(variances[1]), 0.0)
    else:
        ratios, _ = likelihood.maximum()
        fit = likelihood.at(ratios)
        roots = dict(zip(map(id, crossed), np.sqrt(ratios * fit.residual), strict=True))
        sds = (*(float(roots.get(id(code), 0.0)) for code in groups), math.sqrt(fit.residual))  # type: ignore[assignment]
        mean, variance, df = (
            float(fit.mean[0]) + middle,
            float(fit.covariance[0, 0]),
            likelihood.degrees(ratios)(np.ones(1)),
        )
    if step:
        bounded, df = _at_least_rounding(variance * count, df, step, shape)
        variance = float(bounded) / count
    return mean, math.sqrt(variance), float(df), sds
