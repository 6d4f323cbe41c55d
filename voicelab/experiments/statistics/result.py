"""What a statistic returns: an estimate with its interval, and a test."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from voicelab.errors import RequestInvalid

__all__ = ["Estimate", "Test", "numbers", "percent"]


@dataclass(frozen=True, slots=True)
class Estimate:
    """A value with its confidence interval: ``low`` to ``high`` at ``confidence``, from ``n`` observations."""

    value: float
    low: float
    high: float
    confidence: float
    n: int

    def __str__(self) -> str:
        return f"{self.value:.3g} [{self.low:.3g}, {self.high:.3g}] ({percent(self.confidence)}, n = {self.n})"


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


def percent(share: float) -> str:
    """Return a share as people write it: 95%, 99.9%."""
    return f"{share * 100:g}%"


def numbers(values: Iterable[float] | npt.ArrayLike, name: str, least: int) -> npt.NDArray[np.float64]:
    """Return ``values`` as an array (n,); raises RequestInvalid, which names them, unless finite and enough."""
    try:
        array = np.asarray(values if hasattr(values, "__len__") else list(values), np.float64)  # type: ignore[arg-type]
    except (TypeError, ValueError) as error:
        raise RequestInvalid.of(name, f"Input should be numbers: {error}") from error
    if array.ndim != 1 or array.size < least:
        raise RequestInvalid.of(name, f"Input should be {least} numbers or more, shape (n,), got {array.shape}")
    if not np.isfinite(array).all():
        raise RequestInvalid.of(name, "there are values that are not finite")
    return array


def whole(value: object, name: str, least: int) -> int:
    """Return ``value``; raises RequestInvalid, which names it, unless it is a whole number from ``least``."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        raise RequestInvalid.of(name, f"Input should be a whole number from {least}")
    return int(value)


def between(value: float, name: str, low: float, high: float) -> float:
    """Return ``value``; raises RequestInvalid, which names it, unless it lies inside ``low`` to ``high``."""
    if not (math.isfinite(value) and low < value < high):
        raise RequestInvalid.of(name, f"Input should be between {low:g} and {high:g}")
    return float(value)
