"""temperature and top_p: how far takes of one sentence lie apart.

Measured with weights of half as many steps, over three sets of 24 seeds, from temperature .35 and top_p .7 to 1 and 1:
durations .029 to .057, .040 to .055, .032 to .058; pitch .86 to .98, 1.13 to 1.35, 1.08 to 1.05, which needs many takes.
The bounds leave room for other weights.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from tests.effects.measure import Voice, comparable, duration_spread, mel_spread, pitch_spread
from voicelab.clip import Clip

pytestmark = pytest.mark.thorough

MANY = 32
Spread = Callable[[Sequence[Clip]], float]


@pytest.mark.parametrize("first", [0, 1000, 2000])
@pytest.mark.parametrize("name", ["temperature", "top_p"])
@pytest.mark.parametrize("spread", [pitch_spread, mel_spread, duration_spread])
def test_spread_grows_all_the_way(spread: Spread, name: str, first: int, many: Callable[..., list[Clip]]) -> None:
    """0, 0.35, 0.7 and 1, the other field at its widest so that it hides nothing; each step up, but for chance."""
    found = [spread(many(name, value, first)) for value in (0.0, 0.35, 0.7, 1.0)]
    assert found[0] < 1e-9  # takes that are equal sample for sample, but for the rounding of their mean
    assert found[1] > 0
    # The same seeds at each step; between neighbours chance may take back a tenth, from end to end it may not.
    assert found[2] > 0.9 * found[1]
    assert found[3] > 0.9 * found[2]
    assert found[3] > 1.08 * found[1]


@pytest.fixture(scope="module")
def many(voice: Voice) -> Callable[..., list[Clip]]:
    kept: dict[tuple[str, float, int], list[Clip]] = {}

    def takes(name: str, value: float, first: int) -> list[Clip]:
        key = (name, value, first)
        if key not in kept:
            fields: dict[str, Any] = {"temperature": 1.0, "top_p": 1.0, name: value}
            kept[key] = comparable(voice.takes(range(first, first + MANY), **fields))
            # What widens is how it is said; nearly always all of it is said.
            assert len(kept[key]) >= 0.75 * MANY
        return kept[key]

    return takes
