"""One number of each listener on each sentence: means and shares that hold for other listeners and other sentences."""

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

# What brings the logistic distribution nearest to the normal one.
LOGISTIC = 16.0 * math.sqrt(3.0) / (15.0 * math.pi)


class ComparedPairs(Protocol):
    """What pairs of systems come to, as in a listening test: tests by pair, crossed ones where they can be made."""

    @property
    def kind(self) -> str:
        """AB, ABX, MOS, CMOS or MUSHRA."""

    @property
    def tests(self) -> Mapping[tuple[str, str], Test]:
        """Of all pairs."""

    @property
    def crossed(self) -> Mapping[tuple[str, str], CrossedTest]:
        """Of those that can be generalised."""

    @property
    def notes(self) -> tuple[str, ...]:
        """Why the others cannot."""


@dataclass(frozen=True, slots=True)
class CrossedTest(Test):
    """A ``Test`` by crossed random effects, of which other hypotheses can be tested and other intervals made.

    Student's t of the estimate with its standard ``error`` and ``df`` degrees of freedom. ``sd`` are the standard
    deviations of listeners, of items, and of the rest, of choices on the scale of logits; ``scale`` is what no interval can
    leave.
    """

    error: float
    df: float
    sd: tuple[float, float, float]
    scale: tuple[float, float] = (-math.inf, math.inf)

    def __str__(self) -> str:
        return f"{self.name}: t({self.df:.3g}) {self.statistic:.4g}, p {self.p:.4g}; {self.estimate}"

    @property
    def null(self) -> float:
        """The value without an effect: one half of a share, 0 of a difference."""
        return 0.5 if self.scale == (0.0, 1.0) else 0.0

    def turned(self) -> CrossedTest:
        """Return the same of the second over the first: of a share, that of the other choice."""
        old = self.estimate
        value, low, high = (2.0 * self.null - end for end in (old.value, old.high, old.low))
        estimate = Estimate(value, low, high, old.confidence, old.n)
        return replace(self, statistic=-self.statistic, estimate=estimate)

    def interval(self, confidence: float) -> Estimate:
        """Return the estimate with its interval at another confidence."""
        from scipy.stats import t

        value = self.estimate.value
        reach = float(t.ppf((1.0 + between(confidence, "confidence", 0.0, 1.0)) / 2.0, self.df)) * self.error
        low, high = max(self.scale[0], value - reach), min(self.scale[1], value + reach)
        return Estimate(value, low, high, confidence, self.estimate.n)

    def p_above(self, bound: float) -> float:
        """Return p of the hypothesis that the true value is ``bound`` or less, against its being above."""
        from scipy.stats import t

        return float(t.sf((self.estimate.value - bound) / self.error, self.df))

    def p_below(self, bound: float) -> float:
        """Return p of the hypothesis that the true value is ``bound`` or more, against its being below."""
        return self.turned().p_above(2.0 * self.null - bound)


