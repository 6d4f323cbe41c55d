"""Whether the four tones of Mandarin can be told by their pitch: the teacher's, through the codec, and the voice's.

    python bench/tones.py
    python bench/tones.py --systems voice:mei,voice:clara,s1 --seeds 3 --against build/old/weights
    python bench/tones.py --picture tones.png
    python bench/tones.py --systems real --recordings gcin-voice/usr/share/gcin-voice/ogg

Every clip has one syllable in its four tones, in some order, each at the end of a sentence: "这个字念妈。这个字念麻。…".
Of each syllable's pitch five points are taken, in semitones, less the mean of all that clip's points and over their standard
deviation. A syllable counts as right when of the teacher's mean contours of the four tones that of its own is the
nearest; the teacher's and the codec's are compared with those of the other syllables. That asks nothing of a recognizer;
guessing would be right once in four. A low voice's creak has no pitch and counts as wrong; `right_with_pitch` leaves it
out. `contours` are means in semitones around the clip's median. The default speaker, `voice`, is at home in English; the
presets mei and wei in Mandarin. `s1` is the default speaker by the small model, `old:voice:mei` a preset by the weights
that --against names.

`real` tells what the measure itself is worth: every syllable that Debian's package gcin-voice (0~20170223-3; its 5.ogg are
CC-BY-3.0) has in all four tones, each said alone by one person, put one behind the other and compared with the others':
`apt-get download gcin-voice`, then `dpkg -x gcin-voice_*.deb gcin-voice`.
"""

from __future__ import annotations

import argparse
import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import groupby, permutations
from pathlib import Path
from typing import Any

import numpy as np
import systems
from machine import machine, report
from numpy.typing import NDArray

from voicelab.audio.analysis import f0
from voicelab.audio.clip import Clip
from voicelab.schema import Model

SYSTEMS = ("teacher", "codec", "voice:mei", "voice:wei", "voice", "s1")
GAP_S = 0.2
"""Between recorded syllables."""
SETS = ("妈麻马骂", "八拔把爸", "衣移椅意", "书熟鼠树", "汤糖躺烫", "威围伟卫")
"""One syllable in its four tones each."""
ORDERS = tuple(permutations(range(4)))[::5]
"""Five of the orders that four tones can come in, so that a place in the clip is not taken for a tone."""
CARRIER = "这个字念{}。"
WORDS = 5
"""Syllables of it, each a word with times."""
TONES = (1, 2, 3, 4)
POINTS = (0.3, 0.45, 0.6, 0.75, 0.9)
"""Where in a syllable: its initial consonant has the pitch of what came before."""

_CHINESE = re.compile("[\u3105-\u3129]+")
"""Bopomofo, without a digit: the first tone."""
WIDEST = 14.0
"""Semitones around the median of a clip in which its pitch is looked for."""


Spans = list[tuple[float, float]]
"""Begins and ends in seconds."""


@dataclass(frozen=True)
class Said:
    """A syllable as it was said."""

    of: str
    """Which syllable, whatever its tone."""
    tone: int
    contour: tuple[float, ...] = ()
    """Standard deviations from the clip's mean at `POINTS`; empty when it has no pitch."""
    semitones: tuple[float, ...] = ()
    """The same in semitones from the clip's median."""


def syllables(clip: Clip, spans: Spans, of: str, tones: Sequence[int]) -> list[Said]:
    """Return the syllables of a clip, as they lie in its `spans`."""
    pitch_of = f0(clip, fmin=50, fmax=600, hop_s=0.005)
    pitch = 12 * np.log2(pitch_of.values)
    if np.isnan(pitch).all():
        return [Said(of, tone) for tone in tones]
    # What is farther away is no voice's, or an octave's error; of real tones the third goes down by an octave.
    voiced = np.abs(pitch - np.nanmedian(pitch)) < WIDEST
    contours: list[NDArray[np.float64] | None] = []
    for begin, end in spans:
        at = np.flatnonzero(voiced & (pitch_of.times >= begin) & (pitch_of.times < end))
        if at.size < 6:  # 30 ms: no pitch
            contours.append(None)
            continue
        # Between the first and the last sounding moment: a word's span is told in frames of the codec, 46 ms.
        first, last = pitch_of.times[at[0]], pitch_of.times[at[-1]]
        contours.append(np.interp([first + p * (last - first) for p in POINTS], pitch_of.times[at], pitch[at]))
    every = [points for points in contours if points is not None]
    if not every:
        return [Said(of, tone) for tone in tones]
    mean, middle = float(np.mean(every)), float(np.median(every))
    scale = max(float(np.std(every)), 0.5)  # less than half a semitone is no melody
    return [
        Said(of, tone)
        if points is None
        else Said(of, tone, tuple(((points - mean) / scale).tolist()), tuple((points - middle).tolist()))
        for tone, points in zip(tones, contours, strict=True)
    ]


