"""format, sample_rate and the bitrates: every listed format and rate holds the speech of this voice."""

from __future__ import annotations

import numpy as np
import pytest

from tests.effects.measure import Floats, Voice
from voicelab.call import Call
from voicelab.clip import Clip
from voicelab.schema import DEFAULT_RATES, FORMATS, MP3_BITRATES, RATES, AudioFormat

TEXT = "Rice is served."


def levels(clip: Clip) -> Floats:
    """The level over time below 4 kHz, in dB."""
    samples, step = clip.resample(8_000).samples, 800
    whole = samples[: samples.size // step * step].reshape(-1, step)
    found: Floats = 20 * np.log10(np.sqrt(np.mean(np.square(whole), axis=1)) + 1e-3)
    return found


@pytest.mark.parametrize(("format", "rate"), [(kind, rate) for kind in FORMATS for rate in (None, *RATES[kind])])
def test_each_format_and_rate_holds_the_same_speech(voice: Voice, format: AudioFormat, rate: int | None) -> None:
    """The level over time is the same wherever it is read back, up to what the narrowest of them holds."""
    plain, clip = voice.kept(TEXT), voice.say(TEXT, format=format, sample_rate=rate)
    assert clip.rate == (rate or DEFAULT_RATES[format])
    # The last frame of an MP3 is filled up.
    assert clip.duration == pytest.approx(plain.duration, abs=0.04 if format == "mp3" else 0.001)
    mine, theirs = levels(clip), levels(plain)
    shared = min(mine.size, theirs.size)
    assert np.abs(mine[:shared] - theirs[:shared]).mean() < 1.5


def test_more_bits_are_more_bytes(voice: Voice) -> None:
    def size(**fields: object) -> int:
        return sum(map(len, voice.backend.synthesize(Call(voice.request(TEXT, **fields), seed=1))))

    mp3 = [size(format="mp3", mp3_bitrate=rate) for rate in sorted(MP3_BITRATES)]
    assert [one / mp3[0] for one in mp3] == pytest.approx([1, 2, 3], rel=0.05)
    opus = [size(format="opus", opus_bitrate=rate) for rate in (24, 32, 48, 64)]
    assert opus == sorted(opus)
    assert opus[-1] > 1.5 * opus[0]
