"""What a sweep gains by making takes together, and what it costs by itself.

    python bench/sweep.py
    python bench/sweep.py --takes 16

Gain: the same takes on the embedded voice, one by one and as a sweep (eight at once, one batch on the engine), each
into an empty cache; the digests of the audio must agree. Overhead: takes of a voice whose audio is ready beforehand,
0.25 s of pcm each, with cache and manifest, less what the same calls take without a sweep. Cached: the same sweep again.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from machine import machine, report

import voicelab as vl
from voicelab.backend import Capabilities, SpeechStream
from voicelab.errors import NotFound
from voicelab.experiments.cache import Cache
from voicelab.experiments.take import render
from voicelab.lab import Lab
from voicelab.schema import Model, TTSRequest, VoiceCreate, VoiceModel

TEXT = "The birch canoe slid on the smooth planks."
QUARTER = bytes(22_050)


class Canned:
    """Has a quarter of a second of pcm ready for whatever is asked."""

    capabilities = Capabilities("canned", ("s1", "s2-pro"), "cpu", "exact", "canned")

    def synthesize(self, request: TTSRequest, *, model: Model = "s2-pro", seed: int | None = None) -> SpeechStream:
        """Say it at once."""
        return SpeechStream(iter([QUARTER]), request=request, model=model, backend=self.capabilities, seed=seed)

    def create_voice(self, request: VoiceCreate) -> VoiceModel:
        """Refuse: there is nothing to make a voice of."""
        raise NotFound(f"no voice is made of {request.title!r}")

    def get_voice(self, id: str) -> VoiceModel:
        """Refuse: there are no voices."""
        raise NotFound(f"there is no voice {id!r}")

    def close(self) -> None:
        """Do nothing: nothing is held."""


def timed(work: Callable[[], object]) -> float:
    """Return how many seconds ``work`` takes."""
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


def gain(takes: int) -> dict[str, object]:
    """Return the seconds of ``takes`` takes one by one and together."""
    repeats = max(takes // 4, 1)
    with vl.connect() as lab, tempfile.TemporaryDirectory() as folder:
        lab.speak(TEXT)  # the first call loads what the others have
        axes: dict[str, object] = {"temperature": [0.3, 0.6, 0.8, 1.0], "repeats": repeats}
        alone = lab.sweep(TEXT, cache=Cache(Path(folder) / "alone"), **axes)  # type: ignore[arg-type]
        together = lab.sweep(TEXT, cache=Cache(Path(folder) / "together"), **axes)  # type: ignore[arg-type]
        one_by_one = timed(lambda: alone.run(concurrency=1))
        at_once = timed(together.run)
        equal = [take.digest for take in alone.run().takes] == [take.digest for take in together.run().takes]
    return {
        "takes": len(alone),
        "one_by_one_s": round(one_by_one, 2),
        "together_s": round(at_once, 2),
        "gain": round(one_by_one / at_once, 2),
        "same_audio": equal,
    }


def overhead(takes: int) -> dict[str, object]:
    """Return milliseconds a take of the sweep itself."""
    backend = Canned()
    with tempfile.TemporaryDirectory() as folder:
        sweep = Lab(backend).sweep(
            TEXT, format="pcm", temperature=[0.5, 1.0], repeats=takes // 2, cache=Cache(Path(folder) / "cache")
        )
        bare = timed(lambda: [render(backend, job.cell.request, seed=job.seed) for job in sweep.jobs()])
        made = timed(lambda: sweep.run(manifest=Path(folder) / "manifest.jsonl"))
        again = timed(sweep.run)
        table = timed(sweep.run().frame)
    return {
        "takes": takes,
        "bare_ms": round(bare / takes * 1e3, 3),
        "sweep_ms": round(made / takes * 1e3, 3),
        "overhead_ms": round((made - bare) / takes * 1e3, 3),
        "cached_ms": round(again / takes * 1e3, 3),
        "table_s": round(table, 3),
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--takes", type=int, default=64, help="on the embedded voice")
    parser.add_argument("--canned", type=int, default=1000, help="of the voice that has its audio ready")
    options = parser.parse_args()
    report({"machine": machine(), "gain": gain(options.takes), "overhead": overhead(options.canned)})


if __name__ == "__main__":
    main()
