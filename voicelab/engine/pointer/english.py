"""English pronunciation of words: the lexicon, spelled letters, and a neural grapheme-to-phoneme model.

The G2P model is a small transformer with a CTC output (Graves et al., 2006): every letter gets `PER_LETTER` output positions,
each a phone or blank; decoding is greedy.
"""

from __future__ import annotations

import gzip
import re
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import Final

from safetensors import SafetensorError
from safetensors.numpy import load

from voicelab.engine.pointer.arrays import Floats, NumpyStack, Weights, affine
from voicelab.engine.pointer.config import PHONES, StackConfig
from voicelab.errors import WeightsError
from voicelab.text.clean import pairs, replace_loan_words

Guess = Callable[[str], tuple[str, ...]]
"""Grapheme-to-phoneme function: a lower-case word of letters and apostrophes → phones."""

LETTERS: Final = {letter: tuple(phones.split(" ")) for letter, phones in pairs("english/letters").items()}
"""Names of the letters."""
_EXCEPTIONS: Final = pairs("english/exceptions")

_VOWEL_LETTERS = frozenset("aeiouy")
_SIBILANTS = frozenset(("s", "z", "sh", "zh", "ch", "jh"))
_VOICELESS = frozenset(("p", "t", "k", "f", "th"))
_WITHOUT_VOWEL = frozenset(("hm", "hmm", "hmmm", "mm", "mhm", "sh", "shh"))
"""Interjections without a vowel. Other lexicon entries without one are errors ("bmw", "pdf", "braer")."""
_LETTERS_WITH_S = re.compile(r"([A-Z]{2,}|[A-Z][a-z]*[A-Z])'?s|([A-Za-z])'s")
_MAX_SPELLED_LETTERS = 12
_WORD_ACRONYMS = frozenset("ram rom pin sim zip gif lan dos cad jpeg yolo uefa fomo gan wav".split())
"""Short acronyms read as words; other acronyms of this length are spelled."""
_SPELLED_ACRONYMS = frozenset(("espn", "ussr", "ieee", "ioc", "adhd"))
"""Acronyms that are spelled although the lexicon has them as words."""
_SPAN = "qj"
"""Prefix of a word that encodes phonemes; no real word begins with it."""
_HUMP = re.compile(r"[A-Z]{2,}(?![a-z])|[A-Z]?[a-z']+|[A-Z]+")
_CAMEL = re.compile(r"(?!Mc|Mac)[A-Z]?[a-z']+[A-Z][A-Za-z']*")


