"""Whether the four tones of Mandarin can be told by their pitch: the teacher's, through the codec, and the voice's.

    python bench/tones.py                                    embedded voice and codec (espeak-ng must be installed)
    python bench/tones.py --systems voice:mei,voice:clara,s1 --seeds 3
    python bench/tones.py --picture tones.png

Every clip is one syllable in its four tones, in some order: "妈, 麻, 马, 骂." Of each syllable's pitch five points are taken
and put on the five levels of Chao's tone letters (1930), 1 and 5 being the lowest and highest of that clip. A
syllable counts as right when the tone letters nearest to its points are its own: 55, 35, 214 or 21, 51. That asks nothing of
a recognizer; guessing would be right once in four. `contours` are mean pitches in semitones around the clip's median. The
default speaker, `voice`, never spoke Mandarin in training; the presets mei and wei did. `s1` is the default speaker by the
small model.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
import systems
from machine import machine, report
from numpy.typing import NDArray

from voicelab.audio.analysis import f0
from voicelab.audio.clip import Clip
from voicelab.schema import Model

SYSTEMS = ("teacher", "codec", "voice", "voice:mei", "voice:wei", "s1")
SETS = ("妈麻马骂", "八拔把爸", "衣移椅意", "书熟鼠树", "汤糖躺烫", "威围伟卫")
"""One syllable in its four tones each."""
ORDERS = tuple(permutations(range(4)))[::5]
"""Five of the orders that four tones can come in, so that a place in the clip is not taken for a tone."""
LETTERS: dict[int, tuple[tuple[float, ...], ...]] = {
    1: ((5, 5, 5, 5, 5),),
    2: ((3, 3, 3.5, 4.2, 5), (2, 2.3, 3, 4, 5)),
    3: ((2, 1.4, 1, 1.8, 3), (2, 1.6, 1.3, 1.1, 1)),
    4: ((5, 4.5, 3.5, 2.2, 1),),
}
"""Levels of the tones at `POINTS`: a second tone dips before it rises, a third before another word stays low."""
POINTS = (0.3, 0.45, 0.6, 0.75, 0.9)
"""Where in a syllable: its initial consonant has the pitch of what came before."""

WIDEST = 9.0
"""Semitones around the median of a clip in which its pitch is looked for."""


@dataclass(frozen=True)
class Said:
    """A syllable as it was said."""

    tone: int
    levels: tuple[float, ...]
    """1 to 5 at `POINTS`; empty when it has no pitch."""
    semitones: tuple[float, ...]

    @property
    def told(self) -> int | None:
        """The tone that it is taken for."""
        return nearest(self.levels) if self.levels else None


def nearest(levels: Sequence[float]) -> int:
    """Return the tone whose letters are nearest to five levels."""

    def distance(tone: int) -> float:
        return min(float(np.sum(np.square(np.subtract(levels, letters)))) for letters in LETTERS[tone])

    return min(LETTERS, key=distance)


def syllables(clip: Clip, spans: Sequence[tuple[float, float]], tones: Sequence[int]) -> list[Said]:
    """Return the syllables of a clip; `spans` are their begins and ends in seconds."""
    contour = f0(clip, fmin=50, fmax=600, hop_s=0.005)
    pitch = 12 * np.log2(contour.values)
    if np.isnan(pitch).all():
        return [Said(tone, (), ()) for tone in tones]
    # An octave's error would be taken for the lowest or highest level; tones span less.
    voiced = np.abs(pitch - np.nanmedian(pitch)) < WIDEST
    found: list[NDArray[np.float64] | None] = []
    for begin, end in spans:
        at = np.flatnonzero(voiced & (contour.times >= begin) & (contour.times < end))
        if at.size < 6:  # 30 ms: no pitch
            found.append(None)
            continue
        # Between the first and the last sounding moment: a word's span is told in frames of the codec, 46 ms.
        first, last = contour.times[at[0]], contour.times[at[-1]]
        found.append(np.interp([first + p * (last - first) for p in POINTS], contour.times[at], pitch[at]))
    known = [points for points in found if points is not None]
    if not known:
        return [Said(tone, (), ()) for tone in tones]
    low, high, middle = np.min(known), np.max(known), np.median(known)
    scale = max(float(high - low), 1.0)  # less than a semitone is no melody
    return [
        Said(tone, (), ())
        if points is None
        else Said(
            tone,
            tuple(np.round(1 + 4 * (points - low) / scale, 2).tolist()),
            tuple(np.round(points - middle, 2).tolist()),
        )
        for tone, points in zip(tones, found, strict=True)
    ]


def texts() -> Iterator[tuple[str, tuple[int, ...]]]:
    """Every set in every order, with its tones."""
    for letters in SETS:
        for order in ORDERS:
            yield ", ".join(letters[i] for i in order) + ".", tuple(i + 1 for i in order)


def teacher(text: str, speaker: int) -> tuple[Clip, list[tuple[float, float]]]:
    """The teacher as one of its speakers, and when each syllable is said."""
    module = systems.training("mandarin")
    who = module.speakers()[speaker]
    said = module.speak(text, who, np.random.default_rng(0))
    spans: list[tuple[float, float]] = []
    begin = 0.0
    for phone in said.phones:
        if phone.name.startswith("zh_"):
            if phone.first:
                spans.append((begin, phone.end))
            spans[-1] = (spans[-1][0], phone.end)
        begin = phone.end
    return Clip(samples=said.audio(who, 44_100), rate=44_100), spans


def codec(clip: Clip) -> Clip:
    """The same audio through the codec."""
    import torch

    model = systems.the_codec()
    hop = model.config.hop
    padded = np.zeros(-(-clip.samples.size // hop) * hop, np.float32)
    padded[: clip.samples.size] = clip.samples
    with torch.inference_mode():
        made = model.decode(model.encode(torch.from_numpy(padded)[None]))
    return Clip(samples=made.reshape(-1).numpy(), rate=clip.rate)


def voice(name: str, text: str, seed: int) -> tuple[Clip, list[tuple[float, float]]]:
    """The voice, as one of its presets or by the small model, and when it says each word."""
    model: Model = "s1" if name == "s1" else "s2-pro"
    clip = systems.lab().speak(text, voice=name.partition(":")[2] or None, seed=seed, model=model)
    return clip, [(word.start, word.end) for word in clip.words]


def summary(said: Sequence[Said]) -> dict[str, Any]:
    """Return the share told right, what was taken for what, and the mean contours."""
    confusion = {t: {str(o): sum(s.tone == t and s.told == o for s in said) for o in LETTERS} for t in LETTERS}
    contours = {
        t: [round(float(v), 1) for v in np.mean([s.semitones for s in said if s.tone == t and s.semitones], axis=0)]
        for t in LETTERS
        if any(s.tone == t and s.semitones for s in said)
    }
    return {
        "right": round(sum(s.tone == s.told for s in said) / len(said), 3),
        "syllables": len(said),
        "without_pitch": sum(not s.levels for s in said),
        "told_as": confusion,
        "contours": contours,
    }


def draw(found: dict[str, list[Said]], path: Path) -> None:
    """Draw the mean contour of each tone, a panel a system."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, len(found), figsize=(3.4 * len(found), 3), sharey=True, squeeze=False)
    for axis, (name, said) in zip(axes[0], found.items(), strict=True):
        for tone in LETTERS:
            every = np.array([s.semitones for s in said if s.tone == tone and s.semitones])
            if every.size:
                mean, spread = every.mean(axis=0), every.std(axis=0)
                axis.plot(POINTS, mean, label=f"tone {tone}")
                axis.fill_between(POINTS, mean - spread, mean + spread, alpha=0.15)
        axis.set_title(name)
        axis.set_xlabel("place in the syllable")
    axes[0][0].set_ylabel("semitones around the median")
    axes[0][-1].legend()
    figure.tight_layout()
    figure.savefig(path, dpi=110)


