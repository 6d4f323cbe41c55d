"""Compute the figures of a listening test's report anew from its votes.csv, without voicelab, and compare.

    python recompute.py            in the folder of the report; needs pandas, scipy and statsmodels

It ends with status 1 where a figure differs. Mixed models are fitted by maximising their restricted likelihood; its curvature
gives Satterthwaite's degrees of freedom. recompute.R has both from lme4 and lmerTest.
"""

from __future__ import annotations

import itertools
import json
import math
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy import linalg, optimize, stats

Row = tuple[str, str, str, float]
NAMES = ("listener", "item", "system", "against", "chosen", "other")
SCALES = {"MOS": (1.0, 5.0), "MUSHRA": (0.0, 100.0), "CMOS": (-3.0, 3.0)}
# What no effect is, and what intervals cannot leave: of ratings, of choices.
NULLS = ((0.0, (-math.inf, math.inf)), (0.5, (0.0, 1.0)))
Array = np.ndarray[Any, Any]
Ends = tuple[float, float, float]


class Working:
    """Numbers of known variances 1 / weights, whose groups have random effects: a mixed model of their mean."""

    def __init__(self, numbers: Array, weights: Array, groups: list[Array]) -> None:
        self.numbers, self.weights = numbers, weights
        self.alike = [np.equal.outer(group, group).astype(float) for group in groups]

    def covariance(self, variances: Array) -> Array:
        """Return that of the numbers."""
        return np.diag(1 / self.weights) + sum((v * a for v, a in zip(variances, self.alike, strict=True)), 0.0)

    def mean(self, variances: Array) -> tuple[float, float]:
        """Return the mean and the square of its error."""
        weights = np.linalg.solve(self.covariance(variances), np.ones(len(self.numbers)))
        return float(weights @ self.numbers / weights.sum()), float(1 / weights.sum())

    def deviance(self, variances: Array) -> float:
        """Return minus twice the log of the restricted likelihood."""
        root = np.linalg.cholesky(self.covariance(variances))
        one, number = linalg.solve_triangular(root, np.stack([np.ones(len(root)), self.numbers], 1), lower=True).T
        explained = (one @ number) ** 2 / (one @ one)
        return float(2 * np.log(root.diagonal()).sum() + math.log(one @ one) + number @ number - explained)

    def best(self, start: Array) -> Array:
        """Return the likeliest variances."""
        bounds, tight = [(0.0, None)] * len(start), {"xatol": 1e-7, "fatol": 1e-10}
        fit = optimize.minimize(self.deviance, start, bounds=bounds, jac="3-point")
        return np.asarray(optimize.minimize(self.deviance, fit.x, bounds=bounds, method="nelder-mead", options=tight).x)

    def degrees(self, variances: Array) -> float:
        """Return Satterthwaite's, where variances of 0 are taken as known."""
        from statsmodels.tools.numdiff import approx_fprime, approx_hess3

        active = np.flatnonzero(variances > 1e-6)
        if not active.size:
            return math.inf
        here, steps = variances[active], 2e-3 * variances[active]

        def whole(part: Array) -> Array:
            filled = variances.copy()
            filled[active] = part
            return filled

        curvature = approx_hess3(here, lambda part: self.deviance(whole(part)), steps)
        slopes = approx_fprime(here, lambda part: math.log(self.mean(whole(part))[1]), steps, centered=True).ravel()
        inverse = float(slopes @ np.linalg.pinv(curvature) @ slopes)
        return 1 / inverse if inverse > 0 else math.inf


def crossed(values: Array, who: Array, what: Array) -> Ends:
    """Return mean, standard error and degrees of freedom with crossed random effects, by REML."""
    spread = values.std()
    # Their own variance is a third effect, of groups of one.
    work = Working(values / spread, np.full(len(values), 1e12), [who, what, np.arange(len(values))])
    variances = work.best(np.full(3, 0.5))
    mean, square = work.mean(variances)
    return spread * mean, spread * math.sqrt(square), work.degrees(variances)


