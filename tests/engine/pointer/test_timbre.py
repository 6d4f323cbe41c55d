"""The filter that gives a clone its speaker's long-term spectrum."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.engine.tiny import CODEC, make_codec, numpy_codec
from voicelab.engine.pointer.arrays import Floats
from voicelab.engine.pointer.codec import Filters
from voicelab.engine.pointer.config import CodecConfig
from voicelab.engine.pointer.numpy_codec import SILENCE
from voicelab.engine.pointer.speakers import (
    HIGHEST_HZ,
    MAX_REFERENCE_S,
    TelephoneBand,
    gain_of,
    limit_band,
    mean_power,
    powers,
)

RATE, BANDS = 44_100, 60
HZ = 700 * (10 ** (np.linspace(0, 2595 * np.log10(1 + RATE / 2 / 700), BANDS) / 2595) - 1)


CONFIG = CodecConfig(filter_bands=BANDS)


def _power(samples: Tensor) -> Floats:
    return mean_power(samples.numpy(), CONFIG)


def _speech(seed: int) -> Tensor:
    """Noise with pauses, as speech has them."""
    return torch.cat([_noise(seed=seed), torch.zeros(RATE // 2)])


def _noise(seconds: float = 4.0, seed: int = 0) -> Tensor:
    return 0.05 * torch.randn(int(seconds * RATE), generator=torch.Generator().manual_seed(seed))


def _tilted(samples: Tensor, db: float) -> Tensor:
    """Apply a spectral tilt in dB between 100 Hz and 8 kHz, linear in octaves."""
    spectrum, hertz = torch.fft.rfft(samples), torch.fft.rfftfreq(samples.shape[0], 1 / RATE).clamp(min=100.0)
    octaves = torch.log2(hertz / 100) / np.log2(80)
    tilted: Tensor = torch.fft.irfft(spectrum * 10 ** (db * octaves / 20), samples.shape[0])
    return tilted


def test_gain_is_the_filter_between_two_spectra() -> None:
    said, wanted = _speech(seed=1), _tilted(_speech(seed=2), 8.0)
    gain = gain_of(_power(wanted), _power(said), RATE)
    low, high = (int(np.abs(HZ - hz).argmin()) for hz in (400.0, 3200.0))
    expected = 8.0 * (np.log2(HZ[high] / HZ[low]) / np.log2(80))
    assert float(gain[high] - gain[low]) * 20 / np.log(10) == pytest.approx(expected, abs=0.5)
    same = gain_of(_power(_speech(seed=3)), _power(said), RATE)
    assert float(np.abs(same).max()) < 0.06


@pytest.mark.parametrize("db", [-20.0, 3.0, 30.0])
def test_gain_ignores_loudness(db: float) -> None:
    wanted = _power(_tilted(_speech(seed=2), 6.0))
    said = _power(_speech(seed=1))
    np.testing.assert_allclose(gain_of(wanted * 10 ** (db / 10), said, RATE), gain_of(wanted, said, RATE), atol=1e-4)


def test_pauses_and_room_noise_are_excluded() -> None:
    speech = _tilted(_speech(seed=2), 6.0)
    paused = torch.cat([speech, torch.zeros(8 * RATE)])
    np.testing.assert_allclose(_power(paused), _power(speech), rtol=0.05)
    noisy = speech + 0.25 * _tilted(_noise(4.5, seed=4), -12.0)
    np.testing.assert_allclose(_power(noisy), _power(speech), rtol=0.2)


def test_noisy_bands_are_unchanged() -> None:
    dark = _tilted(_speech(seed=2), -40.0)
    gain = gain_of(_power(dark + 0.1 * _noise(4.5, seed=4)), _power(dark), RATE)
    assert not gain[HZ > 5000].any()
    assert float(np.abs(gain[HZ < 1000]).max()) < 0.1


@pytest.mark.parametrize("top", [5_000.0, 7_600.0])
def test_absent_bands_are_unchanged(top: float) -> None:
    narrow = torch.from_numpy(limit_band(_tilted(_speech(seed=2), 6.0).numpy(), RATE, TelephoneBand(0.0, top)))
    gain = gain_of(_power(narrow), _power(_speech(seed=1)), RATE)
    assert not gain[(HZ < 50) | (1.06 * top < HZ)].any()
    assert float(np.abs(gain[top < HZ]).max()) < 0.2  # the mean with what is below
    assert float(np.abs(gain[(HZ > 200) & (0.8 * top > HZ)]).max()) > 0.1


def test_extreme_gains_are_finite_and_bounded() -> None:
    said = _power(_speech(seed=0))
    tone = 0.1 * torch.sin(2 * torch.pi * 300 * torch.arange(RATE) / RATE)
    for wanted in (tone, tone[:200], torch.zeros(RATE), _noise(), _tilted(_speech(seed=1), 70.0)):
        gain = gain_of(_power(wanted), said, RATE)
        assert gain.shape == (BANDS,)
        assert np.isfinite(gain).all()
        assert float(np.abs(gain).max()) <= 1.2001
        assert not gain[HZ > HIGHEST_HZ * 1.1].any()


def test_gain_applies_to_both_sources() -> None:
    """Silence stays silent."""
    generator = torch.Generator().manual_seed(0)
    envelope = torch.cat([torch.rand(1, 5, BANDS, generator=generator) - 3, torch.full((1, 5, BANDS), SILENCE)], 1)
    voicing, gain = torch.randn(1, 10, BANDS, generator=generator), torch.linspace(-1, 1, BANDS)
    plain, other = (Filters(torch.full((1, 10), 120.0), envelope, voicing, added) for added in (None, gain))
    for source in ("harmonic", "noise"):
        before, after = getattr(plain, source), getattr(other, source)
        torch.testing.assert_close(after[:, :5], before[:, :5] + gain)
        assert float(after[:, 5:].max()) < -12


def test_powers_use_the_analyzed_duration() -> None:
    """Only the beginning of a long recording is analyzed."""
    codec = numpy_codec(make_codec())
    rate, hop = codec.config.sample_rate, codec.config.hop
    samples = _noise(34.0).numpy()
    latents = codec.dequantize(codec.quantize(codec.latents(samples)))
    found = powers(codec, samples, latents)
    assert found.shape == (2, CODEC.filter_bands)
    frames = int(MAX_REFERENCE_S * rate) // hop
    np.testing.assert_allclose(found, powers(codec, samples[: frames * hop], latents[:frames]))
    assert not np.allclose(found, powers(codec, samples[: 9 * hop], latents[:9]), rtol=0.01)
