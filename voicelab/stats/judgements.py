"""Statistics of listening tests: choices, ratings, screening of listeners and agreement of raters."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from voicelab.errors import ArgumentError
from voicelab.stats.estimate import Estimate, Test, between, numbers, one_of, varies, whole
from voicelab.stats.mixed import codes_of, count_of

if TYPE_CHECKING:
    import pandas as pd

_Floats = npt.NDArray[np.float64]
_Alternative = Literal["two-sided", "greater", "less"]
_ALTERNATIVES = ("two-sided", "greater", "less")
_MAX_EXACT_PAIRS = 50


def binomial(
    successes: int,
    trials: int,
    *,
    alternative: _Alternative = "two-sided",
    confidence: float = 0.95,
) -> Test:
    """Test the share of ``successes`` in ``trials`` against 0.5 by the exact binomial test (scipy).

    For AB, count preferences for A and test two-sided; for ABX, count correct responses with the alternative "greater".
    The two-sided interval is that of C. J. Clopper & E. S. Pearson (Biometrika 26, 1934). Trials are assumed to be
    independent. Raises ArgumentError for invalid arguments.
    """
    from scipy.stats import binomtest

    whole(trials, "trials", 1)
    if whole(successes, "successes", 0) > trials:
        raise ArgumentError.of("successes", f"must be at most trials={trials}, got {successes}")
    one_of(alternative, "alternative", _ALTERNATIVES)
    between(confidence, "confidence", 0.0, 1.0)
    p = float(binomtest(int(successes), int(trials), alternative=alternative).pvalue)
    limits = binomtest(int(successes), int(trials)).proportion_ci(confidence)
    estimate = Estimate(successes / trials, float(limits.low), float(limits.high), confidence, trials)
    return Test(f"exact binomial, {alternative}", float(successes), p, estimate)


def mean_opinion_score(
    votes: Sequence[float] | npt.ArrayLike,
    *,
    listeners: Sequence[object] | None = None,
    confidence: float = 0.95,
    scale: tuple[float, float] = (1.0, 5.0),
) -> Estimate:
    """Compute a mean opinion score with its confidence interval, as ITU-T P.800.2 (2016) requires.

    Args:
        votes: ratings (n,) within ``scale``: (1, 5) for ACR (ITU-T P.800), (-3, 3) for CMOS, (0, 100) for MUSHRA.
        listeners: the listener of each rating. Because ratings of a listener are not independent, the interval is then
            computed from the listeners' means, and n is the number of listeners. Default: one rating per listener.
        confidence: level of the interval.
        scale: bounds of the scale.

    Student's t interval stays within the scale, and its width is above 0 even if all ratings are equal. Sentences are
    fixed; ``crossed_mean`` treats them as random. Raises ArgumentError for fewer than two ratings or listeners, or for
    ratings outside the scale.
    """
    from scipy import stats

    values = numbers(votes, "votes", 2)
    if ((values < scale[0]) | (values > scale[1])).any():
        message = f"must be from {scale[0]:g} to {scale[1]:g}, got {values.min():g} to {values.max():g}"
        raise ArgumentError.of("votes", message)
    between(confidence, "confidence", 0.0, 1.0)
    if listeners is not None:
        codes = codes_of(np.array([str(name) for name in listeners], object))
        if codes.size != values.size:
            raise ArgumentError.of("listeners", f"must be {values.size}, one per vote, got {codes.size}")
        if count_of(codes) < 2:
            raise ArgumentError.of("listeners", "must have two or more listeners, got 1")
        values = np.bincount(codes, values) / np.bincount(codes)
    mean = float(values.mean())
    sd = float(values.std(ddof=1)) if varies(values) else 0.0
    half_width = float(stats.t.ppf((1.0 + confidence) / 2.0, values.size - 1)) * sd / math.sqrt(values.size)
    # For equal ratings: Clopper and Pearson's bound on the share of other ratings, which are assumed one step away.
    half_width = half_width or 1.0 - ((1.0 - confidence) / 2.0) ** (1.0 / values.size)
    return Estimate(mean, max(scale[0], mean - half_width), min(scale[1], mean + half_width), confidence, values.size)


def wilcoxon(
    first: Sequence[float] | npt.ArrayLike,
    second: Sequence[float] | npt.ArrayLike,
    *,
    alternative: _Alternative = "two-sided",
    confidence: float = 0.95,
) -> Test:
    """Test paired ratings (pairs,) by F. Wilcoxon's signed-rank test (Biometrics Bulletin 1, 1945).

    The statistic is the sum of ranks of positive differences, excluding zeros. For up to 50 pairs, p is exact even with
    ties (in scipy, only up to 13 pairs); for more pairs, scipy's normal approximation is used. The estimate is J. L.
    Hodges & E. L. Lehmann's: the median of the pairwise mean differences, with J. W. Tukey's interval (M. Hollander &
    D. A. Wolfe, "Nonparametric Statistical Methods", 1973, chapter 3). Raises ArgumentError for invalid arguments.
    """
    from scipy import stats

    ours, theirs = numbers(first, "first", 2), numbers(second, "second", 2)
    if ours.size != theirs.size:
        raise ArgumentError.of("second", f"must be {ours.size} ratings, as many as first, got {theirs.size}")
    one_of(alternative, "alternative", _ALTERNATIVES)
    # Rounding errors must not break ties of ratings.
    differences = np.round(ours - theirs, 12)
    i, j = np.triu_indices(differences.size)
    walsh = np.sort((differences[i] + differences[j]) / 2.0)
    rank = _signed_rank_quantile(differences.size, (1.0 - between(confidence, "confidence", 0.0, 1.0)) / 2.0)
    low, high = (walsh[rank - 1], walsh[-rank]) if rank > 0 else (-math.inf, math.inf)
    estimate = Estimate(float(np.median(walsh)), float(low), float(high), confidence, differences.size)
    nonzero = differences[differences != 0.0]
    if not nonzero.size:
        return Test(f"Wilcoxon signed rank, {alternative}", 0.0, 1.0, estimate)
    ranks = stats.rankdata(np.abs(nonzero))
    positive = float(ranks[nonzero > 0.0].sum())
    if nonzero.size > _MAX_EXACT_PAIRS:
        p = float(stats.wilcoxon(nonzero, alternative=alternative, method="asymptotic").pvalue)
    else:
        # Ranks of ties are multiples of a half.
        distribution, index = _rank_sums(np.round(2.0 * ranks).astype(int)), round(2.0 * positive)
        below, above = float(distribution[: index + 1].sum()), float(distribution[index:].sum())
        p = min(1.0, {"less": below, "greater": above, "two-sided": 2.0 * min(below, above)}[alternative])
    return Test(f"Wilcoxon signed rank, {alternative}", positive, p, estimate)


def _signed_rank_quantile(count: int, tail: float) -> int:
    """Return the largest k with P(rank sum < k) <= tail; 0 if there is none."""
    if count > 60:
        from scipy.stats import norm

        total = count * (count + 1) // 2
        sd = math.sqrt(total * (2 * count + 1) / 12.0)
        return max(0, math.floor(total / 2.0 + float(norm.ppf(tail)) * sd))
    return int(np.searchsorted(np.cumsum(_rank_sums(np.arange(1, count + 1))), tail, side="right"))


def _rank_sums(ranks: npt.NDArray[np.int_]) -> _Floats:
    """Return the null distribution of the sum of positive integer ``ranks``."""
    distribution = np.zeros(int(ranks.sum()) + 1)
    distribution[0] = 1.0
    for rank in ranks:
        shifted = np.concatenate((np.zeros(rank), distribution[: distribution.size - rank]))
        distribution = (distribution + shifted) / 2.0
    return distribution


@dataclass(frozen=True, eq=False)
class Screening:
    """Result of screening: the ``kept`` listeners, and their rows in ``frame``.

    ``table`` has a row for each rule that a listener failed, with ``listener``, ``rule``, ``items`` (a tuple) and
    ``reason``. ``notes`` name the rules that could not be applied, with the listeners concerned.
    """

    kept: tuple[Any, ...]
    table: pd.DataFrame
    frame: pd.DataFrame = field(repr=False)
    notes: tuple[str, ...] = ()

    @property
    def excluded(self) -> dict[Any, str]:
        """Reasons for exclusion by listener."""
        return reasons_by_listener(self.table)


def reasons_by_listener(table: pd.DataFrame) -> dict[Any, str]:
    """Join the reasons of each listener in a table of failed rules that has the columns ``listener`` and ``reason``."""
    return {name: "; ".join(reasons) for name, reasons in table.groupby("listener", sort=False)["reason"]}


def screen_mushra(
    frame: pd.DataFrame,
    *,
    reference: object | None = None,
    anchor: object | None = None,
) -> Screening:
    """Screen listeners by Recommendation ITU-R BS.1534-3 (2015), section 4.1.2.

    Listeners are excluded if they rate the hidden reference below 90 in more than 15 % of the items. With a mid-range
    ``anchor``, they are also excluded if they rate it above 90 in more than 15 % of the items, not counting items in
    which more than 25 % of the listeners rate the anchor above 90.

    ``frame`` has a row per rating, with the columns listener, item, system and rating (0 to 100). ``reference`` and
    ``anchor`` are names of systems. Each rule is applied only to the listeners who rated its system; ``notes`` name the
    other listeners. Raises ArgumentError for a missing column or a rating outside 0 to 100.
    """
    import pandas as pd

    for column in ("listener", "item", "system", "rating"):
        if column not in frame.columns:
            raise ArgumentError.of("frame", f"must have a column {column!r}, got {list(frame.columns)}")
    if not frame["rating"].between(0.0, 100.0).all():
        low, high = frame["rating"].min(), frame["rating"].max()
        raise ArgumentError.of("rating", f"must be from 0 to 100, got {low:g} to {high:g}")
    listeners, failures, notes = list(dict.fromkeys(frame["listener"])), [], []
    for name, role in ((reference, "hidden reference"), (anchor, "mid-range anchor")):
        if name is None:
            continue
        rows = frame[frame["system"] == name]
        raters = set(rows["listener"])
        without = [str(listener) for listener in listeners if listener not in raters]
        if without:
            who = "all listeners" if rows.empty else ", ".join(without)
            notes.append(f"Listeners who did not rate the {role} {name!r}, and are not screened by it: {who}.")
        failed = rows["rating"] < 90.0 if name == reference else rows["rating"] > 90.0
        if name == anchor:
            failed &= failed.groupby(rows["item"]).transform("mean") <= 0.25
        shares = failed.groupby(rows["listener"]).mean()
        side = "below" if name == reference else "above"
        failures += [
            (
                who,
                role,
                tuple(rows["item"][failed & (rows["listener"] == who)]),
                f"rated the {role} {side} 90 for {share:.0%} of the items",
            )
            for who, share in shares[shares > 0.15].items()
        ]
    table = pd.DataFrame(failures, columns=["listener", "rule", "items", "reason"])
    remaining = frame[~frame["listener"].isin(table["listener"])]
    return Screening(tuple(dict.fromkeys(remaining["listener"])), table, remaining, tuple(notes))


def intraclass_correlation(ratings: npt.ArrayLike, *, of_mean: bool = False) -> float:
    """Compute the intraclass correlation of ratings (targets, raters): absolute agreement of random raters.

    This is ICC(2, 1) of P. E. Shrout & J. L. Fleiss, Psychological Bulletin 86 (1979); with ``of_mean`` it is ICC(2, k), the
    reliability of the raters' mean. The result is NaN if all ratings are equal. Raises ArgumentError for fewer than two
    targets or raters, and for missing ratings. pingouin is not used, because it requires seaborn and scikit-learn.
    """
    table = np.asarray(ratings, np.float64)
    if table.ndim != 2 or min(table.shape) < 2 or not np.isfinite(table).all():
        raise ArgumentError.of("ratings", f"must be finite, at least 2 targets by 2 raters, got shape {table.shape}")
    if not np.ptp(table):
        return math.nan  # exact, whereas a mean may be rounded
    targets, count = table.shape
    centered = table - table.mean()
    between_targets = count * float(np.square(centered.mean(axis=1)).sum())
    between_raters = targets * float(np.square(centered.mean(axis=0)).sum())
    within = float(np.square(centered).sum()) - between_targets
    bms = between_targets / (targets - 1)
    jms, ems = between_raters / (count - 1), (within - between_raters) / ((targets - 1) * (count - 1))
    bias = count * (jms - ems) / targets
    total = bms + bias / count if of_mean else bms + (count - 1) * ems + bias
    return (bms - ems) / total if total > 0.0 else math.nan


def krippendorff_alpha(ratings: npt.ArrayLike, *, level: Literal["ordinal", "interval"] = "ordinal") -> float:
    """Compute K. Krippendorff's alpha of ratings (raters, items), with NaN for missing ratings.

    1 is perfect agreement, 0 chance agreement. ``level`` is the level of measurement: MOS is "ordinal", MUSHRA
    "interval". Uses the coincidence matrix of "Computing Krippendorff's alpha-reliability" (2011). The result is NaN if
    all ratings are equal. Raises ArgumentError if no item has two ratings.
    """
    table = np.asarray(ratings, np.float64)
    if table.ndim != 2 or np.isinf(table).any():
        raise ArgumentError.of("ratings", f"must be numbers of shape (raters, items), got shape {table.shape}")
    one_of(level, "level", ("ordinal", "interval"))
    rated = np.isfinite(table)
    paired = rated.sum(axis=0) >= 2
    if not paired.any():
        raise ArgumentError.of("ratings", "must include at least two ratings of the same item")
    table, rated = table[:, paired], rated[:, paired]
    values, codes = np.unique(table[rated], return_inverse=True)
    items = np.nonzero(rated)[1]
    counts = np.zeros((table.shape[1], values.size))
    np.add.at(counts, (items, codes), 1.0)
    # Pairs of ratings of an item, weighted by its number of ratings.
    weights = 1.0 / (counts.sum(axis=1) - 1.0)
    coincidences = (counts * weights[:, None]).T @ counts - np.diag((counts * weights[:, None]).sum(axis=0))
    totals = coincidences.sum(axis=0)
    if level == "ordinal":
        values = np.cumsum(totals) - totals / 2.0
    distances = np.square(values[:, None] - values[None, :])
    expected = float((np.outer(totals, totals) * distances).sum()) / (totals.sum() - 1.0)
    return 1.0 - float((coincidences * distances).sum()) / expected if expected > 0.0 else math.nan
