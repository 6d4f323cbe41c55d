"""The seed, and the model header: one voice answers to both names, and says so."""

from __future__ import annotations

import numpy as np

from tests.effects.measure import Voice

TEXT = "Rice is often served in round bowls."


def test_the_same_seed_is_the_same_speech_and_another_is_not(voice: Voice) -> None:
    first, again, other = (voice.say(TEXT, seed=seed) for seed in (5, 5, 6))
    assert np.array_equal(first.samples, again.samples)
    assert len(first) != len(other) or not np.array_equal(first.samples, other.samples)


def test_without_a_seed_takes_differ_and_each_can_be_had_again(voice: Voice) -> None:
    streams = [voice.backend.synthesize(voice.request(TEXT)) for _ in range(3)]
    clips = [stream.clip() for stream in streams]
    seeds = [clip.provenance.seed for clip in clips if clip.provenance is not None]
    assert len(set(seeds)) == 3
    assert seeds[0] is not None
    assert np.array_equal(voice.say(TEXT, seed=seeds[0]).samples, clips[0].samples)
    assert not np.array_equal(clips[0].samples, clips[1].samples)


def test_both_models_are_one_voice_and_the_clip_says_so(voice: Voice) -> None:
    request = voice.request(TEXT)
    assert voice.backend.capabilities.models == ("s1", "s2-pro")
    assert voice.backend.capabilities.one_model is True
    small = voice.backend.synthesize(request, model="s1", seed=1).clip()
    large = voice.backend.synthesize(request, model="s2-pro", seed=1).clip()
    assert np.array_equal(small.samples, large.samples)
    assert small.provenance is not None
    assert small.provenance.model == "s1"
    (note,) = small.notes
    assert "s1" in note
    assert "s2-pro" in note
    assert large.notes == ()  # what is asked for by default is what there is
