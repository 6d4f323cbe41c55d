"""How fast the embedded voice is: real-time factor, time to first audio in each latency mode, peak memory.

    python bench/speed.py
    python bench/speed.py --repeats 20 --device cuda

Warm figures come from one process after one unmeasured call; cold ones from fresh processes, from their start to the
first audio: interpreter, imports and loading included. Each process is measured alone.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import systems
from machine import machine, report

MODES = ("low", "balanced", "normal")
SENTENCE = "The birch canoe slid on the smooth planks, and the salt breeze came across from the sea."
PASSAGE = (
    "The birch canoe slid on the smooth planks. Glue the sheet to the dark blue background. It is easy to tell "
    "the depth of a well. These days a chicken leg is a rare dish. Rice is often served in round bowls. The juice "
    "of lemons makes fine punch. The box was thrown beside the parked truck. The hogs were fed chopped corn and "
    "garbage. Four hours of steady work faced us. A large size in stockings is hard to sell."
)
"""Harvard sentences, list 1 (IEEE, 1969)."""


def spread(values: Sequence[float]) -> dict[str, float]:
    """Return median and 95th percentile."""
    return {
        "median": round(float(np.median(values)), 4),
        "p95": round(float(np.quantile(values, 0.95)), 4),
        "repeats": len(values),
    }


def peak_mib() -> float:
    """Return the most memory this process has held so far, in MiB (resident set)."""
    held = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return round(held / (1024 * 1024 if sys.platform == "darwin" else 1024), 1)


def warm(device: str | None, repeats: int) -> dict[str, Any]:
    """Measure in this process, after one call that is thrown away."""
    lab = systems.lab(device)
    lab.speak("Ready.", seed=0)
    first: dict[str, list[float]] = {mode: [] for mode in MODES}
    factors: dict[str, list[float]] = {mode: [] for mode in MODES}
    # Modes take turns, so that what else the machine does falls on all of them.
    for seed in range(repeats):
        for mode in MODES:
            started = time.perf_counter()
            stream = lab.stream(SENTENCE, seed=seed, latency=mode, format="pcm")
            size = sum(len(chunk) for chunk in stream)
            took = time.perf_counter() - started
            first[mode].append(stream.first_audio_s or float("nan"))
            factors[mode].append(took / (size / 2 / stream.rate))
    started = time.perf_counter()
    clip = lab.speak(PASSAGE, seed=0)
    passage = (time.perf_counter() - started) / clip.duration
    return {
        "first_audio_s": {mode: spread(values) for mode, values in first.items()},
        "rtf_sentence": {mode: spread(values) for mode, values in factors.items()},
        "rtf_passage": round(passage, 4),
        "passage_s": round(clip.duration, 2),
        "peak_mib": peak_mib(),
        "device": lab.capabilities.device,
        "threads": sys.modules["torch"].get_num_threads() if "torch" in sys.modules else None,
    }


def cold(device: str | None, mode: str) -> dict[str, float]:
    """Tell when, on the clock of the day, a fresh process was connected and when its first audio came."""
    lab = systems.lab(device)
    ready = time.time()
    with lab.stream(SENTENCE, seed=0, latency=mode, format="pcm") as stream:
        next(stream)
        heard = time.time()
    lab.close()
    return {"connect_s": ready, "first_audio_s": heard}


def start(mode: str, place: Sequence[str]) -> dict[str, float]:
    """Start a fresh process and return the seconds from there to connected and to its first audio."""
    started = time.time()
    found = child("--child", "cold", "--mode", mode, *place)
    return {name: moment - started for name, moment in found.items()}


def child(*arguments: str) -> dict[str, Any]:
    """Run this file again in a process of its own and return the JSON that it printed last."""
    run = subprocess.run([sys.executable, __file__, *arguments], capture_output=True, text=True, check=False)
    if run.returncode:
        raise SystemExit(f"{' '.join(arguments)} failed:\n{run.stderr}")
    found: dict[str, Any] = json.loads(run.stdout.strip().splitlines()[-1])
    return found


def main() -> None:
    """Measure in child processes and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", help="where the voice runs; chosen by itself when not given")
    parser.add_argument("--repeats", type=int, default=12)
    parser.add_argument("--cold", type=int, default=3, help="fresh processes for each latency mode")
    parser.add_argument("--child", choices=("warm", "cold"), help=argparse.SUPPRESS)
    parser.add_argument("--mode", choices=MODES, default="low", help=argparse.SUPPRESS)
    systems.add_options(parser)
    options = parser.parse_args()
    systems.use(options)
    if options.child == "warm":
        report(warm(options.device, options.repeats))
        return
    if options.child == "cold":
        report(cold(options.device, options.mode))
        return
    place = ["--device", options.device] if options.device else []
    host = machine()
    measured = child("--child", "warm", "--repeats", str(options.repeats), *place)
    starts = {mode: [start(mode, place) for _ in range(options.cold)] for mode in MODES}
    report(
        {
            "figure": "speed of the embedded voice",
            **measured,
            "cold_first_audio_s": {mode: spread([s["first_audio_s"] for s in runs]) for mode, runs in starts.items()},
            "cold_connect_s": spread([s["connect_s"] for runs in starts.values() for s in runs]),
            "machine": host,
        }
    )


if __name__ == "__main__":
    main()