def logistic(chosen: Array, who: Array, what: Array) -> Ends | None:
    """Return the share in all listeners and sentences, its error and degrees of freedom: a logistic mixed model.

    By restricted pseudo-likelihood (Wolfinger and O'Connell 1993). None where its logits are not finite.
    """
    groups = [codes for codes in (who, what) if len(np.unique(codes)) < len(chosen)]
    logits: Array = np.full(len(chosen), math.log(chosen.mean() / (1 - chosen.mean())))
    before = math.inf
    variances = np.full(len(groups), 0.5)
    for _ in range(60):
        chance = 1 / (1 + np.exp(-logits))
        weights = chance * (1 - chance)
        work = Working(logits + (chosen - chance) / weights, weights, groups)
        variances = work.best(variances)
        mean, square = work.mean(variances)
        pull = np.linalg.solve(work.covariance(variances), work.numbers - mean)
        logits = mean + sum((v * (a @ pull) for v, a in zip(variances, work.alike, strict=True)), np.zeros(len(chosen)))
        if np.abs(logits).max() > 8:
            break
        if abs(mean - before) < 1e-6:
            # The factor brings the logistic distribution nearest to the normal one.
            shrink = (1 + (16 * math.sqrt(3) / (15 * math.pi)) ** 2 * variances.sum()) ** -0.5
            share = 1 / (1 + math.exp(-shrink * mean))
            return share, share * (1 - share) * shrink * math.sqrt(square), work.degrees(variances)
        before = mean
    return None


def reach(df: float, confidence: float) -> float:
    """Return how many errors an interval has to either side."""
    return float(stats.t.ppf((1 + confidence) / 2, df))


def named(figures: Mapping[str, float | Ends], one: str = "", two: str = "") -> Iterator[Row]:
    """Yield figures of a system, of a pair, or of all; a value with its interval is three."""
    for name, value in figures.items():
        if isinstance(value, tuple):
            yield from (
                (f"{name}{part}", one, two, end) for part, end in zip(("", ", low", ", high"), value, strict=True)
            )
        else:
            yield name, one, two, float(value)


def within(value: float, half: float, scale: tuple[float, float] = (-math.inf, math.inf)) -> Ends:
    """Return a value and its interval, which cannot leave the scale."""
    # NaN stays NaN.
    return value, float(np.maximum(scale[0], value - half)), float(np.minimum(scale[1], value + half))


def can_cross(rows: pd.DataFrame) -> bool:
    """Tell whether listeners and sentences can both be random."""
    return bool(rows["listener"].nunique() > 1 and rows["item"].nunique() > 1)


def explained(rows: pd.DataFrame) -> bool:
    """Tell whether residual variance is 0: all values are equal or, with gaps, listeners and sentences explain them."""
    if np.ptp(rows["value"]) == 0:
        return True
    cells = rows["listener"].nunique() * rows["item"].nunique()
    if len(rows) == cells and not rows.duplicated(["listener", "item"]).any():
        return False
    names = [name for name in ("listener", "item") if rows[name].nunique() < len(rows)]
    design = pd.get_dummies(rows[names].astype(str), dtype=float).assign(one=1.0).to_numpy()
    centred = (rows["value"] - rows["value"].mean()).to_numpy()
    solution, _, rank, _ = np.linalg.lstsq(design, centred)
    left = ((centred - design @ solution) ** 2).sum()
    return bool(rank < len(rows) and left < 1e-9 * (centred**2).sum())


