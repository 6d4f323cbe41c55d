"""Objective evaluation of the voice, its teacher, the teacher through the codec, older weights and other programs, on
held-out sentences: WER by Whisper base, predicted MOS by DistillMOS and DNSMOS, speaker similarity by Resemblyzer.

    python bench/voice.py --sentences 20                           teacher, codec, default preset, small model
    python bench/voice.py --systems kokoro:af_kore,voice:clara --sentences 60
    python bench/voice.py --full --jobs 2 --keep build/verdicts.jsonl
    python bench/voice.py --full --jobs 2 --keep build/verdicts.jsonl --against build/old/weights

`--full` adds, on fewer sentences, the other presets, flite, every teacher, other voices of the teacher, Mandarin presets, and
a thousand takes; `--keep` resumes an interrupted run, and `--against` adds older weights, with `--full` also their presets.
All means and rates have 95 % intervals over sentences. `behind` is the DistillMOS difference to the preset's teacher (else to
that of the default preset) in the same sentences. `likeness` is the cosine similarity to the teacher in other sentences,
`likeness_others` that to the other presets' teachers, `nearest` the top-1 identification rate. `length` is the duration
relative to the teacher; `outside` counts run-on and truncated sentences. `takes` counts failures over the sentences with
successive seeds at temperature 0.7: durations out of bounds, skipped words, and silences of more than `MAX_SILENCE_S`.
The evaluators need environments of their own: training/ears.py, training/README.md.
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

MIN_RATIO, MAX_RATIO = 0.6, 1.7
"""Bounds of the duration relative to the teacher; outside, a sentence is run-on or truncated."""
MAX_SILENCE_S = 0.8
"""Maximum silence inside a sentence."""
FLITE = ("flite:rms", "flite:slt")
MORE = ("kokoro:af_heart", "kokoro:bm_george", "kokoro:am_fenrir")
"""Voices of the teacher without a preset."""
GOALS = {"default": (4.3, 0.035), "presets": (4.2, 0.05)}
"""Minimum DistillMOS and maximum WER, of the default preset and of all English presets."""
TEMPERATURE = 0.7


def teacher_of(name: str) -> str:
    """Return the teacher system of `name`."""
    voice = systems.taught_by(name)
    return f"kokoro:{voice or systems.taught_by('voice')}"


def is_english(preset: str) -> bool:
    """Tell whether a preset is English."""
    return not teacher_of(preset).startswith("kokoro:z")


def speaker_similarity(verdicts: Sequence[Verdict], voice: str | None) -> dict[str, Any]:
    """Compute the speaker similarity to the teacher's voice `voice`; None values if it has no preset."""
    if voice not in verdicts[0].likeness:
        return dict.fromkeys(("likeness", "likeness_others", "nearest"))
    target = np.array([v.likeness[voice] for v in verdicts])
    distractors = np.array([[cosine for name, cosine in v.likeness.items() if name != voice] for v in verdicts])
    return {
        "likeness": stats.mean_interval(target).rounded(),
        "likeness_others": round(float(distractors.mean()), 3),
        "nearest": round(float(np.mean(target > distractors.max(1))), 3),
    }


