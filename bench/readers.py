"""Comparison with libraries: damage detection of the Ogg and MP3 readers with PyAV, speech endpoints with librosa.

python bench/readers.py
"""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from pathlib import Path

import av
import librosa
import numpy as np
import numpy.typing as npt
from machine import machine, report

from voicelab.audio.decoders import StreamDecoder
from voicelab.audio.denoise import survey
from voicelab.audio.formats import encode
from voicelab.audio.samples import Samples
from voicelab.errors import AudioError
from voicelab.schema import AudioFormat

sys.path.insert(0, str(Path(__file__).parents[1]))  # tests are not an installed package

from tests.noises import KINDS, noise
from tests.speechlike import RATE, speechlike

FLIPS, CUTS = 200, 100
FORMATS: dict[AudioFormat, tuple[str, int]] = {"opus": ("ogg", 48_000), "mp3": ("mp3", 44_100)}
TOLERANCE_S = 0.2


def rejected_by_pyav(data: bytes, container: str) -> bool:
    """Tell whether PyAV detects an error in a file."""
    try:
        with av.open(io.BytesIO(data), "r", format=container) as source:
            for _ in source.decode(audio=0):
                pass
    except av.FFmpegError:
        return True
    return False


def rejected_by_voicelab(data: bytes, format: AudioFormat) -> bool:
    """Tell whether voicelab's decoder detects an error."""
    decoder = StreamDecoder(format)
    try:
        decoder.feed(data)
        decoder.finish()
    except AudioError:
        return True
    return False


def damage() -> dict[str, dict[str, int]]:
    """Count detected errors among ``FLIPS`` files with a flipped byte and ``CUTS`` truncated files."""
    rng = np.random.default_rng(0)
    results: dict[str, dict[str, int]] = {}
    for kind, (container, rate) in FORMATS.items():
        time = np.arange(3 * rate) / rate
        sound = (0.3 * np.sin(2 * np.pi * 180 * time) * (1 + np.sin(5 * time)) / 2).astype(np.float32)
        data = encode(sound, kind, rate)
        flipped = []
        for offset in rng.integers(200, len(data), FLIPS):
            broken = bytearray(data)
            broken[offset] ^= 0x41
            flipped.append(bytes(broken))
        cut = [data[:size] for size in rng.integers(1000, len(data) - 1, CUTS)]
        results[kind] = {
            "flipped": FLIPS,
            "flipped_pyav": sum(rejected_by_pyav(file, container) for file in flipped),
            "flipped_here": sum(rejected_by_voicelab(file, kind) for file in flipped),
            "cut": CUTS,
            "cut_pyav": sum(rejected_by_pyav(file, container) for file in cut),
            "cut_here": sum(rejected_by_voicelab(file, kind) for file in cut),
        }
    return results


def ends() -> dict[str, int]:
    """Count noisy recordings in which both speech endpoints are within ``TOLERANCE_S``."""

    def here(sound: Samples) -> tuple[float, float]:
        result = survey(sound, RATE)
        return result.start, result.end

    def split(top_db: float) -> Callable[[Samples], tuple[float, float]]:
        def ends_of(sound: Samples) -> tuple[float, float]:
            intervals: npt.NDArray[np.int64] = librosa.effects.split(sound, top_db=top_db)
            return intervals[0][0] / RATE, intervals[-1][1] / RATE

        return ends_of

    finders = {"here": here, "librosa_25_db": split(25), "librosa_40_db": split(40)}
    counts = {"recordings": 0} | dict.fromkeys(finders, 0)
    for kind in KINDS:
        for snr in (5, 10, 15, 20):
            for pitch in (100, 160, 240):
                clean = speechlike(3, pitch, silence=2)
                loud = np.flatnonzero(np.abs(clean) > 0.005)
                level = np.sqrt(np.mean(np.square(clean[loud[0] : loud[-1]]))) / 10 ** (snr / 20)
                sound = (clean + level * noise(kind, clean.size, RATE)).astype(np.float32)
                counts["recordings"] += 1
                for name, find in finders.items():
                    begin, end = find(sound)
                    counts[name] += int(max(abs(begin - loud[0] / RATE), abs(end - loud[-1] / RATE)) < TOLERANCE_S)
    return counts


if __name__ == "__main__":
    report({"damage": damage(), "ends": ends(), "machine": machine()})
