from __future__ import annotations

import numpy as np
import pytest

from training import trim
from training.kokoro import FRAME, RATE
from training.plan import Request
from training.render import Rendering


def rendering(level: float = 0.05) -> Rendering:
    """Synthesize a 150 Hz buzz from 0.4 s to 0.9 s, with low-frequency noise."""
    durations = np.array([18, 22, 10, 1], np.uint8)
    frames = int(durations.sum())
    time_s = np.arange(frames * FRAME) / RATE
    buzz = np.zeros(time_s.size)
    for harmonic in range(1, 60):
        buzz += np.cos(2 * np.pi * 150 * harmonic * time_s)
    buzz *= level / buzz.std() * ((time_s > 0.4) & (time_s < 0.9))
    samples = buzz + 0.005 * np.sin(2 * np.pi * 15 * time_s)
    request = Request(3, "stock", "af_sky", (("af_sky", 1.0),), "en", "ah.", 1.0, 0)
    f0, energy = np.full(2 * frames, 149, np.float32), np.ones(2 * frames, np.float32)
    return Rendering(request, "a.", durations, f0, energy, np.round(samples * 32768).astype(np.int16), 1.0)


def test_trimming_shifts_phone_times() -> None:
    audio, phones = trim.trimmed(rendering())
    assert [p.name for p in phones] == ["a", "."]
    assert phones[0].start == pytest.approx(trim.LEAD, abs=1e-3)
    assert phones[0].end == pytest.approx(trim.LEAD + 0.5, abs=0.02)
    assert phones[-1].end == pytest.approx(audio.size / RATE, abs=1e-3)
    assert audio.size / RATE == pytest.approx(0.5 + trim.LEAD + trim.TAIL, abs=0.02)


def test_level_normalization_and_high_pass() -> None:
    for level in (0.02, 0.06):
        normalized = trim.normalize_level(rendering(level).audio())
        middle = normalized[round(0.5 * RATE) : round(0.8 * RATE)]
        assert np.sqrt(np.mean(np.square(middle))) == pytest.approx(trim.LEVEL, rel=0.1)
    assert np.abs(normalized[: round(0.3 * RATE)]).max() < 0.002