@dataclass(frozen=True, slots=True)
class SignTest(CrossedTest):
    """A ``CrossedTest`` by exact sign tests, for answers without residual variance, to which no model can be fitted.

    ``units`` are the mean answers by listener and by item. Each unit counts as one sign, and p is that of the group with
    the larger one; in ABX that of single answers, since a guesser is right with probability 0.5 in every trial. ``error``,
    ``df``, ``sd`` and ``statistic`` are NaN. Signs only tell a direction: p of a bound beyond ``null`` is 1.
    """

    units: tuple[tuple[float, ...], ...] = field(default=(), repr=False)

    def __str__(self) -> str:
        return f"{self.name}: p {self.p:.4g}; {self.estimate}"

    def turned(self) -> CrossedTest:
        """Return the same of the second over the first."""
        units = tuple(tuple(2.0 * self.null - mean for mean in means) for means in self.units)
        return replace(CrossedTest.turned(self), units=units)  # type: ignore[call-arg]

    def interval(self, confidence: float) -> Estimate:
        """Return the estimate with its interval at another confidence.

        Of shares Clopper and Pearson's, with the fewer units for trials; of equal differences their bound on the share of
        units that differ by as much the other way (by one step where the difference is 0); else the wider t interval of
        the units' means.
        """
        from scipy.stats import beta, t

        value, n = self.estimate.value, self.estimate.n
        tail = (1.0 - between(confidence, "confidence", 0.0, 1.0)) / 2.0
        if self.null:
            low = float(beta.ppf(tail, value * n, n - value * n + 1.0)) if value > 0.0 else 0.0
            high = float(beta.isf(tail, value * n + 1.0, n - value * n)) if value < 1.0 else 1.0
            return Estimate(value, low, high, confidence, n)
        reach = (1.0 - tail ** (1.0 / n)) * max(2.0 * abs(value), 1.0)
        spread = [means for means in self.units if varies(means)]
        if spread:
            reach = max(t.isf(tail, len(own) - 1) * np.std(own, ddof=1) / math.sqrt(len(own)) for own in spread)
        low, high = max(self.scale[0], value - reach), min(self.scale[1], value + reach)
        return Estimate(value, float(low), float(high), confidence, n)

    def p_above(self, bound: float) -> float:
        """Return p of the hypothesis that the true value is ``bound`` or less, against its being above."""
        from scipy.stats import binom

        if math.isinf(bound) or bound > self.null:
            return float(bound > 0.0)
        signs = [np.sign(np.round(np.subtract(means, self.null), 12)) for means in self.units]
        return max(float(binom.sf((own > 0.0).sum() - 1, np.count_nonzero(own), 0.5)) for own in signs)


def crossed_mean(
    values: npt.ArrayLike,
    listeners: Labels,
    items: Labels,
    *,
    null: float = 0.0,
    scale: tuple[float, float] = (-math.inf, math.inf),
    confidence: float = 0.95,
) -> CrossedTest:
    """Test whether a mean differs from ``null`` in listeners and sentences like these, which are samples of both.

    ``values`` (n,) are ratings, or differences between two systems' ratings, each of one of the ``listeners`` on one of
    the ``items``: a mean with crossed random effects, by REML, its t and interval with Satterthwaite's degrees of freedom.
    Where every listener has one value of every item that is in closed form. ``scale`` is what the interval cannot leave.
    Raises ArgumentError with fewer than two listeners or items, and when all values are equal, or, in a table with gaps,
    listeners and items explain them without residual variance: ``sign_test`` takes these.
    """
    array, (who, what) = _checked(values, listeners, items)
    shape = count_of(who), count_of(what)
    if array.size == shape[0] * shape[1] and np.unique(who * shape[1] + what).size == array.size:
        table = np.empty(shape)
        table[who, what] = array
        value, error, df, parts = complete_tables(table)
        fitted = float(value), float(error), float(df), (float(parts[0]), float(parts[1]), float(parts[2]))
    else:
        fitted = _mean_with_gaps(array, (who, what))
    return _tested(fitted, shape, null, scale, confidence)


def crossed_share(
    chosen: npt.ArrayLike,
    listeners: Labels,
    items: Labels,
    *,
    alternative: Literal["two-sided", "greater"] = "two-sided",
    confidence: float = 0.95,
) -> CrossedTest:
    """Test whether choices (n,), 0 or 1, are of one in half of all trials, in listeners and sentences like these.

    A logistic model with crossed random effects of listeners and items, by restricted pseudo-likelihood (as SAS' GLIMMIX by
    default). The estimate is the share in all listeners and items (S. L. Zeger, K.-Y. Liang & P. S. Albert, "Models for
    longitudinal data", Biometrics 44, 1988), and its t has the error of that share, by the delta method, with
    Satterthwaite's degrees of freedom: Wald's t of the logit itself is too cautious. Where the logits have no end, such as
    when each listener always answers alike, it is ``crossed_mean`` of the choices. Raises ArgumentError as that does.
    """
    array, codes = _checked(chosen, listeners, items)
    if not np.isin(array, (0.0, 1.0)).all():
        raise ArgumentError.of("chosen", "Input should be 0 or 1")
    shape, scale = (count_of(codes[0]), count_of(codes[1])), (0.0, 1.0)
    fitted, name = _logistic(array, codes), "logistic, "
    if fitted is None:
        plain = crossed_mean(chosen, listeners, items, null=0.5, confidence=confidence)
        fitted, name = (plain.estimate.value, plain.error, plain.df, plain.sd), ""
    return _tested(fitted, shape, 0.5, scale, confidence, name, alternative)


