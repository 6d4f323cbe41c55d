from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from voicelab.errors import RequestInvalid
from voicelab.experiments.statistics import intraclass_correlation, krippendorff_alpha

# P. E. Shrout & J. L. Fleiss, Psychological Bulletin 86 (1979), table 2: six targets, four judges; results in table 4.
JUDGES = [[9, 2, 5, 8], [6, 1, 3, 2], [8, 4, 6, 8], [7, 1, 2, 6], [10, 5, 6, 9], [6, 2, 4, 7]]

# K. Krippendorff, "Computing Krippendorff's alpha-reliability" (2011), section C: four observers, twelve units.
_: float = math.nan
OBSERVERS: list[list[float]] = [
    [1, 2, 3, 3, 2, 1, 4, 1, 2, _, _, _],
    [1, 2, 3, 3, 2, 2, 4, 1, 2, 5, _, 3],
    [_, 3, 3, 3, 2, 3, 4, 2, 2, 5, 1, _],
    [1, 2, 3, 3, 2, 4, 4, 1, 2, 5, 1, _],
]


@pytest.mark.parametrize(
    ("raters", "of_mean", "printed"),
    [
        ("nested", False, 0.17),
        ("random", False, 0.29),
        ("fixed", False, 0.71),
        ("nested", True, 0.44),
        ("random", True, 0.62),
        ("fixed", True, 0.91),
    ],
)
def test_shrout_and_fleiss(raters: Any, of_mean: bool, printed: float) -> None:
    assert intraclass_correlation(JUDGES, raters=raters, of_mean=of_mean) == pytest.approx(printed, abs=0.0051)


@pytest.mark.parametrize(
    ("level", "printed"), [("nominal", 0.743), ("ordinal", 0.815), ("interval", 0.849), ("ratio", 0.797)]
)
def test_krippendorffs_observers(level: Any, printed: float) -> None:
    assert krippendorff_alpha(OBSERVERS, level=level) == pytest.approx(printed, abs=0.0006)


def test_agreement_is_one_chance_is_zero_and_sameness_is_neither() -> None:
    table = np.tile(np.arange(1, 6), (4, 3))
    assert krippendorff_alpha(table) == pytest.approx(1.0)
    assert intraclass_correlation(table.T) == pytest.approx(1.0)
    noise = np.random.default_rng(0).integers(1, 6, (4, 3000))
    assert krippendorff_alpha(noise) == pytest.approx(0.0, abs=0.03)
    assert intraclass_correlation(noise.T) == pytest.approx(0.0, abs=0.03)
    assert math.isnan(krippendorff_alpha(np.full((3, 4), 2.0)))
    assert math.isnan(intraclass_correlation(np.full((3, 4), 2.0)))
    # The mean of twenty times 0.7 is not 0.7.
    assert math.isnan(intraclass_correlation(np.full((5, 4), 0.7)))


def test_raters_that_cannot_be_compared_are_refused() -> None:
    with pytest.raises(RequestInvalid, match="two ratings"):
        krippendorff_alpha([[1, _], [_, 2]])
    with pytest.raises(RequestInvalid, match="ratio"):
        krippendorff_alpha([[-1, 2], [1, 2]], level="ratio")
    with pytest.raises(RequestInvalid, match="level"):
        krippendorff_alpha([[1, 2], [1, 2]], level="cardinal")  # type: ignore[arg-type]
    with pytest.raises(RequestInvalid, match="ratings"):
        intraclass_correlation(np.array([[1, _], [1, 2]]))
    with pytest.raises(RequestInvalid, match="raters"):
        intraclass_correlation(JUDGES, raters="some")  # type: ignore[arg-type]
