"""The text front end: normalized text to phones, position flags and word boundaries."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from voicelab.engine.pointer.config import ALL_PHONES, PAUSES, Phonemes
from voicelab.engine.pointer.english import Lexicon
from voicelab.engine.pointer.homographs import homograph
from voicelab.lifecycle import COMPUTING
from voicelab.text.clean import is_han

if TYPE_CHECKING:
    from voicelab.engine.pointer.mandarin import Syllable

_TOKEN = re.compile(r"'?[A-Za-z]+(?:'[A-Za-z]+)*'?|[.?!]+|[,;:]|—|(?<=\s)-(?=\s)|-{2,}")
_IDS = {name: i for i, name in enumerate(ALL_PHONES)}


class FrontEnd:
    """Converts normalized text to phones, the input of the model.

    It reads English words, Chinese characters (if ``languages`` contains zh), and the punctuation ``, . ? ! ; : — - '``.

    Args:
        lexicon: pronounces English words.
        languages: the voice's languages, from `config.LANGUAGES`; the text must be normalized for them.
    """

    def __init__(self, lexicon: Lexicon, languages: tuple[str, ...] = ("en",)) -> None:
        self._lexicon = lexicon
        self.languages = languages

    def check(self, text: str) -> None:
        """Check that the packages that a text needs are installed.

        Raises:
            MissingExtra: the text has Chinese characters, the voice speaks Mandarin, and pypinyin is not installed.
        """
        if self._has_chinese(text):
            from voicelab.engine.pointer.mandarin import check

            check(text)

    @COMPUTING
    def read(self, text: str) -> Phonemes:
        """Convert a segment to phones; a segment without words has no phones.

        A Chinese character, including its erhua r, is a word. As in the training data, the segment and each sentence in it
        begin with a silence phone and end with a pause phone.
        """
        tokens = self._tokens(text)
        names: list[str] = []
        starts: list[bool] = []
        words: list[tuple[str, int, int]] = []
        sounds = self._sounds(tokens)
        for token, sound in zip(tokens, sounds, strict=True):
            if sound is None:
                _add_pause(names, starts, str(token))
            if not sound:
                continue
            if not names or names[-1] in ".?!":
                names.append("^")
                starts.append(True)
            spelling = self._lexicon.spelling(token) if isinstance(token, str) else token.character
            words.append((spelling, len(names), len(names) + len(sound)))
            names.extend(sound)
            starts.extend(i == 0 for i in range(len(sound)))
        if not words:
            return Phonemes((), (), ())
        if names[-1] not in PAUSES:
            _add_pause(names, starts, ".")
        return Phonemes(tuple(_IDS[n] for n in names), tuple(flags_of(names, starts)), tuple(words))

    def _tokens(self, text: str) -> list[str | Syllable]:
        if not self._has_chinese(text):
            return list(_TOKEN.findall(text.strip()))
        from voicelab.engine.pointer.mandarin import read

        spans = read(text)
        return [token for span in spans for token in (_TOKEN.findall(span) if isinstance(span, str) else (span,))]

    def _has_chinese(self, text: str) -> bool:
        """Return whether a text has Chinese characters and the voice reads them."""
        return "zh" in self.languages and any(map(is_han, text))

    def _sounds(self, tokens: list[str | Syllable]) -> list[tuple[str, ...] | None]:
        """Pronounce each word; punctuation becomes None. Runs from last to first, since a word may depend on the next one."""
        out: list[tuple[str, ...] | None] = [None] * len(tokens)
        after = ""
        words = [_word(token) for token in tokens]
        for i in range(len(tokens) - 1, -1, -1):
            token = tokens[i]
            if not isinstance(token, str):
                out[i], after = token.phones, ""
            elif words[i]:
                sound = homograph(words, i, token) or self._lexicon.pronounce(token, after)
                out[i] = sound
                after = sound[0] if sound else after
            else:
                after = ""
        return out


def _word(token: str | Syllable) -> str:
    """Return an English word in lower case; "" for any other token."""
    return token.lower().strip("'") if isinstance(token, str) and token.strip("'")[:1].isalpha() else ""


def _add_pause(names: list[str], starts: list[bool], mark: str) -> None:
    """Add a pause; of consecutive pauses the strongest remains, and none precedes the first word."""
    name = next((candidate for candidate in "?!." if candidate in mark), ",")
    if names and names[-1] == ",":
        names[-1] = name
    elif names and names[-1] not in PAUSES:
        names.append(name)
        starts.append(True)


def flags_of(names: list[str], starts: list[bool]) -> list[int]:
    """Return the position flag of each phone: 0 inside a word, 1 first, 2 last, 3 the only phone; a pause is a word."""
    begins = [f or n in PAUSES for f, n in zip(starts, names, strict=True)]
    ends = [i + 1 == len(names) or begins[i + 1] for i in range(len(names))]
    return [3 if b and e else 1 if b else 2 if e else 0 for b, e in zip(begins, ends, strict=True)]
