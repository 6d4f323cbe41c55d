"""Words to phones: the lexicon, letters by name, and a learned guess for what neither knows."""

from __future__ import annotations

import gzip
import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from importlib.resources import files
from pathlib import Path

from voicelab.errors import WeightsError

Guess = Callable[[str], tuple[str, ...]]
"""A word of letters and apostrophes, lower case → phones."""

LETTERS: dict[str, tuple[str, ...]] = {
    letter: tuple(phones.split())
    for letter, phones in {
        "a": "ey1", "b": "b iy1", "c": "s iy1", "d": "d iy1", "e": "iy1", "f": "eh1 f", "g": "jh iy1", "h": "ey1 ch",
        "i": "ay1", "j": "jh ey1", "k": "k ey1", "l": "eh1 l", "m": "eh1 m", "n": "eh1 n", "o": "ow1", "p": "p iy1",
        "q": "k y uw1", "r": "aa1 r", "s": "eh1 s", "t": "t iy1", "u": "y uw1", "v": "v iy1", "w": "d ah1 b ax0 l y uw0",
        "x": "eh1 k s", "y": "w ay1", "z": "z iy1",
    }.items()
}  # fmt: skip
"""The names of the letters."""

_VOWEL_LETTERS = frozenset("aeiouy")
_SIBILANTS = frozenset(("s", "z", "sh", "zh", "ch", "jh"))
_VOICELESS = frozenset(("p", "t", "k", "f", "th"))
_WITHOUT_VOWEL = frozenset(("hm", "hmm", "hmmm", "mm", "mhm", "sh", "shh"))
"""What people say without a vowel. Other entries that have none are the lexicon's failures at "tv", "pdf" or "skein"."""
_LETTERS_WITH_S = re.compile(r"([A-Z]{2,}|[A-Z][a-z]*[A-Z])'?s|([A-Za-z])'s")
_LONGEST_SPELLED = 12
_IRREGULAR = {
    "o'clock": "ax0 k l aa1 k",
    "ma'am": "m ae1 m",
    "y'all": "y ao1 l",
    "wi": "w ay1",
    "jpeg": "jh ey1 p eh1 g",
    "gif": "g ih1 f",
    "yolo": "y ow1 l ow0",
    "uefa": "y uw0 ey1 f ax0",
    "fomo": "f ow1 m ow0",
    "mc": "eh1 m s iy1",
    "iot": "ay1 ow1 t iy1",
    "xbox": "eh1 k s b aa1 k s",
    "github": "g ih1 t hh ah1 b",
    "json": "jh ey1 s ax0 n",
    "yaml": "y ae1 m ax0 l",
    "gan": "g ae1 n",
    "wav": "w ey1 v",
    "cuda": "k uw1 d ax0",
    "nvidia": "ih0 n v ih1 d iy0 ax0",
    "ubuntu": "uw0 b uh1 n t uw0",
    "numpy": "n ah1 m p ay0",
    "scipy": "s ay1 p ay0",
    "py": "p ay1",
    "hz": "hh er1 t s",
    "khz": "k ih1 l ax0 hh er1 t s",
    "mhz": "m eh1 g ax0 hh er1 t s",
    "ghz": "g ih1 g ax0 hh er1 t s",
}
_SAID = frozenset("ram rom pin sim zip gif lan dos cad jpeg yolo uefa fomo gan wav".split())
"""Short acronyms that are words; what is as short and not here is spelled."""
_SPELLED = frozenset(("espn", "ussr", "ieee", "ioc", "adhd"))
"""Spelled, though the lexicon has them as words."""
_HUMP = re.compile(r"[A-Z]{2,}(?![a-z])|[A-Z]?[a-z']+|[A-Z]+")
_CAMEL = re.compile(r"(?!Mc|Mac)[A-Z]?[a-z']+[A-Z][A-Za-z']*")


