"""The pronunciation lexicon: CMUdict's words as flite's lexicon (CMU, BSD-like) says them, with stress and reduced vowels.

So the words a user types get the very phones that the teachers spoke in training. Where flite says a word otherwise inside
a sentence (reduced function words, "the" before a vowel), what it says most often there goes before the lexicon.
"""

from __future__ import annotations

import gzip
import re
import subprocess
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

from training.corpus import recognisable_words
from training.render import VOWELS, Utterance, build_teacher, load_shard
from voicelab.engine.pointer.phones import PAUSES, PHONES
from voicelab.engine.text.english_numbers import cardinal, ordinal, ordinal_plural, plural
from voicelab.engine.text.rules import rows

OUT = Path(__file__).parent.parent / "voicelab" / "engine" / "weights"
"""The package's weights."""


_LOOSE = (
    "point minus plus over to and a half quarter quarters per percent thousand million billion trillion times ten "
    "power squared cubed square cubic degree degrees Celsius Fahrenheit Kelvin foot feet inch inches by number "
    "hashtag sharp less greater than equal not about Street Drive the oh hour hours minute minutes second seconds "
    "o'clock midnight hundred hundreds thousands tens twenties thirties forties fifties sixties seventies eighties "
    "nineties ay with without dot Australian Canadian Singapore New Zealand Hong Kong north south east west born died "
    "version World War First Second Third out of zero care because he she his her or him infinity minimum Apartment Suite"
)


def spoken_words() -> frozenset[str]:
    """Every word that the normalizer writes of its own accord, in lower case, so that the lexicon is sure to know them."""
    phrases = [_LOOSE]
    for table in ("abbreviations", "currencies", "greek", "symbols", "units"):
        phrases.extend(column for _, *columns in rows(f"english/{table}") for column in columns)
    for n in range(101):
        phrases += [cardinal(n), ordinal(n), ordinal_plural(n), plural(cardinal(n))]
    phrases += [ordinal(10**power) for power in (3, 6, 9, 12)]
    return frozenset(word for word in re.findall("[a-z']+", " ".join(phrases).lower()) if len(word) > 1)


def words_of(utterance: Utterance) -> Iterator[tuple[str, tuple[str, ...], str]]:
    """(word, its phones, the phone after it) as spoken."""
    word = ""
    phones: list[str] = []
    for phone in utterance.phones:
        if phone.first or phone.name in PAUSES:
            if phones:
                yield word, tuple(phones), phone.name
            word, phones = phone.word, []
        if phone.name not in PAUSES:
            phones.append(phone.name)


_ENDINGS = {"'ll": "l", "'re": "r", "'ve": "v", "'d": "d"}


def _contraction(word: str, known: dict[str, str]) -> str | None:
    """How the teachers' text analysis says a contraction, which their lexicon alone gets wrong: base and ending apart."""
    if word.endswith("n't"):
        return known.get(word.replace("'", ""))
    base, mark, rest = word.rpartition("'")
    ending = _ENDINGS.get(mark + rest)
    if ending is None or base not in known:
        return None
    last = known[base].split()[-1]
    apart = last in ("t", "d") if ending == "d" else ending != "r" and last[-1] not in "01"
    return f"{known[base]} {'ax0 ' if apart else ''}{ending}"


def build(folder: Path) -> dict[str, str]:
    """Word → phones, for `OUT`; compares with what was spoken in the shards."""
    words = sorted(w for w in recognisable_words() | spoken_words() if w.replace("'", "").isalpha())
    asked = sorted({*words, *(w.replace("'", "") for w in words if w.endswith("n't"))})
    program = build_teacher(folder)
    run = subprocess.run(
        [str(program), "lexicon"], input="\n".join(asked) + "\n", capture_output=True, text=True, check=True
    )
    found = {}
    for line in run.stdout.splitlines():
        word, phones = line.split("\t")
        names = [p + "0" if p in VOWELS else p for p in phones.split()]
        if names and all(n in PHONES for n in names):
            found[word] = " ".join(names)
    for word in words:
        if said := _contraction(word, found):
            found[word] = said
    spoken: dict[str, Counter[str]] = defaultdict(Counter)
    for path in sorted((folder / "shards").glob("????.npz")):
        for utterance in load_shard(path):
            for word, heard, _ in words_of(utterance):
                spoken[word][" ".join(heard)] += 1
    for word, counts in spoken.items():
        usual, times = counts.most_common(1)[0]
        if word in found and times >= 3 and usual != found[word]:
            found[word] = usual
    return found


def write(lexicon: dict[str, str], out: Path = OUT) -> None:
    """``word TAB phones`` lines, sorted, gzipped without a time stamp."""
    out.mkdir(parents=True, exist_ok=True)
    text = "".join(f"{word}\t{phones}\n" for word, phones in sorted(lexicon.items()))
    (out / "lexicon.txt.gz").write_bytes(gzip.compress(text.encode("ascii"), mtime=0))
