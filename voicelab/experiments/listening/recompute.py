"""Compute the figures of a listening test's report anew from its votes.csv, without voicelab, and compare.

    python recompute.py            in the folder of the report; needs pandas, scipy and statsmodels

It ends with status 1 where a figure differs. Means and their errors come from statsmodels' mixed model; degrees of freedom by
Satterthwaite's formula where every listener has one value of every sentence, and by recompute.R (lmerTest) elsewhere.
"""

from __future__ import annotations

import itertools
import json
import math
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

Row = tuple[str, str, str, float]
NAMES = ("listener", "item", "system", "against", "chosen", "other")
Array = np.ndarray[Any, Any]


def crossed(values: Array, who: Array, what: Array) -> tuple[float, float, float]:
    """Return mean, standard error and degrees of freedom (NaN: ask R) with crossed random effects, by REML."""
    import statsmodels.api as sm

    frame = pd.DataFrame({"y": values, "who": who, "what": what})
    parts = {"who": "0 + C(who)", "what": "0 + C(what)"}
    model = sm.MixedLM.from_formula("y ~ 1", groups=np.ones(len(frame)), vc_formula=parts, data=frame)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a variance of 0 lies at the border of what there is
        # Its searches stop early at that border, or fail there: the likeliest of three counts.
        fits = []
        for method in ("lbfgs", "powell", "nm"):
            with suppress(np.linalg.LinAlgError):
                fits.append(model.fit(reml=True, method=method))
    fit = max(fits, key=lambda fit: fit.llf)
    table = frame.pivot_table(index="who", columns="what", values="y")
    df = degrees(table.to_numpy()) if table.size == len(frame) and table.notna().all(axis=None) else math.nan
    # Where a variance is 0 statsmodels has no standard error: the fitted variances give it.
    alike = {name: np.equal.outer(frame[name].to_numpy(), frame[name].to_numpy()) for name in parts}
    variance = fit.scale * np.eye(len(frame))
    variance += sum(part * alike[name] for name, part in zip(model.exog_vc.names, fit.vcomp, strict=True))
    weights = np.linalg.solve(variance, np.ones(len(frame)))
    return float(weights @ values / weights.sum()), float(weights.sum() ** -0.5), df


def degrees(table: Array) -> float:
    """Return Satterthwaite's degrees of freedom of the mean of a complete table: by its mean squares."""
    rows, columns = table.shape
    free = np.array([rows - 1, columns - 1, (rows - 1) * (columns - 1)], float)
    by_row, by_column = table.mean(axis=1) - table.mean(), table.mean(axis=0) - table.mean()
    rest = table - table.mean() - by_row[:, None] - by_column[None]
    sums = np.array([columns * (by_row**2).sum(), rows * (by_column**2).sum(), (rest**2).sum()])
    one, two, noise = sums / free
    bound = 1 + 1e-6  # of equal mean squares, which differ by rounding
    if one > bound * noise and two > bound * noise:
        return float((one + two - noise) ** 2 / (np.array([one, two, noise]) ** 2 / free).sum())
    # A variance that would be below 0 is 0, and its mean square joins the rest.
    if two > bound * (sums[0] + sums[2]) / (free[0] + free[2]):
        return float(free[1])
    if one > bound * (sums[1] + sums[2]) / (free[1] + free[2]):
        return float(free[0])
    return float(free.sum())


def signed_rank(differences: Array) -> float:
    """Return Wilcoxon's exact two-sided p: every sign of every rank, ties and all."""
    from scipy.stats import rankdata

    differences = differences[differences != 0]
    if not differences.size:
        return 1.0
    ranks = np.round(2 * rankdata(np.abs(np.round(differences, 12)))).astype(int)
    ways = np.zeros(ranks.sum() + 1)
    ways[0] = 1.0
    for rank in ranks:
        ways[rank:] += ways[:-rank].copy()
    ways /= ways.sum()
    here = int(ranks[differences > 0].sum())
    return float(min(1.0, 2 * min(ways[: here + 1].sum(), ways[here:].sum())))


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


def ratings(votes: pd.DataFrame, kind: str) -> Iterator[Row]:
    """The figures of each system, and how far listeners agree."""
    for system, rows in votes.groupby("system"):
        low, middle, high = np.percentile(rows["rating"], [25, 50, 75])
        yield "mean", str(system), "", rows["rating"].mean()
        yield "sd", str(system), "", rows["rating"].std(ddof=1)
        yield "votes", str(system), "", len(rows)
        yield from (("q1", str(system), "", low), ("median", str(system), "", middle), ("q3", str(system), "", high))
    targets = votes.pivot_table(index=["item", "system"], columns="listener", values="rating")
    if targets.notna().all(axis=None) and min(targets.shape) > 1:
        one, several = agreement(targets.to_numpy())
        yield from (("icc(2,1)", "", "", one), ("icc(2,k)", "", "", several))
    yield "alpha", "", "", alpha(targets.to_numpy().T, "ordinal" if kind == "MOS" else "interval")


