"""A table of takes as a design: levels, cells and strata as codes, and a metric's values beside them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from voicelab.errors import RequestInvalid

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Design", "build"]

_Codes = npt.NDArray[np.intp]
_Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Design:
    """Takes that have a value of one metric.

    ``values`` (takes,); ``codes`` (factors, takes) the level of every factor: the axes, then, where there are blocks,
    the block that a take is in: what all of their columns say together. ``levels`` the names of the levels of each axis.
    """

    values: _Floats
    codes: _Codes
    levels: tuple[tuple[Any, ...], ...]

    @property
    def factors(self) -> range:
        """The numbers of all factors."""
        return range(self.codes.shape[0])

    @property
    def cells(self) -> _Codes:
        """The cell of each take: takes of one cell share all levels, and are repeats. Shape (takes,)."""
        return _combine(self.codes)

    def strata(self, axis: int) -> _Codes:
        """Within what the takes are exchangeable when ``axis`` does nothing: all other factors' cells."""
        return _combine(np.delete(self.codes, axis, axis=0))

    def dummies(self, factors: Sequence[int]) -> _Floats:
        """Return the additive model's columns, (takes, columns): a constant, and all levels but the first."""
        columns = [np.ones((self.values.size, 1))]
        for factor in factors:
            present = np.unique(self.codes[factor])
            columns.append((self.codes[factor][:, None] == present[None, 1:]).astype(np.float64))
        return np.concatenate(columns, axis=1)


def _combine(codes: _Codes) -> _Codes:
    """Number the different columns of ``codes`` from 0 in the order in which they come first."""
    if not codes.shape[0]:
        return np.zeros(codes.shape[1], np.intp)
    _, first, cells = np.unique(codes, axis=1, return_index=True, return_inverse=True)
    return np.asarray(np.argsort(np.argsort(first))[cells.reshape(-1)], np.intp)


def columns_of(frame: pd.DataFrame, given: Sequence[str] | str, name: str) -> list[str]:
    """Return column names after checking them; raises RequestInvalid, which names the argument."""
    columns = [given] if isinstance(given, str) else list(given)
    for column in columns:
        if column not in frame.columns:
            raise RequestInvalid.of(
                name, f"there is no column {column!r}; there are {', '.join(map(str, frame.columns))}"
            )
    if len(set(columns)) < len(columns):
        raise RequestInvalid.of(name, "a column is there twice")
    return columns


def build(frame: pd.DataFrame, axes: Sequence[str], blocks: Sequence[str], metric: str) -> Design:
    """Return the design of the rows in which ``metric`` is a finite number, the same whatever their order.

    Levels of an axis are in ascending order where they are numbers, in that of their categories where they have
    some, else in order of appearance. Raises RequestInvalid for a metric that is not numeric.
    """
    import pandas as pd

    column = pd.to_numeric(frame[metric], errors="coerce").to_numpy(np.float64, na_value=np.nan)
    if frame[metric].notna().sum() > np.isfinite(column).sum() and not np.isfinite(column).any():
        raise RequestInvalid.of("metrics", f"{metric!r} has no numbers in it")
    kept = np.isfinite(column)
    codes, levels, places = [], [], []
    for factor in (*axes, *blocks):
        values = frame[factor]
        ordered = pd.api.types.is_numeric_dtype(values) or isinstance(values.dtype, pd.CategoricalDtype)
        if not ordered:
            # Lists and records are levels too, and cannot be hashed.
            values = values.map(lambda value: value if isinstance(value, str | int | float | bool) else repr(value))
        code, names = pd.factorize(values, sort=ordered, use_na_sentinel=False)
        codes.append(np.asarray(code, np.intp)[kept])
        levels.append(tuple(name.item() if isinstance(name, np.generic) else name for name in names))
        # Not the codes themselves: those of words depend on which row comes first.
        by_name = sorted(range(len(names)), key=lambda number, known=levels[-1]: repr(known[number]))  # type: ignore[misc]
        places.append(np.argsort(by_name)[codes[-1]])
    found = column[kept]
    # Resampling draws by place, and the order in which takes were made must not decide a p-value.
    order = np.lexsort((found, *reversed(places)))
    together = np.stack(codes)[:, order]
    varied, held = together[: len(axes)], together[len(axes) :]
    block = [_combine(held)] if len(held) else []
    return Design(found[order], np.stack([*varied, *block]), tuple(levels[: len(axes)]))
