"""Analyze the responses of a listening test with pandas, scipy and statsmodels: python analysis.py [votes.csv].

Ratings: means of systems, differences of pairs by linear mixed models: value ~ 1 + (1 | listener) + (1 | item), REML,
t intervals (95 %; ABX 90 %), df: number of listeners or items, the smaller one, minus 1. AB, ABX: the same model of choices
minus 0.5, and exact binomial tests. Variance of a mean of n values: at least 1 / 12 / n. Means of listeners: Wilcoxon.
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


def with_t(mean: float, error: float, df: float, rows: pd.DataFrame, pair: bool, method: str) -> tuple[object, ...]:
    """Return the mean with its t interval, standard error, p (of a pair) and method."""
    counts, min_error = rows[["listener", "item"]].nunique(), np.sqrt(1 / 12 / len(rows))
    max_df = counts.min() if counts.min() <= 5 else counts.sum() - 2
    error, df = (error, min(df, max_df)) if error > min_error else (min_error, max_df)
    half, p = stats.t.isf(0.05 if "right" in rows else 0.025, df) * error, 2 * stats.t.sf(abs(mean / error), df)
    return mean, mean - half, mean + half, error, p if pair else np.nan, method


def mean_of(rows: pd.DataFrame, pair: bool = True) -> tuple[object, ...]:
    """Estimate the mean of ``value`` with its interval, standard error, p (of a pair) and method."""
    mean, sd, count = rows["value"].mean(), rows["value"].std(), rows[["listener", "item"]].nunique().min()
    if count > 1 and sd > 1e-9:
        data = rows.assign(value=rows["value"] / sd, all=1)
        if smf.ols("value ~ C(listener) + C(item)", data).fit().ssr > 1e-9 * len(data):
            effects = {"listener": "0 + C(listener)", "item": "0 + C(item)"}
            fit = smf.mixedlm("value ~ 1", data, groups="all", vc_formula=effects).fit()
            mean, error = sd * fit.fe_params.iloc[0], sd * fit.bse_fe.iloc[0]
            return with_t(mean, error, count - 1, rows, pair, "mixed model")
    if count < 2:
        return mean, np.nan, np.nan, np.nan, np.nan, "mean alone"
    groups = [rows.groupby(name)["value"].mean() for name in ("listener", "item")]
    parts = np.array([means.var() / len(means) if np.ptp(means) > 1e-9 else 0.0 for means in groups])
    freedom = parts.sum() ** 2 / max(sum(parts**2 / [len(means) - 1 for means in groups]), 1e-300)
    return with_t(mean, np.sqrt(parts.sum()), freedom, rows, pair, "no residual variance")


def differences(table: pd.DataFrame, pair: tuple[str, str]) -> pd.DataFrame:
    """Return the lead of the first system over the second by listener and item; 0.5 or -0.5 for choices."""
    if table["kind"].iloc[0] not in {"AB", "ABX", "CMOS"}:
        cells = table.pivot_table(index=["listener", "item"], columns="system", values="rating")
        return cells[pair[0]].sub(cells[pair[1]]).dropna().reset_index(name="value")
    rows = table[table.filter(regex="^(system|against|chosen|other)$").isin(pair).all(axis=1)]
    if "rating" in rows:
        return rows.assign(value=rows["rating"].where(rows["system"] == pair[0], -rows["rating"]))
    won = rows["right"] == "True" if "ABX" in {*rows["kind"]} else rows["chosen"] == pair[0]
    return rows.assign(value=won - 0.5)


def transcribed(table: pd.DataFrame) -> Iterator[tuple[object, ...]]:
    """Yield differences in words correct, each item heard with one system; without residual variance, of listeners."""
    model = smf.ols("rating ~ C(system) + C(listener) + C(item)", table).fit()
    for pair in itertools.combinations(sorted(table["system"].unique()), 2):
        rows = table[table["system"].isin(pair)].assign(all=1, value=table["rating"], ahead=table["system"] == pair[0])
        if model.df_resid < 1 or model.ssr < 1e-9 * len(table):
            means = rows.pivot_table(index="listener", columns="system", values="value")
            yield from of_listeners(means[pair[0]].sub(means[pair[1]]).dropna(), pair)
            continue
        effects = {name: f"0 + C({name})" for name in ("listener", "item")}
        fit = smf.mixedlm("value ~ ahead", rows.astype({"ahead": float}), groups="all", vc_formula=effects).fit()
        df = rows[["listener", "item"]].nunique().min() - 1
        yield "difference", *pair, *with_t(fit.fe_params["ahead"], fit.bse_fe["ahead"], df, rows, True, "mixed model")


def of_listeners(means: pd.Series, pair: tuple[str, str]) -> Iterator[tuple[object, ...]]:
    """Test the mean leads of listeners, if there are two of them."""
    if len(means) > 1 and means.round(12).any():
        yield "means of listeners", *pair, *[np.nan] * 4, stats.wilcoxon(means.round(12)).pvalue, "Wilcoxon's test"


def figures(table: pd.DataFrame) -> Iterator[tuple[object, ...]]:
    """Yield the rows of the printed table."""
    kind, systems = table["kind"].iloc[0], {*table.filter(regex="^(system|against|chosen|other)$").stack()}
    for system, rows in table.groupby("system") if kind not in {"AB", "ABX", "CMOS"} else []:
        yield "mean", system, "", *mean_of(rows.assign(value=rows["rating"]), pair=False)
    added = {"reference", "anchor35", "anchor70"} if kind == "MUSHRA" else set()
    if kind == "transcription":
        return (yield from transcribed(table))
    for pair in itertools.combinations(sorted(systems - added), 2):
        rows = differences(table, pair)
        if "rating" in table and len(rows):
            yield "difference", *pair, *mean_of(rows)
        elif len(rows):
            test = stats.binomtest(int((rows["value"] > 0).sum()), len(rows))
            p = stats.binomtest(test.k, test.n, alternative="greater").pvalue if kind == "ABX" else test.pvalue
            ends = test.proportion_ci(0.9 if kind == "ABX" else 0.95)
            yield "share", *pair, test.statistic, *ends, np.nan, p, "exact binomial test"
            yield "lead", *pair, *mean_of(rows)
        yield from of_listeners(rows.groupby("listener")["value"].mean(), pair) if kind != "ABX" else ()


if __name__ == "__main__":
    warnings.simplefilter("ignore")  # variances estimated as 0
    columns = ["figure", "first", "second", "estimate", "low", "high", "error", "p", "method"]
    source = sys.argv[1] if len(sys.argv) > 1 else str(Path(__file__).with_name("votes.csv"))
    formula = r"\A'(?='*[=+\-@\t\r\n＝＋－＠])"  # text after a quote that stops spreadsheets from running it
    votes = pd.read_csv(source, dtype=str, keep_default_na=False).replace(formula, "", regex=True)
    votes = votes.query("counts == 'True'").astype({"rating": float} if "rating" in votes else {})
    for scale, rows in votes.groupby("scale", sort=False) if "scale" in votes else [("", votes)]:
        print(end=f"{scale}\n" * bool(scale))
        print(pd.DataFrame(figures(rows) if len(rows) else [], columns=columns).to_string(index=False, na_rep="-"))