def sign_test(rows: pd.DataFrame, kind: str, confidence: float) -> tuple[Ends, float, float]:
    """Return the estimate, and p above and below no effect, of answers without residual variance: exact sign tests."""
    choices = kind in {"AB", "ABX"}
    null, value, tail = 0.5 * choices, float(rows["value"].mean()), (1 - confidence) / 2
    units = [rows.groupby(name)["value"].mean().to_numpy() - null for name in ("listener", "item")]
    few = min(map(len, units))
    if choices:
        low = stats.beta.ppf(tail, value * few, few - value * few + 1) if value > 0 else 0.0
        high = stats.beta.isf(tail, value * few + 1, few - value * few) if value < 1 else 1.0
    else:
        halves = [reach(len(own) - 1, confidence) * own.std(ddof=1) / len(own) ** 0.5 for own in units if np.ptp(own)]
        half = max(halves, default=(1 - tail ** (1 / few)) * max(2 * abs(value), 1.0))
        low, high = value - half, value + half
    signs = [np.sign(np.round(own, 12)) for own in ([rows["value"] - null] if kind == "ABX" else units)]
    above, below = (
        max(float(stats.binom.sf((side * own > 0).sum() - 1, (own != 0).sum(), 0.5)) for own in signs)
        for side in (1, -1)
    )
    return (value, float(low), float(high)), above, below


def score(rows: pd.DataFrame, scale: tuple[float, float], confidence: float) -> Ends:
    """Return a mean rating with its interval over listeners and sentences, or over listeners, or votes, alone."""
    if can_cross(rows) and not explained(rows):
        mean, error, df = crossed(*(rows[name].to_numpy() for name in ("value", "listener", "item")))
        return within(mean, reach(df, confidence) * error, scale)
    means = rows["value"] if rows["listener"].nunique() == 1 else rows.groupby("listener")["value"].mean()
    if np.ptp(means) == 0:
        return within(rows["value"].mean(), 1 - ((1 - confidence) / 2) ** (1 / len(means)), scale)
    return within(rows["value"].mean(), reach(len(means) - 1, confidence) * means.std() / len(means) ** 0.5, scale)


def rank_sums(ranks: Array) -> Array:
    """Return the chance of each sum of the positive ranks, whole numbers, when all signs are as likely."""
    ways = np.zeros(ranks.sum() + 1)
    ways[0] = 1.0
    for rank in ranks:
        ways[rank:] += ways[:-rank].copy()
    return np.asarray(ways / ways.sum())


def signed_rank(differences: Array, confidence: float) -> tuple[float, float, Ends]:
    """Return Wilcoxon's statistic, p (exact to 50 differences, ties and all), and the estimate with its interval."""
    count = len(differences)
    differences = np.round(differences, 12)
    means = np.sort([(one + two) / 2 for one, two in itertools.combinations_with_replacement(differences, 2)])
    tail = (1 - confidence) / 2
    if count > 60:
        middle = count * (count + 1) / 4
        place = math.floor(middle + stats.norm.ppf(tail) * math.sqrt(middle * (2 * count + 1) / 6))
    else:
        place = int((rank_sums(np.arange(1, count + 1)).cumsum() <= tail).sum())
    ends = (means[place - 1], means[-place]) if place > 0 else (-math.inf, math.inf)
    estimate = (float(np.median(means)), float(ends[0]), float(ends[1]))
    differences = differences[differences != 0]
    if not differences.size:
        return 0.0, 1.0, estimate
    ranks = stats.rankdata(np.abs(differences))
    positive = float(ranks[differences > 0].sum())
    if differences.size > 50:
        return positive, float(stats.wilcoxon(differences, method="asymptotic").pvalue), estimate
    ways, here = rank_sums(np.round(2 * ranks).astype(int)), round(2 * positive)
    return positive, float(min(1.0, 2 * min(ways[: here + 1].sum(), ways[here:].sum()))), estimate


def agreement(table: Array) -> tuple[float, float]:
    """Return ICC(2,1) and ICC(2,k) of (targets, raters): Shrout and Fleiss."""
    targets, raters = table.shape
    total = ((table - table.mean()) ** 2).sum()
    between = raters * ((table.mean(axis=1) - table.mean()) ** 2).sum()
    judges = targets * ((table.mean(axis=0) - table.mean()) ** 2).sum()
    bms, jms = between / (targets - 1), judges / (raters - 1)
    ems = (total - between - judges) / ((targets - 1) * (raters - 1))
    one = (bms - ems) / (bms + (raters - 1) * ems + raters * (jms - ems) / targets)
    return one, (bms - ems) / (bms + (jms - ems) / targets)


