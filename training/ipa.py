"""Map the teacher's phones to the engine's inventory.

The teacher uses misaki's IPA (45 sounds of American English); the engine uses flite's inventory. Distinctions that the front
end does not make are dropped: a flap is a t, r-colored vowels are one phone, secondary stress is stress. Mandarin phones are
joined to initials and finals with tone (`mandarin_ipa`); each syllable is a word, as in the front end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from training.kokoro import PAUSE, PAUSES, STRESS, Phone
from training.mandarin_ipa import syllables

_CONSONANTS = {p: p for p in "bdfklmnpstvwz"} | dict(
    pair.split() for pair in "h hh,ɡ g,ŋ ng,ɹ r,ʃ sh,ʒ zh,θ th,ð dh,j y,ʤ jh,ʧ ch,T t,ɾ t,ʔ t".split(",")
)
_VOWELS = dict(
    pair.split()
    for pair in (
        "A ey,I ay,W aw,Y oy,O ow,Q ow,i iy,u uw,ɪ ih,ʊ uh,ɛ eh,æ ae,ɑ aa,ɒ aa,a aa,ɔ ao,o ow,ʌ ah,ə ax,ɐ ax,ᵊ ax,"
        "ᵻ ih,ɜ er,ɚ er,e eh"
    ).split(",")
)
_MARKS = {"?": "?", "!": "!", ".": ".", "…": "."}
_SILENCE = 0.1
"""Seconds of the pause before a sentence that count as its initial silence; at most half of the pause."""
Named = tuple[str, bool]


def name_of(symbol: str) -> str:
    """Return the inventory name of a sound; vowels include stress, pauses are punctuation marks."""
    if symbol in PAUSES:
        return _MARKS.get(symbol, ",")
    if symbol.startswith("zh_"):
        return symbol
    bare = symbol.lstrip("".join(STRESS)).rstrip("ː")
    if bare in _VOWELS:
        return _VOWELS[bare] + ("1" if symbol[0] in STRESS else "0")
    return _CONSONANTS[bare]


def initials_and_finals(phones: Sequence[Phone]) -> list[Phone]:
    """Convert Mandarin phones to the inventory; pauses are unchanged.

    Raises:
        KeyError: a word is not Mandarin.
    """
    out: list[Phone] = []
    word: list[Phone] = []
    for phone in (*phones, Phone(PAUSE, 0, 0, False)):
        pausing = phone.name in PAUSES
        if pausing or phone.first:
            out += _syllables(word)
            word = []
        (out if pausing else word).append(phone)
    return out[:-1]


def _syllables(word: Sequence[Phone]) -> list[Phone]:
    times = [p.end for p in word for _ in p.name]
    out: list[Phone] = []
    begin = word[0].start if word else 0.0
    for names, ends in syllables("".join(p.name for p in word)):
        for name, end in zip(names, ends, strict=True):
            out.append(Phone(name, begin, times[end - 1], name == names[0]))
            begin = times[end - 1]
    return out


def arpabet(phones: Sequence[Phone]) -> list[Phone]:
    """Convert the phones of an utterance to the inventory, from the initial silence to the final pause.

    Mandarin phones must be those of `initials_and_finals`. A gap between words is part of the preceding phone; a schwa and a
    following r are one phone, except at the beginning of a word; each sentence begins with a silence (``^``).

    Raises:
        KeyError: a sound is not in American English.
    """
    out: list[Phone] = []
    sentence = True
    for phone in phones:
        previous = out[-1] if out else None
        if phone.name == PAUSE:
            if previous is not None:
                out[-1] = replace(previous, end=phone.end)
            continue
        if phone.name in PAUSES:
            if previous is None or sentence:
                continue
            out.append(replace(phone, name=name_of(phone.name), first=True))
            sentence = out[-1].name in ".?!"
            continue
        if sentence:
            begin = 0.0
            if previous is not None:
                begin = max(previous.end - _SILENCE, (previous.start + previous.end) / 2)
                out[-1] = replace(previous, end=begin)
            out.append(Phone("^", begin, phone.start, True))
            sentence = False
        if phone.name == "ɹ" and previous is not None and not phone.first and _is_r_colored(out):
            out[-1] = replace(previous, name="er" + previous.name[-1], end=phone.end)
            continue
        out.append(replace(phone, name=name_of(phone.name)))
    return out


def _is_r_colored(before: Sequence[Phone]) -> bool:
    """Tell whether a following r turns the previous vowel into ``er``."""
    previous = before[-1]
    return previous.name[:-1] == "er" or (previous.name == "ax0" and not previous.first)
