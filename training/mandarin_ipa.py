"""Convert Mandarin between the engine's phones and the teacher's symbols (misaki's IPA, syllable by syllable).

The teacher synthesizes from the front end's phones, with its tone sandhi, neutral tones and erhua, so that training data and
front end agree by construction. The tone mark follows the vowel, without a mark for the neutral tone; words are segmented by
jieba and separated by spaces. Erhua is a toneless r-colored schwa after its syllable.
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
from voicelab.text import normalize

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
"""``*`` is the position of the tone mark."""
_TONES = {1: "→", 2: "↗", 3: "↓", 4: "↘", 5: ""}
_VOWELS = "aeioɤəɛɨuyʊ"
_LABIAL, _RETROFLEX = ("b", "p", "m", "f"), ("zh", "ch", "sh", "r")


def _pattern(ipa: str) -> str:
    # An n before a vowel begins the next syllable, except after ə and ɛ, which are not finals; ŋ never begins a syllable.
    is_final = ipa[:-2] + "*" in _FINALS.values()
    coda = rf"n(?![{_VOWELS}j])" if ipa.endswith("*n") and is_final else ipa[-1:]
    return (ipa if ipa.endswith("*") else ipa[:-1] + coda).replace("*", "[→↗↓↘]?")


_BY_IPA = {ipa: name for name, ipa in _INITIALS.items()}
_FINAL = {ipa: name for name, ipa in _FINALS.items() if name not in ("o", "ir")}
_BY_LENGTH = sorted(_FINAL, key=len, reverse=True)
_SYLLABLE = re.compile(
    rf"(?P<initial>{'|'.join(sorted(_BY_IPA, key=len, reverse=True))})?(?:"
    + "|".join(f"(?P<f{i}>{_pattern(ipa)})" for i, ipa in enumerate(_BY_LENGTH))
    + r")(?P<r>ɚ(?![→↗↓↘]))?"
)


def to_ipa(syllable: Syllable) -> str:
    """Convert a syllable to the teacher's symbols."""
    ipa = _FINALS[syllable.final].replace("*", _TONES[syllable.tone])
    return _INITIALS.get(syllable.initial, "") + ipa + ("ɚ" if syllable.erhua else "")


def syllables(symbols: str) -> list[tuple[tuple[str, ...], tuple[int, ...]]]:
    """Parse a word; return for each syllable its phones in the engine's inventory, and their end offsets in `symbols`.

    Raises:
        KeyError: the symbols are not Mandarin syllables.
    """
    out: list[tuple[tuple[str, ...], tuple[int, ...]]] = []
    offset = 0
    while offset < len(symbols):
        match = _SYLLABLE.match(symbols, offset)
        if match is None:
            raise KeyError(symbols[offset:])
        initial, offset = _BY_IPA.get(match["initial"] or "", ""), match.end()
        index = next(i for i in range(len(_BY_LENGTH)) if match[f"f{i}"] is not None)
        final, (begin, end) = _FINAL[_BY_LENGTH[index]], match.span(f"f{index}")
        if final == "uo" and initial in _LABIAL:
            final = "o"
        if final == "iz" and initial in _RETROFLEX:
            final = "ir"
        tone = next((t for t, mark in _TONES.items() if mark and mark in match[f"f{index}"]), 5)
        names = [(f"zh_{initial}", begin)] if initial else []
        names.append((f"zh_{final}{tone}", end))
        if match["r"]:
            names.append(("zh_rr", offset))
        out.append((tuple(n for n, _ in names), tuple(e for _, e in names)))
    return out


@cache
def _segmenter() -> Any:
    # Importing jieba warns about its regular expressions.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import jieba
    jieba.setLogLevel(logging.WARNING)
    return jieba


def phonemes(text: str) -> str:
    """Convert a Mandarin text to the teacher's symbols by voicelab's front end; "" for texts with Latin letters."""
    out = ""
    run: list[Syllable] = []
    for item in (*read(normalize(text, ("zh",)).text), ""):
        if isinstance(item, Syllable):
            run.append(item)
            continue
        if re.search(r"[A-Za-z]", item):
            return ""
        out += _words(run) + "".join(re.findall("[,.?!;:—]", item)) + " "
        run = []
    return re.sub(" +", " ", out).strip()


def _words(run: Sequence[Syllable]) -> str:
    ends, offset = set(), 0
    for word in _segmenter().lcut("".join(s.character for s in run)):
        offset += len(word)
        ends.add(offset)
    words, offset = [""], 0
    names: list[tuple[str, ...]] = []
    for syllable in run:
        ipa = to_ipa(syllable)
        if offset in ends or [n for n, _ in syllables(words[-1] + ipa)] != [*names, syllable.phones]:
            # A space disambiguates like an apostrophe in pinyin: fang'an, fan'gan.
            words.append("")
            names = []
        words[-1] += ipa
        names.append(syllable.phones)
        offset += len(syllable.character)
    return " ".join(filter(None, words))


if set(_FINALS) != set(FINALS):
    raise ImportError(f"finals without symbols: {set(FINALS) ^ set(_FINALS)}")
