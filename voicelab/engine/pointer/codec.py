"""The neural codec: audio to a few integers a frame, and those integers back to audio, causally.

``decode(codes)`` is the whole contract: timbre, pitch and words are in the codes. The encoder looks at a log spectrum (of
reference audio, so it may look ahead); residual vector quantization (Zeghidour et al., SoundStream, 2021) makes the codes;
the decoder predicts F0 and the filters of a vocoder: a pulse train and a noise, each filtered in the short-time spectrum,
overlapped and added.

The convolutions stream: given what came before, a piece at a time gives what the whole would have given. A streaming
module takes ``past`` (None at the start) and returns the new one beside its output; it keeps nothing itself, so one module
serves any number of streams.

The vocoder is harmonic plus noise synthesis (Stylianou 2001; in networks: Engel et al., DDSP, 2020) with a minimum-phase
harmonic filter. Nothing in it is learned; everything is differentiable. The pulse train has a closed form (the Dirichlet
kernel), so its cost does not grow with the number of harmonics. Time is counted in steps, a whole number to a code frame.
The filter of step j covers the window that ends with step j, so nothing after step j is needed, and samples are complete
three steps after their own: the price of overlapping. A checkpoint may have a head, which is learned: what it adds to the
filters, the pulses' phase included.

Where the audio ends at `CodecConfig.top`, sources and filters are made at twice that rate and the inverse transform is
longer: the audio has the rate of the codec without being resampled.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from voicelab.engine.family import Piece, Samples
from voicelab.engine.pointer.config import CodecConfig

STEP = 256
WINDOW = 1024
LAG = WINDOW - STEP
"""Samples by which the output is behind the input, at the embedded voice's step of `STEP`; windows are four steps."""
_NOISE_STEPS = 344
_F0_BASE = 120.0
_FAINTEST, _LOUDEST = -14.0, 4.0
State = list[Tensor]
"""What a stack of streaming convolutions remembers: one tensor a convolution, in order."""


