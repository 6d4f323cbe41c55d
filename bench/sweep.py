"""Speedup of a sweep by concurrent takes, and its overhead per take.

    python bench/sweep.py
    python bench/sweep.py --takes 16 --turns 1

Gain: the same takes of the embedded voice, sequentially and as a sweep with full engine batches, alternating, each into an
empty cache; the digests of the audio must be equal (goal: speedup of 3 on two cores). Overhead: takes of a backend with
precomputed audio, 0.25 s of pcm each, with cache and run, minus the time of the same calls without a sweep (goal: 2 ms per
take). Cached: the same sweep again. ``cpu`` is CPU time, which depends least on other load.
"""

from __future__ import annotations

import argparse
import itertools
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from machine import machine, report

import voicelab as vl
from voicelab.backend import SpeechStream
from voicelab.call import Call
from voicelab.capabilities import Capabilities
from voicelab.errors import NotFound
from voicelab.lab import Lab
from voicelab.runs.cache import Cache
from voicelab.schema import VoiceCreate, VoiceModel

TEXT = "The birch canoe slid on the smooth planks."
QUARTER = bytes(22_050)


class Canned:
    """Backend with precomputed audio, 0.25 s of pcm per call."""

    capabilities = Capabilities("canned", ("s1", "s2-pro"), "cpu", "exact", "canned")

    def synthesize(self, call: Call) -> SpeechStream:
        """Stream the audio immediately."""
        return SpeechStream(iter([QUARTER]), call=call, backend=self.capabilities)

    def create_voice(self, request: VoiceCreate) -> VoiceModel:
        """Raise NotFound: voice creation is not supported."""
        raise NotFound(f"voice creation is not supported: {request.title!r}")

    def get_voice(self, id: str) -> VoiceModel:
        """Raise NotFound: the backend stores no voice models."""
        raise NotFound(f"there is no voice {id!r}")

    def close(self) -> None:
        """Do nothing: there are no resources to release."""


def timed(work: Callable[[], object]) -> tuple[float, float]:
    """Measure the wall-clock and CPU time of ``work`` in seconds."""
    begun, worked = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - begun, time.process_time() - worked


def gain(takes: int, turns: int) -> dict[str, object]:
    """Measure ``takes`` takes sequentially and as a sweep, medians over several turns."""
    axes: dict[str, Any] = {"temperature": [0.3, 0.6, 0.8, 1.0], "repeats": max(takes // 4, 1)}
    seconds: dict[int | None, list[tuple[float, float]]] = {1: [], None: []}
    digests = set()
    with vl.connect() as lab, tempfile.TemporaryDirectory() as folder:
        lab.speak(TEXT)  # warm-up
        for turn, concurrency in itertools.product(range(turns), seconds):
            sweep = lab.sweep(TEXT, cache=Cache(Path(folder) / f"{turn} {concurrency}"), **axes)
            seconds[concurrency].append(timed(partial(sweep.run, concurrency=concurrency)))
            digests.add(tuple(take.digest for take in sweep.run().takes))
    sequential, concurrent = (np.array(seconds[concurrency]) for concurrency in seconds)
    return {
        "takes": len(sweep),
        "one_by_one_s": round(float(np.median(sequential[:, 0])), 2),
        "together_s": round(float(np.median(concurrent[:, 0])), 2),
        "gain": round(float(np.median(sequential[:, 0] / concurrent[:, 0])), 2),
        "one_by_one_cpu_s": round(float(np.median(sequential[:, 1])), 2),
        "together_cpu_s": round(float(np.median(concurrent[:, 1])), 2),
        "same_audio": len(digests) == 1,
    }


def overhead(takes: int) -> dict[str, object]:
    """Measure the overhead of the sweep in milliseconds per take."""
    backend = Canned()
    with tempfile.TemporaryDirectory() as folder:
        sweep = Lab(backend).sweep(
            TEXT, format="pcm", temperature=[0.5, 1.0], repeats=takes // 2, cache=Cache(Path(folder) / "cache")
        )
        bare, bare_cpu = timed(lambda: [backend.synthesize(job.call).take() for job in sweep.jobs()])
        made, made_cpu = timed(lambda: sweep.run(Path(folder) / "run"))
        cached, _ = timed(sweep.run)
        table, _ = timed(sweep.run().frame)
    return {
        "takes": takes,
        "bare_ms": round(bare / takes * 1e3, 3),
        "sweep_ms": round(made / takes * 1e3, 3),
        "overhead_ms": round((made - bare) / takes * 1e3, 3),
        "overhead_cpu_ms": round((made_cpu - bare_cpu) / takes * 1e3, 3),
        "cached_ms": round(cached / takes * 1e3, 3),
        "table_s": round(table, 3),
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--takes", type=int, default=64, help="takes of the embedded voice")
    parser.add_argument("--turns", type=int, default=3, help="repeats of each mode")
    parser.add_argument("--canned", type=int, default=1000, help="takes of the backend with precomputed audio")
    options = parser.parse_args()
    host = machine()
    figures = {"gain": gain(options.takes, options.turns), "overhead": overhead(options.canned)}
    report({"figure": "sweep", **figures, "machine": host})


if __name__ == "__main__":
    main()
