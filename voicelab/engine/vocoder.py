"""From filters and F0 to samples: a pulse train and a noise, each filtered in the short-time spectrum, overlapped and added.

Harmonic plus noise synthesis (Stylianou 2001; in networks: Engel et al., DDSP, 2020) with a minimum-phase harmonic filter.
Nothing here is learned; everything is differentiable. The pulse train has a closed form (the Dirichlet kernel), so its cost
does not grow with the number of harmonics.

Time is counted in steps of `STEP` samples. The filter of step j covers the window that ends with step j, so nothing
after step j is needed, and samples are complete `LAG` samples after their step: the price of overlapping.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

STEP = 256
WINDOW = 1024
LAG = WINDOW - STEP
"""Samples by which the output is behind the input."""
_NOISE_STEPS = 344
_FLOOR = 1e-5


@dataclass(frozen=True)
class VocoderState:
    """What one stream carries from piece to piece."""

    phase: Tensor
    """(batch,) float64, in cycles."""
    f0: Tensor
    """(batch,) Hz at the end of the last step."""
    source: Tensor
    """(batch, LAG) latest samples of the pulse train."""
    tail: Tensor
    """(batch, LAG) sums still open to later windows."""
    steps: int
    """Steps done: the place in the noise."""


class Vocoder(nn.Module):
    """Renders audio; `bands` filter gains a step for each of the two sources."""

    def __init__(self, sample_rate: int, bands: int) -> None:
        super().__init__()
        self.window: Tensor
        self.spread: Tensor
        self.noise: Tensor
        self.fold: Tensor
        self.sample_rate = sample_rate
        window = torch.hann_window(WINDOW)
        self.register_buffer("window", window, persistent=False)
        self.register_buffer("spread", _spread(sample_rate, bands), persistent=False)
        noise = torch.randn(_NOISE_STEPS * STEP, generator=torch.Generator().manual_seed(1))
        frames = torch.cat([noise, noise[:LAG]]).unfold(0, WINDOW, STEP)
        self.register_buffer("noise", torch.fft.rfft(frames * window), persistent=False)
        fold = torch.zeros(WINDOW)
        fold[0] = fold[WINDOW // 2] = 1
        fold[1 : WINDOW // 2] = 2
        self.register_buffer("fold", fold, persistent=False)

    def forward(
        self, f0: Tensor, harmonic: Tensor, noise: Tensor, state: VocoderState | None = None
    ) -> tuple[Tensor, VocoderState]:
        """Renders the next steps of a stream.

        Args:
            f0: (batch, steps) Hz at the end of each step, positive.
            harmonic: (batch, steps, bands) natural log gains of the pulse train's filter.
            noise: (batch, steps, bands) natural log gains of the noise's filter.
            state: what the piece before returned; None at the start.

        Returns:
            (batch, steps * STEP) samples, behind the input by `LAG`, and the new state. The first `LAG` samples of a
            stream belong to the time before it.
        """
        batch, steps = f0.shape
        if state is None:
            zeros = f0.new_zeros(batch, LAG)
            state = VocoderState(f0.new_zeros(batch, dtype=torch.float64), f0[:, 0], zeros, zeros, 0)
        pulses, phase = self._pulses(f0, state)
        source = torch.cat([state.source, pulses], dim=1)
        spectra = torch.fft.rfft(source.unfold(1, WINDOW, STEP) * self.window)
        place = (torch.arange(steps, device=f0.device) + state.steps) % _NOISE_STEPS
        hiss = torch.view_as_real(self.noise[place]) * torch.exp(noise @ self.spread)[..., None]
        mixed = spectra * self._minimum_phase(harmonic @ self.spread) + torch.view_as_complex(hiss)
        frames = torch.fft.irfft(mixed, n=WINDOW) * (self.window / 1.5)
        summed = _overlap_add(frames, state.tail)
        done = summed[:, : steps * STEP]
        return done, VocoderState(phase, f0[:, -1], source[:, -LAG:], summed[:, steps * STEP :], state.steps + steps)

    def _pulses(self, f0: Tensor, state: VocoderState) -> tuple[Tensor, Tensor]:
        """(batch, steps * STEP) of unit power, and the phase after them."""
        before = torch.cat([state.f0[:, None], f0[:, :-1]], dim=1)
        ramp = torch.arange(1, STEP + 1, device=f0.device, dtype=f0.dtype) / STEP
        hz = (before[..., None] + (f0 - before)[..., None] * ramp).flatten(1)
        cycles = state.phase[:, None] + torch.cumsum(hz.double() / self.sample_rate, dim=1)
        phase = cycles[:, -1] % 1.0
        angle = (2 * math.pi * (cycles % 1.0)).to(f0.dtype)
        # The top harmonic fades in with the room there is for it: a whole number would click when F0 glides.
        room = self.sample_rate / 2 / hz
        whole = torch.floor(room)
        below = torch.sin(angle / 2)
        near = below.abs() < 1e-4
        kernel = torch.sin((whole + 0.5) * angle) / (2 * torch.where(near, torch.ones_like(below), below)) - 0.5
        pulses = torch.where(near, whole, kernel) + (room - whole) * torch.cos((whole + 1) * angle)
        return pulses * 2 * torch.sqrt(hz / self.sample_rate), phase

    def _minimum_phase(self, log_gain: Tensor) -> Tensor:
        """The complex response whose log magnitude is given and whose energy comes first (Oppenheim and Schafer, ch. 13)."""
        cepstrum = torch.fft.irfft(log_gain.to(torch.float32), n=WINDOW)
        phase = torch.fft.rfft(cepstrum * self.fold).imag.contiguous()
        gain = torch.exp(log_gain)
        # torch's complex exponential takes nine times as long.
        return torch.complex(gain * torch.cos(phase), gain * torch.sin(phase))


def _overlap_add(frames: Tensor, tail: Tensor) -> Tensor:
    """(batch, steps, WINDOW) and the open sums (batch, LAG) → (batch, steps * STEP + LAG)."""
    batch, steps, _ = frames.shape
    parts = WINDOW // STEP
    out = frames.new_zeros(batch, steps + parts - 1, STEP)
    for part in range(parts):
        out[:, part : part + steps] += frames[..., part * STEP : (part + 1) * STEP]
    out = out.flatten(1)
    return torch.cat([out[:, :LAG] + tail, out[:, LAG:]], dim=1)


def mel_of(hz: Tensor) -> Tensor:
    """Mel by O'Shaughnessy's formula, 2595 log10(1 + f/700)."""
    return 2595.0 * torch.log10(1.0 + hz / 700.0)


def _spread(sample_rate: int, bands: int) -> Tensor:
    """(bands, bins) linear interpolation of gains at mel-spaced frequencies, 0 to Nyquist, to the bins of the spectrum."""
    at = mel_of(torch.linspace(0, sample_rate / 2, WINDOW // 2 + 1))
    place = at / at[-1] * (bands - 1)
    return torch.clamp(1 - (place[None, :] - torch.arange(bands)[:, None]).abs(), min=0)
