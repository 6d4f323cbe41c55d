"""What a sweep gains by making takes together, and what it costs by itself.

    python bench/sweep.py
    python bench/sweep.py --takes 16 --turns 1

Gain: the same takes on the embedded voice, one by one and as a sweep (as many as the engine speaks in one batch, and the
next ones at hand), in turns, each into an empty cache; the digests of the audio must agree (goal: 3 times as fast on two
cores). Overhead: takes of a voice whose audio is ready beforehand, 0.25 s of pcm each, with cache and run, less what
the same calls take without a sweep (goal: 2 ms a take). Cached: the same sweep again. ``cpu`` is processor time, which
other work on the machine lengthens least.
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
from voicelab.experiments.runs.cache import Cache
from voicelab.lab import Lab
from voicelab.schema import VoiceCreate, VoiceModel

TEXT = "The birch canoe slid on the smooth planks."
QUARTER = bytes(22_050)


class Canned:
    """Has a quarter of a second of pcm ready for whatever is asked."""

    capabilities = Capabilities("canned", ("s1", "s2-pro"), "cpu", "exact", "canned")

    def synthesize(self, call: Call) -> SpeechStream:
        """Say it at once."""
        return SpeechStream(iter([QUARTER]), call=call, backend=self.capabilities)

    def create_voice(self, request: VoiceCreate) -> VoiceModel:
        """Refuse: there is nothing to make a voice of."""
        raise NotFound(f"no voice is made of {request.title!r}")

    def get_voice(self, id: str) -> VoiceModel:
        """Refuse: there are no voices."""
        raise NotFound(f"there is no voice {id!r}")

    def close(self) -> None:
        """Do nothing: nothing is held."""


def timed(work: Callable[[], object]) -> tuple[float, float]:
    """Return how many seconds ``work`` takes, and how many of the processor."""
    begun, worked = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - begun, time.process_time() - worked


def gain(takes: int, turns: int) -> dict[str, object]:
    """Return the seconds of ``takes`` takes one by one and together, medians of several turns."""
    axes: dict[str, Any] = {"temperature": [0.3, 0.6, 0.8, 1.0], "repeats": max(takes // 4, 1)}
    seconds: dict[int | None, list[tuple[float, float]]] = {1: [], None: []}
    digests = set()
    with vl.connect() as lab, tempfile.TemporaryDirectory() as folder:
        lab.speak(TEXT)  # the first call loads what the others have
        for turn, at_once in itertools.product(range(turns), seconds):
            sweep = lab.sweep(TEXT, cache=Cache(Path(folder) / f"{turn} {at_once}"), **axes)
            seconds[at_once].append(timed(partial(sweep.run, concurrency=at_once)))
            digests.add(tuple(take.digest for take in sweep.run().takes))
    alone, together = (np.array(seconds[at_once]) for at_once in seconds)
    return {
        "takes": len(sweep),
        "one_by_one_s": round(float(np.median(alone[:, 0])), 2),
        "together_s": round(float(np.median(together[:, 0])), 2),
        "gain": round(float(np.median(alone[:, 0] / together[:, 0])), 2),
        "one_by_one_cpu_s": round(float(np.median(alone[:, 1])), 2),
        "together_cpu_s": round(float(np.median(together[:, 1])), 2),
        "same_audio": len(digests) == 1,
    }


def overhead(takes: int) -> dict[str, object]:
    """Return milliseconds a take of the sweep itself."""
    backend = Canned()
    with tempfile.TemporaryDirectory() as folder:
        sweep = Lab(backend).sweep(
            TEXT, format="pcm", temperature=[0.5, 1.0], repeats=takes // 2, cache=Cache(Path(folder) / "cache")
        )
        bare, bare_cpu = timed(lambda: [backend.synthesize(job.call).take() for job in sweep.jobs()])
        made, made_cpu = timed(lambda: sweep.run(Path(folder) / "run"))
        again, _ = timed(sweep.run)
        table, _ = timed(sweep.run().frame)
    return {
        "takes": takes,
        "bare_ms": round(bare / takes * 1e3, 3),
        "sweep_ms": round(made / takes * 1e3, 3),
        "overhead_ms": round((made - bare) / takes * 1e3, 3),
        "overhead_cpu_ms": round((made_cpu - bare_cpu) / takes * 1e3, 3),
        "cached_ms": round(again / takes * 1e3, 3),
        "table_s": round(table, 3),
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--takes", type=int, default=64, help="on the embedded voice")
    parser.add_argument("--turns", type=int, default=3, help="how often each way")
    parser.add_argument("--canned", type=int, default=1000, help="of the voice that has its audio ready")
    options = parser.parse_args()
    where = machine()
    figures = {"gain": gain(options.takes, options.turns), "overhead": overhead(options.canned)}
    report({"figure": "sweep", **figures, "machine": where})


if __name__ == "__main__":
    main()
