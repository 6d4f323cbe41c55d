"""text: whatever is written is spoken, or left out with a note; silence is never passed off as speech."""

from __future__ import annotations

import numpy as np
import pytest

from tests.effects.measure import Voice, said


@pytest.mark.parametrize(
    ("text", "words", "noted"),
    [
        ("Hello 😀 there.", ["Hello", "there"], "😀"),
        ("Hello こんにちは world.", ["Hello", "world"], "こんにちは"),
        ("Hello мир again, friend.", ["Hello", "again", "friend"], "мир"),
        ("Hello مرحبا again, friend.", ["Hello", "again", "friend"], "مرحبا"),
        ("🇬🇧 Hi", ["Hi"], "🇬🇧"),
    ],
)
def test_what_is_left_out_is_noted(voice: Voice, text: str, words: list[str], noted: str) -> None:
    clip = voice.say(text)
    assert said(clip) == words
    assert any(noted in note and "left out" in note for note in clip.notes)
    plain = voice.say(text.replace(noted, " "))
    assert plain.notes == ()
    assert abs(clip.duration - plain.duration) < 0.3 * plain.duration  # no hole where it was


def test_another_language_in_its_own_letters_is_noted(voice: Voice) -> None:
    clip = voice.say("Bonjour, je suis très content de vous voir.")
    assert any("French" in note for note in clip.notes)


@pytest.mark.parametrize(
    "text", ["A", "7", "ok", "x² + y²", "C'est la vie", "hello\x00world", "e\u0301te\u0301", "a" * 60]
)
def test_short_and_strange_texts_are_heard(voice: Voice, text: str) -> None:
    clip = voice.say(text, max_new_tokens=60)
    assert clip.words
    assert np.abs(clip.samples).max() > 0.02
    for word in clip.words:  # there is sound wherever a word is said to be
        heard = clip.samples[int(word.start * clip.rate) : int(word.end * clip.rate) + 1]
        assert np.abs(heard).max() > 0.002, word


@pytest.mark.thorough
@pytest.mark.parametrize("conditioned", [True, False])
def test_twenty_thousand_characters_are_spoken_from_the_first_to_the_last_segment(
    voice: Voice, conditioned: bool
) -> None:
    """A frame of each segment; the last word proves that nothing was given up on the way."""
    sentence = "The birch canoe slid on the smooth planks, and nobody on the shore had seen it go. "
    text = (sentence * 300)[:19_900].rsplit(" ", 1)[0] + ". Zebra, zebra."
    fields = {"max_new_tokens": 8, "condition_on_previous_chunks": conditioned, "chunk_length": 300}
    clip = voice.say(text, min_chunk_length=0, **fields)
    assert said(clip)[-1] == "Zebra"
    assert len(clip.notes) >= 60
    assert clip.words[-1].end <= clip.duration + 0.1


@pytest.mark.thorough
@pytest.mark.timeout(1200)
def test_twenty_thousand_characters_whole(voice: Voice) -> None:
    text = ("The birch canoe slid on the smooth planks, and nobody on the shore had seen it go. " * 300)[
        :20_000
    ].strip()
    clip = voice.say(text)
    assert len(clip.words) > 0.97 * len(text.replace(",", "").split())
    step = clip.rate
    levels = [np.abs(clip.samples[i : i + 2 * step]).max() for i in range(0, len(clip) - 2 * step, step)]
    assert min(levels) > 0.02  # no two seconds without sound, to the end
