"""Analyze the responses of a listening test with pandas, scipy and statsmodels: python analysis.py [votes.csv].

Ratings: means of systems, differences of pairs by linear mixed models: value ~ 1 + (1 | listener) + (1 | item), REML,
t intervals (95 %; ABX 90 %), df: the smaller number of listeners and items, minus 1. AB, ABX: the same model of choices
minus 0.5, and exact binomial tests. Variance of a mean of n values: at least 1 / 12 / n. Means of listeners: Wilcoxon.
Transcription: words correct ~ system, with interactions of system with listener and item as random effects, too.
"""

import itertools
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import statsmodels.formula.api as smf
from scipy import stats

SYSTEMS = "^(system|against|chosen|other)$"
COLUMNS = ["figure", "first", "second", "estimate", "low", "high", "error", "p", "method"]


def mean_of(rows: pd.DataFrame, pair: bool = True) -> tuple[object, ...]:
    """Estimate the mean of ``value``, or the lead of a system, with interval, standard error, p (of a pair) and method."""
    counts, sd = rows[["listener", "item"]].nunique(), rows["value"].std()
    if counts.min() < 2:
        return rows["value"].mean(), *[np.nan] * 4, "mean alone"
    formula, name = ("value ~ ahead + C(rest)", "ahead") if "ahead" in rows else ("value ~ 1", "Intercept")
    data, groups = (
        rows.assign(value=rows["value"] / sd, all=1),
        rows.filter(regex="^(listener|item)(_system)?$").nunique(),
    )
    if sd > 1e-9 and smf.ols(f"{formula} + C(listener) + C(item)", data).fit().ssr > 1e-9 * len(data):
        effects = {group: f"0 + C({group})" for group in groups.index[groups < len(rows)]}
        fit = smf.mixedlm(formula, data, groups="all", vc_formula=effects).fit()
        mean, error, df, method = sd * fit.fe_params[name], sd * fit.bse_fe[name], counts.min() - 1, "mixed model"
    else:
        means = [rows.groupby(group)["value"].mean() for group in counts.index]
        parts = np.array([own.var() / len(own) if np.ptp(own) > 1e-9 else 0.0 for own in means])
        df = parts.sum() ** 2 / max((parts**2 / (counts - 1)).sum(), 1e-300)
        mean, error, method = rows["value"].mean(), np.sqrt(parts.sum()), "no residual variance"
    max_df, min_error = counts.min() if counts.min() <= 5 else counts.sum() - 2, np.sqrt(1 / 12 / len(rows))
    error, df = (error, min(df, max_df)) if error > min_error else (min_error, max_df)
    half, p = stats.t.isf(0.05 if "right" in rows else 0.025, df) * error, 2 * stats.t.sf(abs(mean / error), df)
    return mean, mean - half, mean + half, error, p if pair else np.nan, method


def differences(table: pd.DataFrame, pair: tuple[str, str]) -> pd.DataFrame:
    """Return the lead of the first system by listener and item (choices: 0.5 or -0.5), or transcriptions of both."""
    kind, rows = table["kind"].iloc[0], table[table.filter(regex=SYSTEMS).isin(pair).all(axis=1)]
    if kind == "transcription":  # each item is heard with one system; of other systems, ahead is 0
        rest, own = table["system"].where(~table["system"].isin(pair), ""), 1.0 * (table["system"] == pair[0])
        crossed = {f"{name}_system": table[name] + "\0" + table["system"] for name in ("listener", "item")}
        return table.assign(value=table["rating"], ahead=own, rest=rest, **crossed)
    if kind == "CMOS":
        return rows.assign(value=rows["rating"].where(rows["system"] == pair[0], -rows["rating"]))
    if kind in {"AB", "ABX"}:
        return rows.assign(value=(rows["right"] == "True" if kind == "ABX" else rows["chosen"] == pair[0]) - 0.5)
    cells = rows.pivot_table(index=["listener", "item"], columns="system", values="rating")
    return cells[pair[0]].sub(cells[pair[1]]).dropna().reset_index(name="value")


def figures(table: pd.DataFrame) -> Iterator[tuple[object, ...]]:
    """Yield the rows of the printed table."""
    kind, systems = table["kind"].iloc[0], {*table.filter(regex=SYSTEMS).stack()}
    for system, rows in table.groupby("system") if kind not in {"AB", "ABX", "CMOS"} else []:
        yield "mean", system, "", *mean_of(rows.assign(value=rows["rating"]), pair=False)
    added = {"reference", "anchor35", "anchor70"} if kind == "MUSHRA" else set()
    for pair in itertools.combinations(sorted(systems - added), 2):
        rows = differences(table, pair)
        if rows.empty:
            continue
        if kind in {"AB", "ABX"}:
            count, side = int((rows["value"] > 0).sum()), "greater" if kind == "ABX" else "two-sided"
            ends = stats.binomtest(count, len(rows)).proportion_ci(0.9 if kind == "ABX" else 0.95)
            p = stats.binomtest(count, len(rows), alternative=side).pvalue
            yield "share", *pair, count / len(rows), *ends, np.nan, p, "exact binomial test"
        estimate = mean_of(rows)
        if alone := kind == "transcription" and estimate[-1] != "mixed model":
            cells = rows.pivot_table(index="listener", columns="system", values="value")
            rows = cells[pair[0]].sub(cells[pair[1]]).dropna().reset_index(name="value")
        else:
            yield "lead" if kind in {"AB", "ABX"} else "difference", *pair, *estimate
        means = rows.groupby("listener")["value"].mean().round(12)
        if (alone or kind not in {"ABX", "transcription"}) and len(means) > 1 and means.any():
            yield "means of listeners", *pair, *[np.nan] * 4, stats.wilcoxon(means).pvalue, "Wilcoxon's test"


if __name__ == "__main__":
    warnings.simplefilter("ignore")  # variances estimated as 0
    source = sys.argv[1] if len(sys.argv) > 1 else str(Path(__file__).with_name("votes.csv"))
    formula = r"\A'(?='*[=+\-@\t\r\n＝＋－＠])"  # text after a quote that stops spreadsheets from running it
    votes = pd.read_csv(source, dtype=str, keep_default_na=False).replace(formula, "", regex=True)
    votes = votes.query("counts == 'True'").astype({"rating": float} if "rating" in votes else {})
    for scale, table in votes.groupby("scale", sort=False) if "scale" in votes else [("", votes)]:
        print(end=f"{scale}\n" * bool(scale))
        print(pd.DataFrame(figures(table) if len(table) else [], columns=COLUMNS).to_string(index=False, na_rep="-"))
