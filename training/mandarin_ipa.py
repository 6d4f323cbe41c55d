"""Mandarin between the engine's phones and the teacher's symbols (misaki's IPA, syllable by syllable).

The teacher is told our own reading, with the sandhi, light tones and erhua of the front end, as the parametric teacher was;
what it says is then by construction what the front end will ask for. The tone stands behind the vowel, none is the neutral
one; words are those of jieba, with spaces between. Erhua is a schwa with r and without a tone, directly behind its syllable.
"""

from __future__ import annotations

import logging
import re
import warnings
from collections.abc import Sequence
from functools import cache
from typing import Any

from voicelab.engine.pointer.config import FINALS
from voicelab.engine.pointer.mandarin import Syllable, read
from voicelab.engine.text import normalize

_INITIALS = dict(
    pair.split()
    for pair in ("b p,p pʰ,m m,f f,d t,t tʰ,n n,l l,g k,k kʰ,h x,j ʨ,q ʨʰ,x ɕ,zh ꭧ,ch ꭧʰ,sh ʂ,r ɻ,z ʦ,c ʦʰ,s s").split(
        ","
    )
)
_FINALS = dict(
    pair.split()
    for pair in (
        "a a*,o wo*,e ɤ*,ai ai*,ei ei*,ao au*,ou ou*,an a*n,en ə*n,ang a*ŋ,eng ə*ŋ,er ɚ*,i i*,ir ɨ*,iz ɨ*,ia ja*,ie je*,"
        "iao jau*,iou jou*,ian jɛ*n,in i*n,iang ja*ŋ,ing i*ŋ,iong jʊ*ŋ,u u*,ua wa*,uo wo*,uai wai*,uei wei*,uan wa*n,"
        "uen wə*n,uang wa*ŋ,ueng wə*ŋ,ong ʊ*ŋ,v y*,ve ɥe*,van ɥɛ*n,vn y*n,ng n*"
    ).split(",")
)
"""``*`` is the tone's place."""
_TONES = {1: "→", 2: "↗", 3: "↓", 4: "↘", 5: ""}
_VOWELS = "aeioɤəɛɨuyʊ"
_LABIAL, _RETROFLEX = ("b", "p", "m", "f"), ("zh", "ch", "sh", "r")


def _pattern(written: str) -> str:
    # An n before a vowel begins the next syllable, but behind ə and ɛ, which do not stand alone; ŋ never begins one.
    alone = written[:-2] + "*" in _FINALS.values()
    coda = rf"n(?![{_VOWELS}j])" if written.endswith("*n") and alone else written[-1:]
    return (written if written.endswith("*") else written[:-1] + coda).replace("*", "[→↗↓↘]?")


_BY_IPA = {ipa: name for name, ipa in _INITIALS.items()}
_FINAL = {ipa: name for name, ipa in _FINALS.items() if name not in ("o", "ir")}
_LONGEST = sorted(_FINAL, key=len, reverse=True)
_SYLLABLE = re.compile(
    rf"(?P<initial>{'|'.join(sorted(_BY_IPA, key=len, reverse=True))})?(?:"
    + "|".join(f"(?P<f{i}>{_pattern(ipa)})" for i, ipa in enumerate(_LONGEST))
    + r")(?P<r>ɚ(?![→↗↓↘]))?"
)


def written(syllable: Syllable) -> str:
    """A syllable in the teacher's symbols."""
    ipa = _FINALS[syllable.final].replace("*", _TONES[syllable.tone])
    return _INITIALS.get(syllable.initial, "") + ipa + ("ɚ" if syllable.erhua else "")


def syllables(symbols: str) -> list[tuple[tuple[str, ...], tuple[int, ...]]]:
    """Each syllable of a word: the names of its phones in the engine's inventory, and where each ends in `symbols`.

    Raises:
        KeyError: the symbols are no syllables of Mandarin.
    """
    out: list[tuple[tuple[str, ...], tuple[int, ...]]] = []
    at = 0
    while at < len(symbols):
        match = _SYLLABLE.match(symbols, at)
        if match is None:
            raise KeyError(symbols[at:])
        initial, at = _BY_IPA.get(match["initial"] or "", ""), match.end()
        which = next(i for i in range(len(_LONGEST)) if match[f"f{i}"] is not None)
        final, (begin, end) = _FINAL[_LONGEST[which]], match.span(f"f{which}")
        if final == "uo" and initial in _LABIAL:
            final = "o"
        if final == "iz" and initial in _RETROFLEX:
            final = "ir"
        tone = next((t for t, mark in _TONES.items() if mark and mark in match[f"f{which}"]), 5)
        names = [(f"zh_{initial}", begin)] if initial else []
        names.append((f"zh_{final}{tone}", end))
        if match["r"]:
            names.append(("zh_rr", at))
        out.append((tuple(n for n, _ in names), tuple(e for _, e in names)))
    return out


@cache
def _segmenter() -> Any:
    # Python warns of jieba's regular expressions when it first compiles them.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import jieba
    jieba.setLogLevel(logging.WARNING)
    return jieba


def phonemes(text: str) -> str:
    """The teacher's symbols of a text as our front end reads it; "" where there is anything but Mandarin in it."""
    out = ""
    run: list[Syllable] = []
    for part in (*read(normalize(text, ("zh",)).text), ""):
        if isinstance(part, Syllable):
            run.append(part)
            continue
        if re.search(r"[A-Za-z]", part):
            return ""
        out += _words(run) + "".join(re.findall("[,.?!;:—]", part)) + " "
        run = []
    return re.sub(" +", " ", out).strip()


def _words(run: Sequence[Syllable]) -> str:
    ends, at = set(), 0
    for word in _segmenter().lcut("".join(s.character for s in run)):
        at += len(word)
        ends.add(at)
    words, at = [""], 0
    names: list[tuple[str, ...]] = []
    for syllable in run:
        said = written(syllable)
        if at in ends or [n for n, _ in syllables(words[-1] + said)] != [*names, syllable.phones]:
            # The latter as an apostrophe in pinyin: fangan is fang'an or fan'gan.
            words.append("")
            names = []
        words[-1] += said
        names.append(syllable.phones)
        at += len(syllable.character)
    return " ".join(filter(None, words))


if set(_FINALS) != set(FINALS):
    raise ImportError(f"finals without symbols: {set(FINALS) ^ set(_FINALS)}")
