"""Do raters agree?"""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
import numpy.typing as npt

from voicelab.errors import RequestInvalid

__all__ = ["intraclass_correlation", "krippendorff_alpha"]

_Floats = npt.NDArray[np.float64]


def intraclass_correlation(
    ratings: npt.ArrayLike, *, raters: Literal["nested", "random", "fixed"] = "random", of_mean: bool = False
) -> float:
    """Return the intraclass correlation of ratings, (targets, raters): P. E. Shrout & J. L. Fleiss (1979).

    ``raters``: "nested", each target has raters of its own, ICC(1, ·); "random", the raters stand for others, ICC(2, ·),
    absolute agreement; "fixed", only these raters matter, ICC(3, ·), consistency. ``of_mean``: of the raters' mean
    (·, k) instead of one rater's rating (·, 1). Psychological Bulletin 86. NaN when all ratings are the same. Raises
    RequestInvalid unless there are two targets and raters or more, and no gaps.
    """
    table = np.asarray(ratings, np.float64)
    if table.ndim != 2 or min(table.shape) < 2 or not np.isfinite(table).all():
        raise RequestInvalid.of("ratings", "Input should be numbers of shape (2 targets or more, 2 raters or more)")
    if raters not in ("nested", "random", "fixed"):
        raise RequestInvalid.of("raters", f"{raters!r} is not 'nested', 'random' or 'fixed'")
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
    given. Raises RequestInvalid when no item has two ratings, and for a negative ratio.
    """
    table = np.asarray(ratings, np.float64)
    if table.ndim != 2 or np.isinf(table).any():
        raise RequestInvalid.of("ratings", "Input should be numbers of shape (raters, items)")
    if level not in ("nominal", "ordinal", "interval", "ratio"):
        raise RequestInvalid.of("level", f"{level!r} is not 'nominal', 'ordinal', 'interval' or 'ratio'")
    known = np.isfinite(table)
    paired = known.sum(axis=0) >= 2
    if not paired.any():
        raise RequestInvalid.of("ratings", "no item has two ratings")
    table, known = table[:, paired], known[:, paired]
    values, codes = np.unique(table[known], return_inverse=True)
    if level == "ratio" and values[0] < 0.0:
        raise RequestInvalid.of("ratings", "a ratio scale has no values below 0")
    items = np.nonzero(known)[1]
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
    first, second = values[:, None], values[None, :]
    if level == "nominal":
        return np.asarray(first != second, np.float64)
    if level == "interval":
        return np.asarray(np.square(first - second), np.float64)
    if level == "ratio":
        sums = first + second
        return np.asarray(
            np.square(np.divide(first - second, sums, out=np.zeros_like(sums), where=sums > 0)), np.float64
        )
    below = np.cumsum(totals) - totals / 2.0
    return np.asarray(np.square(below[:, None] - below[None, :]), np.float64)
