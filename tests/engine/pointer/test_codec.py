"""Codes to audio and back: streamed is whole, causal, and of the lengths that the contract names."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor

from tests.engine.tiny import CODEC, REFINED, make_codec
from voicelab.engine.pointer.codec import STEP, Codec, DecoderStream, Filters

FRAMES = 12


@pytest.fixture(scope="module", params=[CODEC, REFINED], ids=["embedded", "refined"])
def kind(request: pytest.FixtureRequest) -> Codec:
    """A codec of either kind."""
    with torch.no_grad():
        return make_codec(config=request.param)


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
@given(cuts=st.lists(st.integers(0, FRAMES), max_size=6))
def test_streamed_is_whole_for_any_pieces(kind: Codec, cuts: list[int]) -> None:
    codes = _codes(kind)
    whole = kind.decode(codes)
    stream = DecoderStream(kind)
    bounds = [0, *sorted(cuts), FRAMES]
    parts = [stream.feed(codes[:, a:b], last=i == len(cuts)) for i, (a, b) in enumerate(pairwise(bounds))]
    streamed = torch.cat(parts, dim=1)
    assert streamed.shape == whole.shape == (1, FRAMES * kind.config.hop)
    _same(streamed, whole)


def test_each_piece_gives_all_samples_it_completes(kind: Codec) -> None:
    stream, codes, hop, lag = DecoderStream(kind), _codes(kind), kind.config.hop, kind.decoder.vocoder.lag
    sizes = [stream.feed(codes[:, i : i + 1]).shape[1] for i in range(3)]
    assert [*sizes, stream.feed(codes[:, :0], last=True).shape[1]] == [
        hop - lag,
        hop,
        hop,
        lag,
    ]


def test_a_frame_changes_no_sample_before_its_window(kind: Codec) -> None:
    codes, hop = _codes(kind), kind.config.hop
    changed = codes.clone()
    changed[:, 6] = (changed[:, 6] + 1) % 8
    before, after = kind.decode(codes), kind.decode(changed)
    edge = 6 * hop - kind.decoder.vocoder.lag
    assert torch.equal(before[:, :edge], after[:, :edge])
    assert not torch.allclose(before[:, edge : edge + hop], after[:, edge : edge + hop], atol=1e-3)


def test_streams_stand_side_by_side(kind: Codec) -> None:
    codes = _codes(kind, batch=3)
    together = kind.decode(codes)
    for row in range(3):
        alone = kind.decode(codes[row : row + 1])
        _same(together[row : row + 1], alone)


def test_a_head_refines_what_the_vocoder_says(kind: Codec) -> None:
    whole = kind.decode(_codes(kind))
    head, kind.decoder.head = kind.decoder.head, None
    plain = kind.decode(_codes(kind))
    kind.decoder.head = head
    assert torch.equal(plain, whole) == (head is None)


def test_one_set_of_weights_says_the_same_at_two_rates() -> None:
    """The teacher's 24 kHz and 44.1 kHz, whose samples meet every 80 and 147."""
    door = make_codec(config=REFINED)
    inside = make_codec(config=replace(REFINED, sample_rate=24_000, hop=1200, step=240, top=None))
    inside.load_state_dict(door.state_dict())
    high, low = door.decode(_codes(door)), inside.decode(_codes(door))
    assert (high.shape[1], low.shape[1]) == (FRAMES * 2205, FRAMES * 1200)
    _same(high[:, ::147], low[:, ::80])
    spectrum = torch.fft.rfft(high[0]).abs()
    above = round(13_000 / 22_050 * spectrum.shape[0])
    assert float(spectrum[above:].square().sum()) < 1e-5 * float(spectrum.square().sum())


def test_what_a_codec_hears_does_not_depend_on_its_rate() -> None:
    door = make_codec(config=REFINED)
    inside = make_codec(config=replace(REFINED, sample_rate=24_000, hop=1200, step=240, top=None))
    tones = [
        torch.sin(2 * torch.pi * 440 * torch.arange(4 * c.config.hop) / c.config.sample_rate) for c in (door, inside)
    ]
    _same(door.spectrum(tones[0][None])[:, 1:-1], inside.spectrum(tones[1][None])[:, 1:-1])


def test_the_test_codec_varies_and_stays_finite(codec: Codec) -> None:
    audio = codec.decode(_codes(codec, 40))
    assert torch.isfinite(audio).all()
    found, _ = codec.decoder.filters(codec.quantizer.decode(_codes(codec, 40)))
    assert float(found.f0.std()) > 5  # else the tests above would pass on a constant


