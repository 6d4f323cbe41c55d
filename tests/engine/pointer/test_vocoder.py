"""The vocoder: pitch, level, spectrum, streaming and causality."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from voicelab.engine.core.layers import Carry, State
from voicelab.engine.pointer.codec import Vocoder
from voicelab.engine.pointer.numpy_codec import LAG, STEP

RATE, BANDS = 44_100, 32
QUIET = -14.0


@pytest.fixture(scope="module")
def vocoder() -> Vocoder:
    return Vocoder(RATE, BANDS)


def _flat(steps: int, gain: float, batch: int = 1) -> Tensor:
    return torch.full((batch, steps, BANDS), gain)


def _render(vocoder: Vocoder, f0: float, harmonic: float, noise: float, steps: int = 172) -> Tensor:
    out = vocoder(torch.full((1, steps), f0), _flat(steps, harmonic), _flat(steps, noise), Carry([None]))
    rendered: Tensor = out[0, LAG:]
    return rendered


def _peak(samples: Tensor, low: float, high: float) -> float:
    """Peak frequency in a range, in Hz."""
    spectrum = torch.fft.rfft(samples.double() * torch.hann_window(samples.shape[0], dtype=torch.float64), n=1 << 20)
    hz = RATE / (1 << 20)
    first = int(low / hz)
    return (first + int(spectrum.abs()[first : int(high / hz)].argmax())) * hz


@pytest.mark.parametrize("f0", [61.7, 120.0, 233.1, 441.0, 640.0])
def test_pitch(vocoder: Vocoder, f0: float) -> None:
    steady = _render(vocoder, f0, 0.0, QUIET)[2048:]
    for harmonic in (1, 2, 5):
        peak = _peak(steady, (harmonic - 0.5) * f0, (harmonic + 0.5) * f0)
        assert peak == pytest.approx(harmonic * f0, abs=0.6)


def test_noise_has_no_pitch(vocoder: Vocoder) -> None:
    noise = _render(vocoder, 120.0, QUIET, 0.0)[2048:]
    flat = torch.fft.rfft(noise[: 1 << 15]).abs().square()[1:16_129].reshape(16, -1).mean(1)
    assert float(flat.max() / flat.min()) < 1.4


@pytest.mark.parametrize(
    ("f0", "gain"), [*((f0, 0.0) for f0 in (80.0, 150.0, 300.0, 600.0)), *((130.0, gain) for gain in (-3.0, -1.0, 1.0))]
)
def test_a_log_gain_is_a_level_at_any_pitch(vocoder: Vocoder, f0: float, gain: float) -> None:
    for harmonic, noise in ((gain, QUIET), (QUIET, gain)):
        rms = float(_render(vocoder, f0, harmonic, noise)[2048:].square().mean().sqrt())
        assert math.log(rms) == pytest.approx(gain, abs=0.03)


def test_a_filter_shapes_the_spectrum(vocoder: Vocoder) -> None:
    steps = 172
    gains = _flat(steps, QUIET)
    gains[..., :12] = 0.0  # mel-spaced: about 0 to 1.9 kHz of 22 kHz
    out = vocoder(torch.full((1, steps), 120.0), _flat(steps, QUIET), gains, Carry([None]))
    power = torch.fft.rfft(out[0, 4096:]).abs().square()
    share = power[: power.shape[0] // 8].sum() / power.sum()
    assert float(share) > 0.999


def test_silence(vocoder: Vocoder) -> None:
    assert float(_render(vocoder, 120.0, QUIET, QUIET).abs().max()) < 1e-4


def _lively(steps: int, batch: int = 2) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(5)
    f0 = 80 + 400 * torch.rand(batch, steps, generator=generator)
    gains = torch.randn(2, batch, steps, BANDS, generator=generator) - 1
    return f0, gains[0], gains[1]


@settings(max_examples=10, deadline=None)
@given(st.lists(st.integers(1, 19), max_size=5, unique=True))
def test_streaming_equals_rendering_at_once(cuts: list[int]) -> None:
    vocoder = Vocoder(RATE, BANDS)
    f0, harmonic, noise = _lively(20)
    whole = vocoder(f0, harmonic, noise, Carry([None]))
    state: State | None = None
    parts, edges = [], [0, *sorted(cuts), 20]
    for a, b in pairwise(edges):
        carry = Carry([state])
        made = vocoder(f0[:, a:b], harmonic[:, a:b], noise[:, a:b], carry)
        state = tuple(carry.after)
        assert made.shape == (2, (b - a) * STEP)
        parts.append(made)
    torch.testing.assert_close(torch.cat(parts, dim=1), whole, atol=2e-4, rtol=1e-4)


def test_step_is_causal(vocoder: Vocoder) -> None:
    f0, harmonic, noise = _lively(20, batch=1)
    changed = noise.clone()
    changed[:, 9] += 2
    before, after = (vocoder(f0, harmonic, one, Carry([None])) for one in (noise, changed))
    first = int((before != after).flatten().nonzero()[0])
    assert 9 * STEP <= first < 9 * STEP + 8  # the window begins at zero
    last = int((before != after).flatten().nonzero()[-1])
    assert last < 9 * STEP + LAG + STEP
    bent = f0.clone()
    bent[:, 9:] *= 1.5
    other = vocoder(bent, harmonic, noise, Carry([None]))
    assert torch.equal(before[:, : 9 * STEP], other[:, : 9 * STEP])


def test_long_stream_keeps_pitch_after_noise_wraps(vocoder: Vocoder) -> None:
    f0 = 97.3
    state: State | None = None
    parts = []
    for _ in range(10):  # 8 s: the phase is summed over 350,000 samples, the noise repeats after 344 steps
        carry = Carry([state])
        parts.append(vocoder(torch.full((1, 140), f0), _flat(140, 0.0), _flat(140, QUIET), carry))
        state = tuple(carry.after)
    samples = torch.cat(parts, dim=1)[0, 4 * RATE :]
    assert float(samples.abs().max()) < 100
    assert _peak(samples, 60, 150) == pytest.approx(f0, abs=0.05)


def test_a_glide_does_not_click(vocoder: Vocoder) -> None:
    steps = 86
    f0 = torch.linspace(100, 300, steps)[None]
    out = vocoder(f0, _flat(steps, 0.0), _flat(steps, QUIET), Carry([None]))
    # The top harmonic leaves or enters about 140 times on the way; what is above it must stay far below the pulses.
    steady = vocoder(torch.full((1, steps), 200.0), _flat(steps, 0.0), _flat(steps, QUIET), Carry([None]))
    assert float(out[0, LAG:].abs().max()) < 1.6 * float(steady[0, LAG:].abs().max())
