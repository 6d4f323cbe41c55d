"""Word error of the voice, its codec and its teachers side by side on sentences kept out of training.

    python bench/voice.py
    python bench/voice.py --systems rms,voice --sentences 60 --jobs 2
    python bench/voice.py --full --jobs 2          every preset, other programs, and a thousand takes that may run away
    python bench/voice.py --full --heard heard.json     the same, going on where it was cut off

Every rate comes with its 95 % interval over sentences, and every system with the ratio of its rate to its teacher's on the
same sentences, by a paired bootstrap. `beside` names that teacher: of a preset its own, warped as it was in training, of all
others the default one. `length` compares durations with the teacher's, sentence by sentence: far off means that a sentence
ran away or was cut short. `presets` is the mean over all presets beside that over their teachers, and over those at home in
English: the recognizer hardly understands the formant synthesizer that taught the others. `takes` counts, over the sentences
with one seed after the other, lengths out of bounds and silences of more than `LONGEST_SILENCE` seconds.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from importlib.util import find_spec
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import judges
import numpy as np
import stats
import systems
from machine import machine, report
from recognise import Recognition, score_system, scores

SHORTEST, LONGEST = 0.6, 1.7
"""A sentence outside these times its teacher's length has run away or come out empty."""
LONGEST_SILENCE, _FAINT = 0.8, 0.003
"""Seconds inside a sentence, below this amplitude."""


