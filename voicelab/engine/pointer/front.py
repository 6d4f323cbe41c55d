"""Normalized text to what the language model reads: phones, places in the word, and where each word lies."""

from __future__ import annotations

import re

from voicelab.engine.pointer.config import ALL_PHONES, PAUSES, Phonemes
from voicelab.engine.pointer.english import Lexicon, homograph
from voicelab.engine.pointer.mandarin import Syllable, check, read

_TOKEN = re.compile(r"'?[A-Za-z]+(?:'[A-Za-z]+)*'?|[.?!]+|[,;:]|—|(?<=\s)-(?=\s)|-{2,}")
_IDS = {name: i for i, name in enumerate(ALL_PHONES)}


class FrontEnd:
    """Reads normalized text: words, Chinese characters and the punctuation ``, . ? ! ; : — - '``.

    Args:
        lexicon: says how a word is pronounced.
        languages: those that the voice has learned, of `config.LANGUAGES`; text is normalized for them.
    """

    def __init__(self, lexicon: Lexicon, languages: tuple[str, ...] = ("en",)) -> None:
        self._lexicon = lexicon
        self.languages = languages

    def check(self, text: str) -> None:
        """Sees that what the text needs is installed, before anything is said.

        Raises:
            MissingExtra: there are Chinese characters, the voice speaks Mandarin, and their readings are not installed.
        """
        if "zh" in self.languages:
            check(text)

    def read(self, text: str) -> Phonemes:
        """Phones of a segment; empty when there is no word in it. A Chinese character is a word, with the r of its erhua.

        A segment begins with the silence before speech and ends with a pause; a sentence inside it ends with a pause and
        begins with a silence of its own, as the voice has learned them.
        """
        tokens = self._tokens(text)
        names: list[str] = []
        first: list[bool] = []
        words: list[tuple[str, int, int]] = []
        sounds = self._sounds(tokens)
        for token, sound in zip(tokens, sounds, strict=True):
            if sound is None:
                _pause(names, first, str(token))
            if not sound:
                continue
            if not names or names[-1] in ".?!":
                names.append("^")
                first.append(True)
            written = self._lexicon.written(token) if isinstance(token, str) else token.character
            words.append((written, len(names), len(names) + len(sound)))
            names.extend(sound)
            first.extend(i == 0 for i in range(len(sound)))
        if not words:
            return Phonemes((), (), ())
        if names[-1] not in PAUSES:
            _pause(names, first, ".")
        return Phonemes(tuple(_IDS[n] for n in names), tuple(flags_of(names, first)), tuple(words))

    def _tokens(self, text: str) -> list[str | Syllable]:
        if "zh" not in self.languages:
            return list(_TOKEN.findall(text))
        parts = read(text)
        return [token for part in parts for token in (_TOKEN.findall(part) if isinstance(part, str) else (part,))]

    def _sounds(self, tokens: list[str | Syllable]) -> list[tuple[str, ...] | None]:
        """Phones of each word, None for punctuation; from the end, since a word may depend on what follows."""
        out: list[tuple[str, ...] | None] = [None] * len(tokens)
        after = ""
        words = [_word(token) for token in tokens]
        for i in range(len(tokens) - 1, -1, -1):
            token = tokens[i]
            if isinstance(token, Syllable):
                out[i], after = token.phones, ""
            elif words[i]:
                before, following = words[i - 1] if i else "", words[i + 1] if i + 1 < len(words) else ""
                sound = homograph(words[i], before, following) or self._lexicon.pronounce(token, after)
                out[i] = sound
                after = sound[0] if sound else after
            else:
                after = ""
        return out


def _word(token: str | Syllable) -> str:
    """An English word in lower case; "" for what is none."""
    return token.lower().strip("'") if isinstance(token, str) and token.strip("'")[:1].isalpha() else ""


def _pause(names: list[str], first: list[bool], mark: str) -> None:
    """Adds a pause; of several in a row the strongest stays, and none comes before the first word."""
    name = next((one for one in "?!." if one in mark), ",")
    if names and names[-1] == ",":
        names[-1] = name
    elif names and names[-1] not in PAUSES:
        names.append(name)
        first.append(True)


def flags_of(names: list[str], first: list[bool]) -> list[int]:
    """Place of each phone in its word: 0 inside, 1 first, 2 last, 3 only; a pause is a word of its own."""
    begins = [f or n in PAUSES for f, n in zip(first, names, strict=True)]
    ends = [i + 1 == len(names) or begins[i + 1] for i in range(len(names))]
    return [3 if b and e else 1 if b else 2 if e else 0 for b, e in zip(begins, ends, strict=True)]
