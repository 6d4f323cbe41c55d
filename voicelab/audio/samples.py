"""Arrays of audio samples: validation, 16-bit conversion, level and resampling.

All audio in voicelab is mono float32 in [-1, 1], shape (n,).
"""

from __future__ import annotations

import math
from typing import Protocol, Self, cast

import numpy as np
import numpy.typing as npt
import soxr

from voicelab.errors import AudioError, shown_value

Samples = npt.NDArray[np.float32]
"""float32, shape (n,), nominally in [-1, 1]."""


class Sound(Protocol):
    """Protocol for audio with a sample rate, such as Clip."""

    @property
    def samples(self) -> Samples:
        """Samples, float32 of shape (n,)."""

    @property
    def rate(self) -> int:
        """Sample rate in Hz."""

    @property
    def duration(self) -> float:
        """Duration in seconds."""

    @property
    def level(self) -> float:
        """RMS level in dBFS."""

    def __len__(self) -> int: ...
    def resample(self, rate: int, /) -> Self:
        """Resample to another rate in Hz."""


NO_SAMPLES: Samples = np.zeros(0, np.float32)
"""Empty, read-only array of samples."""
NO_SAMPLES.flags.writeable = False

# In Hz. Within these limits, hours of audio have a sample count that fits 32 bits.
_MIN_RATE, _MAX_RATE = 1000, 768_000


def as_samples(value: object, name: str = "samples") -> Samples:
    """Convert an array to contiguous float32 samples.

    Raises AudioError, which names the argument as ``name``, unless it is one-dimensional, floating-point and finite.
    """
    array = np.asarray(value)
    if array.ndim != 1:
        raise AudioError(f"{name} must be one channel of shape (n,), got shape {array.shape}")
    if array.size == 0:
        return NO_SAMPLES
    if array.dtype.kind != "f":
        raise AudioError(f"{name} must be floating-point numbers in [-1, 1], got {array.dtype}")
    samples = np.ascontiguousarray(array, dtype=np.float32)
    if not np.isfinite(samples).all():
        raise AudioError(f"{name} must be finite, got NaN or infinity")
    return samples


def check_rate(rate: object, name: str = "rate") -> int:
    """Validate a sample rate in Hz and return it as int. Raises AudioError, which names the argument as ``name``."""
    if isinstance(rate, bool) or not isinstance(rate, int | np.integer):
        raise AudioError(f"{name} must be an integer in Hz, got {shown_value(rate)}")
    if not _MIN_RATE <= rate <= _MAX_RATE:
        hint = f" ({rate} kHz is {rate}000 Hz)" if 1 < rate < _MIN_RATE else ""
        raise AudioError(f"{name} must be between {_MIN_RATE} and {_MAX_RATE} Hz, got {rate}{hint}")
    return int(rate)


def to_int16(samples: Samples) -> npt.NDArray[np.int16]:
    """Round samples to 16 bits without dither; 1.0 becomes 32767. This is the exact inverse of ``from_int16``."""
    return cast("npt.NDArray[np.int16]", np.clip(np.rint(samples * np.float32(32768.0)), -32768, 32767).astype("<i2"))


def from_int16(values: npt.NDArray[np.int16]) -> Samples:
    """Convert 16-bit integers to samples in [-1, 1); 32768 corresponds to 1."""
    return (values.astype(np.float32) / np.float32(32768.0)).astype(np.float32)


def dbfs(samples: Samples) -> float:
    """Compute the RMS level in dB relative to full scale (0 for a square wave of ±1); -inf for silence."""
    if samples.size == 0:
        return -math.inf
    power = float(np.mean(np.square(samples, dtype=np.float64)))
    return 10.0 * math.log10(power) if power > 0.0 else -math.inf


class OneUse:
    """Base class of stream processors, which raise AudioError if used after ``finish()``."""

    _name: str
    _finished = False

    def _use(self, *, final: bool = False) -> None:
        if self._finished:
            raise AudioError(f"the {self._name} is already finished; create a new one")
        self._finished = final


class Resampler:
    """Change the sample rate of a stream (soxr, high quality).

    The output does not depend on block sizes, and its duration equals that of the input to within one sample.
    At equal rates the samples are unchanged. Overshoot beyond ±1 is not clipped.
    """

    def __init__(self, source_rate: int, rate: int) -> None:
        self.source_rate = check_rate(source_rate, "source_rate")
        self.rate = check_rate(rate)
        self._stream = None if source_rate == rate else soxr.ResampleStream(source_rate, rate, 1, dtype="float32")

    def feed(self, samples: Samples) -> Samples:
        """Add samples at ``source_rate``; return the resampled samples that are ready (delay: tens of ms)."""
        if self._stream is None:
            return samples
        if samples.size == 0:
            return NO_SAMPLES
        return cast("Samples", self._stream.resample_chunk(samples))

    def finish(self) -> Samples:
        """Return the remaining samples and close the resampler."""
        if self._stream is None:
            return NO_SAMPLES
        return cast("Samples", self._stream.resample_chunk(NO_SAMPLES, last=True))


def resample(samples: Samples, source_rate: int, rate: int) -> Samples:
    """Resample a complete signal. The result equals the output of a Resampler."""
    resampler = Resampler(source_rate, rate)
    return np.concatenate((resampler.feed(samples), resampler.finish()))
