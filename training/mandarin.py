"""Mandarin from espeak-ng: our own reading, as pinyin, spoken by virtual speakers; every phone's time is the teacher's own.

The teacher is told the tones that the front end reads (sandhi done), and a sentence in which it would say another one is
dropped. Its voices are formant synthesis: plain, but every tone and every boundary is exact.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from training.espeak import Espeak, Event
from training.mandarin_text import Sentences, unpack
from training.render import PER_SHARD, Phone, Utterance, save_shard
from training.speakers import Speaker, mood
from voicelab.engine.pointer.mandarin import Syllable, read
from voicelab.engine.text.normalize import normalize

FIRST_ID = 1000
SPEAKERS = 64
_VARIANTS = (
    "m1 m2 m3 m4 m5 m6 m7 Gene f1 f2 f3 f4 f5 Andy Annie Andrea Alex Lee Mario steph linda michael Denis Alicia".split()
)
_HIGH = frozenset("f1 f2 f3 f4 f5 Annie Andrea steph linda Alicia".split())
MARKS = {"。": ".", "？": "?", "！": "!", "，": ",", "、": ",", "；": ",", "：": ",", ".": ".", "?": "?", "!": "!"}
MARKS |= {",": ",", ";": ",", ":": ","}
_TONES = {"55": 1, "35": 2, "21": 3, "214": 3, "51": 4, "11": 5, "22": 5, "33": 5, "44": 5}
_SAID = re.compile(r"(214|[1-5]{2})")
# A final as pinyin spells it alone; after an initial only those below differ from their names.
_ALONE = {"i": "yi", "in": "yin", "ing": "ying", "u": "wu", "v": "yu", "ve": "yue", "van": "yuan", "vn": "yun"}
_AFTER = {"ir": "i", "iz": "i", "iou": "iu", "uei": "ui", "uen": "un"}
# What the r of erhua takes away (Chao 1968, 1.3.6): 玩儿 is war, 小孩儿 is xiaohar.
_BEFORE_R = {
    "an": "a",
    "ai": "a",
    "ian": "ia",
    "uan": "ua",
    "uai": "ua",
    "en": "e",
    "ei": "e",
    "uen": "uen",
    "van": "van",
}


def _is_high(at: int) -> bool:
    return _VARIANTS[at % len(_VARIANTS)] in _HIGH


def speakers() -> list[Speaker]:
    """The virtual speakers of the teacher; ids from `FIRST_ID`. Its own range of F0 is too narrow for tones (3 semitones)."""
    rng = np.random.default_rng(13)
    return [
        Speaker(
            id=FIRST_ID + i,
            teacher=_VARIANTS[i % len(_VARIANTS)],
            f0_ratio=float(2 ** (rng.uniform(-0.25, 0.35) if _is_high(i) else rng.uniform(-0.1, 0.6))),
            f0_spread=float(rng.uniform(1.5, 2.0)),
            formants=float(rng.uniform(0.86, 1.18)),
            stretch=float(rng.uniform(0.85, 1.25)),
            tilt=float(rng.uniform(-0.2, 0.3)),
        )
        for i in range(SPEAKERS)
    ]


def pinyin(syllable: Syllable, final: str = "") -> str:
    """The syllable as the teacher reads it: ``zhuang4``."""
    final = final or syllable.final
    if not syllable.initial:
        spelled = _ALONE.get(final) or (
            "y" + final[1:] if final[0] == "i" else "w" + final[1:] if final[0] == "u" and len(final) > 1 else final
        )
    else:
        spelled = syllable.initial + _AFTER.get(final, final)
        if syllable.initial in ("j", "q", "x") and final[0] == "v":
            spelled = syllable.initial + "u" + final[1:]
        spelled = spelled.replace("uen", "un")
    return f"{spelled}{syllable.tone}"


@cache
def teacher() -> Espeak:
    """This process's."""
    return Espeak()


@cache
def _spelling(syllable: Syllable) -> tuple[str, tuple[int | None, ...]] | None:
    """The teacher's spelling, with the tones it then says; None where it does not say that syllable as one of that tone."""
    wanted = [syllable.final]
    if syllable.erhua:
        wanted = [_BEFORE_R.get(syllable.final, syllable.final), syllable.final]
    for final in wanted:
        spelled = pinyin(syllable, final) + ("r" if syllable.erhua else "")
        said = teacher().phonemes(spelled)
        tones = _tones(said)
        whole = len(tones) == 1 or (syllable.erhua and "@r" in said and len(tones) == 2)
        if whole and tones[0] == syllable.tone and "(" not in said:
            return spelled, tones
    return None


def _tones(phonemes: str) -> tuple[int | None, ...]:
    return tuple(_TONES.get(t) for t in _SAID.findall(phonemes))


def _parts(text: str) -> list[Syllable | str] | None:
    """Syllables and marks; None when there is anything else."""
    out: list[Syllable | str] = []
    for part in read(normalize(text, ("zh",)).text):
        if isinstance(part, Syllable):
            out.append(replace(part, character=""))
            continue
        marks = [MARKS.get(m, "x") for m in part if not m.isspace()]
        if "x" in marks:
            return None
        if marks and out and isinstance(out[-1], Syllable):
            out.append(max(marks, key=",.!?".index))
    return out if out and isinstance(out[0], Syllable) else None


