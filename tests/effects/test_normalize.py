"""normalize: numbers, times, ordinals and abbreviations are written out before they are spoken, or taken as they stand."""

from __future__ import annotations

import pytest

from tests.effects.measure import Voice, said


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("It costs $5.20.", "It costs five dollars and twenty cents"),
        ("She came in 3rd.", "She came in third"),
        ("At 10:30, Dr. Lee left.", "At ten thirty Doctor Lee left"),
    ],
)
def test_written_out_or_taken_as_written(voice: Voice, text: str, words: str) -> None:
    on, off = (voice.say(text, normalize=normalize, temperature=0.0) for normalize in (True, False))
    assert said(on) == words.split()
    assert said(off) != said(on)
    assert not set(said(off)) & {"dollars", "third", "thirty", "Doctor"}
    # What differs is the sound, not only the list of words.
    assert abs(on.duration - off.duration) > 0.1
    written = voice.say(words + ".", temperature=0.0)
    assert abs(on.duration - written.duration) < 0.35 * written.duration


def test_what_is_left_out_because_it_is_off_is_noted(voice: Voice) -> None:
    (note,) = voice.say("It costs $5.20.", normalize=False).notes
    assert "$" in note
    assert "normalize" in note
    assert voice.say("It costs $5.20.").notes == ()
