"""Analyze the responses of a listening test with pandas and scipy: python analysis.py [votes.csv].

Ratings: means of systems, differences of pairs by linear mixed models: value ~ 1 + (1 | listener) + (1 | item), REML, t
tests with Satterthwaite's degrees of freedom. AB, ABX: the same model of choices (0 or 1), and exact binomial tests; ABX is
one-sided. A mean of n values has at least the variance 1 / 12 / n, and at most the df of listeners and items together or,
with five or fewer of either, that number. Transcription: words correct ~ system, with interactions of system with listener
and item as random effects, too. The order of systems and the confidence level are those in study.json; p is uncorrected.
"""

import itertools
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
from scipy import linalg, optimize, stats

SYSTEMS = "^(system|against|chosen|other)$"
COLUMNS = ["figure", "first", "second", "estimate", "low", "high", "error", "df", "t", "p", "method"]
SCALES = {"BWS": (-1, 1), "MUSHRA": (0, 100), "MUSHRA-NMR": (0, 100), "transcription": (0, 100)}  # others: 1 to 5


def reml(values: np.ndarray, fixed: np.ndarray, groups: list[np.ndarray]) -> tuple[float, float, float, str]:
    """Return the first coefficient of a linear mixed model, its standard error, Satterthwaite's df, and the method."""
    columns, sizes = np.column_stack([*groups, fixed, values]), [group.shape[1] for group in groups]
    products, count, free = columns.T @ columns, sum(sizes), len(values) - fixed.shape[1]

    def at(ratios: np.ndarray) -> tuple[float, np.ndarray, float, float]:
        """Return deviance, gradient, coefficient and log variance; ``ratios`` are variances / residual variance."""
        scale, kept = np.sqrt(np.repeat(ratios, sizes))[:, None], slice(count, -1)
        root = linalg.cholesky(scale * products[:count, :count] * scale.T + np.eye(count), lower=True)
        half = linalg.solve_triangular(root, scale * products[:count], lower=True)
        weighted = products - half.T @ half
        inverse = np.linalg.inv(weighted[kept, kept])
        projected = weighted - weighted[:, kept] @ inverse @ weighted[kept]
        residual = projected[-1, -1] / free
        deviance = 2 * np.log(root.diagonal()).sum() + free * np.log(residual) - np.linalg.slogdet(inverse)[1]
        slopes = projected.diagonal()[:count] - projected[:count, -1] ** 2 / residual
        gradient = np.add.reduceat(slopes, np.cumsum([0, *sizes[:-1]]))
        return deviance, gradient, inverse[0] @ weighted[kept, -1], np.log(residual * inverse[0, 0])

    x, bounds, options = np.full(len(sizes), 0.5), [(0, None)] * len(sizes), {"ftol": 0, "gtol": 1e-9, "maxiter": 1000}
    for _ in range(3):  # a restart leaves a failed line search
        x = optimize.minimize(lambda ratios: at(ratios)[:2], x, jac=True, bounds=bounds, options=options).x
    slope = np.where(x > 0, np.abs(at(x)[1]), -at(x)[1])
    active = np.flatnonzero(x > 1e-6)
    sides = [(at(x + step), at(x - step)) for step in np.diag(1e-3 * x)[active]]
    curvature = np.reshape([(a[1] - b[1])[active] * 5e-4 * x[active] for a, b in sides], (active.size, active.size))
    change = np.array([(a[3] - b[3]) / 2 for a, b in sides])
    df = 1 / (1 / free + change @ np.linalg.pinv((curvature + curvature.T) / 2, hermitian=True) @ change)
    return *at(x)[2:], df, "mixed model" + " (not converged)" * bool(slope.max() > 0.01)


def mean_of(rows: pd.DataFrame, level: float, null: float, ends: tuple[float, float]) -> tuple[object, ...]:
    """Return the mean of ``value`` or the coefficient of ``ahead`` with low, high, error, df, t, p and method."""
    abx, paired = "kind" in rows and rows["kind"].iloc[0] == "ABX", "ahead" not in rows
    rows = rows.groupby(["listener", "item"], sort=False)["value"].mean().reset_index() if paired else rows
    counts, middle = rows[["listener", "item"]].nunique(), rows["value"].mean()
    if counts.min() < 2:
        return middle, *[np.nan] * 6, "mean alone"
    codes = {key: pd.get_dummies(rows[key]).to_numpy(float) for key in rows.filter(regex="^(listener|item)(_system)?$")}
    fixed = np.ones((len(rows), 1)) if paired else np.column_stack([rows["ahead"], pd.get_dummies(rows["rest"])])
    values = rows["value"].to_numpy(float) - middle
    additive = np.column_stack([fixed, codes["listener"], codes["item"]])
    rest = values - additive @ np.linalg.lstsq(additive, values, rcond=1e-10)[0]
    saturated = np.linalg.matrix_rank(additive) == len(rows)
    if np.ptp(values) > 1e-9 and (rest @ rest > 1e-9 * (values @ values) or (paired and saturated)):
        random = [group for group in codes.values() if group.shape[1] < len(rows)] or [np.zeros((len(rows), 1))]
        mean, log_variance, df, method = reml(values / values.std(), fixed, random)
        mean, error = middle * paired + mean * values.std(), np.exp(log_variance / 2) * values.std()
    else:
        means = [rows.groupby(group)["value"].mean() for group in counts.index]
        parts = np.array([own.var() / len(own) if np.ptp(own) > 1e-9 else 0.0 for own in means])
        df = parts.sum() ** 2 / max((parts**2 / (counts - 1)).sum(), 1e-300)
        mean, error, method = middle, np.sqrt(parts.sum()), "no residual variance"
    if paired:
        max_df, min_error = counts.min() if counts.min() <= 5 else counts.sum() - 2, np.sqrt(1 / 12 / len(rows))
        error, df = (error, min(df, max_df)) if error > min_error else (min_error, max_df)
    half, t = stats.t.isf((1 - level) / 2, df) * error, (mean - null) / error
    p = stats.t.sf(t, df) if abx else 2 * stats.t.sf(abs(t), df)
    return mean, max(mean - half, ends[0]), min(mean + half, ends[1]), error, df, t, p, method


