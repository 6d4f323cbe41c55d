"""Word error of the voice, its codec and its teachers side by side on sentences kept out of training.

    python bench/voice.py
    python bench/voice.py --systems rms,voice --sentences 60 --jobs 2

Every rate comes with its 95 % interval over sentences, and every system with the ratio of its rate to the
teacher's on the same sentences, by a paired bootstrap. `length` compares durations with the teacher's, sentence by
sentence: far off means that a sentence ran away or was cut short.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import stats
import systems
from machine import machine, report
from recognise import Recognition, score_system, scores

SHORTEST, LONGEST = 0.6, 1.7
"""A sentence outside these times its teacher's length has run away or come out empty."""


def lengths(ours: Sequence[Recognition], teacher: Sequence[Recognition]) -> dict[str, Any]:
    """Return how the durations compare with the teacher's: extremes, median, and how many are out of bounds."""
    ratios = sorted(a.seconds / b.seconds for a, b in zip(ours, teacher, strict=True))
    outside = [a.text for a, b in zip(ours, teacher, strict=True) if not SHORTEST <= a.seconds / b.seconds <= LONGEST]
    return {
        "min": round(ratios[0], 3),
        "median": round(ratios[len(ratios) // 2], 3),
        "max": round(ratios[-1], 3),
        "outside": len(outside),
        "outside_texts": outside[:5],
    }


def summary(found: dict[str, list[Recognition]], teacher: str) -> dict[str, Any]:
    """Return the figures of every system, the teacher's ratio and length being 1 by definition."""
    base = found[teacher]
    out: dict[str, Any] = {}
    for name, results in found.items():
        figures: dict[str, Any] = {"wer": stats.rate_interval(scores(results)).rounded()}
        if name != teacher:
            figures["ratio"] = stats.ratio(scores(results), scores(base)).rounded()
            figures["length"] = lengths(results, base)
        out[name] = figures
    return out


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--systems", default="rms,codec,voice", help=f"of {', '.join(systems.NAMES)}")
    parser.add_argument("--teacher", default=systems.TEACHER, help="the system that the others are compared with")
    parser.add_argument("--sentences", type=int, default=300)
    parser.add_argument("--jobs", type=int, default=1, help="processes that share the work")
    parser.add_argument("--out", type=Path, help="write what was heard, sentence by sentence, to this JSON file")
    systems.add_options(parser)
    options = parser.parse_args()
    systems.use(options)
    texts = systems.sentences(options.sentences)
    names = list(dict.fromkeys([options.teacher, *options.systems.split(",")]))
    began, found = time.perf_counter(), {}
    for name in names:
        started = time.perf_counter()
        found[name] = score_system(name, texts, options.jobs)
        rate = stats.rate(scores(found[name]))
        print(
            f"{name}: word error {rate:.3f} on {len(texts)} sentences, {time.perf_counter() - started:.0f} s",
            flush=True,
        )
    if options.out:
        heard = {name: [asdict(item) for item in results] for name, results in found.items()}
        options.out.write_text(json.dumps(heard, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    report(
        {
            "figure": "word error on held-out sentences",
            "recognizer": "pocketsphinx en-us",
            "sentences": len(texts),
            "words": sum(item.words for item in found[options.teacher]),
            "teacher": options.teacher,
            "systems": summary(found, options.teacher),
            "took_s": round(time.perf_counter() - began, 1),
            "machine": machine(),
        }
    )


if __name__ == "__main__":
    main()