def test_f0_and_gains_stay_within_bounds_for_any_latents(kind: Codec) -> None:
    found, _ = kind.decoder.filters(torch.randn(2, 9, kind.config.latent) * 1e4)
    assert float(found.f0.min()) >= 120 * 2**-1.5 - 1e-3
    assert float(found.f0.max()) <= 120 * 2**2.5 + 1e-3
    for gains in (found.harmonic, found.noise):
        assert gains.shape == (2, 9 * kind.config.hop // kind.config.step, kind.config.filter_bands)
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


def test_the_long_windows_of_the_spectrum_tell_a_tone(codec: Codec) -> None:
    hop, rate, bands = codec.config.hop, codec.config.sample_rate, codec.config.mel_bands
    time = torch.arange(8 * hop) / rate
    spectrum = codec.spectrum(torch.sin(2 * torch.pi * 150 * time)[None])
    steps = hop // STEP
    assert spectrum.shape == (1, 8, steps * bands + steps // 2 * codec.config.linear_bins)
    linear = spectrum[0, 4, steps * bands :].reshape(steps // 2, -1)[1]
    assert int(linear.argmax()) == round(150 / (rate / 2048)) - 1  # the bins begin after DC


def test_the_short_windows_of_the_spectrum_place_a_click_within_a_step_or_two(codec: Codec) -> None:
    hop, bands = codec.config.hop, codec.config.mel_bands
    samples = torch.zeros(1, 8 * hop)
    samples[0, 4 * hop + 3 * STEP + STEP // 2] = 1.0
    levels = codec.spectrum(samples)[0, :, : hop // STEP * bands].reshape(-1, bands).mean(-1)
    assert int(levels.argmax()) == 4 * hop // STEP + 3
    assert float(levels[4 * hop // STEP - 1]) == float(levels.min())


def test_no_mel_band_is_empty(codec: Codec) -> None:
    assert float(codec.spectrum.mel.max(0).values.min()) > 0.2 / 1024


def test_one_beam_codes_what_the_codebooks_before_left_over(codec: Codec) -> None:
    latents = torch.randn(1, 50, codec.config.latent)
    codes, rest = codec.quantizer.encode(latents, beams=1), latents
    for i, table in enumerate(codec.quantizer.tables):
        nearest = torch.cdist(rest, table[None]).argmin(-1)
        assert torch.equal(codes[..., i], nearest)
        rest = rest - table[nearest]
    torch.testing.assert_close(codec.quantizer.decode(codes), latents - rest)


def test_more_beams_find_nearer_sums_and_all_of_them_the_nearest(codec: Codec) -> None:
    latents = torch.randn(1, 60, codec.config.latent)

    def errors(beams: int) -> Tensor:
        return (codec.quantizer.decode(codec.quantizer.encode(latents, beams)) - latents).square().sum(-1)[0]

    one, four, every = errors(1), errors(4), errors(16 * 8 * 8)
    sums = codec.quantizer.decode(torch.cartesian_prod(*(torch.arange(n) for n in codec.config.codebooks)))
    torch.testing.assert_close(every, torch.cdist(latents[0], sums).square().min(1).values, rtol=1e-3, atol=1e-4)
    assert float(four.sum()) < float(one.sum())


def test_what_lies_on_the_floor_is_not_rendered() -> None:
    filters = Filters(
        torch.full((1, 3), 100.0), torch.tensor([-8.0, -7.0, -3.0])[None, :, None], torch.zeros(1, 3, 1), -7.8
    )
    assert filters.noise.flatten().tolist() == pytest.approx([-14.0, -7.458, -3.347], abs=2e-3)


def test_the_sources_share_the_envelope(codec: Codec) -> None:
    found, _ = codec.decoder.filters(torch.randn(1, 5, codec.config.latent))
    both = 0.5 * torch.log(torch.exp(2 * found.harmonic) + torch.exp(2 * found.noise))
    loud = found.envelope > -4
    torch.testing.assert_close(both[loud], found.envelope[loud], atol=2e-3, rtol=0)


def test_codes_survive_the_quantizer(codec: Codec) -> None:
    table = codec.quantizer.tables[0]
    assert torch.equal(codec.quantizer.encode(table[None], beams=1)[0, :, 0], torch.arange(table.shape[0]))


def test_a_stream_without_frames_is_empty(codec: Codec) -> None:
    stream = DecoderStream(codec)
    assert stream.feed(_codes(codec)[:, :0]).shape == (1, 0)
    assert stream.feed(_codes(codec)[:, :0], last=True).shape == (1, 0)
