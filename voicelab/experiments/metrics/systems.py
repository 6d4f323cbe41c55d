"""Scores of systems instead of clips: means that hold for other texts, and other voices, than those that were measured."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from voicelab.errors import ArgumentError
from voicelab.experiments.statistics.crossed import crossed_mean
from voicelab.experiments.statistics.estimate import Estimate, between, holm

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["system_scores"]


def system_scores(
    frame: pd.DataFrame,
    metric: str,
    *,
    system: str = "system",
    samples: Sequence[str] = ("text",),
    confidence: float = 0.95,
) -> pd.DataFrame:
    """Return a row for each system, and for each pair of them, with mean, interval and p of one metric.

    ``frame`` has a row for each clip, such as a sweep's ``result.frame(metric)``, with columns for the ``system``, the
    ``metric``, and the one or two things of which there are ``samples``, such as ``("text",)`` or ``("text", "voice")``:
    takes that have them alike are averaged first. With two, both are crossed random effects (``crossed_mean``); with one the
    interval is Student's t. Differences are of the same samples by both systems; their p is after Holm.

    Columns: ``system``, ``against`` ("" for a score), ``mean``, ``low``, ``high``, ``n`` (texts, say), ``p``. Rows whose
    metric is NaN are left out. A rate over words, such as a word error, is here a mean over clips: each weighs the same.
    Raises ArgumentError for a missing column, and where there are fewer than two samples.
    """
    import pandas as pd

    between(confidence, "confidence", 0.0, 1.0)
    for argument, column in (("system", system), ("metric", metric), *(("samples", name) for name in samples)):
        if column not in frame:
            raise ArgumentError.of(argument, f"there is no column {column!r}; there are {', '.join(map(str, frame))}")
    if not 0 < len(samples) < 3:
        raise ArgumentError.of("samples", "name one column or two")
    cells = frame.dropna(subset=[metric]).pivot_table(index=list(samples), columns=system, values=metric, sort=False)
    rows: list[dict[str, Any]] = []
    for name in cells:
        estimate, _ = _mean(cells[name].dropna(), confidence)
        rows.append({"system": name, "against": "", **_columns(estimate), "p": math.nan})
    pairs = list(itertools.combinations(cells, 2))
    compared = [_mean((cells[one] - cells[two]).dropna(), confidence) for one, two in pairs]
    corrected = holm([p for _, p in compared])
    for (one, two), (estimate, _), p in zip(pairs, compared, corrected, strict=True):
        rows.append({"system": one, "against": two, **_columns(estimate), "p": float(p)})
    return pd.DataFrame(rows)


def _columns(estimate: Estimate) -> dict[str, float]:
    return {"mean": estimate.value, "low": estimate.low, "high": estimate.high, "n": estimate.n}


def _mean(values: pd.Series[Any], confidence: float) -> tuple[Estimate, float]:
    """Return the mean over one kind of samples, or over two crossed ones, and its p against 0."""
    from scipy.stats import ttest_1samp

    numbers = values.to_numpy(float)
    if values.index.nlevels == 2:
        first, second = (list(values.index.get_level_values(level)) for level in (0, 1))
        test = crossed_mean(numbers, first, second, confidence=confidence)
        return test.estimate, test.p
    if numbers.size < 2:
        raise ArgumentError.of("samples", f"{values.index.name}: one is no sample; two or more are needed")
    mean = float(numbers.mean())
    if not np.ptp(numbers):
        return Estimate(mean, mean, mean, confidence, numbers.size), math.nan
    test = ttest_1samp(numbers, 0.0)
    low, high = test.confidence_interval(confidence)
    return Estimate(mean, float(low), float(high), confidence, numbers.size), float(test.pvalue)
