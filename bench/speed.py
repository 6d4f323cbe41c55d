"""Speed of the embedded voice: real-time factor, time to first audio by latency mode, throughput of eight streams compared
with one, load time, and peak memory, for each model of the checkpoint, with goals.

    python bench/speed.py
    python bench/speed.py --repeats 20 --device cuda
    python bench/speed.py --against ../old                 compare with another checkout, in alternating processes

Warm figures are from processes that measure after a warm-up call; cold ones from new processes, from their start to the first
audio, including interpreter, imports and loading. Processes run one at a time. With `--against`, processes of both checkouts
alternate, so that other load affects both equally; `over_old` is the ratio to the other checkout, median over the turns
(faster: times below 1, throughput above 1). CPU time is that of all threads per second of audio, and the least of its turns:
other load affects it less than wall time. Memory is that of a process after one stream and after eight concurrent streams.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
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
TURN_SENTENCES = 3
"""Sentences of a turn by latency mode; a turn is a process."""
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


def peak_mib() -> float:
    """Return the peak resident memory of this process in MiB."""
    max_rss = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return round(max_rss / (1024 * 1024 if sys.platform == "darwin" else 1024), 1)


def timed(lab: Lab, model: str, mode: Latency, seed: int) -> tuple[float, float, float]:
    """Measure a sentence: time to first audio in seconds, and real-time factors of wall time and of CPU time."""
    started, cpu_started = time.perf_counter(), time.process_time()
    stream = lab.stream(SENTENCE, seed=seed, model=model, latency=mode, format="pcm")
    duration_s = sum(len(chunk) for chunk in stream) / 2 / stream.rate
    took, cpu = time.perf_counter() - started, time.process_time() - cpu_started
    return stream.first_audio_s or float("nan"), took / duration_s, cpu / duration_s


@dataclass
class Turns:
    """Measurements of one model by turn."""

    first_audio_s: dict[Latency, list[float]] = field(default_factory=lambda: {mode: [] for mode in MODES})
    """Time to first audio by latency mode."""
    factor: dict[Latency, list[float]] = field(default_factory=lambda: {mode: [] for mode in MODES})
    """Real-time factors of a sentence by latency mode."""
    cpu: dict[Latency, list[float]] = field(default_factory=lambda: {mode: [] for mode in MODES})
    """CPU time per second of audio of a sentence by latency mode."""
    throughput: dict[str, list[float]] = field(default_factory=lambda: {"1": [], str(STREAMS): []})
    """Seconds of audio per second, by number of concurrent streams."""
    stream_cpu: dict[str, list[float]] = field(default_factory=lambda: {"1": [], str(STREAMS): []})
    """CPU time per second of audio, by number of concurrent streams."""

    def add(self, turn: Turns) -> None:
        """Append the measurements of another turn."""
        for name, values in asdict(self).items():
            for key in values:
                getattr(self, name)[key] += getattr(turn, name)[key]

    def figures(self) -> dict[str, Any]:
        """Summarize by medians and 95th percentiles; CPU times by the least."""
        single, concurrent = self.throughput["1"], self.throughput[str(STREAMS)]
        return {
            "first_audio_s": {mode: summarize(values) for mode, values in self.first_audio_s.items()},
            "rtf_sentence": {mode: summarize(values) for mode, values in self.factor.items()},
            "rtf_passage": round(1 / float(np.median(single)), 4),
            "throughput": {
                "one_stream": summarize(single),
                f"streams_{STREAMS}": summarize(concurrent),
                "ratio": summarize([many / one for one, many in zip(single, concurrent, strict=True)]),
            },
            "cpu_sentence": {mode: round(min(values), 4) for mode, values in self.cpu.items()},
            "cpu_streams": {count: round(min(values), 4) for count, values in self.stream_cpu.items()},
        }

    def over(self, old: Turns) -> dict[str, float]:
        """Compute the ratio of each figure to another checkout: the median over the turns; of CPU time, the least."""
        pairs = {f"first audio {mode}": (self.first_audio_s[mode], old.first_audio_s[mode]) for mode in MODES}
        pairs |= {f"real-time factor {mode}": (self.factor[mode], old.factor[mode]) for mode in MODES}
        names = {"1": "one stream", str(STREAMS): f"{STREAMS} streams"}
        pairs |= {names[count]: (values, old.throughput[count]) for count, values in self.throughput.items()}
        ratios = {name: float(np.median(np.divide(*values))) for name, values in pairs.items()}
        cpu = {f"CPU time {mode}": (self.cpu[mode], old.cpu[mode]) for mode in MODES}
        cpu |= {
            f"CPU time {count} streams": (values, old.stream_cpu[count]) for count, values in self.stream_cpu.items()
        }
        ratios |= {name: min(new) / min(before) for name, (new, before) in cpu.items()}
        return {name: round(ratio, 3) for name, ratio in ratios.items()}


def turn_of(lab: Lab, model: str, number: int) -> Turns:
    """Measure one model once."""
    turn = Turns()
    lab.speak("Ready.", seed=0, model=model)
    for seed in range(number * TURN_SENTENCES, (number + 1) * TURN_SENTENCES):
        for mode in MODES:
            values = timed(lab, model, mode, seed)
            for by_mode, value in zip((turn.first_audio_s, turn.factor, turn.cpu), values, strict=True):
                by_mode[mode].append(value)
    with ThreadPoolExecutor(STREAMS) as pool:
        for count in turn.throughput:
            rate, cpu = throughput(lab, model, number, int(count), pool)
            turn.throughput[count].append(rate)
            turn.stream_cpu[count].append(cpu)
    return turn


def throughput(lab: Lab, model: str, turn: int, streams: int, pool: Executor) -> tuple[float, float]:
    """Measure concurrent streams: seconds of audio per second, and CPU time per second of audio."""

    def audio_s(seed: int) -> float:
        return lab.speak(PASSAGE, seed=seed, model=model).duration

    started, cpu_started = time.perf_counter(), time.process_time()
    seconds = sum(pool.map(audio_s, range(turn * STREAMS, turn * STREAMS + streams)))
    return seconds / (time.perf_counter() - started), (time.process_time() - cpu_started) / seconds


def _models(lab: Lab) -> tuple[str, ...]:
    return ("s2-pro",) if lab.capabilities.one_model else lab.capabilities.models


def warm(device: str | None, number: int) -> dict[str, Any]:
    """Measure each model once in this process."""
    lab = systems.lab(device)
    turns = {model: asdict(turn_of(lab, model, number)) for model in _models(lab)}
    return {"turns": turns, "one_model": lab.capabilities.one_model, "device": lab.capabilities.device}


def memory(device: str | None) -> dict[str, float]:
    """Measure memory after one and after eight concurrent streams of each model."""
    lab = systems.lab(device)
    with ThreadPoolExecutor(STREAMS) as pool:
        for model in _models(lab):
            for streams in (1, STREAMS):
                throughput(lab, model, 0, streams, pool)
    return {"peak_mib": peak_mib()}


def every_turn(turns: int, checkouts: Sequence[Path | None], arguments: Sequence[str]) -> dict[str, Any]:
    """Measure all turns in new processes; processes of the checkouts alternate."""
    sums: list[dict[str, Turns]] = [{} for _ in checkouts]
    for number in range(turns):
        for checkout, totals in zip(checkouts, sums, strict=True):
            measured = child("--child", "warm", "--turn", str(number), *arguments, checkout=checkout)
            for model, values in measured.pop("turns").items():
                totals.setdefault(model, Turns()).add(Turns(**values))
    new, *old = sums
    compared: dict[str, Any] = {}
    if old:
        compared["old"] = {model: total.figures() for model, total in old[0].items()}
        compared["over_old"] = {model: total.over(old[0][model]) for model, total in new.items()}
    return {"models": {model: total.figures() for model, total in new.items()}, **compared, **measured}


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
        (f"peak memory with {STREAMS} streams, MiB, at most", figures_by_key["peak_mib"], MEMORY_MIB),
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


def child(*arguments: str, checkout: Path | None = None) -> dict[str, Any]:
    """Run this file in a new process, with voicelab of another checkout if given; return the JSON of its last line."""
    environment = dict(os.environ) if checkout is None else os.environ | {"PYTHONPATH": str(checkout.resolve())}
    command = [sys.executable, __file__, *arguments]
    run = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if run.returncode:
        raise SystemExit(f"{' '.join(arguments)} failed:\n{run.stderr}")
    figures: dict[str, Any] = json.loads(run.stdout.strip().splitlines()[-1])
    return figures


def main() -> None:
    """Measure in child processes and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", help="device of the voice; automatic by default")
    parser.add_argument("--repeats", type=int, default=12, help="sentences per latency mode")
    parser.add_argument("--cold", type=int, default=3, help="new processes per latency mode")
    parser.add_argument("--against", type=Path, metavar="FOLDER", help="checkout to compare with")
    parser.add_argument("--child", choices=("warm", "cold", "memory"), help=argparse.SUPPRESS)
    parser.add_argument("--mode", choices=MODES, default="low", help=argparse.SUPPRESS)
    parser.add_argument("--turn", type=int, default=0, help=argparse.SUPPRESS)
    systems.add_options(parser)
    options = parser.parse_args()
    systems.use(options)
    if options.child:
        parts: dict[str, Callable[[], dict[str, Any]]] = {
            "warm": lambda: warm(options.device, options.turn),
            "cold": lambda: cold(options.device, options.mode),
            "memory": lambda: memory(options.device),
        }
        report(parts[options.child]())
        return
    device_arguments = ["--device", options.device] if options.device else []
    host, checkouts = machine(), [None, options.against] if options.against else [None]
    measured = every_turn(max(1, options.repeats // TURN_SENTENCES), checkouts, device_arguments)
    measured |= child("--child", "memory", *device_arguments)
    if options.against:
        measured["old_peak_mib"] = child("--child", "memory", *device_arguments, checkout=options.against)["peak_mib"]
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
