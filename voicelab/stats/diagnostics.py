"""Conditions that affect main effects: interactions, outliers, and takes that are missing more often at some levels."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from voicelab.stats.estimate import p_text
from voicelab.stats.factors import (
    Design,
    Noise,
    build,
    contrasts_of,
    noise_of,
    over_texts,
    permutation_p,
    small_levels,
    text_profiles,
    without_rounding,
)

if TYPE_CHECKING:
    import pandas as pd

# Maximum number of elements of the matrix (takes, combinations of two axes), which is 80 MB.
_MAX_MATRIX = 10_000_000
_MIN_CELL = 3
_POLISHES = 10
_NORMAL_QUARTILE = 0.6745
_MIN_TAKES = 8
# Of simulated tables of normal noise, at most 1.3 % have a take beyond this limit.
_OUTLIER_Z = 6.0
_MIRRORED = 1e-6
_Floats = npt.NDArray[np.float64]


def interactions_of(
    design: Design, values: _Floats, weights_of_takes: _Floats, metrics: Sequence[str], axes: Sequence[str]
) -> Iterator[dict[str, Any]]:
    """Test each interaction of two axes whose combinations all have takes; yield a row per metric and pair.

    The largest difference of differences from the first levels is tested as in main effects. If texts are fixed, p is the
    larger p-value of Welch's test and the pooled test: unequal variances may make either too small, but rarely both.
    """
    for first, second in itertools.combinations(range(len(axes)), 2):
        crossed = design.crossed(first, second)
        if crossed is None or crossed.takes * len(crossed.levels[0]) > _MAX_MATRIX:
            continue
        rows, columns = (np.unique(design.codes[axis]) for axis in (first, second))
        if min(rows.size, columns.size) < 2:
            continue
        weights, estimable = crossed.differences(0)
        if not estimable.all():
            continue
        noise = noise_of(crossed, values)
        random = over_texts(text_profiles(crossed, values, 0, weights_of_takes), values, (rows.size, columns.size))
        parts = (np.hstack([-np.ones((size - 1, 1)), np.eye(size - 1)]) for size in (rows.size, columns.size))
        matrix = np.asarray(np.kron(*parts), np.float64)
        fixed = (contrasts_of(crossed, values, 0, noise, (matrix, least_df)) for least_df in (1.0, math.inf))
        means = np.vstack([np.zeros((1, values.shape[1])), weights @ values])
        cells = without_rounding(means, values).reshape(rows.size, columns.size, -1)
        additive, interacting = (item.residuals(item.factors, values)[0] for item in (design, crossed))
        lost = np.square(additive).sum(axis=0) - np.square(interacting).sum(axis=0)
        total = np.square(values - values.mean(axis=0)).sum(axis=0)
        tests = [*fixed] if random is None else [random]
        for index, metric in enumerate(metrics):
            share = max(0.0, float(lost[index] / total[index])) if total[index] > 0.0 else math.nan
            decisive = tests[int(np.argmax([np.nan_to_num(test.p[index], nan=-1.0) for test in tests]))]
            p = float(decisive.p[index])
            row = {"metric": metric, "axis": axes[first], "other": axes[second], "p": p}
            levels = [design.levels[axis] for axis in (first, second)]
            row |= {"test": decisive.test, "eta_sq": share, **_extremes(cells[..., index], levels, rows, columns)}
            # F is undefined for takes without variance.
            yield {**row, "without_noise": bool(noise.df > 0 and math.isnan(p) and share > 1e-9)}


def _extremes(
    cells: _Floats, levels: Sequence[tuple[Any, ...]], rows: npt.NDArray[Any], columns: npt.NDArray[Any]
) -> dict[str, Any]:
    """Return the level of the first axis whose difference from the first level varies most over the second axis."""
    simple = cells[1:] - cells[0]
    row = int(np.ptp(simple, axis=1).argmax())
    low, high = int(simple[row].argmin()), int(simple[row].argmax())
    names = {"baseline": levels[0][rows[0]], "level": levels[0][rows[row + 1]]}
    names |= {"low_at": levels[1][columns[low]], "high_at": levels[1][columns[high]]}
    return {**names, "low": float(simple[row, low]), "high": float(simple[row, high])}


def interaction_sentence(row: dict[Any, Any]) -> str:
    """Describe an interaction by the pair of levels whose difference it changes most."""
    axis, other = row["axis"], row["other"]
    p = p_text(row["p_holm"]) if math.isfinite(row["p_holm"]) else "no residual variance"
    return (
        f"{row['metric']}: {axis} and {other} interact ({p}, eta² {row['eta_sq']:.2f}). {axis} {row['baseline']} → "
        f"{row['level']} changes it by {row['low']:+.3g} at {other} {row['low_at']}, by {row['high']:+.3g} at {other} "
        f"{row['high_at']}; effects of {axis} and {other} are averages over the other's levels."
    )


def outliers_of(
    design: Design, values: _Floats, metrics: Sequence[str], noise: Noise, labels: Sequence[Any]
) -> Iterator[dict[str, Any]]:
    """Yield a row per metric and take that is more than 6 robust SDs from its expected value, the furthest first.

    The expected value is the median of the take's cell or, where cells have fewer than three takes, the value of the
    additive model, fitted by J. W. Tukey's median polish. The robust SD is computed from the median of the n largest
    distances, where n is the number of residual degrees of freedom. ``labels`` (takes,) are the row labels of the table.
    """
    sizes = np.bincount(design.cells)
    additive = np.median(sizes) < _MIN_CELL
    rank = design.residuals(design.factors, values)[1] if additive else int(sizes.size)
    if design.takes < _MIN_TAKES or design.takes - rank < 2:
        return
    factors = list(design.codes) if additive else [design.cells]
    for index, metric in enumerate(metrics):
        if not noise.sum_sq[index] > 0.0:
            continue
        distances = _polished(values[:, index], factors)
        scale = float(np.median(np.sort(np.abs(distances))[rank:])) / _NORMAL_QUARTILE
        if scale <= 1e-9 * float(np.abs(values[:, index]).max()):
            continue  # half of the takes have a distance of 0, as for counts
        distances = _without_partners(design, values[:, index], distances, _OUTLIER_Z * scale)
        far = np.flatnonzero(np.abs(distances) > _OUTLIER_Z * scale)
        for take in far[np.argsort(-np.abs(distances[far]), kind="stable")]:
            value, distance = float(values[take, index]), float(distances[take])
            row = {"metric": metric, "row": labels[take], "value": value, "expected": value - distance}
            yield {**row, "z": distance / scale}


def _without_partners(design: Design, values: _Floats, distances: _Floats, limit: float) -> _Floats:
    """If two takes of a level have opposite distances above ``limit``, assign both to the take further from the median.

    The expected value of a level with two takes is their mean, so an outlier gives the other take the opposite distance.
    """
    distances, apart = distances.copy(), np.abs(values - np.median(values))
    for take in np.flatnonzero(np.abs(distances) > limit):
        mirrored = np.abs(distances + distances[take]) <= _MIRRORED * np.abs(distances[take])
        partners = np.flatnonzero(mirrored & (design.codes == design.codes[:, [take]]).any(axis=0))
        if distances[take] and partners.size == 1 and apart[take] >= apart[partners[0]]:
            distances[take] *= 2.0
            distances[partners[0]] = 0.0
    return distances


def _polished(values: _Floats, factors: Sequence[npt.NDArray[np.intp]]) -> _Floats:
    """Subtract the medians of each factor's levels from the values, factor by factor."""
    import pandas as pd

    column = pd.Series(values)
    for _ in range(_POLISHES if len(factors) > 1 else 1):
        for codes in factors:
            column = column - column.groupby(codes).transform("median")
    return np.asarray(column, np.float64)


