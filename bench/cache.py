"""Time to store takes in a run, and to load them as a table, with audio, and with metrics.

    python bench/cache.py
    python bench/cache.py --takes 200

Takes are 3 s of the embedded voice as wav at 44.1 kHz, all different, stored as a run (audio, and one line per take with
timing and call). The run is then loaded as a table without audio; take by take with verified audio; and as a table with
the eleven basic metrics, for which all audio is read, verified, decoded and measured in one process (goal: 1,000 takes in
3 s). Seconds are the median of three repeats (``cpu``: CPU time), milliseconds are per take; imports are excluded.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import metrics as clip_metrics
import systems
from machine import machine, report

from voicelab.call import Call
from voicelab.capabilities import Capabilities
from voicelab.clip import Clip, Take, Timing
from voicelab.metrics import BASIC, measure
from voicelab.runs.cache import Cache
from voicelab.runs.run import Journal
from voicelab.schema import TTSRequest
from voicelab.takes.collection import load

SECONDS = 3.0
CHUNK = 8820
CANNED = Capabilities("canned", ("s2-pro",), "cpu", "exact", "canned")


def take_of(number: int, clip: Clip) -> Take:
    """Build the take of a clip: wav in chunks of 0.1 s."""
    audio = clip.to_bytes("wav")
    arrivals = tuple((0.01 * i, min(CHUNK, len(audio) - i * CHUNK)) for i in range(-(-len(audio) // CHUNK)))
    request = TTSRequest(text=f"{clip_metrics.TEXT} Sentence {number}.", format="wav")
    call, timing = Call(request, seed=1), Timing(0.01, 0.5, arrivals)
    return Take(call, audio, timing, backend="canned", fingerprint="canned", device="cpu", seed=1)


def timed(work: Callable[[], object], times: int = 3, clock: Callable[[], float] = time.perf_counter) -> float:
    """Return the median duration of ``work`` in seconds."""
    durations_s = []
    for _ in range(times):
        begun = clock()
        work()
        durations_s.append(clock() - begun)
    return statistics.median(durations_s)


def main() -> None:
    """Measure and report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--takes", type=int, default=1000)
    systems.add_options(parser)
    options = parser.parse_args()
    systems.use(options)
    host, count = machine(), options.takes
    takes = [take_of(number, clip) for number, clip in enumerate(clip_metrics.takes(count, SECONDS))]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run"

        def write() -> None:
            with Journal(path, [CANNED]) as journal:
                for take in takes:
                    journal.add(take)

        write_s = timed(write, 1)
        run, cache = load(path), Cache(path, max_bytes=None)
        # Warm-up: imports and filter coefficients.
        measure(run.takes[:2])
        figures = {
            "takes": count,
            "write_ms": 1000 * write_s / count,
            "table_s": timed(lambda: load(path).frame()),
            "verified_audio_ms": 1000 * timed(lambda: [cache.get(key) for key in cache.run.present()]) / count,
            "table_with_metrics_s": timed(lambda: load(path).frame(*BASIC)),
            "table_with_metrics_cpu_s": timed(lambda: load(path).frame(*BASIC), clock=time.process_time),
        }
    report({"figure": "cache", **{name: round(value, 3) for name, value in figures.items()}, "machine": host})


if __name__ == "__main__":
    main()