def comparisons(votes: pd.DataFrame, kind: str, systems: list[str], pairs: list[list[str]]) -> Iterator[Row]:
    """The tests of each pair."""
    for one, two in pairs:
        if kind in {"MOS", "MUSHRA"}:
            cells = votes.pivot_table(index=["listener", "item"], columns="system", values="rating")
            values = (cells[one] - cells[two]).dropna().reset_index(name="value")
            means = votes[votes["system"].isin(systems)].pivot_table(
                index="listener", columns="system", values="rating"
            )
            means = means.dropna()
            apart = (means[one] - means[two]).to_numpy()
        elif kind == "CMOS":
            rows = votes[votes[["system", "against"]].isin([one, two]).all(axis=1)]
            values = rows.assign(value=np.where(rows["system"] == one, rows["rating"], -rows["rating"]))
            apart = values.groupby("listener")["value"].mean().to_numpy()
        else:
            rows = votes[votes[["chosen", "other"]].isin([one, two]).all(axis=1)]
            right = rows["right"].astype(bool) if kind == "ABX" else rows["chosen"] == one
            values = rows.assign(value=right.astype(float) - 0.5)
            apart = values.groupby("listener")["value"].mean().to_numpy()
        if kind != "ABX":
            yield "wilcoxon p", one, two, signed_rank(apart)
        if values["listener"].nunique() > 1 and values["item"].nunique() > 1 and np.ptp(values["value"]):
            mean, error, df = crossed(*(values[name].to_numpy() for name in ("value", "listener", "item")))
            yield from (("difference", one, two, mean), ("error", one, two, error), ("df", one, two, df))


def habits(votes: pd.DataFrame, kind: str) -> Iterator[Row]:
    """Position bias, and what changes from the first half of a sitting to the second."""
    from scipy.stats import binomtest, ttest_1samp, ttest_rel

    if kind in {"AB", "ABX"} and "first" in votes:
        first = votes["first"].astype(bool)
        yield "share of the first", "", "", first.mean()
        yield "share of the first: p", "", "", binomtest(int(first.sum()), len(first)).pvalue
    if kind == "CMOS":
        means = votes.groupby("listener")["rating"].mean()
        yield "mean of the second over the first", "", "", means.mean()
        if len(means) > 1 and np.ptp(means):
            yield "mean of the second over the first: p", "", "", ttest_1samp(means, 0.0).pvalue
    if "place" not in votes:
        return
    half = votes["place"] >= votes.groupby("listener")["place"].transform("median")
    for name in ("seconds", "rating"):
        if name not in votes:
            continue
        both = votes.assign(half=half).pivot_table(index="listener", columns="half", values=name).dropna()
        if both.shape[1] < 2:
            continue
        yield f"{name}, first half", "", "", both[False].mean()
        yield f"{name}, second half", "", "", both[True].mean()
        if len(both) > 1 and np.ptp(both[True] - both[False]):
            yield f"{name}, halves: p", "", "", ttest_rel(both[True], both[False]).pvalue


def figures(votes: pd.DataFrame, kind: str, systems: list[str]) -> Iterator[Row]:
    """Return name, first and second system, and value of every figure."""
    yield "listeners", "", "", votes["listener"].nunique()
    yield "sentences", "", "", votes["item"].nunique()
    yield "votes", "", "", len(votes)
    if kind in {"MOS", "MUSHRA"}:
        yield from ratings(votes, kind)
    yield from comparisons(votes, kind, systems, [list(pair) for pair in itertools.combinations(systems, 2)])
    yield from habits(votes, kind)


def main(folder: Path, say: Callable[[str], Any] = sys.stdout.write) -> int:
    """Compare figures.csv with what votes.csv gives; 1 where they differ."""
    study = json.loads((folder / "study.json").read_text(encoding="utf-8"))
    votes = pd.read_csv(folder / "votes.csv", dtype=dict.fromkeys(NAMES, str))
    votes = votes[votes["counts"].astype(bool)].drop(columns=[name for name in votes if votes[name].isna().all()])
    printed = pd.read_csv(folder / "figures.csv", keep_default_na=False)
    anew = {row[:3]: float(row[3]) for row in figures(votes, study["kind"], study["systems"])}
    different = 0
    for figure, first, second, number in printed.itertuples(index=False, name=None):
        key = (str(figure), str(first), str(second))
        value = anew.get(key, math.nan)
        same = math.isclose(value, number, rel_tol=2e-3, abs_tol=2e-4)
        verdict = "same" if same else "by R" if key[0] == "df" and math.isnan(value) else "OTHER"
        different += verdict == "OTHER"
        say(f"{verdict:6} {' '.join(key).strip():50} {number:.6g} {value:.6g}\n")
    say(f"{len(printed)} figures, {different} of them other\n")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main(Path(__file__).resolve().parent))