def heard_as(said: Sequence[Said], examples: Sequence[Said]) -> list[int | None]:
    """Return the tone that each syllable is taken for: the nearest of the mean contours of other syllables in `examples`."""
    out: list[int | None] = []
    for one in said:
        others = [k for k in examples if k.contour and k.of != one.of]
        means = {tone: np.mean([k.contour for k in others if k.tone == tone], axis=0) for tone in TONES}
        apart = {tone: float(np.sum(np.square(np.subtract(one.contour or 0, mean)))) for tone, mean in means.items()}
        out.append(min(apart, key=apart.__getitem__) if one.contour else None)
    return out


def texts() -> Iterator[tuple[str, str, tuple[int, ...]]]:
    """Every set in every order: which syllable, what is said, and its tones."""
    for letters in SETS:
        for order in ORDERS:
            yield letters, "".join(CARRIER.format(letters[i]) for i in order), tuple(i + 1 for i in order)


@cache  # `teacher` and `codec` both want it, and it costs seconds
def teacher(text: str, speaker: str) -> tuple[Clip, Spans]:
    """The teacher as one of its voices, told our own reading, and when it says the last syllable of each sentence."""
    kokoro, ipa = systems.training("kokoro"), systems.training("mandarin_ipa")
    audio, phones = systems.training("trim").trimmed(systems.rendered(((speaker, 1.0),), text))
    spans = []
    for mark, run in groupby(phones, lambda phone: phone.name in kokoro.MARKS):
        said = [phone for phone in run if phone.name != kokoro.PAUSE]
        if said and not mark:
            # A phone is some of the symbols: the last syllable's are those behind the end of the one before.
            ends = [ends[-1] for _, ends in ipa.syllables("".join(phone.name for phone in said))]
            at = np.cumsum([len(phone.name) for phone in said])
            spans.append((said[int(np.searchsorted(at, ends[-2], side="right"))].start, said[-1].end))
    return Clip(samples=audio.astype(np.float32), rate=kokoro.RATE), spans


def voice(name: str, text: str, seed: int) -> tuple[Clip, Spans]:
    """The voice, as one of its presets or by the small model, and when it says the last syllable of each sentence."""
    kind, _, which = name.removeprefix("old:").partition(":")
    model: Model = "s1" if kind == "s1" else "s2-pro"
    lab = systems.lab(variable=systems.OLD if name.startswith("old:") else systems.WEIGHTS)
    clip = lab.speak(text, voice=which or None, seed=seed, model=model)
    return clip, [(word.start, word.end) for word in clip.words[WORDS - 1 :: WORDS]]


def recorded(folder: Path) -> Iterator[tuple[Clip, Spans, str, tuple[int, ...]]]:
    """Every syllable that gcin-voice, unpacked at `folder`, has in four tones, in one of the ORDERS, as for `syllables`."""
    alone = sorted(path.name for path in folder.iterdir() if _CHINESE.fullmatch(path.name))
    for number, name in enumerate(alone):
        paths = [folder / f"{name}{tone}" / "5.ogg" for tone in ("", 2, 3, 4)]
        if not all(path.exists() for path in paths):
            continue
        parts: list[NDArray[np.float32]] = []
        spans, at = [], 0.0
        order = ORDERS[number % len(ORDERS)]
        for clip in (Clip.load(paths[i]) for i in order):
            parts += [clip.samples, np.zeros(round(GAP_S * clip.rate), np.float32)]
            spans.append((at, at + clip.duration))
            at += (parts[-1].size + parts[-2].size) / clip.rate
        yield Clip(samples=np.concatenate(parts), rate=clip.rate), spans, name, tuple(i + 1 for i in order)