class CausalConv(nn.Module):
    """A convolution over time that sees only the past.

    Shapes: (batch, channels_in, time) → (batch, channels_out, time).
    """

    def __init__(self, channels_in: int, channels_out: int, kernel: int, groups: int = 1) -> None:
        super().__init__()
        self.conv = nn.Conv1d(channels_in, channels_out, kernel, groups=groups)
        self.left = kernel - 1

    def forward(self, x: Tensor, past: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """The output, and what to pass as `past` with the next piece."""
        if past is None:
            past = x.new_zeros(x.shape[0], x.shape[1], self.left)
        x = torch.cat([past, x], dim=-1)
        return self.conv(x), x[..., x.shape[-1] - self.left :]


class ConvBlock(nn.Module):
    """A ConvNeXt block over time: depthwise convolution, then a pointwise MLP, added to the input.

    Shapes: (batch, channels, time) → the same. ``causal=False`` pads both sides (the encoder).
    """

    def __init__(self, channels: int, expansion: int = 3, kernel: int = 7, causal: bool = True) -> None:
        super().__init__()
        self.causal = causal
        self.kernel = kernel
        self.depthwise = CausalConv(channels, channels, kernel, groups=channels)
        self.norm = nn.LayerNorm(channels)
        self.widen = nn.Linear(channels, expansion * channels)
        self.narrow = nn.Linear(expansion * channels, channels)
        self.scale = nn.Parameter(torch.full((channels,), 0.1))

    def forward(self, x: Tensor, past: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """The output, and what to pass as `past` with the next piece."""
        if self.causal:
            y, past = self.depthwise(x, past)
        else:
            half = self.kernel // 2
            y = self.depthwise.conv(F.pad(x, (half, half)))
            past = x
        y = self.narrow(F.gelu(self.widen(self.norm(y.transpose(1, 2)))))
        return x + (self.scale * y).transpose(1, 2), past


class ConvStack(nn.Module):
    """Several causal blocks with one state."""

    def __init__(self, channels: int, blocks: int) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(ConvBlock(channels) for _ in range(blocks))

    def forward(self, x: Tensor, past: State | None = None) -> tuple[Tensor, State]:
        """The output, and what to pass as `past` with the next piece."""
        after: State = []
        for i, block in enumerate(self.blocks):
            x, new = block(x, None if past is None else past[i])
            after.append(new)
        return x, after


@dataclass(frozen=True)
class VocoderState:
    """What one stream carries from piece to piece."""

    phase: Tensor
    """(batch,) float64, in cycles."""
    f0: Tensor
    """(batch,) Hz at the end of the last step."""
    source: Tensor
    """(batch, three steps) latest samples of the pulse train, at the rate of the sources."""
    tail: Tensor
    """(batch, lag) sums still open to later windows."""
    steps: int
    """Steps done: the place in the noise."""


@dataclass(frozen=True)
class Refinement:
    """What a head adds to the filters, for every bin up to the top: (batch, steps, bins) each."""

    harmonic: Tensor
    """To the log gain of the pulses' filter."""
    phase: Tensor
    """To its phase, radians."""
    noise: Tensor
    """To the log gain of the noise's filter."""


class Vocoder(nn.Module):
    """Renders audio; `bands` filter gains a step for each of the two sources.

    Args:
        sample_rate: Hz of the audio.
        bands: evenly spaced in mel from 0 to `top`.
        step: samples.
        top: Hz above which there is nothing; half of `sample_rate` where it is None. A step must be a whole number of
            samples at twice this rate too.
    """

    def __init__(self, sample_rate: int, bands: int, step: int = STEP, top: float | None = None) -> None:
        super().__init__()
        self.window: Tensor
        self.synthesis: Tensor
        self.spread: Tensor
        self.noise: Tensor
        self.fold: Tensor
        self.sample_rate = sample_rate
        self.rate = sample_rate if top is None else round(2 * top)
        """Hz of the sources."""
        self.step = step * self.rate // sample_rate
        """Samples, at `rate`."""
        self.size = 4 * step
        """Samples of a window, at `sample_rate`."""
        self.lag = 3 * step
        """Samples by which the output is behind the input."""
        inside = 4 * self.step
        window = torch.hann_window(inside)
        self.register_buffer("window", window, persistent=False)
        scale = self.size / inside
        self.register_buffer("synthesis", torch.hann_window(self.size) / 1.5 * scale, persistent=False)
        self.register_buffer("spread", _spread(self.rate, bands, inside), persistent=False)
        noise = torch.randn(_NOISE_STEPS * self.step, generator=torch.Generator().manual_seed(1))
        frames = torch.cat([noise, noise[: 3 * self.step]]).unfold(0, inside, self.step)
        self.register_buffer("noise", torch.fft.rfft(frames * window), persistent=False)
        fold = torch.zeros(inside)
        fold[0] = fold[inside // 2] = 1
        fold[1 : inside // 2] = 2
        self.register_buffer("fold", fold, persistent=False)

    def forward(
        self,
        f0: Tensor,
        harmonic: Tensor,
        noise: Tensor,
        state: VocoderState | None = None,
        refined: Refinement | None = None,
    ) -> tuple[Tensor, VocoderState]:
        """Renders the next steps of a stream.

        Args:
            f0: (batch, steps) Hz at the end of each step, positive.
            harmonic: (batch, steps, bands) natural log gains of the pulse train's filter.
            noise: (batch, steps, bands) natural log gains of the noise's filter.
            state: what the piece before returned; None at the start.
            refined: what a head adds.

        Returns:
            (batch, steps * step) samples, behind the input by `lag`, and the new state. The first `lag` samples of a
            stream belong to the time before it.
        """
        batch = f0.shape[0]
        if state is None:
            source, tail = f0.new_zeros(batch, 3 * self.step), f0.new_zeros(batch, self.lag)
            state = VocoderState(f0.new_zeros(batch, dtype=torch.float64), f0[:, 0], source, tail, 0)
        pulses, phase = self._pulses(f0, state)
        state = replace(state, phase=phase, f0=f0[:, -1])
        return self.filtered(pulses, harmonic, noise, state, refined)

    def filtered(
        self, pulses: Tensor, harmonic: Tensor, noise: Tensor, state: VocoderState, refined: Refinement | None = None
    ) -> tuple[Tensor, VocoderState]:
        """As `forward`, of given `pulses` (batch, steps * step) at `rate`; `state` is at their end but for its sums."""
        steps = harmonic.shape[1]
        source = torch.cat([state.source, pulses], dim=1)
        spectra = torch.fft.rfft(source.unfold(1, self.window.shape[0], self.step) * self.window)
        place = (torch.arange(steps, device=pulses.device) + state.steps) % _NOISE_STEPS
        response, log_noise = self._minimum_phase(harmonic @ self.spread), noise @ self.spread
        if refined is not None:
            response = response * torch.polar(torch.exp(refined.harmonic), refined.phase)
            log_noise = log_noise + refined.noise
        hiss = torch.view_as_real(self.noise[place]) * torch.exp(log_noise)[..., None]
        mixed = spectra * response + torch.view_as_complex(hiss)
        # The last bin, at half the rate of the sources, is no longer its own mirror image.
        if self.rate != self.sample_rate:
            mixed = torch.cat([mixed[..., :-1], mixed[..., -1:] / 2], dim=-1)
        frames = torch.fft.irfft(mixed, n=self.size) * self.synthesis
        summed = _overlap_add(frames, state.tail)
        end = summed.shape[1] - self.lag
        after = replace(state, source=source[:, -3 * self.step :], tail=summed[:, end:], steps=state.steps + steps)
        return summed[:, :end], after

    def _pulses(self, f0: Tensor, state: VocoderState) -> tuple[Tensor, Tensor]:
        """(batch, steps * step) of unit power, and the phase after them."""
        before = torch.cat([state.f0[:, None], f0[:, :-1]], dim=1)
        ramp = torch.arange(1, self.step + 1, device=f0.device, dtype=f0.dtype) / self.step
        hz = (before[..., None] + (f0 - before)[..., None] * ramp).flatten(1)
        cycles = state.phase[:, None] + torch.cumsum(hz.double() / self.rate, dim=1)
        return self.pulse_train(hz, cycles), cycles[:, -1] % 1.0

    def pulse_train(self, hz: Tensor, cycles: Tensor) -> Tensor:
        """(batch, samples) of unit power from F0 and its phase (float64) at every sample, at `rate`."""
        angle = (2 * math.pi * (cycles % 1.0)).to(hz.dtype)
        # The top harmonic fades in with the room there is for it: a whole number would click when F0 glides.
        room = self.rate / 2 / hz
        whole = torch.floor(room)
        below = torch.sin(angle / 2)
        near = below.abs() < 1e-4
        kernel = torch.sin((whole + 0.5) * angle) / (2 * torch.where(near, torch.ones_like(below), below)) - 0.5
        pulses = torch.where(near, whole, kernel) + (room - whole) * torch.cos((whole + 1) * angle)
        return pulses * 2 * torch.sqrt(hz / self.rate)

    def _minimum_phase(self, log_gain: Tensor) -> Tensor:
        """The complex response whose log magnitude is given and whose energy comes first (Oppenheim and Schafer, ch. 13)."""
        cepstrum = torch.fft.irfft(log_gain.to(torch.float32), n=self.fold.shape[0])
        phase = torch.fft.rfft(cepstrum * self.fold).imag.contiguous()
        gain = torch.exp(log_gain)
        # torch's complex exponential takes nine times as long.
        return torch.complex(gain * torch.cos(phase), gain * torch.sin(phase))


def _overlap_add(frames: Tensor, tail: Tensor) -> Tensor:
    """(batch, steps, 4 * step) and the open sums (batch, 3 * step) → (batch, (steps + 3) * step)."""
    batch, steps, size = frames.shape
    parts, step = 4, size // 4
    out = frames.new_zeros(batch, steps + parts - 1, step)
    for part in range(parts):
        out[:, part : part + steps] += frames[..., part * step : (part + 1) * step]
    out = out.flatten(1)
    lag = tail.shape[1]
    return torch.cat([out[:, :lag] + tail, out[:, lag:]], dim=1)


def mel_of(hz: Tensor) -> Tensor:
    """Mel by O'Shaughnessy's formula, 2595 log10(1 + f/700)."""
    return 2595.0 * torch.log10(1.0 + hz / 700.0)


def _spread(sample_rate: int, bands: int, window: int) -> Tensor:
    """(bands, bins) linear interpolation of gains at mel-spaced frequencies, 0 to Nyquist, to the bins of the spectrum."""
    at = mel_of(torch.linspace(0, sample_rate / 2, window // 2 + 1))
    place = at / at[-1] * (bands - 1)
    return torch.clamp(1 - (place[None, :] - torch.arange(bands)[:, None]).abs(), min=0)


class EncoderSpectrum(nn.Module):
    """Samples → what the encoder sees: log mel bands in short windows, the lowest linear bins in long ones.

    A short window follows bursts and glides, a long one resolves harmonics, so it carries F0. Everything that falls into
    one code frame stands together: (batch, n * hop) → (batch, n, steps * mel_bands + long * linear_bins), where there is a
    long window every other step, or every step where a frame has an odd number of them.
    """

    def __init__(self, config: CodecConfig) -> None:
        super().__init__()
        self.short: Tensor
        self.long: Tensor
        self.mel: Tensor
        self.hop, self.step = config.hop, config.step
        self.apart = _long_step(config)
        self.linear_bins = config.linear_bins
        self.register_buffer("short", torch.hann_window(4 * config.step), persistent=False)
        self.register_buffer("long", torch.hann_window(8 * config.step), persistent=False)
        mel = mel_triangles(config.sample_rate, 4 * config.step, config.mel_bands, config.mel_top)
        self.register_buffer("mel", mel, persistent=False)

    def forward(self, samples: Tensor) -> Tensor:
        """Shapes as above."""
        batch, count = samples.shape[0], samples.shape[1] // self.hop
        mel = _magnitudes(samples, self.short, self.step) @ self.mel
        low = _magnitudes(samples, self.long, self.apart)[..., 1 : self.linear_bins + 1]
        both = torch.cat([mel.reshape(batch, count, -1), low.reshape(batch, count, -1)], dim=-1)
        return (torch.log(both + 1e-4) + 6.0) / 3.0


def _long_step(config: CodecConfig) -> int:
    """Samples between the encoder's long windows."""
    return config.step * (2 - config.hop // config.step % 2)


def _magnitudes(samples: Tensor, window: Tensor, step: int) -> Tensor:
    """(batch, time) → (batch, time / step, bins): windows centred on their steps, 1 for a full-scale tone."""
    around = window.shape[0] - step
    frames = F.pad(samples, (around // 2, around - around // 2)).unfold(1, window.shape[0], step)
    sizes: Tensor = torch.fft.rfft(frames * window).abs()
    return sizes * (4 / window.shape[0])


class Encoder(nn.Module):
    """EncoderSpectrum → latents: (batch, n, features) → (batch, n, latent)."""

    def __init__(self, config: CodecConfig) -> None:
        super().__init__()
        steps, width = config.hop // config.step, config.width
        long = config.hop // _long_step(config)
        self.enter = nn.Linear(steps * config.mel_bands + long * config.linear_bins, width)
        self.blocks = nn.ModuleList(ConvBlock(width, causal=False) for _ in range(config.depth))
        self.norm = nn.LayerNorm(width)
        self.leave = nn.Linear(width, config.latent)

    def forward(self, spectrum: Tensor) -> Tensor:
        """Shapes as above."""
        x = self.enter(spectrum).transpose(1, 2)
        for block in self.blocks:
            x, _ = block(x)
        out: Tensor = self.leave(self.norm(x.transpose(1, 2)))
        return out


class Quantizer(nn.Module):
    """Residual vector quantization: each codebook codes what the ones before it left over."""

    def __init__(self, config: CodecConfig) -> None:
        super().__init__()
        self.tables = nn.ParameterList(
            nn.Parameter(torch.randn(size, config.latent) * 0.1, requires_grad=False) for size in config.codebooks
        )

    def encode(self, latents: Tensor, beams: int = 4) -> Tensor:
        """(batch, n, latent) → codes (batch, n, codebooks), int64; the best of `beams` sums of entries."""
        flat = latents.flatten(0, -2)
        rows = torch.arange(flat.shape[0], device=flat.device)[:, None]
        rest, codes = flat[:, None], flat.new_zeros(flat.shape[0], 1, 0, dtype=torch.int64)
        for table in self.tables:
            distance = rest.square().sum(-1, keepdim=True) + (table * table).sum(1) - 2 * rest @ table.t()
            at = distance.flatten(1).topk(min(beams, distance[0].numel()), largest=False).indices
            source, code = at // table.shape[0], at % table.shape[0]
            rest = rest[rows, source] - table[code]
            codes = torch.cat([codes[rows, source], code[..., None]], dim=-1)
        return codes[:, 0].reshape(*latents.shape[:-1], len(self.tables))

    def decode(self, codes: Tensor) -> Tensor:
        """Codes (batch, n, codebooks) → (batch, n, latent)."""
        return torch.stack([table[codes[..., i]] for i, table in enumerate(self.tables)]).sum(0)


@dataclass(frozen=True)
class Filters:
    """What the decoder's network says of every vocoder step."""

    f0: Tensor
    """(batch, steps) Hz."""
    envelope: Tensor
    """(batch, steps, bands) log gains of both sources together."""
    voicing: Tensor
    """(batch, steps, bands) logits of the pulse train's share of the power."""
    silence: float
    """See `CodecConfig`."""

    @property
    def harmonic(self) -> Tensor:
        """(batch, steps, bands) log gains."""
        return (self._heard + 0.5 * F.logsigmoid(self.voicing)).clamp(min=_FAINTEST)

    @property
    def noise(self) -> Tensor:
        """(batch, steps, bands) log gains."""
        return (self._heard + 0.5 * F.logsigmoid(-self.voicing)).clamp(min=_FAINTEST)

    @property
    def _heard(self) -> Tensor:
        """The envelope without the floor under it."""
        share = torch.exp(2 * (self.silence - self.envelope)).clamp(max=1 - 1e-6)
        return self.envelope + 0.5 * torch.log1p(-share)


class Head(nn.Module):
    """Refines the vocoder's filters bin by bin: convolutions over its steps, causal (ConvNeXt, as in Vocos: Siuzdak, 2023).

    What it sees is what the vocoder is told. It begins by adding nothing, so that training starts from the vocoder alone.
    """

    def __init__(self, config: CodecConfig) -> None:
        super().__init__()
        bins = round(2 * config.step * (1 if config.top is None else 2 * config.top / config.sample_rate)) + 1
        self.enter = CausalConv(2 * config.filter_bands + 1, config.head_width, 7)
        self.stack = ConvStack(config.head_width, config.head_depth)
        self.norm = nn.LayerNorm(config.head_width)
        self.leave = nn.Linear(config.head_width, 3 * bins)
        nn.init.zeros_(self.leave.weight)
        nn.init.zeros_(self.leave.bias)

    def forward(self, filters: Filters, past: State | None = None) -> tuple[Refinement, State]:
        """Of the filters' steps, and what to pass as `past` with the next piece."""
        octaves = torch.log2(filters.f0 / _F0_BASE)[..., None]
        seen = torch.cat([filters.envelope / 3 + 1.5, torch.sigmoid(filters.voicing), octaves], dim=-1)
        x, enter = self.enter(seen.transpose(1, 2), None if past is None else past[0])
        x, stack = self.stack(x, None if past is None else past[1:])
        harmonic, phase, noise = self.leave(self.norm(x.transpose(1, 2))).float().chunk(3, dim=-1)
        return Refinement(harmonic.clamp(-5, 5), phase, noise.clamp(-5, 5)), [enter, *stack]


@dataclass(frozen=True)
class DecoderState:
    """What one stream of the decoder carries from piece to piece."""

    enter: Tensor
    coarse: State
    fine: State
    vocoder: VocoderState | None
    head: State | None = None


class Decoder(nn.Module):
    """Latents → audio, a piece at a time or whole.

    The envelope is a linear map of the frame's latent (the principal components of envelopes, so that distances between
    latents are distances between envelopes) and what two stages of convolutions add to it.
    """

    def __init__(self, config: CodecConfig) -> None:
        super().__init__()
        self.bands = config.filter_bands
        self.steps = config.hop // config.step
        self.fine_width, self.silence = config.fine_width, config.silence
        self.linear = nn.Linear(config.latent, self.steps * config.filter_bands)
        self.enter = CausalConv(config.latent, config.width, 3)
        self.coarse = ConvStack(config.width, config.depth)
        self.norm = nn.LayerNorm(config.width)
        self.up = nn.Linear(config.width, self.steps * config.fine_width)
        self.fine = ConvStack(config.fine_width, config.depth - 1)
        self.leave = nn.Linear(config.fine_width, 1 + 2 * config.filter_bands)
        self.head = Head(config) if config.head_depth else None
        self.vocoder = Vocoder(config.sample_rate, config.filter_bands, config.step, config.top)

    def filters(self, latents: Tensor, state: DecoderState | None = None) -> tuple[Filters, DecoderState]:
        """(batch, n, latent) → the vocoder's input for n frames; in the state returned only this part is new."""
        x, enter = self.enter(latents.transpose(1, 2), state and state.enter)
        x, coarse = self.coarse(x, state and state.coarse)
        x = self.up(self.norm(x.transpose(1, 2)))
        x = x.reshape(x.shape[0], -1, self.fine_width).transpose(1, 2)
        x, fine = self.fine(x, state and state.fine)
        y = self.leave(x.transpose(1, 2))
        base = self.linear(latents).reshape(*y.shape[:2], self.bands)
        f0 = _F0_BASE * torch.exp2(torch.clamp(y[..., 0], -1.5, 2.5))
        envelope = torch.clamp(base + y[..., 1 : 1 + self.bands], _FAINTEST, _LOUDEST)
        voicing = torch.clamp(y[..., 1 + self.bands :], -12.0, 12.0)
        after = DecoderState(enter, coarse, fine, state.vocoder if state else None)
        return Filters(f0, envelope, voicing, self.silence), after

    def forward(self, latents: Tensor, state: DecoderState | None = None) -> tuple[Tensor, DecoderState]:
        """(batch, n, latent) → (batch, n * hop) samples, behind the input by the vocoder's `lag`, and the new state."""
        filters, after = self.filters(latents, state)
        refined, head = self.head(filters, state and state.head) if self.head else (None, None)
        samples, vocoder = self.vocoder(filters.f0, filters.harmonic, filters.noise, after.vocoder, refined)
        return samples, DecoderState(after.enter, after.coarse, after.fine, vocoder, head)


class Codec(nn.Module):
    """Encoder, quantizer and decoder of one checkpoint."""

    def __init__(self, config: CodecConfig) -> None:
        super().__init__()
        self.config = config
        self.spectrum = EncoderSpectrum(config)
        self.encoder = Encoder(config)
        self.quantizer = Quantizer(config)
        self.decoder = Decoder(config)

    @torch.inference_mode()
    def encode(self, samples: Tensor) -> Tensor:
        """Audio (batch, time) at the codec's rate → codes (batch, n, codebooks); the end is padded to a whole frame."""
        return self.quantizer.encode(self.latents(samples))

    @torch.inference_mode()
    def latents(self, samples: Tensor) -> Tensor:
        """Audio (batch, time) → what the quantizer is given, (batch, n, latent)."""
        samples = F.pad(samples, (0, -samples.shape[1] % self.config.hop))
        out: Tensor = self.encoder(self.spectrum(samples))
        return out

    @torch.inference_mode()
    def decode(self, codes: Tensor) -> Tensor:
        """Codes (batch, n, codebooks) → audio (batch, n * hop), the whole at once."""
        return DecoderStream(self).feed(codes, last=True)


class DecoderStream:
    """One stream of codes becoming audio: pieces of it, the last marked as such; together they equal `Codec.decode`."""

    def __init__(self, codec: Codec) -> None:
        self._codec = codec
        self._state: DecoderState | None = None
        self._last: Tensor | None = None

    @torch.inference_mode()
    def feed(self, codes: Tensor, last: bool = False) -> Tensor:
        """Codes (batch, n, codebooks) → the samples they complete (batch, …), float32.

        The last piece, which may be empty, completes all: its last frame is held while it fades out of the overlap.
        """
        latents = self._codec.quantizer.decode(codes)
        if last:
            final = latents[:, -1:] if codes.shape[1] else self._last
            if final is None:
                return latents.new_zeros(codes.shape[0], 0)
            latents = torch.cat([latents, final], dim=1)
        elif codes.shape[1] == 0:
            return latents.new_zeros(codes.shape[0], 0)
        first = self._state is None
        samples, self._state = self._codec.decoder(latents, self._state)
        self._last = latents[:, -1:]
        lag = self._codec.decoder.vocoder.lag
        begin = lag if first else 0
        completed: Tensor = samples[:, begin : codes.shape[1] * self._codec.config.hop + lag if last else None]
        return completed


class PointerDecoding:
    """The codec's decoder, as `family.Decoding` says: each stream by itself."""

    together = 1

    def __init__(self, codec: Codec) -> None:
        self._codec = codec
        self.sample_rate, self.hop = codec.config.sample_rate, codec.config.hop
        self.codebooks = len(codec.config.codebooks)

    def open(self) -> DecoderStream:
        """See family.Decoding."""
        return DecoderStream(self._codec)

    def feed(self, pieces: Sequence[Piece]) -> list[Samples]:
        """See family.Decoding."""
        device = self._codec.decoder.leave.weight.device
        return [
            cast("DecoderStream", piece.stream).feed(piece.codes[None].to(device), piece.last)[0].cpu().numpy()
            for piece in pieces
        ]

    def close(self, stream: DecoderStream) -> None:
        """See family.Decoding: a stream holds nothing but its own state."""


def mel_triangles(rate: int, window: int, bands: int, top: float) -> Tensor:
    """(bins, bands) triangles of unit sum for a `window` of samples, from 0 to `top` Hz, none narrower than a bin."""
    hz = torch.linspace(0, rate / 2, window // 2 + 1)
    edges = torch.linspace(0, float(mel_of(torch.tensor(top))), bands + 2)
    corners = 700 * (10 ** (edges / 2595) - 1)
    reach = torch.clamp((corners[2:] - corners[:-2]) / 2, min=float(hz[1]))
    triangles = torch.clamp(1 - (hz[:, None] - corners[1:-1]).abs() / reach, min=0)
    return triangles / triangles.sum(0)