def alpha(table: Array, level: str) -> float:
    """Return Krippendorff's alpha of (raters, targets), NaN for no rating; level "interval" or "ordinal"."""
    codes = np.unique(table[np.isfinite(table)])
    counts = np.array([[(column == code).sum() for code in codes] for column in table.T], float)
    counts = counts[counts.sum(axis=1) > 1]
    totals = counts.sum(axis=0)
    steps = np.subtract.outer(codes, codes)
    if level == "ordinal":
        sums = np.concatenate(([0.0], np.cumsum(totals)))
        middles = (sums[:-1] + sums[1:]) / 2
        steps = np.subtract.outer(middles, middles)
    pairs = sum((np.outer(row, row) - np.diag(row)) / (row.sum() - 1) for row in counts)
    expected = (np.outer(totals, totals) - np.diag(totals)) / (totals.sum() - 1)
    return float(1 - (pairs * steps**2).sum() / (expected * steps**2).sum())


def spreads(votes: pd.DataFrame) -> Iterator[Row]:
    """How many ratings each system has, and how they spread."""
    for system, rows in votes.groupby("system"):
        low, middle, high = np.percentile(rows["rating"], [25, 50, 75])
        spread = {"sd": rows["rating"].std(), "votes": len(rows), "q1": low, "median": middle, "q3": high}
        yield from named(spread, str(system))


def ratings(votes: pd.DataFrame, kind: str, confidence: float) -> Iterator[Row]:
    """The figures of each system, and how far listeners agree."""
    for system, rows in votes.groupby("system"):
        yield from named({"mean": score(rows.assign(value=rows["rating"]), SCALES[kind], confidence)}, str(system))
    yield from spreads(votes)
    targets = votes.pivot_table(index=["item", "system"], columns="listener", values="rating")
    if targets.notna().all(axis=None) and min(targets.shape) > 1:
        one, several = agreement(targets.to_numpy())
        yield from named({"icc(2,1)": one, "icc(2,k)": several})
    yield from named({"alpha": alpha(targets.to_numpy().T, "ordinal" if kind == "MOS" else "interval")})


def holm(pairs: dict[tuple[str, str], float]) -> dict[tuple[str, str], float]:
    """Return p-values corrected for how many there are."""
    from statsmodels.stats.multitest import multipletests

    if not pairs or any(math.isnan(p) for p in pairs.values()):
        return dict.fromkeys(pairs, math.nan)
    return dict(zip(pairs, multipletests(list(pairs.values()), method="holm")[1], strict=True))


def values_of(votes: pd.DataFrame, kind: str, one: str, two: str) -> tuple[pd.DataFrame, float]:
    """Return what the first of a pair is ahead, by listener and sentence, and the spread of single ratings."""
    if kind in {"MOS", "MUSHRA"}:
        cells = votes.pivot_table(index=["listener", "item"], columns="system", values="rating")
        spreads = [votes.loc[votes["system"] == system, "rating"].var() for system in (one, two)]
        return (cells[one] - cells[two]).dropna().reset_index(name="value"), math.sqrt(sum(spreads) / 2)
    if kind == "CMOS":
        rows = votes[votes[["system", "against"]].isin([one, two]).all(axis=1)]
        rows = rows.assign(value=np.where(rows["system"] == one, rows["rating"], -rows["rating"]))
        return rows, rows["value"].std()
    rows = votes[votes[["chosen", "other"]].isin([one, two]).all(axis=1)]
    right = rows["right"].astype(bool) if kind == "ABX" else rows["chosen"] == one
    return rows.assign(value=right.astype(float)), math.nan


def shift_of(t: float, df: float, tail: float) -> float:
    """Return the shift of the noncentral t distribution below whose ``tail`` the observed t lies."""

    def beyond(shift: float) -> float:
        below = float(stats.nct.cdf(t, df, shift))
        return (below if math.isfinite(below) else float(shift < t)) - tail

    wide = 10 + 3 * abs(t)
    return float(optimize.brentq(beyond, t - wide, t + wide))