def lengths(ours: Sequence[Recognition], teacher: Sequence[Recognition]) -> dict[str, Any]:
    """Return how the durations compare with the teacher's: extremes, median, and how many are out of bounds."""
    ratios = sorted(a.seconds / b.seconds for a, b in zip(ours, teacher, strict=True))
    return {
        "min": round(ratios[0], 3),
        "median": round(ratios[len(ratios) // 2], 3),
        "max": round(ratios[-1], 3),
        "outside": sum(not SHORTEST <= ratio <= LONGEST for ratio in ratios),
    }


def summary(found: dict[str, list[Recognition]], teacher: str) -> dict[str, Any]:
    """Return the figures of every system; all but teachers beside the preset's own teacher, or else `teacher`."""
    out: dict[str, Any] = {}
    for name, results in found.items():
        beside = systems.taught_by(name, teacher)
        compared = name != beside and not name.startswith("teacher:")
        base = found[beside][: len(results)]
        out[name] = {
            "wer": stats.rate_interval(scores(results)).rounded(),
            "beside": beside if compared else None,
            "ratio": stats.ratio(scores(results), scores(base)).rounded() if compared else None,
            "length": lengths(results, base) if compared else dict.fromkeys(("min", "median", "max", "outside")),
        }
    return out


def longest_silence(samples: np.ndarray[tuple[int], np.dtype[np.float32]], rate: int) -> float:
    """Return the seconds of the longest silence between sounds; infinity when there is no sound."""
    loud = np.flatnonzero(np.abs(samples) > _FAINT)
    return float(np.diff(loud).max(initial=0)) / rate if loud.size else float("inf")


def take(text: str, seed: int) -> tuple[float, float]:
    """Let the voice say `text` and return its length relative to the teacher's, and its longest silence, in seconds."""
    clip = systems.lab().speak(text, seed=seed)
    samples, rate = systems.teacher(systems.TEACHER, text)
    return clip.samples.size / clip.rate / (samples.size / rate), longest_silence(clip.samples, clip.rate)


def takes(texts: Sequence[str], count: int, jobs: int) -> dict[str, Any]:
    """Return how many of `count` takes ran away, came out short or fell silent; each round of the texts has its seed."""
    every = [texts[i % len(texts)] for i in range(count)]
    seeds = [i // len(texts) for i in range(count)]
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        found = list(pool.map(take, every, seeds, chunksize=8))
    return {
        "takes": count,
        "ran_away": sum(length > LONGEST for length, _ in found),
        "too_short": sum(length < SHORTEST for length, _ in found),
        "fell_silent": sum(silence > LONGEST_SILENCE for _, silence in found),
        "longest_silence_s": round(max(silence for _, silence in found), 3),
    }


def _together(found: dict[str, list[Recognition]], names: Sequence[str]) -> list[stats.Score]:
    """Sentence by sentence the errors of several systems, on the sentences that all of them said."""
    rows = zip(*(scores(found[name]) for name in names), strict=False)
    return [stats.Score(sum(s.errors for s in row), sum(s.words for s in row)) for row in rows]


def of_presets(found: dict[str, list[Recognition]], presets: Sequence[str]) -> dict[str, Any]:
    """Return the mean word error over presets, that over their teachers in the same sentences, and the ratio of the two."""
    ours = _together(found, presets)
    theirs = _together(found, [systems.taught_by(name) for name in presets])[: len(ours)]
    return {
        "count": len(presets),
        "wer": stats.rate_interval(ours).rounded(),
        "wer_of_teachers": stats.rate_interval(theirs).rounded(),
        "ratio": stats.ratio(ours, theirs).rounded(),
    }


class Heard:
    """What was heard, system by system, in a file if there is one: an hour's work goes on where it was cut off.

    The voice and its codec are known by their fingerprint, so that another voice is heard anew.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        known = json.loads(path.read_text(encoding="utf-8")) if path is not None and path.exists() else {}
        self._found = {name: [Recognition(**item) for item in items] for name, items in known.items()}

    def get(self, name: str, texts: Sequence[str], jobs: int) -> list[Recognition]:
        """What `name` said of the texts: as the file has it, or else listened to now and kept."""
        key = name
        if name in ("codec", "s1") or name.startswith("voice"):
            key = f"{name} {systems.lab().capabilities.fingerprint}"
        found = self._found.get(key, [])
        if [item.text for item in found] != list(texts):
            found = self._found[key] = score_system(name, texts, jobs)
            if self._path is not None:
                kept = {name: [asdict(item) for item in items] for name, items in self._found.items()}
                self._path.write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        return found


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--full", action="store_true", help="the small model, every preset, other programs, and a thousand takes"
    )
    parser.add_argument("--besides", type=int, help="sentences for what --full adds; default: as many as for the rest")
    parser.add_argument("--takes", type=int, default=1000, help="how many, with --full")
    parser.add_argument("--systems", default="rms,codec,voice", help=f"of {', '.join(systems.NAMES)}")
    parser.add_argument("--teacher", default=systems.TEACHER, help="the system that the others are compared with")
    parser.add_argument("--sentences", type=int, default=300)
    parser.add_argument("--jobs", type=int, default=1, help="processes that share the work")
    parser.add_argument(
        "--judges", action="store_true", help="also by Whisper base and DistillMOS: see bench/judges.py"
    )
    parser.add_argument(
        "--heard", type=Path, help="keep what was heard, sentence by sentence, and go on from there (JSON)"
    )
    systems.add_options(parser)
    options = parser.parse_args()
    systems.use(options)
    return options


def main() -> None:
    """Measure and print."""
    options = _options()
    texts = systems.sentences(options.sentences)
    asked = options.systems.split(",")
    names = list(
        dict.fromkeys([options.teacher, *asked, *(systems.taught_by(name, options.teacher) for name in asked)])
    )
    first, shorter = list(names), texts[: options.besides]
    if options.full:
        presets = [f"voice:{preset.id}" for preset in systems.lab().voices][1:]
        world = ("world",) if find_spec("pyworld") else ()
        taught = map(systems.taught_by, presets)
        more = ("s1", *presets, *systems.TEACHERS, *taught, *systems.OTHERS, *world)
        names = list(dict.fromkeys([*names, *more]))
    began, found, heard = time.perf_counter(), dict[str, list[Recognition]](), Heard(options.heard)
    for name in names:
        started = time.perf_counter()
        found[name] = heard.get(name, texts if name in first else shorter, options.jobs)
        rate = stats.rate(scores(found[name]))
        print(
            f"{name}: word error {rate:.3f} on {len(found[name])} sentences, {time.perf_counter() - started:.0f} s",
            flush=True,
        )
    besides: dict[str, Any] = {}
    if options.full:
        said = [name for name in found if name.startswith("voice")]
        besides = {
            "presets": of_presets(found, said),
            "presets_at_home_in_english": of_presets(
                found, [name for name in said if systems.at_home_in_english(name)]
            ),
            "takes": takes(texts, options.takes, options.jobs),
        }
    if options.judges:
        besides["judges"] = judges.table(names, texts, judges.Judges(older=False))
    report(
        {
            "figure": "word error on held-out sentences",
            "recognizer": "pocketsphinx en-us",
            "sentences": len(texts),
            "sentences_of_what_full_adds": len(shorter) if options.full else 0,
            "words": sum(item.words for item in found[options.teacher]),
            "teacher": options.teacher,
            "systems": summary(found, options.teacher),
            **besides,
            "took_s": round(time.perf_counter() - began, 1),
            "machine": machine(),
        }
    )


if __name__ == "__main__":
    main()
