"""Speed of the embedded voice: real-time factor, time to first audio by latency mode, throughput of eight streams compared
with one, load time, and memory above torch, for each model of the checkpoint, with goals.

    python bench/speed.py
    python bench/speed.py --repeats 20 --device cuda
    python bench/speed.py --against build/old/weights         compare with older weights, interleaved

Warm figures are from one process after one warm-up call; cold ones from new processes, from their start to the first audio,
including interpreter, imports and loading. Processes run one at a time. With `--against`, both checkpoints are loaded in one
process and alternate sentence by sentence, so that other load affects both equally; `over_old` is the ratio to the older
weights, median over the turns (faster: times below 1, throughput above 1). Memory is that of a process with one checkpoint
after one stream and after eight concurrent streams.
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
"""Goals on two cores."""
FIRST_AUDIO_S: dict[Latency, float] = {"low": 0.15, "balanced": 0.3, "normal": 0.7}
THROUGHPUT_RATIO, LOAD_S, MEMORY_MIB = 2.5, 1.0, 700.0
SENTENCE = "The birch canoe slid on the smooth planks, and the salt breeze came across from the sea."
PASSAGE = (
    "The birch canoe slid on the smooth planks. Glue the sheet to the dark blue background. It is easy to tell "
    "the depth of a well. These days a chicken leg is a rare dish. Rice is often served in round bowls. The juice "
    "of lemons makes fine punch. The box was thrown beside the parked truck. The hogs were fed chopped corn and "
    "garbage. Four hours of steady work faced us. A large size in stockings is hard to sell."
)
"""Harvard sentences, list 1 (IEEE, 1969)."""


def summarize(values: Sequence[float]) -> dict[str, float]:
    """Compute median and 95th percentile."""
    return {
        "median": round(float(np.median(values)), 4),
        "p95": round(float(np.quantile(values, 0.95)), 4),
        "repeats": len(values),
    }


def current_mib() -> float:
    """Return the resident memory of this process in MiB; its peak where /proc is missing."""
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    except OSError:
        return peak_mib()
    return round(pages * resource.getpagesize() / (1024 * 1024), 1)


def peak_mib() -> float:
    """Return the peak resident memory of this process in MiB."""
    max_rss = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return round(max_rss / (1024 * 1024 if sys.platform == "darwin" else 1024), 1)


def timed(lab: Lab, model: str, mode: Latency, seed: int) -> tuple[float, float]:
    """Measure time to first audio in seconds, and real-time factor, of a sentence."""
    started = time.perf_counter()
    stream = lab.stream(SENTENCE, seed=seed, model=model, latency=mode, format="pcm")
    size = sum(len(chunk) for chunk in stream)
    took = time.perf_counter() - started
    return stream.first_audio_s or float("nan"), took / (size / 2 / stream.rate)


@dataclass
class Turns:
    """Measurements of one checkpoint by turn."""

    first_audio_s: dict[Latency, list[float]] = field(default_factory=lambda: {mode: [] for mode in MODES})
    """Time to first audio by latency mode."""
    factor: dict[Latency, list[float]] = field(default_factory=lambda: {mode: [] for mode in MODES})
    """Real-time factors of a sentence by latency mode."""
    passage: list[float] = field(default_factory=list)
    """Real-time factors of a passage."""
    single: list[float] = field(default_factory=list)
    """Throughput of one stream, in seconds of audio per second."""
    concurrent: list[float] = field(default_factory=list)
    """Throughput of `STREAMS` concurrent streams."""

    def figures(self) -> dict[str, Any]:
        """Summarize by medians and 95th percentiles."""
        return {
            "first_audio_s": {mode: summarize(values) for mode, values in self.first_audio_s.items()},
            "rtf_sentence": {mode: summarize(values) for mode, values in self.factor.items()},
            "rtf_passage": round(float(np.median(self.passage)), 4),
            "throughput": {
                "one_stream": summarize(self.single),
                f"streams_{STREAMS}": summarize(self.concurrent),
                "ratio": summarize(
                    [concurrent / single for single, concurrent in zip(self.single, self.concurrent, strict=True)]
                ),
            },
        }

    def over(self, old: Turns) -> dict[str, float]:
        """Compute the ratio of each figure to the older weights, median over the turns."""
        pairs = {f"first audio {mode}": (self.first_audio_s[mode], old.first_audio_s[mode]) for mode in MODES}
        pairs |= {f"real-time factor {mode}": (self.factor[mode], old.factor[mode]) for mode in MODES}
        pairs |= {"one stream": (self.single, old.single), f"{STREAMS} streams": (self.concurrent, old.concurrent)}
        return {name: round(float(np.median(np.divide(*values))), 3) for name, values in pairs.items()}


def one_model(labs: Sequence[Lab], model: str, repeats: int) -> list[Turns]:
    """Measure one model of each checkpoint; checkpoints alternate, so that other load affects all equally."""
    results = [Turns() for _ in labs]
    for lab in labs:
        lab.speak("Ready.", seed=0, model=model)
    for seed in range(repeats):
        for mode in MODES:
            for lab, turns in zip(labs, results, strict=True):
                first_audio_s, factor = timed(lab, model, mode, seed)
                turns.first_audio_s[mode].append(first_audio_s)
                turns.factor[mode].append(factor)
    with ThreadPoolExecutor(STREAMS) as pool:
        for turn in range(max(1, repeats // 4)):
            for lab, turns in zip(labs, results, strict=True):
                turns.single.append(throughput(lab, model, turn, 1, pool))
                turns.passage.append(1 / turns.single[-1])
                turns.concurrent.append(throughput(lab, model, turn, STREAMS, pool))
    return results


def throughput(lab: Lab, model: str, turn: int, streams: int, pool: Executor) -> float:
    """Measure the throughput of concurrent streams in seconds of audio per second."""

    def audio_s(seed: int) -> float:
        return lab.speak(PASSAGE, seed=seed, model=model).duration

    started = time.perf_counter()
    seconds = sum(pool.map(audio_s, range(turn * STREAMS, turn * STREAMS + streams)))
    return seconds / (time.perf_counter() - started)


def _models(lab: Lab) -> tuple[str, ...]:
    return ("s2-pro",) if lab.capabilities.one_model else lab.capabilities.models


def warm(device: str | None, repeats: int) -> dict[str, Any]:
    """Measure in this process, alternating with the older weights if given."""
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
    """Measure memory after one and after eight concurrent streams of each model."""
    import torch

    torch.ones(64, 64) @ torch.ones(64, 64)
    bare = current_mib()
    lab = systems.lab(device, variable)
    with ThreadPoolExecutor(STREAMS) as pool:
        for model in _models(lab):
            for streams in (1, STREAMS):
                throughput(lab, model, 0, streams, pool)
    return {"memory_above_torch_mib": round(peak_mib() - bare, 1), "torch_mib": bare, "peak_mib": peak_mib()}


def goals(figures_by_key: dict[str, Any], load_s: float) -> list[dict[str, Any]]:
    """Return goals on two cores, measured values, and whether the goals are met."""
    aims: list[tuple[str, float, float]] = []
    for name, figures in figures_by_key["models"].items():
        worst = max(value["median"] for value in figures["rtf_sentence"].values())
        aims.append((f"{name}: real-time factor, at most", worst, RTF[name]))
        for mode, limit_s in FIRST_AUDIO_S.items():
            aims.append((f"{name}: first audio {mode}, s, at most", figures["first_audio_s"][mode]["median"], limit_s))
        ratio = figures["throughput"]["ratio"]["median"]
        aims.append((f"{name}: {STREAMS} streams against one, at least", ratio, THROUGHPUT_RATIO))
    aims += [
        ("model load, s, at most", load_s, LOAD_S),
        ("memory above torch, MiB, at most", figures_by_key["memory_above_torch_mib"], MEMORY_MIB),
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


def cold(device: str | None, mode: Any) -> dict[str, float]:
    """Return the wall-clock times of imports, connection and first audio of a new process."""
    import voicelab.engine.local  # noqa: F401 - exclude imports from the load time

    begun = time.time()
    lab = systems.lab(device)
    ready = time.time()
    with lab.stream(SENTENCE, seed=0, latency=mode, format="pcm") as stream:
        next(stream)
        first_audio = time.time()
    lab.close()
    return {"libraries_s": begun, "connect_s": ready, "first_audio_s": first_audio}


def start(mode: str, device_arguments: Sequence[str]) -> dict[str, float]:
    """Start a new process; return the seconds until it is connected and until its first audio."""
    started = time.time()
    moments = child("--child", "cold", "--mode", mode, *device_arguments)
    return {name: moment - started for name, moment in moments.items()}


def child(*arguments: str) -> dict[str, Any]:
    """Run this file in a new process and return the JSON of its last line."""
    run = subprocess.run([sys.executable, __file__, *arguments], capture_output=True, text=True, check=False)
    if run.returncode:
        raise SystemExit(f"{' '.join(arguments)} failed:\n{run.stderr}")
    figures: dict[str, Any] = json.loads(run.stdout.strip().splitlines()[-1])
    return figures


def main() -> None:
    """Measure in child processes and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", help="device of the voice; automatic by default")
    parser.add_argument("--repeats", type=int, default=12)
    parser.add_argument("--cold", type=int, default=3, help="new processes per latency mode")
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
    device_arguments = ["--device", options.device] if options.device else []
    host = machine()
    measured = child("--child", "warm", "--repeats", str(options.repeats), *device_arguments)
    measured |= child("--child", "memory", *device_arguments)
    if options.against:
        measured["old_peak_mib"] = child("--child", "old memory", *device_arguments)["peak_mib"]
    starts = {mode: [start(mode, device_arguments) for _ in range(options.cold)] for mode in MODES}
    all_starts = [s for runs in starts.values() for s in runs]
    load = summarize([s["connect_s"] - s["libraries_s"] for s in all_starts])
    report(
        {
            "figure": "speed of the embedded voice",
            "goals": goals(measured, load["median"]),
            **measured,
            "model_load_s": load,
            "cold_first_audio_s": {
                mode: summarize([s["first_audio_s"] for s in runs]) for mode, runs in starts.items()
            },
            "cold_connect_s": summarize([s["connect_s"] for s in all_starts]),
            "machine": host,
        }
    )


if __name__ == "__main__":
    main()