def sizes(
    rows: pd.DataFrame, kind: str, share: Ends, fit: Ends | None, sd: float, confidence: float
) -> Iterator[tuple[str, Ends]]:
    """Effect sizes: of choices as odds, of ratings in units of their spread and by how often one is above the other."""
    if kind in {"AB", "ABX"}:
        yield "odds ratio", tuple(end / (1 - end) if end < 1 else math.inf for end in share)  # type: ignore[misc]
        yield "probability of superiority", share
        return
    if fit is not None:
        value, error, df = fit
        t, tails = value / error, ((1 + confidence) / 2, (1 - confidence) / 2)
        low, high = (shift_of(t, df, tail) for tail in tails)
        yield "standardised difference", (value / sd, low * error / sd, high * error / sd)
    signs = rows.assign(value=np.sign(rows["value"]))
    if np.ptp(signs["value"]) and fit is None:
        value, low, high = sign_test(signs, kind, confidence)[0]
        delta = value, max(-1.0, low), min(1.0, high)
    elif np.ptp(signs["value"]):
        delta = score(signs, (-1.0, 1.0), confidence)
    else:
        bound = 2 * (1 - ((1 - confidence) / 2) ** (1 / rows["listener"].nunique()))
        delta = within(float(signs["value"].iloc[0]), bound, (-1.0, 1.0))
    yield "Cliff's delta", delta
    yield "probability of superiority", tuple((1 + end) / 2 for end in delta)  # type: ignore[misc]


def of_these_sentences(
    votes: pd.DataFrame, rows: pd.DataFrame, study: dict[str, Any], one: str, two: str
) -> tuple[float, float, Ends] | None:
    """Return statistic, p and estimate of the test that speaks of other listeners alone; None of one listener's ratings."""
    kind, confidence = study["kind"], study["confidence"]
    if kind in {"MOS", "MUSHRA"}:
        systems = votes[votes["system"].isin(study["systems"])]
        means = systems.pivot_table(index="listener", columns="system", values="rating").dropna()
        apart = (means[one] - means[two]).to_numpy()
    else:
        apart = rows.groupby("listener")["value"].mean().to_numpy()
    if kind in {"AB", "ABX"}:
        first = int(rows["value"].sum())
        side = "greater" if kind == "ABX" else "two-sided"
        limits = stats.binomtest(first, len(rows)).proportion_ci(confidence)
        exact = (first / len(rows), limits.low, limits.high)
        if kind == "ABX" or len(apart) in {1, len(rows)}:
            return first, stats.binomtest(first, len(rows), alternative=side).pvalue, exact
        statistic, p, (value, low, high) = signed_rank(apart - 0.5, confidence)
        return statistic, p, (value + 0.5, max(0.0, min(low + 0.5, exact[1])), min(1.0, max(high + 0.5, exact[2])))
    return signed_rank(apart, confidence) if len(apart) > 1 else None


