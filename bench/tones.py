"""Mandarin tone identification by F0 contours: teacher, teacher through the codec, and voice.

    python bench/tones.py
    python bench/tones.py --systems voice:mei,voice:clara,s1 --seeds 3 --against build/old/weights
    python bench/tones.py --picture tones.png
    python bench/tones.py --systems real --recordings gcin-voice/usr/share/gcin-voice/ogg

Every clip has one syllable in its four tones, in random order, each at the end of a sentence: "这个字念妈。这个字念麻。…".
The F0 contour of a syllable is five points in semitones, z-normalized over the clip. A syllable counts as right if the
nearest of the teacher's four mean tone contours is that of its tone; contours of teacher and codec are compared with those
of the other syllables. The chance level is 25 %. Creaky syllables without F0 count as wrong; `right_with_pitch` excludes
them. `contours` are means in semitones relative to the clip's median. The default preset, `voice`, is English; mei and wei
are Mandarin. `s1` is the default preset with the small model, `old:voice:mei` a preset with the weights of --against.

`real` validates the measure on natural speech: every syllable that Debian's package gcin-voice (0~20170223-3; its 5.ogg are
CC-BY-3.0) has in all four tones, recorded in isolation by one speaker, concatenated, and compared with the other syllables:
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
import teaching
from machine import machine, report
from numpy.typing import NDArray

from voicelab.audio.analysis import f0
from voicelab.clip import Clip
from voicelab.schema import Model

SYSTEMS = ("teacher", "codec", "voice:mei", "voice:wei", "voice", "s1")
GAP_S = 0.2
"""Silence between recorded syllables."""
SETS = ("妈麻马骂", "八拔把爸", "衣移椅意", "书熟鼠树", "汤糖躺烫", "威围伟卫")
"""Syllables, each in its four tones."""
ORDERS = tuple(permutations(range(4)))[::5]
"""Five orders of the four tones, so that position and tone are not confounded."""
CARRIER = "这个字念{}。"
WORDS = 5
"""Syllables of the carrier sentence, each a word with times."""
TONES = (1, 2, 3, 4)
POINTS = (0.3, 0.45, 0.6, 0.75, 0.9)
"""Relative positions in a syllable, after the coarticulated onset."""

_CHINESE = re.compile("[\u3105-\u3129]+")
"""Bopomofo, without a digit: the first tone."""
MAX_DEVIATION = 14.0
"""Maximum deviation of F0 from the median of a clip in semitones."""


Spans = list[tuple[float, float]]
"""Starts and ends in seconds."""


@dataclass(frozen=True)
class Syllable:
    """A rendered syllable and its F0 contour."""

    base: str
    """Syllable without tone."""
    tone: int
    contour: tuple[float, ...] = ()
    """z-scores of F0 at `POINTS`; empty if unvoiced."""
    semitones: tuple[float, ...] = ()
    """F0 at `POINTS` in semitones relative to the clip's median."""


def syllables(clip: Clip, spans: Spans, base: str, tones: Sequence[int]) -> list[Syllable]:
    """Extract the syllables of a clip from its `spans`."""
    pitch_of = f0(clip, fmin=50, fmax=600, hop_s=0.005)
    pitch = 12 * np.log2(pitch_of.values)
    if np.isnan(pitch).all():
        return [Syllable(base, tone) for tone in tones]
    # Larger deviations are octave errors; the third tone of natural speech falls by up to an octave.
    voiced = np.abs(pitch - np.nanmedian(pitch)) < MAX_DEVIATION
    contours: list[NDArray[np.float64] | None] = []
    for begin, end in spans:
        frames = np.flatnonzero(voiced & (pitch_of.times >= begin) & (pitch_of.times < end))
        if frames.size < 6:  # less than 30 ms voiced
            contours.append(None)
            continue
        # Restrict to voiced frames: word times have a resolution of one codec frame, 46 ms.
        start_s, end_s = pitch_of.times[frames[0]], pitch_of.times[frames[-1]]
        contours.append(
            np.interp([start_s + p * (end_s - start_s) for p in POINTS], pitch_of.times[frames], pitch[frames])
        )
    defined = [points for points in contours if points is not None]
    if not defined:
        return [Syllable(base, tone) for tone in tones]
    mean, middle = float(np.mean(defined)), float(np.median(defined))
    scale = max(float(np.std(defined)), 0.5)  # at least half a semitone
    return [
        Syllable(base, tone)
        if points is None
        else Syllable(base, tone, tuple(((points - mean) / scale).tolist()), tuple((points - middle).tolist()))
        for tone, points in zip(tones, contours, strict=True)
    ]


