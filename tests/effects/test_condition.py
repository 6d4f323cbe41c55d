"""condition_on_previous_chunks: whether a segment hears those before it, and what that does at their border.

Two sentences are one segment with min_chunk_length=100 and two with 0, so that a border between segments can be held
against the same place inside a segment.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.effects.measure import HOP, Floats, Voice, long_term_spectrum, said, semitones
from voicelab.audio import analysis
from voicelab.clip import Clip

SENTENCES = (
    "The birch canoe slid on the smooth planks, and nobody on the shore had seen it go.",
    "Glue the sheet to the dark blue background, then press it down with both of your hands.",
    "Four hours of steady work faced us, so we took the tools and went out to the garden.",
)
TEXT = " ".join(SENTENCES[:2])
FIRST = "Glue"


def jump(clip: Clip) -> Floats:
    """From the last two seconds of the first sentence to the first two of the second: (1 + 40,).

    Semitones of the median pitch, and dB of the long-term spectrum in 40 bands.
    """
    pitch = analysis.f0(clip)
    at = next(w.start for w in clip.words if w.text == FIRST)
    sides = []
    for start, end in ((at - 2, at), (at, at + 2)):
        values = pitch.values[(pitch.times >= start) & (pitch.times < end)]
        sides.append(np.append(semitones(np.nanmedian(values)), long_term_spectrum(clip, start, end)))
    made: Floats = sides[1] - sides[0]
    return made


def test_false_speaks_each_segment_as_if_it_stood_alone(voice: Voice) -> None:
    """Whatever comes before, the same frames follow; with true they hear it."""
    fields: dict[str, Any] = {"chunk_length": 100, "max_new_tokens": 30}
    others = ("The old mule stood at the long stone wall all day, and it would not move for us.", SENTENCES[0])
    free, bound = (
        [voice.say(f"{other} {SENTENCES[1]}", condition_on_previous_chunks=on, **fields) for other in others]
        for on in (False, True)
    )
    second = slice(30 * HOP, 60 * HOP)
    assert all(len(clip) == 60 * HOP for clip in (*free, *bound))
    assert np.array_equal(free[0].samples[second], free[1].samples[second])
    assert not np.allclose(bound[0].samples[second], bound[1].samples[second], atol=0.01)


@pytest.mark.thorough
@pytest.mark.timeout(1200)
def test_over_a_border_it_jumps_no_further_than_inside_a_segment(voice: Voice) -> None:
    """The same two sentences in one segment, in two that hear each other, and in two that do not."""
    fields: dict[str, Any] = {"temperature": 1.0, "top_p": 1.0}
    found = []
    for shortest, conditioned in ((100, True), (0, True), (0, False)):
        fields |= {"min_chunk_length": shortest, "condition_on_previous_chunks": conditioned}
        assert len(voice.say(TEXT, max_new_tokens=1, **fields)) == (1 if shortest else 2) * HOP
        takes = voice.takes(range(24), TEXT, **fields)
        found.append(np.array([jump(take) for take in takes if FIRST in said(take)]))
        assert len(found[-1]) > 18
    inside, heard, unheard = found
    for part in (slice(0, 1), slice(1, None)):  # pitch, then spectrum
        sizes = [float(np.sqrt(np.mean(np.square(jumps[:, part])))) for jumps in (inside, heard)]
        assert sizes[1] < 1.1 * sizes[0]
    # What is said before pulls the timbre of what follows along: from take to take the jump varies less.
    spreads = [float(np.sqrt(jumps[:, 1:].var(axis=0).mean())) for jumps in (heard, unheard)]
    assert spreads[0] < spreads[1]
