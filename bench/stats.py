"""WER with confidence intervals: edit distance, and paired bootstrap over sentences for comparisons.

Systems are compared on the same sentences; each bootstrap draw of sentences takes the errors of both systems, so that the
difficulty of sentences cancels in the ratio.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["Interval", "Score", "ratio", "word_errors"]


@dataclass(frozen=True, slots=True)
class Score:
    """Word errors (substitutions, deletions, insertions) and reference words of a sentence."""

    errors: int
    words: int


@dataclass(frozen=True, slots=True)
class Interval:
    """An estimate with its 95 % confidence interval."""

    value: float
    low: float
    high: float

    def rounded(self) -> dict[str, float]:
        """Round to three decimals for a report."""
        return {"value": round(self.value, 3), "low": round(self.low, 3), "high": round(self.high, 3)}


def word_errors(reference: Sequence[str], hypothesis: Sequence[str]) -> Score:
    """Compute the Levenshtein distance between two word lists."""
    row = list(range(len(hypothesis) + 1))
    for i, word in enumerate(reference, 1):
        diagonal, row[0] = row[0], i
        for j, candidate in enumerate(hypothesis, 1):
            best = min(row[j] + 1, row[j - 1] + 1, diagonal + (word != candidate))
            diagonal, row[j] = row[j], best
    return Score(row[-1], len(reference))


def rate(scores: Sequence[Score]) -> float:
    """Compute WER over all sentences; may exceed 1."""
    return sum(s.errors for s in scores) / max(1, sum(s.words for s in scores))


def _draws(count: int, repeats: int, seed: int) -> np.ndarray[tuple[int, int], np.dtype[np.int64]]:
    return np.random.default_rng(seed).integers(0, count, (repeats, count))


def rate_interval(scores: Sequence[Score], *, repeats: int = 4000, seed: int = 0) -> Interval:
    """Compute WER with its bootstrap interval over sentences."""
    errors = np.array([s.errors for s in scores], float)
    words = np.array([s.words for s in scores], float)
    index = _draws(len(scores), repeats, seed)
    values = errors[index].sum(1) / words[index].sum(1)
    low, high = np.quantile(values, (0.025, 0.975))
    return Interval(rate(scores), float(low), float(high))


def mean_interval(values: NDArray[np.float64], *, repeats: int = 4000, seed: int = 0) -> Interval:
    """Compute the mean of one number per sentence with its bootstrap interval over sentences."""
    means = values[_draws(len(values), repeats, seed)].mean(1)
    low, high = np.quantile(means, (0.025, 0.975))
    return Interval(float(values.mean()), float(low), float(high))


def ratio(scores: Sequence[Score], baseline: Sequence[Score], *, repeats: int = 4000, seed: int = 0) -> Interval:
    """Compute the WER ratio of `scores` to `baseline`, which must be of the same sentences in the same order."""
    if [s.words for s in scores] != [s.words for s in baseline]:
        raise SystemExit("ratio(): scores and baseline must be of the same sentences in the same order")
    ours = np.array([s.errors for s in scores], float)
    theirs = np.array([s.errors for s in baseline], float)
    index = _draws(len(scores), repeats, seed)
    # Adding half an error keeps draws without errors finite; negligible at the sizes used here.
    values = (ours[index].sum(1) + 0.5) / (theirs[index].sum(1) + 0.5)
    low, high = np.quantile(values, (0.025, 0.975))
    return Interval(float((ours.sum() + 0.5) / (theirs.sum() + 0.5)), float(low), float(high))
