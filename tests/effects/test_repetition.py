"""repetition_penalty: how often a code of the first codebook comes again within the next four frames."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby, pairwise

import numpy as np
import numpy.typing as npt
import pytest

from tests.effects.measure import Voice
from voicelab.engine.pointer.step import REPEAT_WINDOW
from voicelab.errors import EngineError

pytestmark = pytest.mark.thorough

Codes = npt.NDArray[np.int64]
TEXT = "We all saw the slow old mule lean on the long stone wall."
"""Long vowels and liquids: sounds that stay the same for a while, so that there is something to repeat."""
SEEDS = range(12)


def repeats(takes: Sequence[Codes]) -> float:
    """Share of frames whose first code is among those of the four frames before."""
    found = []
    for take in takes:
        first = take[:, 0].tolist()
        found += [first[i] in first[max(0, i - REPEAT_WINDOW) : i] for i in range(1, len(first))]
    return float(np.mean(found))


def longest_run(takes: Sequence[Codes]) -> float:
    """Most frames in a row with the same first code, averaged over takes."""
    return float(np.mean([max(len(list(run)) for _, run in groupby(take[:, 0].tolist())) for take in takes]))


@pytest.fixture(scope="module")
def takes(voice: Voice) -> Callable[[float], list[Codes]]:
    kept: dict[float, list[Codes]] = {}

    def spoken(penalty: float) -> list[Codes]:
        if penalty not in kept:
            kept[penalty] = voice.codes(SEEDS, TEXT, repetition_penalty=penalty)
        return kept[penalty]

    return spoken


def test_patterns_repeat_less_the_higher_it_is(takes: Callable[[float], list[Codes]]) -> None:
    """Measured over three times 24 seeds: .25 to .27 at 1, .23 at 1.6, .20 to .21 at 3."""
    none, high = (repeats(takes(penalty)) for penalty in (1.0, 3.0))
    assert high < 0.93 * none


def test_below_one_patterns_repeat_more(takes: Callable[[float], list[Codes]]) -> None:
    assert repeats(takes(0.5)) > 1.2 * repeats(takes(3.0))
    assert repeats(takes(0.5)) > repeats(takes(1.0))


def test_durations_are_left_alone(takes: Callable[[float], list[Codes]]) -> None:
    """Fewer repeats are not bought with a hurry: what is lowered is the code, not how long a sound is held."""
    frames = [np.mean([len(take) for take in takes(penalty)]) for penalty in (1.0, 3.0)]
    assert frames[1] == pytest.approx(frames[0], rel=0.12)


@pytest.mark.parametrize("penalty", [1e-300, 0.01, 100.0])
def test_at_its_ends_it_is_speech_or_an_error(voice: Voice, penalty: float) -> None:
    """One that rewards repetition without end may well say the silence that a sentence begins with for ever."""
    try:
        clip = voice.say("Rice is served.", repetition_penalty=penalty)
    except EngineError as error:
        if penalty < 1 and "silence" in str(error):
            return
        raise
    assert np.isfinite(clip.samples).all()
    assert np.abs(clip.samples).max() > 0.02
    assert 0.3 < clip.duration < 8


@pytest.mark.timeout(600)
def test_every_step_takes_repeats_away(voice: Voice) -> None:
    """Also the default of 1.2 against none, which few takes do not show."""
    many = {p: voice.codes(range(48), TEXT, repetition_penalty=p) for p in (0.5, 1.0, 1.2, 1.6, 3.0)}
    found = [repeats(some) for some in many.values()]
    for lower, higher in pairwise(found):
        assert higher < 1.02 * lower  # between neighbours chance has a say
    assert found[0] > 1.05 * found[1] > 1.1 * found[3] > 1.15 * found[4]
    runs = [longest_run(many[p]) for p in (0.5, 1.0, 3.0)]
    assert runs == sorted(runs, reverse=True)
