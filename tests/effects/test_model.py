"""The seed, and the model header: two models, one speaker."""

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


def test_the_same_seed_is_the_same_speech_and_another_is_not(voice: Voice) -> None:
    first, again, other = (voice.say(TEXT, seed=seed) for seed in (5, 5, 6))
    assert np.array_equal(first.samples, again.samples)
    assert len(first) != len(other) or not np.array_equal(first.samples, other.samples)


def test_without_a_seed_takes_differ_and_each_can_be_had_again(voice: Voice) -> None:
    streams = [voice.backend.synthesize(Call(voice.request(TEXT))) for _ in range(3)]
    clips = [stream.clip() for stream in streams]
    seeds = [clip.take.seed for clip in clips if clip.take is not None]
    assert len(set(seeds)) == 3
    assert seeds[0] is not None
    assert np.array_equal(voice.say(TEXT, seed=seeds[0]).samples, clips[0].samples)
    assert not np.array_equal(clips[0].samples, clips[1].samples)


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