def signed_rank(means: np.ndarray) -> float:
    """Return the p-value of Wilcoxon's test: exact, also with ties, for up to 50 means that are not 0."""
    means = means[means != 0]
    if len(means) > 50:
        return float(stats.wilcoxon(means, method="asymptotic").pvalue)
    ranks, sums = (2 * stats.rankdata(abs(means))).astype(int), np.ones(1)
    for rank in ranks:
        sums = (np.pad(sums, (0, rank)) + np.pad(sums, (rank, 0))) / 2
    positive = ranks[means > 0].sum()
    return min(1.0, 2 * float(min(sums[: positive + 1].sum(), sums[positive:].sum())))


def differences(table: pd.DataFrame, pair: tuple[str, str]) -> pd.DataFrame:
    """Return the values of a pair by listener and item: differences, choices (0 or 1), or transcriptions of all systems."""
    kind, rows = table["kind"].iloc[0], table[table.filter(regex=SYSTEMS).isin(pair).all(axis=1)]
    if kind == "transcription":  # each item is heard with one system; of other systems, ahead is 0
        rest, own = table["system"].where(~table["system"].isin(pair), ""), 1.0 * (table["system"] == pair[0])
        crossed = {f"{name}_system": table[name] + "\0" + table["system"] for name in ("listener", "item")}
        return table.assign(value=table["rating"], ahead=own, rest=rest, **crossed)
    if kind == "CMOS":
        return rows.assign(value=rows["rating"].where(rows["system"] == pair[0], -rows["rating"]))
    if kind in {"AB", "ABX"}:
        return rows.assign(value=1.0 * (rows["right"] == "True" if kind == "ABX" else rows["chosen"] == pair[0]))
    cells = rows.pivot_table(index=["listener", "item"], columns="system", values="rating")
    return cells[pair[0]].sub(cells[pair[1]]).dropna().reset_index(name="value")


def figures(table: pd.DataFrame, names: list[str], level: float) -> Iterator[tuple[object, ...]]:
    """Yield the rows of the printed table, with intervals of confidence ``level``; systems are in the order of ``names``."""
    kind, blank = table["kind"].iloc[0], [np.nan] * 6
    choices = kind in {"AB", "ABX"}
    null, ends = (0.5, (0, 1)) if choices else (0, (-np.inf, np.inf))
    labels = sorted({*table.filter(regex=SYSTEMS).stack()})
    systems = [*(name for name in names if name in labels), *(name for name in labels if name not in names)]
    by_system = not choices and kind != "CMOS"
    for system in systems if by_system else []:
        rows = table[table["system"] == system]
        mean = mean_of(rows.assign(value=rows["rating"]), level, 0, SCALES.get(kind, (1, 5)))
        yield "mean", system, "", *mean[:5], np.nan, np.nan, mean[-1]
    compared = [name for name in systems if kind != "MUSHRA" or name not in {"reference", "anchor35", "anchor70"}]
    for pair in itertools.combinations(compared, 2):
        rows = differences(table, pair)
        if rows.empty:
            continue
        estimate = mean_of(rows, level, null, ends)
        if choices:
            count, side = int(rows["value"].sum()), "greater" if kind == "ABX" else "two-sided"
            ends_of_share = stats.binomtest(count, len(rows)).proportion_ci(level)
            p = stats.binomtest(count, len(rows), alternative=side).pvalue
            yield "share", *pair, count / len(rows), *ends_of_share, *blank[:3], p, "exact binomial test"
        if alone := kind == "transcription" and estimate[-1] == "no residual variance":
            compared = [*pair]  # each listener may have heard some systems only
        else:
            yield "share" if choices else "difference", *pair, *estimate
        if by_system:  # means of all ratings of listeners who rated all systems
            cells = table.pivot_table(index="listener", columns="system", values="rating")[compared].dropna()
            means = (cells[pair[0]] - cells[pair[1]]).round(12).to_numpy()
        else:
            means = (rows.groupby("listener")["value"].mean() - null).round(12).to_numpy()
        if (alone or kind not in {"ABX", "transcription"}) and len(means) > 1 and means.any():
            yield "means of listeners", *pair, *blank, signed_rank(means), "Wilcoxon's test"


if __name__ == "__main__":
    source = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).with_name("votes.csv")
    design = source.with_name("study.json")
    study = json.loads(design.read_text("utf-8") if design.exists() else '{"systems": [], "confidence": 0.95}')
    formula = r"\A'(?='*[=+\-@\t\r\n＝＋－＠])"  # text after a quote that stops spreadsheets from running it
    votes = pd.read_csv(source, dtype=str, keep_default_na=False).replace(formula, "", regex=True)
    votes = votes.query("counts == 'True'").astype({"rating": float} if "rating" in votes else {})
    votes["item"] = votes.get("text_of_item", votes["item"])  # takes of one text are not independent
    for scale, table in votes.groupby("scale", sort=False) if "scale" in votes else [("", votes)]:
        print(end=f"{scale}\n" * bool(scale))
        rows = figures(table, study["systems"], study["confidence"]) if len(table) else []
        print(pd.DataFrame(rows, columns=COLUMNS).to_string(index=False, na_rep="-", float_format="{:.5g}".format))
