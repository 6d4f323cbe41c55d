"""Sounds and clips whose figures are known beforehand."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from voicelab.call import Call
from voicelab.clip import Clip, Take, Timing
from voicelab.metrics import measure_rows
from voicelab.schema import TTSRequest


class Sounds:
    """Makers of clips."""

    @staticmethod
    def clip(samples: npt.ArrayLike, rate: int = 48_000) -> Clip:
        return Clip(np.asarray(samples, np.float32), rate)

    @classmethod
    def sine(cls, hertz: float, dbfs: float, seconds: float, rate: int = 48_000, phase: float = 0.0) -> Clip:
        """A sine whose peaks are at `dbfs`."""
        times = np.arange(round(seconds * rate)) / rate
        return cls.clip(10 ** (dbfs / 20) * np.sin(2 * np.pi * hertz * times + np.radians(phase)), rate)

    @classmethod
    def join(cls, *clips: Clip) -> Clip:
        return cls.clip(np.concatenate([clip.samples for clip in clips]), clips[0].rate)

    @classmethod
    def noise(cls, seconds: float, rms: float, rate: int = 48_000, seed: int = 0) -> Clip:
        samples = rms * np.random.default_rng(seed).standard_normal(round(seconds * rate))
        return cls.clip(np.clip(samples, -1, 1), rate)

    @classmethod
    def pulses(cls, periods: npt.ArrayLike, amplitudes: npt.ArrayLike, rate: int = 48_000) -> Clip:
        """Glottal pulses, `periods` seconds apart, through the resonances of a vowel."""
        starts = np.cumsum(periods)
        times = np.arange(round((starts[-1] + 0.02) * rate)) / rate
        sound = np.zeros(times.size)
        heights = np.broadcast_to(np.asarray(amplitudes, np.float64), starts.shape)
        for start, height in zip(starts, heights, strict=True):
            since = times[int(start * rate) + 1 :] - start
            since = since[: round(0.012 * rate)]
            burst = sum(
                np.exp(-np.pi * width * since) * np.sin(2 * np.pi * formant * since)
                for formant, width in ((600, 150), (1200, 200))
            )
            sound[int(start * rate) + 1 :][: since.size] += height * burst
        return cls.clip(0.5 * sound / np.abs(sound).max(), rate)

    @staticmethod
    def arrived(*chunks: tuple[float, int], seconds: float = 1.0, format: str = "pcm") -> Clip:
        """A second of audio (by default) that came in chunks of (seconds since the call, bytes)."""
        request = TTSRequest.build(text="One two.", format=format)
        timing = Timing(first_audio_s=chunks[0][0], total_s=chunks[-1][0], arrivals=chunks)
        return Clip(np.zeros(round(seconds * 24_000), np.float32), 24_000, take=Take(Call(request), b"", timing))


@pytest.fixture(scope="session")
def sounds() -> type[Sounds]:
    return Sounds


@pytest.fixture(scope="session")
def figure() -> object:
    """Measure one metric of one clip; NaN comes with its reason."""

    def measured(clip: Clip, metric: str, **options: object) -> tuple[float, str]:
        row = measure_rows([clip], [metric], **options)[0]  # type: ignore[arg-type]
        return row[metric], row["undefined"]

    return measured
