"""max_new_tokens: the most frames that a segment may have, to the frame, and the note that says so."""

from __future__ import annotations

import numpy as np

from tests.effects.measure import HOP, SENTENCE, Voice


def test_what_is_shorter_is_left_alone(voice: Voice) -> None:
    whole = voice.say(SENTENCE)
    frames = len(whole) // HOP
    capped = voice.say(SENTENCE, max_new_tokens=frames)
    assert np.array_equal(capped.samples, whole.samples)
    assert capped.notes == ()
    cut = voice.say(SENTENCE, max_new_tokens=frames - 1)
    assert len(cut) == (frames - 1) * HOP
    assert cut.notes == (f"segment 1 was cut off by max_new_tokens={frames - 1}",)
    # What is heard until then is the same; the last of it fades where the whole goes on.
    heard = (frames - 2) * HOP
    assert np.abs(cut.samples[:heard] - whole.samples[:heard]).max() < 0.01
