"""What listeners say: choices between two, ratings, who is left out, and whether raters agree."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from voicelab.errors import ArgumentError
from voicelab.stats.estimate import Estimate, Test, between, holm, numbers, odds, one_of, varies, whole
from voicelab.stats.reml import codes_of, count_of

if TYPE_CHECKING:
    import pandas as pd

_Floats = npt.NDArray[np.float64]
_Alternative = Literal["two-sided", "greater", "less"]
_ALTERNATIVES = ("two-sided", "greater", "less")
_ELO, _ELO_MEAN = 400.0 / math.log(10.0), 1500.0
_EXACT_PAIRS = 50


def binomial(
    successes: int,
    trials: int,
    *,
    chance: float = 0.5,
    alternative: _Alternative = "two-sided",
    interval: Literal["exact", "wilson"] = "exact",
    confidence: float = 0.95,
) -> Test:
    """Test whether ``successes`` of ``trials`` are more than ``chance``; the estimate is their share.

    AB: preferences for A, two-sided. ABX: right answers, alternative "greater". The p-value is the exact
    binomial's; ``interval`` is always two-sided: "exact" is Clopper & Pearson's (Biometrika 26, 1934), which
    covers at least ``confidence``, "wilson" E. B. Wilson's (JASA 22, 1927), which covers it on average. By scipy.
    Trials of one listener are taken as independent. Raises ArgumentError.
    """
    from scipy.stats import binomtest

    whole(trials, "trials", 1)
    if whole(successes, "successes", 0) > trials:
        raise ArgumentError.of("successes", f"{successes} of {trials} trials cannot be")
    one_of(alternative, "alternative", _ALTERNATIVES)
    one_of(interval, "interval", ("exact", "wilson"))
    between(chance, "chance", 0.0, 1.0)
    between(confidence, "confidence", 0.0, 1.0)
    p = float(binomtest(int(successes), int(trials), chance, alternative).pvalue)
    limits = binomtest(int(successes), int(trials), chance).proportion_ci(confidence, interval)
    estimate = Estimate(successes / trials, float(limits.low), float(limits.high), confidence, trials)
    return Test(f"exact binomial, {alternative}", float(successes), p, estimate)


@dataclass(frozen=True, eq=False)
class BradleyTerry:
    """Strengths of systems: ``strength`` (systems,) natural log odds with mean 0, ``covariance`` of them.

    The chance that system a is preferred to b is 1 / (1 + exp(b - a)).
    """

    names: tuple[str, ...]
    strength: _Floats = field(repr=False)
    covariance: _Floats = field(repr=False)
    comparisons: float

    def probability(self, first: str, second: str) -> float:
        """Return the chance that ``first`` is preferred to ``second``."""
        a, b = (self.names.index(name) for name in (first, second))
        return 1.0 / (1.0 + math.exp(float(self.strength[b] - self.strength[a])))

    def difference(self, first: str, second: str, confidence: float = 0.95) -> Estimate:
        """Return how far ``first`` is above ``second`` on the Elo scale, with Wald's interval."""
        from scipy.stats import norm

        a, b = (self.names.index(name) for name in (first, second))
        value = float(self.strength[a] - self.strength[b])
        variance = self.covariance[a, a] + self.covariance[b, b] - 2.0 * self.covariance[a, b]
        reach = float(norm.ppf((1.0 + confidence) / 2.0)) * math.sqrt(max(float(variance), 0.0))
        return Estimate(_ELO * value, _ELO * (value - reach), _ELO * (value + reach), confidence, int(self.comparisons))

    def preference(self, first: str, second: str, confidence: float = 0.95) -> Estimate:
        """Return the chance that ``first`` is preferred to ``second``, with the interval of its log odds (Wald's)."""
        apart = self.difference(first, second, between(confidence, "confidence", 0.0, 1.0))
        value, low, high = (1.0 / (1.0 + math.exp(-end / _ELO)) for end in (apart.value, apart.low, apart.high))
        return Estimate(value, low, high, confidence, apart.n)

    def odds_ratio(self, first: str, second: str, confidence: float = 0.95) -> Estimate:
        """Return how many times as often ``first`` is preferred to ``second`` as not, with Wald's interval."""
        return odds(self.preference(first, second, confidence))

    def frame(self, confidence: float = 0.95) -> pd.DataFrame:
        """Return a row for each system, best first: ``elo`` (mean 1500), its interval, and ``strength`` and ``se``.

        A. E. Elo's scale: 400 points are odds of 10 to 1. The intervals are of each system against the mean of all.
        """
        import pandas as pd
        from scipy.stats import norm

        se = np.sqrt(np.maximum(np.diag(self.covariance), 0.0))
        reach = float(norm.ppf((1.0 + between(confidence, "confidence", 0.0, 1.0)) / 2.0)) * se
        elo = [_ELO_MEAN + _ELO * (self.strength + sign * reach) for sign in (0.0, -1.0, 1.0)]
        columns = {"elo": elo[0], "low": elo[1], "high": elo[2], "strength": self.strength, "se": se}
        table = pd.DataFrame({"system": self.names, **columns})
        return table.sort_values("elo", ascending=False, kind="stable", ignore_index=True)


