"""temperature and top_p: how far takes of one sentence lie apart.

Measured with weights of half as many steps, over three sets of 24 seeds, from temperature .35 and top_p .7 to 1 and 1:
durations .029 to .057, .040 to .055, .032 to .058; pitch .86 to .98, 1.13 to 1.35, 1.08 to 1.05, which needs many takes.
The bounds leave room for other weights.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from tests.effects.measure import Voice, comparable, duration_spread, mel_spread, pitch_spread
from voicelab.clip import Clip

pytestmark = pytest.mark.thorough

QUICK = 24
MANY = 32
Spread = Callable[[Sequence[Clip]], float]


@pytest.fixture(scope="module")
def spoken(voice: Voice) -> dict[tuple[float, float], list[Clip]]:
    """Takes by (temperature, top_p)."""
    settings = [(0.35, 0.7), (1.0, 0.7), (1.0, 1.0), (1.0, 0.35)]
    return {(t, p): comparable(voice.takes(range(QUICK), temperature=t, top_p=p)) for t, p in settings}


@pytest.mark.parametrize("fields", [{"temperature": 0.0, "top_p": 1.0}, {"top_p": 0.0, "temperature": 1.0}])
def test_nothing_left_to_chance_repeats_to_the_sample(voice: Voice, fields: dict[str, Any]) -> None:
    one, two = (voice.say(seed=seed, **fields).samples for seed in (1, 2))
    assert np.array_equal(one, two)


def test_greedy_is_greedy_whichever_way_it_is_asked_for(voice: Voice) -> None:
    """A nucleus of nothing and a temperature of 0 both leave the likeliest."""
    cold, narrow = voice.say(temperature=0.0, seed=1), voice.say(top_p=0.0, seed=2)
    assert np.array_equal(cold.samples, narrow.samples)


def test_all_takes_have_all_words(spoken: dict[tuple[float, float], list[Clip]]) -> None:
    """What widens is how it is said; nearly always all of it is said."""
    for takes in spoken.values():
        assert len(takes) >= 0.75 * QUICK


def test_spectra_lie_further_apart_the_hotter(spoken: dict[tuple[float, float], list[Clip]]) -> None:
    cold, hot, open_ = (mel_spread(spoken[key]) for key in ((0.35, 0.7), (1.0, 0.7), (1.0, 1.0)))
    assert 0.5 < cold < hot < open_
    assert open_ > 1.25 * cold


def test_spectra_lie_further_apart_the_wider_the_nucleus(spoken: dict[tuple[float, float], list[Clip]]) -> None:
    narrow, wide = (mel_spread(spoken[key]) for key in ((1.0, 0.35), (1.0, 1.0)))
    assert wide > 1.2 * narrow


@pytest.mark.parametrize(("spread", "least"), [(pitch_spread, 0.2), (duration_spread, 0.01)])
def test_pitch_and_durations_lie_further_apart_the_hotter(
    spread: Spread, least: float, spoken: dict[tuple[float, float], list[Clip]]
) -> None:
    """Free sampling against a nearly greedy one: a difference that few takes show already."""
    assert least < spread(spoken[0.35, 0.7]) < spread(spoken[1.0, 1.0])


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
        return kept[key]

    return takes