class Lexicon:
    """Pronounces one word at a time.

    Args:
        guess: called for words that are neither known, nor letters to be spelled, nor a known word with an ending.
        known: word → phones; by default those inside the package.
    """

    def __init__(self, guess: Guess, known: Mapping[str, str] | None = None) -> None:
        self._guess = guess
        self._known = load_lexicon() if known is None else known

    def pronounce(self, word: str, after: str = "") -> tuple[str, ...]:
        """Phones of `word`, a token of letters and apostrophes as written.

        Args:
            word: capitals matter: ``US`` is spelled, ``us`` is not.
            after: the first phone of the next word, for "the" and "a".
        """
        word = word.strip("'")
        lower = word.lower()
        if lower == "the":
            return ("dh", "iy0" if after[-1:] in ("0", "1") else "ax0")
        if lower == "a":
            return ("ey1",) if word == "A" and after == "" else ("ax0",)
        if letters := _LETTERS_WITH_S.fullmatch(word):
            stem = self.pronounce(letters[1]) if letters[1] else LETTERS[letters[2].lower()]
            return (*stem, *plural(stem[-1]))
        if _is_spelled(word, self.known(lower) is not None) or (len(lower) == 1 and lower != "i"):
            return _spell(lower)
        if word.startswith("O'") and word[2:3].isupper():
            return ("ow0", *self.pronounce(word[2:], after))
        if lower not in _IRREGULAR and _CAMEL.fullmatch(word) and (word[1].isupper() or self.known(lower) is None):
            parts = _HUMP.findall(word)
            return tuple(phone for part in parts for phone in self.pronounce(part, after if part is parts[-1] else "k"))
        return self._word(lower)

    def known(self, word: str) -> tuple[str, ...] | None:
        """Phones of a word that the lexicon holds."""
        found = _IRREGULAR.get(word) or self._known.get(word)
        phones = tuple(found.split(" ")) if found else None
        if phones and word not in _WITHOUT_VOWEL and not any(p[-1] in "01" for p in phones):
            return None
        return phones

    def _word(self, word: str) -> tuple[str, ...]:
        # The lexicon has possessives too, but reads many from their letters alone: "boss's" without its second syllable.
        if word.endswith("'s") and (stem := self._word(word[:-2])):
            return (*stem, *plural(stem[-1]))
        if word.endswith("'m") and (stem := self._word(word[:-2])):
            return (*stem, "m")
        found = self.known(word) or self._with_ending(word)
        if found is None and _unsayable(word):
            found = _spell(word)
        return found or self._guess(word)

    def _with_ending(self, word: str) -> tuple[str, ...] | None:
        """A known word in the plural, or a word with an apostrophe that is known without it."""
        if word.endswith("s") and not word.endswith("ss") and (stem := self.known(word[:-1])):
            return (*stem, *plural(stem[-1]))
        return self.known(word.replace("'", "")) if "'" in word else None


def _is_spelled(word: str, known: bool) -> bool:
    """Whether a word in capitals is read letter by letter, as short ones are: FBI but not RAM, UCLA but not NASA."""
    lower = word.lower()
    if not (word.isupper() and word.isalpha() and len(word) > 1) or lower in _SAID:
        return False
    return len(word) <= 3 or lower in _SPELLED or (len(word) == 4 and not known) or _unsayable(lower)


def _unsayable(word: str) -> bool:
    """Whether a word can only be spelled; what is longer than any abbreviation is noise, to be guessed at in short."""
    return len(word) <= _LONGEST_SPELLED and not _VOWEL_LETTERS & set(word)


def _spell(letters: str) -> tuple[str, ...]:
    return tuple(p for letter in letters for p in LETTERS.get(letter, ()))


def plural(last: str) -> tuple[str, ...]:
    """The sound of an s after the phone `last`."""
    if last in _SIBILANTS:
        return ("ax0", "z")
    return ("s",) if last in _VOICELESS else ("z",)


@lru_cache(maxsize=2)
def load_lexicon(path: Path | None = None) -> Mapping[str, str]:
    """Word → phones with spaces between; by default of the weights inside the package.

    Raises:
        WeightsError: it is missing or damaged.
    """
    found = path or files("voicelab.engine") / "weights" / "lexicon.txt.gz"
    try:
        text = gzip.decompress(found.read_bytes()).decode("ascii")
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise WeightsError(f"the pronunciation lexicon cannot be read: {error}") from error
    pairs = (line.partition("\t") for line in text.splitlines())
    return {word: phones for word, _, phones in pairs}
