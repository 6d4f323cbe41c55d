"""Comparison of systems that synthesize the same texts, and scores of systems with intervals over samples."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from voicelab.errors import ArgumentError
from voicelab.metrics import Metric, check_measuring
from voicelab.runs.cache import Cache
from voicelab.session import Session
from voicelab.stats import crossed_mean
from voicelab.stats.estimate import Estimate, holm, varies
from voicelab.sweeps.axes import literal
from voicelab.sweeps.sweep import Sweep, sweep_of
from voicelab.takes.rows import SYSTEM
from voicelab.takes.table import TakeTable

if TYPE_CHECKING:
    import pandas as pd

SYSTEM_METRICS: Final = ("duration", "word_rate", "f0_median", "f0_sd", "snr", "first_audio_s", "rtf")
"""Default metrics of a comparison of systems."""
_CONFIDENCE: Final = 0.95


def compare_systems(
    texts: str | Sequence[str] | Mapping[str, str],
    *,
    metrics: Sequence[str | Metric] = SYSTEM_METRICS,
    repeats: int = 1,
    seed: int = 0,
    cache: Cache | str | Path | None = None,
    **labs: Session,
) -> TakeTable:
    """Synthesize the same texts with several labs: ``vl.compare_systems(texts, ours=lab, theirs=other)``.

    Args:
        texts: the texts, or a mapping from labels to texts; braces in them are literal.
        metrics: metrics of ``frame()``, as for ``vl.measure``.
        repeats: takes per text and system.
        seed: seed from which the seeds of the repeats are drawn, for systems that support seeds.
        cache: cache of the takes; default: the cache in voicelab's data folder.
        **labs: the systems by name, each with its own voice and defaults; the first is the baseline.

    Returns:
        A table with the key columns ``text``, ``system`` and ``repeat``. The takes of each pair are loudness-matched.

    Raises:
        ArgumentError: there are fewer than two systems, or metrics are invalid (see ``vl.measure``). Raised before
            synthesis.
        RequestInvalid: a system rejects a text.
        VoicelabError: the first error of a failed take.
    """
    check_systems(labs)
    metrics = (metrics,) if isinstance(metrics, str) else tuple(metrics)
    check_measuring(metrics)
    table = systems_table(systems_sweep(texts, labs, repeats=repeats, seed=seed, cache=cache).run(), metrics)
    for row in table.failures:
        if row.error is not None:
            raise row.error
    return table


def systems_sweep(texts: str | Sequence[str] | Mapping[str, str], labs: Mapping[str, Session], **options: Any) -> Sweep:
    """Create the sweep of a comparison, with ``options`` of ``sweep_of``; braces in the texts are literal."""
    items: Any = [texts] if isinstance(texts, str) else texts
    if isinstance(items, Mapping):
        items = {label: literal(text) for label, text in items.items()}
    elif isinstance(items, Iterable):
        listed = [*items]
        items = escaped = [*map(literal, listed)]
        # Other values and repeated texts are errors of the sweep.
        if escaped != listed and all(isinstance(text, str) for text in listed) and len({*listed}) == len(listed):
            items = dict(zip(listed, escaped, strict=True))
    return sweep_of(next(iter(labs.values())), items, labs=labs, fields={}, **options)


def systems_table(table: TakeTable, metrics: Sequence[str | Metric]) -> TakeTable:
    """Convert the table of a sweep over ``backend`` to a loudness-matched comparison of systems."""
    return replace(table.rename(backend=SYSTEM), metrics=tuple(metrics), matched=True)


def check_systems(labs: Mapping[str, Session]) -> None:
    """Raise ArgumentError if there are fewer than two systems or a value is not a Lab."""
    if len(labs) < 2:
        raise ArgumentError.of("labs", "name at least two systems: compare_systems(texts, a=lab, b=other)")
    check_labs(labs)


def check_labs(labs: Mapping[str, object]) -> None:
    """Raise ArgumentError for a value that is not a Lab."""
    for name, lab in labs.items():
        if not hasattr(lab, "capabilities") or not hasattr(lab, "call"):
            raise ArgumentError.of(name, f"a system must be a Lab, got {type(lab).__name__}; use vl.connect(…)")


def system_scores(frame: pd.DataFrame, metric: str, *, samples: Sequence[str] = ("text",)) -> pd.DataFrame:
    """Score each system and each pair of systems on one metric, with 95 % confidence intervals and p-values.

    Takes of the same sample are averaged first. Two columns of samples are crossed random effects (``crossed_mean``); with
    one column, intervals use Student's t distribution. Differences are paired by sample, and their p-values are corrected
    by Holm's method.

    Args:
        frame: a row per clip, with the column ``system``, such as ``table.frame(metric)``.
        metric: column of the metric; rows with NaN are excluded.
        samples: one or two columns of random effects, such as ``("text",)`` or ``("text", "voice")``.

    Returns:
        Columns ``system``, ``against`` ("" for a score), ``mean``, ``low``, ``high``, ``n`` (samples), ``p``. If the
        metric is a rate per word, such as WER, every clip has the same weight in the mean.

    Raises:
        ArgumentError: a column is missing, or there are fewer than two samples.
    """
    import pandas as pd

    for argument, column in (("system", SYSTEM), ("metric", metric), *(("samples", name) for name in samples)):
        if column not in frame:
            raise ArgumentError.of(argument, f"must be a column, one of {', '.join(map(str, frame))}, got {column!r}")
    if not 0 < len(samples) < 3:
        raise ArgumentError.of("samples", f"must be one or two columns, got {len(samples)}")
    cells = frame.dropna(subset=[metric]).pivot_table(index=list(samples), columns=SYSTEM, values=metric, sort=False)
    scores = [(name, "", *_mean(cells[name].dropna())) for name in cells]
    pairs = list(itertools.combinations(cells, 2))
    differences = [_mean((cells[name] - cells[against]).dropna()) for name, against in pairs]
    corrected = holm([p for _, p in differences])
    compared = [(*pair, estimate, p) for pair, (estimate, _), p in zip(pairs, differences, corrected, strict=True)]
    rows: list[dict[str, Any]] = []
    for name, against, estimate, p in [*((*score[:3], math.nan) for score in scores), *compared]:
        interval = {"mean": estimate.value, "low": estimate.low, "high": estimate.high, "n": estimate.n}
        rows.append({"system": name, "against": against, **interval, "p": float(p)})
    return pd.DataFrame(rows)


def _mean(values: pd.Series[Any]) -> tuple[Estimate, float]:
    """Estimate a mean over one random factor or two crossed ones (index levels), with the p-value for a mean of 0."""
    from scipy.stats import ttest_1samp

    numbers = values.to_numpy(float)
    if values.index.nlevels == 2 and varies(numbers):
        first, second = (list(values.index.get_level_values(level)) for level in (0, 1))
        test = crossed_mean(numbers, first, second)
        return test.estimate, test.p
    if numbers.size < 2:
        raise ArgumentError.of("samples", f"{values.index.name} must have two values or more, got {numbers.size}")
    mean = float(numbers.mean())
    if not varies(numbers):  # without variance there is neither an interval nor p
        return Estimate(mean, math.nan, math.nan, _CONFIDENCE, numbers.size), math.nan
    test = ttest_1samp(numbers, 0.0)
    low, high = test.confidence_interval(_CONFIDENCE)
    return Estimate(mean, float(low), float(high), _CONFIDENCE, numbers.size), float(test.pvalue)
