"""Words said in two ways: which one, between which neighbours."""

from __future__ import annotations

import pytest

from voicelab.engine.text.english.pronunciation import _HOMOGRAPHS, Lexicon, homograph
from voicelab.engine.text.front import FrontEnd
from voicelab.engine.text.phones import PHONES

FRONT = FrontEnd(Lexicon(lambda _: ("z", "oy1", "b")))


def _said(sentence: str, word: str) -> str:
    read = FRONT.read(sentence)
    first, after = next((a, b) for name, a, b in read.words if name.lower() == word)
    return " ".join(PHONES[i] for i in read.phones[first:after])


@pytest.mark.parametrize(
    ("sentence", "word", "phones"),
    [
        ("I want to read it.", "read", "r iy1 d"),
        ("I have read it.", "read", "r eh1 d"),
        ("Please read this.", "read", "r iy1 d"),
        ("Read the book.", "read", "r iy1 d"),
        ("She read the book.", "read", "r eh1 d"),
        ("They will lead us.", "lead", "l iy1 d"),
        ("We are in the lead.", "lead", "l iy1 d"),
        ("It is lead paint.", "lead", "l eh1 d"),
        ("A pipe made of lead.", "lead", "l eh1 d"),
        ("We live in Rome.", "live", "l ih1 v"),
        ("I live from day to day.", "live", "l ih1 v"),
        ("This is live music.", "live", "l ay1 v"),
        ("We go live now.", "live", "l ay1 v"),
        ("We are live!", "live", "l ay1 v"),
        ("It is live data.", "live", "l ay1 v"),
        ("We watch live demos.", "live", "l ay1 v"),
        ("They live sessions apart.", "live", "l ih1 v"),
        ("She lives in Rome.", "lives", "l ih1 v z"),
        ("Anna lives alone.", "lives", "l ih1 v z"),
        ("The man who lives nearby.", "lives", "l ih1 v z"),
        ("A bird that lives.", "lives", "l ih1 v z"),
        ("Their lives here.", "lives", "l ay1 v z"),
        ("It saves lives in war.", "lives", "l ay1 v z"),
        ("People's lives in danger.", "lives", "l ay1 v z"),
        ("Nine lives.", "lives", "l ay1 v z"),
        ("A bass guitar.", "bass", "b ey1 s"),
        ("The bass is too loud.", "bass", "b ey1 s"),
        ("Fried sea bass.", "bass", "b ae1 s"),
        ("Go bass fishing.", "bass", "b ae1 s"),
        ("We convert text.", "convert", "k ax0 n v er1 t"),
        ("Convert text to speech.", "convert", "k ax0 n v er1 t"),
        ("It converts text.", "converts", "k ax0 n v er1 t s"),
        ("He is a convert.", "convert", "k aa1 n v er0 t"),
        ("The new converts.", "converts", "k aa1 n v er0 t s"),
        ("The wind is cold.", "wind", "w ih1 n d"),
        ("Wind up the clock.", "wind", "w ay1 n d"),
        ("They wound up lost.", "wound", "w aw1 n d"),
        ("A deep wound.", "wound", "w uw1 n d"),
        ("Close the door.", "close", "k l ow1 z"),
        ("They will close soon.", "close", "k l ow1 z"),
        ("It is close to us.", "close", "k l ow1 s"),
        ("It was a close call.", "close", "k l ow1 s"),
        ("What is the use of it?", "use", "y uw1 s"),
        ("You can use it.", "use", "y uw1 z"),
        ("Many people use phones.", "use", "y uw1 z"),
        ("It is of no use.", "use", "y uw1 s"),
        ("Set a new record.", "record", "r eh1 k er0 d"),
        ("We record it.", "record", "r ih0 k ao1 r d"),
        ("He got a present.", "present", "p r eh1 z ax0 n t"),
        ("I will present it.", "present", "p r ih0 z eh1 n t"),
        ("That is an object.", "object", "aa1 b jh eh0 k t"),
        ("I object!", "object", "ax0 b jh eh1 k t"),
        ("You need a permit.", "permit", "p er1 m ih0 t"),
        ("They permit it.", "permit", "p er0 m ih1 t"),
        ("We eat fresh produce from the produce aisle.", "produce", "p r ax0 d uw1 s"),
        ("The produce is fresh.", "produce", "p r ow1 d uw0 s"),
        ("Excuse me.", "excuse", "ih0 k s k y uw1 z"),
        ("It is no excuse.", "excuse", "ih0 k s k y uw1 s"),
        ("They separate them.", "separate", "s eh1 p er0 ey0 t"),
    ],
)
def test_by_its_neighbours(sentence: str, word: str, phones: str) -> None:
    assert _said(sentence, word) == phones


def test_a_pause_ends_the_neighbourhood() -> None:
    assert _said("To me, use is all.", "use") == "y uw1 s"
    assert _said("I said to, record of records!", "record") == "r eh1 k er0 d"


def test_other_words_are_the_lexicons() -> None:
    assert homograph("dog", "the", "barks") is None
    assert homograph("record", "tape", "sales") is None


def test_every_sound_is_in_the_inventory() -> None:
    assert {phone for pair in _HOMOGRAPHS.values() for said in pair for phone in said.split(" ")} <= set(PHONES)
