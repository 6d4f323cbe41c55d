"""The voice beside its teacher, the teacher through the codec, older weights and other programs, on sentences kept out of
training: words by Whisper base, opinions by DistillMOS and DNSMOS, likeness to the teacher by Resemblyzer.

    python bench/voice.py --sentences 20                           teacher, codec, default preset, small model
    python bench/voice.py --systems kokoro:af_kore,voice:clara --sentences 60
    python bench/voice.py --full --jobs 2 --keep build/verdicts.jsonl
    python bench/voice.py --full --jobs 2 --keep build/verdicts.jsonl --against build/old/weights

`--full` adds, on fewer sentences, the presets that `--systems` does not name, flite, every teacher, other voices of the
teacher and Mandarin presets, and a thousand takes; `--keep` goes on where it was cut off, and `--against` adds older
weights to the table, with `--full` their presets. All means and rates have their 95 % interval over sentences. `behind` is
by how much DistillMOS puts a system below the preset's own teacher in the same sentences; below that of the default preset
for what has none here. `likeness` is the cosine to the teacher who says other sentences, `likeness_others` that to the
other presets' teachers, `nearest` how often one's own is the nearest. `length` compares the seconds from the first sound to
the last with the teacher's: `outside` counts sentences that ran away or came out short. `takes` counts over the sentences,
with one seed after the other at temperature .7, lengths out of bounds, words that were not said, and silences of more than
`LONGEST_SILENCE` seconds.
The judges need environments of their own: training/ears.py, training/README.md.
"""

from __future__ import annotations

import argparse
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import judges
import numpy as np
import stats
import systems
import teaching
from judges import Verdict, Verdicts
from machine import machine, report

SHORTEST, LONGEST = 0.6, 1.7
"""A sentence outside these times its teacher's length has run away or come out short."""
LONGEST_SILENCE = 0.8
"""Seconds inside a sentence."""
FLITE = ("flite:rms", "flite:slt")
MORE = ("kokoro:af_heart", "kokoro:bm_george", "kokoro:am_fenrir")
"""Voices of the teacher that are no preset's."""
GOALS = {"default": (4.3, 0.035), "presets": (4.2, 0.05)}
"""DistillMOS at least, word errors by Whisper at most: of the default preset, and of every one at home in English."""
TEMPERATURE = 0.7


def teacher_of(name: str) -> str:
    """Return the system that `name` is compared with."""
    voice = systems.taught_by(name)
    return f"kokoro:{voice or systems.taught_by('voice')}"


def at_home(preset: str) -> bool:
    """Whether the teacher of a preset speaks English."""
    return not teacher_of(preset).startswith("kokoro:z")


def likeness(said: Sequence[Verdict], voice: str | None) -> dict[str, Any]:
    """Return how like the teacher's voice `voice` a system is; nothing where that is no preset's."""
    if voice not in said[0].likeness:
        return dict.fromkeys(("likeness", "likeness_others", "nearest"))
    own = np.array([v.likeness[voice] for v in said])
    others = np.array([[cosine for other, cosine in v.likeness.items() if other != voice] for v in said])
    return {
        "likeness": stats.mean_interval(own).rounded(),
        "likeness_others": round(float(others.mean()), 3),
        "nearest": round(float(np.mean(own > others.max(1))), 3),
    }


