"""What a statistic returns: an estimate with its interval, a test, and p-values corrected for how many tests there are."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from voicelab.errors import ArgumentError

__all__ = [
    "Estimate",
    "Test",
    "benjamini_hochberg",
    "between",
    "holm",
    "interval",
    "numbers",
    "one_of",
    "percent",
    "whole",
]

_Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Estimate:
    """A value with its confidence interval: ``low`` to ``high`` at ``confidence``, from ``n`` observations."""

    value: float
    low: float
    high: float
    confidence: float
    n: int

    def __str__(self) -> str:
        within = interval(self.low, self.high)
        return f"{self.value:.3g} {within} ({percent(self.confidence)}, n = {self.n})"


@dataclass(frozen=True, slots=True)
class Test:
    """A test of a hypothesis: its name, statistic, p-value, and the estimate of what it is about."""

    __test__ = False  # pytest is not meant

    name: str
    statistic: float
    p: float
    estimate: Estimate

    def __str__(self) -> str:
        return f"{self.name}: statistic {self.statistic:.4g}, p {self.p:.4g}; {self.estimate}"


def holm(p_values: npt.ArrayLike) -> _Floats:
    """Return Holm's adjusted p-values, which control the chance of any false positive in the family.

    ``p_values`` is (tests,); NaN stands for a test that was not made, stays NaN and does not count. S. Holm, "A
    simple sequentially rejective multiple test procedure", Scandinavian Journal of Statistics 6 (1979). Ours: scipy has
    it not, and statsmodels takes 2 s to import for these three lines. Raises ArgumentError for anything outside 0 to 1.
    """
    given, valid = _p_values(p_values)
    order = np.flatnonzero(valid)[np.argsort(given[valid], kind="stable")]
    given[order] = np.minimum(np.maximum.accumulate(given[order] * np.arange(order.size, 0, -1.0)), 1.0)
    return given


def benjamini_hochberg(p_values: npt.ArrayLike) -> _Floats:
    """Return adjusted p-values that control the expected share of false positives among the positives, by scipy.

    As ``holm``; for independent or positively dependent tests. Y. Benjamini & Y. Hochberg, "Controlling the false
    discovery rate", Journal of the Royal Statistical Society B 57 (1995).
    """
    from scipy.stats import false_discovery_control

    given, valid = _p_values(p_values)
    if valid.any():
        given[valid] = false_discovery_control(given[valid])
    return given


def _p_values(p_values: npt.ArrayLike) -> tuple[_Floats, npt.NDArray[np.bool_]]:
    given = np.array(p_values, np.float64)
    valid = np.isfinite(given)
    if given.ndim != 1 or ((given[valid] < 0.0) | (given[valid] > 1.0)).any():
        raise ArgumentError.of("p_values", "Input should be numbers from 0 to 1, shape (tests,)")
    return given, valid


def interval(low: float, high: float, form: str = ".3g") -> str:
    """Return an interval as people write it, "[1, 2]"; one without ends was made of too few takes, or answers."""
    if not (math.isfinite(low) or math.isfinite(high)):
        return "[too few for an interval]"
    return f"[{low:{form}}, {high:{form}}]"


def percent(share: float) -> str:
    """Return a share as people write it: 95%, 99.9%."""
    return f"{share * 100:g}%"


def numbers(values: Iterable[float] | npt.ArrayLike, name: str, least: int) -> _Floats:
    """Return ``values`` as an array (n,); raises ArgumentError, which names them, unless finite and enough."""
    try:
        array = np.asarray(values if hasattr(values, "__len__") else list(values), np.float64)  # type: ignore[arg-type]
    except (TypeError, ValueError) as error:
        raise ArgumentError.of(name, f"Input should be numbers: {error}") from error
    if array.ndim != 1 or array.size < least:
        raise ArgumentError.of(name, f"Input should be {least} numbers or more, shape (n,), got {array.shape}")
    if not np.isfinite(array).all():
        raise ArgumentError.of(name, "there are values that are not finite")
    return array


def whole(value: object, name: str, least: int) -> int:
    """Return ``value``; raises ArgumentError, which names it, unless it is a whole number from ``least``."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        raise ArgumentError.of(name, f"Input should be a whole number from {least}")
    return int(value)


def between(value: float, name: str, low: float, high: float) -> float:
    """Return ``value``; raises ArgumentError, which names it, unless it lies inside ``low`` to ``high``."""
    if not (math.isfinite(value) and low < value < high):
        raise ArgumentError.of(name, f"Input should be between {low:g} and {high:g}")
    return float(value)


def one_of(value: str, name: str, choices: tuple[str, ...]) -> None:
    """Raise ArgumentError, which names the argument, unless ``value`` is one of the ``choices``."""
    if value not in choices:
        *others, last = map(repr, choices)
        raise ArgumentError.of(name, f"{value!r} is not {', '.join(others)} or {last}")
