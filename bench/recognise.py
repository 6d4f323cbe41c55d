"""Word error by an independent recognizer: pocketsphinx with its en-us model (BSD), both inside its wheel.

    python bench/recognise.py --system rms --sentences 300
    python bench/recognise.py said.wav --text "what it should say"

The recognizer is old and makes errors of its own, so its figures mean something only side by side: a system's rate
over its teacher's, on the same sentences.
"""

from __future__ import annotations

import argparse
import re
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from functools import lru_cache, partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import soxr
import stats
import systems
from machine import machine, report
from numpy.typing import NDArray

from voicelab.engine.text.normalize import normalize

__all__ = ["Recognition", "recognise", "score_system", "words"]

RATE = 16_000
PAD = 0.2
"""Seconds of near silence put on both ends: the recognizer loses words at a hard edge."""


@dataclass(frozen=True, slots=True)
class Recognition:
    """One sentence spoken by one system and heard by the recognizer."""

    text: str
    heard: str
    errors: int
    words: int
    seconds: float
    """Length of the audio."""


def words(text: str) -> list[str]:
    """Return lower-case words for comparison: numbers in words, no punctuation, hyphens as spaces.

    Apostrophes go too: nobody can hear whether "candidates" has one.
    """
    return re.findall(r"[a-z]+", normalize(text).text.lower().replace("-", " ").replace("'", ""))


@lru_cache(maxsize=1)
def _decoder() -> Any:
    from pocketsphinx import Decoder

    # cmn=batch: each utterance is normalised by itself, so that the order of sentences cannot matter.
    return Decoder(samprate=RATE, cmn="batch", loglevel="FATAL")


def recognise(samples: NDArray[np.float32], rate: int) -> str:
    """Return what the recognizer hears in mono `samples` ([-1, 1] at `rate` Hz)."""
    audio = soxr.resample(np.asarray(samples, np.float32), rate, RATE) if rate != RATE else np.asarray(samples)
    peak = float(np.max(np.abs(audio))) if audio.size else 0.0
    if peak > 0:
        audio = audio * (0.5 / peak)
    quiet = np.zeros(int(PAD * RATE), np.float32)
    audio = np.concatenate([quiet, audio, quiet])
    # Digital silence has no logarithm; two steps of fixed noise stand in for a room.
    audio = audio + np.random.default_rng(0).uniform(-2, 2, audio.size) / 32768
    decoder = _decoder()
    decoder.start_utt()
    decoder.process_raw((np.clip(audio, -1, 1) * 32767).astype("<i2").tobytes(), full_utt=True)
    decoder.end_utt()
    found = decoder.hyp()
    return str(found.hypstr) if found is not None else ""


def score_sentence(name: str, text: str) -> Recognition:
    """Let system `name` say `text` and count the words heard wrong."""
    samples, rate = systems.speak(name, text)
    heard = recognise(samples, rate)
    score = stats.word_errors(words(text), words(heard))
    return Recognition(text, heard, score.errors, score.words, samples.size / rate)


def score_system(name: str, texts: Sequence[str], jobs: int = 1) -> list[Recognition]:
    """Return one `Recognition` per text, in order; `jobs` processes share the work."""
    if jobs <= 1:
        return [score_sentence(name, text) for text in texts]
    # spawn: torch's threads do not survive a fork.
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        return list(pool.map(partial(score_sentence, name), texts, chunksize=4))


def scores(found: Sequence[Recognition]) -> list[stats.Score]:
    """The counts alone, for `stats`."""
    return [stats.Score(r.errors, r.words) for r in found]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", type=Path, help="audio files to hear instead of a system")
    parser.add_argument("--text", help="what each file should say")
    parser.add_argument("--system", default="rms", help=f"one of {', '.join(systems.NAMES)}")
    parser.add_argument("--sentences", type=int, default=300)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--worst", type=int, default=0, help="print this many of the worst sentences")
    systems.add_options(parser)
    options = parser.parse_args()
    systems.use(options)
    started = time.perf_counter()
    if options.files:
        from voicelab.audio.clip import Clip

        for path in options.files:
            clip = Clip.load(path)
            heard = recognise(clip.samples, clip.rate)
            score = stats.word_errors(words(options.text), words(heard)) if options.text else None
            report({"file": path.name, "heard": heard, "score": asdict(score) if score else None})
        return
    found = score_system(options.system, systems.sentences(options.sentences), options.jobs)
    for item in sorted(found, key=lambda r: -r.errors / max(1, r.words))[: options.worst]:
        print(f"{item.errors}/{item.words}  {item.text!r} heard as {item.heard!r}")
    report(
        {
            "figure": "word error",
            "system": options.system,
            "recognizer": "pocketsphinx en-us",
            "sentences": len(found),
            "words": sum(r.words for r in found),
            "wer": stats.rate_interval(scores(found)).rounded(),
            "speech_s": round(sum(r.seconds for r in found), 1),
            "took_s": round(time.perf_counter() - started, 1),
            "machine": machine(),
        }
    )


if __name__ == "__main__":
    main()
