"""Tests of means and proportions with crossed random effects of listeners and items."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt

from voicelab.errors import ArgumentError
from voicelab.stats.estimate import Estimate, Test, between, numbers, varies
from voicelab.stats.reml import (
    AT_BOUND,
    Codes,
    Floats,
    RestrictedLikelihood,
    codes_of,
    count_of,
    indicators,
    pseudo_likelihood,
)

Labels = Sequence[object] | npt.NDArray[Any]

# Scale at which the logistic distribution function approximates the normal one best.
LOGISTIC = 16.0 * math.sqrt(3.0) / (15.0 * math.pi)


class ComparedPairs(Protocol):
    """Tests of pairs of systems, as in a listening test."""

    @property
    def kind(self) -> str:
        """AB, ABX, MOS, CMOS or MUSHRA."""

    @property
    def tests(self) -> Mapping[tuple[str, str], Test]:
        """Tests of all pairs."""

    @property
    def crossed(self) -> Mapping[tuple[str, str], CrossedTest]:
        """Tests with crossed random effects, of the pairs that allow them."""

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes on pairs without a crossed test."""


@dataclass(frozen=True, slots=True)
class CrossedTest(Test):
    """A ``Test`` with crossed random effects, for hypotheses and intervals at other levels.

    Student's t of the estimate with standard ``error`` and ``df`` degrees of freedom. ``sd`` are the SDs of listeners, items
    and residuals, for choices in logits; ``scale`` bounds the interval.
    """

    error: float
    df: float
    sd: tuple[float, float, float]
    scale: tuple[float, float] = (-math.inf, math.inf)

    def __str__(self) -> str:
        return f"{self.name}: t({self.df:.3g}) {self.statistic:.4g}, p {self.p:.4g}; {self.estimate}"

    @property
    def null(self) -> float:
        """Value under the null hypothesis: 0.5 for a share, 0 for a difference."""
        return 0.5 if self.scale == (0.0, 1.0) else 0.0

    def turned(self) -> CrossedTest:
        """Return the test with the systems swapped."""
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
        """Return the one-sided p of the null hypothesis that the true value is at most ``bound``."""
        from scipy.stats import t

        return float(t.sf((self.estimate.value - bound) / self.error, self.df))

    def p_below(self, bound: float) -> float:
        """Return the one-sided p of the null hypothesis that the true value is at least ``bound``."""
        return self.turned().p_above(2.0 * self.null - bound)


@dataclass(frozen=True, slots=True)
class SignTest(CrossedTest):
    """A ``CrossedTest`` by exact sign tests, for responses without residual variance, which fit no model.

    ``units`` are the mean responses by listener and by item. Each unit has a sign, and p is the larger of both groups; in
    ABX it is the binomial p of single responses, since guesses are correct with probability 0.5 in every trial. ``error``,
    ``df``, ``sd`` and ``statistic`` are NaN. Signs have a direction only: p of a bound beyond ``null`` is 1.
    """

    units: tuple[tuple[float, ...], ...] = field(default=(), repr=False)

    def __str__(self) -> str:
        return f"{self.name}: p {self.p:.4g}; {self.estimate}"

    def turned(self) -> CrossedTest:
        """Return the test with the systems swapped."""
        units = tuple(tuple(2.0 * self.null - mean for mean in means) for means in self.units)
        return replace(CrossedTest.turned(self), units=units)  # type: ignore[call-arg]

    def interval(self, confidence: float) -> Estimate:
        """Return the estimate with its interval at another confidence.

        For shares Clopper and Pearson's, with the smaller group as trials; for equal differences their bound on the share
        of units with the opposite difference (of one step where it is 0); else the wider t interval of the units' means.
        """
        from scipy.stats import beta, t

        value, n = self.estimate.value, self.estimate.n
        tail = (1.0 - between(confidence, "confidence", 0.0, 1.0)) / 2.0
        if self.null:
            low = float(beta.ppf(tail, value * n, n - value * n + 1.0)) if value > 0.0 else 0.0
            high = float(beta.isf(tail, value * n + 1.0, n - value * n)) if value < 1.0 else 1.0
            return Estimate(value, low, high, confidence, n)
        half_width = (1.0 - tail ** (1.0 / n)) * max(2.0 * abs(value), 1.0)
        varying = [means for means in self.units if varies(means)]
        if varying:
            half_width = max(t.isf(tail, len(u) - 1) * np.std(u, ddof=1) / math.sqrt(len(u)) for u in varying)
        low, high = max(self.scale[0], value - half_width), min(self.scale[1], value + half_width)
        return Estimate(value, float(low), float(high), confidence, n)

    def p_above(self, bound: float) -> float:
        """Return the one-sided p of the null hypothesis that the true value is at most ``bound``."""
        from scipy.stats import binom

        if math.isinf(bound) or bound > self.null:
            return float(bound > 0.0)
        signs = [np.sign(np.round(np.subtract(means, self.null), 12)) for means in self.units]
        return max(float(binom.sf((unit > 0.0).sum() - 1, np.count_nonzero(unit), 0.5)) for unit in signs)


