"""How an English word is said: homographs by their neighbours, the lexicon, letters by name, and a learned guess.

Homographs are told apart without a tagger: a word after "to", "will" or "they" is taken for a verb, one after "the" or "my"
for a noun. That is wrong now and then, but less often than one pronunciation for both.

The guess is a small transformer with a CTC output: every letter gets `PER_LETTER` output positions, each a phone or nothing,
aligned in training by connectionist temporal classification (Graves et al., 2006); reading them off is one pass, without a
search.
"""

from __future__ import annotations

import gzip
import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import Final

import torch
from safetensors import SafetensorError
from safetensors.torch import load
from torch import Tensor, nn

from voicelab.engine.pointer.config import PHONES, StackConfig
from voicelab.engine.pointer.lm import Stack
from voicelab.engine.pointer.unfilled import Unfilled
from voicelab.engine.text.clean import pairs, rows, word_lists
from voicelab.errors import WeightsError

Guess = Callable[[str], tuple[str, ...]]
"""A word of letters and apostrophes, lower case → phones."""

LETTERS: Final = {letter: tuple(phones.split(" ")) for letter, phones in pairs("english/letters").items()}
"""The names of the letters."""
_EXCEPTIONS: Final = pairs("english/exceptions")
_HOMOGRAPHS: Final = {word: (noun, verb) for word, noun, verb in rows("english/homographs")}
_NEIGHBOURS: Final = word_lists("english/neighbours")
_BY_NEIGHBOURS: Final = rows("english/by_neighbours")

_VOWEL_LETTERS = frozenset("aeiouy")
_SIBILANTS = frozenset(("s", "z", "sh", "zh", "ch", "jh"))
_VOICELESS = frozenset(("p", "t", "k", "f", "th"))
_WITHOUT_VOWEL = frozenset(("hm", "hmm", "hmmm", "mm", "mhm", "sh", "shh"))
"""What people say without a vowel. Other entries that have none are its failures at "bmw", "pdf" or "braer"."""
_LETTERS_WITH_S = re.compile(r"([A-Z]{2,}|[A-Z][a-z]*[A-Z])'?s|([A-Za-z])'s")
_LONGEST_SPELLED = 12
_SAID = frozenset("ram rom pin sim zip gif lan dos cad jpeg yolo uefa fomo gan wav".split())
"""Short acronyms that are words; what is as short and not here is spelled."""
_SPELLED = frozenset(("espn", "ussr", "ieee", "ioc", "adhd"))
"""Spelled, though the lexicon has them as words."""
_SPAN = "qj"
"""Begins a word that stands for phonemes: no word of a language does."""
_HUMP = re.compile(r"[A-Z]{2,}(?![a-z])|[A-Z]?[a-z']+|[A-Z]+")
_CAMEL = re.compile(r"(?!Mc|Mac)[A-Z]?[a-z']+[A-Z][A-Za-z']*")


