from __future__ import annotations

import numpy as np
import pytest

from training import trim
from training.kokoro import FRAME, RATE
from training.plan import Request
from training.render import Rendering


def rendering(level: float = 0.05) -> Rendering:
    """Half a second of a buzz at 150 Hz between .4 s and .9 s, a phone and a full stop, under a rumble."""
    durations = np.array([18, 22, 10, 1], np.uint8)
    frames = int(durations.sum())
    at = np.arange(frames * FRAME) / RATE
    buzz = np.zeros(at.size)
    for harmonic in range(1, 60):
        buzz += np.cos(2 * np.pi * 150 * harmonic * at)
    buzz *= level / buzz.std() * ((at > 0.4) & (at < 0.9))
    samples = buzz + 0.005 * np.sin(2 * np.pi * 15 * at)
    asked = Request(3, "stock", "af_sky", (("af_sky", 1.0),), "en", "ah.", 1.0, 0)
    f0, energy = np.full(2 * frames, 149, np.float32), np.ones(2 * frames, np.float32)
    return Rendering(asked, "a.", durations, f0, energy, np.round(samples * 32768).astype(np.int16), 1.0)


def test_silence_is_trimmed_and_the_phones_move_with_the_audio() -> None:
    audio, phones = trim.trimmed(rendering())
    assert [p.name for p in phones] == ["a", "."]
    assert phones[0].start == pytest.approx(trim.LEAD, abs=1e-3)
    assert phones[0].end == pytest.approx(trim.LEAD + 0.5, abs=0.02)
    assert phones[-1].end == pytest.approx(audio.size / RATE, abs=1e-3)
    assert audio.size / RATE == pytest.approx(0.5 + trim.LEAD + trim.TAIL, abs=0.02)


def test_voices_of_any_level_come_to_one_and_rumble_goes() -> None:
    for level in (0.02, 0.06):
        found = trim.levelled(rendering(level).audio())
        middle = found[round(0.5 * RATE) : round(0.8 * RATE)]
        assert np.sqrt(np.mean(np.square(middle))) == pytest.approx(trim.LEVEL, rel=0.1)
    assert np.abs(found[: round(0.3 * RATE)]).max() < 0.002