def sign_test(
    values: npt.ArrayLike,
    listeners: Labels,
    items: Labels,
    *,
    scale: tuple[float, float] = (-math.inf, math.inf),
    alternative: Literal["two-sided", "greater"] = "two-sided",
    confidence: float = 0.95,
) -> SignTest:
    """Test answers without residual variance by exact sign tests over listeners and over items; the larger p counts.

    ``values`` (n,) as ``crossed_mean``'s, or, with a ``scale`` of (0, 1), choices as ``crossed_share``'s: unanimous ones,
    for example. Both groups are random, so that neither few listeners nor few items can give a small p: six unanimous ones
    of both give 0.031. With the alternative "greater", as of right answers in ABX, p is the exact binomial of all
    answers. Raises ArgumentError with fewer than two listeners or items.
    """
    array, codes = _coded(values, listeners, items)
    shape = count_of(codes[0]), count_of(codes[1])
    units = tuple(tuple(np.bincount(code, array) / np.bincount(code)) for code in codes)
    name = f"exact sign tests of {shape[0]} listeners and of {shape[1]} items, the larger p"
    if alternative == "greater":
        units, name = (tuple(array),), f"exact binomial test of {array.size} answers"
    value, unknown = float(array.mean()), math.nan
    point = Estimate(value, value, value, confidence, min(shape))
    test = SignTest(name, unknown, unknown, point, unknown, unknown, (unknown,) * 3, scale, units)
    above, below = test.p_above(test.null), test.p_below(test.null)
    p = above if alternative == "greater" else min(1.0, 2.0 * min(above, below))
    return replace(test, p=p, estimate=test.interval(confidence))


_Fitted = tuple[float, float, float, tuple[float, float, float]]


def _tested(
    fitted: _Fitted,
    shape: tuple[int, int],
    null: float,
    scale: tuple[float, float],
    confidence: float,
    name: str = "",
    alternative: str = "two-sided",
) -> CrossedTest:
    """Return the test of a value, its error, degrees of freedom and standard deviations."""
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
        raise ArgumentError.of("values", "all are equal: there is no variance to test by; sign_test needs none")
    return array, codes


def _coded(values: npt.ArrayLike, listeners: Labels, items: Labels) -> tuple[Floats, tuple[Codes, Codes]]:
    array = numbers(values, "values", 2)
    who, what = (codes_of(np.asarray(list(map(str, names)), object)) for names in (listeners, items))
    for name, code in (("listeners", who), ("items", what)):
        if code.size != array.size:
            raise ArgumentError.of(name, f"there are {code.size} for {array.size} values")
        if count_of(code) < 2:
            raise ArgumentError.of(name, "one is no sample; two or more are needed")
    return array, (who, what)


