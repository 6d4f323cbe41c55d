"""bench/metrics.py measures every take."""

from __future__ import annotations

import metrics
import numpy as np

from tests.speechlike import RATE, speechlike
from voicelab.clip import Clip


def test_clips_and_files_are_measured() -> None:
    clips = [Clip(speechlike(1.0, pitch=pitch) * np.float32(0.9), RATE) for pitch in (110, 150, 200)]
    figures = metrics.basic(clips)
    assert figures["rows"] == 3
    assert figures["memory_s"] > 0
    assert min(figures["collect_files_s"], figures["first_display_s"], figures["measure_files_s"]) > 0
    assert figures["defined"] > 0.8