def _syllable_phones(syllable: Syllable, events: list[Event], end: int) -> list[tuple[str, int]]:
    """(name, end in samples) of each phone."""
    names = syllable.phones
    sounds = [e for e in events if not e.name.startswith("_")]
    ends: dict[str, int] = {names[-1]: end}
    begin = sounds[0].sample
    if syllable.initial:
        # A syllable that the teacher says in one sound would leave the final nothing.
        begin = sounds[1].sample if len(sounds) > 1 else (begin + end) // 2
        ends[names[0]] = begin
    if syllable.erhua:
        last = (
            sounds[-1].sample if sounds[-1].name.startswith("@r") and sounds[-1].sample > begin else (begin + end) // 2
        )
        ends[names[-2]] = last
    return [(name, ends[name]) for name in names]


def _timed(parts: list[Syllable | str], starts: list[int], events: list[Event], total: int) -> list[Phone]:
    """Phones of one stretch of audio; times in samples."""
    of: dict[int, list[Event]] = {s: [] for s in starts}
    ends: dict[int, int] = {}
    word = -1
    for event in sorted(events, key=lambda e: e.sample):
        if event.name.startswith("_"):
            if word >= 0:
                ends.setdefault(word, event.sample)  # what follows is the closure of a stop, or a pause
        elif event.position in of:
            word = event.position
            of[word].append(event)
    out = [Phone("^", 0, "", True)]
    at = iter(starts)
    order = [None if isinstance(p, str) else next(at) for p in parts]
    for i, (part, start) in enumerate(zip(parts, order, strict=True)):
        following = next((s for s in order[i + 1 :] if s is not None), None)
        until = total if following is None else of[following][0].sample
        if isinstance(part, str) or start is None:
            middle = (out[-1].end + until) / 2
            if part != "," and following is not None:
                out += [Phone(str(part), middle, "", True), Phone("^", until, "", True)]
            else:
                out.append(Phone(str(part), until, "", True))
            continue
        for j, (name, end) in enumerate(_syllable_phones(part, of[start], ends.get(start, until))):
            out.append(Phone(name, end, "", j == 0))
    return out


def say(parts: list[Syllable | str], speaker: Speaker) -> tuple[NDArray[np.int16], list[Phone]] | None:
    """Audio, and phones whose ends are in samples, from a beginning of no length; None where it would say other tones."""
    espeak = teacher()
    espeak.voice(
        f"cmn-latn-pinyin+{speaker.teacher}", speaker.stretch * speaker.formants, speaker.f0_ratio, speaker.f0_spread
    )
    told: list[int | None] = []
    starts: list[int] = []
    asked = ""
    for part in parts:
        if isinstance(part, str):
            asked = asked + part
            continue
        found = _spelling(part)
        if found is None:
            return None
        said, tones = found
        asked += " " if asked else ""
        starts.append(len(asked))
        # Without the capital a full stop would be an abbreviation's.
        asked += said.capitalize() if asked.endswith(". ") else said
        told += tones
    if _tones(espeak.phonemes(asked)) != tuple(told):
        return None
    audio, events = espeak.say(asked)
    if not set(starts) <= {e.position for e in events if not e.name.startswith("_")}:
        return None
    return audio, _timed(parts, starts, events, audio.size)


def speak(text: str, speaker: Speaker, rng: np.random.Generator) -> Utterance | None:
    """One utterance; None when the text holds what cannot be read or the teacher would say other tones."""
    parts = _parts(text)
    if parts is None:
        return None
    said = say([*parts, "."] if isinstance(parts[-1], Syllable) else parts, speaker)
    if said is None:
        return None
    audio, phones = said
    rate = teacher().rate
    lead, tail = (int(rng.uniform(low, high) * rate) for low, high in ((0.08, 0.2), (0.1, 0.25)))
    raw = np.concatenate([np.zeros(lead, np.int16), audio, np.zeros(tail, np.int16)])
    ends = [*(p.end + lead for p in phones[:-1]), raw.size]
    timed = tuple(replace(p, end=end / rate / speaker.formants) for p, end in zip(phones, ends, strict=True))
    return Utterance(text, speaker.id, timed, raw, rate, np.zeros(1, np.float32), 0.005)


def utterances(sentences: Sentences, count: int, seed: int) -> Iterator[Utterance]:
    """`count` of them."""
    rng, everyone, made = np.random.default_rng(seed), speakers(), 0
    while made < count:
        text = sentences.one()
        if rng.random() < 0.07:
            text += sentences.one()
        speaker = mood(everyone[int(rng.integers(len(everyone)))], rng)
        spoken = speak(text, speaker, rng)
        if spoken is not None:
            made += 1
            yield spoken


def _render_shard(path: Path, root: Path, at: int) -> float:
    made = list(utterances(Sentences(root, seed=1000 + at), PER_SHARD, seed=at))
    save_shard(path, made)
    return sum(u.phones[-1].end for u in made)


def render(folder: Path, count: int, jobs: int = 1) -> None:
    """Renders `count` utterances into ``folder/shards-zh``; shards that are there are kept."""
    root = unpack(folder)
    shards = folder / "shards-zh"
    shards.mkdir(parents=True, exist_ok=True)
    paths = [shards / f"zh{i:02d}.npz" for i in range(-(-count // PER_SHARD))]
    with ProcessPoolExecutor(jobs) as pool:
        runs = [pool.submit(_render_shard, path, root, i) for i, path in enumerate(paths) if not path.exists()]
        for run in runs:
            print(f"shard of {run.result():.0f} s", flush=True)
