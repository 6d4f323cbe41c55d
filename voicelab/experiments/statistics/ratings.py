"""Ratings: mean opinion scores, paired and many-sided comparisons, and MUSHRA's post-screening."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from voicelab.errors import RequestInvalid
from voicelab.experiments.statistics.multiple import holm
from voicelab.experiments.statistics.result import Estimate, Test, between, numbers, whole

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Friedman", "Screening", "friedman", "mean_opinion_score", "screen_mushra", "wilcoxon"]

_Floats = npt.NDArray[np.float64]
_EXACT_PAIRS = 50


def mean_opinion_score(
    votes: Sequence[float] | npt.ArrayLike,
    *,
    listeners: Sequence[object] | None = None,
    interval: Literal["t", "bootstrap"] = "t",
    confidence: float = 0.95,
    scale: tuple[float, float] = (1.0, 5.0),
    resamples: int = 9999,
    seed: int = 0,
) -> Estimate:
    """Return the mean of the votes with its confidence interval, as ITU-T P.800.2 (2016) asks scores to be reported.

    Args:
        votes: (n,), within ``scale``: (1, 5) for ACR (ITU-T P.800), (-3, 3) for CMOS, (0, 100) for MUSHRA.
        listeners: who gave each vote. Votes of one listener are not independent: with it the interval is that of the
            listeners' means, and n their number. Without it every vote counts as a listener's only one.
        interval: "t", Student's; or "bootstrap", bias-corrected and accelerated (B. Efron, JASA 82, 1987, by scipy).
        confidence: of the interval.
        scale: least and greatest vote that can be.
        resamples: of the bootstrap.
        seed: of the bootstrap.

    Raises RequestInvalid for fewer than two votes (or listeners) or votes outside the scale.
    """
    from scipy import stats

    values = numbers(votes, "votes", 2)
    if ((values < scale[0]) | (values > scale[1])).any():
        raise RequestInvalid.of("votes", f"there are votes outside {scale[0]:g} to {scale[1]:g}")
    between(confidence, "confidence", 0.0, 1.0)
    mean = float(values.mean())
    if listeners is not None:
        values, mean = _by_listener(values, listeners)
    if interval not in ("t", "bootstrap"):
        raise RequestInvalid.of("interval", f"{interval!r} is not 't' or 'bootstrap'")
    spread = float(values.std(ddof=1))
    if spread == 0.0:
        return Estimate(mean, mean, mean, confidence, values.size)
    if interval == "t":
        reach = float(stats.t.ppf((1.0 + confidence) / 2.0, values.size - 1)) * spread / math.sqrt(values.size)
        return Estimate(mean, mean - reach, mean + reach, confidence, values.size)
    draws = {"n_resamples": whole(resamples, "resamples", 99), "rng": np.random.default_rng(seed)}
    limits = stats.bootstrap((values,), np.mean, confidence_level=confidence, method="BCa", **draws)
    low, high = limits.confidence_interval
    return Estimate(mean, float(low), float(high), confidence, values.size)


def _by_listener(values: _Floats, listeners: Sequence[object]) -> tuple[_Floats, float]:
    names = list(listeners)
    if len(names) != values.size:
        raise RequestInvalid.of("listeners", f"there are {len(names)} for {values.size} votes")
    groups: dict[object, list[float]] = {}
    for name, vote in zip(names, values, strict=True):
        groups.setdefault(name, []).append(float(vote))
    if len(groups) < 2:
        raise RequestInvalid.of("listeners", "one listener has no spread; two or more are needed")
    means = np.array([sum(group) / len(group) for group in groups.values()])
    return means, float(means.mean())


def wilcoxon(
    first: Sequence[float] | npt.ArrayLike,
    second: Sequence[float] | npt.ArrayLike,
    *,
    alternative: Literal["two-sided", "greater", "less"] = "two-sided",
    confidence: float = 0.95,
) -> Test:
    """Test whether paired ratings differ: F. Wilcoxon's signed-rank test (Biometrics Bulletin 1, 1945), by scipy.

    ``first`` and ``second`` are (pairs,). The statistic is the sum of the positive differences' ranks, pairs without
    a difference left out; p is exact up to 50 such pairs, ties among them or not (every sign of every rank is counted),
    normal beyond. The estimate is J. L. Hodges &
    E. L. Lehmann's: the median of all pairs' mean differences, with J. W. Tukey's interval (M. Hollander &
    D. A. Wolfe, "Nonparametric Statistical Methods", 1973, chapter 3). Raises RequestInvalid.
    """
    from scipy import stats

    ours, theirs = numbers(first, "first", 2), numbers(second, "second", 2)
    if ours.size != theirs.size:
        raise RequestInvalid.of("second", f"{theirs.size} ratings cannot be paired with {ours.size}")
    if alternative not in ("two-sided", "greater", "less"):
        raise RequestInvalid.of("alternative", f"{alternative!r} is not 'two-sided', 'greater' or 'less'")
    # Ratings have few digits; what arithmetic adds must not untie them.
    differences = np.round(ours - theirs, 12)
    left, upper = np.triu_indices(differences.size)
    walsh = np.sort((differences[left] + differences[upper]) / 2.0)
    rank = _signed_rank_quantile(differences.size, (1.0 - between(confidence, "confidence", 0.0, 1.0)) / 2.0)
    low, high = (walsh[rank - 1], walsh[-rank]) if rank > 0 else (-math.inf, math.inf)
    estimate = Estimate(float(np.median(walsh)), float(low), float(high), confidence, differences.size)
    other = differences[differences != 0.0]
    if not other.size:
        return Test(f"Wilcoxon signed rank, {alternative}", 0.0, 1.0, estimate)
    ranks = stats.rankdata(np.abs(other))
    positive = float(ranks[other > 0.0].sum())
    if other.size > _EXACT_PAIRS:
        p = float(stats.wilcoxon(other, alternative=alternative, method="asymptotic").pvalue)
    else:
        p = _signed_rank_p(ranks, positive, alternative)
    return Test(f"Wilcoxon signed rank, {alternative}", positive, p, estimate)


def _signed_rank_p(ranks: npt.NDArray[np.float64], positive: float, alternative: str) -> float:
    """Return the share of all signs of these ranks whose positive ones sum up to what was found, or further out."""
    # Ties have ranks with halves.
    twice, found = np.round(2.0 * ranks).astype(int), round(2.0 * positive)
    chance = np.zeros(int(twice.sum()) + 1)
    chance[0] = 1.0
    for rank in twice:
        moved = np.zeros_like(chance)
        moved[rank:] = chance[: chance.size - rank]
        chance = (chance + moved) / 2.0
    below, above = float(chance[: found + 1].sum()), float(chance[found:].sum())
    return min(1.0, {"less": below, "greater": above, "two-sided": 2.0 * min(below, above)}[alternative])


def _signed_rank_quantile(count: int, tail: float) -> int:
    """Return the largest k with P(rank sum < k) <= tail, 0 when even the smallest sum is likelier."""
    total = count * (count + 1) // 2
    if count > 60:
        from scipy.stats import norm

        spread = math.sqrt(total * (2 * count + 1) / 12.0)
        return max(0, math.floor(total / 2.0 + float(norm.ppf(tail)) * spread))
    ways = np.zeros(total + 1)
    ways[0] = 1.0
    for rank in range(1, count + 1):
        ways[rank:] = ways[rank:] + ways[: total + 1 - rank]
    return int(np.searchsorted(np.cumsum(ways) / 2.0**count, tail, side="right"))


@dataclass(frozen=True, eq=False)
class Friedman:
    """Systems rated by the same raters: ``statistic`` (chi squared), ``p``, and the comparisons after it.

    ``mean_ranks`` (systems,), 1 is best; ``critical_difference`` of mean ranks by Nemenyi at ``alpha``; ``pairs``
    has a row for each pair: ``difference`` of mean ranks, ``p_nemenyi``, and ``p_holm`` of Wilcoxon's test.
    """

    names: tuple[str, ...]
    statistic: float
    p: float
    mean_ranks: _Floats
    critical_difference: float
    alpha: float
    pairs: pd.DataFrame = field(repr=False)


def friedman(ratings: npt.ArrayLike, names: Sequence[str] | None = None, *, alpha: float = 0.05) -> Friedman:
    """Test whether any of several systems is rated otherwise than the rest, and which.

    ``ratings`` is (raters, systems), higher is better; a rater is a listener, or a listener with an item. M. Friedman
    (JASA 32, 1937), corrected for ties, by scipy; then P. B. Nemenyi's comparisons of all pairs as J. Demšar,
    "Statistical comparisons of classifiers over multiple data sets" (JMLR 7, 2006) writes them, and Wilcoxon's test
    of every pair, corrected by Holm. Raises RequestInvalid for fewer than three systems or two raters.
    """
    import pandas as pd
    from scipy import stats

    table = np.asarray(ratings, np.float64)
    if table.ndim != 2 or table.shape[0] < 2 or table.shape[1] < 3 or not np.isfinite(table).all():
        raise RequestInvalid.of("ratings", "Input should be numbers of shape (2 raters or more, 3 systems or more)")
    raters, systems = table.shape
    labels = tuple(names) if names is not None else tuple(str(number) for number in range(systems))
    if len(labels) != systems:
        raise RequestInvalid.of("names", f"Input should be {systems} names")
    ranks = stats.rankdata(-table, axis=1).mean(axis=0)
    if (table == table[:, :1]).all():
        statistic, p = 0.0, 1.0  # nobody tells any two apart
    else:
        statistic, p = map(float, stats.friedmanchisquare(*table.T))
    error = math.sqrt(systems * (systems + 1) / (6.0 * raters))
    first, second = np.triu_indices(systems, 1)
    apart = ranks[first] - ranks[second]
    nemenyi = stats.studentized_range.sf(np.abs(apart) / error * math.sqrt(2.0), systems, np.inf)
    tests = [wilcoxon(table[:, a], table[:, b]).p for a, b in zip(first, second, strict=True)]
    columns = {
        "first": [labels[a] for a in first],
        "second": [labels[b] for b in second],
        "difference": apart,
        "p_nemenyi": np.minimum(nemenyi, 1.0),
        "p_holm": holm(tests),
    }
    critical = float(stats.studentized_range.ppf(1.0 - between(alpha, "alpha", 0.0, 1.0), systems, np.inf))
    return Friedman(labels, statistic, p, ranks, critical / math.sqrt(2.0) * error, alpha, pd.DataFrame(columns))


@dataclass(frozen=True, eq=False)
class Screening:
    """Who stays: ``kept`` and ``excluded`` listeners, the latter with the reason, and the rows that remain."""

    kept: tuple[Any, ...]
    excluded: dict[Any, str]
    frame: pd.DataFrame = field(repr=False)


def screen_mushra(
    frame: pd.DataFrame,
    *,
    reference: object,
    anchor: object | None = None,
    listener: str = "listener",
    item: str = "item",
    stimulus: str = "stimulus",
    rating: str = "rating",
) -> Screening:
    """Leave out listeners by the rule of Recommendation ITU-R BS.1534-3 (2015), section 4.1.2.

    A listener is excluded who rates the hidden reference below 90 for more than 15 % of the items; and, when
    ``anchor`` names the mid-range anchor, who rates that above 90 for more than 15 % of the items. An item whose anchor
    more than 25 % of the listeners rate above 90 is hardly degraded by it, and does not count against anybody.

    ``frame`` has a row for each rating, 0 to 100, in the columns named; ``reference`` and ``anchor`` are values of
    ``stimulus``. Raises RequestInvalid for a missing column, a rating outside 0 to 100, or a listener who never rated
    the hidden reference.
    """
    for argument, column in (("listener", listener), ("item", item), ("stimulus", stimulus), ("rating", rating)):
        if column not in frame.columns:
            raise RequestInvalid.of(argument, f"there is no column {column!r}")
    if not frame[rating].between(0.0, 100.0).all():
        raise RequestInvalid.of("rating", "there are ratings outside 0 to 100")
    hidden = frame[frame[stimulus] == reference]
    everyone = list(dict.fromkeys(frame[listener]))
    without = sorted(str(name) for name in set(everyone) - set(hidden[listener]))
    if without:
        raise RequestInvalid.of("reference", f"{', '.join(without)} never rated {reference!r}")
    low = (hidden[rating] < 90.0).groupby(hidden[listener]).mean()
    excluded = {
        name: f"rated the hidden reference below 90 for {share:.0%} of the items"
        for name, share in low[low > 0.15].items()
    }
    if anchor is not None:
        middle = frame[frame[stimulus] == anchor]
        if middle.empty:
            raise RequestInvalid.of("anchor", f"nobody rated {anchor!r}")
        high = middle[rating] > 90.0
        fair = high.groupby(middle[item]).transform("mean") <= 0.25
        shares = (high & fair).groupby(middle[listener]).mean()
        for name, share in shares[shares > 0.15].items():
            excluded.setdefault(name, f"rated the mid-range anchor above 90 for {share:.0%} of the items")
    kept = tuple(name for name in everyone if name not in excluded)
    return Screening(kept, excluded, frame[~frame[listener].isin(list(excluded))])
