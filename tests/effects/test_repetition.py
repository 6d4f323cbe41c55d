"""repetition_penalty: how often a code of the first codebook comes again within the next four frames."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby, pairwise

import numpy as np
import numpy.typing as npt
import pytest

from tests.effects.measure import Voice
from voicelab.engine.pointer.rows import REPEAT_WINDOW
from voicelab.errors import EngineError

pytestmark = pytest.mark.thorough

Codes = npt.NDArray[np.int64]
TEXT = "We all saw the slow old mule lean on the long stone wall."
"""Long vowels and liquids: sounds that stay the same for a while, so that there is something to repeat."""


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
    """Also the default of 1.2 against none; what is lowered is the code, not how long a sound is held."""
    many = {p: voice.codes(range(48), TEXT, repetition_penalty=p) for p in (0.5, 1.0, 1.2, 1.6, 3.0)}
    found = [repeats(some) for some in many.values()]
    for lower, higher in pairwise(found):
        assert higher < 1.02 * lower  # between neighbours chance has a say
    assert found[0] > 1.05 * found[1] > 1.1 * found[3] > 1.15 * found[4]
    runs = [longest_run(many[p]) for p in (0.5, 1.0, 3.0)]
    assert runs == sorted(runs, reverse=True)
    plain, high = (np.mean([len(take) for take in many[p]]) for p in (1.0, 3.0))
    assert high == pytest.approx(plain, rel=0.12)