def bradley_terry(wins: npt.ArrayLike, names: Sequence[str] | None = None) -> BradleyTerry:
    """Fit the model of R. A. Bradley & M. E. Terry (Biometrika 39, 1952) by maximum likelihood.

    ``wins[a, b]`` is how often a was preferred to b, shape (systems, systems); a tie counts half for both. Newton's
    method on the log odds; the covariance is the inverse of the Fisher information under mean 0. Comparisons are
    taken as independent: with many from few listeners the intervals are too narrow.

    Raises ArgumentError for anything but counts, and when no finite strengths exist: L. R. Ford's condition (1957),
    every system must be reachable from every other by wins.
    """
    from scipy.sparse.csgraph import connected_components

    counts = np.asarray(wins, np.float64)
    if counts.ndim != 2 or counts.shape[0] != counts.shape[1] or counts.shape[0] < 2:
        raise ArgumentError.of("wins", f"Input should have shape (systems, systems), got {counts.shape}")
    if not np.isfinite(counts).all() or (counts < 0.0).any() or np.diag(counts).any():
        raise ArgumentError.of("wins", "Input should be counts from 0, with zeros on the diagonal")
    labels = tuple(names) if names is not None else tuple(str(number) for number in range(len(counts)))
    if len(labels) != len(counts) or len(set(labels)) < len(labels):
        raise ArgumentError.of("names", f"Input should be {len(counts)} different names")
    parts, _ = connected_components(counts > 0.0, directed=True, connection="strong")
    if parts > 1:
        raise ArgumentError.of("wins", "some systems never lose, or never win, against the rest: no finite strengths")
    both = counts + counts.T
    strength = np.zeros(len(counts))
    for _ in range(100):
        chance = 1.0 / (1.0 + np.exp(strength[None, :] - strength[:, None]))
        gradient = (counts - both * chance).sum(axis=1)
        weight = both * chance * (1.0 - chance)
        information = np.diag(weight.sum(axis=1)) - weight
        step = np.linalg.pinv(information, hermitian=True) @ gradient
        # Far from the solution a full step may overshoot.
        strength = strength + step * min(1.0, 2.0 / max(float(np.abs(step).max()), 1e-300))
        if np.abs(step).max() < 1e-10:
            break
    strength = strength - strength.mean()
    covariance = np.asarray(np.linalg.pinv(information, hermitian=True), np.float64)
    return BradleyTerry(labels, strength, covariance, float(counts.sum()))


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

    The interval stays on the scale, and is no point where all agree. Sentences are taken as fixed: ``crossed_mean``
    takes them as a sample too. Raises ArgumentError for fewer than two votes (or listeners) or votes outside the scale.
    """
    from scipy import stats

    values = numbers(votes, "votes", 2)
    if ((values < scale[0]) | (values > scale[1])).any():
        raise ArgumentError.of("votes", f"there are votes outside {scale[0]:g} to {scale[1]:g}")
    between(confidence, "confidence", 0.0, 1.0)
    if listeners is not None:
        codes = codes_of(np.array([str(name) for name in listeners], object))
        if codes.size != values.size:
            raise ArgumentError.of("listeners", f"there are {codes.size} for {values.size} votes")
        if count_of(codes) < 2:
            raise ArgumentError.of("listeners", "one listener has no spread; two or more are needed")
        values = np.bincount(codes, values) / np.bincount(codes)
    mean = float(values.mean())
    one_of(interval, "interval", ("t", "bootstrap"))
    spread = float(values.std(ddof=1)) if varies(values) else 0.0
    if spread and interval == "bootstrap":
        draws = {"n_resamples": whole(resamples, "resamples", 99), "rng": np.random.default_rng(seed)}
        limits = stats.bootstrap((values,), np.mean, confidence_level=confidence, method="BCa", **draws)
        low, high = limits.confidence_interval
        return Estimate(mean, float(low), float(high), confidence, values.size)
    reach = float(stats.t.ppf((1.0 + confidence) / 2.0, values.size - 1)) * spread / math.sqrt(values.size)
    # No more than this share of others would vote otherwise (Clopper & Pearson's bound), one step away.
    reach = reach or 1.0 - ((1.0 - confidence) / 2.0) ** (1.0 / values.size)
    return Estimate(mean, max(scale[0], mean - reach), min(scale[1], mean + reach), confidence, values.size)


def wilcoxon(
    first: Sequence[float] | npt.ArrayLike,
    second: Sequence[float] | npt.ArrayLike,
    *,
    alternative: _Alternative = "two-sided",
    confidence: float = 0.95,
) -> Test:
    """Test whether paired ratings differ: F. Wilcoxon's signed-rank test (Biometrics Bulletin 1, 1945).

    ``first`` and ``second`` are (pairs,). The statistic is the sum of the positive differences' ranks, pairs without
    a difference left out; p is exact up to 50 such pairs, with ties too (every sign of every rank is counted), which
    scipy does to 13 pairs only, and normal beyond, by scipy. The estimate is J. L. Hodges & E. L. Lehmann's: the median
    of all pairs' mean differences, with J. W. Tukey's interval (M. Hollander & D. A. Wolfe, "Nonparametric Statistical
    Methods", 1973, chapter 3). Raises ArgumentError.
    """
    from scipy import stats

    ours, theirs = numbers(first, "first", 2), numbers(second, "second", 2)
    if ours.size != theirs.size:
        raise ArgumentError.of("second", f"{theirs.size} ratings cannot be paired with {ours.size}")
    one_of(alternative, "alternative", _ALTERNATIVES)
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
        # Ties have ranks with halves.
        chances, place = _rank_sums(np.round(2.0 * ranks).astype(int)), round(2.0 * positive)
        below, above = float(chances[: place + 1].sum()), float(chances[place:].sum())
        p = min(1.0, {"less": below, "greater": above, "two-sided": 2.0 * min(below, above)}[alternative])
    return Test(f"Wilcoxon signed rank, {alternative}", positive, p, estimate)


def _signed_rank_quantile(count: int, tail: float) -> int:
    """Return the largest k with P(rank sum < k) <= tail, 0 when even the smallest sum is likelier."""
    if count > 60:
        from scipy.stats import norm

        total = count * (count + 1) // 2
        spread = math.sqrt(total * (2 * count + 1) / 12.0)
        return max(0, math.floor(total / 2.0 + float(norm.ppf(tail)) * spread))
    return int(np.searchsorted(np.cumsum(_rank_sums(np.arange(1, count + 1))), tail, side="right"))


def _rank_sums(ranks: npt.NDArray[np.int_]) -> _Floats:
    """Return the chance of each sum of the positive ones of ``ranks``, whole numbers, when all signs are as likely."""
    chances = np.zeros(int(ranks.sum()) + 1)
    chances[0] = 1.0
    for rank in ranks:
        chances = (chances + np.concatenate((np.zeros(rank), chances[: chances.size - rank]))) / 2.0
    return chances


@dataclass(frozen=True, eq=False)
class Friedman:
    """Systems rated by the same raters: ``statistic`` (chi squared), ``p``, and the comparisons after it.

    ``mean_ranks`` (systems,), 1 is best; ``critical_difference`` of mean ranks by Nemenyi at ``alpha``; ``pairs``
    has a row for each pair: ``difference`` of mean ranks, ``p_nemenyi``, and ``p_holm`` of Wilcoxon's test.
    ``concordance`` is the effect size, Kendall's W with its interval: 1 where all raters rank alike, about 1 / raters
    where they rank by chance; NaN where all ratings are ties, and its interval where two raters are all there are.
    """

    names: tuple[str, ...]
    statistic: float
    p: float
    mean_ranks: _Floats
    critical_difference: float
    alpha: float
    concordance: Estimate
    pairs: pd.DataFrame = field(repr=False)


def friedman(
    ratings: npt.ArrayLike, names: Sequence[str] | None = None, *, alpha: float = 0.05, confidence: float = 0.95
) -> Friedman:
    """Test whether any of several systems is rated otherwise than the rest, and which.

    ``ratings`` is (raters, systems), higher is better; a rater is a listener, or a listener with an item. M. Friedman
    (JASA 32, 1937), corrected for ties, by scipy; then P. B. Nemenyi's comparisons of all pairs as J. Demšar,
    "Statistical comparisons of classifiers over multiple data sets" (JMLR 7, 2006) writes them, and Wilcoxon's test
    of every pair, corrected by Holm. The effect size is W of M. G. Kendall & B. Babington Smith (Annals of Mathematical
    Statistics 10, 1939), corrected for ties; its interval, in raters like these, is Student's by the jackknife over raters
    of their mean rank correlation. Raises ArgumentError for fewer than three systems or two raters.
    """
    import pandas as pd
    from scipy import stats

    table = np.asarray(ratings, np.float64)
    if table.ndim != 2 or table.shape[0] < 2 or table.shape[1] < 3 or not np.isfinite(table).all():
        raise ArgumentError.of("ratings", "Input should be numbers of shape (2 raters or more, 3 systems or more)")
    raters, systems = table.shape
    labels = tuple(names) if names is not None else tuple(str(number) for number in range(systems))
    if len(labels) != systems:
        raise ArgumentError.of("names", f"Input should be {systems} names")
    of_each = stats.rankdata(-table, axis=1)
    ranks = of_each.mean(axis=0)
    if (table == table[:, :1]).all():
        statistic, p = 0.0, 1.0  # all ratings are ties
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
    concordance, apart_by = _concordance(of_each, confidence), critical / math.sqrt(2.0) * error
    return Friedman(labels, statistic, p, ranks, apart_by, alpha, concordance, pd.DataFrame(columns))


def _concordance(ranks: _Floats, confidence: float) -> Estimate:
    """Return Kendall's W of ranks, (raters, systems)."""
    from scipy.stats import t

    tail, count = (1.0 + between(confidence, "confidence", 0.0, 1.0)) / 2.0, len(ranks)
    centred = ranks - ranks.mean(axis=1, keepdims=True)
    squares, total = np.square(centred).sum(axis=1), centred.sum(axis=0)
    if not squares.any():
        return Estimate(math.nan, math.nan, math.nan, confidence, count)
    w = float(np.square(total).sum() / (count * squares.sum()))
    if count == 2 or not (squares.sum() - squares).all():
        return Estimate(w, math.nan, math.nan, confidence, count)
    # A bootstrap draws raters twice, who agree with themselves: its intervals of W lie too high.
    rho, without = (count * w - 1.0) / (count - 1.0), squares.sum() - squares
    others = (np.square(total - centred).sum(axis=1) / without - 1.0) / (count - 2.0)
    error = math.sqrt((count - 1.0) / count * float(np.square(others - others.mean()).sum()))
    # All alike: as if as many ranked the other way as Clopper and Pearson's bound allows.
    turned = min(0.5, 1.0 - (1.0 - tail) ** (1.0 / count))
    reach = float(t.ppf(tail, count - 1)) * error if error > 1e-12 else 1.0 - (1.0 - 2.0 * turned) ** 2
    low, high = ((1.0 + (count - 1.0) * end) / count for end in (rho - reach, rho + reach))
    return Estimate(w, max(0.0, low), min(1.0, high), confidence, count)


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
    ``stimulus``. Raises ArgumentError for a missing column, a rating outside 0 to 100, or a listener who never rated
    the hidden reference.
    """
    for argument, column in (("listener", listener), ("item", item), ("stimulus", stimulus), ("rating", rating)):
        if column not in frame.columns:
            raise ArgumentError.of(argument, f"there is no column {column!r}")
    if not frame[rating].between(0.0, 100.0).all():
        raise ArgumentError.of("rating", "there are ratings outside 0 to 100")
    hidden = frame[frame[stimulus] == reference]
    everyone = list(dict.fromkeys(frame[listener]))
    without = sorted(str(name) for name in set(everyone) - set(hidden[listener]))
    if without:
        raise ArgumentError.of("reference", f"{', '.join(without)} never rated {reference!r}")
    wrong = {"the hidden reference below 90": hidden.set_index(listener)[rating] < 90.0}
    if anchor is not None:
        middle = frame[frame[stimulus] == anchor].set_index(listener)
        if middle.empty:
            raise ArgumentError.of("anchor", f"no listener rated {anchor!r}")
        high = middle[rating] > 90.0
        wrong["the mid-range anchor above 90"] = high & (
            high.groupby(middle[item].to_numpy()).transform("mean") <= 0.25
        )
    excluded: dict[Any, str] = {}
    for what, ratings in wrong.items():
        shares = ratings.groupby(level=0).mean()
        for name, share in shares[shares > 0.15].items():
            excluded.setdefault(name, f"rated {what} for {share:.0%} of the items")
    kept = tuple(name for name in everyone if name not in excluded)
    return Screening(kept, excluded, frame[~frame[listener].isin(list(excluded))])


def intraclass_correlation(
    ratings: npt.ArrayLike, *, raters: Literal["nested", "random", "fixed"] = "random", of_mean: bool = False
) -> float:
    """Return the intraclass correlation of ratings, (targets, raters): P. E. Shrout & J. L. Fleiss (1979).

    ``raters``: "nested", each target has raters of its own, ICC(1, ·); "random", the raters stand for others, ICC(2, ·),
    absolute agreement; "fixed", only these raters matter, ICC(3, ·), consistency. ``of_mean``: of the raters' mean
    (·, k) instead of one rater's rating (·, 1). Psychological Bulletin 86. NaN when all ratings are the same. Raises
    ArgumentError unless there are two targets and raters or more, and no gaps.
    """
    table = np.asarray(ratings, np.float64)
    if table.ndim != 2 or min(table.shape) < 2 or not np.isfinite(table).all():
        raise ArgumentError.of("ratings", "Input should be numbers of shape (2 targets or more, 2 raters or more)")
    one_of(raters, "raters", ("nested", "random", "fixed"))
    if not np.ptp(table):
        return math.nan  # exactly: a mean may round to beside the one value
    targets, count = table.shape
    centred = table - table.mean()
    between_targets = count * float(np.square(centred.mean(axis=1)).sum())
    between_raters = targets * float(np.square(centred.mean(axis=0)).sum())
    within = float(np.square(centred).sum()) - between_targets
    bms, wms = between_targets / (targets - 1), within / (targets * (count - 1))
    jms, ems = between_raters / (count - 1), (within - between_raters) / ((targets - 1) * (count - 1))
    noise = wms if raters == "nested" else ems
    shift = count * (jms - ems) / targets if raters == "random" else 0.0
    below = bms + shift / count if of_mean else bms + (count - 1) * noise + shift
    return (bms - noise) / below if below > 0.0 else math.nan


def krippendorff_alpha(
    ratings: npt.ArrayLike, *, level: Literal["nominal", "ordinal", "interval", "ratio"] = "ordinal"
) -> float:
    """Return K. Krippendorff's alpha for ratings, (raters, items), NaN where a rater has not rated an item.

    1 is agreement, 0 chance. ``level`` says what differences mean: MOS categories are "ordinal", MUSHRA "interval".
    By the coincidence matrix of "Computing Krippendorff's alpha-reliability" (2011). NaN when only one value was ever
    given. Raises ArgumentError when no item has two ratings, and for a negative ratio.
    """
    table = np.asarray(ratings, np.float64)
    if table.ndim != 2 or np.isinf(table).any():
        raise ArgumentError.of("ratings", "Input should be numbers of shape (raters, items)")
    one_of(level, "level", ("nominal", "ordinal", "interval", "ratio"))
    rated = np.isfinite(table)
    paired = rated.sum(axis=0) >= 2
    if not paired.any():
        raise ArgumentError.of("ratings", "no item has two ratings")
    table, rated = table[:, paired], rated[:, paired]
    values, codes = np.unique(table[rated], return_inverse=True)
    if level == "ratio" and values[0] < 0.0:
        raise ArgumentError.of("ratings", "a ratio scale has no values below 0")
    items = np.nonzero(rated)[1]
    counts = np.zeros((table.shape[1], values.size))
    np.add.at(counts, (items, codes), 1.0)
    # Every pair of ratings of an item, weighed by how many ratings it has.
    weights = 1.0 / (counts.sum(axis=1) - 1.0)
    coincidences = (counts * weights[:, None]).T @ counts - np.diag((counts * weights[:, None]).sum(axis=0))
    totals = coincidences.sum(axis=0)
    apart = _distances(values, totals, level)
    expected = float((np.outer(totals, totals) * apart).sum()) / (totals.sum() - 1.0)
    return 1.0 - float((coincidences * apart).sum()) / expected if expected > 0.0 else math.nan


def _distances(values: _Floats, totals: _Floats, level: str) -> _Floats:
    if level == "ordinal":
        values = np.cumsum(totals) - totals / 2.0
    apart, sums = values[:, None] - values[None, :], values[:, None] + values[None, :]
    if level == "nominal":
        return np.asarray(apart != 0.0, np.float64)
    if level == "ratio":
        apart = np.divide(apart, sums, out=np.zeros_like(sums), where=sums > 0)
    return np.asarray(np.square(apart), np.float64)
