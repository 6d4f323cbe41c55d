"""The phone inventory: American English as flite writes it, vowels with stress, pauses as their punctuation."""

from __future__ import annotations

_VOWELS = ("aa", "ae", "ah", "ao", "aw", "ax", "ay", "eh", "er", "ey", "ih", "iy", "ow", "oy", "uh", "uw")
_CONSONANTS = tuple("b ch d dh f g hh jh k l m n ng p r s sh t th v w y z zh".split())

PAUSES = ("^", ",", ".", "?", "!")
"""The silence before speech, and those that punctuation asks for."""

LANGUAGES: tuple[str, ...] = ("en", "zh")
"""The languages that the front end reads; those of Mandarin's sounds that English lacks are `mandarin.MANDARIN_PHONES`."""

PHONES: tuple[str, ...] = ("", *PAUSES, *_CONSONANTS, *(v + s for v in _VOWELS for s in "01"))
"""Position is id; id 0 is padding. ``ae1`` is a stressed vowel, ``ae0`` an unstressed one."""
