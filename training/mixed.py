"""English by the Mandarin teacher's voices, and sentences of both: so that a language is not told by its voice.

espeak-ng is given our own phones as its mnemonics, one for one, so that every phone is one of ours and has its time.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from training import corpus, mandarin
from training.espeak import Espeak, Event
from training.lexicon import OUT
from training.mandarin_text import QUESTIONS, STATEMENTS, Sentences, unpack
from training.render import PER_SHARD, Phone, Utterance, save_shard
from training.speakers import Speaker, mood
from voicelab.engine.pointer.english import Lexicon, load_guess, load_lexicon
from voicelab.engine.pointer.front import FrontEnd
from voicelab.engine.pointer.mandarin import Syllable, read
from voicelab.engine.pointer.phones import PAUSES, PHONES
from voicelab.engine.text.normalize import normalize

_MNEMONICS = dict(
    zip(
        "aa ae ao aw ax ay eh ey ih iy ow oy uh uw b ch d dh f g hh jh k l m n ng p r s sh t th v w y z zh".split(),
        "A: a O: aU @ aI E eI I i: oU OI U u: b tS d D f g h dZ k l m n N p r s S t T v w j z Z".split(),
        strict=True,
    )
)
_BY_STRESS = {"ah1": "V", "ah0": "@", "er1": "3:", "er0": "3"}
_NARROWER = 1.75
"""What widens F0 for tones is too much for English."""
_TERMS = (
    "email|app|Python|Wi-Fi|OK|PPT|project|deadline|team|meeting|Google|iPhone|Windows|Linux|data|model|server|online|offer|"
    "bug|code|software|hello world|machine learning|USB|PDF|GPS|AI|CPU|KTV|bye bye|coffee|party|video|blog|laptop|JavaScript|"
    "Excel"
).split("|")
_PART = re.compile(r"[A-Za-z'][A-Za-z' -]*|[,.?!;:，。、？！；：]")


def front(weights: Path = OUT) -> FrontEnd:
    """How English is read with the lexicon and the guess in a folder."""
    return FrontEnd(Lexicon(load_guess(weights / "guess.safetensors"), load_lexicon(weights / "lexicon.txt.gz")))


@dataclass
class _Joined:
    """Audio and phones so far; times in samples."""

    audio: list[NDArray[np.int16]]
    phones: list[Phone]
    at: int = 0

    def add(self, samples: NDArray[np.int16], phones: list[Phone]) -> None:
        self.phones += [replace(p, end=p.end + self.at) for p in phones]
        self.audio.append(samples)
        self.at += samples.size

    def silence(self, name: str, seconds: float) -> None:
        samples = np.zeros(int(seconds * mandarin.teacher().rate), np.int16)
        self.add(samples, [Phone(name, samples.size, "", True)])


def _mnemonics(names: list[str]) -> str:
    return "".join(("'" if n[-1] == "1" else "") + (_BY_STRESS.get(n) or _MNEMONICS[n.rstrip("01")]) for n in names)


def _english_voice(speaker: Speaker) -> Espeak:
    espeak = mandarin.teacher()
    espeak.voice(
        f"en-us+{speaker.teacher}",
        speaker.stretch * speaker.formants,
        speaker.f0_ratio,
        speaker.f0_spread / _NARROWER,
    )
    return espeak


def english(text: str, speaker: Speaker) -> Utterance:
    """English as the teacher itself reads it, without the times of its phones: to compare with, not to learn from."""
    espeak = _english_voice(speaker)
    return Utterance(text, speaker.id, (), espeak.say(text)[0], espeak.rate, np.zeros(1, np.float32), 0.005)


def _english(text: str, speaker: Speaker, reader: FrontEnd) -> tuple[NDArray[np.int16], list[Phone]] | None:
    """A stretch without marks, cut where its last phone ends."""
    found = reader.read(text)
    names = [PHONES[i] for i in found.phones]
    words = [names[start:end] for _, start, end in found.words]
    flat = [n for word in words for n in word]
    if not flat or any(n in PAUSES for n in flat) or len(flat) + sum(n in PAUSES for n in names) != len(names):
        return None
    audio, events = _english_voice(speaker).say(f"[[{' '.join(map(_mnemonics, words))}]].")
    sounds = [e.sample for e in _ours(events, flat)]
    over = [e.sample for e in events if e.name.startswith("_") and sounds and e.sample > sounds[-1]]
    if len(sounds) != len(flat) or not over:
        return None
    firsts = [i == 0 for word in words for i in range(len(word))]
    ends = [*sounds[1:], over[0]]
    return _faded(audio[: over[0]]), [Phone(n, e, "", f) for n, e, f in zip(flat, ends, firsts, strict=True)]


def _ours(events: list[Event], names: list[str]) -> list[Event]:
    """The phones that were asked for, without the glides that the teacher puts between vowels: those belong to the vowel."""
    out: list[Event] = []
    for event in events:
        glide = event.name in (";", "r-") or (event.name == "r" and len(out) < len(names) and names[len(out)] != "r")
        if not event.name.startswith("_") and not glide:
            out.append(event)
    return out


def _chinese(syllables: list[Syllable], speaker: Speaker) -> tuple[NDArray[np.int16], list[Phone]] | None:
    said = mandarin.say([*syllables, ","], speaker)
    if said is None:
        return None
    audio, phones = said
    end = int(phones[-2].end)
    return _faded(audio[:end]), phones[1:-1]


def _faded(audio: NDArray[np.int16], samples: int = 100) -> NDArray[np.int16]:
    out = audio.astype(np.float32)
    n = min(samples, out.size)
    out[out.size - n :] *= np.linspace(1, 0, n, dtype=np.float32)
    return out.astype(np.int16)


def _stretches(text: str) -> list[list[Syllable] | str]:
    """Runs of one language, and marks."""
    out: list[list[Syllable] | str] = []
    for part in read(normalize(text, ("en", "zh")).text):
        if isinstance(part, Syllable):
            if not out or isinstance(out[-1], str):
                out.append([])
            last = out[-1]
            if isinstance(last, list):
                last.append(replace(part, character=""))
        else:
            out += _PART.findall(part)
    return out


def speak(text: str, speaker: Speaker, rng: np.random.Generator, reader: FrontEnd) -> Utterance | None:
    """One utterance of either language or both, English as `reader` has it; None where the teacher would not say it so."""
    joined = _Joined([], [])
    joined.silence("^", rng.uniform(0.08, 0.2))
    stretches = _stretches(text)
    for i, stretch in enumerate(stretches):
        if isinstance(stretch, str) and stretch in mandarin.MARKS:
            mark = mandarin.MARKS[stretch]
            if joined.phones[-1].name in PAUSES:
                return None
            joined.silence(
                mark, rng.uniform(0.1, 0.25) if mark == "," or i + 1 == len(stretches) else rng.uniform(0.2, 0.4)
            )
            if mark != "," and i + 1 < len(stretches):
                joined.silence("^", rng.uniform(0.05, 0.15))
            continue
        said = _english(stretch, speaker, reader) if isinstance(stretch, str) else _chinese(stretch, speaker)
        if said is None:
            return None
        joined.add(*said)
    if joined.phones[-1].name not in PAUSES:
        joined.silence(".", rng.uniform(0.1, 0.25))
    rate = mandarin.teacher().rate
    timed = tuple(replace(p, end=p.end / rate / speaker.formants) for p in joined.phones)
    return Utterance(text, speaker.id, timed, np.concatenate(joined.audio), rate, np.zeros(1, np.float32), 0.005)


def _mixed(sentences: Sentences, vocabulary: list[str]) -> Iterator[str]:
    rng = sentences.rng

    def thing(_: re.Match[str]) -> str:
        if rng.random() < 0.4:
            return sentences.word()
        if rng.random() < 0.5:
            return _TERMS[int(rng.integers(len(_TERMS)))]
        return " ".join(vocabulary[int(rng.integers(len(vocabulary)))] for _ in range(int(rng.integers(1, 4))))

    frames = (QUESTIONS + STATEMENTS).split("|")
    while True:
        text = re.sub(r"\{\}", thing, frames[int(rng.integers(len(frames)))])
        if rng.random() < 0.25:
            text = f"{vocabulary[int(rng.integers(len(vocabulary)))]}{sentences.real[int(rng.integers(len(sentences.real)))]}"
        if re.search("[A-Za-z]", text):
            yield text


def _render_shard(path: Path, root: Path, at: int, reader: FrontEnd) -> float:
    rng, everyone = np.random.default_rng(5000 + at), mandarin.speakers()
    sentences = Sentences(root, seed=3000 + at)
    words = sorted(w for w in corpus.recognisable_words() if 2 < len(w) < 10 and w.isalpha())
    texts = _mixed(sentences, words) if path.name.startswith("zm") else corpus.sentences(PER_SHARD * 3, seed=100 + at)
    made: list[Utterance] = []
    for text in texts:
        spoken = speak(text, mood(everyone[int(rng.integers(len(everyone)))], rng), rng, reader)
        if spoken is not None and spoken.phones[-1].end < 20:
            made.append(spoken)
        if len(made) == PER_SHARD:
            break
    save_shard(path, made)
    return sum(u.phones[-1].end for u in made)


def shards(mandarin_count: int) -> tuple[int, int]:
    """How many of mixed sentences and of English go with that many utterances of Mandarin: 18 and 12 %."""
    whole = mandarin_count / PER_SHARD
    return -(-round(whole * 18) // 100), -(-round(whole * 12) // 100)


def render(folder: Path, mixed: int, english: int, weights: Path = OUT) -> None:
    """Renders so many shards of each into ``folder/shards-zh``; those that are there are kept.

    English is read with the lexicon and the guess in `weights`.
    """
    root, reader = unpack(folder), front(weights)
    (folder / "shards-zh").mkdir(parents=True, exist_ok=True)
    names = [f"zm{i:02d}" for i in range(mixed)] + [f"ze{i:02d}" for i in range(english)]
    for i, name in enumerate(names):
        path = folder / "shards-zh" / f"{name}.npz"
        if not path.exists():
            print(f"shard of {_render_shard(path, root, i, reader):.0f} s", flush=True)
