"""How fast the embedded voice is: real-time factor, time to first audio in each latency mode, eight streams at once
against one, time to load, memory above torch's own; for each model of the checkpoint, beside what was aimed at.

    python bench/speed.py
    python bench/speed.py --repeats 20 --device cuda
    python bench/speed.py --against build/old/weights         older weights beside it, in turns

Warm figures come from one process after one unmeasured call; cold ones from fresh processes, from their start to the
first audio: interpreter, imports and loading included. Each process is measured alone. With `--against` both checkpoints
lie in the one process and take turns, sentence by sentence, so that what else the machine does falls on both: `over_old` is
what each figure is of the older weights', the median over the turns (times: below 1 is faster; throughput: above 1 is).
Memory is that of a process with one checkpoint, which has spoken alone and in eight streams.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, field
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


@dataclass
class Turns:
    """What one checkpoint did, turn by turn."""

    first: dict[Latency, list[float]] = field(default_factory=lambda: {mode: [] for mode in MODES})
    """Seconds to the first audio."""
    factor: dict[Latency, list[float]] = field(default_factory=lambda: {mode: [] for mode in MODES})
    """Real-time factors of a sentence."""
    passage: list[float] = field(default_factory=list)
    """The same of a passage."""
    alone: list[float] = field(default_factory=list)
    """Seconds of audio a second, of one stream."""
    together: list[float] = field(default_factory=list)
    """The same of `STREAMS` at once."""

    def figures(self) -> dict[str, Any]:
        """Return medians and 95th percentiles."""
        return {
            "first_audio_s": {mode: spread(values) for mode, values in self.first.items()},
            "rtf_sentence": {mode: spread(values) for mode, values in self.factor.items()},
            "rtf_passage": round(float(np.median(self.passage)), 4),
            "throughput": {
                "one_stream": spread(self.alone),
                f"streams_{STREAMS}": spread(self.together),
                "ratio": spread([many / one for one, many in zip(self.alone, self.together, strict=True)]),
            },
        }

    def over(self, old: Turns) -> dict[str, float]:
        """Return each figure as a share of the older weights', the median over the turns."""
        pairs = {f"first audio {mode}": (self.first[mode], old.first[mode]) for mode in MODES}
        pairs |= {f"real-time factor {mode}": (self.factor[mode], old.factor[mode]) for mode in MODES}
        pairs |= {"one stream": (self.alone, old.alone), f"{STREAMS} streams": (self.together, old.together)}
        return {name: round(float(np.median(np.divide(*values))), 3) for name, values in pairs.items()}


def one_model(labs: Sequence[Lab], model: str, repeats: int) -> list[Turns]:
    """Measure one model of each checkpoint, alone on the machine; all take turns, so that what else it does falls on all."""
    every = [Turns() for _ in labs]
    for lab in labs:
        lab.speak("Ready.", seed=0, model=model)
    for seed in range(repeats):
        for mode in MODES:
            for lab, turns in zip(labs, every, strict=True):
                first, factor = timed(lab, model, mode, seed)
                turns.first[mode].append(first)
                turns.factor[mode].append(factor)
    with ThreadPoolExecutor(STREAMS) as pool:
        for turn in range(max(1, repeats // 4)):
            for lab, turns in zip(labs, every, strict=True):
                turns.alone.append(throughput(lab, model, turn, 1, pool))
                turns.passage.append(1 / turns.alone[-1])
                turns.together.append(throughput(lab, model, turn, STREAMS, pool))
    return every


def throughput(lab: Lab, model: str, turn: int, streams: int, pool: Executor) -> float:
    """Return the seconds of audio a second of so many streams at once."""

    def spoken(seed: int) -> float:
        return lab.speak(PASSAGE, seed=seed, model=model).duration

    started = time.perf_counter()
    seconds = sum(pool.map(spoken, range(turn * STREAMS, turn * STREAMS + streams)))
    return seconds / (time.perf_counter() - started)


def _models(lab: Lab) -> tuple[str, ...]:
    return ("s2-pro",) if lab.capabilities.one_model else lab.capabilities.models


def warm(device: str | None, repeats: int) -> dict[str, Any]:
    """Measure in this process, after one call that is thrown away; the older weights in turns, where there are any."""
    import torch

    labs = [systems.lab(device)]
    labs += [systems.lab(device, systems.OLD)] if systems.OLD in os.environ else []
    every = {model: one_model(labs, model, repeats) for model in _models(labs[0])}
    old: dict[str, Any] = {}
    if len(labs) > 1:
        old["old"] = {model: turns[1].figures() for model, turns in every.items()}
        old["over_old"] = {model: turns[0].over(turns[1]) for model, turns in every.items()}
    return {
        "models": {model: turns[0].figures() for model, turns in every.items()},
        **old,
        "one_model": labs[0].capabilities.one_model,
        "device": labs[0].capabilities.device,
        "threads": torch.get_num_threads(),
    }


def memory(device: str | None, variable: str) -> dict[str, float]:
    """Return what a process holds that has spoken with each model, alone and in eight streams."""
    import torch

    torch.ones(64, 64) @ torch.ones(64, 64)
    bare = held_mib()
    lab = systems.lab(device, variable)
    with ThreadPoolExecutor(STREAMS) as pool:
        for model in _models(lab):
            for streams in (1, STREAMS):
                throughput(lab, model, 0, streams, pool)
    return {"memory_above_torch_mib": round(peak_mib() - bare, 1), "torch_mib": bare, "peak_mib": peak_mib()}


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
    parser.add_argument("--child", choices=("warm", "cold", "memory", "old memory"), help=argparse.SUPPRESS)
    parser.add_argument("--mode", choices=MODES, default="low", help=argparse.SUPPRESS)
    systems.add_options(parser)
    systems.add_old(parser)
    options = parser.parse_args()
    systems.use(options)
    if options.child == "warm":
        report(warm(options.device, options.repeats))
        return
    if options.child == "cold":
        report(cold(options.device, options.mode))
        return
    if options.child:
        report(memory(options.device, systems.OLD if options.child == "old memory" else systems.WEIGHTS))
        return
    place = ["--device", options.device] if options.device else []
    host = machine()
    measured = child("--child", "warm", "--repeats", str(options.repeats), *place)
    measured |= child("--child", "memory", *place)
    if options.against:
        measured["old_peak_mib"] = child("--child", "old memory", *place)["peak_mib"]
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
            "machine": host,
        }
    )


if __name__ == "__main__":
    main()
