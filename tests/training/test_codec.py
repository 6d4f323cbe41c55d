from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from training.codec import WARM, Training, train
from training.features import VOICING_BANDS, envelopes, f0_at, phones_at, voicing
from training.render import RATE, Phone, Utterance
from voicelab.engine.pointer.codec import LAG, STEP, Vocoder
from voicelab.engine.pointer.config import CodecConfig
from voicelab.engine.pointer.phones import PHONES


def utterance() -> Utterance:
    phones = (Phone("^", 0.1, "-", False), Phone("ae1", 0.3, "at", True), Phone("t", 0.35, "at", False))
    f0 = np.array([0.0] * 20 + list(np.linspace(100, 140, 40)) + [0.0] * 10, dtype=np.float32)
    return Utterance("at", 0, phones, np.zeros(16_000, np.int16), 16_000, f0, 0.005)


def test_the_envelope_of_what_the_vocoder_makes_is_the_sum_of_its_filters() -> None:
    """The guide to the codec's training measures just what the decoder sets."""
    vocoder = Vocoder(44_100, 100)
    bands = torch.arange(100.0)
    harmonic = (-3.0 - 0.03 * bands + 0.5 * torch.sin(bands / 9)).expand(1, 240, 100)
    noise = harmonic - 2.0
    f0 = torch.full((1, 240), 130.0)
    audio, _ = vocoder(f0, harmonic, noise)
    found = envelopes(audio, f0, vocoder)[0, 20:-20, 8:]
    wanted = 0.5 * torch.log(torch.exp(2 * harmonic) + torch.exp(2 * noise))[0, 20:-20, 8:]
    assert (found - wanted).mean(0).abs().max() < 0.2
    assert (found - wanted).abs().mean() < 0.12


def test_f0_is_read_where_it_is_voiced_and_zero_elsewhere() -> None:
    found = f0_at(utterance(), np.array([0.05, 0.2, 0.33, 2.0]))
    assert found[0] == 0
    assert 119 < found[1] < 122
    assert found[2] == 0
    assert found[3] == 0


def test_the_phone_of_a_time_is_the_one_spoken_then() -> None:
    names = [PHONES[i] for i in phones_at(utterance(), np.array([0.05, 0.2, 0.34, 9.0]))]
    assert names == ["^", "ae1", "t", "t"]


def test_codebooks_begin_at_the_data_and_the_residual_shrinks_with_each() -> None:
    torch.manual_seed(0)
    config = CodecConfig(
        codebooks=(16, 8, 8), latent=6, width=16, fine_width=12, depth=2, filter_bands=20, phones=len(PHONES)
    )
    training = Training(config).eval()
    latents = torch.randn(400, 6)
    training.start_codebooks(latents)
    codes = training.codec.quantizer.encode(latents, beams=1)
    errors = []
    rest = latents
    for i, table in enumerate(training.codec.quantizer.tables):
        rest = rest - table[codes[:, i]]
        errors.append(float(rest.square().mean()))
    assert errors[0] < 0.7
    assert errors[2] < errors[1] < errors[0]


def test_a_pulse_train_is_voice_and_noise_is_not() -> None:
    """F0 glides: only after time has been warped do the harmonics stand still."""
    vocoder = Vocoder(RATE, 100)
    glide = torch.linspace(110, 150, 240)[None]
    loud, faint = torch.full((1, 240, 100), -3.0), torch.full((1, 240, 100), -12.0)
    for harmonic, noise, low, high in ((loud, faint, 0.9, 1.0), (faint, loud, 0.0, 0.15), (loud, loud, 0.35, 0.65)):
        audio, _ = vocoder(glide, harmonic, noise)
        share = voicing(audio[0, LAG:].numpy(), glide[0, : -LAG // STEP].numpy())
        assert share.shape == (240 - LAG // STEP, VOICING_BANDS)
        assert low <= float(share[30:-30].mean()) <= high
    assert float(voicing(audio[0].numpy(), np.zeros(240, np.float32)).abs().max()) == 0


def test_a_codec_that_would_end_before_its_codebooks_begin_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=f"steps is {WARM}"):
        train(tmp_path, WARM)
    assert not list(tmp_path.iterdir())