def comparisons(votes: pd.DataFrame, study: dict[str, Any], pairs: list[tuple[str, str]]) -> Iterator[Row]:
    """The tests of each pair, and what was registered."""
    kind, confidence = study["kind"], study["confidence"]
    fits: dict[tuple[str, str], Ends] = {}
    exact: dict[tuple[str, str], tuple[Ends, float, float]] = {}
    crossed_p, these_p, signs = {}, {}, []
    for one, two in pairs:
        rows, sd = values_of(votes, kind, one, two)
        if rows.empty:
            continue
        ours: dict[str, float | Ends] = {}
        if kind == "CMOS":
            turned = rows.assign(value=-rows["value"])
            yield from named({"mean": score(turned, SCALES[kind], confidence)}, two, one)
        choices, fit = kind in {"AB", "ABX"}, None
        columns = [rows[name].to_numpy() for name in ("value", "listener", "item")]
        if can_cross(rows) and choices and np.ptp(rows["value"]):
            fit = logistic(*columns)
        if can_cross(rows) and fit is None and not explained(rows):
            fit = crossed(*columns)
        if fit is not None:
            fits[one, two] = value, error, df = fit
            null, scale = NULLS[choices]
            t = (value - null) / error
            crossed_p[one, two] = p = float(stats.t.sf(t, df) if kind == "ABX" else 2 * stats.t.sf(abs(t), df))
            ends = within(value, reach(df, confidence) * error, scale)
            ours |= {"crossed": ends, "crossed, error": error, "crossed, df": df, "crossed, t": t, "crossed, p": p}
            ours |= dict(sizes(rows, kind, ends, fit, sd, confidence))
        elif can_cross(rows):
            exact[one, two] = ends, above, below = sign_test(rows, kind, confidence)
            crossed_p[one, two] = p = above if kind == "ABX" else min(1.0, 2 * min(above, below))
            ours |= {"crossed": ends, "crossed, p": p, **dict(sizes(rows, kind, ends, None, sd, confidence))}
        tested = of_these_sentences(votes, rows, study, one, two)
        if tested is not None:
            statistic, these_p[one, two], estimate = tested
            listeners = rows["listener"].nunique()
            by_votes = kind == "ABX" or (kind == "AB" and listeners in {1, len(rows)})
            signs.append(0.0 if by_votes else 2.0 ** (1 - listeners))
            ours |= {"these sentences": estimate, "these sentences, statistic": statistic}
            ours["these sentences, p"] = these_p[one, two]
        yield from named(ours, one, two)
    for name, corrected in (("crossed", holm(crossed_p)), ("these sentences", holm(these_p))):
        yield from ((f"{name}, p after Holm", one, two, p) for (one, two), p in corrected.items())
    yield from named({"least p of these sentences": min(1.0, max(signs, default=0.0) * sum(map(bool, signs)))})
    if "plan" in study:
        yield from registered(study, fits, exact)


def registered(
    study: dict[str, Any],
    fits: dict[tuple[str, str], Ends],
    exact: dict[tuple[str, str], tuple[Ends, float, float]],
) -> Iterator[Row]:
    """The claim that was registered, the way round that it was."""
    plan = study["plan"]
    null, scale = NULLS[study["kind"] in {"AB", "ABX"}]
    one, two = plan["primary"]
    for pair in ((one, two), (two, one)):
        if pair in exact:
            ends, above, below = exact[pair]
            if pair != (one, two) and study["kind"] != "ABX":
                ends, above, below = (2 * null - ends[0], 2 * null - ends[2], 2 * null - ends[1]), below, above
            different = min(1.0, 2 * min(above, below))
            # Signs cannot show a bound beyond no effect.
            p = {"different": different, "equivalent": 1.0}.get(plan["claim"], above)
            yield from named({"registered": ends, "registered, p": p}, one, two)
            return
    turned = (one, two) not in fits
    value, error, df = fits[two, one] if turned else fits[one, two]
    if turned and study["kind"] != "ABX":  # right answers have no direction
        value = 2 * null - value
    ends = within(value, reach(df, study["confidence"]) * error, scale)
    margin = plan["margin"] or 0.0
    above, below = (float(stats.t.sf((value - null + side) / error, df)) for side in (margin, -margin))
    claims = {"different": 2 * min(above, 1 - above), "equivalent": max(above, 1 - below)}
    p = claims.get(plan["claim"], above)
    yield from named({"registered": ends, "registered, t": (value - null) / error, "registered, p": p}, one, two)