class Lexicon:
    """Pronounces one word at a time.

    Args:
        guess: called for words that are neither known, nor letters to be spelled, nor a known word with an ending.
    """

    def __init__(self, guess: Guess) -> None:
        self._guess, self._lexicon = guess, load_lexicon()

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
        if _is_spelled(word, self.look_up(lower) is not None) or (len(lower) == 1 and lower != "i"):
            return _spell(lower)
        if word.startswith("O'") and word[2:3].isupper():
            return ("ow0", *self.pronounce(word[2:], after))
        if lower not in _EXCEPTIONS and _CAMEL.fullmatch(word) and (word[1].isupper() or self.look_up(lower) is None):
            parts = _HUMP.findall(word)
            return tuple(phone for part in parts for phone in self.pronounce(part, after if part is parts[-1] else "k"))
        return self._word(lower)

    def look_up(self, word: str) -> tuple[str, ...] | None:
        """Phones of a word that the lexicon holds, or that `word_of_arpabet` made."""
        if word.startswith(_SPAN) and (span := _span_phones(word)):
            return span
        entry = _EXCEPTIONS.get(word) or self._lexicon.get(word)
        phones = tuple(entry.split(" ")) if entry else None
        if phones and word not in _WITHOUT_VOWEL and not any(p[-1] in "01" for p in phones):
            return None
        return phones

    def written(self, word: str) -> str:
        """A word as it is named in the times of words: one of `word_of_arpabet` as it is spelled, if that is known."""
        if not word.startswith(_SPAN) or not (phones := _span_phones(word)):
            return word
        _, _, name = word.partition("qq")
        sound = " ".join(phones)
        return name or next((one for one, said in self._lexicon.items() if said == sound), sound)

    def _word(self, word: str) -> tuple[str, ...]:
        # The lexicon has possessives too, but reads many from their letters alone: "boss's" without its second syllable.
        if word.endswith("'s") and (stem := self._word(word[:-2])):
            return (*stem, *plural(stem[-1]))
        if word.endswith("'m") and (stem := self._word(word[:-2])):
            return (*stem, "m")
        phones = self.look_up(word) or self._with_ending(word)
        if phones is None and _unsayable(word):
            phones = _spell(word)
        return phones or self._guess(word)

    def _with_ending(self, word: str) -> tuple[str, ...] | None:
        """A known word in the plural, or a word with an apostrophe that is known without it."""
        if word.endswith("s") and not word.endswith("ss") and (stem := self.look_up(word[:-1])):
            return (*stem, *plural(stem[-1]))
        return self.look_up(word.replace("'", "")) if "'" in word else None


def word_of_arpabet(written: str, word: str = "") -> str:
    """A word of letters that stands in a text for phonemes, "R IY1 D", through all that turns text into words.

    `word` is how it is spelled, "" where that is not known. Returns "" for what is no CMU Arpabet; a vowel without a digit
    is stressed.
    """
    coded = []
    for name in written.split():
        phone, stress = (name[:-1].lower(), name[-1]) if name[-1] in "012" else (name.lower(), "")
        phone = "ax" if (phone, stress) == ("ah", "0") else phone
        if f"{phone}1" in PHONES:
            coded.append(phone + ("u" if stress == "0" else "i"))
        elif phone.isalpha() and phone in PHONES and not stress:
            coded.append(phone)
        else:
            return ""
    spelled = f"qq{word.lower()}" if word.isascii() and word.isalpha() else ""
    return f"{_SPAN}{'q'.join(coded)}{spelled}" if coded else ""


def _span_phones(word: str) -> tuple[str, ...]:
    """The phones of a word that `word_of_arpabet` made; () for another."""
    coded = word.removeprefix(_SPAN).partition("qq")[0].split("q")
    phones = tuple(one if one in PHONES else one[:-1] + {"u": "0", "i": "1"}.get(one[-1:], "?") for one in coded)
    return phones if all(phone in PHONES for phone in phones) else ()


def _is_spelled(word: str, in_lexicon: bool) -> bool:
    """Whether a word in capitals is read letter by letter, as short ones are: FBI but not RAM, UCLA but not NASA."""
    lower = word.lower()
    if not (word.isupper() and word.isalpha() and len(word) > 1) or lower in _SAID:
        return False
    return len(word) <= 3 or lower in _SPELLED or (len(word) == 4 and not in_lexicon) or _unsayable(lower)


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
    source = path or files("voicelab.engine") / "weights" / "lexicon.txt.gz"
    try:
        text = gzip.decompress(source.read_bytes()).decode("ascii")
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise WeightsError(f"the pronunciation lexicon cannot be read: {error}") from error
    return {word: phones for word, _, phones in (line.partition("\t") for line in text.splitlines())}


