"""Every number that a report of a listening test states, under a name by which other programs compute it too."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from voicelab.errors import ArgumentError
from voicelab.experiments.listening.results import ListeningResult
from voicelab.experiments.statistics import Estimate, holm, intraclass_correlation, krippendorff_alpha

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["figures", "votes_of_clips"]

_Row = tuple[str, str, str, float]


def figures(result: ListeningResult) -> pd.DataFrame:
    """Return a row for each: ``figure``, ``first`` and ``second`` system that it is of ("": of all), and ``value``.

    recompute.py and recompute.R compute the same from the votes alone. What is not finite is left out.
    """
    import pandas as pd

    table = pd.DataFrame(list(_rows(result)), columns=["figure", "first", "second", "value"])
    finite: pd.DataFrame = table[np.isfinite(table["value"])].reset_index(drop=True)
    return finite


def votes_of_clips(votes: pd.DataFrame) -> pd.Series[int]:
    """Return how many votes each clip has, or each pair of clips, of those that count."""
    systems = [name for name in ("system", "against", "chosen", "other") if name in votes]
    pairs = votes[systems].apply(lambda row: tuple(sorted(row)), axis=1)
    return votes.groupby([votes["item"], pairs]).size()


def _rows(result: ListeningResult) -> Iterator[_Row]:
    votes = result.frame
    yield "listeners who took part", "", "", float(result.votes["listener"].nunique())
    yield "listeners", "", "", float(result.listeners)
    yield "sentences", "", "", float(votes["item"].nunique())
    yield "votes", "", "", float(len(votes))
    yield from _checks(result.votes)
    if votes.empty:
        return
    clips = votes_of_clips(votes)
    for name, value in (("least", clips.min()), ("most", clips.max()), ("median", clips.median())):
        yield f"votes of a clip, {name}", "", "", float(value)
    if result.kind in {"MOS", "MUSHRA"}:
        yield from _ratings(result)
    compared = {f"{two} against {one}": (two, one) for one, two in itertools.combinations(result.design["systems"], 2)}
    for name, score in result.scores.items():
        one, two = compared[name] if result.kind == "CMOS" else (name, "")
        yield from _estimate("mean", one, two, score)
    for pair in result.tests:
        yield from _pair(result, pair)
    yield from _all_systems(result)
    if result.outcome is not None and result.outcome.test is not None and result.outcome.p is not None:
        primary, test = result.outcome.plan.primary, result.outcome.test
        yield from _estimate("registered", *primary, test.estimate)
        yield "registered, t", *primary, test.statistic
        yield "registered, p", *primary, result.outcome.p
    yield from _habits(votes, result.kind)


def _estimate(name: str, one: str, two: str, estimate: Estimate) -> Iterator[_Row]:
    for part, value in (("", estimate.value), (", low", estimate.low), (", high", estimate.high)):
        yield f"{name}{part}", one, two, value


def _checks(votes: pd.DataFrame) -> Iterator[_Row]:
    asked = votes[votes["check"].astype(bool)].drop_duplicates(["listener", "trial"])
    yield "gold questions", "", "", float(len(asked))
    yield "gold questions, right", "", "", float(asked["passed"].astype(bool).sum())
    if "plays" in votes and (votes["plays"] > 0).any():
        unheard = votes.drop_duplicates(["listener", "trial"])["plays"] == 0
        yield "answers without a sound", "", "", float(unheard.sum())


def _ratings(result: ListeningResult) -> Iterator[_Row]:
    votes = result.frame
    for system, rows in votes.groupby("system"):
        ratings = rows["rating"].to_numpy(float)
        if system not in result.scores:  # one rating has no interval
            yield "mean", str(system), "", float(ratings.mean())
        yield "sd", str(system), "", float(ratings.std(ddof=1)) if ratings.size > 1 else math.nan
        yield "votes", str(system), "", float(ratings.size)
        for name, share in (("q1", 0.25), ("median", 0.5), ("q3", 0.75)):
            yield name, str(system), "", float(np.quantile(ratings, share))
    table = votes.pivot_table(index=["item", "system"], columns="listener", values="rating").to_numpy()
    try:
        if np.isfinite(table).all():
            yield "icc(2,1)", "", "", intraclass_correlation(table)
            yield "icc(2,k)", "", "", intraclass_correlation(table, of_mean=True)
        yield "alpha", "", "", krippendorff_alpha(table.T, level="ordinal" if result.kind == "MOS" else "interval")
    except ArgumentError:  # one listener, or nothing rated twice
        return


def _pair(result: ListeningResult, pair: tuple[str, str]) -> Iterator[_Row]:
    """Of each pair the test in listeners and sentences, effect sizes, and the test on these sentences alone."""
    if pair in result.crossed:
        crossed = result.crossed[pair]
        yield from _estimate("crossed", *pair, crossed.estimate)
        yield "crossed, error", *pair, crossed.error
        yield "crossed, df", *pair, crossed.df
        yield "crossed, t", *pair, crossed.statistic
        yield "crossed, p", *pair, crossed.p
        yield "crossed, p after Holm", *pair, result.crossed_p_holm[pair]
        for name, size in result.sizes[pair].items():
            yield from _estimate(name, *pair, size)
    test = result.tests[pair]
    yield from _estimate("these sentences", *pair, test.estimate)
    yield "these sentences, statistic", *pair, test.statistic
    yield "these sentences, p", *pair, test.p
    yield "these sentences, p after Holm", *pair, result.p_holm[pair]


def _all_systems(result: ListeningResult) -> Iterator[_Row]:
    # The signs of n differences fall in 2^n ways, of which the two outermost are the furthest out.
    signs = [
        2.0 ** (1 - test.estimate.n) if test.name.startswith("Wilcoxon") else 0.0 for test in result.tests.values()
    ]
    if any(signs):
        yield "least p of these sentences", "", "", float(max(holm(signs)))
    if result.overall is not None:
        yield "Friedman, chi squared", "", "", result.overall.statistic
        yield "Friedman, p", "", "", result.overall.p
        yield from _estimate("Kendall's W", "", "", result.overall.concordance)
    if result.ranking is not None:
        confidence = next(iter(result.tests.values())).estimate.confidence
        for one, two in itertools.combinations(result.ranking.frame()["system"], 2):
            yield from _estimate("Bradley-Terry, odds", one, two, result.ranking.odds_ratio(one, two, confidence))


def _habits(votes: pd.DataFrame, kind: str) -> Iterator[_Row]:
    """Position bias, and what changes from the first half of a sitting to the second."""
    from scipy.stats import binomtest, ttest_1samp, ttest_rel

    if kind in {"AB", "ABX"} and "first" in votes:
        first = int(votes["first"].sum())
        yield "share of the first", "", "", first / len(votes)
        yield "share of the first: p", "", "", float(binomtest(first, len(votes)).pvalue)
    if kind == "CMOS":
        means = votes.groupby("listener")["rating"].mean().to_numpy(float)
        yield "mean of the second over the first", "", "", float(means.mean())
        if means.size > 1 and np.ptp(means):
            yield "mean of the second over the first: p", "", "", float(ttest_1samp(means, 0.0).pvalue)
    places = votes["trial"].astype(str).str.extract(r"^\d+-(\d+)$")[0]
    if places.isna().any():
        return
    placed = votes.assign(place=places.astype(int))
    placed["half"] = placed["place"] >= placed.groupby("listener")["place"].transform("median")
    for name in ("seconds", "rating"):
        if name not in placed:
            continue
        both = placed.pivot_table(index="listener", columns="half", values=name).dropna()
        if both.shape[1] < 2:
            continue
        yield f"{name}, first half", "", "", float(both[False].mean())
        yield f"{name}, second half", "", "", float(both[True].mean())
        if len(both) > 1 and np.ptp(both[True] - both[False]):
            yield f"{name}, halves: p", "", "", float(ttest_rel(both[True], both[False]).pvalue)