def crossed_mean(
    values: npt.ArrayLike,
    listeners: Labels,
    items: Labels,
    *,
    null: float = 0.0,
    scale: tuple[float, float] = (-math.inf, math.inf),
    confidence: float = 0.95,
) -> CrossedTest:
    """Test whether a mean differs from ``null``, with listeners and items random.

    ``values`` (n,) are ratings or rating differences, each of one of the ``listeners`` on one of the ``items``: a mean with
    crossed random effects by REML, with Satterthwaite's degrees of freedom; in closed form for complete tables. ``scale``
    bounds the interval. Raises ArgumentError with fewer than two listeners or items, and without residual variance, where
    ``sign_test`` applies.
    """
    array, (listener, item) = _checked(values, listeners, items)
    shape = count_of(listener), count_of(item)
    if array.size == shape[0] * shape[1] and np.unique(listener * shape[1] + item).size == array.size:
        table = np.empty(shape)
        table[listener, item] = array
        value, error, df, sd = complete_tables(table)
        fitted = float(value), float(error), float(df), (float(sd[0]), float(sd[1]), float(sd[2]))
    else:
        fitted = _mean_with_gaps(array, (listener, item))
    return _test_of(fitted, shape, null, scale, confidence)


def crossed_share(
    chosen: npt.ArrayLike,
    listeners: Labels,
    items: Labels,
    *,
    alternative: Literal["two-sided", "greater"] = "two-sided",
    confidence: float = 0.95,
) -> CrossedTest:
    """Test whether the share of choices (n,), 0 or 1, differs from 0.5, with listeners and items random.

    A logistic model with crossed random effects of listeners and items, by restricted pseudo-likelihood (the default of SAS
    GLIMMIX). The estimate is the population-averaged share (S. L. Zeger, K.-Y. Liang & P. S. Albert, "Models for
    longitudinal data", Biometrics 44, 1988); its t has the delta-method error of the share with Satterthwaite's degrees of
    freedom, since Wald's t of the logit is conservative. Where logits diverge, as when each listener's choices are all equal,
    ``crossed_mean`` of the choices is used. Raises ArgumentError as it does.
    """
    array, codes = _checked(chosen, listeners, items)
    if not np.isin(array, (0.0, 1.0)).all():
        raise ArgumentError.of("chosen", "must be 0 or 1")
    shape, scale = (count_of(codes[0]), count_of(codes[1])), (0.0, 1.0)
    fitted, name = _logistic(array, codes), "logistic, "
    if fitted is None:
        plain = crossed_mean(chosen, listeners, items, null=0.5, confidence=confidence)
        fitted, name = (plain.estimate.value, plain.error, plain.df, plain.sd), ""
    return _test_of(fitted, shape, 0.5, scale, confidence, name, alternative)


def sign_test(
    values: npt.ArrayLike,
    listeners: Labels,
    items: Labels,
    *,
    scale: tuple[float, float] = (-math.inf, math.inf),
    alternative: Literal["two-sided", "greater"] = "two-sided",
    confidence: float = 0.95,
) -> SignTest:
    """Test responses without residual variance by exact sign tests over listeners and over items; p is the larger.

    ``values`` (n,) as for ``crossed_mean``, or with a ``scale`` of (0, 1) choices as for ``crossed_share``, such as unanimous
    ones. Both groups are random, so few listeners or items cannot give a small p: six unanimous ones of each give 0.031.
    With the alternative "greater", for correct responses in ABX, p is the exact binomial p of all responses. Raises
    ArgumentError with fewer than two listeners or items.
    """
    array, codes = _coded(values, listeners, items)
    shape = count_of(codes[0]), count_of(codes[1])
    units = tuple(tuple(np.bincount(code, array) / np.bincount(code)) for code in codes)
    name = f"exact sign tests of {shape[0]} listeners and of {shape[1]} items, the larger p"
    if alternative == "greater":
        units, name = (tuple(array),), f"exact binomial test of {array.size} responses"
    value, nan = float(array.mean()), math.nan
    point = Estimate(value, value, value, confidence, min(shape))
    test = SignTest(name, nan, nan, point, nan, nan, (nan,) * 3, scale, units)
    above, below = test.p_above(test.null), test.p_below(test.null)
    p = above if alternative == "greater" else min(1.0, 2.0 * min(above, below))
    return replace(test, p=p, estimate=test.interval(confidence))