def classify_tones(rendered: Sequence[Syllable], examples: Sequence[Syllable]) -> list[int | None]:
    """Classify the tone of each syllable by the nearest mean contour of other syllables in `examples`."""
    out: list[int | None] = []
    for item in rendered:
        training = [k for k in examples if k.contour and k.base != item.base]
        means = {tone: np.mean([k.contour for k in training if k.tone == tone], axis=0) for tone in TONES}
        distances = {
            tone: float(np.sum(np.square(np.subtract(item.contour or 0, mean)))) for tone, mean in means.items()
        }
        out.append(min(distances, key=distances.__getitem__) if item.contour else None)
    return out


def texts() -> Iterator[tuple[str, str, tuple[int, ...]]]:
    """Yield every set in every order: syllables, text and tones."""
    for letters in SETS:
        for order in ORDERS:
            yield letters, "".join(CARRIER.format(letters[i]) for i in order), tuple(i + 1 for i in order)


@cache  # used by `teacher` and `codec`, and takes seconds
def teacher(text: str, speaker: str) -> tuple[Clip, Spans]:
    """Render with a voice of the teacher, from voicelab's phones; return the clip and the spans of the final syllables."""
    kokoro, ipa = teaching.training("kokoro"), teaching.training("mandarin_ipa")
    audio, phones = teaching.training("trim").trimmed(teaching.rendered(((speaker, 1.0),), text))
    spans = []
    for mark, run in groupby(phones, lambda phone: phone.name in kokoro.MARKS):
        spoken_phones = [phone for phone in run if phone.name != kokoro.PAUSE]
        if spoken_phones and not mark:
            # A phone may have several symbols; the final syllable begins after the end of the previous one.
            ends = [ends[-1] for _, ends in ipa.syllables("".join(phone.name for phone in spoken_phones))]
            offsets = np.cumsum([len(phone.name) for phone in spoken_phones])
            index = int(np.searchsorted(offsets, ends[-2], side="right"))
            spans.append((spoken_phones[index].start, spoken_phones[-1].end))
    return Clip(samples=audio.astype(np.float32), rate=kokoro.RATE), spans


def voice(name: str, text: str, seed: int) -> tuple[Clip, Spans]:
    """Render with a preset; return the clip and the spans of the final syllables."""
    kind, _, preset = name.removeprefix("old:").partition(":")
    model: Model = "s1" if kind == "s1" else "s2-pro"
    lab = systems.lab(variable=systems.OLD if name.startswith("old:") else systems.WEIGHTS)
    clip = lab.speak(text, voice=preset or None, seed=seed, model=model)
    return clip, [(word.start, word.end) for word in clip.words[WORDS - 1 :: WORDS]]


def load_recordings(folder: Path) -> Iterator[tuple[Clip, Spans, str, tuple[int, ...]]]:
    """Yield every syllable of gcin-voice (unpacked at `folder`) with all four tones, as arguments of `syllables`."""
    names = sorted(path.name for path in folder.iterdir() if _CHINESE.fullmatch(path.name))
    for number, name in enumerate(names):
        paths = [folder / f"{name}{tone}" / "5.ogg" for tone in ("", 2, 3, 4)]
        if not all(path.exists() for path in paths):
            continue
        parts: list[NDArray[np.float32]] = []
        spans, start_s = [], 0.0
        order = ORDERS[number % len(ORDERS)]
        for clip in (Clip.load(paths[i]) for i in order):
            parts += [clip.samples, np.zeros(round(GAP_S * clip.rate), np.float32)]
            spans.append((start_s, start_s + clip.duration))
            start_s += (parts[-1].size + parts[-2].size) / clip.rate
        yield Clip(samples=np.concatenate(parts), rate=clip.rate), spans, name, tuple(i + 1 for i in order)