def figures(name: str, verdicts: Sequence[Verdict], teacher: Sequence[Verdict]) -> dict[str, Any]:
    """Compute the row of a system; `teacher` has verdicts of the same sentences, or of the first ones."""

    def errors(transcripts: Sequence[str | None]) -> dict[str, float] | None:
        counted = [
            judges.errors(v.text, words) for v, words in zip(verdicts, transcripts, strict=True) if words is not None
        ]
        return stats.rate_interval(counted).rounded() if counted else None

    predicted_mos = np.array([v.distillmos for v in verdicts])
    older = np.array([v.dnsmos for v in verdicts if v.dnsmos is not None])
    paired = verdicts[: len(teacher)]
    behind = np.array(
        [reference.distillmos - verdict.distillmos for verdict, reference in zip(paired, teacher, strict=True)]
    )
    ratios = sorted(verdict.seconds / reference.seconds for verdict, reference in zip(paired, teacher, strict=True))
    return {
        "sentences": len(verdicts),
        "whisper": errors([v.whisper for v in verdicts]),
        "distillmos": stats.mean_interval(predicted_mos).rounded(),
        "behind": stats.mean_interval(behind).rounded(),
        "dnsmos": stats.mean_interval(older).rounded() if len(older) else None,
        "pocketsphinx": errors([v.pocketsphinx for v in verdicts]),
        **speaker_similarity(verdicts, systems.taught_by(name)),
        "length": {
            "min": round(ratios[0], 3),
            "median": round(ratios[len(ratios) // 2], 3),
            "max": round(ratios[-1], 3),
            "outside": sum(not MIN_RATIO <= ratio <= MAX_RATIO for ratio in ratios),
        },
    }


def table(names: Mapping[str, Sequence[str]], verdicts: Verdicts) -> dict[str, dict[str, Any]]:
    """Evaluate every system on its texts, printing one line per system."""
    rows: dict[str, dict[str, Any]] = {}
    for name, texts in names.items():
        teacher = teacher_of(name)
        taught = names.get(teacher, texts)[: len(texts)]
        row = rows[name] = figures(name, verdicts.of(name, texts), verdicts.of(teacher, taught))
        values = {key: v["value"] for key, v in row.items() if isinstance(v, dict) and "value" in v}
        print(f"{name}: " + "  ".join(f"{key} {value:.3f}" for key, value in values.items()), flush=True)
    return rows


def take(text: str, seed: int) -> tuple[float, float, int]:
    """Render a take; return its duration relative to the teacher, its longest silence in seconds, and its word count."""
    clip = systems.lab().speak(text, seed=seed, temperature=TEMPERATURE)
    seconds, silence = judges.sounding(judges.normalize_level(clip.samples), clip.rate)
    teacher, rate = systems.speak(teacher_of("voice"), text)
    return seconds / judges.sounding(judges.normalize_level(teacher), rate)[0], silence, len(clip.words)


def takes(texts: Sequence[str], count: int, jobs: int) -> dict[str, Any]:
    """Count run-on, truncated, word-skipping and silent takes among `count`; each round has its own seed."""
    take_texts = [texts[i % len(texts)] for i in range(count)]
    seeds = [i // len(texts) for i in range(count)]
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        results = list(pool.map(take, take_texts, seeds, chunksize=8))
    words: dict[str, int] = defaultdict(int)
    for text, (_, _, number) in zip(take_texts, results, strict=True):
        words[text] = max(words[text], number)
    return {
        "takes": count,
        "ran_away": sum(length > MAX_RATIO for length, _, _ in results),
        "too_short": sum(length < MIN_RATIO for length, _, _ in results),
        "lost_words": sum(number < words[text] for text, (_, _, number) in zip(take_texts, results, strict=True)),
        "fell_silent": sum(silence > MAX_SILENCE_S for _, silence, _ in results),
        "longest_silence_s": round(max(silence for _, silence, _ in results), 3),
    }


def goals(rows: Mapping[str, Mapping[str, Any]], counted: Mapping[str, int] | None) -> list[dict[str, Any]]:
    """Return goals, measured values, and whether the goals are met."""
    aims: list[tuple[str, float, float]] = []
    english = [name for name in map("voice:{}".format, teaching.teachers()) if is_english(name)]
    for group, names in (("default", ["voice"]), ("presets", ["voice", *english])):
        available = [rows[name] for name in names if name in rows]
        if len(available) >= len(names) - 1 and available:  # the default preset has no row by preset name
            min_mos, max_wer = GOALS[group]
            label = "default preset" if group == "default" else "every English preset"
            aims.append(
                (f"{label}: DistillMOS, at least", min(row["distillmos"]["value"] for row in available), min_mos)
            )
            aims.append((f"{label}: WER, at most", max(row["whisper"]["value"] for row in available), max_wer))
    if counted is not None:
        failed = sum(counted[name] for name in ("ran_away", "too_short", "lost_words", "fell_silent"))
        aims.append((f"of {counted['takes']} takes failed, at most", failed, 0))
    return [
        {"figure": f, "value": v, "goal": g, "met": v >= g if f.endswith("at least") else v <= g} for f, v, g in aims
    ]


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--systems", help=f"comma-separated: {', '.join(systems.NAMES)}; default: teacher, codec, voice, s1"
    )
    parser.add_argument("--full", action="store_true", help="add every preset, other programs, and a thousand takes")
    parser.add_argument("--texts", type=Path, help="file of sentences instead of the held-out ones, one per line")
    parser.add_argument("--sentences", type=int, default=300)
    parser.add_argument(
        "--besides",
        type=int,
        default=60,
        help="sentences for English presets added by --full; a fifth of it for others",
    )
    parser.add_argument("--takes", type=int, default=1000, help="number of takes, with --full")
    parser.add_argument("--jobs", type=int, default=1, help="number of processes, 2 GiB each")
    parser.add_argument("--keep", type=Path, help="JSON-lines file of verdicts, from which an interrupted run resumes")
    parser.add_argument(
        "--older", type=int, help="number of sentences also evaluated by DNSMOS and pocketsphinx; default: all"
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
    selected = options.systems.split(",") if options.systems else [teacher_of("voice"), "codec", "voice", "s1"]
    if options.against:
        selected += ["old:codec", "old:voice", "old:s1"]
    names = dict.fromkeys(selected, texts)
    if options.full:
        presets = [f"voice:{preset.id}" for preset in systems.lab().voices][1:]
        english = [name for name in presets if is_english(name)]
        if options.against:
            english += [f"old:{name}" for name in english]
        rest = (*FLITE, *presets, *[teacher_of(name) for name in presets], *MORE)
        for name in (*english, *rest):
            names.setdefault(name, fewer if name in english else fewer[: max(1, options.besides // 5)])
    rows = table(names, Verdicts(options.keep, older=options.older, jobs=options.jobs))
    counted = takes(texts, options.takes, options.jobs) if options.full else None
    report(
        {
            "figure": "the voice compared with its teacher and other voices",
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