def figures(name: str, said: Sequence[Verdict], teacher: Sequence[Verdict]) -> dict[str, Any]:
    """Return a system's row; `teacher` said the same sentences, or the first of them."""

    def errors(heard: Sequence[str | None]) -> dict[str, float] | None:
        counted = [judges.errors(v.text, words) for v, words in zip(said, heard, strict=True) if words is not None]
        return stats.rate_interval(counted).rounded() if counted else None

    opinions = np.array([v.distillmos for v in said])
    older = np.array([v.dnsmos for v in said if v.dnsmos is not None])
    beside = said[: len(teacher)]
    behind = np.array([other.distillmos - own.distillmos for own, other in zip(beside, teacher, strict=True)])
    ratios = sorted(own.seconds / other.seconds for own, other in zip(beside, teacher, strict=True))
    return {
        "sentences": len(said),
        "whisper": errors([v.whisper for v in said]),
        "distillmos": stats.mean_interval(opinions).rounded(),
        "behind": stats.mean_interval(behind).rounded(),
        "dnsmos": stats.mean_interval(older).rounded() if len(older) else None,
        "pocketsphinx": errors([v.pocketsphinx for v in said]),
        **likeness(said, systems.taught_by(name)),
        "length": {
            "min": round(ratios[0], 3),
            "median": round(ratios[len(ratios) // 2], 3),
            "max": round(ratios[-1], 3),
            "outside": sum(not SHORTEST <= ratio <= LONGEST for ratio in ratios),
        },
    }


def table(names: Mapping[str, Sequence[str]], verdicts: Verdicts) -> dict[str, dict[str, Any]]:
    """Return the row of every system, on the texts that are its own, and print a line of each."""
    rows: dict[str, dict[str, Any]] = {}
    for name, texts in names.items():
        teacher = teacher_of(name)
        taught = names.get(teacher, texts)[: len(texts)]
        row = rows[name] = figures(name, verdicts.of(name, texts), verdicts.of(teacher, taught))
        shown = {what: v["value"] for what, v in row.items() if isinstance(v, dict) and "value" in v}
        print(f"{name}: " + "  ".join(f"{what} {value:.3f}" for what, value in shown.items()), flush=True)
    return rows


def take(text: str, seed: int) -> tuple[float, float, int]:
    """Let the voice say `text`: its length relative to the teacher's, its longest silence in seconds, and its words."""
    clip = systems.lab().speak(text, seed=seed, temperature=TEMPERATURE)
    seconds, silence = judges.sounding(judges.levelled(clip.samples), clip.rate)
    teacher, rate = systems.speak(teacher_of("voice"), text)
    return seconds / judges.sounding(judges.levelled(teacher), rate)[0], silence, len(clip.words)


def takes(texts: Sequence[str], count: int, jobs: int) -> dict[str, Any]:
    """Return how many of `count` takes ran away, came out short, lost words or fell silent; each round has its seed."""
    every = [texts[i % len(texts)] for i in range(count)]
    seeds = [i // len(texts) for i in range(count)]
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        said = list(pool.map(take, every, seeds, chunksize=8))
    words: dict[str, int] = defaultdict(int)
    for text, (_, _, number) in zip(every, said, strict=True):
        words[text] = max(words[text], number)
    return {
        "takes": count,
        "ran_away": sum(length > LONGEST for length, _, _ in said),
        "too_short": sum(length < SHORTEST for length, _, _ in said),
        "lost_words": sum(number < words[text] for text, (_, _, number) in zip(every, said, strict=True)),
        "fell_silent": sum(silence > LONGEST_SILENCE for _, silence, _ in said),
        "longest_silence_s": round(max(silence for _, silence, _ in said), 3),
    }


def goals(rows: Mapping[str, Mapping[str, Any]], counted: Mapping[str, int] | None) -> list[dict[str, Any]]:
    """Return what was aimed at, what came of it, and whether it is reached; of what was measured."""
    aims: list[tuple[str, float, float]] = []
    english = [name for name in map("voice:{}".format, teaching.teachers()) if at_home(name)]
    for what, names in (("default", ["voice"]), ("presets", ["voice", *english])):
        there = [rows[name] for name in names if name in rows]
        if len(there) >= len(names) - 1 and there:  # the default preset has no row by its own name
            opinion, wrong = GOALS[what]
            said = "default preset" if what == "default" else "every preset at home in English"
            aims.append((f"{said}: DistillMOS, at least", min(row["distillmos"]["value"] for row in there), opinion))
            aims.append((f"{said}: word errors, at most", max(row["whisper"]["value"] for row in there), wrong))
    if counted is not None:
        failed = sum(counted[name] for name in ("ran_away", "too_short", "lost_words", "fell_silent"))
        aims.append((f"of {counted['takes']} takes failed, at most", failed, 0))
    return [
        {"figure": f, "value": v, "goal": g, "met": v >= g if f.endswith("at least") else v <= g} for f, v, g in aims
    ]


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--systems", help=f"of {', '.join(systems.NAMES)}; default: teacher, codec, voice, s1")
    parser.add_argument("--full", action="store_true", help="also every preset, other programs, and a thousand takes")
    parser.add_argument("--texts", type=Path, help="sentences in place of the held-out ones, one a line")
    parser.add_argument("--sentences", type=int, default=300)
    parser.add_argument(
        "--besides", type=int, default=60, help="for English presets that --full adds; a fifth for the rest"
    )
    parser.add_argument("--takes", type=int, default=1000, help="how many, with --full")
    parser.add_argument("--jobs", type=int, default=1, help="processes that share the work, 2 GiB each")
    parser.add_argument("--keep", type=Path, help="keep the verdicts here and go on from there (lines of JSON)")
    parser.add_argument(
        "--older", type=int, help="about how many sentences DNSMOS and pocketsphinx are asked too; default: all"
    )
    systems.add_options(parser)
    systems.add_old(parser)
    options = parser.parse_args()
    systems.use(options)
    return options


def main() -> None:
    """Measure and print."""
    options, began = _options(), time.perf_counter()
    texts = systems.sentences(options.sentences, path=options.texts)
    fewer = texts[: options.besides]
    asked = options.systems.split(",") if options.systems else [teacher_of("voice"), "codec", "voice", "s1"]
    if options.against:
        asked += ["old:codec", "old:voice", "old:s1"]
    names = dict.fromkeys(asked, texts)
    if options.full:
        presets = [f"voice:{preset.id}" for preset in systems.lab().voices][1:]
        english = [name for name in presets if at_home(name)]
        if options.against:
            english += [f"old:{name}" for name in english]
        rest = (*FLITE, *presets, *[teacher_of(name) for name in presets], *MORE)
        for name in (*english, *rest):
            names.setdefault(name, fewer if name in english else fewer[: max(1, options.besides // 5)])
    rows = table(names, Verdicts(options.keep, older=options.older, jobs=options.jobs))
    counted = takes(texts, options.takes, options.jobs) if options.full else None
    report(
        {
            "figure": "the voice beside its teacher and others",
            "judges": "Whisper base, beam 5; DistillMOS 0.9.1; DNSMOS P.835; pocketsphinx en-us; Resemblyzer 0.1.4",
            "sentences": len(texts),
            "goals": goals(rows, counted),
            "systems": rows,
            **({"takes": counted} if counted else {}),
            "took_s": round(time.perf_counter() - began, 1),
            "machine": machine(),
        }
    )


if __name__ == "__main__":
    main()
