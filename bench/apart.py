"""Overhead of decoding in a sandboxed process compared with in-process decoding, in milliseconds, cold and warm.

python bench/apart.py --seconds 20
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from machine import machine, report

from voicelab.audio.formats import decode
from voicelab.audio.sandbox import decode_apart
from voicelab.clip import Clip
from voicelab.schema import AudioFormat

RATE = 44_100


def milliseconds(call: Callable[[], object]) -> float:
    """Return the duration of one call in ms."""
    began = time.perf_counter()
    call()
    return 1000 * (time.perf_counter() - began)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=20.0, help="duration of the audio")
    parser.add_argument("--times", type=int, default=20)
    options = parser.parse_args()
    time_s = np.arange(int(options.seconds * RATE)) / RATE
    sound = Clip((0.3 * np.sin(700 * time_s) * np.sin(9 * time_s)).astype(np.float32), RATE)
    formats: tuple[AudioFormat, ...] = ("wav", "mp3", "opus")
    files = {name: sound.to_bytes(name) for name in formats}
    cold = milliseconds(lambda: decode_apart(files["wav"]))
    figures: dict[str, Any] = {}
    for name, data in files.items():
        pairs = [
            (milliseconds(lambda data=data: decode(data)), milliseconds(lambda data=data: decode_apart(data)))  # type: ignore[misc]
            for _ in range(options.times)
        ]
        figures[name] = {
            "here_ms": round(statistics.median(direct for direct, _ in pairs), 1),
            "added_ms": round(statistics.median(sandboxed - direct for direct, sandboxed in pairs), 1),
        }
    report(
        {
            "figure": "decoding apart",
            "audio_s": options.seconds,
            "first_ms": round(cold),
            **figures,
            "machine": machine(),
        }
    )


if __name__ == "__main__":
    main()