def outlier_notes(rows: Sequence[dict[str, Any]], playable: bool, robust: bool) -> list[str]:
    """Describe the furthest outlier of each metric, and the call that plays it."""
    notes = []
    for metric, outliers in itertools.groupby(rows, key=lambda row: row["metric"]):
        furthest, *rest = outliers
        playback = f"; hear it by table.pick([{furthest['row']}])" if playable else ""
        more = f" {len(rest)} more in outliers." if rest else ""
        test = "" if robust else " robust=True adds a test by ranks."
        notes.append(
            f"Outlier: {metric} of row {furthest['row']} is {furthest['value']:.4g}, {abs(furthest['z']):.0f} robust SDs "
            f"from its expected {furthest['expected']:.4g}{playback}.{more}{test}"
        )
    return notes


def missing_notes(
    design: Design, missing: npt.NDArray[np.bool_], metrics: Sequence[str], axes: Sequence[str], level: float
) -> Iterator[str]:
    """Yield notes on takes where these metrics are undefined, and on axes whose levels differ in the share of such takes."""
    for metric in metrics:
        yield f"{metric} is undefined for {missing.sum()} of {missing.size} takes, which are excluded."
    for number, axis in enumerate(axes):
        p = permutation_p(design, missing.astype(np.float64), number)
        if p <= level:
            codes = design.codes[number]
            counts = [
                f"{design.levels[number][code]} {missing[codes == code].sum()} of {(codes == code).sum()}"
                for code in np.unique(codes)
            ]
            yield (
                f"{' and '.join(metrics)}: undefined more often at some levels of {axis} ({', '.join(counts)}; "
                f"{p_text(p)}): differences may be due to which takes remain."
            )