def of_all(votes: pd.DataFrame, study: dict[str, Any], pairs: list[tuple[str, str]]) -> Iterator[Row]:
    """Friedman's test with Kendall's W, and Bradley and Terry's odds."""
    import statsmodels.api as sm

    systems, kind, confidence = study["systems"], study["kind"], study["confidence"]
    if kind in {"MOS", "MUSHRA"} and len(systems) > 2 and votes["listener"].nunique() > 1:
        rated = votes[votes["system"].isin(systems)]
        table = rated.pivot_table(index="listener", columns="system", values="rating").dropna()
        test = stats.friedmanchisquare(*table.to_numpy().T)
        ranked = concordance(stats.rankdata(table, axis=1), confidence)
        yield from named({"Friedman, chi squared": test.statistic, "Friedman, p": test.pvalue, "Kendall's W": ranked})
    if kind == "AB" and len(systems) > 2:
        design = pd.DataFrame(0.0, index=votes.index, columns=systems)
        for system in systems:
            design[system] = (votes["chosen"] == system) * 1.0 - (votes["other"] == system)
        # Each vote as won and, turned round, as lost: half its weight each.
        both = np.vstack([design.to_numpy()[:, 1:], -design.to_numpy()[:, 1:]])
        won = np.repeat([1.0, 0.0], len(design))
        fit = sm.GLM(won, both, sm.families.Binomial(), freq_weights=np.full(len(won), 0.5)).fit(tol=1e-12)
        strength = dict(zip(systems, [0.0, *fit.params], strict=True))
        covariance = np.pad(fit.cov_params(), ((1, 0), (1, 0)))
        for one, two in [*pairs, *(pair[::-1] for pair in pairs)]:
            a, b = systems.index(one), systems.index(two)
            error = math.sqrt(covariance[a, a] + covariance[b, b] - 2 * covariance[a, b])
            logit, half = strength[one] - strength[two], float(stats.norm.ppf((1 + confidence) / 2)) * error
            low, middle, high = (math.exp(logit + side) for side in (-half, 0.0, half))
            yield from named({"Bradley-Terry, odds": (middle, low, high)}, one, two)


def concordance(ranks: Array, confidence: float) -> Ends:
    """Return Kendall's W of (raters, systems), with the jackknife's interval of the mean rank correlation."""
    count = len(ranks)

    def w_of(ranks: Array) -> float:
        centred = ranks - ranks.mean(axis=1, keepdims=True)
        return float((centred.sum(axis=0) ** 2).sum() / (len(ranks) * (centred**2).sum()))

    def rho_of(ranks: Array) -> float:
        return (len(ranks) * w_of(ranks) - 1) / (len(ranks) - 1)

    if count == 2:
        return w_of(ranks), math.nan, math.nan
    rho, without = rho_of(ranks), np.array([rho_of(np.delete(ranks, rater, axis=0)) for rater in range(count)])
    error = math.sqrt((count - 1) / count * ((without - without.mean()) ** 2).sum())
    turned = min(0.5, 1 - ((1 - confidence) / 2) ** (1 / count))
    half = reach(count - 1, confidence) * error if error > 1e-12 else 1 - (1 - 2 * turned) ** 2
    low, high = ((1 + (count - 1) * end) / count for end in (rho - half, rho + half))
    return w_of(ranks), max(0.0, low), min(1.0, high)


def habits(votes: pd.DataFrame, kind: str) -> Iterator[Row]:
    """Position bias, and what changes from the first half of a sitting to the second."""
    figures: dict[str, float] = {}
    if kind in {"AB", "ABX"} and "first" in votes:
        first = votes["first"].astype(bool)
        p = stats.binomtest(int(first.sum()), len(first)).pvalue
        figures |= {"share of the first": first.mean(), "share of the first: p": p}
    if kind == "CMOS":
        means = votes.groupby("listener")["rating"].mean()
        figures["mean of the second over the first"] = means.mean()
        if len(means) > 1 and np.ptp(np.round(means, 12)):
            figures["mean of the second over the first: p"] = stats.ttest_1samp(means, 0.0).pvalue
    half = votes["place"] >= votes.groupby("listener")["place"].transform("median") if "place" in votes else None
    for name in ("seconds", "rating") if half is not None else ():
        if name not in votes:
            continue
        both = votes.assign(half=half).pivot_table(index="listener", columns="half", values=name).dropna()
        if both.shape[1] < 2:
            continue
        figures |= {f"{name}, first half": both[False].mean(), f"{name}, second half": both[True].mean()}
        if len(both) > 1 and np.ptp(np.round(both[True] - both[False], 12)):
            figures[f"{name}, halves: p"] = stats.ttest_rel(both[True], both[False]).pvalue
    yield from named(figures)