def complete_tables(tables: Floats) -> tuple[Floats, Floats, Floats, tuple[Floats, Floats, Floats]]:
    """Return the mean of tables (…, listeners, items), its standard error, degrees of freedom, and three variances' roots.

    What REML and Satterthwaite's formula give in a complete table, in closed form: the analysis of variance, in which a
    listener's or an item's variance that would be below 0 is 0, and its mean square joins the rest.
    """
    listeners, items = tables.shape[-2:]
    free = np.array([listeners - 1, items - 1, (listeners - 1) * (items - 1)], np.float64)
    mean = tables.mean(axis=(-2, -1))
    rows = tables.mean(axis=-1) - mean[..., None]
    columns = tables.mean(axis=-2) - mean[..., None]
    rest = tables - mean[..., None, None] - rows[..., None] - columns[..., None, :]
    sums = [items * np.square(rows).sum(-1), listeners * np.square(columns).sum(-1), np.square(rest).sum((-2, -1))]
    one, two, residual = (total / count for total, count in zip(sums, free, strict=True))
    joined = [(sums[0] + sums[2]) / (free[0] + free[2]), (sums[1] + sums[2]) / (free[1] + free[2])]
    # Which variances are above 0: none, listeners, items, both.
    # Equal mean squares, such as of one choice unlike all others, differ by rounding alone.
    bound = 1.0 + AT_BOUND
    both = (one > bound * residual) & (two > bound * residual)
    only_two = ~both & (two > bound * joined[0]) & (one <= bound * residual)
    only_one = ~both & (one > bound * joined[1]) & (two <= bound * residual)
    noise = np.select([both, only_two, only_one], [residual, joined[0], joined[1]], sum(sums) / free.sum())
    variance = np.select([both, only_two, only_one], [one + two - residual, two, one], noise)
    with np.errstate(divide="ignore", invalid="ignore"):
        mixed = variance**2 / (one**2 / free[0] + two**2 / free[1] + residual**2 / free[2])
    df = np.select([both, only_two, only_one], [mixed, free[1] + 0 * mean, free[0] + 0 * mean], free.sum())
    roots = (
        np.sqrt(np.where(both | only_one, (one - noise) / items, 0.0)),
        np.sqrt(np.where(both | only_two, (two - noise) / listeners, 0.0)),
        np.sqrt(noise),
    )
    return mean, np.sqrt(variance / (listeners * items)), df, roots


def _mean_with_gaps(values: Floats, groups: tuple[Codes, Codes]) -> _Fitted:
    # Those who gave one value each cannot be separated from the rest of chance.
    crossed = [code for code in groups if count_of(code) < values.size]
    middle = float(values.mean())
    likelihood = RestrictedLikelihood(list(map(indicators, crossed)), np.ones((values.size, 1)), values - middle)
    ratios, _ = likelihood.maximum()
    fit = likelihood.at(ratios)
    sd = _sd(groups, crossed, np.sqrt(ratios * fit.residual))
    error, df = math.sqrt(float(fit.covariance[0, 0])), likelihood.degrees(ratios)(np.ones(1))
    return float(fit.mean[0]) + middle, error, df, (*sd, math.sqrt(fit.residual))


def _sd(groups: Sequence[Codes], crossed: list[Codes], roots: Floats) -> tuple[float, float]:
    """Return the standard deviations of both groups, 0 of one that is not among the crossed ones."""
    fitted = dict(zip(map(id, crossed), roots, strict=True))
    return float(fitted.get(id(groups[0]), 0.0)), float(fitted.get(id(groups[1]), 0.0))


def _logistic(chosen: Floats, codes: tuple[Codes, Codes]) -> _Fitted | None:
    """Return the share of a logistic model, None where its logits have no end."""
    crossed = [code for code in codes if count_of(code) < chosen.size]
    settled = pseudo_likelihood(list(map(indicators, crossed)), np.ones((chosen.size, 1)), chosen)
    if settled is None:
        return None
    likelihood, ratios = settled
    fit = likelihood.at(ratios)
    shrink = 1.0 / math.sqrt(1.0 + LOGISTIC**2 * float(ratios.sum()))
    share = 1.0 / (1.0 + math.exp(-shrink * float(fit.mean[0])))
    error = share * (1.0 - share) * shrink * math.sqrt(float(fit.covariance[0, 0]))
    sd = _sd(codes, crossed, np.sqrt(ratios))
    return share, error, likelihood.degrees(ratios)(np.ones(1)), (*sd, math.pi / math.sqrt(3.0))
