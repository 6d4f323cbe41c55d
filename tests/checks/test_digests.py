from __future__ import annotations

import numpy as np
import pytest

from voicelab.audio.clip import Clip
from voicelab.checks.digests import digests_in, moved
from voicelab.experiments.replay import Tolerance
from voicelab.views.display import clip_text

WAS = "Clip(2.88 s, 44100 Hz, -26 dBFS, F0 102 Hz, mel -26 -39 -48 dB)"


@pytest.mark.parametrize(
    ("now", "words"),
    [
        (WAS.replace("2.88", "2.92"), "duration +0.04 s (tolerance 0.05): within tolerance"),
        (WAS.replace("2.88", "2.95"), "duration +0.07 s (tolerance 0.05): beyond tolerance"),
        (WAS.replace("-26 dBFS", "-24 dBFS"), "level +2 dB (tolerance 1.5): beyond tolerance"),
        (WAS.replace("102", "108"), "F0 +99 cents (tolerance 50): beyond tolerance"),
        (WAS.replace("F0 102 Hz", "unvoiced"), "F0 gone: beyond tolerance"),
        (WAS.replace("-39 -48", "-41 -44"), "mel band 3 of 3 +4 dB (tolerance 3): beyond tolerance"),
        (WAS.replace(" -48", ""), "2 mel bands instead of 3: beyond tolerance"),
        (WAS, "the figures are the same"),
    ],
)
def test_what_moved_and_by_how_much(now: str, words: str) -> None:
    (was,), (new,) = digests_in(WAS), digests_in(now)
    move = moved(was, new, Tolerance())
    assert str(move) == words
    assert move.beyond is words.endswith("beyond tolerance")


def test_every_line_that_a_clip_shows_is_read() -> None:
    wave = (0.3 * np.sin(2 * np.pi * 220.0 * np.arange(44_100) / 44_100)).astype(np.float32)
    loud, silent = clip_text(Clip(wave, 44_100)), clip_text(Clip(0 * wave, 44_100))
    first, second = digests_in(f"{loud}\n<p>{silent}</p>")
    assert first.f0 == pytest.approx(220.0, abs=1.0)
    assert len(first.mel) == 8
    assert second.f0 is None
    assert second.level < -100
