"""Plain arrays of samples: checks, 16-bit conversion, levels and resampling.

Everywhere in voicelab sound is one channel of float32 in [-1, 1], shape (samples,).
"""

from __future__ import annotations

import math
from typing import Protocol, Self, cast

import numpy as np
import numpy.typing as npt
import soxr

from voicelab.errors import AudioError

Samples = npt.NDArray[np.float32]
"""float32, shape (samples,), nominally in [-1, 1]."""


class Sound(Protocol):
    """Samples with their rate in Hz, as a Clip is: what can be analysed."""

    @property
    def samples(self) -> Samples:
        """float32, shape (n,)."""

    @property
    def rate(self) -> int:
        """In Hz."""

    @property
    def duration(self) -> float:
        """In seconds."""

    @property
    def level(self) -> float:
        """In dBFS."""

    def __len__(self) -> int: ...
    def resample(self, rate: int, /) -> Self:
        """Return it at another rate in Hz."""


SILENT: Samples = np.zeros(0, np.float32)
"""No samples at all."""
SILENT.flags.writeable = False

# Beyond these no speech is recorded; within them every length in samples fits 32 bits for hours.
_LOWEST_RATE, _HIGHEST_RATE = 1, 768_000


def as_samples(value: object, name: str = "samples") -> Samples:
    """Return ``value`` as contiguous float32 samples.

    Raises AudioError, which names ``name``, unless it is one-dimensional, of a floating type and finite.
    """
    array = np.asarray(value)
    if array.ndim != 1:
        raise AudioError(f"{name}: expected one channel of shape (samples,), got shape {array.shape}")
    if array.size == 0:
        return SILENT
    if array.dtype.kind != "f":
        raise AudioError(f"{name}: expected floating-point numbers in [-1, 1], got {array.dtype}")
    samples = np.ascontiguousarray(array, dtype=np.float32)
    if not np.isfinite(samples).all():
        raise AudioError(f"{name}: there are values that are not finite (NaN or infinity)")
    return samples


def check_rate(rate: object, name: str = "rate") -> int:
    """Return ``rate`` as an int in Hz; raises AudioError, which names ``name``, when it is none."""
    if isinstance(rate, bool) or not isinstance(rate, int | np.integer):
        raise AudioError(f"{name}: expected a whole number of Hz, got {type(rate).__name__}")
    if not _LOWEST_RATE <= rate <= _HIGHEST_RATE:
        raise AudioError(f"{name}: {rate} Hz is not within {_LOWEST_RATE} to {_HIGHEST_RATE} Hz")
    return int(rate)


def to_int16(samples: Samples) -> npt.NDArray[np.int16]:
    """Round to the nearest of 65,536 steps, without dither; ``from_int16`` and this are exact inverses.

    1.0 becomes 32767, the largest there is.
    """
    return cast("npt.NDArray[np.int16]", np.clip(np.rint(samples * np.float32(32768.0)), -32768, 32767).astype("<i2"))


def from_int16(values: npt.NDArray[np.int16]) -> Samples:
    """Scale 16-bit integers to [-1, 1): 32768 steps to 1."""
    return (values.astype(np.float32) / np.float32(32768.0)).astype(np.float32)


def dbfs(samples: Samples) -> float:
    """Root-mean-square level in dB relative to full scale (a square wave of ±1 is 0); -inf for silence."""
    if samples.size == 0:
        return -math.inf
    power = float(np.mean(np.square(samples, dtype=np.float64)))
    return 10.0 * math.log10(power) if power > 0.0 else -math.inf


class OneUse:
    """What is fed until it is finished, and of no use afterwards."""

    _name: str
    _finished = False

    def _use(self, *, last: bool = False) -> None:
        if self._finished:
            raise AudioError(f"the {self._name} was finished already")
        self._finished = last


class Resampler:
    """Change the sample rate of a stream (soxr, high quality).

    The output does not depend on how the input is cut up, and is as long as the input lasts to within
    a sample. Equal rates pass through untouched. Overshoot beyond ±1 is left in.
    """

    def __init__(self, source_rate: int, rate: int) -> None:
        self.source_rate = check_rate(source_rate, "source_rate")
        self.rate = check_rate(rate)
        self._stream = None if source_rate == rate else soxr.ResampleStream(source_rate, rate, 1, dtype="float32")

    def feed(self, samples: Samples) -> Samples:
        """Take samples at ``source_rate``, return those at ``rate`` that are ready (tens of ms later)."""
        if self._stream is None:
            return samples
        if samples.size == 0:
            return SILENT
        return cast("Samples", self._stream.resample_chunk(samples))

    def finish(self) -> Samples:
        """Return the samples still inside; the resampler is of no use afterwards."""
        if self._stream is None:
            return SILENT
        return cast("Samples", self._stream.resample_chunk(SILENT, last=True))


def resample(samples: Samples, source_rate: int, rate: int) -> Samples:
    """Return the whole of ``samples`` at another rate, equal to what a Resampler streams."""
    resampler = Resampler(source_rate, rate)
    return np.concatenate((resampler.feed(samples), resampler.finish()))
