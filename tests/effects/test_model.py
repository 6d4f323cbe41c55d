"""The model header: two models, one speaker."""

from __future__ import annotations

import numpy as np
import pytest

from tests.effects.measure import Voice
from voicelab.audio.analysis import f0
from voicelab.call import Call
from voicelab.schema import Model

pytestmark = pytest.mark.thorough

MODELS: tuple[Model, ...] = ("s1", "s2-pro")
TEXT = "Rice is often served in round bowls."


def test_the_two_models_are_one_speaker_and_read_differently(voice: Voice) -> None:
    assert voice.backend.capabilities.models == ("s1", "s2-pro")
    assert voice.backend.capabilities.one_model is False
    request = voice.request(TEXT)
    small, large = (voice.backend.synthesize(Call(request, model=model, seed=1)).clip() for model in MODELS)
    assert not np.array_equal(small.samples, large.samples)
    for clip, model in zip((small, large), MODELS, strict=True):
        assert clip.take is not None
        assert clip.take.model == model
        assert clip.notes == ()
        assert np.array_equal(voice.backend.synthesize(Call(request, model=model, seed=1)).clip().samples, clip.samples)
    assert 0.8 < small.duration / large.duration < 1.25
    low, high = (f0(clip).median for clip in (small, large))
    assert abs(12 * np.log2(low / high)) < 2.5
