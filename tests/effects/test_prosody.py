"""prosody: speed changes the duration and not the pitch, volume the level and never clips."""

from __future__ import annotations

import numpy as np
import pytest

from tests.effects.measure import Voice, cents, rms_db
from voicelab.audio.prosody import CEILING_DBFS


@pytest.mark.parametrize("reference_id", [None, "clara"])
@pytest.mark.parametrize("speed", [0.5, 0.8, 1.25, 2.0])
def test_speed_scales_the_duration_and_keeps_the_pitch(voice: Voice, speed: float, reference_id: str | None) -> None:
    plain = voice.kept(reference_id=reference_id)
    clip = voice.say(prosody={"speed": speed}, reference_id=reference_id)
    assert len(clip) == round(len(plain) / speed)
    assert abs(cents(plain, clip)) < 20
    for before, after in zip(plain.words, clip.words, strict=True):
        assert after.text == before.text
        assert after.start == pytest.approx(before.start / speed, abs=0.001)
        assert after.end == pytest.approx(before.end / speed, abs=0.001)
    assert rms_db(clip.samples) == pytest.approx(rms_db(plain.samples), abs=1.5)


@pytest.mark.parametrize("volume", [20.0, 40.0])
def test_what_would_clip_is_limited_and_noted(voice: Voice, volume: float) -> None:
    plain = voice.kept()
    clip = voice.say(prosody={"volume": volume})
    ceiling = 10 ** (CEILING_DBFS / 20)
    assert np.abs(clip.samples).max() <= ceiling + 1 / 32768
    over = volume + 20 * np.log10(np.abs(plain.samples).max()) - CEILING_DBFS
    assert over > 1
    (note,) = clip.notes
    assert f"{volume:+g} dB" in note
    assert float(note.split("up to ")[1].split(" dB")[0]) == pytest.approx(over, abs=0.1)
    # Turned down, not cut off: no run of samples lies at the ceiling.
    at_ceiling = np.abs(clip.samples) > ceiling * 0.9999
    assert not (at_ceiling[:-3] & at_ceiling[1:-2] & at_ceiling[2:-1] & at_ceiling[3:]).any()
