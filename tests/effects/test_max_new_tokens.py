"""max_new_tokens: the most frames that a segment may have, to the frame, and the note that says so."""

from __future__ import annotations

import numpy as np
import pytest

from tests.effects.measure import HOP, SENTENCE, Voice

TEXT = (
    "The birch canoe slid on the smooth planks, and nobody on the shore had seen it go. "
    "Glue the sheet to the dark blue background, then press it down with both of your hands. "
    "Four hours of steady work faced us, so we took the tools and went out to the garden."
)


@pytest.mark.parametrize("tokens", [1, 7, 20])
@pytest.mark.parametrize("conditioned", [True, False])
def test_every_segment_has_so_many_frames(voice: Voice, tokens: int, conditioned: bool) -> None:
    clip = voice.say(TEXT, max_new_tokens=tokens, chunk_length=100, condition_on_previous_chunks=conditioned)
    assert len(clip) == 3 * tokens * HOP
    assert clip.notes == tuple(f"segment {i} was cut off by max_new_tokens={tokens}" for i in (1, 2, 3))


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