_Fitted = tuple[float, float, float, tuple[float, float, float]]


def _test_of(
    fitted: _Fitted,
    shape: tuple[int, int],
    null: float,
    scale: tuple[float, float],
    confidence: float,
    name: str = "",
    alternative: str = "two-sided",
) -> CrossedTest:
    """Test a fitted value, given with its error, degrees of freedom and SDs."""
    value, error, df, sd = fitted
    name += f"crossed random effects of {shape[0]} listeners and {shape[1]} items"
    point = Estimate(value, value, value, confidence, shape[0])
    test = CrossedTest(name, (value - null) / error, 0.0, point, error, df, sd, scale)
    above = test.p_above(null)
    p = above if alternative == "greater" else 2.0 * min(above, 1.0 - above)
    return replace(test, p=p, estimate=test.interval(confidence))


def _checked(values: npt.ArrayLike, listeners: Labels, items: Labels) -> tuple[Floats, tuple[Codes, Codes]]:
    array, codes = _coded(values, listeners, items)
    if not varies(numbers(array, "values", 3)):
        raise ArgumentError.of("values", "must not all be equal, since the t test needs variance; use sign_test")
    return array, codes


def _coded(values: npt.ArrayLike, listeners: Labels, items: Labels) -> tuple[Floats, tuple[Codes, Codes]]:
    array = numbers(values, "values", 2)
    codes = (
        codes_of(np.asarray(list(map(str, listeners)), object)),
        codes_of(np.asarray(list(map(str, items)), object)),
    )
    for name, code in zip(("listeners", "items"), codes, strict=True):
        if code.size != array.size:
            raise ArgumentError.of(name, f"must be {array.size}, one per value, got {code.size}")
        if count_of(code) < 2:
            raise ArgumentError.of(name, "must be two or more, got one")
    return array, codes


def complete_tables(tables: Floats) -> tuple[Floats, Floats, Floats, tuple[Floats, Floats, Floats]]:
    """Compute the mean of tables (…, listeners, items), its error and degrees of freedom, and SDs.

    The closed form of REML and Satterthwaite's formula in a complete table: ANOVA in which a negative variance component is
    set to 0 and its mean square pooled with the residual one.
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
    # Positive components: none, listener, item, or both. Equal mean squares, as of a single deviating choice, differ by
    # rounding only.
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
    sd = (
        np.sqrt(np.where(both | listener_only, (ms_listener - noise) / items, 0.0)),
        np.sqrt(np.where(both | item_only, (ms_item - noise) / listeners, 0.0)),
        np.sqrt(noise),
    )
    return mean, np.sqrt(variance / (listeners * items)), df, sd


def _mean_with_gaps(values: Floats, groups: tuple[Codes, Codes]) -> _Fitted:
    # A group with one value per level is confounded with the residual.
    crossed = [code for code in groups if count_of(code) < values.size]
    middle = float(values.mean())
    likelihood = RestrictedLikelihood(list(map(indicators, crossed)), np.ones((values.size, 1)), values - middle)
    ratios, _ = likelihood.maximum()
    fit = likelihood.at(ratios)
    sd = _sd(groups, crossed, np.sqrt(ratios * fit.residual))
    error, df = math.sqrt(float(fit.covariance[0, 0])), likelihood.degrees(ratios)(np.ones(1))
    return float(fit.mean[0]) + middle, error, df, (*sd, math.sqrt(fit.residual))


def _sd(groups: Sequence[Codes], crossed: list[Codes], roots: Floats) -> tuple[float, float]:
    """Return the SDs of the groups, 0 for a group that is not crossed."""
    fitted = dict(zip(map(id, crossed), roots, strict=True))
    return float(fitted.get(id(groups[0]), 0.0)), float(fitted.get(id(groups[1]), 0.0))


def _logistic(chosen: Floats, codes: tuple[Codes, Codes]) -> _Fitted | None:
    """Fit the share by a logistic model; None where logits diverge."""
    crossed = [code for code in codes if count_of(code) < chosen.size]
    converged = pseudo_likelihood(list(map(indicators, crossed)), np.ones((chosen.size, 1)), chosen)
    if converged is None:
        return None
    likelihood, ratios = converged
    fit = likelihood.at(ratios)
    shrink = 1.0 / math.sqrt(1.0 + LOGISTIC**2 * float(ratios.sum()))
    share = 1.0 / (1.0 + math.exp(-shrink * float(fit.mean[0])))
    error = share * (1.0 - share) * shrink * math.sqrt(float(fit.covariance[0, 0]))
    sd = _sd(codes, crossed, np.sqrt(ratios))
    return share, error, likelihood.degrees(ratios)(np.ones(1)), (*sd, math.pi / math.sqrt(3.0))
