from __future__ import annotations

import copy

import torch
from torch import Tensor

from training.features import band_centres
from training.polish import FRAMES, WEIGHTS, Batch, bridged, distances, losses
from training.render import RATE
from voicelab.engine.pointer.codec import STEP, Codec, Filters, Vocoder
from voicelab.engine.pointer.config import CodecConfig


def _noise(seed: int, low: float, high: float) -> Tensor:
    """A second of noise between two frequencies."""
    spectrum = torch.fft.rfft(torch.randn(RATE, generator=torch.Generator().manual_seed(seed)) * 0.1)
    hz = torch.fft.rfftfreq(RATE, 1 / RATE)
    noise: Tensor = torch.fft.irfft(spectrum * ((hz >= low) & (hz < high)), n=RATE)[None]
    return noise


def test_what_lies_above_the_teachers_band_is_not_compared() -> None:
    said, treble = _noise(0, 0, 22_050), 2 * _noise(1, 12_000, 22_050)
    low, high = torch.tensor([9000.0]), torch.tensor([22_050.0])
    assert sum(float(d) for d in distances(said + treble, said, low)) < 0.02
    assert float(distances(said + treble, said, high)[0]) > 0.1


def test_mean_spectra_tell_a_coloured_voice_where_moments_hardly_do() -> None:
    """Another noise of the same spectrum differs at every moment, and not in the mean."""
    said, top = _noise(0, 0, 22_050), torch.tensor([9000.0])
    other = distances(_noise(1, 0, 22_050), said, top)
    coloured = distances(_noise(1, 0, 22_050) + _noise(1, 2000, 4000), said, top)
    assert other[1] < 0.12
    assert coloured[1] > 2 * other[1]
    assert coloured[0] < 2 * other[0]


def test_where_the_teacher_fades_a_line_leads_to_the_treble() -> None:
    centres = band_centres(Vocoder(RATE, 100))
    tops = torch.tensor([6880.0, 8000.0])
    fades = ((centres > tops[:, None]) & (centres < tops[:, None] / 0.86))[:, None]
    falling = torch.linspace(-2, -6, 100).expand(2, 5, 100)
    found = bridged(Filters(torch.ones(2, 5), falling - 3.0 * fades, falling, -7.8), tops, centres)
    assert fades.sum() > 4
    assert torch.allclose(found.envelope, falling, atol=1e-5)
    assert torch.allclose(found.voicing, falling, atol=1e-5)


def test_a_decoder_learns_from_audio() -> None:
    torch.manual_seed(0)
    config = CodecConfig(codebooks=(16, 8), latent=6, width=16, fine_width=12, depth=2, filter_bands=40, phones=4)
    codec, wanted = Codec(config).requires_grad_(False), Codec(config).requires_grad_(False)
    for part in (codec, wanted):
        part.decoder.linear.bias.fill_(-3.0)
    wanted.decoder.linear.bias.data += torch.linspace(0.5, -0.5, 40).repeat(codec.decoder.steps)
    codes = torch.randint(8, (2, FRAMES, 2))
    latents = codec.quantizer.decode(codes)
    found, _ = wanted.decoder.filters(latents)
    audio = wanted.decoder(latents)[0]
    f0 = found.f0 * (torch.arange(found.f0.shape[1]) % 100 < 70)  # not voiced everywhere
    batch = Batch(codes, audio[:, : FRAMES * config.hop], f0, torch.full((2,), 8000.0))
    assert f0.shape[1] == FRAMES * config.hop // STEP
    decoder, centres = copy.deepcopy(codec.decoder).requires_grad_(True), band_centres(codec.decoder.vocoder)
    optimizer = torch.optim.AdamW(decoder.parameters(), lr=5e-3)
    history = []
    for _ in range(15):
        parts = losses(decoder, codec.decoder, latents, batch, centres)
        loss = torch.stack([WEIGHTS[name] * part for name, part in parts.items()]).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        history.append({name: float(part.detach()) for name, part in parts.items()})
    assert history[-1]["means"] < 0.7 * history[0]["means"]
    assert history[-1]["octaves"] < history[0]["octaves"]
    assert history[0]["above"] < 0.05  # a straight line is near what falls so slowly
