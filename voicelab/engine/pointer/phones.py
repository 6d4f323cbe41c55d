"""The phone inventory: American English as flite writes it, vowels with stress; Mandarin, finals with tone; pauses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

_VOWELS = ("aa", "ae", "ah", "ao", "aw", "ax", "ay", "eh", "er", "ey", "ih", "iy", "ow", "oy", "uh", "uw")
_CONSONANTS = tuple("b ch d dh f g hh jh k l m n ng p r s sh t th v w y z zh".split())

PAUSES = ("^", ",", ".", "?", "!")
"""The silence before speech, and those that punctuation asks for."""

LANGUAGES: tuple[str, ...] = ("en", "zh")
"""The languages that the front end reads; the sounds of Mandarin are `MANDARIN_PHONES`."""

PHONES: tuple[str, ...] = ("", *PAUSES, *_CONSONANTS, *(v + s for v in _VOWELS for s in "01"))
"""Position is id; id 0 is padding. ``ae1`` is a stressed vowel, ``ae0`` an unstressed one."""

_INITIALS: Final = tuple("b p m f d t n l g k h j q x zh ch sh r z c s".split())
FINALS: Final = tuple(
    (
        "a o e ai ei ao ou an en ang eng er i ir iz ia ie iao iou ian in iang ing iong u ua uo uai uei uan uen uang ueng "
        "ong v ve van vn ng"
    ).split()
)
"""In pinyin's full spelling; ``ir`` is the vowel of zhi, ``iz`` that of zi, ``v`` is ü."""

MANDARIN_PHONES: Final = tuple(
    [f"zh_{name}" for name in _INITIALS] + [f"zh_{name}{tone}" for name in FINALS for tone in "12345"] + ["zh_rr"]
)
"""Follow `PHONES` in the inventory of a voice that speaks Mandarin, so that the ids of the English ones stay. Finals carry
the tone, 5 the neutral one; ``zh_rr`` is the r of erhua."""

ALL_PHONES: Final = PHONES + MANDARIN_PHONES
"""The inventory of a voice that speaks both; position is id."""


@dataclass(frozen=True)
class Phonemes:
    """A segment as the language model reads it."""

    phones: tuple[int, ...]
    flags: tuple[int, ...]
    words: tuple[tuple[str, int, int], ...]
    """(word as written, its first phone, the phone after its last)."""
