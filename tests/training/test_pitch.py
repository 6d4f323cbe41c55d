from __future__ import annotations

import numpy as np
import torch

from training import pitch
from training.render import RATE
from voicelab.engine.pointer.codec import STEP, Vocoder


def test_a_gliding_voice_is_followed_and_noise_has_no_pitch() -> None:
    vocoder = Vocoder(RATE, 100)
    for low, high in ((75, 130), (180, 420)):
        glide = torch.linspace(low, high, 240)[None]
        loud = (-2.0 - 0.06 * torch.arange(100.0)).expand(1, 240, 100)  # falling, as a voice's power does
        faint = loud - 6.0
        voice, hiss = (vocoder(glide, *filters)[0][0].numpy() for filters in ((loud, faint), (faint, loud)))
        found = pitch.track(voice, RATE)[20:-20]
        true = np.interp((20 + np.arange(found.size)) * pitch.STEP, np.arange(1, 241) * STEP / RATE, glide[0].numpy())
        assert (found > 0).mean() > 0.95
        assert np.abs(12 * np.log2(found / true))[found > 0].max() < 0.5
        assert (pitch.track(hiss, RATE) > 0).mean() < 0.1


def test_silence_has_no_pitch() -> None:
    assert not pitch.track(np.zeros(RATE, np.float32), RATE).any()
