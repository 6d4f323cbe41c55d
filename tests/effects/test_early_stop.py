"""early_stop_threshold: of segments made together, once this share has ended by itself the rest are stopped."""

from __future__ import annotations

import numpy as np
import pytest

from tests.effects.measure import HOP, Voice

# Four segments of very different lengths: the first to end are told from the last by far.
TEXT = (
    "Dogs bark. "
    "The birch canoe slid on the smooth planks, I saw. "
    "Glue the sheet to the dark blue background, then press it down with both of your cold hands. "
    "Four hours of steady work faced us that day, so in the end we took the tools, the ladder, two ropes and the old "
    "lamp with us, and went out to the garden behind the mill."
)

pytestmark = pytest.mark.thorough
FIELDS = {"chunk_length": 300, "min_chunk_length": 0, "condition_on_previous_chunks": False}


def cut(notes: tuple[str, ...]) -> list[int]:
    return [int(note.split()[1]) for note in notes if "was cut off by early_stop_threshold" in note]


@pytest.mark.parametrize(("threshold", "stopped"), [(0.0, [2, 3, 4]), (0.5, [3, 4]), (0.75, [4]), (1.0, [])])
def test_the_rest_is_stopped_once_enough_have_ended(voice: Voice, threshold: float, stopped: list[int]) -> None:
    clip = voice.kept(TEXT, early_stop_threshold=threshold, **FIELDS)
    assert cut(clip.notes) == stopped
    assert len(clip.notes) == len(stopped)


def test_what_ended_by_itself_is_untouched(voice: Voice) -> None:
    whole, early = (voice.kept(TEXT, early_stop_threshold=x, **FIELDS) for x in (1.0, 0.0))
    first = next(word for word in whole.words if word.text == "bark").end
    assert np.array_equal(whole.samples[: int(first * 44100)], early.samples[: int(first * 44100)])
    # The rest have as many frames as the first, or one more: they began together and were stopped together.
    frames = [word for word in early.words if word.text in ("The", "Glue", "Four")]
    assert len(frames) == 3
    steps = np.diff([word.start for word in frames]) * 44100 / HOP
    assert np.ptp(steps) <= 2.5


def test_where_nothing_is_made_together_it_says_that_it_had_no_effect(voice: Voice) -> None:
    fields = {"chunk_length": 300, "min_chunk_length": 0, "max_new_tokens": 8}
    plain = voice.say(TEXT, **fields)
    clip = voice.say(TEXT, early_stop_threshold=0.5, **fields)
    assert np.array_equal(clip.samples, plain.samples)
    (note,) = set(clip.notes) - set(plain.notes)
    assert "early_stop_threshold=0.5" in note
    assert "condition_on_previous_chunks" in note
    one = voice.say("Dogs bark.", early_stop_threshold=0.5, condition_on_previous_chunks=False)
    assert [note for note in one.notes if "one segment" in note]
