"""The codec: streaming, causality, lengths, quantization and filters."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor

from tests.engine.tiny import numpy_codec
from voicelab.engine.core.layers import Carry
from voicelab.engine.pointer.codec import Codec, DecoderStream, Filters, TorchCodec, Vocoder
from voicelab.engine.pointer.numpy_codec import LAG, NOISE_STEPS, STEP, WINDOW, noise_spectra
from voicelab.engine.pointer.rows import random_numbers

FRAMES = 12


def _codes(codec: Codec, frames: int = FRAMES, batch: int = 1) -> Tensor:
    generator = torch.Generator().manual_seed(7)
    return torch.stack(
        [torch.randint(size, (batch, frames), generator=generator) for size in codec.config.codebooks], dim=-1
    )


def _same(found: Tensor, wanted: Tensor) -> None:
    # The last digit of F0 depends on the shapes that torch computed with, and high harmonics multiply it by hundreds.
    # What users hear is exact all the same: every mode decodes in the same pieces, streamed or collected.
    assert float((found - wanted).square().mean().sqrt()) < 4e-3 * float(wanted.square().mean().sqrt())
    assert float((found - wanted).abs().max()) < 3e-2 * float(wanted.abs().max())


@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(cuts=st.lists(st.integers(0, FRAMES), max_size=6), tilt=st.floats(-1, 1))
def test_streaming_equals_decoding_at_once(codec: Codec, cuts: list[int], tilt: float) -> None:
    codes, gain = _codes(codec), torch.linspace(-tilt, tilt, codec.config.filter_bands)
    whole = codec.decode(codes, gain)
    stream = DecoderStream(codec, gain)
    bounds = [0, *sorted(cuts), FRAMES]
    parts = [stream.feed(codes[:, a:b], final=i == len(cuts)) for i, (a, b) in enumerate(pairwise(bounds))]
    streamed = torch.cat(parts, dim=1)
    assert streamed.shape == whole.shape == (1, FRAMES * codec.config.hop)
    _same(streamed, whole)


def test_each_block_returns_all_completed_samples(codec: Codec) -> None:
    stream, codes, hop = DecoderStream(codec), _codes(codec), codec.config.hop
    sizes = [stream.feed(codes[:, i : i + 1]).shape[1] for i in range(3)]
    assert [*sizes, stream.feed(codes[:, :0], final=True).shape[1]] == [hop - LAG, hop, hop, LAG]


def test_decoder_is_causal(codec: Codec) -> None:
    codes, hop = _codes(codec), codec.config.hop
    changed = codes.clone()
    changed[:, 6] = (changed[:, 6] + 1) % 8
    before, after = codec.decode(codes), codec.decode(changed)
    edge = 6 * hop - LAG
    assert torch.equal(before[:, :edge], after[:, :edge])
    assert not torch.allclose(before[:, edge : edge + hop], after[:, edge : edge + hop], atol=1e-3)


def test_streams_are_independent(codec: Codec) -> None:
    codes = _codes(codec, batch=3)
    together = codec.decode(codes)
    for row in range(3):
        alone = codec.decode(codes[row : row + 1])
        _same(together[row : row + 1], alone)


def test_the_test_codec_varies_and_stays_finite(codec: Codec) -> None:
    audio = codec.decode(_codes(codec, 40))
    assert torch.isfinite(audio).all()
    found = codec.decoder.filters(codec.quantizer.decode(_codes(codec, 40)), Carry([None]))
    assert float(found.f0.std()) > 5  # else the tests above would pass on a constant


def test_f0_and_gains_are_bounded(codec: Codec) -> None:
    found = codec.decoder.filters(torch.randn(2, 9, codec.config.latent) * 1e4, Carry([None]))
    assert float(found.f0.min()) >= 120 * 2**-1.5 - 1e-3
    assert float(found.f0.max()) <= 120 * 2**2.5 + 1e-3
    for gains in (found.harmonic, found.noise):
        assert gains.shape == (2, 9 * codec.config.hop // 256, codec.config.filter_bands)
        assert float(gains.min()) >= -14
        assert float(gains.max()) <= 4


@pytest.mark.parametrize("extra", [0, 1, 1000, 2047])
def test_encoding_pads_to_whole_frames(codec: Codec, extra: int) -> None:
    hop = codec.config.hop
    samples = torch.randn(2, 3 * hop + extra) * 0.1
    codes = codec.encode(samples)
    assert codes.shape == (2, 4 if extra else 3, len(codec.config.codebooks))
    assert codes.dtype == torch.int64
    for i, size in enumerate(codec.config.codebooks):
        assert int(codes[..., i].min()) >= 0
        assert int(codes[..., i].max()) < size
    padded = torch.cat([samples, torch.zeros(2, -samples.shape[1] % hop)], dim=1)
    assert torch.equal(codes, codec.encode(padded))


def test_long_windows_resolve_a_tone(codec: Codec) -> None:
    hop, rate, bands = codec.config.hop, codec.config.sample_rate, codec.config.mel_bands
    time = torch.arange(8 * hop) / rate
    spectrum = codec.spectrum(torch.sin(2 * torch.pi * 150 * time)[None])
    steps = hop // STEP
    assert spectrum.shape == (1, 8, steps * bands + steps // 2 * codec.config.linear_bins)
    linear = spectrum[0, 4, steps * bands :].reshape(steps // 2, -1)[1]
    assert int(linear.argmax()) == round(150 / (rate / 2048)) - 1  # the bins begin after DC


def test_short_windows_localize_a_click(codec: Codec) -> None:
    hop, bands = codec.config.hop, codec.config.mel_bands
    samples = torch.zeros(1, 8 * hop)
    samples[0, 4 * hop + 3 * STEP + STEP // 2] = 1.0
    levels = codec.spectrum(samples)[0, :, : hop // STEP * bands].reshape(-1, bands).mean(-1)
    assert int(levels.argmax()) == 4 * hop // STEP + 3
    assert float(levels[4 * hop // STEP - 1]) == float(levels.min())


def test_no_mel_band_is_empty(codec: Codec) -> None:
    assert float(codec.spectrum.mel.max(0).values.min()) > 0.2 / 1024


def test_one_beam_is_greedy_residual_quantization(codec: Codec) -> None:
    latents = torch.randn(1, 50, codec.config.latent)
    codes, rest = codec.quantizer.encode(latents, beams=1), latents
    for i, table in enumerate(codec.quantizer.tables):
        nearest = torch.cdist(rest, table[None]).argmin(-1)
        assert torch.equal(codes[..., i], nearest)
        rest = rest - table[nearest]
    torch.testing.assert_close(codec.quantizer.decode(codes), latents - rest)


def test_more_beams_reduce_quantization_error(codec: Codec) -> None:
    latents = torch.randn(1, 60, codec.config.latent)

    def errors(beams: int) -> Tensor:
        return (codec.quantizer.decode(codec.quantizer.encode(latents, beams)) - latents).square().sum(-1)[0]

    one, four, every = errors(1), errors(4), errors(16 * 8 * 8)
    sums = codec.quantizer.decode(torch.cartesian_prod(*(torch.arange(n) for n in codec.config.codebooks)))
    torch.testing.assert_close(every, torch.cdist(latents[0], sums).square().min(1).values, rtol=1e-3, atol=1e-4)
    assert float(four.sum()) < float(one.sum())


def test_noise_floor_is_not_rendered() -> None:
    filters = Filters(torch.full((1, 3), 100.0), torch.tensor([-8.0, -7.0, -3.0])[None, :, None], torch.zeros(1, 3, 1))
    assert filters.noise.flatten().tolist() == pytest.approx([-14.0, -7.458, -3.347], abs=2e-3)


def test_the_sources_share_the_envelope() -> None:
    even = torch.tensor([-3.0, -1.0, 0.5]).repeat(9, 1).T[None]  # the same in all bands, so that nothing is sharpened
    found = Filters(torch.full((1, 3), 100.0), even, torch.randn(1, 3, 9))
    both = 0.5 * torch.log(torch.exp(2 * found.harmonic) + torch.exp(2 * found.noise))
    torch.testing.assert_close(both, even, atol=2e-3, rtol=0)


def test_sharpening_restores_narrow_peaks() -> None:
    """Bands and synthesis window smear a peak; without sharpening it would be too low."""
    rate, bands, steps = 44_100, 100, 172
    peaks = torch.full((1, steps, bands), -4.0)
    for beside, level in ((-1, -3.25), (0, -2.5), (1, -3.25)):
        peaks[..., 30 + beside : 97 : 10] = level
    filters = Filters(torch.full((1, steps), 100.0), peaks, torch.full((1, steps, bands), -12.0))
    vocoder = Vocoder(rate, bands)

    def heights(noise: Tensor) -> Tensor:
        made = vocoder(filters.f0, torch.full_like(peaks, -14), noise, Carry([None]))
        power = (
            torch.stft(made[0, 4096:], 1024, 256, window=torch.hann_window(1024), return_complex=True).abs().square()
        )
        level = 0.5 * torch.log(power.mean(1) @ (vocoder.spread / vocoder.spread.sum(1, keepdim=True)).T)
        return (level[30:100:10] - level[35:100:10]).mean()

    assert float(heights(peaks)) < 1.3
    assert float(heights(filters.noise)) == pytest.approx(1.5, abs=0.2)


def test_codes_survive_the_quantizer(codec: Codec) -> None:
    table = codec.quantizer.tables[0]
    assert torch.equal(codec.quantizer.encode(table[None], beams=1)[0, :, 0], torch.arange(table.shape[0]))


def test_a_stream_without_frames_is_empty(codec: Codec) -> None:
    stream = DecoderStream(codec)
    assert stream.feed(_codes(codec)[:, :0]).shape == (1, 0)
    assert stream.feed(_codes(codec)[:, :0], final=True).shape == (1, 0)


def test_numpy_equals_torch(codec: Codec) -> None:
    """Encoder, quantizer, and decoder: whole, and in blocks, with a speaker's gain."""
    arrays, codes = numpy_codec(codec), _codes(codec, 30)[0].numpy()
    samples = (0.1 * np.random.default_rng(0).normal(size=5 * codec.config.hop + 7)).astype(np.float32)
    latents = codec.latents(torch.from_numpy(samples)[None])[0].numpy()
    np.testing.assert_allclose(arrays.latents(samples), latents, atol=1e-4)
    wanted = codec.quantizer.encode(torch.from_numpy(latents)[None])[0].numpy()
    np.testing.assert_array_equal(arrays.quantize(latents), wanted)
    for gain in (None, np.linspace(-1, 1, codec.config.filter_bands, dtype=np.float32)):
        for bounds in ((0, 30), (0, 1, 2, 20, 30)):
            twin, stream = TorchCodec(codec).open(gain), arrays.open(gain)
            for first, last in pairwise(bounds):
                block = codes[first:last]
                decoded, expected = (one.feed(block, final=last == 30) for one in (stream, twin))
                _same(torch.from_numpy(decoded), torch.from_numpy(expected))


