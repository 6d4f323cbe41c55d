from __future__ import annotations

from itertools import pairwise

import pytest

from training import ipa
from training.kokoro import Phone
from voicelab.engine.pointer.config import PHONES


def phones(symbols: str) -> list[Phone]:
    """Create phones of 0.1 s; a hyphen marks the start of a word."""
    out: list[Phone] = []
    at_word_start, stress = False, ""
    for symbol in symbols:
        if symbol == "-":
            at_word_start = True
        elif symbol in "ˈˌ":
            stress = symbol
        else:
            out.append(Phone(stress + symbol, len(out) / 10 + 0.1, len(out) / 10 + 0.2, at_word_start))
            at_word_start, stress = False, ""
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
def test_phones_are_converted_to_the_inventory(symbols: str, names: str) -> None:
    converted = ipa.arpabet(phones(symbols))
    assert " ".join(p.name for p in converted) == names
    assert {p.name for p in converted} <= set(PHONES)


def test_phones_have_no_gaps() -> None:
    converted = ipa.arpabet(phones("-tu -ðəɹ. -ˌA."))
    assert converted[0].start == 0
    for before, after in pairwise(converted):
        assert before.end == pytest.approx(after.start)
    pause = next(p for p in converted if p.name == ".")
    assert converted[converted.index(pause) + 1].name == "^"


def test_foreign_sound_raises() -> None:
    with pytest.raises(KeyError):
        ipa.arpabet(phones("-ɕi."))
