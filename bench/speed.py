"""How fast the embedded voice is: real-time factor, time to first audio in each latency mode, eight streams at once
against one, time to load, memory above torch's own; for each model of the checkpoint, beside what was aimed at.

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
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import systems
from machine import machine, report

if TYPE_CHECKING:
    from voicelab.lab import Lab
    from voicelab.schema import Latency

MODES: tuple[Latency, ...] = ("low", "balanced", "normal")
STREAMS = 8
RTF = {"s1": 0.15, "s2-pro": 0.25}
"""The goals, on two cores."""
FIRST_AUDIO_S: dict[Latency, float] = {"low": 0.15, "balanced": 0.3, "normal": 0.7}
MANY_AGAINST_ONE, LOAD_S, MEMORY_MIB = 2.5, 1.0, 700.0
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


def held_mib() -> float:
    """Return the memory that this process holds now, in MiB; what it has held at most where the system does not tell."""
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    except OSError:
        return peak_mib()
    return round(pages * resource.getpagesize() / (1024 * 1024), 1)


def peak_mib() -> float:
    """Return the most memory this process has held so far, in MiB (resident set)."""
    held = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return round(held / (1024 * 1024 if sys.platform == "darwin" else 1024), 1)


def timed(lab: Lab, model: str, mode: Latency, seed: int) -> tuple[float, float]:
    """Return the seconds to the first audio of a sentence, and its real-time factor."""
    started = time.perf_counter()
    stream = lab.stream(SENTENCE, seed=seed, model=model, latency=mode, format="pcm")
    size = sum(len(chunk) for chunk in stream)
    took = time.perf_counter() - started
    return stream.first_audio_s or float("nan"), took / (size / 2 / stream.rate)


def one_model(lab: Lab, model: str, repeats: int) -> dict[str, Any]:
    """Measure one model, alone on the machine."""
    lab.speak("Ready.", seed=0, model=model)
    found: dict[Latency, list[tuple[float, float]]] = {mode: [] for mode in MODES}
    # Modes take turns, so that what else the machine does falls on all of them.
    for seed in range(repeats):
        for mode in MODES:
            found[mode].append(timed(lab, model, mode, seed))
    started = time.perf_counter()
    clip = lab.speak(PASSAGE, seed=0, model=model)
    passage = (time.perf_counter() - started) / clip.duration
    return {
        "first_audio_s": {mode: spread([first for first, _ in values]) for mode, values in found.items()},
        "rtf_sentence": {mode: spread([factor for _, factor in values]) for mode, values in found.items()},
        "rtf_passage": round(passage, 4),
        "passage_s": round(clip.duration, 2),
        "throughput": throughput(lab, model, max(3, repeats // 4)),
    }


def throughput(lab: Lab, model: str, repeats: int) -> dict[str, Any]:
    """Seconds of audio a second, of one stream and of `STREAMS` at once, in turns; and how many times as much that is."""

    def spoken(seed: int) -> float:
        return lab.speak(PASSAGE, seed=seed, model=model).duration

    alone: list[float] = []
    together: list[float] = []
    with ThreadPoolExecutor(STREAMS) as pool:
        for turn in range(repeats):
            for count, kept in ((1, alone), (STREAMS, together)):
                started = time.perf_counter()
                seconds = sum(pool.map(spoken, range(turn * STREAMS, turn * STREAMS + count)))
                kept.append(seconds / (time.perf_counter() - started))
    return {
        "one_stream": spread(alone),
        f"streams_{STREAMS}": spread(together),
        "ratio": spread([many / one for one, many in zip(alone, together, strict=True)]),
    }


def warm(device: str | None, repeats: int) -> dict[str, Any]:
    """Measure in this process, after one call that is thrown away."""
    import torch

    torch.ones(64, 64) @ torch.ones(64, 64)
    bare = held_mib()
    lab = systems.lab(device)
    can = lab.capabilities
    names: tuple[str, ...] = ("s2-pro",) if can.one_model else can.models
    return {
        "models": {name: one_model(lab, name, repeats) for name in names},
        "one_model": can.one_model,
        "memory_above_torch_mib": round(peak_mib() - bare, 1),
        "torch_mib": bare,
        "peak_mib": peak_mib(),
        "device": can.device,
        "threads": torch.get_num_threads(),
    }


def goals(found: dict[str, Any], load_s: float) -> list[dict[str, Any]]:
    """Return what was aimed at on two cores, what came of it, and whether it is reached."""
    aims: list[tuple[str, float, float]] = []
    for name, figures in found["models"].items():
        worst = max(value["median"] for value in figures["rtf_sentence"].values())
        aims.append((f"{name}: real-time factor, at most", worst, RTF[name]))
        for mode, most in FIRST_AUDIO_S.items():
            aims.append((f"{name}: first audio {mode}, s, at most", figures["first_audio_s"][mode]["median"], most))
        ratio = figures["throughput"]["ratio"]["median"]
        aims.append((f"{name}: {STREAMS} streams against one, at least", ratio, MANY_AGAINST_ONE))
    aims += [
        ("model load, s, at most", load_s, LOAD_S),
        ("memory above torch, MiB, at most", found["memory_above_torch_mib"], MEMORY_MIB),
    ]
    return [
        {
            "figure": figure,
            "value": value,
            "goal": goal,
            "met": value >= goal if "at least" in figure else value <= goal,
        }
        for figure, value, goal in aims
    ]


def cold(device: str | None, mode: str) -> dict[str, float]:
    """Tell when, on the clock of the day, a fresh process was connected and when its first audio came."""
    import voicelab.engine.local  # noqa: F401 - so that what follows is the model, not the libraries

    begun = time.time()
    lab = systems.lab(device)
    ready = time.time()
    with lab.stream(SENTENCE, seed=0, latency=mode, format="pcm") as stream:
        next(stream)
        heard = time.time()
    lab.close()
    return {"libraries_s": begun, "connect_s": ready, "first_audio_s": heard}


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
    every = [s for runs in starts.values() for s in runs]
    load = spread([s["connect_s"] - s["libraries_s"] for s in every])
    report(
        {
            "figure": "speed of the embedded voice",
            "goals": goals(measured, load["median"]),
            **measured,
            "model_load_s": load,
            "cold_first_audio_s": {mode: spread([s["first_audio_s"] for s in runs]) for mode, runs in starts.items()},
            "cold_connect_s": spread([s["connect_s"] for s in every]),
            "command": "python bench/speed.py",
            "date": time.strftime("%Y-%m-%d", time.gmtime()),
            "machine": host,
        }
    )


if __name__ == "__main__":
    main()
