"""What it costs to keep takes and to read them back, with metrics too.

    python bench/cache.py
    python bench/cache.py --takes 200

Takes are 3 s of the embedded voice as wav of 44.1 kHz, no two alike, written down as a run: audio, and a line
each with timing and call. Then the run is read back: as a table, which needs no audio; take by
take with all audio, verified; and as a table with the eleven basic metrics, for which all audio is read, verified,
decoded and measured, in one process (goal: 1,000 takes in 3 s). Seconds are the median of three times (``cpu``: of the
processor), milliseconds those of one take; everything is imported beforehand.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import metrics as of_clips
import systems
from machine import machine, report

from voicelab.call import Call
from voicelab.capabilities import Capabilities
from voicelab.clip import Clip, Take, Timing
from voicelab.experiments.metrics import BASIC, measure
from voicelab.experiments.runs.cache import Cache
from voicelab.experiments.runs.run import Journal, load
from voicelab.schema import TTSRequest

SECONDS = 3.0
CHUNK = 8820
CANNED = Capabilities("canned", ("s2-pro",), "cpu", "exact", "canned")


def take_of(number: int, clip: Clip) -> Take:
    """Return the take of a clip: wav that came in chunks of a tenth of a second."""
    audio = clip.to_bytes("wav")
    arrivals = tuple((0.01 * at, min(CHUNK, len(audio) - at * CHUNK)) for at in range(-(-len(audio) // CHUNK)))
    request = TTSRequest(text=f"{of_clips.TEXT} Sentence {number}.", format="wav")
    call, timing = Call(request, seed=1), Timing(0.01, 0.5, arrivals)
    return Take(call, audio, timing, backend="canned", fingerprint="canned", device="cpu", seed=1)


def timed(work: Callable[[], object], times: int = 3, clock: Callable[[], float] = time.perf_counter) -> float:
    """Return how many seconds ``work`` takes, the median of several times."""
    found = []
    for _ in range(times):
        begun = clock()
        work()
        found.append(clock() - begun)
    return statistics.median(found)


def main() -> None:
    """Measure and report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--takes", type=int, default=1000)
    systems.add_options(parser)
    options = parser.parse_args()
    systems.use(options)
    where, count = machine(), options.takes
    made = [take_of(number, clip) for number, clip in enumerate(of_clips.takes(count, SECONDS))]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run"

        def write() -> None:
            with Journal(path, [CANNED]) as journal:
                for take in made:
                    journal.add(take)

        written = timed(write, 1)
        run, kept = load(path), Cache(path, max_bytes=None)
        # Imports, and the coefficients of the loudness filter.
        measure(run.takes[:2])
        figures = {
            "takes": count,
            "write_ms": 1000 * written / count,
            "table_s": timed(lambda: load(path).frame()),
            "verified_audio_ms": 1000 * timed(lambda: [kept.get(key) for key in kept.run.present()]) / count,
            "table_with_metrics_s": timed(lambda: load(path).frame(*BASIC)),
            "table_with_metrics_cpu_s": timed(lambda: load(path).frame(*BASIC), clock=time.process_time),
        }
    report({"figure": "cache", **{name: round(value, 3) for name, value in figures.items()}, "machine": where})


if __name__ == "__main__":
    main()
