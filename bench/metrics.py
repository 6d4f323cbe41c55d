"""Speed of metrics: the basic ones on a thousand short takes, the slow ones in one and in several processes.

    python bench/metrics.py
    python bench/metrics.py --takes 10000 --slow 0
    python bench/metrics.py --takes 1000 --seconds 2.5 --slow 64 --jobs 2

Takes are speech of the embedded voice, trimmed and scaled so that all differ. "memory" measures clips; "collect_files",
"first_display" and "measure_files" are the steps from a folder of WAV files to a DataFrame, in one process. The slow metrics
are pitch (pyin), jitter and shimmer, and distances from a reference (MFCC, log-F0); their time includes the start of the
processes, some seconds, so that several processes pay off only on idle cores and from dozens of clips.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from typing import Any

import numpy as np
import systems
from machine import machine, report

from voicelab.clip import Clip
from voicelab.metrics import BASIC, measure
from voicelab.takes.collection import collect

SLOW_METRICS = (
    "f0_median",
    "f0_sd",
    "f0_range",
    "voiced_share",
    "jitter",
    "shimmer_rms",
    "mfcc_distance",
    "log_f0_rmse",
)
TEXT = "The birch canoe slid on the smooth planks. Glue the sheet to the dark blue background."


def takes(count: int, seconds: float) -> list[Clip]:
    """Create `count` different clips of `seconds` from a few renderings of the embedded voice."""
    lab = systems.lab()
    renderings = [lab.speak(TEXT, seed=seed, temperature=0.7) for seed in range(4)]
    rng = np.random.default_rng(0)
    clips = []
    for number in range(count):
        clip = renderings[number % len(renderings)]
        begin = float(rng.uniform(0.0, max(0.0, clip.duration - seconds)))
        section = clip.slice(begin, min(clip.duration, begin + seconds))
        clips.append(Clip(section.samples * np.float32(rng.uniform(0.5, 1.0)), section.rate))
    return clips


def basic(clips: list[Clip]) -> dict[str, Any]:
    """Time the basic metrics: of clips in memory, and of a table collected from files, up to its first display."""
    measure(clips[:2], text=TEXT)  # imports
    started = time.perf_counter()
    frame = measure(clips, text=TEXT)
    memory = time.perf_counter() - started
    with tempfile.TemporaryDirectory() as folder:
        for number, clip in enumerate(clips):
            clip.save(f"{folder}/{number:05d}.wav")
        times = [time.perf_counter()]
        table = collect({"files": folder}, metrics=BASIC)
        times.append(time.perf_counter())
        table._repr_mimebundle_()
        times.append(time.perf_counter())
        rows = len(table.frame())
        times.append(time.perf_counter())
    collecting, display, measuring = np.diff(times).round(3).tolist()
    return {
        "metrics": list(BASIC),
        "memory_s": round(memory, 3),
        "collect_files_s": collecting,
        "first_display_s": display,
        "measure_files_s": measuring,
        "defined": round(float(frame.notna().to_numpy().mean()), 3),
        "rows": rows,
    }


def slow(clips: list[Clip], jobs: int) -> dict[str, Any]:
    """Time the slow metrics in one process and in `jobs` processes, including their start."""
    measure(clips[:2], SLOW_METRICS, reference=clips[0])  # warm-up: imports
    figures: dict[str, Any] = {"metrics": list(SLOW_METRICS), "clips": len(clips)}
    for count in (1, jobs):
        started = time.perf_counter()
        measure(clips, SLOW_METRICS, reference=clips[0], jobs=count)
        figures[f"jobs_{count}_s"] = round(time.perf_counter() - started, 2)
    figures["gain"] = round(figures["jobs_1_s"] / figures[f"jobs_{jobs}_s"], 2)
    return figures


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--takes", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=2.5, help="duration of a take")
    parser.add_argument("--slow", type=int, default=64, help="clips for the slow metrics; 0 to skip")
    parser.add_argument("--jobs", type=int, default=2)
    systems.add_options(parser)
    options = parser.parse_args()
    systems.use(options)
    clips = takes(options.takes, options.seconds)
    figures: dict[str, Any] = {"figure": "metrics", "takes": len(clips), "seconds_each": options.seconds}
    figures["rate"] = clips[0].rate
    figures["basic"] = basic(clips)
    if options.slow:
        figures["slow"] = slow(clips[: options.slow], options.jobs)
    report({**figures, "machine": machine()})


if __name__ == "__main__":
    main()