def counts(everything: pd.DataFrame, votes: pd.DataFrame) -> Iterator[Row]:
    """How many listeners, sentences, votes and gold questions there are; ``votes`` are those that count."""
    figures: dict[str, float] = {"listeners who took part": everything["listener"].nunique()}
    asked = everything.drop_duplicates(["listener", "trial"])
    gold = asked[asked["check"].astype(bool)]
    figures |= {"gold questions": len(gold), "gold questions, right": gold["passed"].astype(bool).sum()}
    if "plays" in everything and (everything["plays"] > 0).any():
        figures["answers without a sound"] = (asked["plays"] == 0).sum()
    figures |= {"listeners": votes["listener"].nunique(), "sentences": votes["item"].nunique(), "votes": len(votes)}
    if not votes.empty:
        # Of each clip, or each pair of clips.
        systems = votes[[name for name in NAMES[2:] if name in votes]].apply(lambda row: tuple(sorted(row)), axis=1)
        clips = votes.groupby([votes["item"], systems]).size()
        ends = {"least": clips.min(), "most": clips.max(), "median": clips.median()}
        figures |= {f"votes of a clip, {name}": value for name, value in ends.items()}
    yield from named(figures)


def figures(everything: pd.DataFrame, study: dict[str, Any]) -> Iterator[Row]:
    """Return name, first and second system, and value of every figure."""
    votes = everything[everything["counts"].astype(bool)]
    votes = votes.drop(columns=[name for name in votes if votes[name].isna().all()])
    yield from counts(everything, votes)
    if study["kind"] in {"MOS", "MUSHRA"}:
        yield from ratings(votes, study["kind"], study["confidence"])
    pairs = list(itertools.combinations(study["systems"], 2))
    yield from comparisons(votes, study, pairs)
    yield from of_all(votes, study, pairs)
    yield from habits(votes, study["kind"])


def plain(value: Any) -> Any:
    """Return a cell without the quote that keeps spreadsheets from running its text as a formula."""
    return re.sub(r"\A'(?='*[=+\-@\t\r\n＝＋－＠])", "", value) if isinstance(value, str) else value


def main(folder: Path, say: Callable[[str], Any] = sys.stdout.write) -> int:
    """Compare figures.csv with what votes.csv gives; 1 where they differ."""
    study = json.loads((folder / "study.json").read_text(encoding="utf-8"))
    votes = pd.read_csv(folder / "votes.csv", dtype=dict.fromkeys(NAMES, str)).map(plain)
    printed = pd.read_csv(folder / "figures.csv", keep_default_na=False).map(plain)
    anew = {row[:3]: float(row[3]) for row in figures(votes, study)}
    ends = printed[["figure", "first", "second"]].assign(reach=printed["value"].abs())
    ends["figure"] = ends["figure"].str.removesuffix(", low").str.removesuffix(", high")
    reaches = ends.groupby(list(ends.columns[:3]))["reach"].transform("max")
    different = 0
    # An end near 0 of a wide interval is as exact as the interval.
    for (figure, first, second, number), size in zip(printed.itertuples(index=False, name=None), reaches, strict=True):
        key = (str(figure), str(first), str(second))
        value = anew.get(key)
        same = value is not None and abs(value - number) <= max(2e-3 * size, 2e-4)
        different += not same
        verdict = "same" if same else "OTHER"
        say(f"{verdict:6} {' '.join(key).strip():60} {number:.6g} {math.nan if value is None else value:.6g}\n")
    say(f"{len(printed)} figures, {different} of them other\n")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main(Path(__file__).resolve().parent))
