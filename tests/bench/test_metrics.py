"""What bench/metrics.py measures is what it says."""

from __future__ import annotations

import metrics
import numpy as np

from tests.speechlike import RATE, speechlike
from voicelab.clip import Clip


def test_both_ways_measure_every_take() -> None:
    clips = [Clip(speechlike(1.0, pitch=pitch) * np.float32(0.9), RATE) for pitch in (110, 150, 200)]
    found = metrics.basic(clips)
    assert found["rows"] == 3
    assert found["memory_s"] > 0
    assert found["encoded_s"] > 0
    assert found["defined"] > 0.8