def summary(said: Sequence[Said], examples: Sequence[Said]) -> dict[str, Any]:
    """Return the share told right by the contours of `examples`, what was taken for what, and the mean contours."""
    heard = heard_as(said, examples)
    pairs = [(one.tone, tone) for one, tone in zip(said, heard, strict=True)]
    right = sum(tone == other for tone, other in pairs)
    return {
        "right": round(right / len(said), 3),
        "right_with_pitch": round(right / max(1, sum(bool(one.contour) for one in said)), 3),
        "syllables": len(said),
        "without_pitch": sum(not one.contour for one in said),
        "heard_as": {tone: {str(other): pairs.count((tone, other)) for other in TONES} for tone in TONES},
        "contours": {
            tone: [
                round(float(v), 1) for v in np.mean([s.semitones for s in said if s.tone == tone and s.contour], axis=0)
            ]
            for tone in TONES
            if any(s.tone == tone and s.contour for s in said)
        },
    }


def draw(found: dict[str, list[Said]], path: Path) -> None:
    """Draw the mean contour of each tone, a panel a system."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, len(found), figsize=(3.4 * len(found), 3), sharey=True, squeeze=False)
    for axis, (name, said) in zip(axes[0], found.items(), strict=True):
        for tone in TONES:
            every = np.array([s.semitones for s in said if s.tone == tone and s.contour])
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


def said_by(name: str, seeds: int, recordings: Path | None) -> Iterator[Said]:
    """Every syllable of a system."""
    if name == "real":
        if recordings is None:
            raise SystemExit("--recordings names the folder of gcin-voice's syllables")
        for part in recorded(recordings):
            yield from syllables(*part)
        return
    kind = name.removeprefix("old:")
    taught = kind in ("teacher", "codec")
    for of, text, tones in texts():
        for speaker in systems.training("plan").MANDARIN if taught else ():
            clip, spans = teacher(text, speaker)
            if kind == "codec":
                variable = systems.OLD if name != kind else systems.WEIGHTS
                samples, rate = systems.through_codec(clip.samples, clip.rate, variable)
                clip = Clip(samples=samples, rate=rate)
            yield from syllables(clip, spans, of, tones)
        for seed in () if taught else range(seeds):
            clip, spans = voice(name, text, seed)
            yield from syllables(clip, spans, of, tones) if len(spans) == 4 else [Said(of, tone) for tone in tones]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--systems", default=",".join(SYSTEMS), help=f"of {', '.join(SYSTEMS)}, real, voice:PRESET, old:…"
    )
    parser.add_argument("--seeds", type=int, default=2, help="takes of each text")
    parser.add_argument("--recordings", type=Path, metavar="FOLDER", help="syllables of gcin-voice, for `real`")
    parser.add_argument("--picture", type=Path, help="draw the mean contours into this PNG file")
    systems.add_options(parser)
    systems.add_old(parser)
    options = parser.parse_args()
    systems.use(options)
    began = time.perf_counter()
    names = options.systems.split(",")
    asked = dict.fromkeys([*names, *(["teacher"] if set(names) - {"real"} else [])])
    every = {name: list(said_by(name, options.seeds, options.recordings)) for name in asked}
    figures = {name: summary(every[name], every["real" if name == "real" else "teacher"]) for name in names}
    for name, row in figures.items():
        print(f"{name}: {row['right']:.1%} of {row['syllables']} syllables are told right", flush=True)
    if options.picture:
        draw({name: every[name] for name in names}, options.picture)
    report(
        {
            "figure": "tones of Mandarin told right by their pitch",
            "points": POINTS,
            "systems": figures,
            "took_s": round(time.perf_counter() - began, 1),
            "machine": machine(),
        }
    )


if __name__ == "__main__":
    main()