def small_level_notes(design: Design, noise: Noise, axes: Sequence[str]) -> Iterator[str]:
    """Yield notes on the levels that have too few takes to be tested."""
    for number, axis in enumerate(axes):
        names, codes = np.unique(design.codes[number], return_inverse=True)
        takes = np.bincount(codes).astype(np.float64)
        small = small_levels(takes, np.asarray(np.bincount(codes, noise.take_df), np.float64)) & noise.repeats
        for index in np.flatnonzero(small):
            yield (
                f"{axis} {design.levels[number][names[index]]} is not tested: {takes[index]:.0f} takes, another level "
                f"{takes.max():.0f}, too unequal for a test that assumes equal variances; add repeats."
            )


def unnamed_columns(
    frame: pd.DataFrame, axes: Sequence[str], blocks: Sequence[str], settings: Sequence[str]
) -> tuple[tuple[str, ...], list[str]]:
    """Return the settings that vary within cells of axes and blocks, and notes on settings that are neither.

    A setting is confounded with an axis if its values are not equally frequent at the levels of the axis, where the other
    axes and the blocks are the same.
    """
    mixed, notes = [], []
    for name in settings:
        if name in {*axes, *blocks} or frame[name].map(repr).nunique() < 2:
            continue
        design, _ = build(frame, [*axes, name], blocks)
        named = replace(design, codes=np.delete(design.codes, len(axes), axis=0))
        pairs, cells = (np.unique(each.cells, return_index=True)[1] for each in (design, named))
        if pairs.size > cells.size:
            mixed.append(name)
        shares = np.bincount(design.cells) / np.bincount(named.cells)[named.cells[pairs]]
        for number, axis in enumerate(axes):
            # Frequencies are equal if each share of a cell is the mean share of the cells that differ in this axis only.
            strata, groups = named.strata(number), design.strata(number)[pairs]
            means = np.bincount(groups, shares)[groups] / np.bincount(strata[cells])[strata[pairs]]
            if np.abs(shares - means).max() > _MIRRORED:
                notes.append(
                    f"{name} is neither an axis nor in blocks, and its values are not equally frequent at the levels of "
                    f"{axis}: the effect of {axis} may be that of {name}."
                )
    if mixed:
        listed, verb = " and ".join(mixed), "is" if len(mixed) == 1 else "are"
        notes.append(
            f"{listed} {verb} neither an axis nor in blocks: the residual SD includes the differences between values."
        )
    return tuple(mixed), notes
