"""condition_on_previous_chunks: over the border of two segments speech goes on as it does inside one, or begins anew.

Cut into three segments that hear each other, a text is spoken just as if it had not been cut: every jump of pitch or timbre
at a border is the one that lies between two sentences of one segment. Cut into segments that do not, each is spoken as if
it stood alone.
"""

from __future__ import annotations

import numpy as np
import pytest

from tests.effects.measure import HOP, Floats, Voice, long_term_spectrum, semitones
from voicelab.audio import analysis
from voicelab.audio.clip import Clip
from voicelab.schema import ReferenceAudio

SENTENCES = (
    "The birch canoe slid on the smooth planks, and nobody on the shore had seen it go.",
    "Glue the sheet to the dark blue background, then press it down with both of your hands.",
    "Four hours of steady work faced us, so we took the tools and went out to the garden.",
)
TEXT = " ".join(SENTENCES)
FIRSTS = ("Glue", "Four")


def jumps(clip: Clip) -> Floats:
    """From the last two seconds of a sentence to the first two of the next: (borders, 1 + 40).

    Semitones of the median pitch, and dB of the long-term spectrum in 40 bands.
    """
    pitch, found = analysis.f0(clip), []
    for word in FIRSTS:
        at = next(w.start for w in clip.words if w.text == word)
        sides = []
        for start, end in ((at - 2, at), (at, at + 2)):
            values = pitch.values[(pitch.times >= start) & (pitch.times < end)]
            sides.append(np.append(semitones(np.nanmedian(values)), long_term_spectrum(clip, start, end)))
        found.append(sides[1] - sides[0])
    return np.array(found)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_true_sounds_as_if_the_text_had_not_been_cut(voice: Voice, temperature: float) -> None:
    whole, cut = (voice.say(TEXT, chunk_length=n, temperature=temperature, top_p=1.0, seed=4) for n in (300, 100))
    assert voice.say(TEXT, chunk_length=100, max_new_tokens=1).duration == pytest.approx(3 * HOP / 44100), "it is cut"
    assert cut.words == whole.words
    assert np.abs(jumps(cut) - jumps(whole)).max() < 0.01
    assert np.abs(cut.samples - whole.samples).max() < 1e-3


def test_a_cloned_speaker_goes_on_likewise(voice: Voice) -> None:
    sample = ReferenceAudio(audio=voice.say(SENTENCES[0], reference_id="clara").to_bytes("wav"), text=SENTENCES[0])
    whole, cut = (voice.say(" ".join(SENTENCES[:2]), chunk_length=n, references=[sample]) for n in (300, 100))
    assert cut.words == whole.words
    assert np.abs(cut.samples - whole.samples).max() < 1e-3


def test_false_speaks_each_segment_as_if_it_stood_alone(voice: Voice) -> None:
    """Whatever comes before, the same frames follow; with true they hear it."""
    fields = {"chunk_length": 100, "max_new_tokens": 30}
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
@pytest.mark.parametrize("first", [0, 100, 200])
def test_with_false_borders_jump_more(voice: Voice, first: int) -> None:
    """The spread over takes of the jump of the spectrum at a border: what is said before pulls what follows along."""
    fields = {"chunk_length": 100, "temperature": 1.0, "top_p": 1.0}
    spreads = []
    for conditioned in (True, False):
        takes = voice.takes(
            range(first, first + 24), " ".join(SENTENCES), condition_on_previous_chunks=conditioned, **fields
        )
        found = [jumps(take) for take in takes if set(FIRSTS) <= {w.text for w in take.words}]
        assert len(found) > 18
        spreads.append(float(np.sqrt(np.array(found)[:, :, 1:].var(axis=0).mean())))
    assert spreads[0] < spreads[1]
