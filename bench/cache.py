"""What it costs to keep takes and to read them back.

    python bench/cache.py
    python bench/cache.py --takes 200

Takes of 3 s of wav at 44.1 kHz, each of another text, written down as a run: audio, timing and provenance in the
run's folder, a line each in its manifest. Then the run is read back: as a table, which needs no audio; and take by
take with all audio, verified. Milliseconds are those of one take.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from machine import machine, report

from voicelab.audio.clip import Provenance, Timing
from voicelab.audio.formats import encode
from voicelab.backend import Capabilities
from voicelab.experiments.journal import Journal
from voicelab.experiments.manifest import load
from voicelab.experiments.take import Take
from voicelab.schema import TTSRequest

SECONDS, RATE = 3, 44_100
CHUNK = 8820
CANNED = Capabilities("canned", ("s2-pro",), "cpu", "exact", "canned")


def takes(count: int) -> list[Take]:
    """Return takes of noise, which no disk can make smaller."""
    rng = np.random.default_rng(1)
    noise = rng.uniform(-0.5, 0.5, SECONDS * RATE + count).astype(np.float32)
    made = []
    for number in range(count):
        audio = encode(noise[number : number + SECONDS * RATE], "wav", RATE, RATE, 128, -1000)
        arrivals = tuple((0.01 * at, min(CHUNK, len(audio) - at * CHUNK)) for at in range(-(-len(audio) // CHUNK)))
        request = TTSRequest(text=f"Sentence number {number}.", format="wav")
        provenance = Provenance(request, "s2-pro", "canned", "canned", 1, Timing(0.01, 0.5, arrivals))
        made.append(Take(provenance, audio, seed=1, device="cpu"))
    return made


def timed(work: Callable[[], object]) -> float:
    """Return how many seconds ``work`` takes."""
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


def main() -> None:
    """Measure and report."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--takes", type=int, default=1000)
    count = parser.parse_args().takes
    where = machine()
    made = takes(count)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run.jsonl"

        def write() -> None:
            with Journal(path, [CANNED]) as journal:
                for take in made:
                    journal.add(take)

        written = timed(write)
        run = load(path)
        figures = {
            "takes": count,
            "write_ms": 1000 * written / count,
            "load_and_frame_s": timed(lambda: load(path).frame()),
            "verified_audio_ms": 1000 * timed(lambda: [run.cache.get(key) for key in run.cache.entries]) / count,
            "clips_s": timed(lambda: [take.clip() for take in run]),
        }
    report({"bench": "cache", **{name: round(value, 3) for name, value in figures.items()}, "machine": where})


if __name__ == "__main__":
    main()