def homograph(word: str, before: str, after: str) -> tuple[str, ...] | None:
    """The phones of `word` between its neighbours, or None where the lexicon decides.

    Args:
        word: in lower case, as are the others.
        before: the word before it in the same clause, "" at its beginning.
        after: the word after it in the same clause, "" at its end.
    """
    if word in _HOMOGRAPHS:
        said = _noun_or_verb(word, before, after)
    else:
        rows_of_it = (row for row in _BY_NEIGHBOURS if row[0] == word)
        said = next((said for _, here, there, said in rows_of_it if _fits(before, here) and _fits(after, there)), None)
    return tuple(said.split(" ")) if said else None


def _fits(word: str, where: str) -> bool:
    """Whether a neighbour is what the table ``by_neighbours`` says."""
    if where.startswith("!"):
        return not _fits(word, where[1:])
    return where == "-" or (word.endswith("'s") if where == "'s" else word in _NEIGHBOURS.get(where, ("",)))


def _noun_or_verb(word: str, before: str, after: str) -> str | None:
    """The sound of a word whose stress or last consonant tells a noun from a verb."""
    near = _NEIGHBOURS
    noun, verb = _HOMOGRAPHS[word]
    a_noun, adjective = before in near["noun"], word in ("close", "separate", "present", "subject")
    if before in near["verb"] and not (adjective and before in ("not", "who")):
        return verb
    if after in near["object"] and (not before or (word == "use" and not a_noun)):
        return verb
    many = before in near["users"] or before.endswith("s")
    if word == "use" and many and after and after not in near["after_noun"]:
        return verb
    if word in ("convert", "converts"):
        return noun if a_noun else verb
    return noun if a_noun or word in ("use", "house", "close") else None


LETTER_IDS = {letter: i for i, letter in enumerate("\0abcdefghijklmnopqrstuvwxyz'")}
PER_LETTER = 3
LONGEST = 40
"""Letters of a word that are looked at; what is longer is no word."""
_CONFIG = StackConfig(width=128, layers=3, heads=4, hidden=320, window=64)


class Guesser(nn.Module):
    """Letters → log probabilities of phones; id 0, the padding of the inventory, is CTC's blank."""

    def __init__(self) -> None:
        super().__init__()
        self.letter = nn.Embedding(len(LETTER_IDS), _CONFIG.width)
        self.stack = Stack(_CONFIG, causal=False)
        self.out = nn.Linear(_CONFIG.width, PER_LETTER * len(PHONES))

    def forward(self, letters: Tensor) -> Tensor:
        """(batch, letters) ids, 0 where padded → (batch, PER_LETTER * letters, phones)."""
        y = self.out(self.stack(self.letter(letters), letters > 0))
        return torch.log_softmax(y.reshape(y.shape[0], -1, len(PHONES)), dim=-1)

    @torch.inference_mode()
    def guess(self, word: str) -> tuple[str, ...]:
        """Phones of a lower-case word; a word that gives none is spelled."""
        letters = [LETTER_IDS[c] for c in word[:LONGEST] if c in LETTER_IDS]
        if not letters:
            return ()
        best = self(torch.tensor([letters]))[0].argmax(-1).tolist()
        ids = [p for i, p in enumerate(best) if p and (i == 0 or best[i - 1] != p)]
        return tuple(PHONES[p] for p in ids) or tuple(p for c in word[:LONGEST] for p in LETTERS.get(c, ()))


def load_guess(path: Path | None = None) -> Callable[[str], tuple[str, ...]]:
    """The guess, with a memory; by default of the weights inside the package.

    Raises:
        WeightsError: the weights are missing or damaged.
    """
    source = path or files("voicelab.engine") / "weights" / "guess.safetensors"
    with Unfilled():
        model = Guesser()
    try:
        model.load_state_dict({k: v.float() for k, v in load(source.read_bytes()).items()})
    except (OSError, SafetensorError, RuntimeError) as error:
        raise WeightsError(f"the weights {source.name} cannot be read: {error}") from error
    return lru_cache(maxsize=4096)(model.eval().requires_grad_(False).guess)
