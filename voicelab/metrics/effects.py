"""Effects of sweep axes on metrics, with columns named as fields and metrics are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from voicelab import stats
from voicelab.call import field_name
from voicelab.metrics.measure import available
from voicelab.stats.effects import Effects, numeric_columns

if TYPE_CHECKING:
    import pandas as pd

# Every sweep table has them, and each further test weakens Holm's correction.
_SWEEP_METRICS = ("first_audio_s", "rtf")


def effects(
    frame: pd.DataFrame,
    axes: Sequence[str] | str,
    metrics: Sequence[str] | str | None = None,
    *,
    blocks: Sequence[str] | str = (),
    texts: str = "text",
    confidence: float = 0.95,
    robust: bool = False,
) -> Effects:
    """Test the main effect of each axis on each metric, and estimate its size.

    Args:
        frame: one row per take.
        axes: columns of varied fields.
        metrics: columns of measured values. By default those with the name of a metric (see ``voicelab.metrics``), except
            ``first_audio_s`` and ``rtf`` when there are others; without any, all numeric columns but axes and blocks. Takes
            with NaN in a metric are excluded from its tests.
        blocks: columns of nuisance factors, such as the text, combined into a single factor. Add the seed where the cells
            of a grid share seeds: without it the test is valid but weaker; with it no cell has repeats, and the residual
            variance replaces the sampling variance.
        texts: the block whose levels are a random sample of texts: effects are reported with texts random, then with texts
            fixed. "" treats texts as fixed.
        confidence: level of the intervals.
        robust: add the column ``p_robust``: a permutation test of ranks, which single outliers hardly change, and which
            does not assume normal residuals, but assumes equal variances (with random texts, symmetric differences).

    Results do not depend on the order of rows, except that the baseline of levels that are words is the first to appear.
    Interactions of two axes are tested, significant ones printed first; then main effects are averages. Outliers and takes
    that are undefined more often at some levels are named. Metrics and axes without variation are excluded with a note.

    Raises ArgumentError for an unknown column, and when every comparison is excluded (an axis with one level, fewer than two
    takes).
    """
    axes, blocks = _field_columns(frame, axes), _field_columns(frame, blocks)
    if metrics is None:
        numeric, registered = numeric_columns(frame, {*axes, *blocks}), available()
        named = [name for name in numeric if name in registered]
        metrics = [name for name in named if name not in _SWEEP_METRICS] or named or numeric
    return stats.effects(
        frame,
        axes,
        metrics,
        blocks=blocks,
        texts=texts,
        confidence=confidence,
        robust=robust,
    )


def _field_columns(frame: pd.DataFrame, names: Sequence[str] | str) -> list[str]:
    """Resolve aliases of fields: ``speed`` is the column ``prosody.speed``."""
    names = [names] if isinstance(names, str) else list(names)
    return [field_name(name) if field_name(name) in frame else name for name in names]
