from __future__ import annotations

from itertools import pairwise

import pytest

from training import ipa
from training.kokoro import Phone
from voicelab.engine.pointer.config import PHONES


def phones(symbols: str) -> list[Phone]:
    """A tenth of a second each; a word begins with a hyphen, and may end with a mark."""
    out: list[Phone] = []
    first, stress = False, ""
    for symbol in symbols:
        if symbol == "-":
            first = True
        elif symbol in "ˈˌ":
            stress = symbol
        else:
            out.append(Phone(stress + symbol, len(out) / 10 + 0.1, len(out) / 10 + 0.2, first))
            first, stress = False, ""
    return out


@pytest.mark.parametrize(
    ("symbols", "names"),
    [
        ("-ðə-kwˈɪk.", "^ dh ax0 k w ih1 k ."),
        ("-wˈɔTəɹ.", "^ w ao1 t er0 ."),
        ("-fˈɜɹðəɹ?", "^ f er1 dh er0 ?"),
        ("-əɹˈWnd!", "^ ax0 r aw1 n d !"),
        ("-jˈɛs…-lˈɪTᵊl.", "^ y eh1 s . ^ l ih1 t ax0 l ."),
        ("-nˈO;-nˌO.", "^ n ow1 , n ow1 ."),
        ("-tu -ðə.", "^ t uw0 dh ax0 ."),
    ],
)
def test_sounds_get_the_names_that_the_front_end_uses(symbols: str, names: str) -> None:
    named = ipa.arpabet(phones(symbols))
    assert " ".join(p.name for p in named) == names
    assert {p.name for p in named} <= set(PHONES)


def test_phones_follow_one_another_without_a_gap_from_the_beginning_on() -> None:
    named = ipa.arpabet(phones("-tu -ðəɹ. -ˌA."))
    assert named[0].start == 0
    for before, after in pairwise(named):
        assert before.end == pytest.approx(after.start)
    pause = next(p for p in named if p.name == ".")
    assert named[named.index(pause) + 1].name == "^"


def test_a_sound_of_another_language_is_no_english_one() -> None:
    with pytest.raises(KeyError):
        ipa.arpabet(phones("-ɕi."))