def measure(names: Sequence[str], seeds: int, teachers: int) -> dict[str, list[Said]]:
    """Let every system say every text."""
    found: dict[str, list[Said]] = {}
    for name in names:
        said: list[Said] = []
        for number, (text, tones) in enumerate(texts()):
            if name not in ("teacher", "codec"):
                for seed in range(seeds):
                    clip, spans = voice(name, text, seed)
                    said += syllables(clip, spans, tones) if len(spans) == 4 else [Said(t, (), ()) for t in tones]
                continue
            for which in range(number % 3, teachers, 3):
                clip, spans = teacher(text, which)
                said += syllables(codec(clip) if name == "codec" else clip, spans, tones)
        found[name] = said
        print(f"{name}: {summary(said)['right']:.1%} of {len(said)} syllables told right", flush=True)
    return found


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--systems", default=",".join(SYSTEMS), help=f"of {', '.join(SYSTEMS)}, and voice:PRESET")
    parser.add_argument("--seeds", type=int, default=2, help="takes of each text")
    parser.add_argument("--teachers", type=int, default=9, help="how many of the teacher's speakers")
    parser.add_argument("--picture", type=Path, help="draw the mean contours into this PNG file")
    systems.add_options(parser)
    options = parser.parse_args()
    systems.use(options)
    names = options.systems.split(",")
    if "zh" not in systems.lab().capabilities.languages:
        print("the voice has not learned Mandarin", flush=True)
        names = [name for name in names if name in ("teacher", "codec")]
    began = time.perf_counter()
    found = measure(names, options.seeds, options.teachers)
    if options.picture:
        draw(found, options.picture)
    report(
        {
            "figure": "tones of Mandarin told right by their pitch",
            "points": POINTS,
            "systems": {name: summary(said) for name, said in found.items()},
            "took_s": round(time.perf_counter() - began, 1),
            "machine": machine(),
        }
    )


if __name__ == "__main__":
    main()