def summary(rendered: Sequence[Syllable], examples: Sequence[Syllable]) -> dict[str, Any]:
    """Compute accuracy, confusion matrix and mean contours."""
    classified = classify_tones(rendered, examples)
    pairs = [(item.tone, tone) for item, tone in zip(rendered, classified, strict=True)]
    right = sum(tone == result for tone, result in pairs)
    return {
        "right": round(right / len(rendered), 3),
        "right_with_pitch": round(right / max(1, sum(bool(item.contour) for item in rendered)), 3),
        "syllables": len(rendered),
        "without_pitch": sum(not item.contour for item in rendered),
        "heard_as": {tone: {str(result): pairs.count((tone, result)) for result in TONES} for tone in TONES},
        "contours": {
            tone: [
                round(float(v), 1)
                for v in np.mean([s.semitones for s in rendered if s.tone == tone and s.contour], axis=0)
            ]
            for tone in TONES
            if any(s.tone == tone and s.contour for s in rendered)
        },
    }


def draw(items_by_name: dict[str, list[Syllable]], path: Path) -> None:
    """Plot the mean contour of each tone, one panel per system."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(
        1, len(items_by_name), figsize=(3.4 * len(items_by_name), 3), sharey=True, squeeze=False
    )
    for axis, (name, rendered) in zip(axes[0], items_by_name.items(), strict=True):
        for tone in TONES:
            contours = np.array([s.semitones for s in rendered if s.tone == tone and s.contour])
            if contours.size:
                mean, sd = contours.mean(axis=0), contours.std(axis=0)
                axis.plot(POINTS, mean, label=f"tone {tone}")
                axis.fill_between(POINTS, mean - sd, mean + sd, alpha=0.15)
        axis.set_title(name)
        axis.set_xlabel("relative position in the syllable")
    axes[0][0].set_ylabel("semitones relative to the median")
    axes[0][-1].legend()
    figure.tight_layout()
    figure.savefig(path, dpi=110)


def render_syllables(name: str, seeds: int, recordings: Path | None) -> Iterator[Syllable]:
    """Yield every syllable of a system."""
    if name == "real":
        if recordings is None:
            raise SystemExit("real requires --recordings, the folder of gcin-voice's syllables")
        for arguments in load_recordings(recordings):
            yield from syllables(*arguments)
        return
    kind = name.removeprefix("old:")
    taught = kind in ("teacher", "codec")
    for base, text, tones in texts():
        for speaker in teaching.training("plan").MANDARIN if taught else ():
            clip, spans = teacher(text, speaker)
            if kind == "codec":
                variable = systems.OLD if name != kind else systems.WEIGHTS
                samples, rate = systems.through_codec(clip.samples, clip.rate, variable)
                clip = Clip(samples=samples, rate=rate)
            yield from syllables(clip, spans, base, tones)
        for seed in () if taught else range(seeds):
            clip, spans = voice(name, text, seed)
            yield from (
                syllables(clip, spans, base, tones) if len(spans) == 4 else [Syllable(base, tone) for tone in tones]
            )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--systems", default=",".join(SYSTEMS), help=f"comma-separated: {', '.join(SYSTEMS)}, real, voice:PRESET, old:…"
    )
    parser.add_argument("--seeds", type=int, default=2, help="takes per text")
    parser.add_argument(
        "--recordings", type=Path, metavar="FOLDER", help="folder of gcin-voice's syllables, for `real`"
    )
    parser.add_argument("--picture", type=Path, help="plot the mean contours to this PNG file")
    systems.add_options(parser)
    systems.add_old(parser)
    options = parser.parse_args()
    systems.use(options)
    began = time.perf_counter()
    names = options.systems.split(",")
    all_names = dict.fromkeys([*names, *(["teacher"] if set(names) - {"real"} else [])])
    rendered_by_name = {name: list(render_syllables(name, options.seeds, options.recordings)) for name in all_names}
    figures = {
        name: summary(rendered_by_name[name], rendered_by_name["real" if name == "real" else "teacher"])
        for name in names
    }
    for name, row in figures.items():
        print(f"{name}: {row['right']:.1%} of {row['syllables']} syllables are identified", flush=True)
    if options.picture:
        draw({name: rendered_by_name[name] for name in names}, options.picture)
    report(
        {
            "figure": "classification of Mandarin tones by F0",
            "points": POINTS,
            "systems": figures,
            "took_s": round(time.perf_counter() - began, 1),
            "machine": machine(),
        }
    )


if __name__ == "__main__":
    main()