def test_a_numpy_stream_returns_all_completed_samples(codec: Codec) -> None:
    arrays, codes, hop = numpy_codec(codec), _codes(codec)[0].numpy(), codec.config.hop
    stream = arrays.open()
    sizes = [stream.feed(codes[i : i + 1]).size for i in range(3)]
    assert [*sizes, stream.feed(codes[:0], final=True).size] == [hop - LAG, hop, hop, LAG]
    empty = arrays.open()
    assert [empty.feed(codes[:0], final).size for final in (False, True)] == [0, 0]


def test_noise_is_that_of_torch() -> None:
    noise = torch.randn(NOISE_STEPS * STEP, generator=torch.Generator().manual_seed(1))
    frames = torch.cat([noise, noise[:LAG]]).unfold(0, WINDOW, STEP)
    np.testing.assert_allclose(noise_spectra(), torch.fft.rfft(frames * torch.hann_window(WINDOW)).numpy(), atol=1e-4)


@pytest.mark.parametrize("seed", [0, 7, 2**32 - 1])
def test_random_numbers_are_those_of_torch(seed: int) -> None:
    draw, generator = random_numbers(seed), torch.Generator().manual_seed(seed)
    for count in (8, 3, 8, 15):
        assert draw(count).tolist() == torch.rand(count, generator=generator).tolist()
