"""The teacher's sounds by the names of the engine's inventory, so that the front end stays as it is.

The teacher writes IPA of its own (misaki's, 45 sounds of American English); the engine's inventory is flite's. Nothing that
the front end could tell is lost: a flap is a t, r-coloured vowels are one phone, a second stress is a stress. Mandarin's
sounds are put together to initials and finals with their tone (`mandarin_ipa`), each syllable a word as the front end has it.
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
"""Seconds before a sentence that are the silence before speech, and no longer its predecessor's pause; at most half."""
Named = tuple[str, bool]


def name_of(symbol: str) -> str:
    """A sound by the inventory's name: a vowel with its stress; a pause by the strongest mark that it stands for."""
    if symbol in PAUSES:
        return _MARKS.get(symbol, ",")
    if symbol.startswith("zh_"):
        return symbol
    bare = symbol.lstrip("".join(STRESS)).rstrip("ː")
    if bare in _VOWELS:
        return _VOWELS[bare] + ("1" if symbol[0] in STRESS else "0")
    return _CONSONANTS[bare]


def initials_and_finals(phones: Sequence[Phone]) -> list[Phone]:
    """Mandarin's phones by the inventory's names; pauses stay as they are.

    Raises:
        KeyError: a word is no Mandarin.
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
    """The phones of an utterance by the inventory's names, from the silence before its first one to its last pause.

    Mandarin's are those of `initials_and_finals`.

    A gap between words, which no text tells, is part of the phone before it; a schwa and the r after it are one phone, but
    at the beginning of a word; each sentence begins with a silence (``^``) of its own.

    Raises:
        KeyError: a sound is none of American English's.
    """
    out: list[Phone] = []
    sentence = True
    for phone in phones:
        last = out[-1] if out else None
        if phone.name == PAUSE:
            if last is not None:
                out[-1] = replace(last, end=phone.end)
            continue
        if phone.name in PAUSES:
            if last is None or sentence:
                continue
            out.append(replace(phone, name=name_of(phone.name), first=True))
            sentence = out[-1].name in ".?!"
            continue
        if sentence:
            begin = 0.0
            if last is not None:
                begin = max(last.end - _SILENCE, (last.start + last.end) / 2)
                out[-1] = replace(last, end=begin)
            out.append(Phone("^", begin, phone.start, True))
            sentence = False
        if phone.name == "ɹ" and last is not None and not phone.first and _colours(out):
            out[-1] = replace(last, name="er" + last.name[-1], end=phone.end)
            continue
        out.append(replace(phone, name=name_of(phone.name)))
    return out


def _colours(before: Sequence[Phone]) -> bool:
    """Whether an r makes the vowel before it an ``er``."""
    last = before[-1]
    return last.name[:-1] == "er" or (last.name == "ax0" and not last.first)
