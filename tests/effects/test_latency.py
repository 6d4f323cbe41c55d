"""latency: how much is spoken and decoded before the first audio leaves, and that it is the same speech."""

from __future__ import annotations

import numpy as np
import pytest

from tests.effects.measure import HOP, SENTENCE, Voice
from voicelab.audio.encoders import StreamEncoder
from voicelab.call import Call
from voicelab.schema import AudioFormat, Latency

ORDER: tuple[Latency, ...] = ("low", "balanced", "normal")


def frames_before_the_first_bytes(voice: Voice, latency: Latency, format: AudioFormat) -> int:
    """Codec frames decoded until the encoder gives audio: what time to first audio is made of, on any machine."""
    request = voice.request(latency=latency, format=format, max_new_tokens=26)
    speech = voice.speech(request)
    encoder, header = StreamEncoder.for_request(request, 44_100), {"wav": 44}.get(format, 0)
    made = 0
    for samples in speech.audio():
        made += samples.size
        if len(encoder.feed(samples)) > header:
            speech.cancel()
            return -(-made // HOP)
    pytest.fail("nothing came")


@pytest.mark.parametrize(("format", "most"), [("wav", 1), ("pcm", 1), ("mp3", 3), ("opus", 6)])
def test_low_needs_least_and_normal_most(voice: Voice, format: AudioFormat, most: int) -> None:
    low, balanced, normal = (frames_before_the_first_bytes(voice, latency, format) for latency in ORDER)
    assert low < balanced < normal
    assert low <= most  # 46 ms each: WAV after one, MP3 within 140 ms, Ogg Opus within 280 ms
    assert normal <= 26


@pytest.mark.parametrize("latency", ORDER)
def test_streamed_is_whole(voice: Voice, latency: Latency) -> None:
    streamed = b"".join(voice.backend.synthesize(Call(voice.request("Rice is served.", latency=latency), seed=2)))
    whole = voice.say("Rice is served.", latency=latency, seed=2)
    assert np.array_equal(np.frombuffer(streamed, "<i2"), np.round(whole.samples * 32768).astype("<i2"))


def test_what_is_said_does_not_depend_on_it(voice: Voice) -> None:
    clips = [voice.say(SENTENCE, latency=latency, seed=3) for latency in ORDER]
    for clip in clips[1:]:
        assert clip.words == clips[0].words
        assert np.abs(clip.samples - clips[0].samples).max() < 0.01
