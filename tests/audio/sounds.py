"""Synthetic test signals with known properties."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import soundfile  # type: ignore[import-untyped]

from voicelab.audio.decoders import StreamDecoder
from voicelab.audio.encoders import StreamEncoder
from voicelab.audio.samples import Samples
from voicelab.schema import AudioFormat

_FORMANTS = ((700.0, 150.0), (1200.0, 200.0), (2600.0, 300.0))


def vowel(f0: float, rate: int, seconds: float, peak: float = 0.5) -> Samples:
    """Synthesize harmonics of ``f0`` under three formants."""
    times = np.arange(round(rate * seconds)) / rate
    tone = np.zeros(times.size)
    for harmonic in range(1, 30):
        frequency = harmonic * f0
        if frequency > 0.45 * rate:
            break
        level = 0.02 + sum(np.exp(-(((frequency - middle) / width) ** 2)) for middle, width in _FORMANTS)
        tone += level * np.sin(2 * np.pi * frequency * times + harmonic)
    samples: Samples = (peak * tone / np.abs(tone).max()).astype(np.float32)
    return samples


def babble(rate: int, seconds: float, seed: int = 0) -> Samples:
    """Synthesize syllables of noise and tone with pauses, without repetition."""
    rng = np.random.default_rng(seed)
    samples = np.zeros(round(rate * seconds))
    begin = 0
    while begin < samples.size:
        length = int(rng.integers(rate // 20, rate // 4))
        end = min(samples.size, begin + length)
        kind = rng.integers(3)
        if kind == 0:
            samples[begin:end] = 0.1 * rng.standard_normal(end - begin)
        elif kind == 1:
            samples[begin:end] = vowel(float(rng.uniform(90, 250)), rate, (end - begin) / rate)[: end - begin]
        begin = end
    return np.clip(samples, -1.0, 1.0).astype(np.float32)


def random_chunks(length: int, seed: int, max_size: int) -> Iterator[tuple[int, int]]:
    """Split a length into chunks of random size; deterministic by seed."""
    rng = np.random.default_rng(seed)
    begin = 0
    while begin < length:
        end = min(length, begin + int(rng.integers(0, max_size + 1)))
        yield begin, end
        begin = end


def libsndfile_bytes(samples: npt.NDArray[Any], rate: int, kind: str = "WAV", subtype: str = "PCM_16") -> bytes:
    """Encode a file with libsndfile from samples of shape (n,) or (n, channels)."""
    file = io.BytesIO()
    soundfile.write(file, samples, rate, format=kind, subtype=subtype)
    return file.getvalue()


def encoded(samples: Samples, kind: AudioFormat, source_rate: int, **options: Any) -> bytes:
    """Encode a complete stream."""
    encoder = StreamEncoder(kind, source_rate, **options)
    return encoder.feed(samples) + encoder.finish()


def decoded(data: bytes, kind: AudioFormat, sample_rate: int | None = None) -> Samples:
    """Decode a complete stream."""
    decoder = StreamDecoder(kind, sample_rate)
    return np.concatenate((decoder.feed(data), decoder.finish()))
