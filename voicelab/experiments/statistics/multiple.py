"""Many tests at once: p-values corrected for how many there are."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from voicelab.errors import RequestInvalid

__all__ = ["benjamini_hochberg", "holm"]

_Floats = npt.NDArray[np.float64]


def holm(p_values: npt.ArrayLike) -> _Floats:
    """Return Holm's adjusted p-values, which hold the chance of any false positive in the family.

    ``p_values`` is (tests,); NaN stands for a test that was not made, stays NaN and does not count. S. Holm, "A
    simple sequentially rejective multiple test procedure", Scandinavian Journal of Statistics 6 (1979). Raises
    RequestInvalid for anything outside 0 to 1.
    """
    return _step(p_values, lambda count: np.arange(count, 0, -1.0), np.maximum.accumulate)


def benjamini_hochberg(p_values: npt.ArrayLike) -> _Floats:
    """Return adjusted p-values that hold the expected share of false positives among what is found.

    As ``holm``; for independent or positively dependent tests. Y. Benjamini & Y. Hochberg, "Controlling the false
    discovery rate", Journal of the Royal Statistical Society B 57 (1995).
    """

    def from_above(scaled: _Floats) -> _Floats:
        lowest: _Floats = np.minimum.accumulate(scaled[::-1])[::-1]
        return lowest

    return _step(p_values, lambda count: count / np.arange(1.0, count + 1), from_above)


def _step(
    p_values: npt.ArrayLike, factors: Callable[[int], _Floats], accumulate: Callable[[_Floats], _Floats]
) -> _Floats:
    given = np.asarray(p_values, np.float64)
    known = np.isfinite(given)
    if given.ndim != 1 or ((given[known] < 0.0) | (given[known] > 1.0)).any():
        raise RequestInvalid.of("p_values", "Input should be numbers from 0 to 1, shape (tests,)")
    adjusted = np.full(given.size, np.nan)
    order = np.flatnonzero(known)[np.argsort(given[known], kind="stable")]
    if order.size:
        scaled = given[order] * factors(order.size)
        adjusted[order] = np.minimum(accumulate(scaled), 1.0)
    return adjusted
