"""Word errors and their uncertainty: counting by edit distance, comparing by a paired bootstrap.

Systems are compared on the same sentences, so the bootstrap draws sentences, and each draw takes the errors of both
systems on them: what makes a sentence hard falls out of the ratio.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["Interval", "Score", "ratio", "word_errors"]


@dataclass(frozen=True, slots=True)
class Score:
    """One sentence: words wrong (substituted, left out or put in), out of how many in the reference."""

    errors: int
    words: int


@dataclass(frozen=True, slots=True)
class Interval:
    """An estimate with its 95 % confidence interval."""

    value: float
    low: float
    high: float

    def rounded(self) -> dict[str, float]:
        """The three numbers for a report."""
        return {"value": round(self.value, 3), "low": round(self.low, 3), "high": round(self.high, 3)}


def word_errors(reference: Sequence[str], hypothesis: Sequence[str]) -> Score:
    """Return the least number of substitutions, deletions and insertions (Levenshtein) between two word lists."""
    row = list(range(len(hypothesis) + 1))
    for i, word in enumerate(reference, 1):
        diagonal, row[0] = row[0], i
        for j, other in enumerate(hypothesis, 1):
            best = min(row[j] + 1, row[j - 1] + 1, diagonal + (word != other))
            diagonal, row[j] = row[j], best
    return Score(row[-1], len(reference))


def rate(scores: Sequence[Score]) -> float:
    """Return errors per reference word over all sentences; may pass 1."""
    return sum(s.errors for s in scores) / max(1, sum(s.words for s in scores))


def _draws(count: int, repeats: int, seed: int) -> np.ndarray[tuple[int, int], np.dtype[np.int64]]:
    return np.random.default_rng(seed).integers(0, count, (repeats, count))


def rate_interval(scores: Sequence[Score], *, repeats: int = 4000, seed: int = 0) -> Interval:
    """Return the word error rate with its interval over sentences."""
    errors = np.array([s.errors for s in scores], float)
    words = np.array([s.words for s in scores], float)
    index = _draws(len(scores), repeats, seed)
    values = errors[index].sum(1) / words[index].sum(1)
    low, high = np.quantile(values, (0.025, 0.975))
    return Interval(rate(scores), float(low), float(high))


def mean_interval(values: NDArray[np.float64], *, repeats: int = 4000, seed: int = 0) -> Interval:
    """Return the mean of one number a sentence with its interval over sentences."""
    means = values[_draws(len(values), repeats, seed)].mean(1)
    low, high = np.quantile(means, (0.025, 0.975))
    return Interval(float(values.mean()), float(low), float(high))


def ratio(scores: Sequence[Score], baseline: Sequence[Score], *, repeats: int = 4000, seed: int = 0) -> Interval:
    """Return error rate of `scores` over that of `baseline`; both hold the same sentences in the same order."""
    if [s.words for s in scores] != [s.words for s in baseline]:
        raise SystemExit("ratio() needs the same sentences in the same order on both sides")
    ours = np.array([s.errors for s in scores], float)
    theirs = np.array([s.errors for s in baseline], float)
    index = _draws(len(scores), repeats, seed)
    # Half an error on both sides keeps a draw without errors finite; it moves nothing at the sizes used here.
    values = (ours[index].sum(1) + 0.5) / (theirs[index].sum(1) + 0.5)
    low, high = np.quantile(values, (0.025, 0.975))
    return Interval(float((ours.sum() + 0.5) / (theirs.sum() + 0.5)), float(low), float(high))