class Lexicon:
    """Pronounces single words.

    Args:
        guess: pronounces words that are not in the lexicon, not spelled out, and not a known word with an ending.
    """

    def __init__(self, guess: Guess) -> None:
        self._guess, self._lexicon = guess, load_lexicon()

    def pronounce(self, word: str, after: str = "") -> tuple[str, ...]:
        """Convert a word to phones.

        Args:
            word: a token of letters and apostrophes as written; capitals matter: ``US`` is spelled out, ``us`` is not.
            after: the first phone of the next word, on which "the" and "a" depend.
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
            humps = _HUMP.findall(word)
            return tuple(phone for hump in humps for phone in self.pronounce(hump, after if hump is humps[-1] else "k"))
        return self._word(lower)

    def look_up(self, word: str) -> tuple[str, ...] | None:
        """Return the phones of a word in the lexicon, or of a word that `word_of_arpabet` encoded; None if it is unknown."""
        if word.startswith(_SPAN) and (span := _span_phones(word)):
            return span
        entry = _EXCEPTIONS.get(word) or self._lexicon.get(word)
        phones = tuple(entry.split(" ")) if entry else None
        if phones and word not in _WITHOUT_VOWEL and not any(p[-1] in "01" for p in phones):
            return None
        return phones

    def spelling(self, word: str) -> str:
        """Return the spelling of a word for word times, or the phones if `word_of_arpabet` encoded it without a spelling."""
        if not word.startswith(_SPAN) or not (phones := _span_phones(word)):
            return word
        _, _, name = word.partition("qq")
        sound = " ".join(phones)
        return name or self._lexicon.word(sound) or sound

    def _word(self, word: str) -> tuple[str, ...]:
        # The lexicon has possessives, but many are wrong: "boss's" lacks its second syllable.
        if word.endswith("'s") and (stem := self._word(word[:-2])):
            return (*stem, *plural(stem[-1]))
        if word.endswith("'m") and (stem := self._word(word[:-2])):
            return (*stem, "m")
        phones = self.look_up(word) or self._with_ending(word)
        if phones is None and _unsayable(word):
            phones = _spell(word)
        return phones or self._guess(word)

    def _with_ending(self, word: str) -> tuple[str, ...] | None:
        """Pronounce the plural of a known word, or a word with an apostrophe whose form without it is known."""
        if word.endswith("s") and not word.endswith("ss") and (stem := self.look_up(word[:-1])):
            return (*stem, *plural(stem[-1]))
        return self.look_up(word.replace("'", "")) if "'" in word else None


def word_of_arpabet(arpabet: str, word: str = "") -> str:
    """Encode an Arpabet span, "R IY1 D", as a word of letters that passes through normalization unchanged.

    `word` is the spelling, "" if unknown. Returns "" if the span is not CMU Arpabet; a vowel without a digit is stressed.
    """
    coded = []
    for name in arpabet.split():
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


_IPA: Final = pairs("english/ipa")
_IPA_SYMBOL: Final = re.compile("|".join(sorted(_IPA, key=len, reverse=True)) + r"|[ˈˌ'.ː‿\s]|(?P<unknown>.)")
_IPA_VOWELS: Final = frozenset(name[:2] for name in _IPA.values() if name[0] in "AEIOU")


def arpabet_of_ipa(ipa: str) -> tuple[str, str]:
    """Convert an IPA transcription of English to Arpabet; return it with the unknown symbols, if any.

    The vowel after ˈ or ˌ is stressed, or the first vowel if the transcription has neither.
    """
    phones: list[str] = []
    ipa = ipa.replace("\u0361", "").replace("/", "")  # the tie bar, as in t͡ʃ
    unknown = "".join(dict.fromkeys(m["unknown"] for m in _IPA_SYMBOL.finditer(ipa) if m["unknown"]))
    stressed = not re.search("[ˈˌ]", ipa)
    for match in _IPA_SYMBOL.finditer(ipa):
        stressed = stressed or match[0] in "ˈˌ"
        for name in _IPA.get(match[0], "").split():
            is_vowel = name in _IPA_VOWELS
            phones.append(f"{name}{int(stressed)}" if is_vowel else name)
            stressed = stressed and not is_vowel
    return ("" if unknown else " ".join(phones)), unknown


def with_accents(text: str) -> str:
    """Encode loan words and names with diacritics, such as "résumé", as `word_of_arpabet` encodes phones."""
    return replace_loan_words(text, _loan_word)


def _loan_word(letters: str, arpabet: str, ending: str) -> str:
    phones = plural(arpabet.rsplit(maxsplit=1)[-1].lower()) if ending else ()
    return word_of_arpabet(" ".join((arpabet, *phones)).upper().replace("AX", "AH"), letters)


def _span_phones(word: str) -> tuple[str, ...]:
    """Return the phones of a word that `word_of_arpabet` encoded; () for any other word."""
    coded = word.removeprefix(_SPAN).partition("qq")[0].split("q")
    phones = tuple(code if code in PHONES else code[:-1] + {"u": "0", "i": "1"}.get(code[-1:], "?") for code in coded)
    return phones if all(phone in PHONES for phone in phones) else ()


def _is_spelled(word: str, in_lexicon: bool) -> bool:
    """Return whether a word in capitals is spelled out: FBI but not RAM, UCLA but not NASA."""
    lower = word.lower()
    if not (word.isupper() and word.isalpha() and len(word) > 1) or lower in _WORD_ACRONYMS:
        return False
    return len(word) <= 3 or lower in _SPELLED_ACRONYMS or (len(word) == 4 and not in_lexicon) or _unsayable(lower)


def _unsayable(word: str) -> bool:
    """Return whether a word has no vowels and is short enough to be spelled out; the G2P model pronounces longer ones."""
    return len(word) <= _MAX_SPELLED_LETTERS and not _VOWEL_LETTERS & set(word)


def _spell(letters: str) -> tuple[str, ...]:
    return tuple(p for letter in letters for p in LETTERS.get(letter, ()))


def plural(phone: str) -> tuple[str, ...]:
    """Return the phones of the plural ending after a phone."""
    if phone in _SIBILANTS:
        return ("ax0", "z")
    return ("s",) if phone in _VOICELESS else ("z",)


class PronunciationTable(Mapping[str, str]):
    """Words and their space-separated phones, searched in the text of the lexicon's file.

    A search takes 7 µs. A search in a dictionary would take .05 µs, but building it takes .1 s, and a text has only hundreds
    of words.

    Args:
        text: lines sorted by word, each with a word, a tab, its phones and a newline.
    """

    def __init__(self, text: str) -> None:
        self._text = text

    def __getitem__(self, word: str) -> str:
        text, low, high = self._text, 0, len(self._text)
        while low < high:
            begin = text.rfind("\n", low, (low + high) // 2) + 1 or low
            end = text.index("\n", begin)
            entry, _, phones = text[begin:end].partition("\t")
            if entry == word:
                return phones
            low, high = (end + 1, high) if entry < word else (low, begin)
        raise KeyError(word)

    def __iter__(self) -> Iterator[str]:
        return (line.partition("\t")[0] for line in self._text.splitlines())

    def __len__(self) -> int:
        return self._text.count("\n")

    def word(self, phones: str) -> str:
        """Return the first word with these phones; "" if no word has them."""
        end = self._text.find(f"\t{phones}\n")
        return self._text[self._text.rfind("\n", 0, end) + 1 : end] if end >= 0 else ""


@lru_cache(maxsize=2)
def load_lexicon(path: Path | None = None) -> PronunciationTable:
    """Load the pronunciation lexicon; by default the one in the package.

    Raises:
        WeightsError: the file is missing or damaged.
    """
    source = path or files("voicelab.engine") / "weights" / "lexicon.txt.gz"
    try:
        return PronunciationTable(gzip.decompress(source.read_bytes()).decode("ascii"))
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise WeightsError(f"the pronunciation lexicon cannot be read: {error}") from error


LETTER_IDS = {letter: i for i, letter in enumerate("\0abcdefghijklmnopqrstuvwxyz'")}
PER_LETTER = 3
MAX_LETTERS = 40
"""Maximum letters of a word for the G2P model; longer tokens are truncated."""
G2P = StackConfig(width=128, layers=3, heads=4, hidden=320, window=64)


class Guesser:
    """The G2P model, which computes logits of phones from letters. Id 0, the padding of the inventory, is the blank of CTC.

    Raises:
        WeightsError: a tensor is missing, unexpected, or of another shape.
    """

    def __init__(self, weights: Weights) -> None:
        self._letter = weights.take("letter.weight", len(LETTER_IDS), G2P.width)
        self._stack = NumpyStack(weights.under("stack."), G2P)
        self._out = affine(weights.under("out."), PER_LETTER * len(PHONES), G2P.width)
        weights.finish()

    def scores(self, letters: list[int]) -> Floats:
        """Compute (PER_LETTER * letters, phones) logits of letter ids."""
        return self._out(self._stack.both_ways(self._letter[letters])).reshape(-1, len(PHONES))

    def guess(self, word: str) -> tuple[str, ...]:
        """Convert a lowercase word to phones; the word is spelled out if the model outputs only blanks."""
        letters = [LETTER_IDS[c] for c in word[:MAX_LETTERS] if c in LETTER_IDS]
        if not letters:
            return ()
        best = self.scores(letters).argmax(-1).tolist()
        ids = [p for i, p in enumerate(best) if p and (i == 0 or best[i - 1] != p)]
        return tuple(PHONES[p] for p in ids) or tuple(p for c in word[:MAX_LETTERS] for p in LETTERS.get(c, ()))


def load_guess(path: Path | None = None) -> Callable[[str], tuple[str, ...]]:
    """Load the G2P model as a cached function; by default from the weights in the package.

    Raises:
        WeightsError: the weights are missing or damaged.
    """
    source = path or files("voicelab.engine") / "weights" / "guess.safetensors"
    try:
        model = Guesser(Weights(load(source.read_bytes())))
    except (OSError, SafetensorError, WeightsError) as error:
        raise WeightsError(f"the weights {source.name} cannot be read: {error}") from error
    return lru_cache(maxsize=4096)(model.guess)
